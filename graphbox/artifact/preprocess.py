"""How original ids, or rows of columns, become the model's feeds: the content of ``preprocess.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from graphbox.artifact.fields_form import FieldsForm
from graphbox.artifact.manifest import Name, Record, RelativePath, first_problem
from graphbox.artifact.triples_form import TriplesForm
from graphbox.errors import FormatError

__all__ = [
    "FieldsForm",
    "LayerSpec",
    "LookupForm",
    "PaddedBlockForm",
    "Preprocess",
    "RelationGroup",
    "RowsSpec",
    "TriplesForm",
    "read_preprocess",
]


class LookupForm(Record):
    """An embedding is a row of a table.

    Attributes:
        node_type: of queries that name none.
        tables: the table to read, by node type of the query.
    """

    form: Literal["lookup"] = "lookup"
    node_type: str
    tables: dict[str, Name]

    @property
    def query_types(self) -> tuple[str, ...]:
        """The node types whose ids can be asked for."""
        return tuple(self.tables)


class RowsSpec(Record):
    """One ONNX input of rows, ``FP32 [1 + unique nodes, sum of the tables' dims]``.

    Its row 0 is zero (what absent neighbours point to); row ``1 + i`` is the concatenation of the
    tables' rows of unique node ``i``.
    """

    input: str
    tables: tuple[Name, ...] = Field(min_length=1)


class RelationGroup(Record):
    """The relations of one layer that join the same two node types, and the two inputs they feed.

    Neighbours are stored as lists, one for each node and relation, one after the other; a request pads
    them to the longest list it meets, ``F``.

    Attributes:
        edge_types: ``R`` triples ``(source, relation, target)`` with the same source and the same
            target; nodes of the target aggregate nodes of the source.
        counts: a ``uint16 [nodes of target, R]`` array: the lengths of the lists.
        neighbors: an ``int32 [sum of counts]`` array of source node indices.
        normalization: the weight of each of a list's ``n`` neighbours: ``mean`` 1 / n, ``square_root``
            1 / sqrt(n), ``table`` the value in ``weights``.
        weights: a ``float32 [sum of counts]`` array, for the normalization ``table``.
        neighbors_input: ONNX input ``INT64 [n, R, F]``: positions in the source's frontier, 0 = absent.
        weights_input: ONNX input ``FP32 [n, R, F]``, 0 where absent.
    """

    edge_types: tuple[tuple[str, str, str], ...] = Field(min_length=1)
    counts: RelativePath
    neighbors: RelativePath
    normalization: Literal["mean", "square_root", "table"] = "mean"
    weights: RelativePath | None = None
    neighbors_input: str
    weights_input: str

    @property
    def source(self) -> str:
        """Node type of the neighbours."""
        return self.edge_types[0][0]

    @property
    def target(self) -> str:
        """Node type that aggregates them."""
        return self.edge_types[0][2]

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if len({(source, target) for source, _, target in self.edge_types}) != 1:
            raise ValueError("all edge types of a group have the same source and the same target")
        if (self.weights is None) == (self.normalization == "table"):
            raise ValueError("`weights` are given with the normalization `table`, and only then")
        return self


class LayerSpec(Record):
    """One message passing layer.

    Attributes:
        groups: in the order of the model.
        self_inputs: by target node type, the ONNX input ``INT64 [n]`` with the position of each node
            of this layer in the frontier below; a type that needs no self row is left out.
    """

    groups: tuple[RelationGroup, ...]
    self_inputs: dict[str, str] = Field(default_factory=dict)


class PaddedBlockForm(Record):
    """Message passing as padded neighbour tables: Gather and MatMul, no scatter.

    The frontier above the last layer is the query, in its order. Going down, the frontier of a node
    type below a layer is an absent node (position 0) followed by the unique nodes that the layer
    reads: the neighbours, and for ``self_inputs`` the frontier itself. Rows are read for the frontier
    below the first layer.

    Attributes:
        node_type: of the queries.
        rows: by node type.
        layers: first applied first.
    """

    form: Literal["padded_block"] = "padded_block"
    node_type: str
    rows: dict[str, RowsSpec]
    layers: tuple[LayerSpec, ...] = Field(min_length=1)

    @property
    def query_types(self) -> tuple[str, ...]:
        """The node types whose ids can be asked for."""
        return (self.node_type,)

    @property
    def onnx_inputs(self) -> set[str]:
        """Names of the ONNX inputs that are fed."""
        fed = {rows.input for rows in self.rows.values()}
        for layer in self.layers:
            fed.update(layer.self_inputs.values())
            for group in layer.groups:
                fed.update((group.neighbors_input, group.weights_input))
        return fed


Preprocess = LookupForm | PaddedBlockForm | FieldsForm | TriplesForm
_ADAPTER: TypeAdapter[Preprocess] = TypeAdapter(Annotated[Preprocess, Field(discriminator="form")])


def read_preprocess(text: bytes, path: Path) -> Preprocess:
    """Parse ``preprocess.json``; ``path`` is named in messages.

    Raises:
        FormatError: when it is not one.
    """
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise FormatError(first_problem(error), where=str(path)) from error
