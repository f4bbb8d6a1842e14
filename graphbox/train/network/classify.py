"""Trains a graph neural network to classify nodes, over the whole graph or over sampled batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import GraphNetworkConfig, NetworkConfig
from graphbox.errors import UsageError
from graphbox.sample import Batch, NeighborLoader
from graphbox.sample.sampled import HeteroSample
from graphbox.table import Table
from graphbox.train.assignment import Assignment
from graphbox.train.class_report import class_report, deciding_figure
from graphbox.train.distillation import Distillation
from graphbox.train.loader_batches import LoaderBatches
from graphbox.train.network.graph import NetworkGraph
from graphbox.train.network.links import GraphLinkTrainer
from graphbox.train.network.trained_network import ClassHead
from graphbox.train.network.trainer import NetworkTrainer
from graphbox.train.tasks import ClassifySplit, LinkSplit, RecommendSplit
from graphbox.train.trained import TrainedModel
from graphbox.train.transfer import moved, tensor_on
from graphbox.train.view import GraphView

_AGREEMENT = "validation_teacher_agreement"


class GraphNetworkTrainer(NetworkTrainer[Batch[Tensor] | None]):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for.
        split: the split of its task.

    Raises:
        UsageError: the layer, its options, the relations or the features do not fit the graph.
    """

    def __init__(self, config: NetworkConfig, assignment: Assignment, split: ClassifySplit) -> None:
        self._split = split
        if split.has_several and config.distil is not None:
            raise UsageError(
                "expected a task whose nodes have one class each beside `distil`, received one with several",
                where=f"models.{assignment.name}.distil",
                hint="leave the section out",
            )
        self._figure = f"validation_{deciding_figure(split)}"
        super().__init__(
            config,
            assignment,
            ends=(split.node_type,),
            metric=self._figure if config.distil is None else _AGREEMENT,
            head=ClassHead(split.node_type, split.classes, split.has_several),
        )
        self._nodes = split.nodes("train")
        self._distillation: Distillation | None = None
        if config.distil is not None:
            self._distillation = Distillation(config.distil, assignment.earlier.teachers, split, self._device)
            every = np.arange(self._view.num_nodes(split.node_type))
            self._nodes = np.delete(every, self._view.removed_nodes(split.node_type))
        self._validation = split.nodes("validation")
        self._labels = tensor_on(split.labels, self._device)
        self._members = split.members(split.nodes("train", "validation"))
        self._batches = None if config.num_neighbors is None else LoaderBatches(self._new_loader())

    # ---------------------------------------------------------------------------- training

    def open_epoch(self, epoch: int) -> int:  # noqa: ARG002 - each epoch has as many
        """Return the number of batches."""
        self.close()
        return 1 if self._batches is None else len(self._batches)

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the nodes of a batch that are trained on, with their classes."""
        drawn, nodes = self.draw(epoch, batch), self._nodes
        if drawn is not None:
            nodes = self._seeds_of(drawn.sample).cpu().numpy()
        return {"nodes": nodes, "labels": self._split.labels[nodes]}

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables, in which the loader reads ahead."""
        super().set_tables(tables)
        if self._batches is not None:
            self._batches = LoaderBatches(self._new_loader())

    def close(self) -> None:
        """End the threads that make batches ahead."""
        if self._batches is not None:
            self._batches.close()

    def draw(self, epoch: int, batch: int) -> Batch[Tensor] | None:
        """Return the sample of a batch, with the features that are on disk; None: the whole graph."""
        return None if self._batches is None else self._batches.take(epoch, batch)

    def loss(
        self,
        drawn: Batch[Tensor] | None,
        epoch: int,  # noqa: ARG002 - dropout alone differs, which torch draws
        batch: int,
    ) -> tuple[Tensor, int]:
        """Return the cross-entropy of the classes of a batch's nodes, or what teachers make of it.

        Where nodes can have several it is the binary one of each class, averaged over classes.
        """
        clock, node_type = self._clock, self._split.node_type
        if drawn is None:
            inputs, edges = self._whole_graph()
            places = nodes = tensor_on(self._nodes, self._device)
        else:
            with clock.stage("sample"):
                sample = moved(drawn.sample, self._device)
                edges = self._graph.layers_of(sample, self._config.layers)
            with clock.stage("fetch"):
                inputs = self._inputs(drawn.sample.nodes, drawn.features)
            nodes = self._seeds_of(sample)
            places = torch.arange(len(nodes), device=self._device)
        with clock.stage("fetch"):
            rows = self._rows(inputs)
        vectors = self.network(inputs, rows, edges)[node_type]
        logits = self.network.head(vectors[places])
        if self._distillation is not None:
            loss = self._distillation.loss(logits, nodes)
        elif self._split.has_several:
            members = tensor_on(self._members[nodes.cpu().numpy()].toarray(), self._device)
            loss = functional.binary_cross_entropy_with_logits(logits, members)
        else:
            loss = functional.cross_entropy(logits, self._labels[nodes])
        count = self._batch_nodes(batch)
        return self._processes.share(loss, len(nodes), count), count

    def measured(self) -> dict[str, float]:
        """Return the accuracy on the validation part; of a student also how often its teachers say the same.

        A student ends as it was when it agreed with them best. Where nodes can have several classes it is the
        micro-F1 of as many as each has.
        """
        logits = self._validation_logits()
        if self._split.has_several:
            scores = torch.sigmoid(logits).cpu().numpy()
            report = class_report(self._split, self._validation, scores)
            return {self._figure: float(report[deciding_figure(self._split)])}
        predicted = logits.argmax(dim=1)
        right = (predicted == self._labels[tensor_on(self._validation, self._device)]).double().mean()
        found = {self._figure: float(right)}
        if self._distillation is not None:
            said = self._distillation.soft_classes(self._validation).argmax(dim=1)
            found[_AGREEMENT] = float((predicted == said).double().mean())
        return found

    # --------------------------------------------------------------------------- inference

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the embeddings of all nodes of the network's types, and what it predicts."""
        self.network.eval()
        with self._optimization.averaged(), torch.no_grad():
            embeddings = self._embedded(view)
            node_type = self._split.node_type
            classes = len(self._split.classes)
            logits = self._block_by_block(self.network.head, classes, embeddings[node_type]).cpu().numpy()
            network = self._kept()
        task = self._config.task
        return TrainedModel(name, "embedding", task, node_type, embeddings, logits=logits, network=network)

    def _validation_logits(self) -> Tensor:
        node_type = self._split.node_type
        if self._batches is None:
            inputs, edges = self._whole_graph()
            vectors = self.network(inputs, self._rows(inputs), edges)[node_type]
        else:
            embedded = self._embedded(None, {node_type: self._validation})[node_type]
            vectors = tensor_on(embedded, self._device)
        logits: Tensor = self.network.head(vectors[tensor_on(self._validation, self._device)])
        return logits

    # ----------------------------------------------------------------------------- details

    @property
    def _fetches_ahead(self) -> bool:
        is_there = self._batches is not None and self._on_device(self._graph) is not None
        return is_there and self._tiered is None

    def _graph_of(self, view: GraphView) -> NetworkGraph:  # noqa: ARG002 - the task hides no edges
        return self._graph

    def _batch_nodes(self, batch: int) -> int:
        """Return how many nodes are trained on in a batch, in all processes."""
        if self._batches is None:
            return len(self._nodes)
        return min(self._config.batch_size, len(self._nodes) - batch * self._config.batch_size)

    def _seeds_of(self, sample: HeteroSample[Tensor]) -> Tensor:
        node_type = self._split.node_type
        return sample.nodes[node_type][: sample.num_sampled_nodes[node_type][0]]

    def _new_loader(self) -> NeighborLoader:
        on_device = self._on_device(self._graph)
        return NeighborLoader(
            on_device or self._tiered or self._graph.view,
            dict.fromkeys(self._graph.edge_types, self._config.num_neighbors or ()),
            (self._split.node_type, self._nodes),
            self._config.batch_size,
            part=self._processes.shard,
            **self._loader_options(self._tiered, on_device, shuffle=True),
        )


def make_graph_network_trainer(
    config: NetworkConfig, assignment: Assignment
) -> GraphNetworkTrainer | GraphLinkTrainer:
    """Return the trainer of a network of nodes: it classifies them, or finds or tells links.

    Raises:
        UsageError: the model has no task, or one of another kind.
    """
    split = assignment.split
    if isinstance(split, ClassifySplit):
        return GraphNetworkTrainer(config, assignment, split)
    if isinstance(split, RecommendSplit | LinkSplit) and isinstance(config, GraphNetworkConfig):
        if config.distil is not None:
            raise UsageError(
                f"expected a task of kind classify beside `distil`, received one of kind {split.KIND}",
                where=f"models.{assignment.name}.distil",
            )
        return GraphLinkTrainer(config, assignment, split)
    raise assignment.wrong_task(config)
