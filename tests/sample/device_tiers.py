"""Guarantees of a device for graphs on disk: samples of the graph in memory, bit for bit, within budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphbox.errors import DataError, NotFoundError, UnsupportedError, UsageError
from graphbox.graph import Graph
from graphbox.graph.tables import edge_table, numbered_nodes
from graphbox.sample import (
    DeviceGraph,
    ExcludedEdges,
    NeighborLoader,
    SampleRequest,
    prepare_sampler,
    sample_heterogeneous,
    sample_neighbors,
)
from graphbox.sample.disk_lists import DiskLists
from graphbox.sample.pinned import to_device
from tests.graph.test_tiered_graph import change, make_graph
from tests.sample.device_loaders import assert_same_batch
from tests.sample.device_sampling import assert_same

KNOWS = ("user", "knows", "user")
BUYS = ("user", "buys", "item")
SHOWN = ("item", "shown_to", "user")
TO = ("node", "to", "node")
KNOWN = 28  # bytes on the device of each list on disk
ROWS = 2 * 121 + 71  # of the lists of all edge types of the shop, with their ends
HUB = 5000  # edges of the first item


def shop(path: Path, seed: int = 0) -> Graph:
    """Save a random graph of two node types and three edge types, with a hub and nodes without edges."""
    rng = np.random.default_rng(seed)
    counts = {"user": 120, "item": 70, "none": 3}
    edges = {}
    for name, num_edges in ((KNOWS, 700), (BUYS, 900), (SHOWN, 300)):
        source, target = (
            (rng.pareto(1.0, num_edges) * 9).astype(np.int64) % counts[name[side]] for side in (0, 2)
        )
        if name == BUYS:
            source = np.append(source, rng.integers(0, counts["user"], HUB))
            target = np.append(target, np.zeros(HUB, np.int64))
        weight = np.asarray(rng.random(len(source)) + 0.1, np.float32) if name == BUYS else None
        edges[name] = edge_table(source, target, counts[name[0]], counts[name[2]], weight=weight)
    nodes = {name: numbered_nodes(count) for name, count in counts.items()}
    Graph("shop", nodes, edges).save(path)
    return Graph.open(path)


def batches_of(graph: Graph, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Seeds of batches, repeated ones and batches without any among them."""
    found: list[dict[str, Any]] = [
        {name: rng.integers(0, graph.num_nodes(name), rng.integers(0, 6)) for name in graph.node_types}
        for _ in range(3)
    ]
    first = graph.node_types[0]
    return [*found, {}, {first: np.zeros(2, np.int64)}]


# What HBM and host memory have room for: nothing, what is known about lists, some of them, all of them.
BUDGETS = [(0, 0), (0, 4_000), (KNOWN * ROWS, 0), (KNOWN * ROWS + 900, 1_500), (6_000 + KNOWN * ROWS, 0)]


def check(graph: DeviceGraph, seeds: list[dict[str, Any]], num_neighbors: Any, **options: Any) -> None:
    """Sample a pass from disk, and compare it with samples of the graph in memory."""
    whole = graph.graph
    sampler = prepare_sampler(graph, num_neighbors, seed=7, **options)
    sampled = sampler.sample(
        [SampleRequest(each, epoch=3, batch=number + 10) for number, each in enumerate(seeds)]
    )
    sampled_types = num_neighbors if isinstance(num_neighbors, dict) else graph.edge_types
    assert graph.disk_lists([each for each in graph.edge_types if each in sampled_types]) is not None
    assert len(sampled) == len(seeds)
    for number, (each, sample) in enumerate(zip(seeds, sampled, strict=True)):
        key = {"seed": 7, "epoch": 3, "batch": number + 10}
        expected: Any = sample_heterogeneous(whole, each, num_neighbors, **key, **options)  # type: ignore[call-overload]
        assert_same(sample, expected, graph.device)
        for name in ("weight", "timestamp"):
            ours, theirs = getattr(sample, name), getattr(expected, name)
            assert list(ours) == list(theirs)
            for edge_type, values in theirs.items():
                np.testing.assert_array_equal(ours[edge_type].cpu().numpy(), values)


