"""Embedding tables as torch modules."""

from __future__ import annotations

import torch

from graphbox.table.table import EmbeddingTable

__all__ = ["TableEmbedding"]


class TableEmbedding(torch.nn.Module):
    """Looks rows up in an :class:`EmbeddingTable`, and trains them when gradients come back.

    The rows are no parameters of the module: the table applies its own optimizer to them during
    ``backward()``, once for each forward pass, with the gradients of equal keys summed. The module's
    ``state_dict`` does not hold them either: save the table.

    In training mode unknown keys get a row. In evaluation mode, and while gradients are off, they get their
    initial values and the table stays as it is.

    Args:
        table: where the rows are. Several modules may share it.
    """

    def __init__(self, table: EmbeddingTable) -> None:
        super().__init__()
        self.table = table

    def extra_repr(self) -> str:
        """Describe the table in ``repr``."""
        return repr(self.table)

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        """Return the rows of ``keys``.

        Args:
            keys: int64 [...], on any device.

        Returns:
            float32 [..., dim] on the device of ``keys``.
        """
        host_keys = keys.detach().cpu()
        if not (self.training and torch.is_grad_enabled()):
            return self.table.pull(host_keys, create=False).to(keys.device)
        rows = self.table.pull(host_keys).requires_grad_()
        rows.register_post_accumulate_grad_hook(_Push(self.table, host_keys))  # type: ignore[no-untyped-call]
        return rows.to(keys.device) if keys.device.type != "cpu" else rows.view_as(rows)


class _Push:
    """Gives the gradient of pulled rows to the table, and drops it."""

    def __init__(self, table: EmbeddingTable, keys: torch.Tensor) -> None:
        self._table = table
        self._keys = keys

    def __call__(self, rows: torch.Tensor) -> None:
        gradient, rows.grad = rows.grad, None
        if gradient is not None:
            self._table.push(self._keys, gradient)
