"""LightGCN (He et al., SIGIR 2020) and matrix factorization: rows of tables, with or without a graph between.

Both give vectors of queries and of candidates. Where these are of one type they share one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.table import TableEmbedding


class SmoothingMatrix:
    """A sparse matrix by which rows of vectors are multiplied, and its transpose, by which gradients are.

    Args:
        matrix: float32 [rows, columns].
        device: where vectors are; None: in host memory.
    """

    def __init__(self, matrix: sp.csr_array, device: torch.device | None = None) -> None:
        self._forward = _bags(matrix, device)
        self._backward = _bags(sp.csr_array(matrix.T), device)

    def __matmul__(self, vectors: Tensor) -> Tensor:
        """Return the product with vectors, float32 [columns, dim]: float32 [rows, dim]."""
        product: Tensor = _Product.apply(vectors, self._forward, self._backward)  # type: ignore[no-untyped-call]
        return product


_Bags = tuple[Tensor, Tensor, Tensor]


def _bags(matrix: sp.csr_array, device: torch.device | None) -> _Bags:
    """Return indices, offsets and weights of the rows as torch's bags take them."""
    return (
        torch.from_numpy(matrix.indices.astype(np.int64)).to(device),
        torch.from_numpy(matrix.indptr.astype(np.int64)).to(device),
        torch.from_numpy(matrix.data.astype(np.float32)).to(device),
    )


def _sum_bags(bags: _Bags, vectors: Tensor) -> Tensor:
    # Several times as fast as torch's product with a sparse matrix, and each row is summed in order.
    indices, offsets, weights = bags
    return functional.embedding_bag(
        indices, vectors, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, vectors: Tensor, forward: _Bags, backward: _Bags) -> Tensor:
        context.backward_bags = backward
        return _sum_bags(forward, vectors)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _sum_bags(context.backward_bags, gradients[0].contiguous()), None, None


class LightGCN(nn.Module):
    """Vectors are the mean of the rows and of what ``layers`` steps over the graph make of them.

    A step gives a node the sum of its neighbours' vectors, each divided by the root of both degrees.

    Args:
        queries: rows of queries, keyed by node.
        targets: rows of candidates; ``queries`` where they are of one type.
        answers: known answers, 0/1 [queries, candidates]: the edges of the graph.
        layers: steps over the graph.
        device: where vectors are; None: in host memory.
    """

    def __init__(
        self,
        queries: TableEmbedding,
        targets: TableEmbedding,
        answers: sp.csr_array,
        layers: int,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.queries, self.targets = queries, targets
        self._layers = layers
        self._one_type = targets is queries
        if self._one_type:
            answers = sp.csr_array(answers + answers.T)
            answers.data[:] = 1.0
        of_query = np.maximum(np.diff(answers.indptr), 1).astype(np.float32)
        of_target = np.maximum(np.bincount(answers.indices, minlength=answers.shape[1]), 1)
        normalized = sp.csr_array(
            sp.diags_array(of_query**-0.5) @ answers @ sp.diags_array(of_target.astype(np.float32) ** -0.5)
        )
        self._to_queries = SmoothingMatrix(normalized, device)
        self._to_targets = self._to_queries
        if not self._one_type:
            self._to_targets = SmoothingMatrix(sp.csr_array(normalized.T), device)
        self._all = tuple(torch.arange(count, device=device) for count in answers.shape)

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return the vectors of all queries and all candidates: float32 [nodes, dim] each."""
        query = self.queries(self._all[0])
        target = query if self._one_type else self.targets(self._all[1])
        query_sum, target_sum = query, target
        for _ in range(self._layers):
            if self._one_type:
                query = target = self._to_queries @ query
            else:
                query, target = self._to_queries @ target, self._to_targets @ query
            query_sum, target_sum = query_sum + query, target_sum + target
        return query_sum / (self._layers + 1), target_sum / (self._layers + 1)

    def forward(self, queries: Tensor, *targets: Tensor) -> tuple[Tensor, ...]:
        """Return the vectors of queries, and of several lists of candidates: float32 [n, dim] each."""
        query, target = self.all_vectors()
        return (query[queries], *(target[each] for each in targets))


class MatrixFactorization(nn.Module):
    """Vectors are rows.

    Args:
        queries: rows of queries, keyed by node.
        targets: rows of candidates; ``queries`` where they are of one type.
        shape: number of queries and of candidates.
        device: where vectors are; None: in host memory.
    """

    def __init__(
        self,
        queries: TableEmbedding,
        targets: TableEmbedding,
        shape: tuple[int, int],
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.queries, self.targets = queries, targets
        self._shape, self._device = shape, device

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return the vectors of all queries and all candidates: float32 [nodes, dim] each."""
        query, target = self(*(torch.arange(count, device=self._device) for count in self._shape))
        return query, target

    def forward(self, queries: Tensor, *targets: Tensor) -> tuple[Tensor, ...]:
        """Return the vectors of queries, and of several lists of candidates: float32 [n, dim] each.

        Each table is asked once.
        """
        if self.queries is self.targets:
            return _looked_up(self.queries, [queries, *targets])
        return self.queries(queries), *_looked_up(self.targets, targets)


def _looked_up(rows: TableEmbedding, nodes: Sequence[Tensor]) -> tuple[Tensor, ...]:
    found: Tensor = rows(torch.cat(list(nodes)))
    return torch.split(found, [len(each) for each in nodes])
