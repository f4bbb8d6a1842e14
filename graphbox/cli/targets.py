"""`graphbox targets`: what models can run on, what cannot be used, and why."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.cli.text import duration, table
from graphbox.errors import GateError

group = typer.Typer(help="List or test what models can run on.")


def list_targets(session: Session) -> None:
    """List every device that an adapter looked for, and why it is not there."""
    from dataclasses import asdict

    from graphbox.deploy import targets

    found = targets()

    def show(console: Any) -> None:
        rows = [
            (
                target.adapter,
                target.device.name if target.device else "",
                "yes" if target.available else "no",
                target.reason or (target.device.description if target.device else ""),
                target.distribution,
            )
            for target in found
        ]
        console.print(table(None, ("adapter", "device", "there", "detail", "from"), rows))

    session.answer([asdict(target) for target in found], show)


def test_target(
    session: Session, name: Annotated[str, typer.Argument(help="Adapter, or adapter/device.")]
) -> None:
    """Run the conformance kit on an adapter."""
    from graphbox.deploy.conformance import check_adapter

    report = check_adapter(name)

    def show(console: Any) -> None:
        rows = [(case.case, case.outcome, case.detail) for case in report.cases]
        console.print(table(f"{report.adapter} on {report.device}", ("case", "outcome", "detail"), rows))
        counts = Counter(case.outcome for case in report.cases)
        refused = f", {counts['refused']} were refused" if counts["refused"] else ""
        console.print(
            f"{counts['passed']} of {len(report.cases)} cases passed{refused} in {duration(report.seconds)}"
        )

    session.answer(report.as_dict(), show)
    if not report.passed:
        failed = ", ".join(case.case for case in report.cases if case.outcome == "failed")
        raise GateError(f"the adapter does not keep the contract: {failed}", where=f"target `{name}`")


command(group, "list", default=True)(list_targets)
command(group, "test")(test_target)


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.add_typer(group, name="targets")
