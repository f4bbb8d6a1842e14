"""What a training reads, how often in an epoch, and how unevenly: by the degrees of the nodes.

A node is met by a sampler or a walk in proportion to its edges, and read once for each batch that it is in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from graphbox.config import (
    DeepWalkConfig,
    GraphNetworkConfig,
    LightGCNConfig,
    LineConfig,
    MatrixFactorizationConfig,
    MemoryConfig,
    Metapath2VecConfig,
    ModelConfig,
    RunConfig,
    SageConfig,
    TaskConfig,
    TemporalConfig,
)
from graphbox.config.models.clicks import ClickModelSection
from graphbox.config.models.knowledge_graph import KnowledgeGraphSection
from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType
from graphbox.skip_gram.row_bytes import device_row_bytes, position_bytes
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.demand import task_ends, tower_sources
from graphbox.train.plan.placement import Thing
from graphbox.train.plan.walks import WalkModel, row_rooms, walks_of

__all__ = ["DegreeClasses", "things_of"]

_SECTOR_BYTES = 32
"""What a GPU reads at the least."""
_POINTER_BYTES = 8
_PLACES = 32
"""Visits that a program of skip-gram's kernels has."""
_SLOT_BYTES = 94
"""What a row in HBM takes beside itself: its key, its place in the hash (which is there twice while it is
made anew), and marks."""
_STAGED_SHARE = 0.25
"""Room for rows on their way, of pulls and prefetches: the most, as a share of all; of large tables less."""
_KNOWN_OF_LIST_BYTES = 20
"""What is known in HBM of each list where not all are there: where it begins, its place, its uses."""
_KNOWN_IN_TIERS_BYTES = 28
"""That of lists on SSD: their place in pinned memory, too."""
_KNOWN_BYTES = 20
"""What is known in HBM of a row of features that may be there: its place, its name and its uses."""
_FEATURE_BYTES = 8
"""What a feature of a node takes where towers read it, at the most: a code, or half of that a number."""
_BLOCK_EDGES = 1 << 22

_STATE_NUMBERS = {"rowwise_adagrad": (0, 1), "adagrad": (1, 0), "adam": (2, 1)}
"""Numbers that an optimizer keeps for each number of a row, and for the row."""


@dataclass(frozen=True, eq=False)
class DegreeClasses:
    """How many nodes of a type have how many edges.

    Attributes:
        nodes: int64 [classes], how many nodes there are.
        degree: float64 [classes], the edges of each, of both directions.
        known_by: where it is from, for people.
    """

    nodes: NDArray[np.int64]
    degree: NDArray[np.float64]
    known_by: str

    @classmethod
    def even(cls, nodes: int, edges: float) -> DegreeClasses:
        """Return those of a graph of which only the numbers of nodes and edges are known."""
        mean = np.array([edges / max(nodes, 1)])
        return cls(np.array([nodes]), mean, "not known: all alike, as the graph is not imported yet")

    @classmethod
    def of(cls, graph: Graph) -> dict[str, DegreeClasses]:
        """Return those of a graph by node type; all its edges are read once."""
        degrees = {name: np.zeros(graph.num_nodes(name), np.int64) for name in graph.node_types}
        for edge_type in graph.edge_types:
            if graph.is_reverse(edge_type):
                continue
            csc = graph.csc(edge_type)
            degrees[edge_type[2]] += np.diff(csc.indptr)
            sources = degrees[edge_type[0]]
            for start in range(0, len(csc.indices), _BLOCK_EDGES):
                sources += np.bincount(csc.indices[start : start + _BLOCK_EDGES], minlength=len(sources))
        found = {name: np.unique(each, return_counts=True) for name, each in degrees.items()}
        return {
            name: cls(nodes.astype(np.int64), degree.astype(np.float64), "degrees of the nodes")
            for name, (degree, nodes) in found.items()
        }

    @property
    def count(self) -> int:
        """Number of nodes."""
        return int(self.nodes.sum())

    def met(self, times: float, evenly: float = 0.0, most: float = math.inf) -> NDArray[np.float64]:
        """Return how often each node is met.

        Args:
            times: meetings of all nodes together, in proportion to their edges.
            evenly: meetings that all nodes have alike, together.
            most: of one node.
        """
        total = float(self.nodes @ self.degree)
        by_degree = self.degree / total if total else np.full(len(self.nodes), 1 / max(self.count, 1))
        return np.minimum(times * by_degree + evenly / max(self.count, 1), most)


