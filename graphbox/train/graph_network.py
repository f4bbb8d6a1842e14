"""Trains a graph neural network to classify nodes, over the whole graph or over sampled batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from graphbox.config import GraphNetworkConfig
from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.models.graph_inputs import NodeBatch
from graphbox.models.graph_layers import layer_kind
from graphbox.models.graph_network import GraphNetwork, LayerEdges, NetworkShape
from graphbox.sample import Batch, NeighborLoader
from graphbox.sample.loader.base import LoaderIterator
from graphbox.table import EmbeddingTable
from graphbox.train.inference import embed_graph
from graphbox.train.network_graph import NetworkGraph
from graphbox.train.node_data import node_data
from graphbox.train.optimization import Optimization
from graphbox.train.registry import Assignment, import_by_path
from graphbox.train.seeded import seeded
from graphbox.train.tasks import ClassifySplit
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Selection, Trainer
from graphbox.train.view import GraphView

__all__ = ["GraphNetworkTrainer", "make_graph_network_trainer"]

_METRIC = "validation_accuracy"
_ROW_SCALE = 0.1


class GraphNetworkTrainer(Trainer):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for, a task of kind ``classify``.

    Raises:
        UsageError: the layer, its options, the relations or the features do not fit the graph, or the model
            has no task of kind ``classify``.
    """

    def __init__(self, config: GraphNetworkConfig, assignment: Assignment) -> None:
        split = assignment.split
        if not isinstance(split, ClassifySplit):
            raise UsageError(
                f"expected a task of kind classify for a model of kind {config.kind}, received "
                f"{'none' if assignment.task is None else f'{config.task} of kind {assignment.task.kind}'}",
                where=f"models.{assignment.name}.task",
            )
        self._config = config
        self._split = split
        self._seed = assignment.seed
        self._threads = assignment.threads
        self._clock = assignment.clock
        own = None
        if ":" in config.layer:
            own = import_by_path(config.layer, f"models.{assignment.name}.layer")
        kind = layer_kind(config.layer, own)
        _check_options(config, takes_weights=kind.takes_weights)
        view = assignment.view.with_reverse_edges() if config.reverse else assignment.view
        self._graph = _network_graph(view, config, normalized=kind.normalized)
        if config.edge_weights and not self._graph.edge_attributes:
            raise UsageError(
                "expected edges with weights, received none",
                where=f"models.{assignment.name}.edge_weights",
                hint="import them with a weight column, or leave edge_weights out",
            )
        if split.node_type not in self._graph.node_types:
            raise UsageError(
                f"expected relations that touch {split.node_type}, which is to be classified, received "
                f"{', '.join(map(edge_type_text, self._graph.edge_types)) or 'none'}",
                where=f"models.{assignment.name}.relations",
            )
        self._memory = assignment.memory
        self._tiered = self._open_tiers(view, assignment.name)
        self._data = node_data(view, self._graph.node_types, config.features, self._tiered)
        shape = NetworkShape(
            layer=config.layer,
            kind=kind,
            options=config.layer_options,
            dim=config.dim,
            layers=config.layers,
            outputs=len(split.classes),
            weighted=bool(self._graph.edge_attributes),
            dropout=config.dropout,
            input_dropout=config.input_dropout,
            row_dropout=config.row_dropout,
            normalize=config.normalize,
            residual=config.residual,
        )
        sizes = {name: data.sizes for name, data in self._data.items()}
        with seeded(self._seed):
            self.network = GraphNetwork(shape, sizes, self._graph.relations, self._new_tables())
        self._optimization = Optimization(self.network, config, _parameter_groups(self.network, config))
        self._nodes = split.nodes("train")
        self._validation = split.nodes("validation")
        self._labels = torch.from_numpy(split.labels)
        self._whole: tuple[dict[str, NodeBatch], list[LayerEdges]] | None = None
        self._loader = None if config.num_neighbors is None else self._new_loader(self._nodes, shuffle=True)
        self._batches: LoaderIterator | None = None
        self._next = (0, 0)

    # ---------------------------------------------------------------------------- training

    @property
    def epochs(self) -> int:
        """Most epochs."""
        return self._config.epochs

    @property
    def selection(self) -> Selection:
        """The model ends as it was at its best on the validation part."""
        return Selection(_METRIC, self._config.patience)

    def begin_epoch(self, epoch: int) -> int:
        """Return the number of batches."""
        self._close_batches()
        self._next = (epoch, 0)
        return 1 if self._loader is None else len(self._loader)

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch of nodes, or on all of them."""
        clock = self._clock
        with clock.stage("sample"):
            seeds, nodes, edges, fetched = self._sampled(epoch, batch)
        self.network.train()
        with seeded(self._seed, epoch, batch):
            with clock.stage("fetch"):
                inputs = self._inputs(nodes, fetched)
                rows = {name: self.network.input_module(name).fetch(each) for name, each in inputs.items()}
            with clock.stage("compute"):
                vectors = self.network(inputs, rows, edges)[self._split.node_type]
                logits = self.network.head(vectors[seeds[0]])
                loss = functional.cross_entropy(logits, self._labels[seeds[1]])
                value = float(loss.item())
                if math.isfinite(value):  # the loop stops at any other, before anything takes it up
                    self._optimization.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
        if math.isfinite(value):
            with clock.stage("push"):
                self._optimization.step(self._done(epoch, batch))
        return value, len(seeds[1])

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        """Return the accuracy on the validation part, every few epochs and after the last."""
        if (epoch + 1) % self._config.validate_every and epoch + 1 != self.epochs:
            return {}
        predicted = self._validation_logits().argmax(dim=1)
        right = (predicted == self._labels[self._validation]).double().mean()
        return {_METRIC: float(right)}

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the nodes of a batch that are trained on, with their classes."""
        self._close_batches()
        seeds, _, _, _ = self._sampled(epoch, batch)
        nodes = seeds[1].numpy()
        return {"nodes": nodes, "labels": self._split.labels[nodes]}

    def dense(self) -> dict[str, Tensor]:
        """Return parameters, buffers, optimizer state and moving averages by name."""
        values = {f"model.{name}": value for name, value in self._values().items()}
        return values | self._optimization.tensors()

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the embedding table of each node type that has one."""
        modules = {name: self.network.input_module(name) for name in self._graph.node_types}
        return {name: module.rows.table for name, module in modules.items() if module.rows is not None}

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, EmbeddingTable]) -> None:
        """Take up the state that :meth:`dense` and :meth:`tables` returned."""
        with torch.no_grad():
            for name, value in self._values().items():
                value.copy_(dense[f"model.{name}"])
        for name, table in tables.items():
            self.network.input_module(name).set_table(table)
        rest = {name: value for name, value in dense.items() if not name.startswith("model.")}
        self._optimization.restore(rest)
        self._close_batches()

    # --------------------------------------------------------------------------- inference

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the embeddings of all nodes of the network's types, and what it predicts."""
        view = view.with_reverse_edges() if self._config.reverse else view
        graph = _network_graph(view, self._config, normalized=self.network.shape.kind.normalized)
        self.network.eval()
        with self._optimization.averaged(), torch.no_grad():
            embeddings = embed_graph(self.network, graph, self._data, threads=self._threads)
            node_type = self._split.node_type
            logits = self.network.head(torch.from_numpy(embeddings[node_type])).numpy()
        return TrainedModel(name, "embedding", self._config.task, node_type, embeddings, logits=logits)

    @torch.no_grad()
    def _validation_logits(self) -> Tensor:
        self.network.eval()
        node_type = self._split.node_type
        with self._optimization.averaged():
            if self._loader is None:
                inputs, edges = self._whole_graph()
                rows = {name: self.network.input_module(name).fetch(each) for name, each in inputs.items()}
                vectors = self.network(inputs, rows, edges)[node_type][torch.from_numpy(self._validation)]
            else:
                found = embed_graph(
                    self.network,
                    self._graph,
                    self._data,
                    nodes={node_type: self._validation},
                    threads=self._threads,
                )
                vectors = torch.from_numpy(found[node_type][self._validation])
            logits: Tensor = self.network.head(vectors)
        return logits

    # ----------------------------------------------------------------------------- details

    def _sampled(
        self, epoch: int, batch: int
    ) -> tuple[
        tuple[Tensor, Tensor], dict[str, NDArray[np.int64]] | None, Sequence[LayerEdges], dict[str, Any]
    ]:
        """Return positions and nodes to train on, the nodes of the batch (None: all), its edges, and rows."""
        if self._loader is None:
            nodes = torch.from_numpy(self._nodes)
            return (nodes, nodes), None, self._whole_graph()[1], {}
        loaded = self._next_batch(epoch, batch)
        sample = loaded.sample
        seeds = sample.nodes[self._split.node_type][: sample.nodes_per_hop[self._split.node_type][0]]
        chosen = torch.arange(len(seeds)), torch.from_numpy(seeds)
        nodes_of = {name: sample.nodes[name] for name in self._graph.node_types}
        return chosen, nodes_of, self._graph.layers_of(sample, self._config.layers), loaded.features

    def _values(self) -> dict[str, Tensor]:
        """Return parameters and buffers, such as the statistics of a normalization, by name."""
        named = [*self.network.named_parameters(), *self.network.named_buffers()]
        return {name: value.detach() for name, value in named}

    def _inputs(
        self, nodes: Mapping[str, NDArray[np.int64]] | None, fetched: Mapping[str, Any]
    ) -> dict[str, NodeBatch]:
        if nodes is None:
            return self._whole_graph()[0]
        return {name: self._data[name].take(each, fetched.get(name)) for name, each in nodes.items()}

    def _whole_graph(self) -> tuple[dict[str, NodeBatch], list[LayerEdges]]:
        if self._whole is None:
            view = self._graph.view
            inputs = {name: data.take(np.arange(view.num_nodes(name))) for name, data in self._data.items()}
            self._whole = inputs, [self._graph.whole()] * self._config.layers
        return self._whole

    def _next_batch(self, epoch: int, batch: int) -> Batch[NDArray[Any]]:
        """Return a batch's sample, with the rows that are on disk; in order they come from threads ahead."""
        assert self._loader is not None  # noqa: S101 - for the type checker
        if self._batches is None or self._next != (epoch, batch):
            self._close_batches()
            self._loader.load_state_dict({**self._loader.state_dict(), "epoch": epoch, "batch": batch})
            self._batches = iter(self._loader)
        self._next = (epoch, batch + 1)
        loaded: Batch[NDArray[Any]] = next(self._batches)
        return loaded

    def _close_batches(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _new_loader(self, nodes: NDArray[np.int64], *, shuffle: bool) -> NeighborLoader:
        hops = list(self._config.num_neighbors or ())
        return NeighborLoader(
            self._tiered or self._graph.view,
            dict.fromkeys(self._graph.edge_types, hops),
            (self._split.node_type, nodes),
            self._config.batch_size,
            shuffle=shuffle,
            features={name: data.stored_vectors for name, data in self._data.items()},
            edge_attributes=self._graph.edge_attributes,
            output="numpy",
            seed=self._seed,
            num_threads=self._threads,
        )

    def _open_tiers(self, view: GraphView, model: str) -> TieredGraph | None:
        if not self._memory.graph_on_disk:
            return None
        if self._config.num_neighbors is None:
            raise UsageError(
                "expected a model that is trained on batches of sampled neighbours, received one that is "
                "trained on the whole graph",
                where=f"models.{model}",
                hint="give it `num_neighbors`, like [10, 10], or leave `memory.topology` and "
                "`memory.features` out",
            )
        return self._memory.tiered(view)

    def _new_tables(self) -> dict[str, EmbeddingTable]:
        chosen = self._config.embeddings
        if chosen is None:
            chosen = tuple(name for name, data in self._data.items() if data.sizes.is_empty)
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

    def _done(self, epoch: int, batch: int) -> float:
        batches = 1 if self._loader is None else len(self._loader)
        return (epoch + batch / batches) / self.epochs


def make_graph_network_trainer(config: GraphNetworkConfig, assignment: Assignment) -> GraphNetworkTrainer:
    """Return the trainer of a section of kind ``gnn``."""
    return GraphNetworkTrainer(config, assignment)


def _check_options(config: GraphNetworkConfig, *, takes_weights: bool) -> None:
    if config.edge_weights and not takes_weights:
        raise UsageError(
            f"the weights of edges do not reach layers of kind {config.layer}",
            where="edge_weights",
            hint="take gcn, gcn2, appnp, lightgcn, gat, gatv2 or transformer, or leave edge_weights out",
        )
    if config.num_neighbors is not None and len(config.num_neighbors) != config.layers:
        raise UsageError(
            f"expected a number of neighbours for each of {config.layers} layers, received "
            f"{len(config.num_neighbors)}",
            where="num_neighbors",
        )


def _network_graph(view: GraphView, config: GraphNetworkConfig, *, normalized: bool) -> NetworkGraph:
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
        merge = len({end for edge_type in edge_types for end in (edge_type[0], edge_type[2])}) == 1
    return NetworkGraph(view, edge_types, merge=merge, weights=config.edge_weights, normalized=normalized)


def _parameter_groups(
    network: GraphNetwork, config: GraphNetworkConfig
) -> list[tuple[list[nn.Parameter], float]]:
    groups = [
        (list(network.inputs.parameters()), config.weight_decay),
        (list(network.layers.parameters()), config.layer_weight_decay),
        ([*network.norms.parameters(), *network.head.parameters()], 0.0),
    ]
    return [(parameters, decay) for parameters, decay in groups if parameters]
