"""Random appends, updates, removals and compactions of a graph on disk, beside a plain Python model of it."""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
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

from graphbox.graph import CSC, CSR, EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.compact import compact
from graphbox.graph.delta import append, remove
from graphbox.graph.format import read_manifest
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import EdgeType, FeatureKind
from graphbox.graph.snapshot import Direction, as_live

USER, ITEM, TAG = "user", "item", "tag"
BUYS = (USER, "buys", ITEM)
BOUGHT = (ITEM, "bought_by", USER)
KNOWS = (USER, "knows", USER)
TAGGED = (ITEM, "tagged", TAG)

FEATURES: dict[str, dict[str, FeatureKind]] = {
    USER: {"age": "number", "city": "categorical", "paid": "boolean"},
    ITEM: {"price": "integer", "taste": "vector"},
    TAG: {},
}
EDGE_FEATURES: dict[EdgeType, dict[str, FeatureKind]] = {
    BUYS: {"device": "categorical"},
    KNOWS: {},
    TAGGED: {},
}

USER_IDS = st.sampled_from([f"u{number}" for number in range(6)])
ITEM_IDS = st.integers(-2, 3)
NUMBERS = st.sampled_from([None, 0.5, 2.0, -1.0])
CITIES = st.sampled_from([None, "Ulm", "Köln", "Łódź", "Bonn", ""])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "age": NUMBERS,
    "city": CITIES,
    "paid": st.booleans(),
    "price": st.integers(-5, 5),
    "taste": st.lists(st.sampled_from([0.0, 1.0, -2.0]), min_size=2, max_size=2),
}
IDS: dict[str, st.SearchStrategy[Any]] = {USER: USER_IDS, ITEM: ITEM_IDS}
MISSING: dict[str, Any] = {"age": None, "city": None, "paid": False, "price": 0, "taste": [0.0, 0.0]}


Source = TypeVar("Source", NodeSource, EdgeSource)


@dataclass
class Edge:
    """An edge of the model, with the number it keeps."""

    source: Any
    target: Any
    stable: int
    weight: float | None = None
    timestamp: int | None = None
    device: str | None = None


@dataclass
class Model:
    """A graph as lists: nodes with holes, edges with stable numbers."""

    nodes: dict[str, list[dict[str, Any] | None]] = field(
        default_factory=lambda: {USER: [], ITEM: [], TAG: []}
    )
    edges: dict[EdgeType, list[Edge]] = field(default_factory=lambda: {BUYS: [], KNOWS: []})
    given: dict[EdgeType, int] = field(default_factory=lambda: {BUYS: 0, KNOWS: 0})

    def index(self, node_type: str) -> dict[Any, int]:
        """Node index by id."""
        return {node["id"]: i for i, node in enumerate(self.nodes[node_type]) if node is not None}

    def add_edges(self, edge_type: EdgeType, rows: list[dict[str, Any]], *, keep_duplicates: bool) -> None:
        """Append edges as the graph does: dangling ones skipped, numbers by target, source, row."""
        source_type, _, target_type = edge_type
        if edge_type == TAGGED:
            for row in rows:
                if row["target"] not in self.index(TAG):
                    self.nodes[TAG].append({"id": row["target"]})
        sources, targets = self.index(source_type), self.index(target_type)
        seen = {(edge.source, edge.target) for edge in self.edges.setdefault(edge_type, [])}
        kept = []
        for row in rows:
            if row["source"] not in sources or row["target"] not in targets:
                continue
            pair = sources[row["source"]], targets[row["target"]]
            if keep_duplicates or pair not in seen:
                seen.add(pair)
                kept.append((*pair, row))
        kept.sort(key=lambda each: (each[1], each[0]))
        first = self.given.setdefault(edge_type, 0)
        for number, (source, target, row) in enumerate(kept):
            self.edges[edge_type].append(
                Edge(source, target, first + number, row.get("w"), row.get("t"), row.get("device"))
            )
        self.given[edge_type] = first + len(kept)


