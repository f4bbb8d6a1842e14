"""Requests to load and unload served models are noted, for every worker and server of a workspace."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "served_models",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("unloaded", sa.Boolean, nullable=False),
        sa.Column("change", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_served_models"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("served_models")
