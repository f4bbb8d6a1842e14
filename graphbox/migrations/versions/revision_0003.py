"""Measurements name their operation, model versions their deciding metric and what it was measured on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_BEFORE = ["model", "version", "target", "batch", "threads", "p50_ms", "p99_ms", "rows_per_s", "measured_at"]


def upgrade() -> None:
    """Add the columns. Earlier measurements were of the model's call in Python, without a request."""
    op.add_column("models", sa.Column("deciding_metric", sa.String(64)))
    op.add_column("models", sa.Column("measured_on", sa.String(64)))
    rows = _rows()
    op.drop_table("benches")
    op.bulk_insert(_create(with_operation=True), [{**row, "operation": "model"} for row in rows])


def downgrade() -> None:
    """Drop the columns, and measurements of other operations."""
    rows = _rows(where="WHERE operation = 'model'")
    op.drop_table("benches")
    op.bulk_insert(_create(with_operation=False), rows)
    with op.batch_alter_table("models") as models:
        models.drop_column("measured_on")
        models.drop_column("deciding_metric")


def _rows(where: str = "") -> list[dict[str, object]]:
    # Typed, so that times are read as times from SQLite too.
    query = sa.text(f"SELECT {', '.join(_BEFORE)} FROM benches {where}")  # noqa: S608 - names from above
    typed = query.columns(measured_at=sa.DateTime)
    return [dict(row) for row in op.get_bind().execute(typed).mappings()]


def _create(*, with_operation: bool) -> sa.Table:
    """Create the table, its primary key with or without the operation."""
    operation = [sa.Column("operation", sa.String(16), nullable=False)] if with_operation else []
    keys = ["model", "version", "target", "batch", "threads", *(column.name for column in operation)]
    return op.create_table(
        "benches",
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("target", sa.String(64), nullable=False),
        sa.Column("batch", sa.Integer, nullable=False),
        sa.Column("threads", sa.Integer, nullable=False),
        *operation,
        sa.Column("p50_ms", sa.Float, nullable=False),
        sa.Column("p99_ms", sa.Float, nullable=False),
        sa.Column("rows_per_s", sa.Float, nullable=False),
        sa.Column("measured_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint(*keys, name="pk_benches"),
        sa.ForeignKeyConstraint(
            ["model", "version"],
            ["models.name", "models.version"],
            name="fk_benches_model",
            ondelete="CASCADE",
        ),
    )
