"""Deep Interest Network: attention of a candidate to the events before it (Zhou et al., KDD 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.models.click_network import ClickNetwork, ClickShape, feed_forward, side_by_side
from graphbox.table import Table


class DIN(ClickNetwork):
    """A network over the vectors of all fields, where that of a history depends on what the row is about.

    The vector of a history is the sum of its events' vectors times their weights, each by an
    :class:`AttentionUnit`. As in the paper weights do not add up to one: how much of a history bears on the
    target is told too. Events that are not there, or of nothing that was learnt, are zeros and add nothing.

    Args:
        shape: the sizes; ``bags`` has the fields that are named.
        tables: ``fields``, rows of length ``dim``.
        interests: names of a history and of its target.
        attention: widths of the layers of attention units.
    """

    def __init__(
        self,
        shape: ClickShape,
        tables: Mapping[str, Table],
        *,
        interests: Sequence[tuple[str, str]],
        attention: Sequence[int] = (64, 16),
    ) -> None:
        super().__init__(shape, tables)
        histories = {history for history, _ in interests}
        self._histories = [shape.bags[history] for history, _ in interests]
        self._targets = [shape.bags[target].start for _, target in interests]
        self._others = [bags for name, bags in shape.bags.items() if name not in histories]
        self.units = nn.ModuleList(AttentionUnit(shape.dim, attention) for _ in interests)
        inputs = (sum(map(len, self._others)) + len(interests)) * shape.dim + shape.numbers
        self.deep = feed_forward(inputs, shape.hidden, shape.dropout)
        self.head = nn.Linear(shape.hidden[-1], 1, bias=False)

    def forward(self, vectors: Mapping[str, Tensor], numbers: Tensor) -> Tensor:
        """Return the logits of rows: float32 [rows, 1]."""
        bags = self._kept(vectors["fields"])  # each event by itself, as one that was never learnt is missing
        found = [self._without_events(bags)]
        for unit, history, target in zip(self.units, self._histories, self._targets, strict=True):
            assert isinstance(unit, AttentionUnit)  # noqa: S101 - for the type checker
            events = bags[:, history.start : history.stop]
            found.append(unit.pooled(events, bags[:, target]).unsqueeze(1))
        inputs = side_by_side(torch.cat(found, dim=1), numbers)
        logits: Tensor = self.bias + self.head(self.deep(inputs))
        return logits

    def decayed(self, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return the vectors that are no events: float32 [rows, fields, dim].

        A row has many events; decayed with each, their rows would be shorter than those of other values by
        how often they are in histories.
        """
        return self._without_events(vectors["fields"])

    def _without_events(self, bags: Tensor) -> Tensor:
        return torch.cat([bags[:, each.start : each.stop] for each in self._others], dim=1)


class AttentionUnit(nn.Module):
    """Weighs events by layers over an event, the target, their difference and their product.

    Args:
        dim: length of vectors.
        hidden: widths of the layers, with PReLU (He et al., 2015) after each.
    """

    def __init__(self, dim: int, hidden: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 4 * dim
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.PReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, 1))

    def pooled(self, events: Tensor, target: Tensor) -> Tensor:
        """Return the sum of the events times their weights: float32 [rows, dim].

        Training on a CPU computes on the events that are there alone (see :meth:`forward` for the same in
        full). Its first layer reads event and product: the weights of the difference are added to those of
        event and target, and what the target gives is computed once for a row instead of once for an event.

        Args:
            events: float32 [rows, events, dim]; zeros are no event.
            target: float32 [rows, dim].
        """
        if not self.training or waits_for_counts(events):
            weights: Tensor = self(events, target)
            return (weights * events).sum(dim=1)
        flat = events.reshape(-1, events.shape[2])
        there = flat.detach().abs().sum(dim=1).nonzero().squeeze(1)
        row = torch.div(there, events.shape[1], rounding_mode="floor")
        own = flat.index_select(0, there)
        hidden = self._first(own, target, row)
        for layer in list(self.layers)[1:]:
            is_rectifier = isinstance(layer, nn.PReLU)
            hidden = _PReLU.apply(hidden, layer.weight) if is_rectifier else layer(hidden)  # type: ignore[no-untyped-call]
        return torch.zeros_like(target).index_add(0, row, hidden * own)

    def _first(self, events: Tensor, target: Tensor, row: Tensor) -> Tensor:
        """Return what the first layer makes of events and their rows' targets: float32 [events, width]."""
        first = self.layers[0]
        assert isinstance(first, nn.Linear)  # noqa: S101 - for the type checker
        of_event, of_target, of_difference, of_product = torch.split(first.weight, target.shape[1], dim=1)
        pairs = torch.cat([events, events * target.index_select(0, row)], dim=1)
        weight = torch.cat([of_event + of_difference, of_product], dim=1)
        of_row = functional.linear(target, of_target - of_difference, first.bias)
        return pairs @ weight.T + of_row.index_select(0, row)

    def forward(self, events: Tensor, target: Tensor) -> Tensor:
        """Return the weights of events: float32 [rows, events, 1].

        Args:
            events: float32 [rows, events, dim].
            target: float32 [rows, dim].
        """
        beside = target.unsqueeze(1).expand_as(events)
        pairs = torch.cat([events, beside, events - beside, events * beside], dim=2)
        # As a matrix, which is what compression finds in an exported network.
        weights: Tensor = self.layers(pairs.reshape(-1, pairs.shape[2]))
        return weights.reshape(-1, events.shape[1], 1)


def waits_for_counts(events: Tensor) -> bool:
    """Return whether the host would wait for the number of events that are there."""
    return events.is_cuda


class _PReLU(torch.autograd.Function):
    """A rectifier with one learnt slope; torch's own backward pass takes several times as long on a CPU."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(values, slope)
        return functional.leaky_relu(values, float(slope))

    @staticmethod
    def backward(ctx: Any, *of_results: Tensor) -> tuple[Tensor, Tensor]:
        values, slope = ctx.saved_tensors
        (gradient,) = of_results
        of_values = torch.ops.aten.leaky_relu_backward(gradient, values, float(slope), False)
        # Column by column, which is the same for any number of threads.
        of_slope = (gradient * values.clamp(max=0.0)).sum(dim=0).sum().reshape(slope.shape)
        return of_values, of_slope
