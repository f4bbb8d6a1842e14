"""The last stage: batches as PyTorch Geometric's data, as torch tensors, or left as NumPy arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from graphbox.errors import BackendMissingError, UsageError, missing_extra
from graphbox.sample.adjacency import GraphLike
from graphbox.sample.gather import pooled_array
from graphbox.sample.loader.batch import Batch
from graphbox.sample.pinned import to_device
from graphbox.sample.sampled import HeteroSample

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import Data, HeteroData

Output: TypeAlias = Literal["pyg", "torch", "numpy"]
"""Form of batches: ``Data`` or ``HeteroData``, or :class:`Batch` of torch tensors or NumPy arrays."""

Record = TypeVar("Record")


def assembly(
    output: Output, graph: GraphLike, device: torch.device | None = None
) -> Callable[[Batch[Any]], Any]:
    """Return what turns a batch of NumPy arrays, or tensors on a device, into the wanted form.

    Args:
        output: the form.
        graph: of the batches.
        device: where tensors are to be; None: in host memory.

    Raises:
        UsageError: an unknown form, or arrays on a device.
        BackendMissingError: torch or PyTorch Geometric is needed and not installed.
    """
    if output == "numpy" and device is not None:
        raise UsageError(
            f"expected pyg or torch for batches on {device}, received {output!r}", where="output"
        )
    if output == "numpy":
        return lambda batch: batch
    if output == "torch":
        _load("torch")
        return partial(as_torch, device=device)
    if output == "pyg":
        single = len(graph.node_types) == 1 and len(graph.edge_types) == 1
        return (_SingleTypeData if single else _HeteroData)(_load("torch_geometric.data"), device)
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


def as_torch(batch: Batch[Any], *, device: torch.device | None = None) -> Batch[torch.Tensor]:
    """Return a batch with its arrays as torch tensors: of the same memory, or copies on a device."""
    converted: Batch[torch.Tensor] = _converted(batch, device)
    return converted


def sample_as_torch(sample: HeteroSample[Any]) -> HeteroSample[torch.Tensor]:
    """Return a sample with its arrays as torch tensors of the same memory."""
    converted: HeteroSample[torch.Tensor] = _converted(sample, None)
    return converted


def _converted(record: Any, device: torch.device | None) -> Any:
    changes = {field.name: _tensor(getattr(record, field.name), device) for field in fields(record)}
    return replace(record, **changes)


def _tensor(value: Any, device: torch.device | None) -> Any:
    if isinstance(value, np.ndarray):
        import torch

        return torch.from_numpy(value) if device is None else to_device(value, device)
    if isinstance(value, Mapping):
        return {key: _tensor(each, device) for key, each in value.items()}
    return _converted(value, device) if hasattr(value, "__dataclass_fields__") else value


class _SingleTypeData:
    """Makes ``Data`` of batches of a graph with one node and one edge type."""

    def __init__(self, module: Any, device: torch.device | None) -> None:
        self._module = module
        self._device = device

    def __call__(self, batch: Batch[Any]) -> Data:
        sample = batch.sample
        attributes: dict[str, Any] = {}
        for node_type in sample.nodes:
            attributes |= _node_attributes(batch, node_type, self._device)
        for edge_type in sample.row:
            attributes |= _edge_attributes(batch, edge_type, self._device)
        for _, name, value in batch.seeds.attributes():
            attributes[name] = _tensor(value, self._device)
        return self._module.Data(**attributes)


class _HeteroData:
    """Makes ``HeteroData`` of batches of a graph with several types."""

    def __init__(self, module: Any, device: torch.device | None) -> None:
        self._module = module
        self._device = device

    def __call__(self, batch: Batch[Any]) -> HeteroData:
        sample = batch.sample
        data: Any = self._module.HeteroData()
        for node_type in sample.nodes:
            data[node_type].update(_node_attributes(batch, node_type, self._device))
        for edge_type in sample.row:
            data[edge_type].update(_edge_attributes(batch, edge_type, self._device))
        for place, name, value in batch.seeds.attributes():
            setattr(data if place is None else data[place], name, _tensor(value, self._device))
        return data


def _node_attributes(batch: Batch[Any], node_type: str, device: torch.device | None) -> dict[str, Any]:
    sample = batch.sample
    nodes = sample.nodes[node_type]
    attributes = {
        "n_id": _tensor(nodes, device),
        "num_nodes": len(nodes),
        "num_sampled_nodes": sample.num_sampled_nodes[node_type],
    }
    if node_type in sample.trees:
        attributes["batch"] = _tensor(sample.trees[node_type], device)
    for name, rows in batch.features.get(node_type, {}).items():
        attributes[name] = _tensor(rows, device)
    return attributes


def _edge_attributes(batch: Batch[Any], edge_type: Any, device: torch.device | None) -> dict[str, Any]:
    sample = batch.sample
    attributes = {
        "edge_index": _tensor(_stacked(sample.row[edge_type], sample.col[edge_type]), device),
        "e_id": _tensor(sample.edge_ids[edge_type], device),
        "num_sampled_edges": sample.num_sampled_edges[edge_type],
    }
    if edge_type in sample.weight:
        attributes["edge_weight"] = _tensor(sample.weight[edge_type], device)
    if edge_type in sample.timestamp:
        attributes["edge_time"] = _tensor(sample.timestamp[edge_type], device)
    for name, rows in batch.edge_features.get(edge_type, {}).items():
        attributes[name] = _tensor(rows, device)
    return attributes


def _stacked(rows: Any, cols: Any) -> Any:
    """Return [2, edges], of memory that is used again: fresh memory costs more than the copy."""
    if not isinstance(rows, np.ndarray):
        import torch

        return torch.stack([rows, cols])
    edge_index = pooled_array((2, len(rows)), rows.dtype)
    edge_index[0], edge_index[1] = rows, cols
    return edge_index
