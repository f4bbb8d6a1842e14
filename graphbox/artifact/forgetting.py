"""Writes a copy of a model version without some nodes: their ids, rows, neighbours and links."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from graphbox.artifact.ids import ids_of_kind
from graphbox.artifact.manifest import Lineage
from graphbox.artifact.preprocess import (
    FieldsForm,
    LookupForm,
    PaddedBlockForm,
    RelationGroup,
    TriplesForm,
)
from graphbox.artifact.reader import Artifact, read_parquet
from graphbox.artifact.row_updates import UPDATES_FOLDER
from graphbox.artifact.writer import ArtifactWriter
from graphbox.errors import ConflictError

FORGET_STEP = "forget"
"""Step in the lineage of a version that nodes were taken out of."""

Int64 = npt.NDArray[np.int64]


class _Renumbering:
    """New indices of the nodes of one type when some are taken out.

    Attributes:
        kept: int64, ascending: former indices of the nodes that stay.
    """

    def __init__(self, num_nodes: int, removed: Int64) -> None:
        self.kept = np.delete(np.arange(num_nodes), removed)
        self._new = np.full(num_nodes, -1, np.int64)
        self._new[self.kept] = np.arange(len(self.kept))

    def new(self, nodes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the new indices of nodes, -1 of those taken out; same shape and dtype."""
        found: npt.NDArray[Any] = self._new[nodes].astype(nodes.dtype)
        return found


def nodes_held(artifact: Artifact, ids: Mapping[str, pa.Array]) -> dict[str, Int64]:
    """Return which nodes of a model version have some ids, ascending, by node type; {}: it holds none.

    Args:
        artifact: the model version.
        ids: original ids as text (large_string) by node type.
    """
    found = {}
    for node_type in artifact.node_types:
        if node_type not in ids or _is_of_keys(artifact, node_type):
            continue
        own = artifact.ids(node_type)
        wanted = ids_of_kind(ids[node_type], own.kind)
        held = pc.is_in(own.to_arrow(), value_set=wanted).to_numpy(zero_copy_only=False)
        if held.any():
            found[node_type] = np.flatnonzero(held)
    return found


def updates_hold(artifact: Artifact, ids: Mapping[str, pa.Array]) -> bool:
    """Return whether row updates of a model version have rows of some ids, whether they are active or not.

    Args:
        artifact: the model version.
        ids: original ids as text (large_string) by node type.

    Raises:
        FormatError: the ids of an update cannot be read.
    """
    for file in (artifact.path / UPDATES_FOLDER).glob("*/tables/*/ids.parquet"):
        spec = artifact.manifest.tables.get(file.parent.name)
        if spec is None or spec.node_type not in ids or _is_of_keys(artifact, spec.node_type):
            continue
        held = read_parquet(file, ["id"]).column("id").cast(pa.large_string())
        if pc.any(pc.is_in(held, value_set=ids[spec.node_type].cast(pa.large_string()))).as_py():
            return True
    return False


def _is_of_keys(artifact: Artifact, name: str) -> bool:
    """Return whether the ids of a type are no ids of nodes: keys of values, or names of relations."""
    form = artifact.preprocess
    return isinstance(form, FieldsForm) or (isinstance(form, TriplesForm) and name == form.relation_type)


def write_without(
    artifact: Artifact,
    nodes: Mapping[str, Int64],
    path: str | os.PathLike[str],
    write_network: Callable[[Path], None] | None = None,
) -> Artifact:
    """Write a model version without some nodes to a new folder; name, version and metrics stay.

    The nodes behind them move up. The example request asks about nodes that stay. Weights stay as they were,
    with what was learnt from the nodes.

    Args:
        artifact: the model version.
        nodes: indices of the nodes to take out, ascending, by node type.
        path: the folder to make; it must not exist.
        write_network: writes the graph network without the nodes, where the version has one.

    Returns:
        The new model version.

    Raises:
        ConflictError: ``path`` exists, or nothing of the kind that is asked about would be left.
        DoesNotFitError: the disk is full; nothing is left behind.
    """
    manifest, form = artifact.manifest, artifact.preprocess
    numbers = {
        node_type: _Renumbering(len(artifact.ids(node_type)), nodes.get(node_type, np.zeros(0, np.int64)))
        for node_type in artifact.node_types
    }
    for node_type, renumbering in numbers.items():
        if node_type in nodes and not len(renumbering.kept):
            raise ConflictError(
                f"without these nodes the model would hold no `{node_type}` at all",
                where=str(artifact.path),
                hint=f"remove it: `graphbox models rm {manifest.name}`",
            )
    with ArtifactWriter(path) as writer:
        for node_type, renumbering in numbers.items():
            ids = artifact.ids(node_type).to_arrow()
            writer.add_ids(node_type, ids.take(pa.array(renumbering.kept)))
        for name, spec in manifest.tables.items():
            writer.copy_table(artifact, name, numbers[spec.node_type].kept)
        if manifest.onnx is not None:
            writer.copy_onnx(artifact)
        _write_form(writer, artifact, numbers)
        if manifest.links is not None:
            table = pq.read_table(artifact.path / manifest.links, partitioning=None)
            writer.set_links(_links_without(table, numbers))
        if manifest.network is not None and write_network is not None:
            writer.set_network(write_network)
        if isinstance(form, TriplesForm):
            writer.set_example(_triples_example(artifact, form, numbers))
        steps = manifest.lineage.steps
        if FORGET_STEP not in steps:
            steps = (*steps, FORGET_STEP)
        return writer.commit(
            name=manifest.name,
            version=manifest.version,
            kind=manifest.kind,
            task=manifest.task,
            dim=manifest.dim,
            targets=manifest.targets,
            metrics=manifest.metrics,
            lineage=Lineage(**{**dict(manifest.lineage), "steps": steps}),
        )


