"""Writers of row updates, killed at every step that touches a file, one after the other.

python -m tests.deploy.killed_row_updates WORKSPACE
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

from graphbox.artifact import Artifact
from graphbox.artifact.row_updates import UpdatesFolder
from graphbox.artifact.updated_rows import UpdatedRows
from graphbox.deploy.row_updates import RowUpdater, list_row_updates
from graphbox.workspace import Workspace
from tests.artifact.lookup_model import DIM, ITEMS

STEPS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "fcntl.flock"})
MOST_STEPS = 200
LONGEST_CHAIN = 3


def kill_at(step: int) -> None:
    """Kill this process at a step, counted from 1."""
    left = step

    def count(event: str, _: object) -> None:
        nonlocal left
        if event in STEPS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def write(root: Path, tag: float) -> None:
    """Write an update; each third one begins a chain anew, and removes earlier updates."""
    updater = RowUpdater(Workspace(root, create=False), "rows", longest_chain=LONGEST_CHAIN)
    updater.write({"item": (ITEMS, np.full((len(ITEMS), DIM), tag, np.float32))})


def write_killed(root: Path, step: int, tag: float) -> bool:
    """Write an update in a process that is killed at a step; return whether it had ended before."""
    child = os.fork()
    if child == 0:
        kill_at(step)
        write(root, tag)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise AssertionError(f"the writer failed at step {step}")
    return os.WIFEXITED(status)


def served_tag(root: Path) -> float:
    """Return the value of all rows that a server would answer with; 0: those of the version."""
    workspace = Workspace(root, create=False)
    artifact = Artifact.open(workspace.model("rows").path)
    active = workspace.serving_records().row_sequence("rows", 1)
    folder = UpdatesFolder(artifact.path, artifact.manifest.digest)
    chain = folder.chain(active)[1]
    rows = UpdatedRows.of(artifact).apply([folder.read(each) for each in chain])
    found = np.unique(rows.artifact.table("item").rows(np.arange(len(ITEMS))))
    if not active:
        return 0.0
    (tag,) = found.tolist()
    return float(tag)


def check_whole(root: Path) -> None:
    """Read all updates that are listed: a part of one that was being written or removed is not among them."""
    workspace = Workspace(root, create=False)
    folder = UpdatesFolder(workspace.model("rows").path, "0" * 64)
    found = list_row_updates(workspace, "rows")
    if found.damaged:
        raise AssertionError(f"parts of updates are left: {found.damaged}")
    for manifest in found.updates:
        folder.read(manifest)


def main() -> None:
    root = Path(sys.argv[1])
    write(root, 0.5)  # imports what the writers need: they are not to be killed while they do
    before, killed, ended = served_tag(root), 0, 0
    for step in range(1, MOST_STEPS):
        has_ended = write_killed(root, step, float(step))
        found = served_tag(root)
        if found not in ({float(step)} if has_ended else {before, float(step)}):
            raise AssertionError(f"after step {step}: {found} instead of {before} or {step}")
        check_whole(root)
        before = found
        ended = ended + 1 if has_ended else 0
        if ended > LONGEST_CHAIN:  # one of them has begun anew, and removed earlier updates at its end
            break
        killed += not has_ended
    else:
        raise AssertionError(f"a writer has more than {MOST_STEPS} steps")
    print(killed)


if __name__ == "__main__":
    main()
