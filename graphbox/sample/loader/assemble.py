"""The last stage: batches as PyTorch Geometric's data, as torch tensors, or left as NumPy arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from graphbox.errors import BackendMissingError, UsageError, missing_extra
from graphbox.native import Int64Array
from graphbox.sample.adjacency import GraphLike
from graphbox.sample.gather import pooled_array
from graphbox.sample.loader.batch import Batch

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import Data, HeteroData

__all__ = ["Output", "assembly"]

Output: TypeAlias = Literal["pyg", "torch", "numpy"]
"""What a loader yields: ``Data`` or ``HeteroData``, or :class:`Batch` of torch tensors or NumPy arrays."""

Record = TypeVar("Record")


def assembly(output: Output, graph: GraphLike) -> Callable[[Batch[Int64Array]], Any]:
    """Return what turns a batch of NumPy arrays into the wanted form.

    Raises:
        UsageError: an unknown form.
        BackendMissingError: torch or PyTorch Geometric is needed and not installed.
    """
    if output == "numpy":
        return lambda batch: batch
    if output == "torch":
        _load("torch")
        return as_torch
    if output == "pyg":
        single = len(graph.node_types) == 1 and len(graph.edge_types) == 1
        return (_SingleTypeData if single else _HeteroData)(_load("torch_geometric.data"))
    raise UsageError(f"expected pyg, torch or numpy, received {output!r}", where="output")


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        missing = missing_extra(module.partition(".")[0], "train")
        raise BackendMissingError(
            missing.message,
            where="output",
            hint=f"{missing.hint}, or ask the loader for plain arrays with output='numpy'",
        ) from None


def as_torch(batch: Batch[Int64Array]) -> Batch[torch.Tensor]:
    """Return a batch with its arrays as torch tensors, which share their memory."""
    converted: Batch[torch.Tensor] = _converted(batch)
    return converted


def _converted(record: Any) -> Any:
    changes = {field.name: _tensor(getattr(record, field.name)) for field in fields(record)}
    return replace(record, **changes)


def _tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        import torch

        return torch.from_numpy(value)
    if isinstance(value, Mapping):
        return {key: _tensor(each) for key, each in value.items()}
    return _converted(value) if hasattr(value, "__dataclass_fields__") else value


class _SingleTypeData:
    """Makes ``Data`` of batches of a graph with one node and one edge type."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, batch: Batch[Int64Array]) -> Data:
        sample = batch.sample
        attributes: dict[str, Any] = {}
        for node_type in sample.nodes:
            attributes |= _node_attributes(batch, node_type)
        for edge_type in sample.rows:
            attributes |= _edge_attributes(batch, edge_type)
        for _, name, value in batch.seeds.attributes():
            attributes[name] = _tensor(value)
        return self._module.Data(**attributes)


class _HeteroData:
    """Makes ``HeteroData`` of batches of a graph with several types."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, batch: Batch[Int64Array]) -> HeteroData:
        sample = batch.sample
        data: Any = self._module.HeteroData()
        for node_type in sample.nodes:
            data[node_type].update(_node_attributes(batch, node_type))
        for edge_type in sample.rows:
            data[edge_type].update(_edge_attributes(batch, edge_type))
        for place, name, value in batch.seeds.attributes():
            setattr(data if place is None else data[place], name, _tensor(value))
        return data


def _node_attributes(batch: Batch[Int64Array], node_type: str) -> dict[str, Any]:
    sample = batch.sample
    nodes = sample.nodes[node_type]
    attributes = {
        "n_id": _tensor(nodes),
        "num_nodes": len(nodes),
        "num_sampled_nodes": sample.nodes_per_hop[node_type],
    }
    if node_type in sample.trees:
        attributes["batch"] = _tensor(sample.trees[node_type])
    for name, rows in batch.features.get(node_type, {}).items():
        attributes[name] = _tensor(rows)
    return attributes


def _edge_attributes(batch: Batch[Int64Array], edge_type: Any) -> dict[str, Any]:
    sample = batch.sample
    attributes = {
        "edge_index": _tensor(_stacked(sample.rows[edge_type], sample.cols[edge_type])),
        "e_id": _tensor(sample.edge_ids[edge_type]),
        "num_sampled_edges": sample.edges_per_hop[edge_type],
    }
    if edge_type in sample.weight:
        attributes["edge_weight"] = _tensor(sample.weight[edge_type])
    if edge_type in sample.timestamp:
        attributes["edge_time"] = _tensor(sample.timestamp[edge_type])
    return attributes


def _stacked(rows: Int64Array, cols: Int64Array) -> Int64Array:
    """Return [2, edges], of memory that is used again: fresh memory costs more than the copy."""
    edge_index = pooled_array((2, len(rows)), rows.dtype)
    edge_index[0], edge_index[1] = rows, cols
    return edge_index
