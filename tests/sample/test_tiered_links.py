"""Loaders of links over a graph on disk: the batches of the graph in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import DataError, NotFoundError, UsageError
from graphbox.graph import Graph
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.sample import LinkNeighborLoader
from graphbox.sample.loader.tiered import TieredStages
from tests.graph.test_tiered_graph import TO, change, make_graph
from tests.sample.test_tiered_choices import LATEST, save_with_csr, shop
from tests.sample.test_tiered_loader import check_same
from tests.sample.test_tiered_neighbor import BUYS, KNOWS

NUM_LINKS = 600


def some_links(graph: Graph, edge_type: Any = TO) -> tuple[Any, Any]:
    """Return edges of the graph and pairs that are none."""
    rng = np.random.default_rng(6)
    csc = graph.csc(edge_type)
    at = rng.integers(0, len(csc.indices), NUM_LINKS)
    targets = np.searchsorted(csc.indptr, at, side="right") - 1
    links = np.stack([csc.indices[at].astype(np.int64), targets])
    links[0, ::7] = rng.integers(0, graph.num_nodes(edge_type[0]), len(links[0, ::7]))
    return edge_type, links


def link_loader(graph: Graph | TieredGraph, links: Any, **arguments: Any) -> LinkNeighborLoader:
    options: dict[str, Any] = {"batch_size": 100, "shuffle": True, "output": "numpy", "seed": 3} | arguments
    return LinkNeighborLoader(graph, options.pop("num_neighbors", [5, 3]), links, **options)


WAYS: list[dict[str, Any]] = [
    {},
    {"neg_sampling": "binary"},
    {"neg_sampling": {"mode": "triplet", "amount": 2}, "replace": True},
    {"neg_sampling_ratio": 1.5, "avoid_known_positives": True, "weight_attr": "weight"},
    {"neg_sampling": "triplet", "avoid_known_positives": True, "disjoint": True},
    {"neg_sampling": "binary", "exclude_seed_edges": False},
    {"neg_sampling": "triplet", "temporal": True, "weight_attr": "weight"},
    {"temporal": True, "temporal_strategy": "last"},
]


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_links_and_their_negatives(tmp_path: Path, way: dict[str, Any], changed: bool) -> None:
    graph = make_graph(tmp_path / "graph", csr=True)
    graph = change(tmp_path / "graph") if changed else graph
    links = some_links(graph)
    options = {"features": ("age", "taste"), "edge_attributes": ("weight",)} | way
    if options.pop("temporal", False):
        times = np.random.default_rng(2).integers(0, LATEST, NUM_LINKS)
        options |= {"edge_label_time": times, "time_attr": "timestamp"}
    expected = list(link_loader(graph, links, **options))
    for pass_batches, pass_bytes in ((None, 1 << 20), (1, 2 << 20), (4, 32 << 20)):
        tiered = graph.tiered(topology_bytes=2 << 20, feature_bytes=100_000, pass_bytes=pass_bytes)
        check_same(link_loader(tiered, links, pass_batches=pass_batches, **options), expected)


def test_no_batch_has_the_edges_of_its_links(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph", csr=True)
    tiered = graph.tiered(topology_bytes=100_000, pass_bytes=4 << 20)
    seen = 0
    for batch in link_loader(tiered, TO, num_neighbors=[-1], batch_size=3000):
        nodes = batch.sample.nodes["node"]
        ends = nodes[batch.seeds.edge_label_index]
        labelled = {*map(tuple, ends.T.tolist())} | {*map(tuple, ends[::-1].T.tolist())}
        for edge_type, rows in batch.sample.row.items():
            pairs = np.stack([nodes[rows], nodes[batch.sample.col[edge_type]]])
            assert not labelled & {*map(tuple, pairs.T.tolist())}
            seen += len(rows)
    assert seen > 0


@pytest.mark.parametrize("seed", range(3))
def test_links_between_types(tmp_path: Path, seed: int) -> None:
    graph = shop(tmp_path / "graph", seed)
    for way in WAYS[:3]:
        options = {"num_neighbors": [3, 2], "disjoint": seed == 1} | way
        for edge_type in (BUYS, KNOWS):
            links = some_links(graph, edge_type)
            tiered = graph.tiered(topology_bytes=1 << 20, pass_bytes=4 << 20)
            check_same(link_loader(tiered, links, **options), link_loader(graph, links, **options))


def mapped(graph: Graph, edge_type: Any) -> Any:
    raise AssertionError(f"the mapped files of {graph} are asked for {edge_type}")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pass_bytes", [50_000, 4 << 20])
def test_known_positives_are_read_from_disk(tmp_path: Path, seed: int, pass_bytes: int) -> None:
    """No mapped file is read for them; whole lists go through memory in parts."""
    graph = shop(tmp_path / "graph", seed, csr=True)
    for edge_type in (BUYS, KNOWS):
        kept, links = some_links(graph, edge_type)
        links = np.concatenate([links, links[:, :50]], axis=1)  # some twice
        for sampling in ("binary", {"mode": "triplet", "amount": 3}):
            options: dict[str, Any] = {"neg_sampling": sampling, "avoid_known_positives": True}
            options |= {"num_neighbors": [0], "exclude_seed_edges": False}
            expected = [*link_loader(graph, (kept, links), **options)]
            tiered = graph.tiered(pass_bytes=pass_bytes)
            with pytest.MonkeyPatch.context() as patch:
                for name in ("csc", "csr"):
                    patch.setattr(Graph, name, mapped)
                ours = link_loader(tiered, (kept, links), pass_batches=1, **options)
                check_same(ours, expected)
            assert isinstance(ours._passes, TieredStages)
            lists = ours._passes._fetched_lists
            assert lists is not None
            assert 0 < lists.peak_bytes <= pass_bytes // 2


def test_known_positives_must_be_on_disk(tmp_path: Path) -> None:
    graph = shop(tmp_path / "graph", 1)
    links = some_links(graph, BUYS)
    avoid: dict[str, Any] = {"neg_sampling": "triplet", "avoid_known_positives": True}
    with pytest.raises(NotFoundError, match="no out-neighbours on disk"):
        link_loader(graph.tiered(), links, **avoid)
    Graph.from_coo([0, 0, 1, 1], [0, 1, 0, 1]).save(tmp_path / "full")
    full = save_with_csr(Graph.open(tmp_path / "full"), tmp_path / "csr").tiered()
    with pytest.raises(DataError, match="edges join all"):
        link_loader(full, np.array([[0], [1]]), neg_sampling="binary", avoid_known_positives=True)


def test_pyg_batches_and_resuming(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph", csr=True)
    links = some_links(graph)
    tiered = graph.tiered(topology_bytes=100_000)
    options: dict[str, Any] = {"neg_sampling": "binary", "disjoint": True}
    whole = list(link_loader(graph, links, **options))
    first = link_loader(tiered, links, pass_batches=2, **options)
    iterator = iter(first)
    check_same([next(iterator), next(iterator)], whole[:2])
    resumed = link_loader(tiered, links, **options)
    resumed.load_state_dict(first.state_dict())
    iterator.close()
    check_same(resumed, whole[2:])
    options["output"] = "pyg"
    for one, other in zip(
        link_loader(tiered, links, **options), link_loader(graph, links, **options), strict=True
    ):
        assert np.array_equal(one["node"].batch, other["node"].batch)
        assert np.array_equal(one[TO].edge_label_index, other[TO].edge_label_index)
    with pytest.raises(UsageError, match="expected a graph, received dict"):
        link_loader({}, links)  # type: ignore[arg-type]
