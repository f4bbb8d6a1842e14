"""A forked process leaves tables with rows on SSD to its parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from graphbox.table import EmbeddingTable

FORKS = """
import os, sys, warnings
import numpy as np
from graphbox.errors import UsageError
from graphbox.table import EmbeddingTable

warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which this is about
keys = np.arange(40_000)
table = EmbeddingTable(64, path=sys.argv[1], memory_bytes=16 << 20, seed=3)
for part in np.array_split(keys, 4):
    table.pull(part)
child = os.fork()
if child == 0:
    try:
        table.push(keys[:9], np.ones((9, 64), np.float32))
    except UsageError as error:
        print(error, flush=True)
        table.close()  # nothing to close here
        sys.exit(7)
    sys.exit(1)
_, status = os.waitpid(child, 0)
table.push(keys[:9], np.ones((9, 64), np.float32))
table.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_process_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path / "table")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 7, finished.stderr
    assert "forked from" in finished.stdout
    keys = np.arange(40_000)
    expected = EmbeddingTable(64, seed=3)
    expected.pull(keys)
    expected.push(keys[:9], np.ones((9, 64), np.float32))
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=16 << 20) as table:
        assert len(table) == len(keys)
        for part in np.array_split(keys, 4):
            np.testing.assert_array_equal(table.pull(part), expected.pull(part))
