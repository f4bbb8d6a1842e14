"""Lives of tables most of whose rows are on SSD: with policies, and in training."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from graphbox import _core
from graphbox.errors import DoesNotFitError, NotFoundError
from graphbox.table import CountAdmission, EmbeddingTable, TableEmbeddingBag
from tests.table.life import ADMITTED_AT, Float32Array, Life, LifeWithPolicies, Operation, check_equal
from tests.table.vector_reference import Places

SKETCH_BYTES = 4 << 20
"""So large that few thousand keys do not meet in it."""


class LifeOnSsd(Life):
    """The same of a table most of whose rows are on SSD."""

    key_count = 2400
    most_keys = 100
    dims = (512, 1024)
    check_every = 1000
    memory_bytes = 12 << 20
    budgets = (12 << 20, 14 << 20, 32 << 20)

    def new_table(self) -> EmbeddingTable:
        self.rows_folder = self.path("rows")
        return EmbeddingTable(
            self.dim,
            self.optimizer,
            path=self.rows_folder,
            memory_bytes=self.memory_bytes,
            **self.settings(),
        )

    def operations(self) -> dict[Operation, float]:
        more: dict[Operation, float] = {
            self.flush: 0.3,
            self.close_and_open: 0.15,
            self.lose_what_was_not_flushed: 0.05,
            self.lose_the_catalogue: 0.03,
            self.prefetch: 1,
            self.purge: 0.1,
            self.forget: 0.05,
            self.change_budget: 0.1,
            self.refused_batch: 0.02,
        }
        return {**super().operations(), **more}

    def check_figures(self) -> None:
        super().check_figures()
        assert self.table.nbytes <= self.memory_bytes
        if len(self.model) % 7 == 0:
            figures = self.table.tier_statistics()
            assert figures.hot_rows + figures.cold_rows == len(self.model)

    def load(self, checkpoint: Path, **options: Any) -> EmbeddingTable:
        return super().load(checkpoint, path=self.path("loaded"), memory_bytes=self.memory_bytes, **options)

    def go_on_with(self, table: EmbeddingTable) -> None:
        super().go_on_with(table)
        shutil.rmtree(self.rows_folder)
        assert table.path is not None
        self.rows_folder = table.path

    def goes_on_with_loaded(self, table: EmbeddingTable) -> bool:
        if self.rng.random() < 0.5:
            return super().goes_on_with_loaded(table)
        return False

    def flush(self) -> None:
        self.table.flush()

    def close_and_open(self) -> None:
        self.table.close()
        self.memory_bytes = int(self.rng.choice(self.budgets))
        self.table = self.opened(self.rows_folder)
        assert self.table.recovery is not None
        assert self.table.recovery.catalogue_damage is None
        self.slots.clear()
        self.serving = None
        self.chain = []

    def opened(self, path: Path) -> EmbeddingTable:
        return EmbeddingTable.open(path, memory_bytes=self.memory_bytes, threads=self.table.threads)

    def lose_what_was_not_flushed(self) -> None:
        """Open a copy of the folder, as a process that is killed leaves it."""
        self.table.flush()
        keys = self.model.keys()
        rows = self.twin.pull(keys, create=False)
        for _ in range(self.rng.integers(12)):
            self.recent.append("once more")
            (self.pull, self.push, self.erase, self.prefetch)[self.rng.integers(4)]()
        self.check_copy(keys, rows, has_catalogue=True)

    def lose_the_catalogue(self) -> None:
        self.table.flush()
        keys = self.model.keys()
        self.check_copy(keys, self.twin.pull(keys, create=False), has_catalogue=False)

    def check_copy(self, keys: npt.NDArray[np.int64], rows: Float32Array, *, has_catalogue: bool) -> None:
        copy = self.path("copy")
        self.copy_rows(copy)
        if not has_catalogue:
            shutil.rmtree(copy / "catalogue")
        if has_catalogue or len(keys):  # without either, nothing is there to open
            with self.opened(copy) as left:
                assert left.recovery is not None
                assert (left.recovery.catalogue_damage is None) == has_catalogue
                check_equal(np.sort(left.keys()), keys)
                check_equal(left.pull(keys, create=False), rows)
        shutil.rmtree(copy)

    def copy_rows(self, copy: Path) -> None:
        """Copy the folder, while the table may be writing to it: files may vanish, but listed ones stay."""
        while True:
            try:
                shutil.copytree(self.rows_folder, copy)
            except shutil.Error:
                shutil.rmtree(copy)
            else:
                return

    def prefetch(self) -> None:
        keys = self.all_keys[self.places()]
        prefetch = self.table.prefetch(keys)
        draw = self.rng.random()
        if draw < 0.5:
            assert prefetch.wait(600).in_memory <= len(keys)
        elif draw < 0.7:
            prefetch.cancel()  # others go on while the table is used

    def purge(self) -> None:
        self.table.purge()

    def forget(self) -> None:
        places = self.places()
        keys = self.all_keys[places]
        assert self.table.erase(keys) == self.model.erase(places) == self.twin.erase(keys)
        self.table.purge()
        assert self.table.path is not None
        for file in (self.table.path / "segments").glob("*.segment"):
            with suppress(NotFoundError):  # rewritten meanwhile
                assert not np.isin(_core.segment_keys(str(file)), keys).any()

    def change_budget(self) -> None:
        memory_bytes = int(self.rng.choice(self.budgets))
        try:
            self.table.memory_bytes = memory_bytes
            self.memory_bytes = memory_bytes
        except DoesNotFitError:
            assert memory_bytes < self.memory_bytes

    def refused_batch(self) -> None:
        keys = np.arange(60_000) + 2**50
        try:
            self.table.pull(keys)
        except DoesNotFitError:
            return
        raise AssertionError("a batch found room that is larger than memory")


class LifeOnSsdWithPolicies(LifeOnSsd, LifeWithPolicies):
    """The same of a table on SSD that chooses its keys."""

    forgets = False
    memory_bytes = 20 << 20
    budgets = (20 << 20, 22 << 20, 40 << 20)

    def admission(self) -> CountAdmission:
        return CountAdmission(ADMITTED_AT, sketch_bytes=SKETCH_BYTES, halve_after=0)

    def check_copy(self, keys: npt.NDArray[np.int64], rows: Float32Array, *, has_catalogue: bool) -> None:
        if has_catalogue:  # without it, passes are lost
            super().check_copy(keys, rows, has_catalogue=has_catalogue)


@dataclass(frozen=True, slots=True)
class Bags:
    """Bags and factors of a training step, and the places of the keys among all."""

    arguments: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
    places: Places
    bag_of: Places
    factors: Float32Array


class LifeInTraining(LifeOnSsd):
    """Training steps over a table on SSD, and all else between them."""

    def new_table(self) -> EmbeddingTable:
        self.batches: list[Bags] = []
        return super().new_table()

    def operations(self) -> dict[Operation, float]:
        return {**super().operations(), self.step: 60}

    def step(self) -> None:
        if not self.batches:
            self.begin_training()
        bags = self.batches.pop()
        sums = self.module(*bags.arguments)
        twin_sums = self.twin_module(*bags.arguments)
        check_equal(sums.detach().numpy(), twin_sums.detach().numpy())
        grads = self.gradients(len(sums))
        self.model.pull(bags.places)
        self.model.push(bags.places, grads[bags.bag_of] * bags.factors[:, None])
        for each in (sums, twin_sums):
            (each * torch.from_numpy(grads)).sum().backward()

    def begin_training(self) -> None:
        mode: Literal["sum", "mean"] = "sum" if self.rng.random() < 0.5 else "mean"
        self.module = TableEmbeddingBag(self.table, mode)
        self.twin_module = TableEmbeddingBag(self.twin, mode)
        self.batches = [self.bags(mode) for _ in range(self.rng.integers(1, 12))]

    def bags(self, mode: str) -> Bags:
        places = self.places()
        offsets = np.sort(self.rng.integers(0, len(places) + 1, self.rng.integers(1, 9)))
        offsets[0] = 0
        lengths = np.diff(np.append(offsets, len(places)))
        bag_of = np.repeat(np.arange(len(offsets)), lengths)
        weights = None
        factors = np.ones(len(places), np.float32)
        if mode == "mean":
            factors /= lengths[bag_of]
        elif self.rng.random() < 0.5:
            factors = self.rng.random(len(places), np.float32)
            weights = torch.from_numpy(factors)
        keys = torch.from_numpy(self.all_keys[places])
        return Bags((keys, torch.from_numpy(offsets), weights), places, bag_of, factors)

    def end_training(self) -> None:
        self.batches = []

    def go_on_with(self, table: EmbeddingTable) -> None:
        self.end_training()
        super().go_on_with(table)

    def close_and_open(self) -> None:
        self.end_training()
        super().close_and_open()

    def end(self) -> None:
        self.end_training()
        super().end()
