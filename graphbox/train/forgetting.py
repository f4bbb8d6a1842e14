"""Takes nodes out of the trained models of a run: their vectors, rows, ids and places in neighbourhoods."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from graphbox.artifact.ids import ids_of_kind
from graphbox.durable import flush_to_disk
from graphbox.graph import Graph
from graphbox.graph.schema import IdType
from graphbox.train.network.trained_network import TrainedNetwork, TrainedRows
from graphbox.train.recommendation.sage_encoder import SageEncoder
from graphbox.train.trained import TrainedModel, load_nodes, load_trained, nodes_without, save_trained

_BESIDE = ".forgetting"
_READY = "ready"
_FOLDERS = ("embeddings", "trained")

Int64 = NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)


def trained_models(run_folder: Path) -> list[str]:
    """Return the names of the trained models of a run, sorted."""
    return sorted(path.parent.name for path in (run_folder / "trained").glob("*/trained.json"))


def unnamed_types(run_folder: Path, name: str) -> set[str]:
    """Return the node types of which a trained model has rows by index, and the run has no ids.

    Args:
        run_folder: folder of the run.
        name: of the model.

    Raises:
        FormatError: a file is damaged or missing.
    """
    trained = load_trained(run_folder, name)
    inputs = {} if trained.encoder is None else trained.encoder.inputs
    return inputs.keys() - load_nodes(run_folder, trained).node_types


def nodes_of_model(
    run_folder: Path, name: str, ids: Mapping[str, pa.Array], indices: Mapping[str, Int64]
) -> dict[str, Int64]:
    """Return which of some nodes a trained model holds, ascending, by node type; {}: none.

    Args:
        run_folder: folder of the run.
        name: of the model.
        ids: original ids as text (large_string) by node type.
        indices: node indices of these ids in the graph of the run, by node type, where they are known.

    Raises:
        FormatError: a file is damaged or missing.
    """
    trained = load_trained(run_folder, name)
    return _nodes(load_nodes(run_folder, trained), trained, ids, indices)


def _nodes(
    graph: Graph, trained: TrainedModel, ids: Mapping[str, pa.Array], indices: Mapping[str, Int64]
) -> dict[str, Int64]:
    found = {}
    for node_type, wanted in ids.items():
        held: Int64 = np.zeros(0, np.int64)
        if node_type not in graph.node_types:  # the run wrote no ids of this type
            held = _nodes_with_inputs(trained, node_type, indices.get(node_type, held))
        else:
            known = ids_of_kind(wanted, graph.id_type(node_type))
            held = np.unique(graph.index(node_type, known, missing=-1))
            held = held[held >= 0]
        rows = None if trained.network is None else trained.network.rows.get(node_type)
        if len(held) or (rows is not None and _held(rows, wanted).any()):
            found[node_type] = held
    return found


def _nodes_with_inputs(trained: TrainedModel, node_type: str, nodes: Int64) -> Int64:
    """Return the nodes of which an encoder has rows that are not zero."""
    rows = None if trained.encoder is None else trained.encoder.inputs.get(node_type)
    if rows is None:
        return nodes[:0]
    nodes = np.unique(nodes[nodes < len(rows)])
    found: Int64 = nodes[np.any(rows[nodes] != 0, axis=1)]
    return found


def forget_in_model(
    run_folder: Path, name: str, ids: Mapping[str, pa.Array], indices: Mapping[str, Int64]
) -> dict[str, Int64]:
    """Rewrite the files of a trained model without some nodes; return which nodes it held.

    The new files are written beside the old ones and moved into their places when all of them are on the
    disk. Where the process is killed in between, :func:`finish_forgetting` ends it.

    Args:
        run_folder: folder of the run, whose lock is held.
        name: of the model.
        ids: original ids as text (large_string) by node type.
        indices: see :func:`nodes_of_model`.

    Raises:
        FormatError: a file is damaged or missing.
    """
    trained = load_trained(run_folder, name)
    graph = load_nodes(run_folder, trained)
    nodes = _nodes(graph, trained, ids, indices)
    if not nodes:
        return nodes
    beside = run_folder / _BESIDE
    if beside.exists():
        shutil.rmtree(beside)
    save_trained(_without(trained, nodes, ids), nodes_without(graph, nodes), beside)
    folder = run_folder / "trained" / name
    for file in folder.iterdir():
        if file.is_file() and not (beside / "trained" / name / file.name).exists() and _stays(file):
            shutil.copyfile(file, beside / "trained" / name / file.name)
    _sync(beside)
    (beside / _READY).write_text(name)
    _sync(beside)
    finish_forgetting(run_folder)
    return nodes


def _stays(file: Path) -> bool:
    """Return whether a file beside those of :func:`save_trained` says nothing of single nodes."""
    return file.suffix == ".json"


def finish_forgetting(run_folder: Path) -> None:
    """Move what :func:`forget_in_model` has written into place, if it was killed before its end."""
    beside = run_folder / _BESIDE
    if (beside / _READY).exists():
        name = (beside / _READY).read_text()
        for folder in _FOLDERS:
            new, place = beside / folder / name, run_folder / folder / name
            old = beside / f"{folder}.old"
            if new.exists():
                if place.exists():
                    place.rename(old)
                new.rename(place)
                flush_to_disk(place.parent)
    if beside.exists():
        (beside / _READY).unlink(missing_ok=True)
        shutil.rmtree(beside)


def _sync(folder: Path) -> None:
    """Flush all files and folders below a folder to the disk."""
    for path in (folder, *folder.rglob("*")):
        flush_to_disk(path)


def _without(trained: TrainedModel, nodes: Mapping[str, Int64], ids: Mapping[str, pa.Array]) -> TrainedModel:
    """Return a model that knows nothing of some nodes: zeros where they had rows."""
    queried = nodes.get(trained.node_type)
    target = trained.target
    if target is not None and trained.target_type is not None:
        target = _blanked(target, nodes.get(trained.target_type))
    return replace(
        trained,
        embeddings={
            node_type: _blanked(vectors, nodes.get(node_type))
            for node_type, vectors in trained.embeddings.items()
        },
        target=target,
        logits=None if trained.logits is None else _blanked(trained.logits, queried),
        # Of edges of the test part, which nobody can name without the graph that it was made of.
        link_scores=None,
        encoder=None if trained.encoder is None else _encoder_without(trained.encoder, nodes),
        network=None if trained.network is None else without_rows(trained.network, ids),
    )


def _blanked(values: NDArray[Number], nodes: Int64 | None) -> NDArray[Number]:
    if nodes is None or not len(nodes):
        return values
    found = np.array(values)
    found[nodes] = 0
    return found


def _encoder_without(encoder: SageEncoder, nodes: Mapping[str, Int64]) -> SageEncoder:
    neighbors = {}
    for relation, table in encoder.neighbors.items():
        source, _, target = relation
        sampled = np.array(table)
        if source in nodes:
            sampled[np.isin(sampled, nodes[source])] = -1
        if target in nodes:
            sampled[nodes[target]] = -1
        # Absent places come last.
        order = np.argsort(sampled < 0, axis=1, kind="stable")
        neighbors[relation] = np.take_along_axis(sampled, order, axis=1)
    queried = nodes.get(encoder.model.node_type)
    return replace(
        encoder,
        inputs={name: _blanked(rows, nodes.get(name)) for name, rows in encoder.inputs.items()},
        neighbors=neighbors,
        query=_blanked(encoder.query, queried),
        target=_blanked(encoder.target, queried),
    )


@dataclass(frozen=True, eq=False)
class _RemainingRows:
    """Rows of training without those of some nodes."""

    ids: pa.Array
    rows: TrainedRows
    kept: Int64

    def take(self, nodes: Int64) -> NDArray[np.float32]:
        return self.rows.take(self.kept[nodes])


def holds_rows(network: TrainedNetwork, ids: Mapping[str, pa.Array]) -> bool:
    """Return whether a graph network has rows of nodes with some ids, see :func:`without_rows`."""
    held = [_held(rows, ids[name]).any() for name, rows in network.rows.items() if name in ids]
    if network.positions is not None and network.head.node_type in ids:
        held.append(_held(network.positions, ids[network.head.node_type]).any())
    return any(held)


def without_rows(network: TrainedNetwork, ids: Mapping[str, pa.Array]) -> TrainedNetwork:
    """Return a graph network without the rows of the nodes that have some ids.

    Args:
        network: the network.
        ids: original ids as text (large_string) by node type.
    """
    rows = {
        name: _remaining(trained, ids[name]) if name in ids else trained
        for name, trained in network.rows.items()
    }
    positions, node_type = network.positions, network.head.node_type
    if positions is not None and node_type in ids:
        positions = _remaining(positions, ids[node_type])
    return replace(network, rows=rows, positions=positions)


def _remaining(rows: TrainedRows, ids: pa.Array) -> TrainedRows:
    held = _held(rows, ids)
    if not held.any():
        return rows
    kept = np.flatnonzero(~held)
    return _RemainingRows(rows.ids.take(pa.array(kept)), rows, kept)


def _held(rows: TrainedRows, ids: pa.Array) -> NDArray[np.bool_]:
    """Return which rows have one of some ids: bool [rows]."""
    kind: IdType = "int64" if pa.types.is_integer(rows.ids.type) else "string"
    wanted = ids_of_kind(ids, kind).cast(rows.ids.type)
    found = pc.is_in(rows.ids, value_set=wanted, skip_nulls=True)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)
