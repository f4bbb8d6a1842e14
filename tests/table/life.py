"""Lives of tables in memory: many random operations, each checked against NumPy and a second table.

The NumPy table (:mod:`tests.table.vector_reference`) says what the arithmetic should give, in float64. The
second table, the twin, to which only the operations happen and which is never saved, loaded or moved, has the
same bits. A life is a function of its kind and seed; :mod:`tests.table.lives` runs them.

An operation is one call of what a table offers, for none to a few hundred keys at a time; what is called to
check its outcome does not count.
"""

from __future__ import annotations

import shutil
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch

from graphbox.errors import DataError, NotFoundError
from graphbox.table import (
    CountAdmission,
    EmbeddingTable,
    Expiry,
    ServingTable,
    ShowClickScore,
)
from graphbox.table.arguments import DType
from graphbox.table.manifest import ServingValues
from graphbox.table.slots import Slots
from tests.table.reference import OPTIMIZERS, settings_of
from tests.table.vector_reference import Places, VectorPolicies, VectorTable

Float32Array = npt.NDArray[np.float32]
Operation = Callable[[], None]

EXTREMES = (0, -1, 1, -(2**63), 2**63 - 1, 2**32, -(2**32), 2**62)
ADMITTED_AT = 3
UNSEEN_PASSES = 2
SCORE = ShowClickScore(nonclick_weight=0.25, click_weight=1.0, decay=0.5, drop_below=0.5)
"""Exact in float32, with whole shows."""
PULLED_AHEAD = 3


