"""The audit log of a workspace: what clients of its servers changed, or tried to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import insert, select, update

from graphbox.workspace import tables
from graphbox.workspace.store import Store, now

AuditResult: TypeAlias = Literal["begun", "ok", "refused", "failed"]
"""``begun``: the change was begun, and its server ended before it noted the result."""

_LONGEST_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """A request that changes something.

    Attributes:
        client: name of the token that it came with.
        address: of the client.
        action: such as ``promote``.
        model: name of the model; None: the request is about no model.
        version: of the model; None: the request names none.
        detail: the request's further values.
        request_id: as in the server's log.
    """

    client: str
    address: str
    action: str
    model: str | None
    version: int | None
    request_id: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An entry of the audit log.

    Attributes:
        id: number of the entry; later ones have higher numbers.
        time: when the request was admitted.
        request: what was asked.
        result: what became of it.
        message: why it was refused or failed.
    """

    id: int
    time: datetime
    request: AuditRequest
    result: AuditResult
    message: str | None


class Audits(Store):
    """The audit log. Every method raises `TimeLimitError` where the database stays locked."""

    def begin_audit(self, request: AuditRequest) -> int:
        """Add an entry before a change is made; return its number."""
        values = {
            "time": now(),
            "client": request.client[:64],
            "address": request.address[:64],
            "action": request.action[:64],
            "model": None if request.model is None else request.model[:160],
            "version": request.version,
            "detail": dict(request.detail),
            "request_id": request.request_id[:128],
            "result": "begun",
        }
        with self._database.write() as connection:
            done = connection.execute(insert(tables.audit).values(values))
            return int(done.inserted_primary_key[0])  # type: ignore[index]  # an insert of one row has it

    def end_audit(self, number: int, result: AuditResult, message: str | None = None) -> None:
        """Note what became of the change of an entry."""
        row = tables.audit.c.id == number
        text = None if message is None else message[:_LONGEST_MESSAGE]
        with self._database.write() as connection:
            connection.execute(update(tables.audit).where(row).values(result=result, message=text))

    def audit(
        self, *, limit: int = 100, before: int | None = None, model: str | None = None
    ) -> list[AuditRecord]:
        """Return entries, newest first.

        Args:
            limit: most entries.
            before: only entries with a lower number; None: from the newest.
            model: only those of this model; None: of all.
        """
        table = tables.audit
        query = select(table).order_by(table.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(table.c.id < before)
        if model is not None:
            query = query.where(table.c.model == model)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [_record(row) for row in rows]


def _record(row: Any) -> AuditRecord:
    request = AuditRequest(
        client=row.client,
        address=row.address,
        action=row.action,
        model=row.model,
        version=row.version,
        request_id=row.request_id,
        detail=row.detail,
    )
    return AuditRecord(row.id, row.time, request, row.result, row.message)
