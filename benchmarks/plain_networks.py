"""Networks as tutorials write them in PyTorch, with the parameters of graphbox's by the same names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.config import GRU4RecConfig, SASRecConfig
from graphbox.models.click_network import ClickShape


def layers_of(inputs: int, hidden: Sequence[int], dropout: float) -> nn.Sequential:
    """Return layers with rectifiers and dropout between them."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout)]
        inputs = width
    return nn.Sequential(*layers)


class PlainClicks(nn.Module):
    """Base of networks over the vectors of fields, of which some are left out in training."""

    def __init__(self, shape: ClickShape) -> None:
        super().__init__()
        self.row_dropout = shape.row_dropout

    def kept(self, vectors: Tensor) -> Tensor:
        """Return the vectors, in training without some fields of each row."""
        if not self.training:
            return vectors
        return vectors * (torch.rand(*vectors.shape[:2], 1) >= self.row_dropout)

    def decayed(self, vectors: Tensor) -> Tensor:
        """Return the vectors whose squares are part of the loss: float32 [rows, fields, dim]."""
        return vectors


class PlainDIN(PlainClicks):
    """DIN over padded histories.

    Args:
        shape: sizes.
        interests: names of a history and of its target.
        attention: widths of the layers of attention units.
    """

    def __init__(
        self, shape: ClickShape, *, interests: Sequence[tuple[str, str]], attention: Sequence[int]
    ) -> None:
        super().__init__(shape)
        histories = [history for history, _ in interests]
        self._pairs = [(shape.bags[history], shape.bags[target].start) for history, target in interests]
        self._others = [place for name, bags in shape.bags.items() if name not in histories for place in bags]
        self.bias = nn.Parameter(torch.zeros(()))
        self.units = nn.ModuleList(PlainUnit(shape.dim, attention) for _ in interests)
        inputs = (len(self._others) + len(interests)) * shape.dim + shape.numbers
        self.deep = layers_of(inputs, shape.hidden, shape.dropout)
        self.head = nn.Linear(shape.hidden[-1], 1, bias=False)

    def forward(self, vectors: Tensor, numbers: Tensor) -> Tensor:
        """Return the logits: float32 [rows, 1]."""
        vectors = self.kept(vectors)
        found = [self.decayed(vectors).flatten(1)]
        for unit, (bags, target) in zip(self.units, self._pairs, strict=True):
            found.append(unit(vectors[:, bags.start : bags.stop], vectors[:, target]))
        logits: Tensor = self.bias + self.head(self.deep(torch.cat([*found, numbers], dim=1)))
        return logits

    def decayed(self, vectors: Tensor) -> Tensor:
        """Return the vectors that are no events."""
        return vectors[:, self._others]


class PlainUnit(nn.Module):
    """Attention to the events of a history."""

    def __init__(self, dim: int, hidden: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 4 * dim
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.PReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, 1))

    def forward(self, events: Tensor, target: Tensor) -> Tensor:
        """Return the sum of events by their weights: float32 [rows, dim]."""
        beside = target.unsqueeze(1).expand_as(events)
        weights = self.layers(torch.cat([events, beside, events - beside, events * beside], dim=2))
        found: Tensor = (weights * events).sum(dim=1)
        return found


class PlainMMoE(PlainClicks):
    """MMoE.

    Args:
        shape: sizes.
        experts: number of experts.
        tower: widths of the layers of each label's tower.
    """

    def __init__(self, shape: ClickShape, *, experts: int, tower: Sequence[int]) -> None:
        super().__init__(shape)
        labels = range(shape.labels)
        self.bias = nn.Parameter(torch.zeros(shape.labels))
        self.experts = nn.ModuleList(
            layers_of(shape.inputs, shape.hidden, shape.dropout) for _ in range(experts)
        )
        self.gates = nn.ModuleList(nn.Linear(shape.inputs, experts, bias=False) for _ in labels)
        self.towers = nn.ModuleList(layers_of(shape.hidden[-1], tower, shape.dropout) for _ in labels)
        self.heads = nn.ModuleList(nn.Linear(tower[-1], 1, bias=False) for _ in labels)

    def forward(self, vectors: Tensor, numbers: Tensor) -> Tensor:
        """Return the logits: float32 [rows, labels]."""
        inputs = torch.cat([self.kept(vectors).flatten(1), numbers], dim=1)
        found = torch.stack([expert(inputs) for expert in self.experts], dim=1)
        logits = []
        for gate, tower, head in zip(self.gates, self.towers, self.heads, strict=True):
            weights = torch.softmax(gate(inputs), dim=1).unsqueeze(2)
            logits.append(head(tower((weights * found).sum(dim=1))))
        return self.bias + torch.cat(logits, dim=1)


PLAIN_CLICKS: Mapping[str, type[PlainDIN | PlainMMoE]] = {"din": PlainDIN, "mmoe": PlainMMoE}


class PlainSASRec(nn.Module):
    """SASRec over padded windows."""

    def __init__(self, config: SASRecConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.positions = nn.Parameter(torch.zeros(config.window, config.dim))
        self.blocks = nn.ModuleList(PlainBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the vectors of events: float32 [windows, window, dim], of rows of items of that shape."""
        hidden = self.dropout(rows + self.positions)
        for block in self.blocks:
            hidden = block(hidden)
        normed: Tensor = self.norm(hidden)
        return normed


class PlainBlock(nn.Module):
    """Causal attention and two layers, each normed first."""

    def __init__(self, config: SASRecConfig) -> None:
        super().__init__()
        dim = config.dim
        self.heads, self.dropout = config.heads, nn.Dropout(config.dropout)
        self.attention_norm, self.layers_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.queries_keys_values = nn.Linear(dim, 3 * dim)
        self.attended = nn.Linear(dim, dim)
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the vectors of events: float32 [windows, window, dim]."""
        count, length, dim = hidden.shape
        parts = self.queries_keys_values(self.attention_norm(hidden))
        query, key, value = parts.view(count, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout.p if self.training else 0.0, is_causal=True
        )
        hidden = hidden + self.dropout(self.attended(seen.transpose(1, 2).reshape(count, length, dim)))
        inner = self.dropout(functional.gelu(self.first(self.layers_norm(hidden))))
        found: Tensor = hidden + self.dropout(self.second(inner))
        return found


class PlainGRU4Rec(nn.Module):
    """GRU4Rec over padded windows."""

    def __init__(self, config: GRU4RecConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.recurrent = nn.GRU(config.dim, config.hidden, batch_first=True)
        self.output = nn.Linear(config.hidden, config.dim)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the vectors of events: float32 [windows, window, dim], of rows of items of that shape."""
        vectors: Tensor = self.output(self.dropout(self.recurrent(self.dropout(rows))[0]))
        return vectors


def plain_sequence_network(config: SASRecConfig | GRU4RecConfig) -> PlainSASRec | PlainGRU4Rec:
    """Return the network of a section."""
    return PlainSASRec(config) if isinstance(config, SASRecConfig) else PlainGRU4Rec(config)
