"""The model version that an exporter writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.artifact import Artifact, ArtifactWriter, Lineage, TargetSpec
from graphbox.artifact.manifest import Kind, is_plain_name
from graphbox.export.parity import ParityReport
from graphbox.graph.live_rows import LiveRows

Float = npt.NDArray[np.float32]
Metrics = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class NewVersion:
    """A model version to be written.

    Attributes:
        folder: of the version, to be made.
        name: of the model.
        version: its number.
        task: that the model was trained on, or None.
        metrics: ``{task: {metric: value}}``, as measured after training.
        lineage: where it comes from.
        links: known links, from `links_of` or `links_of_triples`.
    """

    folder: str | os.PathLike[str]
    name: str
    version: int
    task: str | None
    metrics: Metrics | None = None
    lineage: Lineage | None = None
    links: pa.Table | None = None

    def commit(
        self,
        writer: ArtifactWriter,
        kind: Kind,
        dim: int,
        targets: Mapping[str, TargetSpec] | None = None,
        check: Callable[[Artifact], Metrics | None] | None = None,
    ) -> Artifact:
        """Complete what was written with the manifest, and move it into place.

        Raises:
            ConflictError: when the folder exists.
        """
        if self.links is not None:
            writer.set_links(self.links)
        return writer.commit(
            name=self.name,
            version=self.version,
            kind=kind,
            task=self.task,
            dim=dim,
            targets=targets or {},
            metrics=self.metrics,
            lineage=self.lineage,
            check=check,
        )


@dataclass(frozen=True)
class ExportResult:
    """A written artifact, and how far it is from the trained model (None where nothing is computed)."""

    artifact: Artifact
    parity: ParityReport | None = None


def add_rows(
    writer: ArtifactWriter,
    ids: Mapping[str, pa.Array],
    rows: Mapping[str, Float],
    taken: Collection[str] = (),
) -> dict[str, str]:
    """Write ids and rows of the live nodes of each type; return the name of each one's table.

    Args:
        writer: of the version.
        ids: original ids by node type, null of removed nodes.
        rows: by node type, float32 [nodes, dim].
        taken: names that other tables have.
    """
    tables: dict[str, str] = {}
    for node_type, values in ids.items():
        # A node type may be written in any script; a folder of an artifact may not.
        wanted = node_type if is_plain_name(node_type) else f"node_type_{len(tables)}"
        tables[node_type] = free_name(wanted, {*tables.values(), *taken})
        live = LiveRows.of_ids(values)
        writer.add_ids(node_type, live.select_ids(values))
        writer.add_table(tables[node_type], node_type, live.select(np.asarray(rows[node_type])))
    return tables


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Return ``wanted``, lengthened until it is in ``taken`` no more."""
    while wanted in taken:
        wanted += "_"
    return wanted