class DeviceTiers:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("budgets", BUDGETS)
    def test_passes_are_the_same_whatever_the_budgets(
        self, device: torch.device, tmp_path: Path, budgets: tuple[int, int]
    ) -> None:
        graph = shop(tmp_path / "shop")
        hbm, host = budgets
        on_device = DeviceGraph(graph.tiered(topology_bytes=host, pass_bytes=1 << 16), device, hbm_bytes=hbm)
        rng = np.random.default_rng(0)
        for num_neighbors, replace in (
            ([3, 2], False),
            ([2, 3], True),
            ({BUYS: [-1, 2], KNOWS: [0, 5]}, False),
        ):
            for _ in range(2):
                check(on_device, batches_of(graph, rng), num_neighbors, replace=replace)
                near, far = on_device.end_pass(), on_device.pinned_statistics
                assert far is not None
                assert on_device.device_bytes <= hbm
                assert on_device.pinned_bytes <= host
        assert (near.lists > 0) == (hbm > KNOWN * ROWS)
        assert far is not None
        assert (far.lists > 0) == (hbm >= KNOWN * ROWS and host > 0)

    def test_weights_of_edges(self, device: torch.device, tmp_path: Path) -> None:
        graph = shop(tmp_path / "shop", 1)
        on_device = DeviceGraph(graph.tiered(topology_bytes=1_000), device, hbm_bytes=KNOWN * ROWS + 1_000)
        seeds = batches_of(graph, np.random.default_rng(1))
        for _ in range(2):
            check(on_device, seeds, [3, 2], edge_attributes=("weight",))
            on_device.end_pass()

    @pytest.mark.parametrize("csr", [False, True])
    def test_changed_graphs_and_reverse_edge_types(
        self, device: torch.device, tmp_path: Path, csr: bool
    ) -> None:
        make_graph(tmp_path / "graph", csr=csr)
        rng = np.random.default_rng(2)
        for graph, room in ((Graph.open(tmp_path / "graph"), 0), (change(tmp_path / "graph"), 2 << 20)):
            tiered = graph.tiered(topology_bytes=room)
            known_bytes = KNOWN * (graph.num_nodes("node") + 1) * len(graph.edge_types)
            on_device = DeviceGraph(tiered, device, hbm_bytes=known_bytes + 20_000)
            seeds = [{"node": rng.integers(0, graph.num_nodes("node"), 8)} for _ in range(2)]
            hops = {edge_type: [3, 2] for edge_type in graph.edge_types}
            attributes = ("weight", "timestamp")
            for _ in range(2):
                check(on_device, seeds, hops, edge_attributes=attributes)
                on_device.end_pass()
            assert (on_device.statistics.lists > 0) == (room == 0)

    def test_a_hub_longer_than_the_staging_becomes_resident(
        self, device: torch.device, tmp_path: Path
    ) -> None:
        graph = shop(tmp_path / "shop")
        tiered = graph.tiered(topology_bytes=4 * HUB + 2_000, pass_bytes=1 << 16)  # 4 KiB of staging
        on_device = DeviceGraph(tiered, device, hbm_bytes=KNOWN * ROWS)
        seeds = [{"item": np.zeros(200, np.int64)}]
        for _ in range(3):
            check(on_device, seeds, {BUYS: [-1]})
            on_device.end_pass()
        statistics = on_device.pinned_statistics
        assert statistics is not None
        assert statistics.list_bytes > 4 * HUB

    @pytest.mark.parametrize(("hbm", "host"), [(5_000, 0), (0, 5_000)])
    def test_lists_that_came_are_not_read_from_disk(
        self, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hbm: int, host: int
    ) -> None:
        graph = shop(tmp_path / "shop")
        on_device = DeviceGraph(graph.tiered(topology_bytes=host), device, hbm_bytes=KNOWN * 71 + hbm)
        seeds = [{"item": np.arange(1, 70)}]  # all but the hub
        check(on_device, seeds, {BUYS: [3]})
        on_device.end_pass()
        monkeypatch.setattr(DiskLists, "neighbors", None)
        check(on_device, seeds, {BUYS: [-1]})
        monkeypatch.undo()
        check(on_device, [{"item": np.arange(70)}], {BUYS: [3]})

    def test_lists_that_fit_are_held_as_a_whole(self, device: torch.device, tmp_path: Path) -> None:
        graph = shop(tmp_path / "shop")
        rng = np.random.default_rng(3)
        for hbm, host in ((1 << 20, 0), (0, 1 << 20), (KNOWN * ROWS, 1 << 20)):
            on_device = DeviceGraph(graph.tiered(topology_bytes=host), device, hbm_bytes=hbm)
            assert on_device.disk_lists(graph.edge_types) is None
            assert on_device.pinned_bytes <= host
            assert on_device.device_bytes <= hbm
            for seeds in batches_of(graph, rng):
                expected = sample_heterogeneous(
                    graph, seeds, [3, 2], weight_attr="weight" if [BUYS] else None, seed=1
                )
                sample = sample_heterogeneous(
                    on_device, seeds, [3, 2], weight_attr="weight" if [BUYS] else None, seed=1
                )
                assert_same(sample, expected, device)

    def test_single_samples(self, device: torch.device, tmp_path: Path) -> None:
        graph = make_graph(tmp_path / "graph")
        on_device = DeviceGraph(graph.tiered(), device, hbm_bytes=80_000)
        seeds = to_device(np.arange(9), device)
        expected = sample_neighbors(graph, np.arange(9), [5, 2], seed=1, batch=4)
        assert_same(sample_neighbors(on_device, seeds, [5, 2], seed=1, batch=4), expected, device)

    @pytest.mark.parametrize("pass_batches", [None, 1, 3])
    @pytest.mark.parametrize("budgets", [(0, 0), (80_000, 20_000), (1 << 20, 1 << 20)])
    def test_loaders(
        self, device: torch.device, tmp_path: Path, budgets: tuple[int, int], pass_batches: int | None
    ) -> None:
        graph = make_graph(tmp_path / "graph")
        hbm, host = budgets
        tiered = graph.tiered(topology_bytes=host, feature_bytes=60_000, pass_bytes=1 << 20)
        common: dict[str, Any] = {
            "num_neighbors": [3, 2],
            "input_nodes": np.arange(300),
            "batch_size": 64,
            "shuffle": True,
            "features": ["age", "taste", "words"],
            "edge_attributes": ("weight", "timestamp"),
            "output": "torch",
            "seed": 5,
        }
        on_device = DeviceGraph(tiered, device, hbm_bytes=hbm)
        loader = NeighborLoader(on_device, **common, pass_batches=pass_batches)
        in_host = graph.tiered(feature_bytes=60_000)
        expected = NeighborLoader(in_host, **common, pass_batches=pass_batches)  # which is that of memory
        for _ in range(2):
            for batch, same in zip(loader, expected, strict=True):
                assert_same_batch(batch, same, device)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        iterator.close()
        resumed = NeighborLoader(in_host, **common, pass_batches=pass_batches)
        resumed.load_state_dict(state)
        loader.load_state_dict(state)
        for batch, same in zip(loader, resumed, strict=True):
            assert_same_batch(batch, same, device)

    def test_refusals(self, device: torch.device, tmp_path: Path) -> None:
        graph = shop(tmp_path / "shop")
        on_device = DeviceGraph(graph.tiered(), device, hbm_bytes=0)
        with pytest.raises(UnsupportedError, match="received some on disk"):
            on_device.weights(BUYS, "in")
        with pytest.raises(UnsupportedError, match="received some on disk"):
            sample_heterogeneous(on_device, {"item": [0]}, {BUYS: [1]}, weight_attr="weight")
        excluded = {BUYS: ExcludedEdges(np.zeros((2, 1), np.int64))}
        with pytest.raises(UnsupportedError, match="`excluded_edges` is not supported"):
            sample_heterogeneous(on_device, {"item": [0]}, {BUYS: [1]}, excluded_edges=excluded)
        refused: list[tuple[dict[str, Any], str]] = [
            ({"disjoint": True}, "disjoint"),
            ({"input_time": {"item": [1]}}, "input_time"),
        ]
        for options, name in refused:
            with pytest.raises(UnsupportedError, match=f"`{name}` is not supported on a device"):
                sample_heterogeneous(on_device, {"item": [0]}, {BUYS: [1]}, **options)
        with pytest.raises(UnsupportedError, match="expected at most 512 neighbours"):
            sample_heterogeneous(on_device, {"item": [0]}, {BUYS: [513]})
        with pytest.raises(UsageError, match="expected node indices from 0 to 69, received 70"):
            sample_heterogeneous(on_device, {"item": [70]}, {BUYS: [1]})
        make_graph(tmp_path / "one")
        reverse = Graph.open(tmp_path / "one").with_reverse_edges()
        backwards = next(each for each in reverse.edge_types if reverse.is_reverse(each))
        with pytest.raises(NotFoundError, match="there are no out-neighbours on disk"):
            DeviceGraph(reverse.tiered(), device).hold([(backwards, "in")])

    def test_damaged_files_lead_no_kernel_astray(self, device: torch.device, tmp_path: Path) -> None:
        graph = make_graph(tmp_path / "graph")
        file = graph.array_file(TO, "indices")
        with file.path.open("r+b") as opened:
            opened.seek(file.offset)
            opened.write(np.full(file.shape, 10**6, file.dtype).tobytes())
        for hbm in (0, 80_000):
            on_device = DeviceGraph(graph.tiered(), device, hbm_bytes=hbm)
            with pytest.raises(DataError, match="expected neighbours from 0 to 1999, found 1000000"):
                sample_neighbors(on_device, np.arange(50), [3])
