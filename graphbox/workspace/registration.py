"""The record of a running server in its workspace. Loads no database: a parent of workers stays small."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphbox.workspace.locks import WriterLock, is_held, writer_lock

_ACQUIRE_TIMEOUT_S = 10.0


@contextmanager
def registered_server(root: Path, url: str, *, follows: bool) -> Iterator[None]:
    """List this process as a server of the workspace at ``root`` while the block runs.

    Args:
        root: folder of the workspace.
        url: address of the server's page.
        follows: whether it switches to versions that become active.
    """
    folder = servers_folder(root)
    path = folder / f"{uuid.uuid4().hex}.lock"
    lock = WriterLock(path, "record of this server", note={"url": url, "follows": follows})
    # Otherwise another server could remove the lock file between its creation and its locking.
    with writer_lock(root / ".locks" / "workspace.lock", "workspace"):
        _remove_left(folder)
        lock.acquire(_ACQUIRE_TIMEOUT_S)
    try:
        yield
    finally:
        lock.release()
        path.unlink(missing_ok=True)


def servers_folder(root: Path) -> Path:
    """Return the folder of the records of running servers."""
    return root / ".locks" / "servers"


def _remove_left(folder: Path) -> None:
    """Remove the files of servers that were killed."""
    for path in folder.glob("*.lock"):
        if not is_held(path):
            path.with_name(path.name + ".json").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
