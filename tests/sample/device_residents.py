"""Guarantees of a budget for the device's memory: the same samples and walks, within it, and fewer reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphbox.bandwidth import Bandwidths
from graphbox.errors import DoesNotFitError, UsageError
from graphbox.sample import DeviceGraph, ExcludedEdges, random_walk, sample_heterogeneous, sample_neighbors
from graphbox.sample.resident_lists import ListColumn, ResidentLists
from tests.sample.device_sampling import ONE_TYPE, Lists, assert_same, one_type, random_csc

SLOW_PINNED = Bandwidths("any", 1e12, 1e9, (1e12,) * 3, (1e11,) * 3, 1e11, 1e11, 1e12)
OFFSETS = 20  # bytes of a row, where lists can be resident: its offset, its place, its uses


class DeviceResidents:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("dtype", [np.int32, np.int64])
    @pytest.mark.parametrize(
        "options", [{"num_neighbors": [4, 3]}, {"num_neighbors": [-1, 2], "replace": True}]
    )
    @pytest.mark.parametrize("lists_bytes", [-1, 500, 2_000])
    def test_samples_are_the_same_whatever_the_budget(
        self, device: torch.device, options: dict[str, Any], lists_bytes: int, dtype: Any
    ) -> None:
        csc = random_csc(np.random.default_rng(1), 150, 150, [0, 1, 2, 7, 30], dtype)
        budget = 0 if lists_bytes < 0 else OFFSETS * 151 + lists_bytes
        graph = DeviceGraph(one_type(csc), device, hbm_bytes=budget, bandwidths=SLOW_PINNED)
        hubs = np.array([3, 4, 5, 6])
        for batch in range(3):
            expected = sample_neighbors(csc, hubs, seed=1, batch=batch, **options)
            assert_same(sample_neighbors(graph, hubs, seed=1, batch=batch, **options), expected, device)
            statistics = graph.end_pass()
            assert graph.device_bytes <= budget
            assert statistics.list_bytes + 8 * statistics.lists <= statistics.room_bytes
        assert (statistics.lists > 0) == (lists_bytes in (500, 2_000))
        if statistics.lists:
            assert statistics.hit_rate is not None
            assert 0 < statistics.hit_rate <= 1

    @pytest.mark.parametrize("replace", [False, True])
    def test_weighted_samples_are_the_same(self, device: torch.device, replace: bool) -> None:
        csc = random_csc(np.random.default_rng(2), 60, 60, [0, 3, 9, 70])
        graph = DeviceGraph(one_type(csc), device, hbm_bytes=36 * 61 + 9_000, bandwidths=SLOW_PINNED)
        drawn: dict[str, Any] = {"weight_attr": "weight", "replace": replace, "seed": 3}
        for batch in range(3):
            expected = sample_neighbors(csc, np.arange(8), [6, 2], batch=batch, **drawn)
            sample = sample_neighbors(graph, np.arange(8), [6, 2], batch=batch, **drawn)
            assert_same(sample, expected, device)
            statistics = graph.end_pass()
        assert statistics.lists > 20  # of neighbours, alias tables and weights
        assert graph.device_bytes <= 36 * 61 + 9_000

    def test_types_share_the_budget_by_use(self, device: torch.device) -> None:
        rng = np.random.default_rng(3)
        cscs = {
            ("user", "buys", "item"): random_csc(rng, 80, 50, [5, 12]),
            ("item", "in", "shop"): random_csc(rng, 9, 80, [40]),
            ("item", "by", "user"): random_csc(rng, 50, 80, [6], np.int64),
        }
        host = Lists({"user": 50, "item": 80, "shop": 9}, cscs)
        graph = DeviceGraph(host, device, hbm_bytes=OFFSETS * 142 + 1500, bandwidths=SLOW_PINNED)
        for batch in range(4):
            seeds = {"item": [1, 2, 3] if batch < 2 else [7, 8], "shop": [batch]}
            expected = sample_heterogeneous(host, seeds, [3, 2], seed=2, batch=batch)
            assert_same(sample_heterogeneous(graph, seeds, [3, 2], seed=2, batch=batch), expected, device)
            graph.end_pass()
        assert graph.statistics.lists > 4
        assert graph.device_bytes <= OFFSETS * 142 + 1500

    def test_lists_that_are_wanted_again_are_not_read_again(self, device: torch.device) -> None:
        csc = random_csc(np.random.default_rng(4), 40, 40, [8])
        graph = DeviceGraph(one_type(csc), device, hbm_bytes=OFFSETS * 41 + 10 * 40, bandwidths=SLOW_PINNED)
        for first, moved in ((0, 10), (0, 10), (5, 15), (5, 15)):
            for batch in range(4):
                sample_neighbors(graph, np.arange(first, first + 10), [8], batch=batch)
            statistics = graph.end_pass()
            assert statistics.lists == 10
            assert statistics.moved_bytes == moved * 32
        assert statistics.hit_rate is not None
        assert statistics.hit_rate > 0.5

    def test_what_was_read_too_little_is_not_brought(self, device: torch.device) -> None:
        csc = random_csc(np.random.default_rng(4), 40, 40, [30])
        fast_pinned = Bandwidths("any", 1e12, 9e11, (1e12,) * 3, (1e11,) * 3, 1e11, 1e11, 1e12)
        graph = DeviceGraph(one_type(csc), device, hbm_bytes=OFFSETS * 41 + 600, bandwidths=fast_pinned)
        sample_neighbors(graph, np.arange(10), [2])
        assert graph.end_pass().lists == 0

    @pytest.mark.parametrize(
        "options",
        [{}, {"weighted": True}, {"restart_probability": 0.3}, {"p": 0.5, "q": 2.0, "weighted": True}],
    )
    def test_walks_are_the_same(self, device: torch.device, options: dict[str, Any]) -> None:
        csr = random_csc(np.random.default_rng(5), 50, 50, [0, 2, 5, 20])
        for row in range(50):
            csr.indices[csr.indptr[row] : csr.indptr[row + 1]].sort()
        known_bytes = 36 * 51 if "weighted" in options else OFFSETS * 51
        graph = DeviceGraph(one_type(csr), device, hbm_bytes=known_bytes + 500, bandwidths=SLOW_PINNED)
        for batch in range(2):
            expected = random_walk(csr, np.arange(12), 3, seed=6, batch=batch, **options)
            walks: Any = random_walk(graph, np.arange(12), 3, seed=6, batch=batch, **options)
            np.testing.assert_array_equal(walks.cpu().numpy(), expected)
            statistics = graph.end_pass()
        assert statistics.lists > 5

    def test_excluded_edges_in_resident_lists(self, device: torch.device) -> None:
        csc = random_csc(np.random.default_rng(7), 30, 9, [0, 4, 12])
        for row in range(30):
            csc.indices[csc.indptr[row] : csc.indptr[row + 1]].sort()
        graph = DeviceGraph(one_type(csc), device, hbm_bytes=OFFSETS * 31 + 200, bandwidths=SLOW_PINNED)
        sources, targets = np.random.default_rng(8).integers(0, [[12], [30]], (2, 60))
        excluded = ExcludedEdges(np.stack([sources, targets]))
        for batch in range(3):
            for hops in ([3], [-1]):
                drawn: dict[str, Any] = {"excluded_edges": excluded, "batch": batch}
                expected = sample_neighbors(csc, np.arange(30), hops, **drawn)
                assert_same(sample_neighbors(graph, np.arange(30), hops, **drawn), expected, device)
            graph.end_pass()
        assert graph.statistics.lists > 0

    def test_a_second_direction_takes_room_from_the_first(self, device: torch.device) -> None:
        csc = random_csc(np.random.default_rng(9), 40, 40, [30])
        host = one_type(csc)
        budget = 2 * OFFSETS * 41 + 300
        graph = DeviceGraph(host, device, hbm_bytes=budget, bandwidths=SLOW_PINNED)
        for batch in range(4):
            sample_neighbors(graph, np.arange(20), [3], batch=batch)
            graph.end_pass()
            if batch >= 1:
                random_walk(graph, np.arange(20), 4, batch=batch)
            assert graph.device_bytes <= budget
            expected = sample_neighbors(csc, np.arange(20), [3, 2], batch=batch)
            assert_same(sample_neighbors(graph, np.arange(20), [3, 2], batch=batch), expected, device)
        assert graph.statistics.lists > 0

    def test_lists_are_found_when_they_are_there(
        self, device: torch.device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Run the finder, without the lock, on another stream than the one that the lists come on."""
        graph = DeviceGraph(one_type(random_csc(np.random.default_rng(0), 9, 9, [3])), device)
        settle, found = graph._settle, []

        def settled() -> None:
            settle()
            found.append(graph._has((ONE_TYPE, "in"), weighted=False))

        monkeypatch.setattr(graph, "_settle", settled)
        graph.weights(ONE_TYPE, "in")
        assert found == [False]
        assert graph._has((ONE_TYPE, "in"), weighted=True)

    def test_refusals(self, device: torch.device) -> None:
        csc = random_csc(np.random.default_rng(0), 9, 9, [3])
        with pytest.raises(UsageError, match="expected 0 bytes or more, received -1"):
            DeviceGraph(one_type(csc), device, hbm_bytes=-1)
        graph = DeviceGraph(one_type(csc), device, hbm_bytes=100, indices_in="device")
        with pytest.raises(DoesNotFitError, match=r"expected 108 bytes .*, there is room for 20"):
            sample_neighbors(graph, [1], [1])


