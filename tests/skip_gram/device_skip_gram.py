"""Guarantees of skip-gram on a device: the losses and rows of the native core, to float tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from graphbox import _core
from graphbox.errors import UnsupportedError, UsageError
from graphbox.sample import DeviceGraph, NegativeSampler
from graphbox.sample.pairs_gpu import DeviceWindows, keep_thresholds
from graphbox.sample.walk_plan import WalkOptions, plan_walk
from graphbox.skip_gram.device import DeviceSkipGram, SkipGramSettings
from graphbox.skip_gram.row_bytes import device_row_bytes, position_bytes
from graphbox.skip_gram.walkers import WalkBatches, even_offsets
from graphbox.skip_gram.walks import DeviceWalks, EdgesOnDevice, OneTypeLists, WalksOnDevice
from graphbox.table import EmbeddingTable
from tests.sample.device_sampling import Csc

Tables = dict[str, EmbeddingTable]
Losses = list[tuple[float, int]]

GROUP = 2
TOLERANCE = 2e-5
"""Of rows of about 1 after some batches: sums in another order, of products of as many digits. One pair
more or less makes a thousand times as much."""


def ring(nodes: int, chords: int, seed: int = 0) -> Csc:
    """A connected graph, each edge in the lists of both ends, which ascend; the last node has none."""
    rng = np.random.default_rng(seed)
    ends = np.arange(nodes - 1)
    source = np.concatenate([ends, rng.integers(0, nodes - 1, chords)])
    target = np.concatenate([(ends + 1) % (nodes - 1), rng.integers(0, nodes - 1, chords)])
    pairs = np.unique(np.stack([np.append(source, target), np.append(target, source)], axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=nodes))]).astype(np.int64)
    return Csc(indptr, pairs[:, 1].astype(np.int32))


@dataclass(frozen=True)
class Learning:
    """A graph and how to learn from it, by the native core or on a device."""

    graph: Csc = field(default_factory=lambda: ring(14, 9))
    dim: int = 5
    length: int = 6
    window: int = 2
    walkers: int = 7  # a full group, and one that is not
    batch_size: int = 3
    negatives: int = 4
    dynamic_window: bool = False
    keep: np.ndarray | None = None
    one_table: bool = False
    edges: bool = False
    p: float = 1.0
    lock_free: bool = False
    topology_bytes: int | None = None
    learning_rate: float = 0.3
    seed: int = 2**63 + 1

    @property
    def keys(self) -> int:
        return len(self.graph.indptr) - 1

    def budget(self, hot: int) -> int:
        """Return the memory of a device for the rows of so many keys, and where those of all are."""
        tables = 1 if self.one_table else 2
        return tables * hot * device_row_bytes(self.dim) + position_bytes(self.keys) * self.keys

    def tables(self) -> Tables:
        center = EmbeddingTable(self.dim, "rowwise_adagrad", seed=1)
        if self.one_table:
            return {"center": center}
        return {"center": center, "context": EmbeddingTable(self.dim, "rowwise_adagrad", seed=2)}

    def batches(self, epoch: int) -> WalkBatches:
        rng = np.random.default_rng(epoch)
        if self.edges:
            source = np.repeat(np.arange(self.keys), np.diff(self.graph.indptr))
            order = rng.permutation(len(source))[: self.walkers]
            second = self.graph.indices[order].astype(np.int64)
            return WalkBatches(source[order], even_offsets(len(order), self.batch_size), second)
        start = rng.integers(0, self.keys, self.walkers)
        return WalkBatches(start, even_offsets(self.walkers, self.batch_size))

    def sampler(self) -> NegativeSampler:
        return NegativeSampler(np.diff(self.graph.indptr), 0.75, self.seed)

    def natively(self, tables: Tables, epochs: range = range(2)) -> Losses:
        length = 1 if self.edges else self.length
        plan = plan_walk(self.graph, np.zeros(0, np.int64), length, WalkOptions(self.p), 1)
        contexts = tables.get("context", tables["center"])
        trainer = _core.SkipGramTrainer(
            plan.native,
            (self.window, None, self.dynamic_window, self.keep),
            self.sampler().native,
            tables["center"]._current,
            contexts._current,
            self.keys,
            self.negatives,
            3.0,
        )
        losses = []
        for epoch in epochs:
            batches = self.batches(epoch)
            for first in range(0, len(batches.offsets) - 1, GROUP):
                offsets = batches.offsets[first : first + GROUP + 1]
                walkers = batches.walkers(first, first + len(offsets) - 1)
                key = (self.seed, epoch, first)
                losses.append(
                    trainer.train(
                        walkers, offsets - offsets[0], key, self.seed, self.learning_rate, self.lock_free, 1
                    )
                )
        return losses

    def on_device(self, tables: Tables, device: torch.device, row_bytes: int | None = None) -> DeviceSkipGram:
        def walks() -> DeviceWalks:
            if self.edges:
                return EdgesOnDevice()
            lists = OneTypeLists(self.graph, self.keys)
            graph = DeviceGraph(lists, device, hbm_bytes=self.topology_bytes)
            return WalksOnDevice(graph, self.length, WalkOptions(self.p))

        keep = None if self.keep is None else keep_thresholds(self.keep).to(device)
        return DeviceSkipGram(
            tables,
            walks,
            DeviceWindows(self.window, None, self.dynamic_window, keep),
            self.sampler().on_device(device),
            SkipGramSettings(self.keys, self.negatives, 3.0, self.learning_rate, self.lock_free, self.seed),
            device,
            visits=np.diff(self.graph.indptr).astype(np.float64),
            row_bytes=row_bytes,
        )

    def train(self, trainer: DeviceSkipGram, epochs: range = range(2)) -> Losses:
        losses = []
        for epoch in epochs:
            batches = self.batches(epoch)
            trainer.begin_epoch(batches, GROUP)
            groups = -(-(len(batches.offsets) - 1) // GROUP)
            losses += [trainer.train(epoch, number) for number in range(groups)]
        return losses


def records(table: EmbeddingTable, keys: int) -> np.ndarray:
    """Values and state of all rows."""
    rows = np.empty((keys, table.dim + 1), np.float32)
    _core.table_read_records(table._current, np.arange(keys), rows.view(np.uint8), 1)
    return rows


def assert_learned_alike(
    losses: Losses,
    tables: Mapping[str, EmbeddingTable],
    expected: Losses,
    theirs: Mapping[str, EmbeddingTable],
    tolerance: float = TOLERANCE,
) -> None:
    assert [pairs for _, pairs in losses] == [pairs for _, pairs in expected]
    np.testing.assert_allclose([loss for loss, _ in losses], [loss for loss, _ in expected], rtol=tolerance)
    for name, table in tables.items():
        ours, reference = (records(each, len(theirs[name])) for each in (table, theirs[name]))
        np.testing.assert_allclose(ours, reference, atol=tolerance, rtol=tolerance, err_msg=name)


class DeviceLearning:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"dynamic_window": True, "keep": np.linspace(0.3, 1, 14), "window": 4},
            {"one_table": True, "window": 2**31 - 1},
            {"edges": True, "one_table": True, "window": 1, "walkers": 13},
            {"edges": True, "window": 1, "walkers": 7},
            {"p": 0.25},
            {"topology_bytes": 200},
        ],
    )
    def test_losses_and_rows_are_the_native_ones(self, device: torch.device, options: dict[str, Any]) -> None:
        learning = Learning(**options)
        reference, tables = learning.tables(), learning.tables()
        expected = learning.natively(reference)
        trainer = learning.on_device(tables, device)
        losses = learning.train(trainer)
        trainer.store()
        assert_learned_alike(losses, tables, expected, reference)
        before = {name: records(table, learning.keys) for name, table in learning.tables().items()}
        isolated = learning.keys - 1  # never a negative; a centre of no pair
        np.testing.assert_array_equal(
            records(tables["center"], learning.keys)[isolated], before["center"][isolated]
        )

    def test_batches_of_several_tiles(self, device: torch.device) -> None:
        learning = Learning(
            graph=ring(30, 10), dim=20, length=15, window=5, walkers=6, batch_size=6, negatives=37
        )
        reference, tables = learning.tables(), learning.tables()
        expected = learning.natively(reference, range(1))
        trainer = learning.on_device(tables, device)
        losses = learning.train(trainer, range(1))
        trainer.store()
        assert_learned_alike(losses, tables, expected, reference)

    def test_goes_on_where_another_stopped(self, device: torch.device) -> None:
        learning = Learning(walkers=10)
        reference, tables = learning.tables(), learning.tables()
        expected = learning.natively(reference, range(3))
        losses = learning.natively(tables, range(1))
        first = learning.on_device(tables, device)
        first.begin_epoch(learning.batches(1), GROUP)
        losses.append(first.train(1, 0))
        first.store()
        second = learning.on_device(tables, device)
        second.begin_epoch(learning.batches(1), GROUP)
        losses.append(second.train(1, 1))
        second.store()
        losses += learning.natively(tables, range(2, 3))
        assert_learned_alike(losses, tables, expected, reference)

    def test_the_same_each_time(self, device: torch.device) -> None:
        learning = Learning(walkers=5)
        rows = []
        for _ in range(2):
            tables = learning.tables()
            trainer = learning.on_device(tables, device)
            losses = learning.train(trainer, range(1))
            trainer.store()
            rows.append((losses, *(records(table, learning.keys) for table in tables.values())))
        for ours, theirs in zip(*rows, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    @pytest.mark.parametrize(
        "options",
        [
            {"dynamic_window": True, "keep": np.linspace(0.3, 1, 14), "window": 4},
            {"one_table": True, "dim": 16},
            {"edges": True, "window": 1, "walkers": 9},
        ],
    )
    def test_where_rows_are_changes_no_bit(self, device: torch.device, options: dict[str, Any]) -> None:
        learning = Learning(**options)

        def learned(row_bytes: int | None) -> tuple[Losses, list[np.ndarray]]:
            tables = learning.tables()
            trainer = learning.on_device(tables, device, row_bytes)
            assert ("rows" in trainer.places()) == (row_bytes is not None)
            losses = learning.train(trainer)
            trainer.store()
            return losses, [records(table, learning.keys) for table in tables.values()]

        expected, theirs = learned(None)
        for hot in (1, 6, 12):
            losses, ours = learned(learning.budget(hot))
            assert losses == expected
            np.testing.assert_array_equal(ours, theirs)
        losses, ours = learned(0)
        assert losses == expected
        np.testing.assert_array_equal(ours, theirs)

    def test_goes_on_under_another_budget(self, device: torch.device) -> None:
        learning = Learning(walkers=10)
        expected, tables = learning.tables(), learning.tables()
        whole = learning.on_device(expected, device)
        losses = learning.train(whole)
        whole.store()
        found: Losses = []
        for epoch in range(2):
            for number in range(2):
                trainer = learning.on_device(tables, device, learning.budget(5 * epoch + 3 * number))
                trainer.begin_epoch(learning.batches(epoch), GROUP)
                found.append(trainer.train(epoch, number))
                trainer.store()
                stored = [records(table, learning.keys) for table in tables.values()]
                trainer.store()  # nothing is changed since
                np.testing.assert_array_equal(
                    [records(table, learning.keys) for table in tables.values()], stored
                )
        assert found == losses
        for name, table in tables.items():
            np.testing.assert_array_equal(
                records(table, learning.keys), records(expected[name], learning.keys)
            )

    @pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # by NumPy
    def test_stops_at_a_loss_that_is_not_finite(self, device: torch.device) -> None:
        learning = Learning(walkers=6)
        tables = learning.tables()
        for table in tables.values():
            table.assign(np.arange(learning.keys), np.full((learning.keys, learning.dim), 3e19, np.float32))
        before = {name: records(table, learning.keys) for name, table in tables.items()}
        trainer = learning.on_device(tables, device)
        trainer.begin_epoch(learning.batches(0), GROUP)
        loss, _ = trainer.train(0, 0)
        assert not np.isfinite(loss)
        trainer.store()
        for name, table in tables.items():
            np.testing.assert_array_equal(records(table, learning.keys), before[name])

    @pytest.mark.races
    def test_without_locks(self, device: torch.device) -> None:
        learning = Learning(lock_free=True, learning_rate=0.1, walkers=9)
        reference, tables = learning.tables(), learning.tables()
        expected = replace(learning, lock_free=False).natively(reference, range(1))
        trainer = learning.on_device(tables, device)
        losses = learning.train(trainer, range(1))
        assert [pairs for _, pairs in losses] == [pairs for _, pairs in expected]
        np.testing.assert_allclose([each for each, _ in losses], [each for each, _ in expected], rtol=0.05)

    def test_refusals(self, device: torch.device) -> None:
        learning = Learning()
        with pytest.raises(UnsupportedError, match=r"at most 512 values.*, received dim 513"):
            learning.on_device({"center": EmbeddingTable(513)}, device)
        with pytest.raises(UsageError, match=r"with the weight_decay 0\.0 .* received 0\.5"):
            learning.on_device({"center": EmbeddingTable(5, weight_decay=0.5)}, device)
        with pytest.raises(UsageError, match=r"the optimizer 'rowwise_adagrad' .* received 'adam'"):
            learning.on_device({"center": EmbeddingTable(5, "adam")}, device)
        with pytest.raises(RuntimeError, match="begin_epoch comes first"):
            learning.on_device(learning.tables(), device).train(0, 0)
