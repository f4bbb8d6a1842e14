"""Convolutions of PyTorch Geometric over padded neighbour tables: Gather, MatMul and reductions, no scatter.

Each function computes what the convolution of the same name computes over an edge list, from the same
parameters, so a trained layer is exported as it is. Nodes are positions in a list whose first entry stands
for an absent node: a slot of a neighbour table that has position 0 is masked, whatever vector is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.errors import UsageError

# Below all values that occur; the least float32 would be exported as -inf, and -inf - -inf is no number.
_LOWEST = -1e30


@dataclass(frozen=True, eq=False)
class PaddedNeighbors:
    """The neighbours of nodes in one relation.

    Attributes:
        index: int64 [n, F], positions among the source nodes; 0 = absent.
        weight: float32 [n, F], the edges' weights; None: the layer reads none.
        features: float32 [n, F, width], what a convolution reads of the edges; None: nothing.
    """

    index: Tensor
    weight: Tensor | None = None
    features: Tensor | None = None

    @property
    def mask(self) -> Tensor:
        """Mask of the slots that have a neighbour: bool [n, F]."""
        return self.index > 0


@dataclass(frozen=True, eq=False)
class RelationEnds:
    """Vectors at both ends of a relation.

    Attributes:
        source: float32 [U, dim], vectors of the nodes that ``index`` of the neighbours counts.
        target: float32 [n, dim], vectors of the nodes that aggregate; None where the layer reads none.
        own: int64 [n], positions of the targets in ``source`` where both ends have one node type.
    """

    source: Tensor
    target: Tensor | None
    own: Tensor | None


def gathered(vectors: Tensor, neighbors: PaddedNeighbors) -> Tensor:
    """Return the vectors of neighbours, float32 [n, F, dim]; those of absent ones are any."""
    # Plain indexing would become GatherND, which is slower than Gather.
    return functional.embedding(neighbors.index, vectors)


def weighted_sum(vectors: Tensor, neighbors: PaddedNeighbors) -> Tensor:
    """Return the sum of the neighbours' vectors by their weights: float32 [n, dim]."""
    weight = neighbors.mask.to(vectors.dtype)
    if neighbors.weight is not None:
        weight = weight * neighbors.weight
    return torch.matmul(weight.unsqueeze(1), gathered(vectors, neighbors)).squeeze(1)


def aggregated(vectors: Tensor, neighbors: PaddedNeighbors, aggregation: str) -> Tensor:
    """Return the sum, mean, maximum or minimum of the neighbours' vectors, 0 without any: float32 [n, dim].

    Raises:
        UsageError: the aggregation is another.
    """
    return reduced(gathered(vectors, neighbors), neighbors.mask, aggregation)


