"""Trains a user's own ``torch.nn.Module`` on batches of the public loaders: node classes or links.

Batches are those of PyTorch Geometric, as the loaders make them. In training ``loss(batch)`` gets them: for
``classify`` from :class:`graphbox.NeighborLoader`, with the classes of the seeds as ``y``; for links from
:class:`graphbox.LinkNeighborLoader`, whose leakage control excludes the links of a batch from its subgraph.
Validation and the final vectors call ``forward(batch)`` on batches of nodes. It returns the logits of the
classes, or vectors whose inner products score links.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import OwnModuleConfig, PredictLinksTaskConfig, RecommendTaskConfig
from graphbox.errors import UsageError
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.sample import LinkNeighborLoader, NegativeSampling, NeighborLoader
from graphbox.table import Table, TableEmbedding
from graphbox.train.assignment import Assignment
from graphbox.train.import_path import import_by_path
from graphbox.train.loader_batches import LoaderBatches
from graphbox.train.optimization import OptimizerSettings
from graphbox.train.own_module.calls import OwnCode
from graphbox.train.own_module.inputs import ModuleInputs
from graphbox.train.recommendation.validation import TowerValidation
from graphbox.train.row_keys import RowKeys
from graphbox.train.seeded import seeded
from graphbox.train.tasks import ClassifySplit, LinkSplit, RecommendSplit
from graphbox.train.torch_trainer import START_STREAM, TorchTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Selection
from graphbox.train.view import GraphView

_ROW_SCALE = 0.1
_TIMESTAMP = "timestamp"
_TRAINING_SHARE = 0.75
"""Of the budget of edges, for the graph of training; the rest is for that of the vectors at the end."""
_EVALUATION_NODES = 1024
"""Seeds of a batch in which the module is measured."""


class OwnModuleTrainer(TorchTrainer[Any]):
    """Base class of the trainers of a user's own module; see this Python module's docstring.

    Args:
        config: the model's section of the run file.
        assignment: arguments of the training.
        inputs: types and sizes that the task adds to those of the graph.
        metric: figure that decides which state the model ends as.

    Raises:
        UsageError: the class cannot be imported or called, or has no ``loss`` or ``forward``; or relations,
            features and budgets do not fit the graph.
    """

    def __init__(self, config: OwnModuleConfig, assignment: Assignment, metric: str, **inputs: Any) -> None:
        super().__init__(
            assignment,
            OptimizerSettings.of(config),
            epochs=config.epochs,
            validate_every=config.validate_every,
            selection=Selection(metric, config.patience),
        )
        self._config = config
        self._name = assignment.name
        where = f"models.{assignment.name}.model"
        made = import_by_path(config.model, where)
        self.code = OwnCode(config.model, made)
        self.code.check_class(where, ("loss", "forward"))
        self.code.check_options(f"models.{assignment.name}.options", config.options)
        self._view = assignment.view.with_reverse_edges() if config.reverse else assignment.view
        self._edge_types = self._chosen_edge_types(self._view)
        self._feature_names = self._chosen_features()
        self._graph = self._graph_to_sample()
        self._shown: tuple[GraphView, TieredGraph] | None = None
        first = self._inputs_of_view(**inputs)
        with self.code.calling("__init__"), torch.random.fork_rng(devices=[]):
            made(first, **config.options)  # which says what rows it asks for
        sizes = {name: each.rows * each.dim for name, each in first.requests.items()}
        shares = self._memory.shares(sizes)
        tables = {
            name: self._memory.new_table(
                name,
                each.dim,
                "rowwise_adagrad",
                config.table_learning_rate,
                share=shares[name],
                rows=each.rows,
                seed=self._seed + number,
                init_scale=_ROW_SCALE,
                threads=self._threads,
            )
            for number, (name, each) in enumerate(first.requests.items())
        }
        near = self._memory.near(tables)
        second = replace(first, _new_table=lambda name, _: near[name], _requests={}, _made={})
        with self.code.calling("__init__"), seeded(self._seed, START_STREAM, device=self._device):
            network = made(second, **config.options)
        self._rows = second.made
        there = set(network.modules())
        for name, rows in self._rows.items():
            if rows not in there:
                raise UsageError(
                    f"expected `{config.model}` to keep the rows of `{name}` as an attribute, received a "
                    "module without them",
                    where=self.code.place("__init__"),
                    hint=f"write `self.rows = inputs.rows({name!r}, dim)`, or put it into a ModuleDict",
                )
        self.set_network(network)
        self._batches = LoaderBatches(self._new_loader())

    # ---------------------------------------------------------------------------- training

    @abstractmethod
    def _new_loader(self) -> NeighborLoader | LinkNeighborLoader:
        """Return the loader of training batches."""

    def open_epoch(self, epoch: int) -> int:  # noqa: ARG002 - each epoch has as many
        """Return the number of batches."""
        self._batches.close()
        return len(self._batches)

    def draw(self, epoch: int, batch: int) -> Any:
        """Return a batch on the device of the network."""
        return self._batches.take(epoch, batch).to(self._device)

    def loss_place(self) -> str:
        """Return the import path of the module, with file and line of its loss."""
        return f"loss of `{self.code.path}`, {self.code.place('loss')}"

    def close(self) -> None:
        """End the threads that make batches ahead."""
        self._batches.close()

    def table_modules(self) -> Mapping[str, TableEmbedding]:
        """Return the rows that the module asked for, by node type."""
        return self._rows

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of the rows that the module asked for."""
        return {name: RowKeys.of_nodes({name: 0}) for name in self._rows}

    def inputs(self) -> dict[str, list[str]]:
        """Return the class, and the relations and features that its batches have."""
        features = {f"features of {name}": list(names) for name, names in self._feature_names.items()}
        relations = [edge_type_text(each) for each in self._edge_types]
        return {"model": [self._config.model], "relations": relations, **features}

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables, in which the loader reads ahead."""
        for name, module in self._rows.items():
            module.set_table(tables[name])
        self._batches = LoaderBatches(self._new_loader())

    def _loss_of(self, batch: Any) -> Tensor:
        with self.code.calling("loss(batch)"):
            found = self.network.loss(batch)  # type: ignore[operator]
        return self.code.check_loss(found)

    # --------------------------------------------------------------------------- inference

    def _outputs(
        self, node_type: str, nodes: NDArray[np.int64], view: GraphView | None, columns: int | None = None
    ) -> Tensor:
        """Return what the module says of nodes: float32 [nodes, columns] in host memory.

        Args:
            node_type: their type.
            nodes: int64 [nodes].
            view: the graph; None: as training sees it.
            columns: how many the module must return; None: any number.
        """
        graph = self._graph if view is None else self._graph_of(view)
        hops = self._config.evaluation_neighbors or self._config.num_neighbors
        loader = NeighborLoader(
            graph,
            dict.fromkeys(self._edge_types, hops),
            (node_type, nodes),
            _EVALUATION_NODES,
            features=self._feature_names,
            weight_attr=self._config.weight_attr,
            # All edges of the graph came before what is predicted.
            time_attr=None if self._config.time_attr == _TIMESTAMP else self._config.time_attr,
            temporal_strategy=self._config.temporal_strategy,
            disjoint=self._config.disjoint,
            edge_features=(),
            seed=self._seed,
            num_threads=self._threads,
        )
        found = []
        for batch in loader:
            batch.input_type = node_type
            with self.code.calling("forward(batch)"):
                output = self.network(batch.to(self._device))
            seeds = int(_store(batch, node_type).batch_size)
            found.append(self.code.check_output(output, seeds, columns).cpu())
        return torch.cat(found) if found else torch.zeros(0, columns or 0)

    def _outputs_of_type(self, node_type: str, view: GraphView | None, columns: int | None = None) -> Tensor:
        """Return what the module says of all nodes of a type, with zeros for removed ones."""
        of_view = self._view if view is None else view
        live = LiveRows.of_graph(of_view, node_type)
        nodes = live.nodes(np.arange(len(live)))
        found = self._outputs(node_type, nodes, view, columns)
        if len(nodes) == of_view.num_nodes(node_type):
            return found
        whole = torch.zeros(of_view.num_nodes(node_type), found.shape[1])
        whole[torch.from_numpy(nodes)] = found
        return whole

    # ----------------------------------------------------------------------------- details

    def _chosen_edge_types(self, view: GraphView) -> list[EdgeType]:
        known = view.edge_types
        for edge_type in self._config.relations:
            if edge_type not in known:
                raise UsageError(
                    f"there is no edge type {edge_type_text(edge_type)}",
                    where=f"models.{self._name}.relations",
                    hint=f"there are: {', '.join(map(edge_type_text, known))}",
                )
        added = [(target, f"rev_{relation}", source) for source, relation, target in self._config.relations]
        chosen = dict.fromkeys([*self._config.relations, *(each for each in added if each in known)])
        return list(chosen) or known

    def _chosen_features(self) -> dict[str, tuple[str, ...]]:
        types = dict.fromkeys(end for each in self._edge_types for end in (each[0], each[2]))
        known = {name: self._view.features(name) for name in types}
        chosen = self._config.features
        if chosen is None:
            return {
                name: tuple(each for each, spec in specs.items() if spec.kind != "slots")
                for name, specs in known.items()
            }
        for node_type, names in chosen.items():
            for name in names:
                self._view.feature(node_type, name)  # which refuses what may not be read
        return {name: chosen.get(name, ()) for name in types}

    def _graph_of(self, view: GraphView) -> GraphView | TieredGraph:
        """Return what is sampled of a graph that shows more than that of training."""
        shown = view.with_reverse_edges() if self._config.reverse else view
        if not isinstance(self._graph, TieredGraph):
            return shown
        if self._shown is None or self._shown[0] is not view:
            on_disk = self._memory.on_disk(shown, self._edge_types)
            budget = self._memory.topology_bytes(1.0 - _TRAINING_SHARE)
            self._shown = view, on_disk.tiered_edges(self._graph, budget)
        return self._shown[1]

    def _graph_to_sample(self) -> GraphView | TieredGraph:
        if not self._memory.graph_on_disk:
            return self._view
        self._view = self._memory.on_disk(self._view, self._edge_types)
        return self._memory.tiered(self._view, topology_share=_TRAINING_SHARE)

    def _inputs_of_view(self, **of_task: Any) -> ModuleInputs:
        view = self._view
        specs = {
            node_type: {name: view.features(node_type)[name] for name in names}
            for node_type, names in self._feature_names.items()
        }
        return ModuleInputs(
            node_types=list(specs),
            edge_types=self._edge_types,
            num_nodes={name: view.num_nodes(name) for name in specs},
            features={
                node_type: {name: spec.dim or 0 for name, spec in each.items()}
                for node_type, each in specs.items()
            },
            num_categories={
                node_type: {name: len(spec.categories) for name, spec in each.items() if spec.categories}
                for node_type, each in specs.items()
            },
            **of_task,
        )

    def _loader_options(self) -> dict[str, Any]:
        return {
            "features": self._feature_names,
            "weight_attr": self._config.weight_attr,
            "time_attr": self._config.time_attr,
            "temporal_strategy": self._config.temporal_strategy,
            "disjoint": self._config.disjoint,
            "edge_features": (),
            "shuffle": True,
            "seed": self._seed,
            "num_threads": self._threads,
            "tables": self.tables() or None,
        }


class OwnClassifier(OwnModuleTrainer):
    """Trains a user's own module to classify nodes."""

    def __init__(self, config: OwnModuleConfig, assignment: Assignment, split: ClassifySplit) -> None:
        if split.has_several:
            raise UsageError(
                "expected a task whose nodes have one class each, received one with several",
                where=f"models.{assignment.name}.task",
                hint="models of kind gnn, and walks, do such a task",
            )
        self._split = split
        self._labels = torch.from_numpy(split.labels)
        if config.time_attr == _TIMESTAMP:
            raise UsageError(
                "expected a feature of nodes, which have no other times, received timestamp",
                where=f"models.{assignment.name}.time_attr",
                hint="name an integer feature of the nodes, or leave it out",
            )
        super().__init__(
            config,
            assignment,
            "validation_accuracy",
            node_type=split.node_type,
            num_classes=len(split.classes),
        )

    def _new_loader(self) -> NeighborLoader:
        return NeighborLoader(
            self._graph,
            dict.fromkeys(self._edge_types, self._config.num_neighbors),
            (self._split.node_type, self._split.nodes("train")),
            self._config.batch_size,
            part=self._processes.shard,
            **self._loader_options(),
        )

    def loss(self, drawn: Any, epoch: int, batch: int) -> tuple[Tensor, int]:  # noqa: ARG002
        """Return the module's loss of a batch of nodes, or this process's share of it."""
        node_type, size = self._split.node_type, self._config.batch_size
        store = _store(drawn, node_type)
        seeds = store.n_id[: int(store.batch_size)]
        store.y = self._labels[seeds.cpu()].to(self._device)
        drawn.input_type = node_type
        whole = min(size, len(self._split.nodes("train")) - batch * size)
        return self._processes.share(self._loss_of(drawn), len(seeds), whole), whole

    def measured(self) -> dict[str, float]:
        """Return the accuracy on the validation part."""
        nodes = self._split.nodes("validation")
        logits = self._outputs(self._split.node_type, nodes, None, len(self._split.classes))
        right = logits.argmax(dim=1) == self._labels[torch.from_numpy(nodes)]
        return {"validation_accuracy": float(right.double().mean())}

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return logits of all nodes of the task's type, which are their vectors, too."""
        self.network.eval()
        node_type = self._split.node_type
        with self._optimization.averaged(), torch.no_grad():
            logits = self._outputs_of_type(node_type, view, len(self._split.classes)).numpy()
        return TrainedModel(
            name, "embedding", self._config.task, node_type, {node_type: logits}, logits=logits
        )


