"""The audit log: requests that change what a server serves or how."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=True),
        sa.Column("time", sa.DateTime, nullable=False),
        sa.Column("client", sa.String(64), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("model", sa.String(160)),
        sa.Column("version", sa.Integer),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("result", sa.String(16), nullable=False),
        sa.Column("message", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("audit")
