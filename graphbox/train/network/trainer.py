"""Base class of trainers of graph networks: the network over its graph, and its optimization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphbox.config import DenseNetworkSection, NetworkConfig
from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.models.graph_inputs import POSITION, NodeBatch
from graphbox.models.graph_network import GraphNetwork, LayerEdges
from graphbox.sample import DeviceGraph
from graphbox.sample.loader.options import LoaderKeywords
from graphbox.table import Table, TableEmbedding
from graphbox.train.assignment import Assignment
from graphbox.train.mapped_arrays import gathered
from graphbox.train.memory import TrainingMemory
from graphbox.train.network.edge_data import LearntEdges, learnt_edges
from graphbox.train.network.graph import NetworkGraph
from graphbox.train.network.inference import embed_graph
from graphbox.train.network.learnt_names import edge_categories, feature_categories, feature_inputs
from graphbox.train.network.node_data import node_data
from graphbox.train.network.trained_network import (
    ClassHead,
    Head,
    RowsOfTable,
    StoredRows,
    TrainedNetwork,
    layer_kind_of,
    network_shape,
)
from graphbox.train.optimization import OptimizerSettings
from graphbox.train.processes import ALONE
from graphbox.train.row_keys import RowKeys
from graphbox.train.seeded import seeded
from graphbox.train.torch_trainer import START_STREAM, TorchTrainer
from graphbox.train.trainer import Selection
from graphbox.train.transfer import moved, tensor_on
from graphbox.train.view import GraphView

_ROW_SCALE = 0.1
_BLOCK_NODES = 1 << 14
"""Nodes whose vectors go through a head together."""
_PASS_BATCHES = 256
"""After so many, a device's memory gets what they read, where no loader sees to it."""


Batch = TypeVar("Batch")


