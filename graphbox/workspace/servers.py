"""The servers that run on a workspace: each holds a lock file with its address for as long as it lives."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from graphbox.workspace.locks import living_holder
from graphbox.workspace.registration import registered_server, servers_folder
from graphbox.workspace.store import Store


@dataclass(frozen=True)
class RunningServer:
    """A server process of a workspace.

    Attributes:
        url: address of its page.
        pid: its process id; of a server with several workers, that of their parent.
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
    """Registry of the servers that run on the workspace.

    The kernel frees the lock of a server when its process ends, however it ends: none is listed after that.
    """

    def serving(self, url: str, *, follows: bool) -> AbstractContextManager[None]:
        """List this process as a server of the workspace while the block runs."""
        return registered_server(self.root, url, follows=follows)

    def running_servers(self) -> list[RunningServer]:
        """Return the servers of this workspace that are running, the oldest first."""
        holders = [living_holder(path) for path in sorted(servers_folder(self.root).glob("*.lock"))]
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
