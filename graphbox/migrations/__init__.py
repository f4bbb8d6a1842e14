"""Versioned changes of the workspace database's schema, applied by Alembic when a workspace is opened."""