def reduced(messages: Tensor, mask: Tensor, aggregation: str) -> Tensor:
    """Return the sum, mean, maximum or minimum of the messages of each list, 0 without any.

    Args:
        messages: float32 [n, F, dim]; those of absent neighbours are any.
        mask: bool [n, F], which slots have a neighbour.
        aggregation: name of the function.

    Returns:
        float32 [n, dim].

    Raises:
        UsageError: the aggregation is another.
    """
    if aggregation in ("add", "sum", "mean"):
        total = torch.matmul(mask.to(messages.dtype).unsqueeze(1), messages).squeeze(1)
        if aggregation != "mean":
            return total
        return total / mask.sum(dim=1, keepdim=True).clamp(min=1).to(total.dtype)
    if aggregation not in ("max", "min"):
        raise UsageError(
            f"expected one of the aggregations mean, sum, max and min, received {aggregation!r}",
            hint="other aggregations have no padded-block form; export stored vectors (`form: vectors`)",
        )
    sign = 1.0 if aggregation == "max" else -1.0
    found = torch.where(mask.unsqueeze(2), sign * messages, _LOWEST)
    return torch.where(mask.any(dim=1, keepdim=True), sign * found.amax(dim=1), 0.0)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over slots, 0 of absent ones: float32 [n, F, heads].

    Args:
        scores: float32 [n, F, heads].
        mask: bool [n, F].
    """
    present = mask.unsqueeze(2)
    scores = torch.where(present, scores, _LOWEST)
    exponential = (scores - scores.amax(dim=1, keepdim=True)).exp() * present.to(scores.dtype)
    # Of present slots the largest is 1, so the bound only meets empty lists. PyTorch Geometric adds 1e-16
    # instead, which the exporter takes for an addition of zero and leaves out.
    return exponential / exponential.sum(dim=1, keepdim=True).clamp(min=1.0)


def scores_of(query: Tensor, keys: Tensor) -> Tensor:
    """Return the inner products of queries and keys: float32 [n, F, heads].

    Args:
        query: float32 [n, heads, channels].
        keys: float32 [n, F, heads, channels].
    """
    # A product: ONNX Runtime gives a ReduceSum of an empty batch over the last axis another shape.
    return torch.matmul(query.unsqueeze(2), keys.permute(0, 2, 3, 1)).squeeze(2).transpose(1, 2)


def attended(attention: Tensor, values: Tensor) -> Tensor:
    """Return the sum of values by attention: float32 [n, heads, channels].

    Args:
        attention: float32 [n, F, heads].
        values: float32 [n, F, heads, channels].
    """
    by_head = attention.transpose(1, 2).unsqueeze(2)
    return torch.matmul(by_head, values.transpose(1, 2)).squeeze(2)


# ------------------------------------------------------------------------ one for each convolution


def sage_conv(convolution: Any, ends: RelationEnds, neighbors: PaddedNeighbors) -> Tensor:
    """Compute a ``SAGEConv`` (Hamilton et al., NeurIPS 2017); see :data:`PADDED_CONVOLUTIONS`."""
    source = convolution.lin(ends.source).relu() if convolution.project else ends.source
    out: Tensor = convolution.lin_l(aggregated(source, neighbors, convolution.aggr))
    if convolution.root_weight:
        out = out + convolution.lin_r(ends.target)
    return functional.normalize(out, p=2.0, dim=-1) if convolution.normalize else out


def gin_conv(convolution: Any, ends: RelationEnds, neighbors: PaddedNeighbors) -> Tensor:
    """Compute a ``GINConv`` (Xu et al., ICLR 2019)."""
    total = aggregated(ends.source, neighbors, convolution.aggr)
    out: Tensor = convolution.nn(total + (1 + convolution.eps) * ends.target)
    return out


def gine_conv(convolution: Any, ends: RelationEnds, neighbors: PaddedNeighbors) -> Tensor:
    """Compute a ``GINEConv`` (Hu et al., ICLR 2020)."""
    of_edges = _edges_mapped(convolution.lin, neighbors)
    messages = gathered(ends.source, neighbors)
    messages = (messages if of_edges is None else messages + of_edges).relu()
    total = reduced(messages, neighbors.mask, convolution.aggr)
    out: Tensor = convolution.nn(total + (1 + convolution.eps) * ends.target)
    return out


def gat_conv(convolution: Any, ends: RelationEnds, neighbors: PaddedNeighbors) -> Tensor:
    """Compute a ``GATConv`` (Veličković et al., ICLR 2018)."""
    ends_of_map = (convolution.lin, convolution.lin)
    if convolution.lin is None:
        ends_of_map = convolution.lin_src, convolution.lin_dst
    neighbors, ends = _with_self_loops(convolution, neighbors, ends)
    source = ends_of_map[0](ends.source)
    is_shared = ends_of_map[0] is ends_of_map[1] and ends.own is not None
    # One Linear is called once: a second call would be a second Gemm with a weight of its own.
    target = source.index_select(0, ends.own) if is_shared else ends_of_map[1](ends.target)
    of_source = source @ _by_head_matrix(convolution.att_src)
    of_target = target @ _by_head_matrix(convolution.att_dst)
    scores = gathered(of_source, neighbors) + of_target.unsqueeze(1)
    if convolution.lin_edge is not None and neighbors.features is not None:
        # One small matrix: what the edge's map and the attention make of a feature together.
        by_feature = convolution.lin_edge.weight.T @ _by_head_matrix(convolution.att_edge)
        scores = scores + _times(neighbors.features, by_feature)
    scores = functional.leaky_relu(scores, convolution.negative_slope)
    return _joined(convolution, ends, masked_softmax(scores, neighbors.mask), gathered(source, neighbors))


def gatv2_conv(convolution: Any, ends: RelationEnds, neighbors: PaddedNeighbors) -> Tensor:
    """Compute a ``GATv2Conv`` (Brody et al., ICLR 2022)."""
    neighbors, ends = _with_self_loops(convolution, neighbors, ends)
    source = convolution.lin_l(ends.source)
    is_shared = convolution.share_weights and ends.own is not None
    target = source.index_select(0, ends.own) if is_shared else convolution.lin_r(ends.target)
    values = gathered(source, neighbors)
    both = values + target.unsqueeze(1)
    of_edges = _edges_mapped(convolution.lin_edge, neighbors)
    both = both if of_edges is None else both + of_edges
    both = functional.leaky_relu(both, convolution.negative_slope)
    scores = both @ _by_head_matrix(convolution.att)
    return _joined(convolution, ends, masked_softmax(scores, neighbors.mask), values)


def transformer_conv(convolution: Any, ends: RelationEnds, neighbors: PaddedNeighbors) -> Tensor:
    """Compute a ``TransformerConv`` (Shi et al., IJCAI 2021)."""
    _refuse_options(convolution, ("add", "sum"))
    query = convolution.lin_query(ends.target).view(-1, convolution.heads, convolution.out_channels)
    key, value = (
        gathered(each(ends.source), neighbors) for each in (convolution.lin_key, convolution.lin_value)
    )
    of_edges = _edges_mapped(convolution.lin_edge, neighbors)
    if of_edges is not None:
        key, value = key + of_edges, value + of_edges
    scores = scores_of(query, _by_head(convolution, key)) / math.sqrt(convolution.out_channels)
    found = attended(masked_softmax(scores, neighbors.mask), _by_head(convolution, value))
    out = found.flatten(1) if convolution.concat else found.mean(dim=1)
    if not convolution.root_weight:
        return out
    own: Tensor = convolution.lin_skip(ends.target)
    if convolution.lin_beta is None:
        return out + own
    beta = convolution.lin_beta(torch.cat([out, own, out - own], dim=-1)).sigmoid()
    mixed: Tensor = beta * own + (1 - beta) * out
    return mixed


PaddedConvolution = Callable[[Any, RelationEnds, PaddedNeighbors], Tensor]

PADDED_CONVOLUTIONS: Mapping[str, PaddedConvolution] = {
    "SAGEConv": sage_conv,
    "GINConv": gin_conv,
    "GINEConv": gine_conv,
    "GATConv": gat_conv,
    "GATv2Conv": gatv2_conv,
    "TransformerConv": transformer_conv,
}
"""Functions by name of a class of PyTorch Geometric: they take its module, the vectors at both ends of a
relation and the padded neighbours, and return float32 [n, out]."""


def padded_convolution(convolution: nn.Module) -> PaddedConvolution:
    """Return the function that computes a convolution over padded neighbours.

    Raises:
        UsageError: there is none for its class.
    """
    kind = type(convolution)
    found = PADDED_CONVOLUTIONS.get(kind.__name__)
    if found is None or not kind.__module__.startswith("torch_geometric."):
        raise UsageError(
            f"expected a layer with a padded-block form, received `{kind.__module__}.{kind.__qualname__}`",
            where="layer",
            hint="layers of your own are exported as stored vectors (`form: vectors`)",
        )
    return found


# ------------------------------------------------------------------------------------------ details


def _by_head(convolution: Any, values: Tensor) -> Tensor:
    """Return float32 [n, F, heads * channels] as [n, F, heads, channels]."""
    return values.view(values.shape[0], values.shape[1], convolution.heads, convolution.out_channels)


def _by_head_matrix(weight: Tensor) -> Tensor:
    """Return the matrix that multiplies each head's values by its weights and adds them up.

    Args:
        weight: float32 [1, heads, channels].

    Returns:
        float32 [heads * channels, heads].
    """
    heads = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)
    return (weight.transpose(0, 1).transpose(1, 2) * heads.unsqueeze(1)).flatten(0, 1)


def _edges_mapped(linear: nn.Module | None, neighbors: PaddedNeighbors) -> Tensor | None:
    """Return what a convolution's map makes of the edges, float32 [n, F, out]; None: it reads none."""
    if not isinstance(linear, nn.Module) or neighbors.features is None:
        return None
    weight, bias = linear.get_parameter("weight"), getattr(linear, "bias", None)
    mapped = _times(neighbors.features, weight.T)
    return mapped if bias is None else mapped + bias


