"""The database's tables. A change here needs a migration in ``graphbox/migrations/versions``."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)


class Timestamp(TypeDecorator[datetime]):
    """A moment, stored in UTC without zone and read back with it, on every database."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return ``value`` in UTC without zone."""
        return value.astimezone(UTC).replace(tzinfo=None) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return ``value`` marked as UTC."""
        return value.replace(tzinfo=UTC) if value is not None else None


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

graphs = Table(
    "graphs",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_at", Timestamp, nullable=False),
    Column("node_types", JSON, nullable=False),
    Column("edge_types", JSON, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("run_id", String(160)),
    Column("state", String(160)),
)
"""Graphs. ``state`` is what the manifest said when the row was written, see `GraphContent.state`: a folder
that says something else was changed by a program without the workspace. Null: not known."""

runs = Table(
    "runs",
    metadata,
    Column("id", String(160), primary_key=True),
    Column("name", String(128), nullable=False),
    Column("state", String(16), nullable=False),
    Column("stage", String(64)),
    Column("created_at", Timestamp, nullable=False),
    Column("updated_at", Timestamp, nullable=False),
    Column("heartbeat", Timestamp),
    Column("error", JSON),
    Column("size_bytes", BigInteger, nullable=False),
    Column("config", Text, nullable=False),
    Column("config_digest", String(64), nullable=False, index=True),
    Column("report", JSON, nullable=False),
)

stages = Table(
    "stages",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("seconds", Float),
    Column("peak_bytes", BigInteger),
    Column("outputs", JSON, nullable=False),
)

models = Table(
    "models",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("task", String(128)),
    Column("size_bytes", BigInteger, nullable=False),
    Column("precision", String(32), nullable=False),
    Column("parent", Integer),
    Column("run_id", String(160)),
    Column("metrics", JSON, nullable=False),
    Column("created_at", Timestamp, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("deciding_metric", String(64)),
    Column("measured_on", String(64)),
)

benches = Table(
    "benches",
    metadata,
    Column("model", String(128), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("target", String(64), primary_key=True),
    Column("batch", Integer, primary_key=True),
    Column("threads", Integer, primary_key=True),
    Column("operation", String(16), primary_key=True),
    Column("p50_ms", Float, nullable=False),
    Column("p99_ms", Float, nullable=False),
    Column("rows_per_s", Float, nullable=False),
    Column("measured_at", Timestamp, nullable=False),
    ForeignKeyConstraint(["model", "version"], ["models.name", "models.version"], ondelete="CASCADE"),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("time", Timestamp, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("name", String(160), nullable=False),
    Column("event", String(32), nullable=False),
    Column("detail", JSON, nullable=False),
    Index("ix_events_kind_name", "kind", "name"),
)

counters = Table(
    "counters",
    metadata,
    Column("name", String(160), primary_key=True),
    Column("value", Integer, nullable=False),
)
"""Last number given to a run or a model version of a name: numbers are never given twice."""

served_models = Table(
    "served_models",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("unloaded", Boolean, nullable=False),
    Column("change", Integer, nullable=False),
)
"""Last request about each served model, and its number: models without a row are served."""

traffic_shares = Table(
    "traffic_shares",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("role", String(8), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("percent", Float, nullable=False),
    Column("tolerance", Float, nullable=False),
    Column("change", Integer, nullable=False),
)
"""Versions besides the active one that get a share of a model's requests: ``canary`` answers it, ``shadow``
repeats it. ``change`` numbers the request, as in `served_models`; ``tolerance`` is of a shadow."""

shadow_calls = Table(
    "shadow_calls",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("change", Integer, nullable=False),
    Column("calls", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("dropped", BigInteger, nullable=False),
    Column("active_ns", BigInteger, nullable=False),
    Column("shadow_ns", BigInteger, nullable=False),
    Column("error", Text),
)
"""Calls repeated on the shadow of each model, summed over all servers, and the last error."""

shadow_outputs = Table(
    "shadow_outputs",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("output", String(256), primary_key=True),
    Column("rows", BigInteger, nullable=False),
    Column("different_rows", BigInteger, nullable=False),
    Column("numbers", BigInteger, nullable=False),
    Column("difference_sum", Float, nullable=False),
    Column("difference_max", Float, nullable=False),
    Column("listed", BigInteger, nullable=False),
    Column("shared", BigInteger, nullable=False),
)
"""Differences of each output between the active version and the shadow; see `ShadowOutput`."""

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("time", Timestamp, nullable=False),
    Column("client", String(64), nullable=False),
    Column("address", String(64), nullable=False),
    Column("action", String(64), nullable=False),
    Column("model", String(160)),
    Column("version", Integer),
    Column("detail", JSON, nullable=False),
    Column("request_id", String(128), nullable=False),
    Column("result", String(16), nullable=False),
    Column("message", Text),
)
"""Requests that change what a server serves or how, see `AuditRecord`."""

row_sequences = Table(
    "row_sequences",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("sequence", Integer, nullable=False),
)
"""Last row update that is applied to each model version: versions without a row are served as they are."""

removals = Table(
    "removals",
    metadata,
    Column("path", String(512), primary_key=True),
    Column("trash", String(512), nullable=False),
)
"""Folders whose rows are gone and whose files are being deleted."""

graph_changes = Table(
    "graph_changes",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("event", String(32), nullable=False),
    Column("checksum", String(128)),
    Column("fingerprint", String(64)),
)
"""Graphs whose files are being written: what is happening, what their manifest's checksum was before (null
where there was no graph), and the fingerprint to note afterwards (null: it follows from the change). A row
that outlives its process says that the record of the graph may be behind its files."""