def check_arena(device: torch.device) -> None:
    """Whatever comes and goes, places lead to copies of the lists."""
    rng = np.random.default_rng(10)
    residents = ResidentLists(device, sectors_of_byte=0.0)
    columns = []
    for dtype in (np.int32, np.int64, np.float32):
        csc = random_csc(rng, 70, 1000, [0, 1, 2, 3, 9, 40], dtype)
        indptr = torch.from_numpy(csc.indptr).to(device)
        uses = torch.zeros(70, dtype=torch.int32, device=device)
        values = torch.from_numpy(csc.indices)
        values = values.pin_memory() if device.type == "cuda" else values
        columns.append(ListColumn(values, uses, indptr))
    for _ in range(6):
        for column in columns:
            column.uses += torch.from_numpy(rng.integers(0, 4, 70) ** 3).to(device, torch.int32)
        residents.end_pass(columns, 3_000)
        found = 0
        for column in columns:
            held = residents.of(column)
            whole = column.values.cpu()
            for row, place in enumerate(held.places.tolist()):
                if place >= 0:
                    assert column.indptr is not None
                    first, last = column.indptr[row : row + 2].tolist()
                    assert held.values[place : place + last - first].tolist() == whole[first:last].tolist()
                    found += 1
        assert found == residents.statistics.lists > 0
