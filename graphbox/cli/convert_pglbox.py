"""`graphbox convert-pglbox`: the YAML file of a PGLBox run becomes a run file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.new_file import write_new_file
from graphbox.cli.session import Session, command
from graphbox.cli.text import table

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.pglbox import Outcome

_DEFAULT = Path("graphbox.yaml")


def convert_pglbox(
    session: Session,
    file: Annotated[Path, typer.Argument(help="YAML file of PGLBox, in PGL's or PaddleRec's variant.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Run file to write.")] = _DEFAULT,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder of the part files. (default: the one the YAML file names)"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a run file that is there already.")
    ] = False,
) -> None:
    """Convert a PGLBox YAML file to a run file, and say what became of each key."""
    from graphbox.pglbox import convert

    conversion = convert(file, data=data, output=output)
    hint = "name another with `-o`, or write over it with `--force`"
    write_new_file(output, conversion.text, hint=hint, force=force)
    document = {
        "file": str(file),
        "output": str(output),
        "keys": [_entry(key) for key in conversion.outcomes],
    }

    def show(console: Console) -> None:
        rows = [_row(outcome) for outcome in conversion.outcomes]
        console.print(table(None, ("line", "key", "fate", "in the run file", "note"), rows, ("line",)))
        text = f"wrote {output}; next: `graphbox check {output}`, then `graphbox run {output}`"
        console.print(text, markup=False, soft_wrap=True)

    session.answer(document, show)


def _row(outcome: Outcome) -> tuple[str, str, str, str, str]:
    line = "" if outcome.line is None else str(outcome.line)
    return (line, outcome.key, outcome.fate, outcome.target, outcome.note)


def _entry(outcome: Outcome) -> dict[str, Any]:
    return {
        "key": outcome.key,
        "line": outcome.line,
        "value": outcome.value,
        "fate": outcome.fate.value,
        "target": outcome.target or None,
        "note": outcome.note or None,
    }


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "convert-pglbox")(convert_pglbox)
