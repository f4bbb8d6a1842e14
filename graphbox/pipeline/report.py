"""Results of a run: figures, embeddings with original ids, artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphbox.errors import NotFoundError, UsageError, did_you_mean
from graphbox.workspace import RunRecord, StageRecord, Workspace, read_chunks

if TYPE_CHECKING:
    import pyarrow as pa

    from graphbox.graph import Graph

SHOWN_CHUNKS = 50
"""Number of a stream's chunks that a report lists: the last ones."""


@dataclass(frozen=True)
class RunReport:
    """The results of a run.

    Attributes:
        run: id of the run.
        path: its folder.
        state: state of the run.
        chunks: what became of the last chunks of a stream that it follows.
        training: epochs, batches and seconds of each stage of the training, by model.
        metrics: ``{task: {model: {metric: value}}}``.
        baselines: ``{task: {baseline: {metric: value}}}``.
        baselines_left_out: ``{task: {baseline: why it did not run}}``.
        notes: ``{task: {model: what its validation and test figures mean}}``, where these differ.
        export: errors against the trained model, by artifact.
        compress: sizes, latencies and metric before and after, by artifact.
        bench: latency and throughput, by artifact.
        promotion: which version is active, why, and how the new one compares, by artifact.
        stages: name, state, seconds and peak memory of each stage.
        workspace: where the run is, for what is read from it; None: only the figures are there.
    """

    run: str
    path: Path
    state: str
    chunks: Sequence[Mapping[str, Any]]
    training: Mapping[str, Any]
    metrics: Mapping[str, Any]
    baselines: Mapping[str, Any]
    baselines_left_out: Mapping[str, Any]
    notes: Mapping[str, Any]
    export: Mapping[str, Any]
    compress: Mapping[str, Any]
    bench: Mapping[str, Any]
    promotion: Mapping[str, Any]
    stages: tuple[StageRecord, ...]
    workspace: Workspace | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, record: RunRecord) -> RunReport:
        """Return the report of a run as the workspace has it."""
        parts = {name: record.report.get(name, {}) for name in ("training", "metrics", "baselines", "export")}
        return cls(
            run=record.id,
            path=record.path,
            state=record.state,
            chunks=read_chunks(record.path)[-SHOWN_CHUNKS:],
            **parts,
            baselines_left_out=record.report.get("baselines_left_out", {}),
            notes=record.report.get("notes", {}),
            compress=record.report.get("compress", {}),
            bench=record.report.get("bench", {}),
            promotion=record.report.get("promotion", {}),
            stages=record.stages,
        )

    def document(self) -> dict[str, Any]:
        """Return the report as plain values, as ``--json`` prints it."""
        return {
            "run": self.run,
            "path": str(self.path),
            "state": self.state,
            "chunks": list(self.chunks),
            "training": self.training,
            "metrics": self.metrics,
            "baselines": self.baselines,
            "baselines_left_out": self.baselines_left_out,
            "notes": self.notes,
            "export": self.export,
            "compress": self.compress,
            "bench": self.bench,
            "promotion": self.promotion,
            "stages": [
                {"name": s.name, "state": s.state, "seconds": s.seconds, "peak_bytes": s.peak_bytes}
                for s in self.stages
            ],
        }

    def embeddings(
        self, node_type: str | None = None, *, model: str | None = None, candidates: bool = False
    ) -> pa.Table:
        """Return the embeddings of a node type with their original ids.

        Args:
            node_type: the node type; None: the only one that has embeddings.
            model: the model; None: the best in the evaluation of the last model's task.
            candidates: return the vectors that nodes have as candidates, where those of one type have two
                (as queries and as candidates). Candidates of another type have these alone. The best
                candidates of a query have the largest inner products with its vector; of a `comirec`, with
                one of its vectors, which are one after the other in a row.

        Returns:
            A table with the columns ``id`` (large_string or int64) and ``vector`` (fixed-size lists of
            float32), in the order of the graph's nodes without removed ones. Its ``to_pandas()`` is a frame;
            ``polars.from_arrow`` takes it as it is.

        Raises:
            NotFoundError: the run has no such model, or it has no embeddings of the node type.
            UsageError: several node types have embeddings, and none is named.
        """
        import numpy as np

        from graphbox.export import embedding_table
        from graphbox.pipeline.run_data import RunData
        from graphbox.train.trained import load_nodes

        trained = RunData.open(self._workspace(), self.run).trained(model)
        of_candidates = (
            {} if trained.target is None else {trained.target_type or trained.node_type: trained.target}
        )
        found = of_candidates if candidates else {**of_candidates, **trained.embeddings}
        if node_type is None and len(found) > 1:
            raise UsageError(
                f"expected one of the node types {', '.join(found)}, received none",
                where=f"model `{trained.name}`",
                hint=f"`embeddings({next(iter(found))!r})`",
            )
        chosen = next(iter(found), None) if node_type is None else node_type
        if chosen is None or chosen not in found:
            what = "vectors of candidates" if candidates else "embeddings"
            known = ", ".join(found) or "none"
            raise NotFoundError(
                f"the model `{trained.name}` has no {what}{'' if chosen is None else f' of `{chosen}`'}",
                where=f"run {self.run}",
                hint=did_you_mean(chosen or "", found) or f"node types that have: {known}",
            )
        nodes = load_nodes(self.path, trained)
        there = np.ones(nodes.num_nodes(chosen), bool)
        there[nodes.removed_nodes(chosen)] = False
        ids, vectors = nodes.arrow_ids(chosen), found[chosen]
        if not there.all():
            ids, vectors = ids.take(np.flatnonzero(there)), vectors[there]
        return embedding_table(ids, vectors)

    def artifacts(self) -> dict[str, Path]:
        """Return the folder of each artifact that the run wrote, by name: the compressed one where there is.

        `graphbox.Artifact.open` and `graphbox.deploy.open_model` take such a folder.

        Raises:
            NotFoundError: an artifact was removed since.
        """
        workspace = self._workspace()
        versions = {
            name: entry["version"] for part in (self.export, self.compress) for name, entry in part.items()
        }
        return {name: workspace.model(name, version).path for name, version in versions.items()}

    def graph(self) -> Graph:
        """Return the graph that the run was trained on, in the version of then.

        Raises:
            NotFoundError: the graph was removed.
            ConflictError: the version is gone.
        """
        from graphbox.pipeline.run_data import RunData

        return RunData.open(self._workspace(), self.run).graph

    def _workspace(self) -> Workspace:
        if self.workspace is None:
            raise UsageError(
                "expected the report of `graphbox.run`, received one without a workspace",
                where=f"run {self.run}",
            )
        return self.workspace
