"""The program `graphbox`: registers the commands, and turns every error into a message and an exit code."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import graphbox
from graphbox.cli import (
    audit,
    bench,
    change_graph,
    check,
    compress,
    convert_pglbox,
    demo,
    describe,
    doctor,
    embed,
    evaluate,
    export,
    forget,
    graphs,
    import_graph,
    init,
    models,
    plan,
    predict,
    run,
    runs,
    serve,
    targets,
    tokens,
    train,
)
from graphbox.cli.session import (
    ColorOption,
    JsonOption,
    LogLevelOption,
    QuietOption,
    Session,
    WorkspaceOption,
)
from graphbox.errors import ConfigError, GraphboxError

_STOPPED = 130

app = typer.Typer(
    name="graphbox",
    help="Train, compress, export and serve embeddings of graphs. Start with `graphbox demo`.",
    epilog=(
        "Environment: GRAPHBOX_WORKSPACE (default of -C), GRAPHBOX_DATABASE_URL (a database instead of "
        "graphbox.db in the workspace), GRAPHBOX_TOKEN (default of --token), GRAPHBOX_SERVE_<OPTION> "
        "(defaults of the options of serve), NO_COLOR."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"graphbox {graphbox.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    color: ColorOption = None,
    log_level: LogLevelOption = None,
    version: Annotated[  # noqa: ARG001 (its callback prints)
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj.apply(
        {"workspace": workspace, "json": json, "quiet": quiet, "color": color, "log_level": log_level}
    )


for module in (
    demo,
    init,
    run,
    check,
    doctor,
    import_graph,
    change_graph,
    forget,
    plan,
    describe,
    train,
    evaluate,
    embed,
    predict,
):
    module.register(app)
for module in (export, compress, bench, targets, serve, tokens, audit, graphs, runs, models, convert_pglbox):
    module.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code: see `graphbox.errors` for what each means."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    session = Session(json="--json" in given)
    try:
        code = app(given, obj=session, prog_name="graphbox", standalone_mode=False)
    except GraphboxError as error:
        return _report(session, error.exit_code, _document(error), str(error))
    except KeyboardInterrupt:
        code = _STOPPED
    except typer.Abort:
        return 1
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001 (the last resort: nothing may end in a traceback)
        return _report_unexpected(session, error, given)
    if code == _STOPPED:
        # The option parser, too, answers Ctrl-C with this code.
        return _report(
            session, _STOPPED, {"code": "stopped", "message": "stopped by Ctrl-C"}, "stopped by Ctrl-C"
        )
    return code if isinstance(code, int) else 0


def _report(session: Session, exit_code: int, document: dict[str, Any], text: str) -> int:
    if session.json:
        session.answer({"error": document}, lambda _: None)
    console = session.err()
    console.print("[bold red]error:[/] ", end="")
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    return exit_code


def _document(error: GraphboxError) -> dict[str, Any]:
    document: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "where": error.where,
        "hint": error.hint,
    }
    if isinstance(error, ConfigError):
        document["problems"] = list(error.problems)
    return document


def _report_unexpected(session: Session, error: Exception, arguments: list[str]) -> int:
    message = _usage_message(error)
    if message is not None:
        context = getattr(error, "ctx", None)
        hint = f"`{context.command_path if context else 'graphbox'} --help` shows what there is"
        document = {"code": "usage", "message": message, "where": None, "hint": hint}
        return _report(session, 2, document, f"{message}\n  = help: {hint}")
    from graphbox.pipeline.failure import known_failure

    known = known_failure(error)
    if known is not None:
        return _report(session, known.exit_code, _document(known), str(known))
    path = _write_traceback(arguments)
    message = f"{type(error).__name__}: {error}"
    hint = f"this is a fault of graphbox; please report it with {path}"
    document = {"code": "unexpected", "message": message, "where": str(path), "hint": hint}
    return _report(session, 1, document, f"unexpected {message}\n  = help: {hint}")


def _usage_message(error: Exception) -> str | None:
    """Return the text of an error of the option parser; None for any other error."""
    # The parser's own classes have moved between releases of typer; their names have not.
    if not any(kind.__name__ == "ClickException" for kind in type(error).__mro__):
        return None
    text = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    return text.replace("Value error, ", "", 1).rstrip(".")  # the parser's words for any wrong value


def _write_traceback(arguments: list[str]) -> Path:
    """Write the traceback being handled, and what led to it, to a file and return its path."""
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    now = datetime.now(UTC)
    text = (
        f"graphbox {graphbox.__version__}, Python {sys.version}\n{now.isoformat()}\ncommand: {verb}\n\n"
        f"{traceback.format_exc()}"
    )
    name = f"error-{now:%Y%m%d-%H%M%S}-{os.getpid()}.log"
    for folder in (_state_folder(), Path(tempfile.gettempdir())):
        if folder is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        except OSError:
            continue
        return folder / name
    return Path("standard error of a run with --log-level debug")


def _state_folder() -> Path | None:
    """Return the folder of files that outlive a run; None: the user has no home folder."""
    given = os.environ.get("XDG_STATE_HOME")
    try:
        state = Path(given) if given else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return state / "graphbox"
