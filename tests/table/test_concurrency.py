"""Tables that many threads use while another one closes them or the process ends: no hang, no crash."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import UsageError
from graphbox.table import EmbeddingTable

DIM = 64
BUDGET = 13 << 20
KEYS = 20_000
SECONDS = 240
"""After which a child hangs; a machine may be slow."""


class Crowd:
    """Threads that use a table in every way until it is closed.

    Args:
        folder: for files, which must be empty.
        seed: of the keys.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.table = EmbeddingTable(DIM, path=folder / "table", memory_bytes=BUDGET, seed=1, threads=2)
        self.surprises: list[BaseException] = []
        self.calls = 0
        uses = (
            self.table.pull,
            lambda keys: self.table.pull(keys, create=False),
            lambda keys: self.table.push(keys, np.zeros((len(keys), DIM), np.float32)),
            self.pull_and_push_slots,
            lambda keys: self.table.erase(keys[:50]),
            lambda _: self.table.flush(),
            lambda _: self.table.save(folder / "checkpoint"),
            self.save_chain,
            lambda keys: self.table.prefetch(keys).wait(SECONDS),
            lambda _: (self.table.tier_statistics(), len(self.table), self.table.nbytes, repr(self.table)),
            lambda _: self.table.purge(),
            lambda _: [None for _ in self.table.items(chunk_rows=500)],
            self.change_budget,
        )
        self.threads = [
            threading.Thread(target=self.use, args=(use, seed + number)) for number, use in enumerate(uses)
        ]

    def use(self, use: Callable[[Any], Any], seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            while True:
                use(rng.integers(0, KEYS, 1500))
                self.calls += 1
        except UsageError as error:
            if error.message != "the table is closed":
                self.surprises.append(error)
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.surprises.append(error)

    def pull_and_push_slots(self, keys: Any) -> None:
        rows, slots = self.table.pull_slots(keys)
        self.table.push_slots(slots, np.zeros_like(rows))

    def save_chain(self, _: Any) -> None:
        self.table.save_base(self.folder / "base")
        with suppress(UsageError):  # it may be closed by now
            self.table.save_delta(self.folder / "delta")

    def change_budget(self, keys: Any) -> None:
        self.table.memory_bytes = BUDGET + int(keys[0] % 2 << 20)

    def close(self) -> None:
        try:
            self.table.close()
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.surprises.append(error)


ROUNDS = [2, pytest.param(60, marks=[pytest.mark.stress, pytest.mark.timeout(3600)])]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_closing_while_many_threads_use_a_table(rounds: int, tmp_path: Path) -> None:
    fresh = EmbeddingTable(DIM, seed=1)
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        crowd = Crowd(folder, 100 * number)
        for thread in crowd.threads:
            thread.start()
        while crowd.calls < 40 * (1 + number % 5) and not crowd.surprises:
            crowd.threads[0].join(0.001)
        closing = [threading.Thread(target=crowd.close) for _ in range(2)]
        for thread in closing:
            thread.start()
        for thread in (*closing, *crowd.threads):
            thread.join(SECONDS)
            assert not thread.is_alive()
        assert crowd.surprises == []
        del crowd
        with EmbeddingTable.open(folder / "table", memory_bytes=BUDGET + (1 << 20)) as table:
            keys = table.keys()
            assert len(np.unique(keys)) == len(table) > 0
            for part in np.array_split(keys, 8):  # nothing but zeros was learnt
                rows = table.pull(part, create=False)
                np.testing.assert_array_equal(rows, fresh.pull(part, create=False))


ENDS = """
import sys, threading
import numpy as np
from graphbox.table import EmbeddingTable

table = EmbeddingTable(256, path=sys.argv[2], memory_bytes=40 << 20, threads=2)
for keys in np.array_split(np.arange(60_000), 60):
    table.pull(keys)
table.flush()
if sys.argv[1] == "prefetch":
    prefetch = table.prefetch(np.arange(30_000))
elif sys.argv[1] == "thread":
    def use():
        rng = np.random.default_rng(0)
        while True:
            table.pull(rng.integers(0, 60_000, 2000))
    for _ in range(3):
        threading.Thread(target=use, daemon=True).start()
else:
    import torch
    from graphbox.table import TableEmbedding
    module = TableEmbedding(table)
    for _ in range(5):
        module(torch.randint(0, 60_000, (5000,))).sum().backward()
"""


@pytest.mark.parametrize("running", ["prefetch", "thread", "training"])
def test_the_interpreter_ends_while_a_table_is_used(running: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDS, running, str(tmp_path / "table")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=40 << 20) as table:
        assert len(table) == 60_000


def test_the_core_lets_other_threads_run_in_one_way() -> None:
    """With nanobind's own, a thread that is in the core when the interpreter ends aborts the process."""
    sources = Path(__file__).parents[2] / "graphbox" / "csrc" / "bind"
    users = [file.name for file in sources.iterdir() if "gil_scoped_release" in file.read_text()]
    assert users == ["released_gil.h"]