@dataclass(frozen=True)
class _Model:
    """What the things of a model are told by."""

    counts: GraphCounts
    degrees: Mapping[str, DegreeClasses]
    known_of_list_bytes: int

    def classes(self, node_type: str) -> DegreeClasses:
        if node_type in self.degrees:
            return self.degrees[node_type]
        nodes = self.counts.nodes.get(node_type, 0)
        edges = sum(
            count * ((each[0] == node_type) + (each[2] == node_type))
            for each, count in self.counts.edges.items()
        )
        return DegreeClasses.even(nodes, edges)

    def types(self, relations: Sequence[EdgeType]) -> list[str]:
        touched = {end for each in relations or self.counts.edges for end in (each[0], each[2])}
        return [name for name in self.counts.nodes if name in touched] or list(self.counts.nodes)

    def rows(
        self, name: str, node_type: str, dim: int, optimizer: str, accesses: NDArray[np.float64]
    ) -> Thing:
        classes = self.classes(node_type)
        return _rows(name, dim, optimizer, classes.nodes, accesses, classes.known_by)

    def lists(self, node_type: str, met: NDArray[np.float64], draws: float, relations: int = 1) -> Thing:
        """Return the neighbour lists of the nodes of a type, of which so many numbers are read at a time.

        Args:
            node_type: the type.
            met: how often the lists of each node are read.
            draws: numbers that are read then, of all lists of a node together.
            relations: how many lists a node has.
        """
        classes = self.classes(node_type)
        width = 4 if max(self.counts.nodes.values(), default=0) < 1 << 31 else 8
        offset_bytes = _POINTER_BYTES * (1 + 1 / max(classes.count, 1))  # and one more at the end of all
        return Thing(
            f"neighbours of {node_type}",
            "topology",
            classes.nodes,
            offset_bytes * relations + width * classes.degree,
            met,
            _SECTOR_BYTES * (relations + draws),
            _SECTOR_BYTES,
            classes.known_by,
            known_bytes=self.known_of_list_bytes * relations,
        )


def things_of(
    model: ModelConfig,
    counts: GraphCounts,
    degrees: Mapping[str, DegreeClasses],
    config: RunConfig,
) -> list[Thing] | None:
    """Return what the training of a model reads of graph and tables; None of a kind that is not known.

    Args:
        model: the model's section of the run file.
        counts: how large the graph is.
        degrees: by node type; those of types that are left out are taken for alike.
        config: the run file.
    """
    task = None if model.task is None else config.tasks[model.task]
    in_tiers = config.memory.topology is not None
    about = _Model(counts, degrees, _KNOWN_IN_TIERS_BYTES if in_tiers else _KNOWN_OF_LIST_BYTES)
    match model:
        case DeepWalkConfig() | Metapath2VecConfig():
            things: list[Thing] | None = _walks(model, about)
        case LineConfig():
            things = _lines(model, about)
        case LightGCNConfig() | MatrixFactorizationConfig():
            things = _ranked(model, about, task)
        case SageConfig():
            things = _towers(model, about, task)
        case GraphNetworkConfig():
            things = _network(model, about, task, on_disk=config.memory.features is not None)
        case KnowledgeGraphSection():
            things = _triples(model, about)
        case TemporalConfig():
            things = _events(model, about, task)
        case ClickModelSection():
            things = _clicks(model, about, task)
        case _:
            things = None
    return things


def _walks(model: DeepWalkConfig | Metapath2VecConfig, about: _Model) -> list[Thing]:
    if isinstance(model, DeepWalkConfig):
        types, walks = about.types(model.edge_types), model.walks_per_node
        starts = sum(about.classes(name).count for name in types) * walks
    else:
        types = about.types([step for path in model.metapaths for step in path])
        starts = sum(about.classes(path[0][0]).count for path in model.metapaths) * model.walks_per_node
    visits = float(starts * model.walk_length)
    total = sum(float(about.classes(name).nodes @ about.classes(name).degree) for name in types)
    met = {}
    things = []
    for name in types:
        classes = about.classes(name)
        share = float(classes.nodes @ classes.degree) / total if total else 1 / len(types)
        met[name] = classes.met(visits * share)
        things.append(about.lists(name, met[name], 1))
    return things + _walked_rows(model, about, met, model.window)


