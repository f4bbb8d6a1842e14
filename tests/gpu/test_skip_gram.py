"""Skip-gram by compiled kernels, its walks, pairs and negatives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphbox.sample import NegativeSampler, random_walk, skip_gram_pairs
from graphbox.sample.pairs_gpu import WINDOW_STREAM, DeviceWindows, places_of_walks
from tests.sample.device_pairs import KEY, DevicePairs, draws_of_batches, pairs_of_places
from tests.skip_gram.device_skip_gram import DeviceLearning, Learning, assert_learned_alike, records, ring

pytestmark = pytest.mark.gpu

LARGE = Learning(
    dim=128,
    length=80,
    window=10,
    walkers=3_000,
    batch_size=32,
    negatives=64,
    dynamic_window=True,
    learning_rate=0.05,
)


@pytest.fixture(scope="module")
def large() -> Learning:
    return replace(LARGE, graph=ring(200_000, 2_000_000))


class TestCompiledPairs(DevicePairs):
    pass


class TestCompiled(DeviceLearning):
    @pytest.mark.parametrize("dim", [1, 16, 100, 256, 512])
    def test_rows_of_any_length(self, device: torch.device, dim: int) -> None:
        learning = Learning(graph=ring(60, 100), dim=dim, walkers=40, batch_size=9, negatives=40)
        reference, tables = learning.tables(), learning.tables()
        expected = learning.natively(reference)
        trainer = learning.on_device(tables, device)
        losses = learning.train(trainer)
        trainer.store()
        assert_learned_alike(losses, tables, expected, reference)


def test_large_batches_are_the_native_ones(device: torch.device, large: Learning) -> None:
    reference, tables = large.tables(), large.tables()
    expected = large.natively(reference, range(1))
    trainer = large.on_device(tables, device)
    losses = large.train(trainer, range(1))
    trainer.store()
    assert_learned_alike(losses, tables, expected, reference, 1e-3)  # after a hundred batches


def test_large_batches_have_the_same_bits_wherever_rows_are(device: torch.device, large: Learning) -> None:
    found = []
    for row_bytes in (None, large.budget(large.keys // 4), 0):
        tables = large.tables()
        trainer = large.on_device(tables, device, row_bytes)
        assert ("rows" in trainer.places()) == (row_bytes is not None)
        losses = large.train(trainer, range(1))
        trainer.store()
        found.append((losses, [records(table, large.keys) for table in tables.values()]))
    for losses, rows in found[1:]:
        assert losses == found[0][0]
        for ours, theirs in zip(rows, found[0][1], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_same_inputs_give_the_same_rows_a_hundred_times(device: torch.device) -> None:
    learning = replace(LARGE, graph=ring(500, 4_000), walkers=300, dim=64)  # rows that many batches share
    first = None
    for _ in range(100):
        tables = learning.tables()
        trainer = learning.on_device(tables, device)
        losses = learning.train(trainer, range(1))
        trainer.store()
        rows = [records(table, learning.keys) for table in tables.values()]
        first = first or (losses, rows)
        assert losses == first[0]
        for ours, theirs in zip(rows, first[1], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_large_inputs_give_the_pairs_and_negatives_of_the_host(device: torch.device, large: Learning) -> None:
    start = np.random.default_rng(1).integers(0, large.keys, 50_000)
    walks = random_walk(large.graph, start, 80, seed=1)
    seed, epoch, batch = KEY
    expected = skip_gram_pairs(walks, 10, dynamic_window=True, seed=seed, epoch=epoch, batch=batch)
    on_device = torch.from_numpy(walks).to(device)
    draws = draws_of_batches(device, WINDOW_STREAM, [len(walks)])
    sampler = NegativeSampler(np.diff(large.graph.indptr), 0.75, seed=3)
    for _ in range(10):
        pairs = pairs_of_places(places_of_walks(on_device, DeviceWindows(10, None, True), draws))
        for ours, theirs in zip(pairs, expected, strict=True):
            assert np.array_equal(ours.cpu().numpy(), theirs)
    drawn = sampler.on_device(device).sample(10_000_001, 4, 5)
    assert np.array_equal(drawn.cpu().numpy(), sampler.sample(10_000_001, 4, 5))


def test_negatives_of_more_batches_than_a_grid_has_rows(device: torch.device) -> None:
    sampler = NegativeSampler(np.arange(1, 100), 0.75, seed=3)
    drawn = sampler.on_device(device).sample_batches(2, 1, 0, 70_000).cpu().numpy()
    for batch in (0, 65_535, 65_536, 69_999):
        assert np.array_equal(drawn[batch], sampler.sample(2, 1, batch))
