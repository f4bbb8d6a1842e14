"""Modules as users write them: good ones, and one with each mistake."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import HeteroConv, SAGEConv

from graphbox.train import ModuleInputs


class Network(nn.Module):
    """Rows of all node types, and GraphSAGE over them."""

    def __init__(self, inputs: ModuleInputs, dim: int = 16, out: int = 0) -> None:
        super().__init__()
        self.rows = nn.ModuleDict({name: inputs.rows(name, dim) for name in inputs.node_types})
        self.layer = HeteroConv({each: SAGEConv((dim, dim), dim) for each in inputs.edge_types})
        self.last = nn.Linear(dim, out or inputs.num_classes or dim)

    def vectors(self, batch: Any) -> dict[str, Tensor]:
        """Return the vectors of all nodes of a batch."""
        entered = {name: rows(batch[name].n_id) for name, rows in self.rows.items()}
        passed = self.layer(entered, batch.edge_index_dict)
        return {
            name: self.last(functional.relu(each + passed.get(name, 0.0))) for name, each in entered.items()
        }


class Classifier(Network):
    """Classes of nodes."""

    def loss(self, batch: Any) -> Tensor:
        """Return the cross-entropy of the seeds' classes."""
        return functional.cross_entropy(self(batch), batch[batch.input_type].y)

    def forward(self, batch: Any) -> Tensor:
        """Return logits of the seeds."""
        node_type = batch.input_type
        return self.vectors(batch)[node_type][: batch[node_type].batch_size]


class LinkFinder(Network):
    """Inner products of two towers."""

    def loss(self, batch: Any) -> Tensor:
        """Return the binary cross-entropy of links and negatives."""
        (edge_type,) = [each for each in batch.edge_types if "edge_label_index" in batch[each]]
        source, target = batch[edge_type].edge_label_index
        vectors = self.vectors(batch)
        score = (vectors[edge_type[0]][source] * vectors[edge_type[2]][target]).sum(dim=1)
        return functional.binary_cross_entropy_with_logits(score, batch[edge_type].edge_label.float())

    def forward(self, batch: Any) -> Tensor:
        """Return vectors of the seeds."""
        node_type = batch.input_type
        return self.vectors(batch)[node_type][: batch[node_type].batch_size]


class WithoutLoss(nn.Module):
    """No ``loss``."""

    def forward(self, batch: Any) -> Tensor:
        """Return nothing of use."""
        return torch.zeros(1)


class LossOfManyNumbers(Classifier):
    """A loss for each seed."""

    def loss(self, batch: Any) -> Tensor:
        """Return as many losses as seeds."""
        return functional.cross_entropy(self(batch), batch[batch.input_type].y, reduction="none")


class LossIsNaN(Classifier):
    """A loss that is no number."""

    def loss(self, batch: Any) -> Tensor:
        """Return NaN."""
        return super().loss(batch) * float("nan")


class Raises(Classifier):
    """Raises in its loss."""

    def loss(self, batch: Any) -> Tensor:
        """Raise."""
        return batch["nowhere"].no_such_attribute  # type: ignore[no-any-return]


class WrongShape(Classifier):
    """Returns the logits of all nodes of the batch."""

    def loss(self, batch: Any) -> Tensor:
        """Return the loss of the seeds."""
        return functional.cross_entropy(super().forward(batch), batch[batch.input_type].y)

    def forward(self, batch: Any) -> Tensor:
        """Return more rows than seeds."""
        return self.vectors(batch)[batch.input_type]


class DropsItsRows(nn.Module):
    """Does not keep what it asked for."""

    def __init__(self, inputs: ModuleInputs) -> None:
        super().__init__()
        inputs.rows(inputs.node_type, 4)

    def loss(self, batch: Any) -> Tensor:
        """Never called."""
        raise AssertionError

    def forward(self, batch: Any) -> Tensor:
        """Never called."""
        raise AssertionError


def no_class(inputs: ModuleInputs) -> None:
    """Not a class."""
