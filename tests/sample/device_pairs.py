"""Guarantees of pairs and negatives on a device: those in host memory, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphbox import _core
from graphbox.errors import UnsupportedError
from graphbox.philox_gpu import batch_keys
from graphbox.sample import (
    DeviceGraph,
    NegativeSampler,
    random_walk,
    skip_gram_pairs,
    walk_pairs,
)
from graphbox.sample.device_walk import plan_device_walk
from graphbox.sample.pairs_gpu import (
    WINDOW_STREAM,
    DeviceWindows,
    WalkPlaces,
    count_pairs,
    keep_thresholds,
    places_of_walks,
)
from graphbox.sample.walk_gpu import WALK_STREAM, DeviceWalker, WalkerDraws
from graphbox.sample.walk_plan import WalkOptions
from tests.sample.device_sampling import one_type, random_csc

KEY = (2**64 - 3, 2**32 - 2, 2**63 + 5)  # seed, epoch, batch


def draws_of_batches(device: torch.device, stream: int, sizes: list[int]) -> WalkerDraws:
    keys = batch_keys(stream, *KEY, len(sizes), device)
    counts = torch.tensor(sizes, dtype=torch.int64, device=device)
    positions = torch.cat([torch.arange(size, device=device) for size in (0, *sizes)])
    return WalkerDraws(torch.repeat_interleave(keys, counts), positions)


def pairs_of_places(places: WalkPlaces) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all pairs of a centre and a context, centre by centre."""
    size = int(places.begins[-1])
    key, first, last = (each[:size] for each in (places.key, places.first, places.last))
    spans = last - first
    centers = torch.repeat_interleave(spans)
    contexts = torch.arange(len(centers), device=key.device) + (first - (spans.cumsum(0) - spans))[centers]
    is_pair = contexts != centers
    return key[centers[is_pair]], key[contexts[is_pair]]