class OwnLinkModel(OwnModuleTrainer):
    """Trains a user's own module to find links, by inner products of its vectors."""

    def __init__(
        self, config: OwnModuleConfig, assignment: Assignment, split: RecommendSplit | LinkSplit
    ) -> None:
        task = assignment.task
        assert isinstance(task, RecommendTaskConfig | PredictLinksTaskConfig)  # noqa: S101 - as the split is
        self._split = split
        self._validation = TowerValidation(split, task, seed=assignment.seed, threads=assignment.threads)
        self._links, self._times = _links_of(split, config, assignment.name)
        self._degree = np.bincount(
            self._links[:, 1], minlength=assignment.view.num_nodes(split.target_type)
        ).astype(np.int64)
        super().__init__(
            config,
            assignment,
            self._validation.metric,
            node_type=split.node_type,
            target_type=split.target_type,
        )

    def _new_loader(self) -> LinkNeighborLoader:
        split = self._split
        of_task = [(split.node_type, relation, split.target_type) for relation in split.relations]
        seen = [each for each in of_task if each in self._view.edge_types]
        if not seen:
            raise UsageError(
                "expected a task of which some relation is not held out as a whole, received one of "
                f"{', '.join(split.relations)}",
                where=f"models.{self._name}.task",
                hint="name a relation that the module may see in its batches",
            )
        ends = {split.node_type, split.target_type}
        return LinkNeighborLoader(
            self._graph,
            dict.fromkeys(self._edge_types, self._config.num_neighbors),
            (seen[0], np.ascontiguousarray(self._links.T)),
            edge_label_time=self._times,
            batch_size=self._config.batch_size,
            neg_sampling=NegativeSampling("binary", self._config.negatives),
            avoid_known_positives=True,
            exclude_seed_edges=[each for each in self._edge_types if {each[0], each[2]} == ends],
            **self._loader_options(),
        )

    def loss(self, drawn: Any, epoch: int, batch: int) -> tuple[Tensor, int]:  # noqa: ARG002
        """Return the module's loss of a batch of links and negatives."""
        size = self._config.batch_size
        return self._loss_of(drawn), min(size, len(self._links) - batch * size)

    def measured(self) -> dict[str, float]:
        """Return ranking or classification figures of the validation part."""
        sources, targets = self._towers(None)
        return self._validation.figures(self._view, self._degree, sources, targets)

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the vectors of sources and targets."""
        self.network.eval()
        with self._optimization.averaged(), torch.no_grad():
            sources, targets = self._towers(view)
        ends = (self._split.node_type, self._split.target_type)
        return TrainedModel.of_towers(name, self._config.task, ends, sources, targets)

    def _towers(self, view: GraphView | None) -> tuple[Tensor, Tensor]:
        sources = self._outputs_of_type(self._split.node_type, view)
        if self._split.within_one_type:
            return sources, sources
        return sources, self._outputs_of_type(self._split.target_type, view, sources.shape[1])


def make_own_module_trainer(config: OwnModuleConfig, assignment: Assignment) -> OwnModuleTrainer:
    """Return the trainer of a section of kind ``module``.

    Raises:
        UsageError: the task is of another kind.
    """
    split = assignment.split
    if isinstance(split, ClassifySplit):
        return OwnClassifier(config, assignment, split)
    if isinstance(split, RecommendSplit | LinkSplit):
        return OwnLinkModel(config, assignment, split)
    raise assignment.wrong_task(config)


def _links_of(
    split: RecommendSplit | LinkSplit, config: OwnModuleConfig, model: str
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return the links to learn from, int64 [n, 2], and with ``time_attr`` the time of each.

    Raises:
        UsageError: they have no times.
    """
    if config.time_attr is None:
        return split.known("train"), None
    if not isinstance(split, LinkSplit) or not split.is_stream:
        raise UsageError(
            f"expected links with times, received those of a task of kind {split.KIND} that is not split by "
            "time",
            where=f"models.{model}.time_attr",
            hint="give the task of kind predict_links `split: {kind: time}`, or leave time_attr out",
        )
    part = split.part("train")
    return part.edges, part.time


def _store(batch: Any, node_type: str) -> Any:
    """Return what a batch has of a node type: PyG's ``Data`` has one type, and is that itself."""
    return batch[node_type] if hasattr(batch, "node_types") else batch
