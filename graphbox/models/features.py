"""Node features as an addition to the embedding row of the node.

A node enters a model as one vector of the row's length: its embedding row, plus a learned vector for each of
its categories, plus a linear map of its numbers. So what is served is one table of input rows for each node
type, whether the type has features or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphbox.errors import UsageError
from graphbox.graph.schema import FeatureKind, FeatureSpec

MISSING_CATEGORY = "\n"
"""Name of the code of a missing category where codes have names; no category has a line break."""

_CATEGORY_SCALE = 0.1


@dataclass(frozen=True)
class FeatureSizes:
    """Sizes of a type's features, which determine a model's parameters for them.

    Attributes:
        categories: number of codes of each categorical feature, the missing one included.
        numbers: number of numeric features.
    """

    categories: tuple[int, ...]
    numbers: int


@dataclass(frozen=True, eq=False)
class LearntFeature:
    """Statistics of a feature over the training nodes, so that later nodes are read the same way.

    Attributes:
        kind: how the feature is kept.
        categories: categories by code of a categorical feature.
        mean: mean of a number, after sign(x) log(1 + abs(x)), over the nodes where it is known.
        deviation: likewise, 1 where all are equal.
        dim: length of a vector.
        slots: different values of slots, ascending: int64.
    """

    kind: FeatureKind
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    dim: int = 0
    slots: NDArray[np.int64] | None = None

    @staticmethod
    def of(spec: FeatureSpec, values: NDArray[Any]) -> LearntFeature:
        """Return what there is to know of a feature; of slots ``values`` are those of all nodes."""
        if spec.kind == "slots":
            return LearntFeature(spec.kind, slots=np.unique(values))
        if spec.kind in {"number", "integer", "boolean"}:
            logarithm = _logarithm(values)
            known = logarithm[np.isfinite(logarithm)]
            if not len(known):
                return LearntFeature(spec.kind)
            return LearntFeature(spec.kind, mean=float(known.mean()), deviation=float(known.std()) or 1.0)
        return LearntFeature(spec.kind, categories=spec.categories or (), dim=spec.dim or 0)

    def codes(self, spec: FeatureSpec, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the codes of categories: int64 [n], 0 where missing or never learnt, else 1 + the code."""
        number = {text: code for code, text in enumerate(self.categories, 1)}
        codes = np.array([0, *(number.get(text, 0) for text in spec.categories or ())], dtype=np.int64)
        return codes[values.astype(np.int64) + 1]

    def standardized(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return numbers on the common scale: float32 [n], 0 (the mean) where missing."""
        logarithm = _logarithm(values)
        scaled = (logarithm - self.mean) / self.deviation
        return np.where(np.isfinite(logarithm), scaled, 0.0).astype(np.float32)

    def numbered(
        self, offsets: NDArray[np.int64], values: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the slots of nodes by their numbers, without values that were never learnt.

        Args:
            offsets: int64 [n + 1], where the values of each node begin and end.
            values: int64.

        Returns:
            Offsets int64 [n + 1], and numbers int64.
        """
        slots = np.zeros(0, np.int64) if self.slots is None else self.slots
        numbers = np.searchsorted(slots, values)
        known = np.zeros(len(values), bool)
        known[numbers < len(slots)] = slots[numbers[numbers < len(slots)]] == values[numbers < len(slots)]
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(known)])
        return before[offsets], numbers[known].astype(np.int64)


@dataclass(frozen=True, eq=False)
class NodeFeatures:
    """The features of all nodes of a type, as the model reads them.

    Attributes:
        codes: int64 [n, categorical features], 0 where missing, else 1 + the category's code.
        numbers: float32 [n, numbers and booleans], standardized over the nodes; 0 (the mean) where missing.
        sizes: what the model must know of them.
    """

    codes: NDArray[np.int64]
    numbers: NDArray[np.float32]
    sizes: FeatureSizes

    @staticmethod
    def build(
        columns: Mapping[str, tuple[FeatureSpec, NDArray[np.generic]]],
        num_nodes: int,
        learnt: Mapping[str, LearntFeature] | None = None,
    ) -> NodeFeatures:
        """Return the features of ``columns``, in their order.

        Numbers are brought to a common scale by sign(x) log(1 + abs(x)) and then standardized: sizes and
        counts are skewed more often than not.

        Args:
            columns: what each holds, and its values.
            num_nodes: how many nodes there are.
            learnt: what is known of each already; None: it is learnt of these nodes.

        Raises:
            UsageError: a feature is of a kind that models do not read.
        """
        codes, numbers, sizes = [], [], []
        for name, (spec, values) in columns.items():
            if spec.kind in {"vector", "slots"}:
                raise UsageError(
                    f"expected a categorical, number or boolean feature, received `{name}` ({spec.kind})",
                    where="features",
                )
            feature = LearntFeature.of(spec, values) if learnt is None else learnt[name]
            if spec.kind == "categorical":
                codes.append(feature.codes(spec, values))
                sizes.append(len(feature.categories) + 1)
            else:
                numbers.append(feature.standardized(values))
        return NodeFeatures(
            codes=np.stack(codes, axis=1) if codes else np.zeros((num_nodes, 0), np.int64),
            numbers=np.stack(numbers, axis=1) if numbers else np.zeros((num_nodes, 0), np.float32),
            sizes=FeatureSizes(tuple(sizes), len(numbers)),
        )


class FeatureEncoder(nn.Module):
    """Maps the features of nodes to the vectors that are added to their embedding rows.

    Args:
        sizes: what there is to map.
        dim: length of an embedding row.
    """

    def __init__(self, sizes: FeatureSizes, dim: int) -> None:
        super().__init__()
        self.categories = nn.ModuleList(_categories(size, dim) for size in sizes.categories)
        self.numbers = nn.Linear(sizes.numbers, dim, bias=False) if sizes.numbers else None

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Return the vectors of nodes: float32 [n, dim].

        Args:
            codes: int64 [n, categorical features].
            numbers: float32 [n, numeric features].
        """
        parts = [embedding(codes[:, column]) for column, embedding in enumerate(self.categories)]
        if self.numbers is not None:
            parts.append(self.numbers(numbers))
        return torch.stack(parts).sum(dim=0)


def _categories(size: int, dim: int) -> nn.Embedding:
    embedding = nn.Embedding(size, dim)
    nn.init.normal_(embedding.weight, std=_CATEGORY_SCALE)
    return embedding


def _logarithm(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers with their sizes brought together; what is missing stays no number."""
    numbers = values.astype(np.float64)
    return np.asarray(np.sign(numbers) * np.log1p(np.abs(numbers)))
