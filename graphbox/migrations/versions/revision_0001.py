"""The first schema: graphs, runs with stages, models with measurements, history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "graphs",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("node_types", sa.JSON, nullable=False),
        sa.Column("edge_types", sa.JSON, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(160)),
        sa.PrimaryKeyConstraint("name", name="pk_graphs"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(160), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("stage", sa.String(64)),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("updated_at", sa.DateTime, nullable=False),
        sa.Column("heartbeat", sa.DateTime),
        sa.Column("error", sa.JSON),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("config_digest", sa.String(64), nullable=False),
        sa.Column("report", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_config_digest", "runs", ["config_digest"])
    op.create_table(
        "stages",
        sa.Column("run_id", sa.String(160), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("seconds", sa.Float),
        sa.Column("peak_bytes", sa.BigInteger),
        sa.Column("outputs", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "name", name="pk_stages"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_stages_run_id", ondelete="CASCADE"),
    )
    op.create_table(
        "models",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("task", sa.String(128)),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("precision", sa.String(32), nullable=False),
        sa.Column("parent", sa.Integer),
        sa.Column("run_id", sa.String(160)),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name="pk_models"),
    )
    op.create_table(
        "benches",
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("target", sa.String(64), nullable=False),
        sa.Column("batch", sa.Integer, nullable=False),
        sa.Column("threads", sa.Integer, nullable=False),
        sa.Column("p50_ms", sa.Float, nullable=False),
        sa.Column("p99_ms", sa.Float, nullable=False),
        sa.Column("rows_per_s", sa.Float, nullable=False),
        sa.Column("measured_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("model", "version", "target", "batch", "threads", name="pk_benches"),
        sa.ForeignKeyConstraint(
            ["model", "version"],
            ["models.name", "models.version"],
            name="fk_benches_model",
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, autoincrement=True, nullable=False),
        sa.Column("time", sa.DateTime, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(160), nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_kind_name", "events", ["kind", "name"])
    op.create_table(
        "counters",
        sa.Column("name", sa.String(160), nullable=False),
        sa.Column("value", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )
    op.create_table(
        "removals",
        sa.Column("path", sa.String(512), nullable=False),
        sa.Column("trash", sa.String(512), nullable=False),
        sa.PrimaryKeyConstraint("path", name="pk_removals"),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("removals", "counters", "events", "benches", "models", "stages", "runs", "graphs"):
        op.drop_table(table)