def some_keys(rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Return different keys: the outermost ones, neighbours, random ones, and multiples of a power of two."""
    parts = (
        np.array(EXTREMES),
        np.arange(-count, count),
        rng.integers(-(2**63), 2**63 - 1, count, endpoint=True),
        np.arange(count) << 40,
    )
    keys = np.concatenate(parts)
    few, rest = keys[: len(EXTREMES)], rng.permutation(np.unique(keys[len(EXTREMES) :]))
    return np.concatenate([few, rest[~np.isin(rest, few)][: count - len(few)]])


def check_equal(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Check arrays; NumPy's own check takes longer than most operations."""
    if not np.array_equal(found, expected):
        np.testing.assert_array_equal(found, expected)


class Life:
    """A table in memory, and what happens to it.

    Args:
        seed: of all that is random.
        folder: for files, which must be empty.
    """

    key_count = 600
    most_keys = 600
    dims: tuple[int, ...] = (1, 3, 16)
    check_every = 250

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = np.random.default_rng(seed)
        self.folder = folder
        self.names = 0
        self.counts: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=30)
        self.draw_settings()
        self.all_keys = some_keys(self.rng, self.key_count)
        self.pool = self.rng.standard_normal((2048, max(self.dims)), np.float32)
        self.model = self.new_model(int(self.rng.integers(2**63)))
        self.table = self.new_table()
        self.twin = self.new_twin()
        self.slots: deque[tuple[Slots, Slots, Places]] = deque(maxlen=PULLED_AHEAD)
        self.chain: list[Path] = []
        self.serving: ServingTable | None = None

    # --- Made anew by each kind

    def draw_settings(self) -> None:
        self.dim = int(self.rng.choice(self.dims))
        self.optimizer = OPTIMIZERS[self.rng.integers(len(OPTIMIZERS))]
        self.dtype: DType = "float16" if self.rng.random() < 0.2 else "float32"

    def new_model(self, seed: int) -> VectorTable:
        self.seed = seed
        return VectorTable(self.all_keys, self.dim, self.optimizer, seed)

    def settings(self) -> dict[str, Any]:
        """Return what the table and its twin have in common."""
        return {"dtype": self.dtype, "seed": self.seed, "threads": 1, **settings_of(self.optimizer)}

    def new_table(self) -> EmbeddingTable:
        return self.new_twin()

    def new_twin(self) -> EmbeddingTable:
        return EmbeddingTable(self.dim, self.optimizer, **self.settings())

    def operations(self) -> dict[Operation, float]:
        """Return the operations, and how often each is to come."""
        return {
            self.pull: 30,
            self.push: 20,
            self.pull_slots: 10,
            self.push_slots: 10,
            self.erase: 4,
            self.contains: 6,
            self.refused_gradients: 2,
            self.use_threads: 0.4,
            self.go_through: 0.4,
            self.save_and_load: 0.12,
            self.save_base: 0.1,
            self.save_delta: 0.3,
            self.save_delta_that_fails: 0.1,
            self.load_chain: 0.1,
            self.save_base_for_serving: 0.1,
            self.save_delta_for_serving: 0.2,
        }

    def run(self, count: int) -> None:
        """Let so many operations happen."""
        weights = self.operations()
        operations = list(weights)
        shares = np.array(list(weights.values()))
        for done, which in enumerate(self.rng.choice(len(operations), count, p=shares / shares.sum())):
            operation = operations[which]
            name = getattr(operation, "__name__", "")
            self.recent.append(name)
            self.counts[name] += 1
            self.turn()
            operation()
            self.check_figures()
            if done % self.check_every == self.check_every - 1:
                self.check_rows()
        self.check_rows()

    def turn(self) -> None:
        """Do what comes before each operation."""

    def end(self) -> None:
        """Let go of files."""
        self.table.close()

    # --- Checks

    def check_figures(self) -> None:
        assert len(self.table) == len(self.model), (len(self.table), len(self.model))

    def check_rows(self) -> None:
        keys = self.model.keys()
        check_equal(np.sort(self.table.keys()), keys)
        check_equal(self.table.contains(self.all_keys), self.model.present)
        places = np.arange(len(self.all_keys))
        self.check(self.table.pull(self.all_keys, create=False), places)

    def check(self, rows: Float32Array, places: Places) -> None:
        """Check rows that were read just now."""
        check_equal(rows, self.twin.pull(self.all_keys[places], create=False))
        if self.dtype == "float32":  # NumPy's rows are not rounded to float16
            expected = self.model.pull(places, create=False)
            if not (np.abs(rows - expected) <= 1e-3 + 1e-3 * np.abs(expected)).all():
                np.testing.assert_allclose(rows, expected, rtol=1e-3, atol=1e-3)

    # --- Draws

    def places(self) -> Places:
        """Draw few keys or many, with repetitions, of few different ones or of all."""
        draw = self.rng.random()
        count = int(self.rng.integers(0, 12 if draw < 0.6 else 64 if draw < 0.95 else self.most_keys))
        range_of = 20 if draw * 100 % 1 < 0.4 else self.key_count
        return self.rng.integers(0, range_of, count)

    def gradients(self, count: int) -> Float32Array:
        begin = int(self.rng.integers(0, len(self.pool) - count))
        return np.ascontiguousarray(self.pool[begin : begin + count, : self.dim])

    def path(self, name: str) -> Path:
        """Return a path that was not used before."""
        self.names += 1
        return self.folder / f"{name}-{self.names}"

    # --- Rows

    def pull(self) -> None:
        places = self.places()
        keys = self.all_keys[places]
        create = bool(self.rng.random() < 0.7)
        kind = self.rng.integers(3)
        if kind == 0:
            rows = self.table.pull(keys, create=create)
        elif kind == 1:
            rows = np.full((len(keys), self.dim), np.nan, np.float32)
            assert self.table.pull(keys, rows, create) is rows
        else:
            rows = self.table.pull(torch.from_numpy(keys), create=create).numpy()
        self.twin.pull(keys, create=create)
        self.model.pull(places, create)
        self.check(rows, places)

    def push(self) -> None:
        places = self.places()
        grads = self.gradients(len(places))
        for table in (self.table, self.twin):
            table.push(self.all_keys[places], grads)
        self.model.push(places, grads)

    def pull_slots(self) -> None:
        places = self.places()
        keys = self.all_keys[places]
        rows, slots = self.table.pull_slots(keys)
        _, twin_slots = self.twin.pull_slots(keys)
        self.model.pull(places)
        self.check(rows, places)
        self.slots.append((slots, twin_slots, places))

    def push_slots(self) -> None:
        if not self.slots:
            return self.pull_slots()
        slots, twin_slots, places = self.slots[self.rng.integers(len(self.slots))]
        grads = self.gradients(len(places))
        self.table.push_slots(slots, grads)
        self.twin.push_slots(twin_slots, grads)
        self.model.push(places, grads)
        return None

    def refused_gradients(self) -> None:
        places = self.places()
        grads = self.gradients(len(places)).copy()
        if not grads.size:
            return
        grads.flat[self.rng.integers(grads.size)] = self.rng.choice([np.nan, np.inf, -np.inf])
        try:
            self.table.push(self.all_keys[places], grads)
        except DataError:
            return
        raise AssertionError("gradients that are no numbers were applied")

    def erase(self) -> None:
        places = self.places()[:100]
        erased = self.model.erase(places)
        assert self.table.erase(self.all_keys[places]) == erased
        assert self.twin.erase(self.all_keys[places]) == erased

    def contains(self) -> None:
        places = self.places()
        found = self.table.contains(self.all_keys[places])
        check_equal(found, self.model.present[places])

    def go_through(self) -> None:
        chunk_rows = int(self.rng.choice([7, 100, 1000]))
        seen = []
        for keys, rows in self.table.items(chunk_rows=chunk_rows):
            assert 0 < len(keys) <= chunk_rows
            check_equal(rows, self.twin.pull(keys, create=False))
            seen.append(keys)
        found = np.concatenate(seen) if seen else np.zeros(0, np.int64)
        check_equal(np.sort(found), self.model.keys())

    def use_threads(self) -> None:
        self.table.threads = int(self.rng.integers(1, 4))

    # --- Checkpoints

    def load(self, checkpoint: Path, **options: Any) -> EmbeddingTable:
        return EmbeddingTable.load(checkpoint, threads=self.table.threads, **options)

    def go_on_with(self, table: EmbeddingTable) -> None:
        """Let the rest happen to a table that was loaded."""
        self.table.close()
        self.table = table
        self.slots.clear()  # they are of the table that was, as is what was noted for serving
        self.serving = None

    def save_and_load(self) -> None:
        path = self.folder / "table"  # each replaces the last one
        self.table.save(path)
        self.go_on_with(self.load(path))
        self.chain = []

    def save_base(self) -> None:
        for path in self.chain:
            shutil.rmtree(path)
        self.chain = [self.path("base")]
        self.table.save_base(self.chain[0])

    def save_delta(self) -> None:
        if not self.chain or len(self.chain) > 20:
            return self.save_base()
        path = self.path("delta")
        self.table.save_delta(path)
        self.chain.append(path)
        return None

    def save_delta_that_fails(self) -> None:
        """Fail to save a delta: its changes belong to the next one."""
        if not self.chain:
            return self.save_base()
        try:
            self.table.save_delta(self.folder / "absent" / "delta")
        except NotFoundError:
            return None
        raise AssertionError("a delta was saved in a folder that is not there")

    def load_chain(self) -> None:
        self.save_delta()
        base, *deltas = self.chain
        shards = int(self.rng.integers(1, 4))
        tables = [self.load(base, deltas=deltas, shard=(shard, shards)) for shard in range(shards)]
        keys = np.concatenate([table.keys() for table in tables])
        check_equal(np.sort(keys), self.model.keys())
        for table in tables:
            own = table.keys()
            rows = table.pull(own, create=False)
            check_equal(rows, self.twin.pull(own, create=False))
        if shards == 1 and self.goes_on_with_loaded(tables[0]):
            return
        for table in tables:
            table.close()

    def goes_on_with_loaded(self, table: EmbeddingTable) -> bool:
        """Return whether the rest happens to a table that was loaded from base and deltas."""
        self.go_on_with(table)
        return True

    def serving_values(self) -> ServingValues:
        values: tuple[ServingValues, ...] = get_args(ServingValues)
        return values[self.rng.integers(len(values))]

    def save_base_for_serving(self) -> None:
        path = self.folder / "serving"
        self.table.save_base(path, serving=self.serving_values())
        self.serving = ServingTable.open(path)
        self.check_serving(self.serving)

    def save_delta_for_serving(self) -> None:
        if self.serving is None:
            return self.save_base_for_serving()
        path = self.path("serving-delta")
        self.table.save_delta(path, serving=self.serving_values())
        self.serving.apply(path)
        self.check_serving(self.serving)
        shutil.rmtree(path)
        return None

    def check_serving(self, serving: ServingTable) -> None:
        keys = self.model.keys()
        check_equal(np.sort(serving.keys()), keys)
        rows = self.twin.pull(keys, create=False)
        if rows.size:
            error = np.abs(serving.pull(keys) - rows).max(axis=1)
            assert (error <= np.abs(rows).max(axis=1) / 127 * 0.501 + 1e-7).all()  # that of int8


