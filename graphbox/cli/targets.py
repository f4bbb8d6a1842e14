"""`graphbox targets`: what models can run on, what cannot be used, and why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.cli.text import byte_size, duration, table
from graphbox.errors import GateError

group = typer.Typer(help="List, test or build for what models can run on.")


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


def check_target(
    session: Session,
    name: Annotated[str, typer.Argument(help="Adapter, or adapter/device.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report, as JSON and Markdown.")
    ] = None,
) -> None:
    """Run the conformance kit on an adapter."""
    from graphbox.deploy.conformance import check_adapter
    from graphbox.deploy.conformance_report import write_report

    report = check_adapter(name)
    if out is not None:
        write_report(report, out)

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


def build_target(
    session: Session,
    model: Annotated[str, typer.Argument(help="Name of a model in the workspace, or a version's folder.")],
    target: Annotated[str, typer.Option("--target", help="Adapter, or adapter/device.")],
    version: Annotated[int | None, typer.Option("--version", help="Version. (default: active)")] = None,
    threads: Annotated[int, typer.Option("--threads", help="Threads of one call.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="New folder to copy the files to.")] = None,
) -> None:
    """Compile a model for a target ahead of its first request."""
    from dataclasses import asdict

    from graphbox.artifact.manifest import MANIFEST_FILE
    from graphbox.deploy.building import build_package

    path = Path(model)
    if not (path / MANIFEST_FILE).exists():
        with session.workspace() as workspace:
            path = workspace.model(model, version).path
    package = build_package(path, target, threads, out)

    def show(console: Any) -> None:
        rows = [(name, byte_size(size)) for name, size in package.files.items()]
        console.print(table(f"{package.adapter} on {package.device}", ("file", "size"), rows, {"size"}))
        where = f"in {package.folder}, {duration(package.seconds)}"
        console.print(where, markup=False, soft_wrap=True)

    session.answer(asdict(package), show)


command(group, "list", default=True)(list_targets)
command(group, "test")(check_target)
command(group, "build")(build_target)


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.add_typer(group, name="targets")
