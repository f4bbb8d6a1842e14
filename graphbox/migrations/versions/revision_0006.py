"""Versions that get a share of the requests of a model, and how those of a shadow differ from the answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "traffic_shares",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("percent", sa.Float, nullable=False),
        sa.Column("tolerance", sa.Float, nullable=False),
        sa.Column("change", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", "role", name="pk_traffic_shares"),
    )
    op.create_table(
        "shadow_calls",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("change", sa.Integer, nullable=False),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("dropped", sa.BigInteger, nullable=False),
        sa.Column("active_ns", sa.BigInteger, nullable=False),
        sa.Column("shadow_ns", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("name", name="pk_shadow_calls"),
    )
    op.create_table(
        "shadow_outputs",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("output", sa.String(256), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("different_rows", sa.BigInteger, nullable=False),
        sa.Column("numbers", sa.BigInteger, nullable=False),
        sa.Column("difference_sum", sa.Float, nullable=False),
        sa.Column("difference_max", sa.Float, nullable=False),
        sa.Column("listed", sa.BigInteger, nullable=False),
        sa.Column("shared", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", "output", name="pk_shadow_outputs"),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("shadow_outputs", "shadow_calls", "traffic_shares"):
        op.drop_table(table)