class LifeWithPolicies(Life):
    """The same of a table that chooses its keys."""

    model: VectorPolicies
    forgets = True
    """Whether a key starts to be counted anew when its row is gone."""

    def admission(self) -> CountAdmission:
        return CountAdmission(ADMITTED_AT)

    def new_model(self, seed: int) -> VectorTable:
        self.seed = seed
        return VectorPolicies(
            self.all_keys,
            self.dim,
            self.optimizer,
            seed,
            ADMITTED_AT,
            UNSEEN_PASSES,
            SCORE,
            forgets=self.forgets,
        )

    def settings(self) -> dict[str, Any]:
        policies = {"admission": self.admission(), "expiry": Expiry(passes=UNSEEN_PASSES), "score": SCORE}
        return {**super().settings(), **policies}

    def operations(self) -> dict[Operation, float]:
        more: dict[Operation, float] = {
            self.push_shows: 10,
            self.end_pass: 0.5,
            self.shrink: 0.5,
            self.look_at_counters: 2,
        }
        return {**super().operations(), **more}

    def push_shows(self) -> None:
        places = self.places()
        grads = self.gradients(len(places))
        clicks = self.rng.integers(0, 3, len(places)).astype(np.float32)
        shows = clicks + self.rng.integers(0, 4, len(places)).astype(np.float32)
        for table in (self.table, self.twin):
            table.push(self.all_keys[places], grads, shows=shows, clicks=clicks)
        self.model.learn(places, grads, shows, clicks)

    def end_pass(self) -> None:
        for each in (self.table, self.twin, self.model):
            each.end_pass()
        assert self.table.passes == self.model.passes

    def shrink(self) -> None:
        rows = len(self.model)
        unseen, low = self.model.shrink()
        for table in (self.table, self.twin):
            report = table.shrink()
            assert (report.examined, report.unseen_passes, report.low_score) == (rows, unseen, low)

    def look_at_counters(self) -> None:
        places = self.places()
        found = self.table.counters(self.all_keys[places])
        shows, clicks, unseen = self.model.counters(places)
        check_equal(found.has_row, self.model.present[places])
        check_equal(found.shows, shows)
        check_equal(found.clicks, clicks)
        check_equal(found.unseen_passes, unseen)


