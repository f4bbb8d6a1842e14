"""A trained network on disk: ``network.json``, ``network.safetensors``, and the rows of each node type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from graphbox.config import GraphNetworkConfig, MlpConfig, NetworkConfig, TwoTowerConfig
from graphbox.durable import write_atomically
from graphbox.errors import FormatError
from graphbox.graph.schema import edge_type_from_text, edge_type_text
from graphbox.models.features import LearntFeature
from graphbox.models.graph_inputs import POSITION
from graphbox.train.network.trained_network import (
    ClassHead,
    Head,
    LinkHead,
    StoredRows,
    TrainedNetwork,
    TrainedRows,
)

_FORMAT = "graphbox-network"
_FORMAT_VERSION = 1
_HEADER, _VALUES = "network.json", "network.safetensors"
_BLOCK_ROWS = 65_536

_SECTIONS: Mapping[str, type[NetworkConfig]] = {
    "gnn": GraphNetworkConfig,
    "mlp": MlpConfig,
    "two_tower": TwoTowerConfig,
}


def save_network(network: TrainedNetwork, folder: Path) -> None:
    """Write a network: ``network.json``, ``network.safetensors``, and two files of each type with rows.

    Args:
        network: the network.
        folder: made if need be.
    """
    tensors = {f"value.{name}": value.contiguous() for name, value in network.values.items()}
    types = []
    for number, (node_type, features) in enumerate(network.learnt.items()):
        listed = []
        for place, (name, learnt) in enumerate(features.items()):
            if learnt.slots is not None:
                tensors[f"slots.{number}.{place}"] = torch.from_numpy(learnt.slots)
            listed.append({"name": name, **_about(learnt)})
        rows = network.rows.get(node_type)
        if rows is not None:
            _save_rows(rows, network.config.dim, folder, str(number))
        types.append({"name": node_type, "features": listed, "rows": rows is not None})
    if network.positions is not None:
        _save_rows(network.positions, network.position_width, folder, POSITION)
    header = {
        "format": _FORMAT,
        "version": _FORMAT_VERSION,
        "section": network.config.model_dump(mode="json"),
        "edge_types": network.edge_types,
        "is_merged": network.is_merged,
        "weighted": network.weighted,
        "node_types": types,
        "edge_features": {
            edge_type_text(edge_type): [{"name": name, **_about(each)} for name, each in features.items()]
            for edge_type, features in network.edge_learnt.items()
        },
        "head": {"kind": type(network.head).__name__, **vars(network.head)},
        "positions": network.positions is not None,
    }
    with write_atomically(folder / _VALUES) as stream:
        stream.write(save(tensors))
    with write_atomically(folder / _HEADER) as stream:
        stream.write(json.dumps(header, indent=1).encode())


def load_network(folder: Path, *, may_import: bool) -> TrainedNetwork:
    """Read what :func:`save_network` wrote; rows are memory-mapped.

    Args:
        folder: where it is.
        may_import: allow layers of one's own, whose import path comes from the files: where these are of a
            run, beside the run file that named it.

    Raises:
        FormatError: a file is missing, damaged or of another version, or names code that may not be imported.
    """
    try:
        network = _read(folder)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise FormatError(
            f"expected a {_FORMAT} of version {_FORMAT_VERSION}, received unreadable files: {error}",
            where=str(folder),
            hint="train or export the model again",
        ) from error
    if ":" in network.config.layer and not may_import:
        raise FormatError(
            f"expected a layer that graphbox has, received the import path `{network.config.layer}`",
            where=str(folder),
            hint="only a run file names code",
        )
    return network


def _read(folder: Path) -> TrainedNetwork:
    header = json.loads((folder / _HEADER).read_text())
    if (header["format"], header["version"]) != (_FORMAT, _FORMAT_VERSION):
        raise ValueError(f"{header['format']} version {header['version']}")
    tensors = load_file(folder / _VALUES)
    learnt: dict[str, dict[str, LearntFeature]] = {}
    rows: dict[str, TrainedRows] = {}
    for number, each in enumerate(header["node_types"]):
        learnt[each["name"]] = {
            about["name"]: _learnt(about, tensors.get(f"slots.{number}.{place}"))
            for place, about in enumerate(each["features"])
        }
        if each["rows"]:
            rows[each["name"]] = _load_rows(folder, str(number))
    section = _SECTIONS[header["section"]["kind"]]
    return TrainedNetwork(
        config=section.model_validate(header["section"], strict=False),
        edge_types=tuple((source, relation, target) for source, relation, target in header["edge_types"]),
        is_merged=header["is_merged"],
        weighted=header["weighted"],
        learnt=learnt,
        edge_learnt={
            edge_type_from_text(text): {about["name"]: _learnt(about, None) for about in features}
            for text, features in header.get("edge_features", {}).items()  # which earlier files lack
        },
        values={
            name.removeprefix("value."): value for name, value in tensors.items() if name.startswith("value.")
        },
        rows=rows,
        head=_head(header["head"]),
        positions=_load_rows(folder, POSITION) if header.get("positions") else None,
    )


def _load_rows(folder: Path, name: str) -> StoredRows:
    ids = pq.read_table(folder / f"ids.{name}.parquet")["id"].combine_chunks()
    return StoredRows(ids, np.load(folder / f"rows.{name}.npy", mmap_mode="r", allow_pickle=False))


def _save_rows(rows: TrainedRows, dim: int, folder: Path, name: str) -> None:
    """Write the rows of live nodes, and their ids."""
    live = np.flatnonzero(rows.ids.is_valid().to_numpy(zero_copy_only=False))
    with write_atomically(folder / f"ids.{name}.parquet") as stream:
        ids = pa.table({"id": rows.ids.drop_null()})
        pq.write_table(ids, stream, row_group_size=_BLOCK_ROWS, use_dictionary=False, compression="zstd")
    with write_atomically(folder / f"rows.{name}.npy") as stream:
        shape = (len(live), dim)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, shape[0], _BLOCK_ROWS):
            block = rows.take(live[start : start + _BLOCK_ROWS])
            stream.write(np.ascontiguousarray(block, dtype="<f4").data)


def _about(learnt: LearntFeature) -> dict[str, Any]:
    return {key: value for key, value in vars(learnt).items() if key != "slots"}


def _learnt(about: dict[str, Any], slots: Tensor | None) -> LearntFeature:
    return LearntFeature(
        kind=about["kind"],
        categories=tuple(about["categories"]),
        mean=about["mean"],
        deviation=about["deviation"],
        dim=about["dim"],
        slots=None if slots is None else slots.numpy(),
    )


def _head(about: dict[str, Any]) -> Head:
    if about["kind"] == ClassHead.__name__:
        several = bool(about.get("has_several", False))  # which files of earlier versions lack
        return ClassHead(about["node_type"], tuple(about["classes"]), several)
    return LinkHead(about["node_type"], about["target_type"], tuple(about["relations"]))
