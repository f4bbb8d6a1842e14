"""Options of neighbour sampling: the keyword arguments that samplers, passes and loaders share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict, cast

from graphbox.errors import UsageError, did_you_mean
from graphbox.native import seed_number
from graphbox.sample.adjacency import EdgeColumnName, EdgeType, edge_type_name
from graphbox.sample.drawing import TemporalStrategy

_EDGE_ATTRIBUTES: tuple[EdgeColumnName, ...] = ("weight", "timestamp")


class NeighborKeywords(TypedDict, total=False):
    """Keyword arguments of samplers and loaders of neighbours: see :class:`NeighborOptions`."""

    replace: bool
    weight_attr: str | None
    disjoint: bool
    temporal_strategy: TemporalStrategy
    edge_attributes: Collection[EdgeColumnName]
    seed: int


@dataclass(frozen=True, slots=True)
class NeighborOptions:
    """Options of neighbour sampling; samplers and loaders take them as keyword arguments.

    Attributes:
        replace: draw with replacement: always as many as asked for, the same edge possibly more than once.
        weight_attr: ``weight``: draw in proportion to the weights of edges, in each sampled edge type that
            has them; edges of other types are equally likely. None: all edges are.
        disjoint: a tree of its own for each seed: nodes that several seeds reach are in the sample several
            times. Trees are independent of each other, and ``trees`` tells them apart. Samples up to times
            are always disjoint.
        temporal_strategy: of the edges that are not later than the seed's time, ``uniform`` draws some, in
            proportion to their weights with ``weight_attr``; ``last`` takes the latest of each node (of
            equal timestamps those later in the adjacency).
        edge_attributes: columns to return for each sampled edge: ``weight``, ``timestamp``, both or none; of
            the edge types that have it, one at least.
        seed: of all random draws.

    Raises:
        UsageError: an unknown strategy or column.
    """

    replace: bool = False
    weight_attr: str | None = None
    disjoint: bool = False
    temporal_strategy: TemporalStrategy = "uniform"
    edge_attributes: Collection[EdgeColumnName] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", seed_number(self.seed))
        if self.weight_attr not in (None, "weight"):
            raise UsageError(
                f"expected 'weight' or None, received {self.weight_attr!r}",
                where="weight_attr",
                hint="the column of edges to draw by is called weight; import it as such",
            )
        if self.temporal_strategy not in ("uniform", "last"):
            raise UsageError(
                f"expected uniform or last, received {self.temporal_strategy!r}", where="temporal_strategy"
            )
        wanted = self.edge_attributes
        if isinstance(wanted, str) or not set(wanted) <= set(_EDGE_ATTRIBUTES):
            raise UsageError(
                f"expected some of {', '.join(_EDGE_ATTRIBUTES)} in a sequence, received {wanted!r}",
                where="edge_attributes",
            )

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> NeighborOptions:
        """Return the options that a sampler got as keyword arguments.

        Raises:
            UsageError: an unknown keyword, strategy or column.
        """
        known = [each.name for each in fields(cls)]
        for name in keywords:
            if name not in known:
                raise UsageError(
                    f"unknown keyword argument, received {keywords[name]!r}",
                    where=name,
                    hint=did_you_mean(name, known) or f"there are: {', '.join(known)}",
                )
        return cls(**keywords)

    def keywords(self) -> NeighborKeywords:
        """Return the options as keyword arguments."""
        return cast("NeighborKeywords", {each.name: getattr(self, each.name) for each in fields(self)})

    def weighted_types(self, has_weights: Mapping[EdgeType, bool]) -> list[EdgeType]:
        """Return the sampled edge types that are drawn by weight.

        Args:
            has_weights: whether each sampled edge type has weights.

        Raises:
            UsageError: weights are asked for, and no sampled edge type has them.
        """
        if self.weight_attr is None:
            return []
        found = [edge_type for edge_type, has in has_weights.items() if has]
        if has_weights and not found:
            raise lacks_attribute("weight", [*map(edge_type_name, has_weights)], "weight_attr")
        return found


def lacks_attribute(
    attribute: EdgeColumnName, names: Collection[str], where: str = "edge_attributes"
) -> UsageError:
    """Return the error that none of the sampled edges, of the edge types ``names``, have a column."""
    return UsageError(
        f"no sampled edges have a {attribute}: {', '.join(names)}",
        where=where,
        hint=f"import them with a {attribute} column",
    )
