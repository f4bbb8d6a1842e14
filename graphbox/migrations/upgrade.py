"""Applying the migrations to an open connection."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

_one_at_a_time = threading.Lock()
"""Alembic keeps the connection it migrates in its modules: threads with two databases would mix them up."""


def known_revisions() -> set[str]:
    """Return the revisions this graphbox can upgrade from, and its own."""
    scripts = ScriptDirectory.from_config(_config())
    return {script.revision for script in scripts.walk_revisions()}


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Bring the database behind ``connection`` to ``revision``, in the caller's transaction."""
    config = _config()
    config.attributes["connection"] = connection
    with _one_at_a_time:
        command.upgrade(config, revision)


def _config() -> Config:
    config = Config()
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
