"""Row updates of model versions: the number of the active one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "row_sequences",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name="pk_row_sequences"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("row_sequences")
