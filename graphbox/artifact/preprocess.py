"""Feeds of a model, from original ids or rows of columns: the content of ``preprocess.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)

from graphbox.artifact.edge_features import EdgeFeature, GroupEdges
from graphbox.artifact.fields_form import FieldsForm
from graphbox.artifact.lookup_form import LookupForm
from graphbox.artifact.manifest import Name, Record, RelativePath, first_problem
from graphbox.artifact.tensors_form import TensorsForm
from graphbox.artifact.triples_form import TriplesForm
from graphbox.errors import FormatError

__all__ = [
    "EdgeFeature",
    "FieldsForm",
    "GroupEdges",
    "LayerSpec",
    "LookupForm",
    "NodeFeature",
    "PaddedBlockForm",
    "Preprocess",
    "RelationGroup",
    "RowsSpec",
    "TensorsForm",
    "TriplesForm",
    "UnseenInputs",
    "read_preprocess",
]


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
        counts: a ``uint16 [nodes of target, R]`` array: the lengths of the lists; or a
            Parquet file of R columns.
        neighbors: an ``int32 [sum of counts]`` array of source node indices; or a Parquet file of
            one column.
        normalization: the weight of each of a list's ``n`` neighbours: ``mean`` 1 / n, ``square_root``
            1 / sqrt(n), ``table`` the value in ``weights``; ``none``: the model reads no weights.
        weights: a ``float32 [sum of counts]`` array, for the normalization ``table``.
        neighbors_input: ONNX input ``INT64 [n, R, F]``: positions in the source's frontier, 0 = absent.
        weights_input: ONNX input ``FP32 [n, R, F]``, 0 where absent; None with the normalization ``none``.
        source_scales: of weights that degrees normalize, a ``float32 [nodes of source, R]`` array: 1 / sqrt
            of what the edges that leave a node weigh together. An edge of weight w to a node that was never
            seen, whose edges weigh d together, counts w * scale / sqrt(d).
        self_loops: whether a node is its own neighbour, with the weight 1 / d, and d counts 1 for it.
        window: of lists in the order of time, how many of the last neighbours are read; None: all. Those of
            the nodes of the model are no longer.
        edges: features of the edges; None: the model reads none.
    """

    edge_types: tuple[tuple[str, str, str], ...] = Field(min_length=1)
    counts: RelativePath
    neighbors: RelativePath
    normalization: Literal["mean", "square_root", "table", "none"] = "mean"
    weights: RelativePath | None = None
    neighbors_input: str
    weights_input: str | None = None
    source_scales: RelativePath | None = None
    self_loops: bool = False
    window: Annotated[int, Field(ge=1)] | None = None
    edges: GroupEdges | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the ONNX inputs that it feeds."""
        of_edges = None if self.edges is None else self.edges.input
        every = (self.neighbors_input, self.weights_input, of_edges)
        return tuple(name for name in every if name is not None)

    @model_serializer(mode="wrap")
    def _without_default(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Releases that do not know the key read all artifacts that need none.
        document: dict[str, Any] = serialize(self)
        if self.edges is None:
            del document["edges"]
        return document

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
        if (self.weights_input is None) != (self.normalization == "none"):
            raise ValueError("`weights_input` is left out with the normalization `none`, and only then")
        if self.edges is not None and len(self.edges.features) != len(self.edge_types):
            raise ValueError("`edges` has the features of each edge type of the group")
        if self.edges is not None and not self.edges.columns:
            raise ValueError("`edges` has the features of one edge type at least")
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


class NodeFeature(Record):
    """Contribution of a feature to the row of a node that was never seen.

    Attributes:
        name: of the feature.
        kind: how its values are read, as in a graph.
        dim: length of a vector, else null.
        weights: a ``float32 [k, dim of a row]`` array. Of a category row 1 + its code, row 0 where it is
            missing or unknown; of a number, integer or boolean the one row, times sign(x) log(1 + abs(x))
            less ``mean`` over ``deviation``; of a vector the sum of the rows by its values; of slots the mean
            of the rows of the known ones.
        categories: names of the categories, by code.
        mean: of numbers.
        deviation: of numbers.
        values: of slots an ``int64 [k]`` array of the values that are known, ascending.
    """

    name: str = Field(min_length=1)
    kind: Literal["number", "integer", "categorical", "boolean", "vector", "slots"]
    dim: Annotated[int, Field(ge=1)] | None = None
    weights: RelativePath
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: Annotated[float, Field(gt=0)] = 1.0
    values: RelativePath | None = None


class UnseenInputs(Record):
    """Input of the first layer for a node that was never seen: a bias, and the contributions of features.

    Attributes:
        bias: a ``float32 [dim of a row]`` array.
        features: those that are read.
        relu: whether negative values become 0 then.
    """

    bias: RelativePath
    features: tuple[NodeFeature, ...]
    relu: bool = False


class PaddedBlockForm(Record):
    """Message passing as padded neighbour tables: Gather and MatMul, no scatter.

    The frontier above the last layer is the query, in its order. Going down, the frontier of a node
    type below a layer is an absent node (position 0) followed by the unique nodes that the layer
    reads: the neighbours, and for ``self_inputs`` the frontier itself. Rows are read for the frontier
    below the first layer.

    The first ONNX output is the embedding. With ``classes`` the second is their probabilities,
    ``FP32 [n, classes]``.

    Attributes:
        node_type: of the queries.
        rows: by node type.
        layers: first applied first.
        classes: names of the classes, of a model that classifies nodes.
        has_several_classes: whether a node can have several, each with a probability of its own.
        unseen: how a node of ``node_type`` enters that was never seen; None: only those of ``rows`` do.
    """

    form: Literal["padded_block"] = "padded_block"
    node_type: str
    rows: dict[str, RowsSpec]
    layers: tuple[LayerSpec, ...] = Field(min_length=1)
    classes: tuple[str, ...] = ()
    has_several_classes: bool = False
    unseen: UnseenInputs | None = None

    @property
    def query_types(self) -> tuple[str, ...]:
        """The node types whose ids can be asked for."""
        return (self.node_type,)

    @property
    def groups(self) -> tuple[RelationGroup, ...]:
        """The groups whose lists are read, one for each file of neighbours; layers may share them."""
        every = (group for layer in self.layers for group in layer.groups)
        return tuple({group.neighbors: group for group in every}.values())

    @property
    def row_counts(self) -> dict[str, str]:
        """For each ONNX input of positions the input with as many rows as they may select from."""
        below = {node_type: rows.input for node_type, rows in self.rows.items()}
        found: dict[str, str] = {}
        for layer in self.layers:
            selected = [(group.source, group.neighbors_input) for group in layer.groups]
            selected += list(layer.self_inputs.items())
            found.update((name, below[node_type]) for node_type, name in selected if node_type in below)
            below = {group.target: group.neighbors_input for group in layer.groups} | layer.self_inputs
        return found

    @property
    def onnx_inputs(self) -> set[str]:
        """Names of the ONNX inputs that are fed."""
        fed = {rows.input for rows in self.rows.values()}
        for layer in self.layers:
            fed.update(layer.self_inputs.values())
            for group in layer.groups:
                fed.update(group.inputs)
        return fed


Preprocess = LookupForm | PaddedBlockForm | FieldsForm | TriplesForm | TensorsForm
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
