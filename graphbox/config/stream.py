"""The section `stream`: new data that a model learns from as it comes (`graphbox train --follow`)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.section import Name, PositiveFloat, PositiveInt, Section, TypeName

OPERATIONAL_STREAM_KEYS = frozenset(
    {
        "markers",
        "settle_seconds",
        "keep_chunks",
        "keep_days",
        "base_every",
        "serving",
        "output",
        "irregular",
        "poll_seconds",
        "until_idle_seconds",
    }
)
"""Keys of the section that may change from one attempt of a run to the next."""


class StreamConfig(Section):
    """Where new data comes from, how long it stays, and what is written for serving."""

    folder: str | None = None
    """Folder in which chunks appear, each a folder of its own or a file; `--follow DIR` sets it. A table of
    the section `graph` has its part of a chunk under the same path in the chunk's folder."""
    chunks: str | None = None
    """Pattern of the chunks in the folder, such as `*/*` or `day-*`; without it chunks are the folders whose
    names begin with a digit (`20261101`, `20261101/04`, `dt=2026-11-01`), or else the files."""
    markers: Annotated[tuple[str, ...], Field(min_length=1)] = (
        "_SUCCESS",
        "_DONE",
        "done",
        "donefile",
        "to.hadoop.done",
    )
    """Names of files that say, in a chunk's folder, that it is whole; beside a file `NAME` that is a chunk it
    is `NAME.done`, or `.` and another of these. Of files, those before the newest are whole without one."""
    settle_seconds: PositiveFloat | None = None
    """Without a marker a chunk is whole as well when nothing in it has changed for so long."""
    model: Name | None = None
    """Model that learns, a key of `models`; not needed where there is only one."""
    keep_chunks: PositiveInt | None = None
    """Chunks whose edges stay in the graph, the last one included; all when absent."""
    keep_days: PositiveInt | None = None
    """Days whose edges stay in the graph, by the dates in the chunks' names, the last one included."""
    expire: tuple[TypeName, ...] | None = None
    """Node types whose nodes leave together with the edges; when absent those without any edge type, such as
    the rows of a log."""
    base_every: PositiveInt = 24
    """Chunks from one base of the tables for serving to the next; those between have deltas. Before a base,
    rows are dropped by the tables' policies."""
    drop_rows_after_chunks: PositiveInt | None = None
    """Chunks after which a row of a table is dropped that none of them has changed; never when absent."""
    serving: Literal["float32", "float16", "int8"] = "float32"
    """Type in which values of rows are stored for serving."""
    output: str | None = None
    """Folder of the tables for serving; `serving` in the run's folder when absent."""
    irregular: Literal["refuse", "skip"] = "refuse"
    """Handling of a chunk that comes after a later one, or that changed after it was learnt: the training
    stops with an error, or reports the chunk and continues without it."""
    poll_seconds: PositiveFloat = 1.0
    """Interval at which the folder is checked while the training waits for a chunk."""
    until_idle_seconds: Annotated[float, Field(ge=0.0)] | None = None
    """End when no chunk has come for so long; 0: when none is there. When absent: wait for ever."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.keep_chunks is not None and self.keep_days is not None:
            raise PydanticCustomError(
                "not_together",
                "expected `keep_chunks` or `keep_days`, received both",
                {"hint": "leave one of them out"},
            )
        for marker in self.markers:
            if not marker or "/" in marker:
                raise PydanticCustomError(
                    "marker", "expected names of files, received `{marker}`", {"marker": marker}
                )
        return self
