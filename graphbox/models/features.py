"""Node features as an addition to the embedding row of the node.

A node enters a model as one vector of the row's length: its embedding row, plus a learned vector for each of
its categories, plus a linear map of its numbers. So what is served is one table of input rows for each node
type, whether the type has features or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphbox.errors import UsageError
from graphbox.graph.schema import FeatureSpec

__all__ = ["FeatureEncoder", "FeatureSizes", "NodeFeatures"]

_CATEGORY_SCALE = 0.1


@dataclass(frozen=True)
class FeatureSizes:
    """What a model must know of a type's features to have parameters for them.

    Attributes:
        categories: number of codes of each categorical feature, the missing one included.
        numbers: number of numeric features.
    """

    categories: tuple[int, ...]
    numbers: int


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
    def build(columns: Mapping[str, tuple[FeatureSpec, NDArray[np.generic]]], num_nodes: int) -> NodeFeatures:
        """Return the features of ``columns``, in their order.

        Numbers are brought to a common scale by sign(x) log(1 + abs(x)) and then standardized: sizes and
        counts are skewed more often than not.

        Raises:
            UsageError: a feature is of a kind that models do not read.
        """
        codes, numbers, sizes = [], [], []
        for name, (spec, values) in columns.items():
            if spec.categories is not None:
                codes.append(values.astype(np.int64) + 1)
                sizes.append(len(spec.categories) + 1)
            elif spec.kind in {"number", "integer", "boolean"}:
                numbers.append(_standardize(values.astype(np.float64)))
            else:
                raise UsageError(
                    f"expected a categorical, number or boolean feature, received `{name}` ({spec.kind})",
                    where="features",
                )
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


def _standardize(values: NDArray[np.float64]) -> NDArray[np.float32]:
    known = np.isfinite(values)
    logarithm = np.sign(values) * np.log1p(np.abs(values))
    if not known.any():
        return np.zeros(len(values), np.float32)
    mean, deviation = logarithm[known].mean(), logarithm[known].std()
    scaled = (logarithm - mean) / (deviation if deviation > 0 else 1.0)
    return np.where(known, scaled, 0.0).astype(np.float32)
