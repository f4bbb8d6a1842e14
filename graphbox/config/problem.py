"""One mistake in a run file, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """A mistake at a place in the run file.

    Attributes:
        key: path of keys and list positions.
        message: what was expected and what was received.
        hint: what to do next.
        line: line of the file, from 1; None for what an override set.
        override: the override that set the value, if one did.
    """

    key: tuple[str | int, ...]
    message: str
    hint: str | None = None
    line: int | None = None
    override: str | None = None

    def render(self, path: Path, text: Sequence[str]) -> str:
        """Return the message with place, source line and hint, in the form compilers use."""
        place = f"override `{self.override}`" if self.override else str(path)
        if self.line is not None and not self.override:
            place += f":{self.line}"
        shown = [f"{place}: {dotted(self.key)}: {self.message}" if self.key else f"{place}: {self.message}"]
        if self.line is not None and not self.override and self.line <= len(text):
            shown.append(f"  {self.line:>4} | {text[self.line - 1].rstrip()}")
        if self.hint:
            shown.append(f"  = help: {self.hint}")
        return "\n".join(shown)


def dotted(key: Sequence[str | int]) -> str:
    """Return a key path as it is written in overrides: ``graph.edges.0.type``."""
    return ".".join(str(part) for part in key)