class NetworkTrainer(TorchTrainer[Batch]):
    """A graph network and its tables.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for.
        ends: node types that the task is about.
        metric: figure of :meth:`end_epoch` that decides which state the model ends as.
        head: what the task needs beyond embeddings; its module is trained with the network.

    Raises:
        UsageError: the layer, its options, the relations or the features do not fit the graph.
    """

    def __init__(
        self,
        config: NetworkConfig,
        assignment: Assignment,
        *,
        ends: Sequence[str],
        metric: str,
        head: Head,
    ) -> None:
        super().__init__(
            assignment,
            OptimizerSettings.of(config),
            epochs=config.epochs,
            validate_every=config.validate_every,
            selection=Selection(metric, config.patience),
        )
        self._config = config
        self._kept_head = head
        self._ends = ends
        kind = layer_kind_of(config, f"models.{assignment.name}.layer")
        _check_options(config, takes_weights=kind.takes_weights)
        self._normalized = kind.normalized
        self._view = assignment.view.with_reverse_edges() if config.reverse else assignment.view
        self._edge_learnt = learnt_edges(self._view, config.edge_features)
        self._graph = self._training_graph(self._view)
        if config.edge_weights and not self._graph.edge_attributes:
            raise UsageError(
                "expected edges with weights, received none",
                where=f"models.{assignment.name}.edge_weights",
                hint="import them with a weight column, or leave edge_weights out",
            )
        for node_type in ends:
            if node_type not in self._graph.node_types:
                raise UsageError(
                    f"expected relations that touch {node_type}, which the task is about, received "
                    f"{', '.join(map(edge_type_text, self._graph.edge_types)) or 'none'}",
                    where=f"models.{assignment.name}.relations",
                )
        self._tiered = self._open_tiers()
        self._positions = self._positions_of(assignment)
        self._data = node_data(
            self._view,
            self._graph.node_types,
            config.features,
            self._tiered,
            # Over a whole graph all are copied at once, and stay where the network computes.
            None if config.num_neighbors is None else self._memory.features_on_device,
            positions=self._positions,
        )
        shape = network_shape(
            config, kind, weighted=bool(self._graph.edge_attributes), edge_learnt=self._graph.edge_learnt
        )
        sizes = {name: data.sizes for name, data in self._data.items()}
        with seeded(self._seed, START_STREAM, device=self._device):
            relations = self._graph.edge_types
            tables = self._memory.near(self._new_tables())
            network = GraphNetwork(shape, sizes, relations, tables, head.module(config))
        self.network: GraphNetwork = network
        self.set_network(network, partial(_parameter_groups, network, config))
        self._every_input: dict[str, NodeBatch] | None = None
        self._whole: LayerEdges | None = None
        self._sampled: tuple[NetworkGraph, DeviceGraph | None] | None = None
        self._lists_stay_on_disk: bool | None = None  # once the graph is on the device
        self._batches_of_pass = 0

    @property
    def sums_in_order(self) -> bool:
        """Not over a whole graph, where a hub's edges would wait for each other."""
        return self._config.num_neighbors is not None

    def places(self) -> Mapping[str, str]:
        """Return where neighbours are sampled, if they are, and where features are."""
        hops = self._config.num_neighbors
        found = {"features": str(self._device) if hops is None else self._data.place}
        if hops is not None:
            in_tiers = self._tiered is not None
            reason = self._memory.why_on_cpu(hops, in_tiers=in_tiers)
            found["sampling"] = self._memory.sampling_place(hops, in_tiers=in_tiers)
            if self._lists_stay_on_disk is None and reason is None and in_tiers:
                self._held_on_device(self._graph)  # which says it
            if self._lists_stay_on_disk:
                found["sampling"] += ", lists by their use there and in pinned memory, others from disk"
                found["inference"] = "sampled on the cpu: lists are on disk"
        elif self._device.type == "cuda":
            found["sums"] = "in no fixed order, over the whole graph: equal runs agree to rounding"
        return found

    def learnt(self, drawn: Batch) -> None:  # noqa: ARG002 - batches are only counted
        """End a pass over a device's memory after some batches."""
        self._batches_of_pass += 1
        if self._batches_of_pass >= _PASS_BATCHES and not self._fetches_ahead:
            self._end_pass()

    def epoch_ends(self, epoch: int) -> None:  # noqa: ARG002 - each epoch alike
        """End a pass over a device's memory."""
        if not self._fetches_ahead:
            self._end_pass()

    def table_modules(self) -> dict[str, TableEmbedding]:
        """Return the rows of each node type that has a table."""
        modules = {name: self.network.input_module(name).rows for name in self._graph.node_types}
        return {name: rows for name, rows in modules.items() if rows is not None}

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables."""
        for name, table in tables.items():
            self.network.input_module(name).set_table(table)

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of the table of each node type that has one."""
        return {name: RowKeys.of_nodes({name: 0}) for name in self.table_modules()}

    def inputs(self) -> dict[str, list[str]]:
        """Return relations and features."""
        relations = [edge_type_text(each) for each in self._graph.edge_types]
        return {
            "relations": relations,
            **feature_inputs({name: data.learnt for name, data in self._data.items()}),
            **feature_inputs({edge_type_text(each): learnt for each, learnt in self._edge_learnt.items()}),
        }

    def weight_categories(self) -> dict[str, list[str]]:
        """Return categories, values of slots and classes, which rows of weights belong to."""
        found = feature_categories({name: data.learnt for name, data in self._data.items()})
        found |= edge_categories(self._graph.edge_learnt, self._config.layers)
        if isinstance(self._kept_head, ClassHead):
            found |= {name: list(self._kept_head.classes) for name in ("head.weight", "head.bias")}
        return found

    # ------------------------------------------------------------------- what each kind does

    @property
    def _fetches_ahead(self) -> bool:
        """Whether a loader fetches features, and ends passes over them."""
        return False

    # --------------------------------------------------------------------------- for all

    def _network_graph(self, view: GraphView, memory: TrainingMemory | None = None) -> NetworkGraph:
        if isinstance(self._config, DenseNetworkSection):
            return NetworkGraph(
                view, (), merge=False, weights=False, normalized=False, node_types=set(self._ends)
            )
        return _network_graph(
            view, self._config, self._edge_learnt, normalized=self._normalized, memory=memory
        )

    def _positions_of(self, assignment: Assignment) -> dict[str, NDArray[np.float32]]:
        """Return the rows of another model by node type; none where the section asks for none."""
        if self._config.positions is None:
            return {}
        where = f"models.{assignment.name}.positions"
        (node_type,) = self._ends
        rows = assignment.earlier.positions.get(node_type)
        if rows is None or len(rows) != self._view.num_nodes(node_type):
            received = "none" if rows is None else f"{len(rows)}"
            raise UsageError(
                f"expected a row of `{self._config.positions}` for each of "
                f"{self._view.num_nodes(node_type)} nodes of {node_type}, received {received}",
                where=where,
                hint="name a model whose embeddings reach the node type of the task",
            )
        if POSITION in self._view.features(node_type):
            raise UsageError(
                f"expected no feature `{POSITION}` of {node_type} beside rows of another model, which have "
                "that name in requests, received one",
                where=where,
                hint="give the feature another name, or leave `positions` out",
            )
        return {node_type: np.asarray(rows, np.float32)}

    def _training_graph(self, view: GraphView) -> NetworkGraph:
        """Return a view as networks see it; where batches are sampled from disk, with its edges in files."""
        if not self._memory.graph_on_disk:
            return self._network_graph(view)
        found = self._network_graph(view, self._memory)
        if found.is_merged:
            return found
        on_disk = self._memory.on_disk(view, found.edge_types)
        return found if on_disk is view else self._network_graph(on_disk)

    def _embedded(
        self, view: GraphView | None, nodes: Mapping[str, NDArray[np.int64]] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Return the embeddings of nodes (None: of all) over a graph (None: as training sees it)."""
        graph = self._graph if view is None else self._graph_of(view)
        with self._memory.folder_for("vectors") as folder:
            return embed_graph(
                self.network,
                graph,
                self._data,
                nodes=nodes,
                folder=folder,
                sampled=self._held_on_device(graph),
                threads=self._threads,
                # At the end rank 0 is alone with the trained model.
                processes=self._processes if view is None else ALONE,
            )

    def _graph_of(self, view: GraphView) -> NetworkGraph:
        """Return another view as networks see it."""
        return self._training_graph(view.with_reverse_edges() if self._config.reverse else view)

    def _on_device(self, graph: NetworkGraph, tiers: TieredGraph | None = None) -> DeviceGraph | None:
        """Return a graph for sampling on the device, where it is alone; None: it is sampled on the CPU.

        Args:
            graph: the graph.
            tiers: the same, if it is read from disk; None: what that of training is read from.
        """
        if self._sampled is None or self._sampled[0] is not graph:
            self._sampled = None  # before the next comes: the budget is for one
            hops = self._config.num_neighbors or ()
            if tiers is None and graph is self._graph:
                tiers = self._tiered
            self._sampled = graph, self._memory.sampled_on_device(tiers or graph.view, hops)
        return self._sampled[1]

    def _held_on_device(self, graph: NetworkGraph) -> DeviceGraph | None:
        """Return a graph for sampling all neighbours on the device; None: on the CPU."""
        found = self._on_device(graph)
        is_held = found is None or found.holds(graph.edge_types, graph.edge_attributes)
        if graph is self._graph:
            self._lists_stay_on_disk = not is_held
        return found if is_held else None

    def _end_pass(self) -> None:
        """Let the device's memory have what was read the most; no result changes by it."""
        self._batches_of_pass = 0
        self._data.end_pass()

    def _loader_options(
        self, tiers: TieredGraph | None, on_device: DeviceGraph | None, *, shuffle: bool
    ) -> LoaderKeywords:
        """Return the options of loaders of training batches.

        Args:
            tiers: what is sampled, if it is read from disk.
            on_device: the same on the device of the network, if it is sampled there.
            shuffle: give seeds in another order each epoch.
        """
        return {
            "shuffle": shuffle,
            "features": {}
            if tiers is None
            else {name: data.stored_vectors for name, data in self._data.items()},
            "fetch": self._data if tiers is None and on_device is not None else None,
            "transform": None
            if tiers is None
            else partial(self._data.with_vectors, pinned=self._device.type == "cuda"),
            "edge_attributes": self._graph.edge_attributes,
            "edge_features": (),
            "output": "torch",
            "seed": self._seed,
            "num_threads": None if on_device is not None else self._threads,
            "tables": self.tables(),
        }

    def _block_by_block(
        self, compute: Callable[..., Tensor], width: int, *inputs: NDArray[np.float32]
    ) -> Tensor:
        """Return what is computed of all nodes: float32 [nodes, width], under budgets in a file."""
        blocks = (
            compute(*(tensor_on(each[first : first + _BLOCK_NODES], self._device) for each in inputs))
            for first in range(0, len(inputs[0]), _BLOCK_NODES)
        )
        if self._device.type != "cpu":
            return torch.cat([*blocks])
        with self._memory.folder_for("computed") as folder:
            rows = (each.numpy() for each in blocks)
            file = folder and folder / "vectors"
            return torch.from_numpy(gathered(rows, np.float32, (width,), file))

    def _kept(self) -> TrainedNetwork:
        """Return the network as it is now, for graphs as they are later."""
        tables = self.tables()
        return TrainedNetwork(
            config=self._config,
            edge_types=self._graph.members,
            is_merged=self._graph.is_merged,
            weighted=self.network.shape.weighted,
            edge_learnt=self._edge_learnt,
            learnt={name: data.learnt for name, data in self._data.items()},
            values={name: value.clone().cpu() for name, value in self._values().items()},
            rows={
                name: RowsOfTable(self._view.arrow_ids(name), tables[name])
                for name in self._data
                if name in tables
            },
            head=self._kept_head,
            positions=next(
                (StoredRows(self._view.arrow_ids(name), rows) for name, rows in self._positions.items()), None
            ),
        )

    def _rows(self, inputs: Mapping[str, NodeBatch]) -> dict[str, Tensor | None]:
        return {name: self.network.input_module(name).fetch(each) for name, each in inputs.items()}

    def _inputs(
        self, nodes: Mapping[str, Tensor], fetched: Mapping[str, Any] | None = None
    ) -> dict[str, NodeBatch]:
        return moved(self._data.inputs(nodes, fetched), self._device)

    def _all_inputs(self) -> dict[str, NodeBatch]:
        """Return what all nodes have."""
        if self._every_input is None:
            view = self._graph.view
            self._every_input = self._inputs(
                {name: torch.arange(view.num_nodes(name)) for name in self._graph.node_types}
            )
        return self._every_input

    def _whole_graph(self) -> tuple[dict[str, NodeBatch], list[LayerEdges]]:
        """Return what all nodes have, and what each layer works on over the whole graph."""
        if self._whole is None:
            self._whole = moved(self._graph.whole(), self._device)
        return self._all_inputs(), [self._whole] * self._config.layers

    def _types_with_rows(self) -> Sequence[str]:
        """Return the node types whose nodes have rows of a table."""
        if self._config.embeddings is not None:
            return self._config.embeddings
        return [name for name, data in self._data.items() if data.sizes.is_empty]

    def _new_tables(self) -> dict[str, Table]:
        chosen = self._types_with_rows()
        for name in chosen:
            if name not in self._data:
                raise UsageError(
                    f"there is no node type `{name}` at an end of the model's relations",
                    where="embeddings",
                    hint=did_you_mean(name, self._data) or f"there are: {', '.join(self._data)}",
                )
        types = [name for name in self._graph.node_types if name in chosen]
        return self._memory.new_tables(
            {name: self._graph.view.num_nodes(name) for name in types},
            self._config.dim,
            "rowwise_adagrad",
            self._config.table_learning_rate,
            seeds={name: self._seed + self._graph.node_types.index(name) for name in types},
            init_scale=_ROW_SCALE,
            threads=self._threads,
        )

    def _open_tiers(self) -> TieredGraph | None:
        view = self._graph.view
        if not self._memory.graph_on_disk or not isinstance(view, GraphView):
            return None
        return self._memory.tiered(view)


def _check_options(config: NetworkConfig, *, takes_weights: bool) -> None:
    if config.edge_weights and not takes_weights:
        raise UsageError(
            f"the weights of edges do not reach layers of kind {config.layer}",
            where="edge_weights",
            hint="take gcn, gcn2, appnp, lightgcn, gat, gatv2 or transformer, or leave edge_weights out",
        )
    if config.num_neighbors and len(config.num_neighbors) != config.layers:
        raise UsageError(
            f"expected a number of neighbours for each of {config.layers} layers, received "
            f"{len(config.num_neighbors)}",
            where="num_neighbors",
        )


def _network_graph(
    view: GraphView,
    config: NetworkConfig,
    edge_learnt: LearntEdges,
    *,
    normalized: bool,
    memory: TrainingMemory | None,
) -> NetworkGraph:
    for edge_type in config.relations:
        if edge_type not in view.edge_types:
            raise UsageError(
                f"there is no edge type {edge_type_text(edge_type)}",
                where="relations",
                hint=f"there are: {', '.join(map(edge_type_text, view.edge_types))}",
            )
    added = [(target, f"rev_{relation}", source) for source, relation, target in config.relations]
    chosen = dict.fromkeys([*config.relations, *(each for each in added if each in view.edge_types)])
    edge_types: Sequence[EdgeType] = list(chosen) or view.edge_types
    merge = config.merge_relations
    if merge is None:
        types = {end for edge_type in edge_types for end in (edge_type[0], edge_type[2])}
        merge = len(types) == 1 and len(edge_types) > 1  # a single one is left where it is, on disk too
        merge = merge and not edge_learnt
    for edge_type in edge_learnt:
        if edge_type not in map(view.own_type, edge_types):
            raise UsageError(
                f"expected an edge type among the model's relations, received {edge_type_text(edge_type)}",
                where="edge_features",
                hint=f"messages go along: {', '.join(map(edge_type_text, edge_types))}",
            )
    return NetworkGraph(
        view,
        edge_types,
        merge=merge,
        weights=config.edge_weights,
        normalized=normalized,
        memory=memory,
        edge_learnt=edge_learnt,
    )


def _parameter_groups(network: GraphNetwork, config: NetworkConfig) -> list[tuple[list[nn.Parameter], float]]:
    groups = [
        (list(network.inputs.parameters()), config.weight_decay),
        (list(network.layers.parameters()), config.layer_weight_decay),
        ([*network.norms.parameters(), *network.head.parameters()], 0.0),
    ]
    return [(parameters, decay) for parameters, decay in groups if parameters]
