"""Memory of trainings of graph networks."""

from __future__ import annotations

import math
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from graphbox.config import (
    ClassifyTaskConfig,
    GraphNetworkConfig,
    MlpConfig,
    RecommendTaskConfig,
    TwoTowerConfig,
)
from graphbox.graph.schema import edge_type_from_text
from graphbox.graph.tiered_graph import DEFAULT_PASS_BYTES
from graphbox.train.plan.accesses import KNOWN_BYTES, DegreeClasses, DegreeModel
from graphbox.train.plan.footprint import MEGABYTE, Demand, Footprint, TableRows, ranking_numbers
from graphbox.train.plan.placement import DataPart

_MESSAGE_BYTES = {
    "appnp": 4.8,
    "gat": 19.0,
    "gatv2": 34.0,
    "gcn": 5.5,
    "gcn2": 5.5,
    "gin": 0.8,
    "gine": 11.0,
    "hgt": 38.0,
    "lightgcn": 3.5,
    "rgcn": 2.0,
    "sage": 0.0,
    "transformer": 33.0,
}
"""Bytes that a layer keeps for each edge and number of a vector until it has its gradient, beyond what `sage`
does."""
_COLUMN_BYTES = 8.0
"""Of each edge and number of its features, both directions together: one copy of them."""
_PROPAGATION = ("appnp", "lightgcn")
"""Layers that keep no vectors for gradients on the CPU: steps are linear, and sums there have no messages."""
_STEP_BYTES = 50.0
"""Of each edge in a step of layers without messages: its weights, and which of them are left out."""
_SUM_BYTES = {"gcn": 14.0, "gcn2": 28.0}
"""Bytes that a convolution without messages on the CPU keeps for each node and number of a vector."""
_SUMS_BYTES = 46.0
"""Of each node and number of a vector, whatever the number of these."""
_EDGE_BYTES = 140.0
"""Of each edge while a graph is sampled in memory, both directions together."""
_STORED_EDGE_BYTES = 16.0
"""Of each edge in files, both directions together."""
_LINK_BYTES = 1.0
"""Of each link of a task whose graph is on disk, while an epoch's links are drawn; links are in files."""
_HELD_OUT_BYTES = 40.0
"""Of each link that an epoch holds out: its place in the order and the ids of its edges."""
_INFERENCE_NODES = 8192
_BATCHES_THERE = 3.0
"""Copies of a batch's features: its own, and those that loaders have made ahead."""
_MLP_BYTES = 75 * MEGABYTE
_MLP_BATCH_COPIES = 6.0
"""Copies of a batch's numbers: themselves, what is dropped out of them, gradients, batches ahead."""
_DROPPED_COPIES = 2.0
"""Copies of features where some are left out: the rest, and the mask."""


_TOWER_LINK_BYTES = 60.0
"""Of each link that two towers learn: the link, its place in an epoch, and what is known of its source."""
_TOWER_BYTES = 150 * MEGABYTE
_TOWER_VECTOR_BYTES = 50.0
"""Of each number of a vector of all nodes that two towers embed."""
_TOWER_LOGIT_COPIES = 2.0
"""Copies of the logits of a batch of links."""


NetworkT = TypeVar("NetworkT", GraphNetworkConfig, MlpConfig, TwoTowerConfig)


class _NetworkFootprint(Footprint[NetworkT]):
    """A network over the features and rows of nodes."""

    def _has_rows(self, node_type: str) -> bool:
        """Return whether nodes of a type have rows of a table."""
        if isinstance(self.model, TwoTowerConfig):
            return self.model.embeddings is None or node_type in self.model.embeddings
        model, stored = self.model, self.counts.feature_bytes.get(node_type, 0)
        return not stored if model.embeddings is None else node_type in model.embeddings

    def _features(
        self, node_type: str, classes: DegreeClasses, stored: float, read: NDArray[np.float64]
    ) -> DataPart:
        """Return the features of the nodes of a type, of so many bytes each."""
        not_in_hbm = (
            "vectors are read from SSD ahead of batches, and copied"
            if self.memory.features is not None
            else ""
        )
        if self.model.num_neighbors is None:
            not_in_hbm = "copied once: all of them are part of what computing takes"
            read = read / self.model.epochs
        width = max(1, round(stored))
        size = np.full(len(classes.nodes), stored + (0 if not_in_hbm else KNOWN_BYTES))
        name = f"features of {node_type}"
        return DataPart(
            name, "features", classes.nodes, size, read, width, width, classes.known_by, not_in_hbm
        )


