"""Features of the edges of a neighbour table: how values become columns, and which ONNX input they feed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from graphbox.artifact.manifest import Record, RelativePath

__all__ = ["EdgeFeature", "GroupEdges"]


CATEGORY_DIM = 16
"""Length of the vector that a layer learns for a category of an edge."""


class EdgeFeature(Record):
    """A feature of the edges of a relation, and how a value of it becomes columns.

    A category has one column, 1 + its place in ``categories``, 0 where it is missing or unknown; a vector one
    for each of its values, 0 where it is missing; any other kind one: sign(x) log(1 + abs(x)) less ``mean``
    over ``deviation``, 0 where it is missing.

    Attributes:
        name: of the feature.
        kind: how its values are read, as in a graph.
        dim: length of a vector, else null.
        categories: names of the categories, by code.
        mean: of numbers.
        deviation: of numbers.
        latest: of a timestamp, the moment from which ages are counted: x is ``latest`` less the timestamp, at
            least 0. None: x is the value.
    """

    name: str = Field(min_length=1)
    kind: Literal["number", "integer", "categorical", "boolean", "vector"]
    dim: Annotated[int, Field(ge=1)] | None = None
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: Annotated[float, Field(gt=0)] = 1.0
    latest: int | None = None

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.dim or 1


class GroupEdges(Record):
    """The features of the edges of a group of relations.

    The columns of a relation are those of its categories, then those of its other features, each in their
    order. Relations with fewer columns than others have zeros behind them.

    Attributes:
        features: of each relation, in the order of the group; none of one without.
        values: a ``float32 [sum of counts, columns]`` array, in the order of the neighbours.
        input: ONNX input ``FP32 [n, R, F, columns]``, 0 where absent.
    """

    features: tuple[tuple[EdgeFeature, ...], ...] = Field(min_length=1)
    values: RelativePath
    input: str

    @property
    def columns(self) -> int:
        """Number of columns of the widest relation."""
        return max(sum(each.columns for each in features) for features in self.features)

    @property
    def mapped_columns(self) -> int:
        """Numbers that an execution holds for an edge of the widest relation: columns and learnt vectors."""
        return max(
            sum(each.columns + CATEGORY_DIM * (each.kind == "categorical") for each in features)
            for features in self.features
        )
