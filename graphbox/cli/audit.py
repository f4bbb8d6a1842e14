"""`graphbox audit`: what clients of the servers of a workspace changed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.cli.text import table


def audit(
    session: Session,
    model: Annotated[str | None, typer.Option("--model", help="Only what is about this model.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most entries.")] = 100,
) -> None:
    """List the requests that changed what servers of the workspace serve, or tried to, newest first.

    `begun` is a request whose server ended before it noted the result.
    """
    from dataclasses import asdict

    with session.workspace() as workspace:
        records = workspace.audit(limit=limit, model=model)

    def show(console: Any) -> None:
        if not records:
            console.print("no entries: no request has changed anything yet")
            return
        rows = [
            (
                f"{record.time:%Y-%m-%d %H:%M:%S}",
                record.request.client,
                record.request.address,
                record.request.action,
                record.request.model or "",
                "" if record.request.version is None else str(record.request.version),
                record.result,
                record.message or "",
                record.request.request_id,
            )
            for record in records
        ]
        columns = (
            "time (UTC)",
            "client",
            "address",
            "action",
            "model",
            "version",
            "result",
            "why",
            "request",
        )
        console.print(table(None, columns, rows))

    session.answer(
        [
            {
                "id": record.id,
                "time": record.time,
                **asdict(record.request),
                "result": record.result,
                "message": record.message,
            }
            for record in records
        ],
        show,
    )


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "audit")(audit)
