"""Where compiled models are kept; what they are says `graphbox.deploy.packages`."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

FOLDER_VARIABLE = "GRAPHBOX_PACKAGES"
"""Environment variable that names the folder of packages."""


def packages_folder() -> Path:
    """Return the folder that packages are kept in: `FOLDER_VARIABLE`, or a part of the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named).absolute() if named else user_cache_path("graphbox") / "packages"


def keep_packages_in(workspace: Path) -> None:
    """Keep packages of this process, and of those it starts, in a workspace unless a folder is named."""
    os.environ.setdefault(FOLDER_VARIABLE, str(workspace.absolute() / "packages"))
