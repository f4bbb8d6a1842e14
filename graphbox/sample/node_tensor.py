"""Node indices that users give, as kernels take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphbox.errors import UsageError
from graphbox.native import integer_array
from graphbox.sample.pinned import to_device

if TYPE_CHECKING:
    import torch


def node_tensor(nodes: object, num_nodes: int, device: torch.device, name: str) -> torch.Tensor:
    """Return node indices as a contiguous int64 tensor on ``device``.

    Raises:
        UsageError: no integers of one dimension, or one that is no node.
    """
    import torch

    if isinstance(nodes, torch.Tensor) and nodes.device.type != "cpu":
        tensor = nodes
        if tensor.dtype not in (torch.int64, torch.int32) or tensor.ndim != 1:
            raise UsageError(
                f"expected int64 or int32 with one dimension, received {tensor.dtype} {tuple(tensor.shape)}",
                where=name,
            )
        tensor = tensor.to(device, torch.int64).contiguous()
        least, most = torch.stack(torch.aminmax(tensor)).tolist() if len(tensor) else (0, -1)
    else:
        array = integer_array(nodes, name)
        least, most = (int(array.min()), int(array.max())) if len(array) else (0, -1)
        tensor = to_device(array, device)
    if least < 0 or most >= num_nodes:
        raise UsageError(
            f"expected node indices from 0 to {num_nodes - 1}, received {least if least < 0 else most}",
            where=name,
        )
    return tensor
