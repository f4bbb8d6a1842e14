"""Search of a workspace for nodes: in the graph, runs, model versions, logs and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphbox.artifact import Artifact
from graphbox.artifact.forgetting import nodes_held, updates_hold
from graphbox.artifact.ids import ids_of_kind
from graphbox.config import load_config
from graphbox.errors import ConflictError, GraphboxError, NotFoundError
from graphbox.pipeline.run_graph import open_run_graph
from graphbox.workspace import GraphRecord, ModelRecord, RunRecord, Workspace
from graphbox.workspace.redaction import Redactor

if TYPE_CHECKING:
    from graphbox.graph import Graph

_RUN_FOLDERS = ("checkpoints", "failed", "processes", "serving", "splits", "tables")
"""Folders of a run that name nodes of its version of the graph, which is gone when nodes were removed."""

_NAMED_TABLES = 3

GivenIds = Mapping[str, pa.Array]
RunIndices = Mapping[str, Mapping[str, NDArray[np.int64]]]


@dataclass(frozen=True)
class Holding:
    """Something that holds nodes which are to be forgotten.

    Attributes:
        kind: ``graph``, ``run``, ``model`` or ``log``.
        name: of the graph, the run, or the model with its version.
        part: which part of it: a trained model of a run; empty for all of it.
        nodes: how many of the nodes it holds; of logs how many times they name one.
    """

    kind: Literal["graph", "run", "model", "log"]
    name: str
    part: str
    nodes: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {"kind": self.kind, "name": self.name, "part": self.part, "nodes": self.nodes}


class Holdings:
    """Looks for nodes of one graph in a workspace.

    Args:
        workspace: where to look.
        graph: name of the graph; it may be gone.
        ids: original ids as text (large_string), by node type.
        indices: node indices of these ids by run and node type; None: asked of the versions of the graph
            that the runs keep.
    """

    def __init__(
        self, workspace: Workspace, graph: str, ids: GivenIds, indices: RunIndices | None = None
    ) -> None:
        self.workspace = workspace
        self.graph = graph
        self.ids = ids
        self.redactor = Redactor(text for texts in ids.values() for text in texts.to_pylist())
        self.runs = runs_of(workspace, graph)
        self.unreached: dict[str, None] = {}
        self.indices: RunIndices = self._asked_indices() if indices is None else indices

    def record(self) -> GraphRecord | None:
        """Return the graph, None where the workspace has none of that name."""
        try:
            return self.workspace.graph(self.graph)
        except NotFoundError:
            return None

    def in_graph(self) -> dict[str, pa.Array]:
        """Return the ids that the graph has, by node type."""
        from graphbox.graph import Graph

        record = self.record()
        if record is None:
            return {}
        found = {}
        graph = Graph.open(record.path)
        for node_type, ids in self._of_graph(graph):
            held = ids.filter(pa.array(graph.index(node_type, ids, missing=-1) >= 0))
            if len(held):
                found[node_type] = held
        return found

    def in_runs(self) -> Iterator[tuple[RunRecord, str, dict[str, NDArray[np.int64]]]]:
        """Yield each trained model that holds nodes: its run, its name, and the nodes by type."""
        from graphbox.train.forgetting import nodes_of_model, trained_models, unnamed_types

        for run in self.runs:
            indices = self.indices.get(run.id, {})
            for name in trained_models(run.path):
                try:
                    nodes = nodes_of_model(run.path, name, self.ids, indices)
                except GraphboxError as error:
                    self._not_reached(f"model `{name}` of run {run.id} cannot be read: {error.message}")
                    continue
                for node_type in unnamed_types(run.path, name).intersection(self.ids).difference(indices):
                    self._not_reached(
                        f"rows of `{node_type}` in model `{name}` of run {run.id}: only its version of the "
                        f"graph, which is gone, says whose they are; `graphbox runs rm {run.id}` removes them"
                    )
                if nodes:
                    yield run, name, nodes

    def in_models(self) -> Iterator[tuple[ModelRecord, Artifact, dict[str, NDArray[np.int64]]]]:
        """Yield each model version of the graph that holds nodes, and the nodes by type."""
        run_ids = {run.id for run in self.runs}
        for record in self.workspace.models():
            try:
                artifact = Artifact.open(record.path, verify=False)
                nodes = nodes_held(artifact, self.ids)
                is_held = bool(nodes) or network_holds(artifact, self.ids)
                is_held = is_held or updates_hold(artifact, self.ids)
            except GraphboxError as error:
                self._not_reached(
                    f"model {record.name} version {record.version} cannot be read: {error.message}"
                )
                continue
            if not is_held:
                continue
            if record.run_id in run_ids or artifact.manifest.lineage.graph == self.graph:
                yield record, artifact, nodes
            else:
                made_of = artifact.manifest.lineage.graph or "an unknown graph"
                self._not_reached(
                    f"model {record.name} version {record.version}, which was made of {made_of}, has nodes "
                    "with these ids"
                )

    def folders(self, run: RunRecord) -> Iterator[Path]:
        """Yield the folders of a run that name nodes in ways that only its version of the graph can tell."""
        yield from (run.path / name for name in _RUN_FOLDERS if (run.path / name).is_dir())

    def found(self) -> list[Holding]:
        """Return all that holds nodes."""
        held = self.in_graph()
        holdings = [Holding("graph", self.graph, "", sum(map(len, held.values())))] if held else []
        holdings += [Holding("run", run.id, name, _count(nodes)) for run, name, nodes in self.in_runs()]
        holdings += [
            Holding("model", f"{record.name} version {record.version}", "", _count(nodes))
            for record, _, nodes in self.in_models()
        ]
        for run in self.runs:
            if named := self.redactor.count_in_files(run.path):
                holdings.append(Holding("log", run.id, "", named))
        return holdings

    def elsewhere(self) -> list[str]:
        """Return what this does not reach, each as a sentence."""
        for record in self.workspace.graphs():
            if record.name != self.graph and record.path.is_dir():
                self._look_into_graph(record)
        for run in self.runs:
            self._name_tables(run)
        return list(self.unreached)

    def _look_into_graph(self, record: GraphRecord) -> None:
        """Note another graph of the workspace that has the ids, or that cannot be read."""
        from graphbox.graph import Graph

        try:
            graph = Graph.open(record.path)
        except GraphboxError as error:
            self._not_reached(f"the graph `{record.name}` cannot be read: {error.message}")
            return
        count = sum(
            int((graph.index(node_type, ids, missing=-1) >= 0).sum())
            for node_type, ids in self._of_graph(graph)
        )
        if count:
            self._not_reached(
                f"the graph `{record.name}` has {count:,} nodes with these ids: "
                f"`graphbox forget {record.name} ...` forgets those"
            )

    def _name_tables(self, run: RunRecord) -> None:
        """Note the tables that the graph of a run was made of."""
        try:
            config = load_config(run.path / "config.yaml", check_files=False)
        except GraphboxError as error:
            self._not_reached(f"the tables of run {run.id}, whose run file cannot be read: {error.message}")
            return
        paths = [each.path for each in config.graph.nodes.values() if each.path is not None]
        if tables := [*dict.fromkeys([*paths, *(each.path for each in config.graph.edges)])]:
            named = ", ".join(tables[:_NAMED_TABLES])
            more = f" and {len(tables) - _NAMED_TABLES} more" if len(tables) > _NAMED_TABLES else ""
            self._not_reached(
                f"your own tables, {named}{more}: where these name them, importing brings them back"
            )
        elif config.graph.is_stored:
            self._not_reached(
                f"the data of your own that `{self.graph}` was made of: storing it again brings them back"
            )

    def _not_reached(self, sentence: str) -> None:
        self.unreached[sentence] = None

    def _of_graph(self, graph: Graph) -> Iterator[tuple[str, pa.Array]]:
        """Yield the given ids of each type that a graph has, as it keeps them."""
        for node_type, texts in self.ids.items():
            if node_type in graph.node_types:
                yield node_type, ids_of_kind(texts, graph.id_type(node_type))

    def _asked_indices(self) -> RunIndices:
        found = {}
        for run in self.runs:
            graph = self._graph_of(run)
            if graph is not None:
                nodes = {
                    node_type: np.unique(graph.index(node_type, ids, missing=-1))
                    for node_type, ids in self._of_graph(graph)
                }
                found[run.id] = {node_type: held[held >= 0] for node_type, held in nodes.items()}
        return found

    def _graph_of(self, run: RunRecord) -> Graph | None:
        """Return the version of the graph that a run was trained on, None where it is gone."""
        from graphbox.graph import Graph

        if follows(run):  # its graph is the one that it changes
            record = self.record()
            return None if record is None else Graph.open(record.path)
        imported = _imported(run)
        if imported is None:
            return None
        try:
            return open_run_graph(self.workspace, run.id, imported)
        except (ConflictError, NotFoundError):
            return None


def _count(nodes: Mapping[str, NDArray[np.int64]]) -> int:
    return sum(map(len, nodes.values()))


def network_holds(artifact: Artifact, ids: GivenIds) -> bool:
    """Return whether the graph network of a model version has rows of nodes with some ids."""
    from graphbox.train import load_network
    from graphbox.train.forgetting import holds_rows

    if artifact.manifest.network is None:
        return False
    return holds_rows(load_network(artifact.path / artifact.manifest.network, may_import=False), ids)


def runs_of(workspace: Workspace, graph: str) -> list[RunRecord]:
    """Return the runs that were made of a graph, and those that are to be."""
    return [run for run in workspace.runs() if run.path.is_dir() and _graph_name(run) == graph]


def follows(run: RunRecord) -> bool:
    """Return whether a run learns from a stream."""
    return any(stage.name == "follow" for stage in run.stages)


def _graph_name(run: RunRecord) -> str | None:
    imported = _imported(run)
    if imported is not None:
        return str(imported["graph"])
    try:
        return load_config(run.path / "config.yaml", check_files=False).graph.name
    except GraphboxError:
        return None


def _imported(run: RunRecord) -> Mapping[str, Any] | None:
    """Return what a run noted about its graph."""
    return next(
        (
            stage.outputs
            for stage in run.stages
            if stage.name in ("import", "follow") and "graph" in stage.outputs
        ),
        None,
    )