class DevicePairs:
    """To be run on a device: the fixture `device` says on which."""

    def test_keys_of_batches(self, device: torch.device) -> None:
        seed, epoch, batch = KEY
        keys = batch_keys(7, seed, epoch, batch, 130, device)
        assert keys.device.type == device.type
        expected = [_core.philox_key(7, seed, epoch, batch + number) for number in range(130)]
        assert [key % 2**64 for key in keys.tolist()] == expected
        assert len(batch_keys(7, seed, epoch, batch, 0, device)) == 0

    @pytest.mark.parametrize("items", [1, 50, 2**32 - 1])
    def test_negatives(self, device: torch.device, items: int) -> None:
        weights = np.random.default_rng(items % 99).random(min(items, 50)) * [1]
        weights[: items // 2 : 2] = 0
        sampler = NegativeSampler.uniform(items, seed=5) if items > 50 else NegativeSampler(weights, seed=5)
        on_device = sampler.on_device(device)
        drawn = on_device.sample_batches(21, 3, 2**40, 3)
        assert drawn.device.type == device.type
        for number in range(3):
            np.testing.assert_array_equal(drawn[number].cpu(), sampler.sample(21, 3, 2**40 + number))
        np.testing.assert_array_equal(on_device.sample(300, 1).cpu(), sampler.sample(300, 1))
        assert on_device.sample(0).shape == (0,)
        out = torch.empty(2, 4, dtype=torch.int64, device=device)
        assert on_device.sample_batches(4, 0, 0, 2, out) is out
        np.testing.assert_array_equal(out[1].cpu(), sampler.sample(4, 0, 1))

    @pytest.mark.parametrize("window", [1, 3, 30, 2**31 - 1])
    @pytest.mark.parametrize("dynamic_window", [False, True])
    @pytest.mark.parametrize("options", [(), ("keep",), ("keep", "offsets", "paths")])
    def test_pairs(
        self, device: torch.device, window: int, dynamic_window: bool, options: tuple[str, ...]
    ) -> None:
        rng = np.random.default_rng(window % 7)
        walks = rng.integers(0, 30, (23, 11))
        walks[3, 5:], walks[4], walks[20, 10:] = -1, -1, -1
        keep = np.clip(rng.random(60) * 1.5, 0, 1)
        keep[::7] = 0
        offsets = rng.integers(0, 10, (3, 11))
        path_of = rng.integers(0, 3, 23)
        seed, epoch, batch = KEY

        def of_walk(number: int) -> Any:
            alone = np.where(np.arange(23)[:, None] == number, walks, -1)  # draws go by the number of a walk
            return skip_gram_pairs(
                alone,
                window,
                column_offsets=offsets[path_of[number] if "paths" in options else 0]
                if "offsets" in options
                else None,
                dynamic_window=dynamic_window,
                subsample=keep if "keep" in options else None,
                seed=seed,
                epoch=epoch,
                batch=batch,
            )

        expected = [np.concatenate(parts) for parts in zip(*map(of_walk, range(23)), strict=True)]
        windows = DeviceWindows(
            window,
            torch.from_numpy(offsets).to(device) if "offsets" in options else None,
            dynamic_window,
            keep_thresholds(keep).to(device) if "keep" in options else None,
        )
        places = places_of_walks(
            torch.from_numpy(walks).to(device),
            windows,
            draws_of_batches(device, WINDOW_STREAM, [23]),
            torch.from_numpy(path_of).to(device) if "paths" in options else None,
        )
        reach = min(window, 10)
        for ours, theirs in zip(pairs_of_places(places), expected, strict=True):
            np.testing.assert_array_equal(ours.cpu(), theirs)
        different = count_pairs(places, reach, skip_equal=True)
        assert int(different.sum()) == np.count_nonzero(expected[0] != expected[1])

    def test_longest_and_no_walks(self, device: torch.device) -> None:
        walks = torch.arange(4, device=device)[None]
        places = places_of_walks(walks, DeviceWindows(1), draws_of_batches(device, WINDOW_STREAM, [1]))
        assert int(count_pairs(places, 1).sum()) == len(pairs_of_places(places)[0]) == 6
        with pytest.raises(UnsupportedError, match="at most 65536 nodes, received 65537"):
            places_of_walks(
                torch.zeros(1, 65537, dtype=torch.int64, device=device),
                DeviceWindows(1),
                draws_of_batches(device, WINDOW_STREAM, [1]),
            )
        none = places_of_walks(walks[:0], DeviceWindows(1), draws_of_batches(device, WINDOW_STREAM, []))
        assert int(none.begins[-1]) == 0
        assert len(count_pairs(none, 1)) == 0

    def test_pairs_of_a_graph_on_a_device_are_refused(self, device: torch.device) -> None:
        graph: Any = DeviceGraph(one_type(random_csc(np.random.default_rng(3), 4, 4, [1])), device)
        with pytest.raises(UnsupportedError, match="expected a graph in memory, received DeviceGraph"):
            walk_pairs(graph, [0], 2, 1)

    @pytest.mark.parametrize("p", [1.0, 0.5])
    def test_walkers_of_several_batches(self, device: torch.device, p: float) -> None:
        csr = random_csc(np.random.default_rng(3), 40, 40, [0, 1, 2, 3, 12])
        for row in range(40):
            csr.indices[csr.indptr[row] : csr.indptr[row + 1]].sort()
        sizes, start = [3, 0, 9], np.random.default_rng(4).integers(0, 40, 12)
        walk, _ = plan_device_walk(DeviceGraph(one_type(csr), device), 5, WalkOptions(p))
        walks = DeviceWalker(walk, device).walk(
            torch.from_numpy(start).to(device), None, draws_of_batches(device, WALK_STREAM, sizes)
        )
        seed, epoch, batch = KEY
        ends = np.cumsum([0, *sizes])
        for number, size in enumerate(sizes):
            part = slice(ends[number], ends[number] + size)
            expected = random_walk(csr, start[part], 5, p, seed=seed, epoch=epoch, batch=batch + number)
            np.testing.assert_array_equal(walks[part].cpu(), expected)
