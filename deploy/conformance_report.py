"""Report of the conformance kit, as JSON and as Markdown, with a digest of its content."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from graphbox.durable import write_atomically

__all__ = ["CaseResult", "ConformanceReport", "Outcome", "write_report"]

Outcome = Literal["passed", "refused", "failed"]


@dataclass(frozen=True)
class CaseResult:
    """One case.

    Attributes:
        case: what was looked at.
        outcome: ``refused`` where the adapter says that it does not support the operator, and keeps to that.
        detail: what went wrong, or why it was refused.
    """

    case: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class ConformanceReport:
    """All cases of one adapter on one device.

    Attributes:
        adapter: its name.
        device: name of the device.
        description: of the device.
        runtime: name and version of what ran the models.
        graphbox: version of the kit.
        seconds: that all cases took.
        cases: in the order in which they ran.
    """

    adapter: str
    device: str
    description: str
    runtime: str
    graphbox: str
    seconds: float
    cases: tuple[CaseResult, ...]

    @property
    def passed(self) -> bool:
        """True if no case failed."""
        return not any(case.outcome == "failed" for case in self.cases)

    @property
    def digest(self) -> str:
        """The sha256 of all of it but the time it took: two reports with one digest say the same."""
        content = {key: value for key, value in asdict(self).items() if key != "seconds"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {**asdict(self), "passed": self.passed, "digest": self.digest}

    def as_markdown(self) -> str:
        """Return the report as a page."""
        counts = Counter(case.outcome for case in self.cases)
        listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        where = f"{self.runtime} on {self.description}; graphbox {self.graphbox}."
        lines = [
            f"# {self.adapter} on {self.device}",
            "",
            f"{where} Of {len(self.cases)} cases: {listed}. Digest {self.digest}.",
            "",
            "| case | outcome | detail |",
            "|---|---|---|",
            *(f"| {case.case} | {case.outcome} | {_cell(case.detail)} |" for case in self.cases),
        ]
        return "\n".join(lines) + "\n"


def write_report(report: ConformanceReport, folder: Path) -> list[Path]:
    """Write a report as JSON and as a page into a folder, and return the two paths."""
    name = f"{report.adapter}-{report.device}".replace("/", "-").replace(":", "-")
    texts = {
        folder / f"{name}.json": json.dumps(report.as_dict(), indent=2) + "\n",
        folder / f"{name}.md": report.as_markdown(),
    }
    for path, text in texts.items():
        with write_atomically(path) as stream:
            stream.write(text.encode())
    return list(texts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