class LifeWithEviction(Life):
    """The same of a table whose rows leave for others: which ones, the table says itself."""

    key_count = 30_000
    dims = (64, 70)
    check_every = 2000
    memory_bytes = 4 << 20

    def settings(self) -> dict[str, Any]:
        eviction = "clock" if self.seed % 2 else "score"
        score = SCORE if eviction == "score" else None
        return {**super().settings(), "memory_bytes": self.memory_bytes, "eviction": eviction, "score": score}

    def operations(self) -> dict[Operation, float]:
        kept = (self.pull, self.push, self.pull_slots, self.push_slots, self.erase, self.contains)
        weights = super().operations()
        chosen = {operation: weights[operation] for operation in kept}
        return {**chosen, self.refused_gradients: 2, self.use_threads: 0.4, self.save_and_go_on: 0.05}

    def places(self) -> Places:
        """Draw many keys of all, so that others have to leave."""
        places = super().places()
        if len(places) > 40:
            begin = self.rng.integers(0, self.key_count)
            return (begin + 2 * places) % self.key_count
        return places

    def check_figures(self) -> None:
        assert self.table.nbytes <= self.memory_bytes
        assert len(self.table) == len(self.twin)
        if len(self.table) != len(self.model) or self.recent[-1] not in ("contains", "refused_gradients"):
            gone = self.model.present & ~self.table.contains(self.all_keys)
            self.model.erase(np.flatnonzero(gone))
        super().check_figures()

    def save_and_go_on(self) -> None:
        """Save, and load the twin as well: the order of eviction is no part of a checkpoint."""
        path = self.folder / "table"
        self.table.save(path)
        self.table, self.twin = (
            EmbeddingTable.load(path, threads=threads, memory_bytes=self.memory_bytes) for threads in (2, 1)
        )
        self.slots.clear()

    def check(self, rows: Float32Array, places: Places) -> None:
        self.check_figures()
        super().check(rows, places)