def node_rows(
    draw: st.DrawFn, node_type: str, names: list[str], *, min_size: int = 0
) -> list[dict[str, Any]]:
    ids = draw(st.lists(IDS[node_type], unique=True, min_size=min_size, max_size=6))
    return [{"id": each, **{name: draw(VALUES[name]) for name in names}} for each in ids]


@st.composite
def nodes_of(draw: st.DrawFn, node_type: str, names: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    return node_rows(draw, node_type, list(FEATURES[node_type] if names is None else names), min_size=1)


@st.composite
def edges_of(draw: st.DrawFn, edge_type: EdgeType) -> list[dict[str, Any]]:
    targets = st.sampled_from(["red", "blue", "green"]) if edge_type == TAGGED else IDS[edge_type[2]]
    count = draw(st.integers(1, 10))
    rows: list[dict[str, Any]] = [
        {"source": draw(IDS[edge_type[0]]), "target": draw(targets)} for _ in range(count)
    ]
    if edge_type == BUYS:
        for row in rows:
            row |= {
                "w": draw(st.sampled_from([0.5, 1.0, 8.0])),
                "t": draw(st.integers(-9, 9)),
                "device": draw(CITIES),
            }
    return rows


TYPES = {
    "id": pa.string(),
    "age": pa.float64(),
    "city": pa.string(),
    "taste": pa.list_(pa.float32()),
    "device": pa.string(),
}


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table(
        {
            name: pa.array(
                [row[name] for row in rows],
                TYPES.get(name) if not isinstance(rows[0][name], int) else None,
            )
            for name in rows[0]
        }
    )


def node_source(node_type: str, rows: list[dict[str, Any]]) -> NodeSource:
    names = [name for name in rows[0] if name != "id"]
    return NodeSource(table_of(rows), features={name: FEATURES[node_type][name] for name in names})


def edge_source(
    edge_type: EdgeType, rows: list[dict[str, Any]], *, keep_duplicates: bool = False
) -> EdgeSource:
    return EdgeSource(
        edge_type,
        table_of(rows),
        weight="w" if edge_type == BUYS else None,
        timestamp="t" if edge_type == BUYS else None,
        features=EDGE_FEATURES[edge_type],
        reverse="bought_by" if edge_type == BUYS else None,
        keep_duplicates=keep_duplicates,
    )


class LiveGraph(RuleBasedStateMachine):
    """The machine: each rule changes the graph on disk and the model in the same way."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "graph"
        self.model = Model()

    def on_disk(self, source: Source) -> Source:
        """Return the source with its table in a file."""
        path = self.folder / f"{len(list(self.folder.iterdir()))}.parquet"
        pq.write_table(source.data, path)
        return replace(source, data=path)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        users=nodes_of(USER),
        items=nodes_of(ITEM),
        data=st.data(),
    )
    def import_(self, users: list[dict[str, Any]], items: list[dict[str, Any]], data: st.DataObject) -> None:
        """Import a graph; every edge type has an edge between nodes there are."""
        self.model.nodes[USER] = [dict(row) for row in users]
        self.model.nodes[ITEM] = [dict(row) for row in items]
        edges = {}
        for edge_type, ends in ((BUYS, items), (KNOWS, users)):
            rows = data.draw(edges_of(edge_type))
            rows[0] |= {"source": users[0]["id"], "target": ends[0]["id"]}
            self.model.add_edges(edge_type, rows, keep_duplicates=False)
            edges[edge_type] = rows
        import_graph(
            GraphSource(
                "shop",
                {
                    node_type: self.on_disk(node_source(node_type, rows))
                    for node_type, rows in ((USER, users), (ITEM, items))
                },
                tuple(self.on_disk(edge_source(edge_type, rows)) for edge_type, rows in edges.items()),
            ),
            self.path,
        )

    @rule(node_type=st.sampled_from([USER, ITEM]), data=st.data())
    def append_nodes(self, node_type: str, data: st.DataObject) -> None:
        """New nodes with all features, and updates of all features of those that are there."""
        rows = data.draw(nodes_of(node_type))
        report = append(
            self.path, GraphSource("", {node_type: node_source(node_type, rows)}, ()), compact="never"
        )
        index = self.model.index(node_type)
        for row in rows:
            if row["id"] in index:
                self.model.nodes[node_type][index[row["id"]]] = dict(row)
            else:
                self.model.nodes[node_type].append(dict(row))
        assert report.nodes[node_type].updated == sum(row["id"] in index for row in rows)

    @rule(data=st.data())
    def update_some_columns(self, data: st.DataObject) -> None:
        """One feature of nodes that are there; new users do without what may be missing."""
        name = data.draw(st.sampled_from(["age", "city"]))
        rows = data.draw(nodes_of(USER, (name,)))
        known = self.model.index(USER)
        rows = [row for row in rows if row["id"] in known]
        if rows:
            append(self.path, GraphSource("", {USER: node_source(USER, rows)}, ()), compact="never")
        for row in rows:
            node = self.model.nodes[USER][known[row["id"]]]
            assert node is not None
            node[name] = row[name]

    @rule(edge_type=st.sampled_from([BUYS, KNOWS, TAGGED]), keep=st.booleans(), data=st.data())
    def append_edges(self, edge_type: EdgeType, keep: bool, data: st.DataObject) -> None:
        """Edges, some dangling and some there already; `tagged` is a new type whose tags have no table."""
        rows = data.draw(edges_of(edge_type))
        nodes = {TAG: NodeSource()} if edge_type == TAGGED else {}
        source = GraphSource("", nodes, (edge_source(edge_type, rows, keep_duplicates=keep),))
        before = len(self.model.edges.get(edge_type, []))
        report = append(self.path, source, compact="never").edges[0]
        self.model.add_edges(edge_type, rows, keep_duplicates=keep)
        assert report.edges == len(self.model.edges[edge_type]) - before
        assert report.rows == len(rows)

    @rule(node_type=st.sampled_from([USER, ITEM]), data=st.data())
    def remove_nodes(self, node_type: str, data: st.DataObject) -> None:
        """Nodes with all their edges; some are not there."""
        ids = data.draw(st.lists(IDS[node_type], min_size=1, max_size=3))
        index = self.model.index(node_type)
        report = remove(self.path, nodes={node_type: ids})
        gone = {index[each] for each in ids if each in index}
        assert report.nodes[node_type] == len(gone)
        assert report.absent.get(node_type, 0) == sum(each not in index for each in ids)
        for position in gone:
            self.model.nodes[node_type][position] = None
        for edge_type, edges in self.model.edges.items():
            self.model.edges[edge_type] = [
                edge
                for edge in edges
                if not (edge_type[0] == node_type and edge.source in gone)
                and not (edge_type[2] == node_type and edge.target in gone)
            ]

    @rule(edge_type=st.sampled_from([BUYS, BOUGHT, KNOWS]), data=st.data())
    def remove_edges(self, edge_type: EdgeType, data: st.DataObject) -> None:
        """Edges by their ends, also named by the reverse type."""
        backwards = edge_type == BOUGHT
        forward = BUYS if backwards else edge_type
        pairs = data.draw(st.lists(st.tuples(IDS[forward[0]], IDS[forward[2]]), min_size=1, max_size=6))
        sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        report = remove(self.path, edges={edge_type: (targets, sources) if backwards else (sources, targets)})
        index = self.model.index(forward[0]), self.model.index(forward[2])
        known = {
            (index[0][source], index[1][target])
            for source, target in pairs
            if source in index[0] and target in index[1]
        }
        left = [edge for edge in self.model.edges[forward] if (edge.source, edge.target) not in known]
        assert sum(report.edges.values()) == len(self.model.edges[forward]) - len(left)
        self.model.edges[forward] = left

    @rule(memory_bytes=st.sampled_from([1, 1 << 28]))
    def compact(self, memory_bytes: int) -> None:
        """Nothing changes but edge ids, and what is removed is gone from the disk."""
        compact(self.path, memory_bytes=memory_bytes)
        assert sum(entry.is_dir() for entry in self.path.iterdir()) == 1

    @rule(stage=st.integers(0, 5), memory_bytes=st.sampled_from([1, 1 << 28]), data=st.data())
    def change_while_compacting(self, stage: int, memory_bytes: int, data: st.DataObject) -> None:
        """Other writers commit changes while the new base is written; they follow it."""
        stages = itertools.count()
        committed: list[int] = []

        def at_stage(stage_name: str, done: int, total: int) -> None:
            del stage_name, done, total
            if next(stages) == stage:
                before = len(read_manifest(self.path)["deltas"])
                for _ in range(data.draw(st.integers(1, 4))):
                    self.change(data)
                committed.append(len(read_manifest(self.path)["deltas"]) - before)

        report = compact(self.path, at_stage, memory_bytes=memory_bytes)
        assert len(read_manifest(self.path)["deltas"]) == (sum(committed) if report.changes else 0)

    def change(self, data: st.DataObject) -> None:
        """Change the graph in any way."""
        node_type, edge_type = st.sampled_from([USER, ITEM]), st.sampled_from([BUYS, KNOWS, TAGGED])
        match data.draw(st.integers(0, 4)):
            case 0:
                self.append_nodes(data.draw(node_type), data)
            case 1:
                self.update_some_columns(data)
            case 2:
                self.append_edges(data.draw(edge_type), data.draw(st.booleans()), data)
            case 3:
                self.remove_nodes(data.draw(node_type), data)
            case _:
                self.remove_edges(data.draw(st.sampled_from([BUYS, BOUGHT, KNOWS])), data)

    @precondition(lambda self: self.path.exists())
    @invariant()
    def the_graph_is_the_model(self) -> None:
        """Every id, edge, weight, timestamp and feature agrees."""
        graph = Graph.open(self.path, verify_digests=True)
        for node_type in graph.node_types:
            check_nodes(graph, node_type, self.model)
        for edge_type in graph.edge_types:
            if not graph.is_reverse(edge_type):
                check_edges(graph, edge_type, self.model.edges[edge_type])
                check_overlays(graph, edge_type)


def check_nodes(graph: Graph, node_type: str, model: Model) -> None:
    nodes = model.nodes[node_type]
    assert graph.num_nodes(node_type) == len(nodes)
    assert graph.removed_nodes(node_type).tolist() == [i for i, node in enumerate(nodes) if node is None]
    assert graph.arrow_ids(node_type).to_pylist() == [None if node is None else node["id"] for node in nodes]
    nothing = 0 if graph.id_type(node_type) == "int64" else ""
    assert graph.ids(node_type).tolist() == [nothing if node is None else node["id"] for node in nodes]
    index = model.index(node_type)
    asked = list(
        dict.fromkeys([*index, *([f"u{n}" for n in range(12)] if node_type == USER else range(-4, 9))])
    )
    if node_type != TAG:
        assert graph.index(node_type, asked, missing=-1).tolist() == [index.get(each, -1) for each in asked]
    for name, kind in FEATURES[node_type].items():
        values = graph.feature(node_type, name)
        expected = [MISSING[name] if node is None else node[name] for node in nodes]
        assert decoded(values, kind, graph.features(node_type)[name].categories) == expected, name


def decoded(values: np.ndarray, kind: FeatureKind, categories: tuple[str, ...] | None) -> list[Any]:
    if kind == "categorical":
        assert categories is not None
        return [None if code < 0 else categories[code] for code in values.tolist()]
    if kind == "number":
        return [None if math.isnan(value) else value for value in values.tolist()]
    listed: list[Any] = values.tolist()
    return listed


def check_edges(graph: Graph, edge_type: EdgeType, edges: list[Edge]) -> None:
    edges = sorted(edges, key=lambda edge: (edge.target, edge.source, edge.stable))
    csc = graph.csc(edge_type)
    assert graph.num_edges(edge_type) == csc.num_edges == len(edges)
    source, target = csc.coo()
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [(e.source, e.target) for e in edges]
    assert (csc.num_sources, csc.num_targets) == (
        graph.num_nodes(edge_type[0]),
        graph.num_nodes(edge_type[2]),
    )
    ids = csc.ids_at(np.arange(csc.num_edges))
    stable = graph.stable_edge_ids(edge_type, ids)
    assert stable.tolist() == [edge.stable for edge in edges]
    csr = graph.csr(edge_type)
    assert sorted(csr.edge_ids.tolist()) == sorted(ids.tolist())
    by_id = {int(its_id): edge for edge, its_id in zip(edges, ids.tolist(), strict=True)}
    its_source = np.repeat(np.arange(csr.num_sources), csr.out_degree()).tolist()
    assert [(by_id[i].source, by_id[i].target) for i in csr.edge_ids.tolist()] == list(
        zip(its_source, csr.indices.tolist(), strict=True)
    )
    if edge_type == BUYS:
        assert csc.weight is not None
        assert csc.timestamp is not None
        assert csr.weight is not None
        assert csc.weight.tolist() == [edge.weight for edge in edges]
        assert csc.timestamp.tolist() == [edge.timestamp for edge in edges]
        assert csr.weight.tolist() == [by_id[i].weight for i in csr.edge_ids.tolist()]
        categories = graph.edge_features(edge_type)["device"].categories
        devices = graph.edge_feature(edge_type, "device")[ids]
        assert decoded(devices, "categorical", categories) == [edge.device for edge in edges]
        check_reverse(graph, by_id)


def check_reverse(graph: Graph, by_id: dict[int, Edge]) -> None:
    csc, csr = graph.csc(BOUGHT), graph.csr(BOUGHT)
    item, user = csc.coo()
    ids = csc.ids_at(np.arange(csc.num_edges))
    by_stable = dict(zip(graph.stable_edge_ids(BUYS, list(by_id)).tolist(), by_id.values(), strict=True))
    edges = [by_stable[number] for number in graph.stable_edge_ids(BOUGHT, ids).tolist()]
    assert [(edge.target, edge.source) for edge in edges] == list(
        zip(item.tolist(), user.tolist(), strict=True)
    )
    assert csc.weight is not None
    assert csc.weight.tolist() == [edge.weight for edge in edges]
    devices = graph.edge_feature(BOUGHT, "device")[ids]
    categories = graph.edge_features(BOUGHT)["device"].categories
    assert decoded(devices, "categorical", categories) == [edge.device for edge in edges]
    assert sorted(csr.edge_ids.tolist()) == sorted(ids.tolist())


def check_overlays(graph: Graph, edge_type: EdgeType) -> None:
    """The base's lists with those of the overlay in their place are the merged ones."""
    table = as_live(graph.own_edges(edge_type))
    merged: dict[Direction, CSC | CSR] = {"in": graph.csc(edge_type), "out": graph.csr(edge_type)}
    for direction, whole in merged.items():
        indptr, indices, base_ids = table.base_adjacency(direction)
        overlay = table.overlay(direction)
        row_of = {row: i for i, row in enumerate(overlay.rows.tolist())}
        for row in range(len(whole.indptr) - 1):
            if row in row_of:
                run = slice(overlay.indptr[row_of[row]], overlay.indptr[row_of[row] + 1])
                found = overlay.indices[run].tolist(), overlay.edge_ids[run].tolist()
            elif row + 1 < len(indptr):
                run = slice(indptr[row], indptr[row + 1])
                ids = np.arange(len(indices)) if base_ids is None else base_ids
                found = indices[run].tolist(), ids[run].tolist()
            else:
                found = [], []
            run = slice(whole.indptr[row], whole.indptr[row + 1])
            ids = np.arange(len(whole.indices)) if whole.edge_ids is None else whole.edge_ids
            assert found == (whole.indices[run].tolist(), ids[run].tolist())


@pytest.mark.parametrize(
    ("examples", "steps"),
    [(30, 15), pytest.param(400, 25, marks=[pytest.mark.stress, pytest.mark.timeout(1800)])],
)
def test_a_changed_graph_is_what_the_changes_say(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        LiveGraph,
        settings=settings(
            deadline=None,
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
        ),
    )
