"""Run by Alembic for each command: uses the connection that ``upgrade`` passes.

To add a migration, copy the newest file of ``versions``, write its two functions, and set
``SCHEMA_REVISION`` in ``graphbox/workspace/database.py``. A test compares the migrated schema with the
definitions in ``graphbox/workspace/tables.py``.
"""

from __future__ import annotations

from alembic import context

from graphbox.workspace.database import VERSION_TABLE
from graphbox.workspace.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=connection.dialect.name == "sqlite",
)
context.run_migrations()