def _times(features: Tensor, matrix: Tensor) -> Tensor:
    """Return features of edges times a matrix: float32 [n, F, out]."""
    # A product with one row is one multiplication for each number, without a matrix product.
    return features * matrix if len(matrix) == 1 else torch.matmul(features, matrix)


def _joined(convolution: Any, ends: RelationEnds, attention: Tensor, values: Tensor) -> Tensor:
    """Return what attention heads found, side by side or as their mean, with residual and bias."""
    found = attended(attention, _by_head(convolution, values))
    out = found.flatten(1) if convolution.concat else found.mean(dim=1)
    if convolution.res is not None:
        out = out + convolution.res(ends.target)
    return out if convolution.bias is None else out + convolution.bias


def _refuse_options(convolution: Any, aggregations: tuple[str, ...]) -> None:
    if convolution.flow != "source_to_target" or convolution.aggr not in aggregations:
        raise UsageError(
            f"expected attention along the edges that sums, received `flow: {convolution.flow}` and "
            f"`aggr: {convolution.aggr}`",
            where="layer_options",
            hint="export stored vectors (`form: vectors`)",
        )


def _with_self_loops(
    convolution: Any, neighbors: PaddedNeighbors, ends: RelationEnds
) -> tuple[PaddedNeighbors, RelationEnds]:
    """Return the neighbours with each node as its own only neighbour of that kind, where the layer adds it.

    A slot for it is part of the table's shape, so that the exported graph needs no NonZero.
    """
    _refuse_options(convolution, ("add", "sum"))
    if not convolution.add_self_loops:
        return neighbors, ends
    if ends.own is None:
        raise UsageError(
            "expected `add_self_loops` for relations between nodes of one type, received it for others",
            where="layer_options",
            hint="leave `add_self_loops` out: graphs of several types have a map of a node's own vector",
        )
    own = ends.own.unsqueeze(1)
    others = torch.where(neighbors.index == own, 0, neighbors.index)
    index = torch.cat([others, own], dim=1)
    features = neighbors.features
    if features is None or convolution.lin_edge is None:
        return PaddedNeighbors(index), ends
    if convolution.fill_value == "mean":
        loop = reduced(features, others > 0, "mean").unsqueeze(1)
    elif isinstance(convolution.fill_value, int | float):
        loop = torch.full_like(features[:, :1], float(convolution.fill_value))
    else:
        raise UsageError(
            f"expected the `fill_value` mean or a number, received {convolution.fill_value!r}",
            where="layer_options",
            hint="export stored vectors (`form: vectors`)",
        )
    return PaddedNeighbors(index, features=torch.cat([features, loop], dim=1)), ends
