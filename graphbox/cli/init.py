"""`graphbox init`: a run file to start from, which needs only the user's tables and columns."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from graphbox.cli.new_file import write_new_file
from graphbox.cli.session import Session, command
from graphbox.errors import GraphboxError, UsageError

_RUN_FILE = "graphbox.yaml"


class Template(StrEnum):
    """Template of a run file, by its purpose."""

    WALK = "walk"
    RECOMMEND = "recommend"
    NEXT = "next"
    KNOWLEDGE = "knowledge"
    CLASSIFY = "classify"
    CLICK = "click"
    STREAM = "stream"


_PURPOSE = {
    Template.WALK: "embeddings from edges alone",
    Template.RECOMMEND: "what a user will choose",
    Template.NEXT: "what comes next, by events in order of time",
    Template.KNOWLEDGE: "the links that a knowledge graph lacks",
    Template.CLASSIFY: "the classes of nodes",
    Template.CLICK: "which rows of a log are clicked",
    Template.STREAM: "what a user will choose, learnt hour by hour",
}
_NEXT = {
    # Its tables come with the chunks, so none is there to be checked or imported.
    Template.STREAM: "`graphbox train {path} --follow {folder}`",
}


def init(
    session: Session,
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder of the run file, made when it is not there.")
    ] = Path(),
    template: Annotated[
        Template | None, typer.Option("--template", "-t", help="What it is for.", show_default=False)
    ] = None,
) -> None:
    """Write a run file to start from: name your tables and columns in it, and run it.

    It names no setting of the models: their defaults are what `graphbox check --resolved` prints.
    """
    if template is None:
        purposes = ", ".join(f"{name} ({purpose})" for name, purpose in _PURPOSE.items())
        raise UsageError("expected --template, received none", hint=f"there are: {purposes}")
    path = folder / _RUN_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GraphboxError(f"the folder cannot be made: {error.strerror}", where=str(folder)) from None
    following = _NEXT.get(template, "`graphbox check {path}` and `graphbox run {path}`").format(
        path=path, folder=folder / "incoming"
    )
    write_new_file(path, template_text(template), hint="name another folder: `graphbox init ... DIR`")
    session.answer(
        {"template": template.value, "path": str(path)},
        lambda console: console.print(
            f"wrote {path}; name your tables and columns on its lines with <-, then {following}",
            markup=False,
            soft_wrap=True,
        ),
    )


def template_text(template: Template) -> str:
    """Return the run file of a template."""
    return (Path(__file__).parent / "templates" / f"{template}.yaml").read_text(encoding="utf-8")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "init")(init)
