"""Random operations on a table, on rows in a dictionary, and on a second table to which nothing happens.

The dictionary says what the arithmetic should give, in float64. The second table, which is never saved,
loaded or moved between tiers, has the same bits. What fails is made short by hypothesis; a million operations
are in :mod:`tests.table.test_lives`.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from graphbox.errors import DataError, NotFoundError
from graphbox.table import EmbeddingTable, ServingTable
from graphbox.table.arguments import DType, Optimizer
from graphbox.table.manifest import ServingValues
from graphbox.table.slots import Slots
from tests.table.reference import OPTIMIZERS, PlainTable, settings_of

Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]

EXTREMES = np.array([0, -1, 1, -(2**63), 2**63 - 1, 2**32, -(2**32), 2**62])

SEEDS = st.integers(0, 2**32)
SERVING_VALUES = st.sampled_from(get_args(ServingValues))


class TableMachine(RuleBasedStateMachine):
    """Random operations on a table."""

    key_range: ClassVar[int] = 400
    most_keys: ClassVar[int] = 500

    @initialize(
        dim=st.sampled_from([1, 3, 16, 70]),
        optimizer=st.sampled_from(OPTIMIZERS),
        dtype=st.sampled_from(["float32", "float32", "float16"]),
        seed=st.integers(0, 2**64 - 1),
    )
    def make(self, dim: int, optimizer: Optimizer, dtype: DType, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="table-machine-"))
        self.is_exact = dtype == "float32"
        self.table = self.new_table(dim, optimizer, dtype=dtype, seed=seed)
        self.twin = self.new_twin(dim, optimizer, dtype=dtype, seed=seed)
        self.plain = PlainTable(dim, optimizer, seed)
        self.slots: list[tuple[Slots, Slots, list[int]]] = []
        self.chain: list[Path] = []
        self.serving: ServingTable | None = None

    def new_table(self, dim: int, optimizer: Optimizer, **options: Any) -> EmbeddingTable:
        """Return the table to which everything happens."""
        return EmbeddingTable(dim, optimizer, threads=1, **options, **settings_of(optimizer))

    def new_twin(self, dim: int, optimizer: Optimizer, **options: Any) -> EmbeddingTable:
        """Return the table to which only the operations happen."""
        return EmbeddingTable(dim, optimizer, threads=1, **options, **settings_of(optimizer))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def same(self, rows: Float32Array, twin: Float32Array, plain: npt.NDArray[np.float64]) -> None:
        np.testing.assert_array_equal(rows, twin)
        if self.is_exact:  # the dictionary rounds no row to float16
            np.testing.assert_allclose(rows, plain, rtol=1e-3, atol=3e-4)

    def keys(self, seed: int) -> Int64Array:
        """Return a few keys, or many; of few different ones, so that they meet again."""
        rng = np.random.default_rng(seed)
        if seed % 8 == 0:
            return rng.integers(-self.key_range, self.key_range, rng.integers(0, self.most_keys))
        keys = rng.integers(-6, 7, rng.integers(0, 10))
        return np.where(rng.random(len(keys)) < 0.3, rng.choice(EXTREMES, len(keys)), keys)

    def gradients(self, keys: Int64Array, seed: int) -> Float32Array:
        shape = (len(keys), self.table.dim)
        return np.random.default_rng(seed).standard_normal(shape, np.float32)

    @rule(seed=SEEDS, create=st.booleans(), kind=st.sampled_from(["array", "out", "torch"]))
    def pull(self, seed: int, create: bool, kind: str) -> None:
        keys = self.keys(seed)
        if kind == "torch":
            rows = self.table.pull(torch.from_numpy(keys), create=create).numpy()
        else:
            out = np.full((len(keys), self.table.dim), np.nan, np.float32) if kind == "out" else None
            rows = self.table.pull(keys, out, create)
            assert out is None or rows is out
        plain = self.plain.pull(keys.tolist(), create)
        self.same(rows, self.twin.pull(keys, create=create), plain)

    @rule(seed=SEEDS)
    def push(self, seed: int) -> None:
        keys = self.keys(seed)
        grads = self.gradients(keys, seed)
        for table in (self.table, self.twin):
            table.push(keys, grads)
        self.plain.push(keys.tolist(), grads)

    @rule(seed=SEEDS)
    def pull_slots(self, seed: int) -> None:
        keys = self.keys(seed)
        rows, slots = self.table.pull_slots(keys)
        twin_rows, twin_slots = self.twin.pull_slots(keys)
        self.same(rows, twin_rows, self.plain.pull(keys.tolist()))
        self.slots = [*self.slots[-3:], (slots, twin_slots, keys.tolist())]

    @precondition(lambda self: self.slots)
    @rule(which=st.integers(0, 3), seed=SEEDS)
    def push_slots(self, which: int, seed: int) -> None:
        slots, twin_slots, keys = self.slots[which % len(self.slots)]
        grads = self.gradients(np.array(keys), seed)
        self.table.push_slots(slots, grads)
        self.twin.push_slots(twin_slots, grads)
        self.plain.push(keys, grads)

    @rule(seed=SEEDS)
    def refused_gradients_change_nothing(self, seed: int) -> None:
        keys = self.keys(seed)
        grads = self.gradients(keys, seed)
        if len(keys):
            grads[seed % len(keys), seed % self.table.dim] = np.inf if seed % 2 else np.nan
            with pytest.raises(DataError):
                self.table.push(keys, grads)

    @rule(seed=SEEDS)
    def erase(self, seed: int) -> None:
        keys = self.keys(seed)
        erased = self.plain.erase(keys.tolist())
        assert self.table.erase(keys) == erased
        assert self.twin.erase(keys) == erased

    @rule(seed=SEEDS)
    def contains(self, seed: int) -> None:
        keys = self.keys(seed)
        assert self.table.contains(keys).tolist() == [key in self.plain.rows for key in keys.tolist()]

    @rule(chunk_rows=st.sampled_from([1, 7, 100]))
    def go_through(self, chunk_rows: int) -> None:
        seen: list[int] = []
        for keys, rows in self.table.items(chunk_rows=chunk_rows):
            assert 0 < len(keys) <= chunk_rows
            np.testing.assert_array_equal(rows, self.twin.pull(keys, create=False))
            seen += keys.tolist()
        assert sorted(seen) == sorted(self.plain.rows)

    @rule(threads=st.integers(1, 3))
    def use_threads(self, threads: int) -> None:
        self.table.threads = threads

    @rule()
    def save_and_load(self) -> None:
        self.table.save(self.folder / "table")
        self.go_on_with(self.load(self.folder / "table"))
        self.chain = []

    def load(self, checkpoint: Path, **options: Any) -> EmbeddingTable:
        return EmbeddingTable.load(checkpoint, threads=self.table.threads, **options)

    def go_on_with(self, table: EmbeddingTable) -> None:
        self.table = table
        self.slots = []  # they are of the table that was, as is what was noted for serving
        self.serving = None

    @rule()
    def save_base(self) -> None:
        self.chain = [self.folder / "base"]
        self.table.save_base(self.chain[0])

    @precondition(lambda self: self.chain)
    @rule(is_written=st.booleans())
    def save_delta(self, is_written: bool) -> None:
        if is_written:
            self.chain.append(self.folder / f"delta-{len(self.chain)}")
            self.table.save_delta(self.chain[-1])
        else:  # what a failed one took belongs to the next one
            with pytest.raises(NotFoundError):
                self.table.save_delta(self.folder / "absent" / "delta")

    @precondition(lambda self: self.chain)
    @rule(shards=st.integers(1, 3))
    def save_delta_and_load(self, shards: int) -> None:
        self.save_delta(True)
        base, *deltas = self.chain
        tables = [self.load(base, deltas=deltas, shard=(shard, shards)) for shard in range(shards)]
        keys = np.concatenate([table.keys() for table in tables])
        assert sorted(keys.tolist()) == sorted(self.plain.rows)
        for table in tables:
            own = table.keys()
            np.testing.assert_array_equal(table.pull(own, create=False), self.twin.pull(own))
        if shards == 1:
            self.go_on_with(tables[0])

    @rule(values=SERVING_VALUES)
    def save_base_for_serving(self, values: ServingValues) -> None:
        self.table.save_base(self.folder / "serving", serving=values)
        self.serving = ServingTable.open(self.folder / "serving")
        self.check_serving(self.serving)

    @precondition(lambda self: self.serving)
    @rule(values=SERVING_VALUES)
    def save_delta_for_serving(self, values: ServingValues) -> None:
        assert self.serving is not None
        path = self.folder / f"serving-delta-{self.serving.sequence}"
        self.table.save_delta(path, serving=values)
        self.serving.apply(path)
        self.check_serving(self.serving)
        shutil.rmtree(path)

    def check_serving(self, serving: ServingTable) -> None:
        keys = serving.keys()
        assert sorted(keys.tolist()) == sorted(self.plain.rows)
        rows = self.twin.pull(keys)
        if rows.size:
            error = np.abs(serving.pull(keys) - rows).max(axis=1)
            assert (error <= np.abs(rows).max(axis=1) / 127 * 0.501 + 1e-7).all()  # that of int8

    @invariant()
    def same_keys(self) -> None:
        if hasattr(self, "table"):
            assert len(self.table) == len(self.plain.rows)
            assert sorted(self.table.keys().tolist()) == sorted(self.plain.rows)


class TieredMachine(TableMachine):
    """The same with rows on SSD: memory has room for some of them only."""

    key_range = 6000
    most_keys = 1200
    memory_bytes: int
    loaded = 0

    @initialize(
        dim=st.sampled_from([500, 1024]),
        optimizer=st.sampled_from(("sgd", "rowwise_adagrad")),
        dtype=st.sampled_from(["float32", "float32", "float16"]),
        seed=st.integers(0, 2**64 - 1),
    )
    def make(self, dim: int, optimizer: Optimizer, dtype: DType, seed: int) -> None:
        super().make(dim, optimizer, dtype, seed)
        self.is_exact = False
        self.plain = OnlyKeys(dim, optimizer, seed)
        self.flush()

    def new_table(self, dim: int, optimizer: Optimizer, **options: Any) -> EmbeddingTable:
        self.memory_bytes = 24 << 20
        folder = self.folder / "rows"
        return super().new_table(dim, optimizer, memory_bytes=self.memory_bytes, path=folder, **options)

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.table.close()
        super().teardown()

    @rule()
    def flush(self) -> None:
        self.table.flush()
        self.remember_what_is_flushed()

    def remember_what_is_flushed(self) -> None:
        self.twin.save(self.folder / "flushed")
        self.flushed_keys = dict(self.plain.rows)

    @rule(memory_bytes=st.sampled_from([20 << 20, 24 << 20, 64 << 20]))
    def close_and_open(self, memory_bytes: int) -> None:
        self.table.close()
        self.remember_what_is_flushed()
        self.open(memory_bytes)

    def open(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        table = EmbeddingTable.open(
            self.folder / "rows", memory_bytes=memory_bytes, threads=self.table.threads
        )
        assert table.recovery is not None
        assert table.recovery.catalogue_damage is None
        super().go_on_with(table)
        self.chain = []

    def load(self, checkpoint: Path, **options: Any) -> EmbeddingTable:
        self.loaded += 1
        folder = self.folder / f"loaded-{self.loaded}"
        return super().load(checkpoint, path=folder, memory_bytes=self.memory_bytes, **options)

    def go_on_with(self, table: EmbeddingTable) -> None:
        """Look at a table that was loaded into another folder; the one that was goes on."""
        assert sorted(table.keys().tolist()) == sorted(self.plain.rows)
        for keys, rows in table.items(chunk_rows=500):
            np.testing.assert_array_equal(rows, self.twin.pull(keys, create=False))

    @rule(memory_bytes=st.sampled_from([20 << 20, 24 << 20]))
    def lose_what_was_not_flushed(self, memory_bytes: int) -> None:
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / "rows", copy)  # as a process that is killed leaves it
        with contextlib.closing(EmbeddingTable.open(copy, memory_bytes=memory_bytes)) as left:
            assert sorted(left.keys().tolist()) == sorted(self.flushed_keys)
            flushed = EmbeddingTable.load(self.folder / "flushed")
            for keys, rows in flushed.items(chunk_rows=500):
                np.testing.assert_array_equal(left.pull(keys, create=False), rows)

    @rule(seed=SEEDS, is_awaited=st.booleans())
    def prefetch(self, seed: int, is_awaited: bool) -> None:
        keys = self.keys(seed)
        prefetch = self.table.prefetch(keys)
        if is_awaited:
            assert prefetch.wait(600).in_memory <= len(keys)
        else:
            prefetch.cancel()

    @rule()
    def purge(self) -> None:
        self.table.purge()
        self.remember_what_is_flushed()

    @invariant()
    def within_the_budget(self) -> None:
        if hasattr(self, "table"):
            figures = self.table.tier_statistics()
            assert figures.hot_rows + figures.cold_rows == len(self.table)
            assert self.table.nbytes <= self.memory_bytes


class OnlyKeys(PlainTable):
    """Knows which keys have rows: those with many values take too long in Python."""

    def pull(self, keys: Iterable[int], create: bool = True) -> npt.NDArray[np.float64]:
        if create:
            self.rows.update(dict.fromkeys(keys, np.zeros(0)))
        return np.zeros(0)

    def push(self, keys: Sequence[int], grads: npt.NDArray[np.float32]) -> None:
        self.pull(keys)

    def erase(self, keys: Iterable[int]) -> int:
        return sum(self.rows.pop(key, None) is not None for key in dict.fromkeys(keys))


def run(machine: type[TableMachine], examples: int, steps: int, *, is_fixed: bool) -> None:
    """Run lives of a machine, always the same ones or others each time."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None,
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=is_fixed,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_agrees_with_a_dictionary() -> None:
    run(TableMachine, 20, 30, is_fixed=True)


def test_rows_on_ssd_have_the_bits_of_those_in_memory() -> None:
    run(TieredMachine, 4, 30, is_fixed=True)


@pytest.mark.stress
@pytest.mark.timeout(4 * 3600)
def test_rows_on_ssd_have_the_bits_of_those_in_memory_for_long() -> None:
    run(TieredMachine, 100, 100, is_fixed=False)


@pytest.mark.stress
@pytest.mark.timeout(4 * 3600)
def test_agrees_with_a_dictionary_for_long() -> None:
    run(TableMachine, 300, 100, is_fixed=False)
