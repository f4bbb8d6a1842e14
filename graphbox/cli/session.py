"""Base of all commands: global options, the workspace's location, and printing of answers."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.config.graph_schema import GraphSchema, SchemaOf
    from graphbox.workspace import Workspace


class Color(StrEnum):
    """When to colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class LogLevel(StrEnum):
    """Verbosity of the log on standard error."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_PANEL = "Options of every command"

WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-C",
        envvar="GRAPHBOX_WORKSPACE",
        show_envvar=False,
        help="Folder of graphs, runs and models. (default: ./workspace)",
        rich_help_panel=_PANEL,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.", rich_help_panel=_PANEL)
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.", rich_help_panel=_PANEL)
]
ColorOption = Annotated[
    Color | None,
    typer.Option("--color", help="Colours; NO_COLOR is honoured. (default: auto)", rich_help_panel=_PANEL),
]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option("--log-level", help="Log on standard error. (default: warning)", rich_help_panel=_PANEL),
]


def global_options(
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    color: ColorOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Take the options that every command takes; used for its signature."""


@dataclass
class Session:
    """One call of the command line.

    Attributes:
        workspace_path: folder of the workspace.
        has_explicit_workspace: whether an option or the environment named the workspace.
        json: print one JSON document instead of text.
        quiet: no progress.
        color: when to colour.
        log_level: how much to log.
        context: of the command that runs.
        logs_json: whether logs and remarks are lines of JSON.
    """

    workspace_path: Path = Path("workspace")
    has_explicit_workspace: bool = False
    json: bool = False
    quiet: bool = False
    color: Color = Color.AUTO
    log_level: LogLevel = LogLevel.WARNING
    context: typer.Context | None = None
    logs_json: bool = False

    def apply(self, options: dict[str, Any]) -> None:
        """Take over the global options that were given."""
        if options["workspace"] is not None:
            self.workspace_path = options["workspace"]
            self.has_explicit_workspace = True
        self.json = self.json or options["json"]
        self.quiet = self.quiet or options["quiet"]
        self.color = options["color"] or self.color
        self.log_level = options["log_level"] or self.log_level

    def start_logging(self) -> None:
        """Send logs to standard error at the chosen level."""
        handler = logging.StreamHandler(sys.stderr)
        handler.setLevel(self.log_level.upper())
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=self.log_level.upper(), handlers=[handler], force=True)

    def log_as_json(self) -> None:
        """Send logs and remarks to standard error as lines of JSON at the chosen level."""
        from graphbox.server.logs import start_json_log

        start_json_log(logging.getLevelName(self.log_level.upper()))
        self.logs_json = True

    def workspace(self, *, create: bool = False) -> Workspace:
        """Open the workspace.

        Raises:
            NotFoundError: there is none and ``create`` is False.
        """
        from graphbox.package_folder import keep_packages_in
        from graphbox.workspace import Workspace

        workspace = Workspace(self.workspace_path, os.environ.get("GRAPHBOX_DATABASE_URL"), create=create)
        keep_packages_in(workspace.root)
        if workspace.has_unfinished_forgettings():
            self.note(
                "nodes were to be forgotten, which was interrupted: `graphbox forget --resume` resumes it"
            )
        return workspace

    def stored_schema(self) -> SchemaOf:
        """Return what looks up the types of a stored graph; only then the workspace is opened."""
        from graphbox.errors import NotFoundError
        from graphbox.pipeline.stored_graph import stored_schema

        def look_up(name: str) -> GraphSchema:
            try:
                workspace = self.workspace()
            except NotFoundError as error:
                raise NotFoundError(
                    f"there is no stored graph `{name}`: there is no workspace {self.workspace_path}",
                    where=error.where,
                    hint="name the workspace with -C, or list tables under `graph.nodes` and `graph.edges`",
                ) from None
            with workspace:
                return stored_schema(workspace)(name)

        return look_up

    def out(self) -> Console:
        """Return the console for results."""
        return self._console(sys.stdout)

    def err(self) -> Console:
        """Return the console for progress, notes and errors."""
        return self._console(sys.stderr)

    def answer(self, document: Any, show: Callable[[Console], None]) -> None:
        """Print the result: ``document`` as JSON with ``--json``, else what ``show`` prints."""
        if self.json:
            sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, default=_plain) + "\n")
            sys.stdout.flush()
        else:
            show(self.out())

    def note(self, text: str) -> None:
        """Print a remark on standard error, unless quiet."""
        if self.logs_json and not self.quiet:
            record = logging.LogRecord("graphbox", logging.INFO, "", 0, text, None, None)
            logging.getLogger().handle(record)  # at any level, as a remark in text is printed
        elif not self.quiet:
            self.err().print(text, markup=False, highlight=False, soft_wrap=True)

    def _console(self, file: Any) -> Console:
        from graphbox.cli.console import DataConsole

        terminal = file.isatty()
        return DataConsole(
            file=file,
            force_terminal=True if self.color is Color.ALWAYS else None,
            no_color=True if self.color is Color.NEVER else None,
            width=None if terminal else 120,
            highlight=False,
            emoji=False,
        )


def command(
    app: typer.Typer, name: str, *, default: bool = False, **settings: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as command ``name`` of ``app``.

    The function's first parameter is the `Session`; the options of every command are added to its own.

    Args:
        app: the application or group.
        name: name of the command.
        default: also run it when the group is called without a command.
        **settings: passed on to typer.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        wrapped = _with_global_options(function)
        app.command(name, help=_in_paragraphs(function.__doc__ or ""), **settings)(wrapped)
        if default:
            app.callback(invoke_without_command=True)(_only_without_command(wrapped))
        return function

    return register


def _in_paragraphs(docstring: str) -> str:
    """Return a docstring whose paragraphs are one line each, which a terminal wraps by its own width."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _with_global_options(function: Callable[..., None]) -> Callable[..., None]:
    shared = inspect.signature(global_options).parameters
    own = [p for p in inspect.signature(function).parameters.values() if p.name != "session"]
    hints = get_type_hints(global_options, include_extras=True) | get_type_hints(
        function, include_extras=True
    )
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

    @functools.wraps(function)
    def run(context: typer.Context, **values: Any) -> None:
        session: Session = context.obj
        session.context = context
        session.apply({key: values.pop(key) for key in shared})
        session.start_logging()
        function(session, **values)

    parameters = [context] + [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name])
        for p in [*own, *shared.values()]
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _only_without_command(run: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(run)
    def run_group(context: typer.Context, **values: Any) -> None:
        if context.invoked_subcommand is None:
            run(context, **values)
        else:
            session: Session = context.obj
            session.apply(values)

    run_group.__signature__ = inspect.signature(run)  # type: ignore[attr-defined]
    return run_group


def _plain(value: Any) -> Any:
    """Return what JSON has no form for as something it has."""
    isoformat = getattr(value, "isoformat", None)
    if isoformat is not None:
        return isoformat()
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")