def _lines(model: LineConfig, about: _Model) -> list[Thing]:
    types = about.types(model.edge_types)
    return _walked_rows(model, about, {name: about.classes(name).degree for name in types}, 1)


def _walked_rows(
    model: WalkModel, about: _Model, met: Mapping[str, NDArray[np.float64]], window: int
) -> list[Thing]:
    """Return the rows of nodes, those as centres and as contexts together: they are in the same memory.

    Args:
        model: the model's section of the run file.
        about: the graph.
        met: how often walks visit each node of a class, by node type; others have rows that are never met.
        window: most steps between centre and context.
    """
    rooms = row_rooms(model, about.counts, MemoryConfig())
    tables, dim = sum(each.tables for each in rooms), rooms[0].dim
    known = sum(position_bytes(each.num_keys) for each in rooms)
    # A visit reads its rows, those within reach for a part of a batch, and an update reads and writes them.
    visit_bytes = (3.0 + (_PLACES + 2 * window) / _PLACES) * 4 * dim * tables
    things = []
    for name in about.counts.nodes:
        classes = about.classes(name)
        size = np.full(len(classes.nodes), float(tables * device_row_bytes(dim) + known))
        accesses = met.get(name, np.zeros(len(classes.nodes)))
        rows = f"rows of {name}"
        things.append(
            Thing(rows, "tables", classes.nodes, size, accesses, visit_bytes, 4 * dim, classes.known_by)
        )
    return things


def _ranked(
    model: LightGCNConfig | MatrixFactorizationConfig, about: _Model, task: TaskConfig | None
) -> list[Thing]:
    ends = task_ends(task)
    queries, targets = (about.classes(name) for name in ends)
    batches = math.ceil(queries.count / model.batch_size)
    things = []
    for name, classes in {ends[0]: queries, ends[1]: targets}.items():
        if isinstance(model, LightGCNConfig):  # each batch has all of them
            read = np.full(len(classes.nodes), float(batches))
        else:
            drawn = model.candidates * batches if name == ends[1] else 0.0
            read = classes.met(float(classes.nodes @ classes.degree), drawn, batches)
        things.append(about.rows(f"rows of {name}", name, model.dim, "adam", read))
    return things


def _towers(model: SageConfig, about: _Model, task: TaskConfig | None) -> list[Thing]:
    asked, _ = task_ends(task)
    sources = tower_sources(model, about.counts, asked)
    seeds = about.classes(asked)
    batches = math.ceil(seeds.count / model.batch_size)
    expanded = seeds.met(float(model.candidates * batches), float(seeds.count), batches)
    things = [about.lists(asked, expanded, model.num_neighbors * len(sources), len(sources))]
    if model.features:
        width = _FEATURE_BYTES * len(model.features)
        size = np.full(len(seeds.nodes), float(width + _KNOWN_BYTES))
        things.append(
            Thing(
                f"features of {asked}", "features", seeds.nodes, size, expanded, width, width, seeds.known_by
            )
        )
    for name in dict.fromkeys([asked, *sources]):
        classes = about.classes(name)
        drawn = (model.batch_size + model.candidates) * model.num_neighbors * batches
        read = classes.met(drawn, float(seeds.count) if name == asked else 0.0, batches)
        things.append(about.rows(f"rows of {name}", name, model.dim, "rowwise_adagrad", read))
    walks = walks_of(model)
    if isinstance(walks, Metapath2VecConfig):
        things += [replace(each, name=f"{each.name} on walks") for each in _walks(walks, about)]
    return things