def _write_form(writer: ArtifactWriter, artifact: Artifact, numbers: Mapping[str, _Renumbering]) -> None:
    """Write the preprocess, and the arrays that it names."""
    form = artifact.preprocess
    if isinstance(form, LookupForm):
        # Default rows are computed again: a mean of all rows contains those of the nodes taken out.
        writer.set_lookup(form.node_type, form.tables, form.unknown_ids)
        return
    if isinstance(form, PaddedBlockForm):
        for group in form.groups:
            _write_neighbors(writer, artifact, group, numbers)
        _copy_unseen_inputs(writer, artifact, form)
    writer.set_preprocess(form)


def _write_neighbors(
    writer: ArtifactWriter, artifact: Artifact, group: RelationGroup, numbers: Mapping[str, _Renumbering]
) -> None:
    """Write the lists of the nodes that stay, without the neighbours that do not."""
    lists = artifact.neighbor_lists(group)
    count = lists.counts.astype(np.int64)
    number_of_list = np.repeat(np.arange(count.size), count.reshape(-1))
    neighbors = numbers[group.source].new(lists.neighbors)
    stays = np.zeros(len(count), bool)
    stays[numbers[group.target].kept] = True
    chosen = (neighbors >= 0) & stays[number_of_list // count.shape[1]]
    counts = np.bincount(number_of_list[chosen], minlength=count.size).reshape(count.shape)
    writer.add_list_array(group.counts, counts[stays].astype(np.uint16))
    writer.add_list_array(group.neighbors, neighbors[chosen])
    if group.weights is not None and lists.weights is not None:
        writer.add_array(group.weights, lists.weights[chosen])
    if group.edges is not None and lists.edges is not None:
        writer.add_array(group.edges.values, lists.edges[chosen])
    if group.source_scales is not None:
        writer.add_array(
            group.source_scales, artifact.array(group.source_scales, "<f4")[numbers[group.source].kept]
        )


def _copy_unseen_inputs(writer: ArtifactWriter, artifact: Artifact, form: PaddedBlockForm) -> None:
    """Take over how nodes that were never seen enter: it is of features, and holds no node."""
    if form.unseen is None:
        return
    writer.add_array(form.unseen.bias, artifact.array(form.unseen.bias, "<f4"))
    for feature in form.unseen.features:
        writer.add_array(feature.weights, artifact.array(feature.weights, "<f4"))
        if feature.values is not None:
            writer.add_array(feature.values, artifact.array(feature.values, "<i8"))


def _links_without(links: pa.Table, numbers: Mapping[str, _Renumbering]) -> pa.Table:
    """Return links by the new indices of their ends, without those of nodes that are taken out."""
    ends = {}
    for end in ("source", "target"):
        types = links[f"{end}_type"].cast(pa.string()).combine_chunks().dictionary_encode()
        values = links[end].to_numpy().copy()
        of_type = types.indices.to_numpy()
        for number, node_type in enumerate(types.dictionary.to_pylist()):
            if node_type in numbers:
                chosen = of_type == number
                values[chosen] = numbers[node_type].new(values[chosen])
        ends[end] = values
    stays = (ends["source"] >= 0) & (ends["target"] >= 0)
    for end, values in ends.items():
        links = links.set_column(links.column_names.index(end), end, pa.array(values, pa.int64()))
    return links.filter(pa.array(stays))


def _triples_example(
    artifact: Artifact, form: TriplesForm, numbers: Mapping[str, _Renumbering]
) -> list[dict[str, Any]]:
    """Return the example request, which asks about nodes that stay."""
    inputs = artifact.example_inputs()
    relations = next(tensor["data"] for tensor in inputs if tensor["name"] == "relation")
    for tensor in inputs:
        if tensor["name"] == "id":
            tensor["data"] = [
                _asked(artifact, form.ends[relation][0], identifier, numbers)
                for identifier, relation in zip(tensor["data"], relations, strict=True)
            ]
    return inputs


def _asked(
    artifact: Artifact, node_type: str, identifier: str | int, numbers: Mapping[str, _Renumbering]
) -> str | int:
    ids, kept = artifact.ids(node_type), numbers[node_type].kept
    index = ids.find(ids.from_text(str(identifier)))
    if index is not None and numbers[node_type].new(np.array([index]))[0] >= 0:
        return identifier
    other = ids[int(kept[0])]
    return str(other) if isinstance(identifier, str) else other
