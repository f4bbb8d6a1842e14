"""The command line, killed at a step that changes names of files.

python -m tests.killed_at_a_step STEP ARGUMENTS...
"""

from __future__ import annotations

import os
import signal
import sys

from graphbox.cli.app import main

STEPS = frozenset({"os.rename", "os.remove", "os.rmdir", "shutil.rmtree"})


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


if __name__ == "__main__":
    kill_at(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
