"""Servers of a workspace are listed as long as their processes live."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from graphbox.workspace import Workspace

SERVER = """
    import sys, time
    from graphbox.workspace import Workspace
    with Workspace(sys.argv[1]).serving(sys.argv[2], follows=sys.argv[3] == "yes"):
        print("serving", flush=True)
        sys.stdin.read()
"""


def test_running_servers(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    assert workspace.running_servers() == []
    servers = []
    for url, follows in (("http://127.0.0.1:1/", "yes"), ("http://127.0.0.1:2/", "no")):
        command = [sys.executable, "-c", textwrap.dedent(SERVER), str(workspace.root), url, follows]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        assert server.stdout.readline().strip() == "serving"
        servers.append(server)
    found = {(server.url, server.pid, server.follows) for server in workspace.running_servers()}
    assert found == {
        ("http://127.0.0.1:1/", servers[0].pid, True),
        ("http://127.0.0.1:2/", servers[1].pid, False),
    }
    servers[0].kill()
    servers[0].communicate(timeout=60)
    assert [server.pid for server in workspace.running_servers()] == [servers[1].pid]
    servers[1].communicate("", timeout=60)
    assert workspace.running_servers() == []
    with workspace.serving("http://127.0.0.1:3/", follows=True):
        left = list((workspace.root / ".locks" / "servers").glob("*.lock"))
        assert len(left) == 1, "what the killed server left is removed"
        assert [server.pid for server in workspace.running_servers()] == [os.getpid()]
    assert list((workspace.root / ".locks" / "servers").iterdir()) == []
