"""`graphbox serve`: models and the web page over HTTP."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.serve_options import ENVIRONMENT_PREFIX, print_options, read_options, with_settings
from graphbox.cli.session import Session, command
from graphbox.errors import UsageError
from graphbox.server.settings import Settings

if TYPE_CHECKING:
    from graphbox.server.readiness import Readiness


class LogFormatName(StrEnum):
    """Forms of a log."""

    TEXT = "text"
    JSON = "json"


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    read_options(context, path, serve)
    return path


HostOption = Annotated[str, typer.Option("--host", help="Address; any but loopback needs --token.")]
PortOption = Annotated[int, typer.Option("--port", help="Port; 0 takes any free one.")]
GrpcPortOption = Annotated[
    int | None, typer.Option("--grpc-port", help="Port of KServe v2 over gRPC; 0 takes any free one.")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Names, scopes and hashes of tokens: see `graphbox tokens`. Read again when it changes.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="GRAPHBOX_TOKEN", help="Secret that every request must present."),
]


@with_settings
def serve(
    session: Session,
    config: Annotated[  # noqa: ARG001 (its callback reads the file)
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="YAML file of options, with `_` for `-`: `port: 8710`. Options and variables "
            f"{ENVIRONMENT_PREFIX}_<OPTION> beat it.",
            is_eager=True,
            callback=_read_config,
        ),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all options and where they come from, and stop.")
    ] = False,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8710,
    grpc_port: GrpcPortOption = None,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="PEM file; connections are encrypted then.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="PEM file of the certificate's private key.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Further name accepted in the Host header.")
    ] = None,
    models: Annotated[
        list[Path] | None,
        typer.Option(
            "--models",
            metavar="DIR",
            help="Folder of models (NAME/VERSION/ inside), or one version. Without -C, no workspace is used.",
        ),
    ] = None,
    target: Annotated[str, typer.Option("--target", help="Adapter; see `graphbox targets`.")] = "auto",
    threads: Annotated[int, typer.Option("--threads", help="Threads of one model execution.")] = 1,
    nearest: Annotated[
        str,
        typer.Option(
            "--nearest",
            metavar="[auto|exact|index]",
            help="Index of nearest nodes: auto for tables of more than 50,000 rows, exact for none.",
        ),
    ] = "auto",
    max_rows: Annotated[
        list[str] | None,
        typer.Option("--max-rows", metavar="[NAME=]ROWS", help="Most rows of a request (to model NAME)."),
    ] = None,
    max_json: Annotated[
        str | None,
        typer.Option("--max-json", metavar="SIZE", help="Largest JSON part of a request, like 4MiB."),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", help="Processes that answer requests on the same port.")
    ] = 1,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow", help="Switch to versions that become active, or only at SIGHUP."
        ),
    ] = True,
    restrict: Annotated[
        list[str] | None,
        typer.Option(
            "--restrict",
            metavar="CATEGORY[,CATEGORY]:NAME=FILE",
            help="Requests of a category need the secret of FILE (or env:VARIABLE) in the header NAME.",
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Make the workspace if there is none; the server gets ready with its first model.",
        ),
    ] = False,
    otel: Annotated[
        bool,
        typer.Option("--otel", help="Trace requests by OpenTelemetry, as its variables say (extra `otel`)."),
    ] = False,
    log_format: Annotated[
        LogFormatName, typer.Option("--log-format", help="Lines of the log: text, or JSON objects.")
    ] = LogFormatName.TEXT,
    **limits: Any,
) -> None:
    """Serve the models of the workspace or of folders: KServe v2, REST, and the web page, until Ctrl-C.

    A running server follows the workspace and the folders: it serves versions that become active within a
    second. With --no-follow what it serves changes at SIGHUP.
    """
    from graphbox.cli.import_graph import memory_bytes

    if print_config:
        print_options(session, serve)
        return
    if log_format is LogFormatName.JSON:
        session.log_as_json()
    rows, rows_by_model = _row_limits(max_rows or [])
    settings = Settings(
        workspace=None if models and not session.has_explicit_workspace else session.workspace_path,
        database_url=database_url(),
        models=tuple(models or ()),
        host=host,
        port=port,
        grpc_port=grpc_port,
        token=token,
        token_file=token_file,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        allowed_hosts=tuple(allow_host or ()),
        target=target,
        threads=threads,
        nearest=nearest,  # type: ignore[arg-type]  # checked with the other settings
        workers=workers,
        follow=follow,
        restrict=tuple(restrict or ()),
        create=create,
        otel=otel,
        max_rows=rows or Settings.max_rows,
        max_rows_by_model=rows_by_model,
        max_json_bytes=memory_bytes(max_json, "--max-json") or Settings.max_json_bytes,
        **limits,
    )
    serve_models(session, settings)


def serve_models(session: Session, settings: Settings, *, announce_json: bool = True) -> None:
    """Serve until a signal, and print where and which models.

    Args:
        session: this call of the command line.
        settings: settings of the server.
        announce_json: with ``--json``, print the address as the document of this command.

    Raises:
        UsageError: a setting is wrong or unsafe.
        NotFoundError: there is no such target.
    """
    from graphbox.server.start import serve as serve_until_signal

    def on_start(url: str, grpc_address: str | None) -> None:
        if session.json and announce_json:
            document = {"url": url} if grpc_address is None else {"url": url, "grpc": grpc_address}
            sys.stdout.write(json.dumps(document) + "\n")
            sys.stdout.flush()
        places = [settings.workspace, *settings.models]
        served = ", ".join(str(place) for place in places if place is not None)
        session.note(f"serving {served} on {url} (Ctrl-C stops)")
        if grpc_address is not None:
            session.note(f"gRPC on {grpc_address}")
        if settings.token or settings.token_file:
            session.note("the page asks for the token; other clients send `Authorization: Bearer TOKEN`")

    def on_preload(readiness: Readiness) -> None:
        for line in _preload_report(readiness, settings):
            session.note(line)

    serve_until_signal(settings, on_start, on_preload)


def database_url() -> str | None:
    """Return the URL of the workspace's database if the environment names one."""
    return os.environ.get("GRAPHBOX_DATABASE_URL")


def _row_limits(texts: list[str]) -> tuple[int | None, dict[str, int]]:
    """Return the limit for all models and those of single models.

    Raises:
        UsageError: a text is neither ``ROWS`` nor ``NAME=ROWS``.
    """
    for_all: int | None = None
    by_model: dict[str, int] = {}
    for text in texts:
        name, equals, rows = text.rpartition("=")
        if not (rows.isascii() and rows.isdigit() and int(rows)) or (equals and not name):
            raise UsageError(f"expected ROWS or NAME=ROWS, from 1, received {text!r}", where="--max-rows")
        if name:
            by_model[name] = int(rows)
        else:
            for_all = int(rows)
    return for_all, by_model


def _preload_report(readiness: Readiness, settings: Settings) -> list[str]:
    """Return lines that say which models are ready, which failed, and which limits have no model."""
    known = {*readiness.available, *readiness.loading, *readiness.failed}
    ready = f"{len(readiness.available)} of {len(known)} models ready" if known else "there are no models yet"
    lines = [f"{ready}: {', '.join(readiness.available)}" if readiness.available else ready]
    lines += [f"not ready: {name}, {reason}" for name, reason in readiness.failed.items()]
    absent = sorted(set(settings.max_rows_by_model) - known)
    lines += [f"--max-rows names {name}, which is not among the models" for name in absent]
    return lines


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "serve", context_settings={"auto_envvar_prefix": ENVIRONMENT_PREFIX})(serve)