class GraphNetworkFootprint(_NetworkFootprint[GraphNetworkConfig]):
    """Layers over the whole graph, or over batches of sampled neighbours."""

    def demand(self) -> Demand | None:
        """See :meth:`Footprint.demand`; None for layers that were not measured, such as the user's own."""
        model, memory = self.model, self.memory
        if model.layer not in _MESSAGE_BYTES:
            return None
        edges, nodes = self.edges_of(model.relations), self.nodes_of(model.relations)
        # Of the files that are mapped, and as they are read: by the host, or by a GPU from pinned memory.
        features = 2 * self._feature_bytes() if memory.features is None else memory.features + 24 * nodes
        scores = self.scores_bytes() if isinstance(self.task, RecommendTaskConfig) else 0.0
        messages = _MESSAGE_BYTES[model.layer] * model.dim * model.layers
        columns = sum(_COLUMN_BYTES * width * count for width, count in self._edge_widths())
        if model.num_neighbors is None:
            # Vectors before and after each layer with their gradients, and the edges in both directions.
            by_number, by_edge = 60.0 + 28.0 * model.layers, 200.0 + 90.0 * model.layers + messages
            if model.layer in _PROPAGATION:
                by_number, by_edge = 60.0 + 28.0 * min(model.layers, 2), 200.0 + _STEP_BYTES * model.layers
            elif model.layer in _SUM_BYTES:
                by_number = _SUMS_BYTES + _SUM_BYTES[model.layer] * model.layers
                by_edge = 200.0 + _STEP_BYTES * model.layers
            vectors = by_number * (0.75 if scores else 1.0) * model.dim * nodes
            fixed = 55 * MEGABYTE + features + scores + vectors
            return Demand(fixed, by_edge * edges + (2.0 + model.layers) * columns)
        drawn, met = self._drawn(nodes)
        batches = 70.0 * model.dim * met + messages * min(drawn, edges)
        rows = 8.0 * model.dim * nodes
        if memory.tables is not None:
            rows = min(rows, float(memory.tables))
        vectors = 8.0 * model.dim * nodes
        fixed = 75 * MEGABYTE + features + scores + batches + rows + vectors + self._passes_ahead()
        return Demand(fixed, self._edge_bytes(edges) + columns, rows)

    def _edge_widths(self) -> list[tuple[int, int]]:
        """Return the numbers that are read of an edge, and how many edges there are, by edge type."""
        found = []
        for text, names in self.model.edge_features.items():
            edge_type = edge_type_from_text(text)
            widths = self.counts.edge_widths.get(edge_type, {})
            width = sum(widths.get(name, 1) for name in names)
            found.append((width, self.counts.edges.get(edge_type, 0)))
        return found

    def _edge_bytes(self, edges: int) -> float:
        """Return the memory of edges; where they are on disk, their budget and what is kept of links."""
        topology = self.memory.topology
        if topology is None:
            return _EDGE_BYTES * edges
        if isinstance(self.task, ClassifyTaskConfig) or self.task is None:
            return float(min(topology, _STORED_EDGE_BYTES * edges))
        relations = [(self.ends[0], name, self.ends[1]) for name in self.task.relations]
        links = sum(self.counts.edges.get(each, 0) for each in relations)
        by_link = _LINK_BYTES + _HELD_OUT_BYTES * self.model.links.holdout_fraction
        return by_link * links + min(topology, _STORED_EDGE_BYTES * edges)

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        numbers = self._layer_numbers() + self._passes_ahead() / 4.0
        if isinstance(self.task, RecommendTaskConfig):
            queries, candidates = (self.counts.nodes.get(name, 0) for name in self.ends)
            of_ranks = 2.0 * self.model.dim * (queries + candidates) + ranking_numbers(candidates)
            numbers = max(numbers, of_ranks)
        return self.device_bytes_of(numbers)

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`: batches read them; over a whole graph all are read, once."""
        model = self.model
        types, (asked, _) = degrees.types(model.relations), self.ends
        seeds = degrees.classes(asked).count
        batches = math.ceil(seeds / model.batch_size)
        hops = model.num_neighbors or ()
        relations = max(1, len(model.relations or self.counts.edges)) * (2 if model.reverse else 1)
        per_type = max(1, relations // max(1, len(types)))
        expanded = seeds * sum(prod(hops[:hop]) * per_type**hop for hop in range(len(hops)))
        reached = expanded + seeds * prod(hops) * per_type ** len(hops)
        parts = []
        for name in types:
            classes = degrees.classes(name)
            evenly = float(seeds) if name == asked else 0.0
            read = np.full(len(classes.nodes), 1.0)
            if model.num_neighbors is not None:
                read = classes.met(reached / len(types), evenly, batches)
                lists = classes.met(expanded / len(types), evenly, batches)
                parts.append(degrees.lists(name, lists, hops[0] * per_type, self._lists_of(name)))
            stored = self.counts.feature_bytes.get(name, 0) / max(classes.count, 1)
            if stored and (model.features is None or name in model.features):
                parts.append(self._features(name, classes, stored, read))
            if self._has_rows(name):
                parts.append(degrees.rows(f"rows of {name}", name, model.dim, "rowwise_adagrad", read))
        return parts

    def table_rows(self) -> list[TableRows]:
        """See :meth:`Footprint.table_rows`."""
        model = self.model
        touched = model.relations or tuple(self.counts.edges)
        types = dict.fromkeys(end for each in touched for end in (each[0], each[2]))
        chosen = [name for name in types if self._has_rows(name)]
        rows = {name: self.counts.nodes.get(name, 0) for name in chosen}
        read = self._read_by_batch(max(1, len(types)))
        return [TableRows(count, model.dim, "rowwise_adagrad", min(read, count)) for count in rows.values()]

    def _read_by_batch(self, types: int) -> float:
        """Return the nodes of a type that a batch reads at the most, of so many types that are touched."""
        model = self.model
        if model.num_neighbors is None:
            return math.inf
        seeds = model.batch_size
        if not isinstance(self.task, ClassifyTaskConfig):  # ends of links, and candidates
            seeds = 2 * model.batch_size + model.links.negatives
        relations = len(model.relations or self.counts.edges) * (2 if model.reverse else 1)
        of_target = math.ceil(relations / types)
        hops = model.num_neighbors
        return float(seeds * sum(prod(hops[:hop]) * of_target**hop for hop in range(len(hops) + 1)))

    def _lists_of(self, node_type: str) -> int:
        """Return the number of neighbour lists of a node of a type."""
        ends = self.model.relations or tuple(self.counts.edges)
        reverse = self.model.reverse
        return max(1, sum((each[2] == node_type) + (reverse and each[0] == node_type) for each in ends))

    def _feature_bytes(self) -> int:
        touched = self.model.relations or tuple(self.counts.edges)
        types = {end for each in touched for end in (each[0], each[2])}
        return sum(self.counts.feature_bytes.get(name, 0) for name in types)

    def _drawn(self, nodes: int) -> tuple[int, float]:
        """Return the neighbours that a batch draws, and how many nodes of so many it meets."""
        model = self.model
        hops = model.num_neighbors or ()
        drawn = model.batch_size * sum(prod(hops[:hop]) for hop in range(model.layers + 1))
        return drawn, nodes * -math.expm1(-drawn / max(nodes, 1))

    def _passes_ahead(self) -> int:
        """Return the bytes that are sampled ahead where the graph is read in tiers."""
        memory = self.memory
        if self.model.num_neighbors is None or (memory.topology is None and memory.features is None):
            return 0
        return DEFAULT_PASS_BYTES if memory.passes is None else memory.passes

    def _layer_numbers(self) -> float:
        """Return the numbers that layers keep: of all nodes and edges, or of those of a batch."""
        model = self.model
        relations = model.relations or tuple(self.counts.edges)
        nodes = self.nodes_of(model.relations)
        edges = sum(self.counts.edges.get(each, 0) for each in relations) * (2 if model.reverse else 1)
        stored = self._feature_bytes() / 4.0
        dropped = _DROPPED_COPIES * stored if model.input_dropout else 0.0
        message_bytes = _MESSAGE_BYTES.get(model.layer, max(_MESSAGE_BYTES.values()))
        messages = (message_bytes / 4.0 + 1.0) * model.dim
        columns = sum(_COLUMN_BYTES / 4.0 * width * count for width, count in self._edge_widths())
        if model.num_neighbors is None:
            layers = (15.0 + 7.0 * model.layers) * model.dim * nodes
            by_edge = (6.0 + messages * model.layers) * edges + (2.0 + model.layers) * columns
            return layers + by_edge + stored + dropped
        drawn, met = self._drawn(nodes)
        mean_degree = edges / max(nodes, 1)
        of_block = _INFERENCE_NODES * mean_degree * (messages + 6.0)  # all neighbours of a block of nodes
        features = (_BATCHES_THERE * stored + dropped) * met / max(nodes, 1)
        of_batch = 17.5 * model.dim * met + messages * model.layers * min(drawn, edges) + features
        return max(of_batch, of_block) + columns


class MlpFootprint(_NetworkFootprint[MlpConfig]):
    """Dense layers over batches of nodes of one type, whose edges are not read."""

    @property
    def nodes(self) -> int:
        """Number of nodes of the task's type."""
        return self.counts.nodes.get(self.ends[0], 0)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the features of these nodes on disk."""
        return self.counts.feature_bytes.get(self.ends[0], 0)

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        model, memory, nodes = self.model, self.memory, self.nodes
        features = 2.0 * self.stored_bytes if memory.features is None else memory.features + 24.0 * nodes
        rows = 8.0 * model.dim * nodes if self._has_rows(self.ends[0]) else 0.0
        if memory.tables is not None:
            rows = min(rows, float(memory.tables))
        of_node = 2.0 * model.dim + 2.0 * self._position_width() + self._logits()
        numbers = of_node * nodes + _MLP_BATCH_COPIES * self._batch_numbers()
        return Demand(_MLP_BYTES + features + rows + 4.0 * numbers, 0.0, rows)

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        of_block = 2.0 * self.model.dim * _INFERENCE_NODES
        return self.device_bytes_of(max(_MLP_BATCH_COPIES * self._batch_numbers(), of_block))

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`: an epoch reads each node once."""
        asked, model = self.ends[0], self.model
        classes = degrees.classes(asked)
        read = np.full(len(classes.nodes), 1.0)
        parts = []
        if self.stored_bytes and (model.features is None or asked in model.features):
            parts.append(self._features(asked, classes, self.stored_bytes / max(classes.count, 1), read))
        if self._has_rows(asked):
            parts.append(degrees.rows(f"rows of {asked}", asked, model.dim, "rowwise_adagrad", read))
        return parts

    def table_rows(self) -> list[TableRows]:
        """See :meth:`Footprint.table_rows`."""
        if not self._has_rows(self.ends[0]):
            return []
        read = min(self.model.batch_size, self.nodes)
        return [TableRows(self.nodes, self.model.dim, "rowwise_adagrad", read)]

    def _position_width(self) -> int:
        """Return the length of the rows of another model that are an input."""
        source = self.model.positions
        return 0 if source is None else int(getattr(self.run.models.get(source), "dim", 0))

    def _logits(self) -> int:
        """Return the logits of a node: the model's, in blocks and joined, and those of each teacher."""
        classes = self.counts.values.get(self.ends[0], {}).get(self.task.label or self.task.labels, 0)
        teachers = () if self.model.distil is None else self.model.distil.teachers
        return classes * (2 + len(teachers))

    def _batch_numbers(self) -> float:
        """Return the numbers of a batch: its features and positions, and vectors between layers."""
        stored = self.stored_bytes / 4.0 / max(self.nodes, 1)
        width = stored + self._position_width() + (self.model.layers + 1.0) * self.model.dim
        return min(self.model.batch_size, self.nodes) * width


