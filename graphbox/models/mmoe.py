"""Multi-gate Mixture-of-Experts: labels share experts, each by its own gate (Ma et al., KDD 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphbox.models.click_network import ClickNetwork, ClickShape, feed_forward, side_by_side
from graphbox.table import Table


class MMoE(ClickNetwork):
    """Experts over the vectors of all fields and the numbers, and for each label a gate and a tower.

    The logit of a label is that of its tower over the mean of the experts' outputs, weighted by the softmax
    of a linear map of the inputs (the paper, section 4.2).

    Args:
        shape: the sizes; ``hidden`` are the widths of each expert's layers.
        tables: ``fields``, rows of length ``dim``.
        experts: number of experts.
        tower: widths of the layers of each label's tower.
    """

    def __init__(
        self,
        shape: ClickShape,
        tables: Mapping[str, Table],
        *,
        experts: int = 4,
        tower: Sequence[int] = (32,),
    ) -> None:
        super().__init__(shape, tables)
        self.bias = nn.Parameter(torch.zeros(shape.labels))
        self.experts = nn.ModuleList(
            feed_forward(shape.inputs, shape.hidden, shape.dropout) for _ in range(experts)
        )
        self.gates = nn.ModuleList(nn.Linear(shape.inputs, experts, bias=False) for _ in range(shape.labels))
        self.towers = nn.ModuleList(
            feed_forward(shape.hidden[-1], tower, shape.dropout) for _ in range(shape.labels)
        )
        self.heads = nn.ModuleList(nn.Linear(tower[-1], 1, bias=False) for _ in range(shape.labels))

    def forward(self, vectors: Mapping[str, Tensor], numbers: Tensor) -> Tensor:
        """Return the logits of rows: float32 [rows, labels]."""
        inputs = side_by_side(self._kept(vectors["fields"]), numbers)
        found = torch.stack([expert(inputs) for expert in self.experts], dim=1)
        logits = []
        for gate, tower, head in zip(self.gates, self.towers, self.heads, strict=True):
            weights = torch.softmax(gate(inputs), dim=1).unsqueeze(2)
            logits.append(head(tower((weights * found).sum(dim=1))))
        return self.bias + torch.cat(logits, dim=1)
