"""Changes of graphs that have begun: what a killed process left behind can be noted later."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "graph_changes",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("checksum", sa.String(128)),
        sa.Column("fingerprint", sa.String(64)),
        sa.PrimaryKeyConstraint("name", name="pk_graph_changes"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("graph_changes")
