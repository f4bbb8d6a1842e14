"""Records of graphs say what the manifest was: what a program changed without the workspace is found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column."""
    op.add_column("graphs", sa.Column("state", sa.String(160)))


def downgrade() -> None:
    """Drop the column."""
    with op.batch_alter_table("graphs") as graphs:
        graphs.drop_column("state")
