"""What pairs and negatives on a device promise: those in host memory, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphbox import _core
from graphbox.errors import UnsupportedError, UsageError
from graphbox.philox_gpu import batch_keys
from graphbox.sample import (
    DeviceGraph,
    NegativeSampler,
    random_walk,
    skip_gram_pairs,
    walk_pairs,
)
from graphbox.sample.device_pairs import pairs_of_tensor
from graphbox.sample.device_walk import plan_device_walk
from graphbox.sample.pairs_gpu import (
    WINDOW_STREAM,
    DeviceWindows,
    count_pairs,
    keep_thresholds,
    places_of_walks,
    write_pairs,
)
from graphbox.sample.walk_gpu import WALK_STREAM, DeviceWalker, WalkerDraws
from graphbox.sample.walk_plan import WalkOptions
from tests.sample.device_sampling import Lists, one_type, random_csc

KEY = (2**64 - 3, 2**32 - 2, 2**63 + 5)  # seed, epoch, batch


def draws_of_batches(device: torch.device, stream: int, sizes: list[int]) -> WalkerDraws:
    keys = batch_keys(stream, *KEY, len(sizes), device)
    counts = torch.tensor(sizes, dtype=torch.int64, device=device)
    positions = torch.cat([torch.arange(size, device=device) for size in (0, *sizes)])
    return WalkerDraws(torch.repeat_interleave(keys, counts), positions)


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
        for ours, theirs in zip(write_pairs(places, reach), expected, strict=True):
            np.testing.assert_array_equal(ours.cpu(), theirs)
        different = count_pairs(places, reach, skip_equal=True)
        assert int(different.sum()) == np.count_nonzero(expected[0] != expected[1])

    def test_too_short(self, device: torch.device) -> None:
        walks = torch.arange(4, device=device)[None]
        places = places_of_walks(walks, DeviceWindows(1), draws_of_batches(device, WINDOW_STREAM, [1]))
        room = torch.empty(2, 5, dtype=torch.int64, device=device)
        with pytest.raises(UsageError, match="expected room for 6 pairs, received 5"):
            write_pairs(places, 1, (room[0], room[1]))
        with pytest.raises(UnsupportedError, match="at most 65536 nodes, received 65537"):
            places_of_walks(
                torch.zeros(1, 65537, dtype=torch.int64, device=device),
                DeviceWindows(1),
                draws_of_batches(device, WINDOW_STREAM, [1]),
            )
        none = places_of_walks(walks[:0], DeviceWindows(1), draws_of_batches(device, WINDOW_STREAM, []))
        assert [len(each) for each in write_pairs(none, 1)] == [0, 0]

    @pytest.mark.parametrize("options", [{}, {"p": 0.5}, {"weighted": True, "dynamic_window": True}])
    @pytest.mark.parametrize("chunk_pairs", [1, 90, 2**20])
    def test_walk_pairs(self, device: torch.device, options: dict[str, Any], chunk_pairs: int) -> None:
        csr = random_csc(np.random.default_rng(3), 40, 40, [0, 1, 2, 3, 12])
        for row in range(40):
            csr.indices[csr.indptr[row] : csr.indptr[row + 1]].sort()
        start = np.random.default_rng(4).integers(0, 40, 7)
        options = {**options, "subsample": np.linspace(0.3, 1, 40), "seed": 2**63 + 9, "epoch": 3, "batch": 4}
        expected = [*walk_pairs(csr, start, 5, 2, chunk_pairs=chunk_pairs, **options)]
        chunks: Any = [
            *walk_pairs(DeviceGraph(one_type(csr), device), start, 5, 2, chunk_pairs=chunk_pairs, **options)
        ]
        assert len(chunks) == len(expected)
        for ours, theirs in zip(chunks, expected, strict=True):
            for tensor, array in zip(ours, theirs, strict=True):
                assert tensor.device.type == device.type
                np.testing.assert_array_equal(tensor.cpu(), array)

    def test_walk_pairs_along_metapaths(self, device: torch.device) -> None:
        rng = np.random.default_rng(6)
        buys, like = ("user", "buys", "item"), ("item", "like", "item")
        graph = Lists(
            {"user": 9, "item": 12},
            {buys: random_csc(rng, 12, 9, [0, 2, 4]), like: random_csc(rng, 12, 12, [1, 3])},
        )
        graph.turn_around()
        start = rng.integers(0, 9, 8)
        options: dict[str, Any] = {
            "metapaths": [[buys, ("item", "rev_buys", "user")], [buys, like, ("item", "rev_buys", "user")]],
            "type_offsets": {"user": 12, "item": 0},
            "subsample": np.linspace(0.4, 1, 21),
        }
        (expected,) = walk_pairs(graph, start, 6, 3, **options)
        on_device: Any = DeviceGraph(graph, device)
        (pairs,) = walk_pairs(on_device, start, 6, 3, **options)
        for ours, theirs in zip(pairs, expected, strict=True):
            np.testing.assert_array_equal(torch.as_tensor(ours).cpu(), theirs)
        with pytest.raises(UsageError, match="none for 'item'"):
            walk_pairs(on_device, start, 6, 3, **{**options, "type_offsets": {"user": 12}})
        with pytest.raises(UsageError, match="for all keys; it has 20, there is key 20"):
            walk_pairs(on_device, start, 6, 3, **{**options, "subsample": np.ones(20)})
        with pytest.raises(UsageError, match=r"0 to 1, received 2.0 for key 3"):
            walk_pairs(on_device, start, 6, 3, **{**options, "subsample": np.r_[1, 1, 1, 2, np.ones(17)]})
        with pytest.raises(UnsupportedError, match="walks on a device know no second"):
            walk_pairs(on_device, start, 6, 3, **options, second=start)

    def test_pairs_of_a_tensor(self, device: torch.device) -> None:
        walks = torch.tensor([[3, 1, -1, 7], [0, 2, 2, 1]], dtype=torch.int32, device=device)
        offsets, keep = np.array([[0, 4, 0, 0]]), np.linspace(0, 1, 8)
        expected = skip_gram_pairs(
            walks.cpu().numpy(), 2, column_offsets=offsets[0], subsample=keep, dynamic_window=True, seed=3
        )
        room = torch.empty(2, 30, dtype=torch.int64, device=device)
        for out in (None, (room[0], room[1])):
            pairs = pairs_of_tensor(walks, 2, offsets, True, keep, (3, 0, 0), out)
            for ours, theirs in zip(pairs, expected, strict=True):
                np.testing.assert_array_equal(ours.cpu(), theirs)
        with pytest.raises(UsageError, match="it has 5, there is key 7"):
            pairs_of_tensor(walks, 2, None, True, keep[:5], (3, 0, 0), None)
        with pytest.raises(UsageError, match="each of 4 columns, received 3"):
            pairs_of_tensor(walks, 2, offsets[:, :3], True, None, (3, 0, 0), None)
        with pytest.raises(UsageError, match=r"received torch.float32 \(2, 4\)"):
            pairs_of_tensor(walks.float(), 2, None, True, None, (3, 0, 0), None)
        with pytest.raises(UsageError, match=r"one dimension, received torch.float32 \(30,\)"):
            pairs_of_tensor(walks, 2, None, True, None, (3, 0, 0), (room[0].float(), room[1]))

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
