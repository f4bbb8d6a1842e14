"""Hidden folders of versions that are being written, locked for as long as their writer lives."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from pathlib import Path

__all__ = ["make_partial", "remove_abandoned"]

_PARTIAL = re.compile(r"\.[A-Za-z0-9_][A-Za-z0-9_.-]*\.partial-[0-9a-f]{16}")


def make_partial(path: Path) -> tuple[Path, int]:
    """Make the hidden folder and lock it for as long as this process lives."""
    while True:
        partial = path.parent / f".{path.name}.partial-{secrets.token_hex(8)}"
        partial.mkdir()
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another writer may have taken the folder for abandoned before the lock was held.
        if partial.exists():
            return partial, descriptor
        os.close(descriptor)


def remove_abandoned(folder: Path) -> None:
    """Remove the hidden folders in a folder of versions whose writer no longer lives."""
    for partial in folder.iterdir():
        if not _PARTIAL.fullmatch(partial.name):
            continue
        try:
            descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(partial, ignore_errors=True)
        finally:
            os.close(descriptor)
