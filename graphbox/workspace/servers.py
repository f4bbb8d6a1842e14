"""The servers that run on a workspace: each holds a lock file with its address for as long as it lives."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graphbox.workspace.locks import WriterLock, is_held, living_holder, writer_lock
from graphbox.workspace.store import Store

_ACQUIRE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class RunningServer:
    """A server process of a workspace.

    Attributes:
        url: address of its page.
        pid: its process id.
        host: the machine it runs on.
        since: when it started, ISO 8601.
        follows: whether it switches to versions that become active; else when it gets SIGHUP.
    """

    url: str
    pid: int
    host: str
    since: str
    follows: bool


class Servers(Store):
    """Which servers run on the workspace.

    The kernel frees the lock of a server when its process ends, however it ends: none is listed after that.
    """

    @contextmanager
    def serving(self, url: str, *, follows: bool) -> Iterator[None]:
        """List this process as a server of the workspace while the block runs."""
        folder = self._servers_path()
        path = folder / f"{uuid.uuid4().hex}.lock"
        lock = WriterLock(path, "record of this server", note={"url": url, "follows": follows})
        # Otherwise another server could remove the lock file between its creation and its locking.
        with writer_lock(self._lock_path("workspace"), "workspace"):
            _remove_left(folder)
            lock.acquire(_ACQUIRE_TIMEOUT_S)
        try:
            yield
        finally:
            lock.release()
            path.unlink(missing_ok=True)

    def running_servers(self) -> list[RunningServer]:
        """Return the servers of this workspace that are running, the oldest first."""
        holders = [living_holder(path) for path in sorted(self._servers_path().glob("*.lock"))]
        running = [
            RunningServer(
                url=str(holder["url"]),
                pid=int(holder["pid"]),
                host=str(holder["host"]),
                since=str(holder["since"]),
                follows=bool(holder["follows"]),
            )
            for holder in holders
            if holder and "url" in holder
        ]
        return sorted(running, key=lambda server: (server.since, server.pid))

    def _servers_path(self) -> Path:
        return self._lock_path("servers").with_suffix("")


def _remove_left(folder: Path) -> None:
    """Remove the files of servers that were killed."""
    for path in folder.glob("*.lock"):
        if not is_held(path):
            path.with_name(path.name + ".json").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
