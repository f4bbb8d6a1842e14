"""Feeds of a model of clicks, from rows of a user's own columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from graphbox.artifact.manifest import Datatype, Name, Record, TensorSpec

_DATATYPES: dict[str, Datatype] = {
    "number": "FP32",
    "integer": "INT64",
    "categorical": "BYTES",
    "boolean": "BOOL",
    "vector": "FP32",
    "slots": "BYTES",
}


_OPTIONAL = ("labels", "list_separator")


class FieldSpec(Record):
    """A column that every row has.

    Attributes:
        name: of the column.
        kind: how its values are read, as in a graph: ``number``, ``integer``, ``categorical``, ``boolean``,
            ``vector`` or ``slots``.
        dim: length of a vector, else null.
        mean: of the rows that were learnt from; of numbers and integers one, after sign(x) log(1 + abs(x)),
            of vectors one for each place, of others none.
        deviation: standard deviation of the same.
        knots: of numbers and integers: the values that have a row of their own, ascending.
        window: of slots that are read event by event: how many events, the last ones. Such a column has a
            vector of each event in their order, then zeros, where others have one. Left out of others.
        items: name whose digest finds the rows of the column's values, in place of the column's own; values
            of all kinds are then as those of slots, and integers have no knots. Left out where there is none.
    """

    name: str = Field(min_length=1)
    kind: Literal["number", "integer", "categorical", "boolean", "vector", "slots"]
    dim: Annotated[int, Field(ge=1)] | None = None
    mean: tuple[float, ...] = ()
    deviation: tuple[Annotated[float, Field(gt=0)], ...] = ()
    knots: tuple[float, ...] = ()
    window: Annotated[int, Field(ge=1)] | None = None
    items: Annotated[str, Field(min_length=1)] | None = None

    @property
    def is_number(self) -> bool:
        """Whether values lie between knots."""
        return self.kind in {"number", "integer"} and self.items is None

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Releases that do not know the keys read all artifacts that need none.
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items() if value is not None or key == "dim"}

    @property
    def tensor(self) -> TensorSpec:
        """The column as clients of the KServe protocol send it."""
        return column_tensor(self.name, self.kind, self.dim)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.dim is None) == (self.kind == "vector"):
            raise ValueError("`dim` is given of vectors, and only of them")
        if self.window is not None and self.kind != "slots":
            raise ValueError("`window` is given of slots alone")
        if self.items is not None and self.kind not in {"slots", "categorical", "integer"}:
            raise ValueError("`items` is given of slots, categories and integers alone")
        count = self.dim or int(self.is_number)
        if (len(self.mean), len(self.deviation)) != (count, count):
            raise ValueError(f"expected {count} numbers in `mean` and in `deviation`")
        if bool(self.knots) != self.is_number or list(self.knots) != sorted(set(self.knots)):
            raise ValueError("`knots` are given of numbers and integers, ascending, and only of them")
        return self


class FieldTable(Record):
    """A table of rows of values, and the ONNX input that their sums feed.

    Attributes:
        input: ``FP32 [n, fields, dim]``: of each field the sum of its values' rows times their weights; of
            a field with a window the row of each event.
        crosses: whether the crosses are further fields, after all others.
    """

    input: str
    crosses: bool = False


class FieldsForm(Record):
    """Probabilities of rows, from their columns.

    A value's key is what finds its row: ``mix(v) ^ h(name)``, where ``h`` is the first 8 bytes of a BLAKE2b
    digest, ``mix`` the 64-bit finalizer of MurmurHash3, and ``v`` is ``h(text)`` of a category, 0 or 1 of a
    boolean, a slot's value itself (XXH64 of a text), the number of a knot (-1 where there is no number). In a
    column with ``items`` ``name`` is that, and ``v`` is an integer, of a category the one that it spells or
    the XXH64 of its text. A value without a row counts as nothing.

    Attributes:
        node_type: of the rows, in the graph they were learnt from.
        fields: the columns, in the order of the model.
        crosses: columns each combination of whose values has a key.
        tables: by name.
        numbers: ONNX input ``FP32 [n, numbers]``: numbers standardized and kept within 5 deviations, those of
            vectors in their place, then for each single number 1 where it is missing; null: there are none.
        positive_rate: share of positives among the rows that were learnt from, of the first label.
        labels: names of the labels where there are several, in the order of their ONNX outputs; left out
            where there is one.
        list_separator: character between values in a cell of the table that was learnt from, in slots and
            vectors; left out where it is ``|``. Requests have nothing of it.
    """

    form: Literal["fields"] = "fields"
    node_type: str
    fields: tuple[FieldSpec, ...] = Field(min_length=1)
    crosses: tuple[tuple[str, ...], ...] = ()
    tables: dict[Name, FieldTable] = Field(min_length=1)
    numbers: str | None = None
    positive_rate: float = Field(ge=0, le=1)
    labels: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    list_separator: str | None = Field(default=None, min_length=1, max_length=1)

    @property
    def onnx_inputs(self) -> set[str]:
        """Names of the ONNX inputs that are fed."""
        numbers = set() if self.numbers is None else {self.numbers}
        return {table.input for table in self.tables.values()} | numbers

    @property
    def probabilities(self) -> tuple[str, ...]:
        """Names of the outputs: ``probability`` of the first label, ``probability.NAME`` of the others."""
        return probability_names(self.labels)

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Releases that do not know the keys read all artifacts that need none.
        document: dict[str, Any] = serialize(self)
        return {key: document[key] for key in document if key not in _OPTIONAL or document[key]}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            raise ValueError("a column is given more than once")
        single = {field.name for field in self.fields if field.kind not in {"vector", "slots"}}
        if not {name for cross in self.crosses for name in cross} <= single:
            raise ValueError("crosses are of columns with single values")
        if len(self.labels) == 1 or len(set(self.labels)) != len(self.labels):
            raise ValueError("`labels` are given where there are several, each once")
        if (self.numbers is None) == any(field.mean for field in self.fields):
            raise ValueError("`numbers` is given where there are numbers or vectors, and only then")
        return self


def column_tensor(name: str, kind: str, dim: int | None) -> TensorSpec:
    """Return the tensor in which clients send a column of values of a kind; ``dim`` is that of vectors."""
    shape = (-1,) if dim is None else (-1, dim)
    return TensorSpec(name=name, datatype=_DATATYPES[kind], shape=shape)


def probability_names(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the probabilities of some labels; no names: of the only one."""
    return ("probability", *(f"probability.{label}" for label in labels[1:]))