class TwoTowerFootprint(_NetworkFootprint[TwoTowerConfig]):
    """Dense layers over the ends of batches of links, and the vectors of all nodes of either end."""

    @property
    def types(self) -> tuple[str, ...]:
        """Node types of queries and candidates, each once."""
        return tuple(dict.fromkeys(self.ends))

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        model, memory = self.model, self.memory
        nodes = sum(self.counts.nodes.get(name, 0) for name in self.types)
        stored = sum(self.counts.feature_bytes.get(name, 0) for name in self.types)
        features = 2.0 * stored if memory.features is None else memory.features + 24.0 * nodes
        with_rows = sum(self.counts.nodes.get(name, 0) for name in self.types if self._has_rows(name))
        rows = 8.0 * model.dim * with_rows
        if memory.tables is not None:
            rows = min(rows, float(memory.tables))
        batch = 4.0 * self._batch_numbers()
        vectors = _TOWER_VECTOR_BYTES * model.dim * nodes
        fixed = _TOWER_BYTES + features + rows + batch + vectors + self.scores_bytes()
        on_disk = memory.topology is not None or memory.features is not None
        return Demand(fixed, (_LINK_BYTES if on_disk else _TOWER_LINK_BYTES) * self._links(), rows)

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        nodes = sum(self.counts.nodes.get(name, 0) for name in self.types)
        of_ranks = 3.0 * self.model.dim * nodes + ranking_numbers(self.counts.nodes.get(self.ends[1], 0))
        return self.device_bytes_of(max(self._batch_numbers(), of_ranks))

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`: an epoch reads each end of each link, once in a batch."""
        model, parts = self.model, []
        links = self._links()
        batches = max(1, math.ceil(links / model.batch_size))
        for name in self.types:
            classes = degrees.classes(name)
            drawn = float(model.negatives * batches) if name == self.ends[1] else 0.0
            read = classes.met(float(links), drawn, batches)
            stored = self.counts.feature_bytes.get(name, 0)
            if stored and (model.features is None or name in model.features):
                parts.append(self._features(name, classes, stored / max(classes.count, 1), read))
            if self._has_rows(name):
                parts.append(degrees.rows(f"rows of {name}", name, model.dim, "rowwise_adagrad", read))
        return parts

    def table_rows(self) -> list[TableRows]:
        """See :meth:`Footprint.table_rows`."""
        found = []
        for name in self.types:
            if self._has_rows(name):
                rows = self.counts.nodes.get(name, 0)
                read = min(self._ends_of_batch(name), rows)
                found.append(TableRows(rows, self.model.dim, "rowwise_adagrad", read))
        return found

    def _ends_of_batch(self, node_type: str) -> int:
        """Return the nodes of a type that a batch has at the most."""
        model = self.model
        size = model.batch_size * self.ends.count(node_type)
        return size + (model.negatives if node_type == self.ends[1] else 0)

    def _links(self) -> int:
        """Return the number of edges of the task's relations."""
        return sum(
            self.counts.edges.get((self.ends[0], each, self.ends[1]), 0) for each in self.task.relations
        )

    def _batch_numbers(self) -> float:
        """Return the numbers of a batch with their copies: features, vectors between layers, and logits."""
        model, numbers = self.model, 0.0
        for name in self.types:
            nodes = self.counts.nodes.get(name, 0)
            stored = self.counts.feature_bytes.get(name, 0) / 4.0 / max(nodes, 1)
            numbers += min(self._ends_of_batch(name), nodes) * (stored + (model.layers + 3.0) * model.dim)
        met = [
            nodes * -math.expm1(-drawn / max(nodes, 1))
            for nodes, drawn in (
                (self.counts.nodes.get(self.ends[0], 0), model.batch_size),
                (self.counts.nodes.get(self.ends[1], 0), model.batch_size + model.negatives),
            )
        ]
        return _MLP_BATCH_COPIES * numbers + _TOWER_LOGIT_COPIES * met[0] * met[1]
