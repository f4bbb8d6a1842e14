"""Events of a run as they happen, as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent

from graphbox.errors import NotFoundError
from graphbox.server.metrics_file import MetricsTail, parse_point
from graphbox.server.routes import API_PREFIX
from graphbox.server.routes.runs import METRICS_FILE, find_run, summary_of
from graphbox.server.schema import EventEnd
from graphbox.server.services import Services, ServicesDep
from graphbox.workspace import RunRecord

router = APIRouter(prefix=API_PREFIX, tags=["runs"])

_POLL_S = 0.25
_STATE_S = 1.0
_HEARTBEAT_S = 10.0
_RETRY_MS = 2000
_LASTING_STATES = frozenset({"created", "running"})


async def _run_of(
    services: ServicesDep, run: Annotated[str, Query(description="id of the run")]
) -> RunRecord:
    # A dependency, as an unknown run must be refused before the stream starts.
    return await run_in_threadpool(find_run, services, run)


@router.get("/events", response_class=EventSourceResponse)
async def events(
    services: ServicesDep,
    record: Annotated[RunRecord, Depends(_run_of)],
    after: Annotated[int, Query(ge=0, description="lines of metrics.jsonl already known")] = 0,
    last_event_id: Annotated[int | None, Header(ge=0)] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Stream a run: event `point` for each measured point, `run` when its state changes, `end` at its end.

    The id of a `point` is its line in metrics.jsonl. A client that comes back with `Last-Event-ID`
    gets what it missed.
    """
    tail = MetricsTail(record.path / METRICS_FILE, after if last_event_id is None else last_event_id)
    async for event in _follow(services, record, tail):
        yield event


async def _follow(services: Services, record: RunRecord, tail: MetricsTail) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(event="run", data=summary_of(record), retry=_RETRY_MS)
    state_at = sent_at = time.monotonic()
    while not services.stopping.is_set():
        # The state is read before the lines: a run that has ended by then has written all of them.
        now = time.monotonic()
        if now - state_at >= _STATE_S or record.state not in _LASTING_STATES:
            state_at = now
            try:
                latest = await run_in_threadpool(find_run, services, record.id)
            except NotFoundError:
                return  # the run was removed: a client that asks again is told so
            if summary_of(latest) != summary_of(record):
                record, sent_at = latest, now
                yield ServerSentEvent(event="run", data=summary_of(record))
        for line, text in await run_in_threadpool(lambda: list(tail.lines())):
            point = parse_point(text)
            if point is not None:
                sent_at = now
                yield ServerSentEvent(event="point", data=point, id=str(line))
        if record.state not in _LASTING_STATES:
            yield ServerSentEvent(event="end", data=EventEnd(state=record.state))
            return
        if now - sent_at >= _HEARTBEAT_S:
            sent_at = now
            yield ServerSentEvent(comment="still here")
        await asyncio.sleep(_POLL_S)