def _network(
    model: GraphNetworkConfig, about: _Model, task: TaskConfig | None, *, on_disk: bool
) -> list[Thing]:
    """Count the lists, features and rows that batches read; over a whole graph all are read, once."""
    types = about.types(model.relations)
    rowed = types if model.embeddings is None else [name for name in types if name in model.embeddings]
    asked, _ = task_ends(task)
    seeds = about.classes(asked).count
    batches = math.ceil(seeds / model.batch_size)
    hops = model.num_neighbors or ()
    relations = max(1, len(model.relations or about.counts.edges)) * (2 if model.reverse else 1)
    per_type = max(1, relations // max(1, len(types)))
    expanded = seeds * sum(prod(hops[:hop]) * per_type**hop for hop in range(len(hops)))
    reached = expanded + seeds * prod(hops) * per_type ** len(hops)
    not_in_hbm = "vectors are read from SSD ahead of batches, and copied" if on_disk else ""
    if model.num_neighbors is None:
        not_in_hbm = "copied once: all of them are part of what computing takes"
    things = []
    for name in types:
        classes = about.classes(name)
        evenly = float(seeds) if name == asked else 0.0
        read = np.full(len(classes.nodes), 1.0)
        if model.num_neighbors is not None:
            read = classes.met(reached / len(types), evenly, batches)
            lists = classes.met(expanded / len(types), evenly, batches)
            ends = model.relations or tuple(about.counts.edges)
            num_lists = sum((each[2] == name) + (model.reverse and each[0] == name) for each in ends)
            things.append(about.lists(name, lists, hops[0] * per_type, max(1, num_lists)))
        stored = about.counts.feature_bytes.get(name, 0) / max(classes.count, 1)
        if stored and (model.features is None or name in model.features):
            width = max(1, round(stored))
            known = 0 if not_in_hbm else _KNOWN_BYTES
            things.append(
                Thing(
                    f"features of {name}",
                    "features",
                    classes.nodes,
                    np.full(len(classes.nodes), stored + known),
                    read / model.epochs if model.num_neighbors is None else read,
                    width,
                    width,
                    classes.known_by,
                    not_in_hbm,
                )
            )
        if name in rowed and (model.embeddings is not None or not stored):
            things.append(about.rows(f"rows of {name}", name, model.dim, "rowwise_adagrad", read))
    return things


def _triples(model: KnowledgeGraphSection, about: _Model) -> list[Thing]:
    things = []
    edges = sum(about.counts.edges.values())
    batches = math.ceil(2 * edges / model.batch_size)
    for name in about.types(()):
        classes = about.classes(name)
        if model.loss == "softmax":  # each batch has all of them
            read = np.full(len(classes.nodes), float(batches))
        else:
            read = classes.met(2.0 * edges, float(model.candidates * batches), batches)
        things.append(about.rows(f"rows of {name}", name, model.dim, "adagrad", read))
    return things


def _events(model: TemporalConfig, about: _Model, task: TaskConfig | None) -> list[Thing]:
    if not model.row_dim:
        return []
    types = about.types(model.relations) if task is None else list(dict.fromkeys(task_ends(task)))
    pairs = sum(about.counts.edges.values()) * (1 + model.negatives)
    return [
        about.rows(
            f"rows of {name}",
            name,
            model.row_dim,
            "rowwise_adagrad",
            about.classes(name).met(float(pairs * (model.recent + 1))),
        )
        for name in types
    ]


def _clicks(model: ClickModelSection, about: _Model, task: TaskConfig | None) -> list[Thing]:
    node_type, _ = task_ends(task)
    known = about.counts.values.get(node_type, {})
    read = set(known) if model.features is None else set(model.features) & set(known)
    values = sum(known[name] for name in read - {getattr(task, "label", "")})
    accesses = about.counts.nodes.get(node_type, 0) * max(1, len(read)) / max(values, 1)
    return [
        _rows(
            "rows of values",
            model.dim,
            "adagrad",
            np.array([values]),
            np.array([accesses]),
            "not known: all values alike",
        )
    ]


def _rows(
    name: str,
    dim: int,
    optimizer: str,
    rows: NDArray[np.int64],
    accesses: NDArray[np.float64],
    known_by: str,
) -> Thing:
    """Return the rows of a table with their optimizer's state: each access reads a row and writes it."""
    for_each, more = _STATE_NUMBERS[optimizer]
    row_bytes = 4 * ((1 + for_each) * dim + more)
    size = np.full(len(rows), (1 + _STAGED_SHARE) * row_bytes + _SLOT_BYTES)
    return Thing(name, "tables", rows, size, accesses, 2.0 * row_bytes, row_bytes, known_by)
