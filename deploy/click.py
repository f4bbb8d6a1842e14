"""A model of clicks ready to answer: rows of a user's own columns in, probabilities out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, FieldsForm, FieldTable, RowTable
from graphbox.deploy.cancellation import check_cancelled
from graphbox.deploy.fastest import Choice
from graphbox.deploy.field_columns import columns_of_rows, columns_of_tensors
from graphbox.deploy.model import DeployedModel, Operation
from graphbox.deploy.protocol import Feeds
from graphbox.deploy.signature import WHOLE, Outputs, Parameters, Signature, by_name
from graphbox.errors import FormatError
from graphbox.fields import Field, FieldColumn, FieldRows, Fields, NumberScale, Rows, row_count, take_rows

__all__ = ["DeployedClick", "Predictions", "ascending_keys"]

_CHUNK_ROWS = 1024
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Probabilities of rows by a click model.

    Attributes:
        probabilities: float32 [n, labels], of each label; see `FieldsForm.labels`.
        unseen: bool [n, fields with keys], where no value of the field was learned; such a field adds
            nothing to the probability.
        fields: names of those fields.
    """

    probabilities: npt.NDArray[np.float32]
    unseen: npt.NDArray[np.bool_]
    fields: tuple[str, ...]

    @property
    def probability(self) -> npt.NDArray[np.float32]:
        """The probabilities of the first label: float32 [n]."""
        return self.probabilities[:, 0]

    def unseen_fields(self, row: int) -> list[str]:
        """Return the names of the fields of a row of which nothing was learnt."""
        return [self.fields[place] for place in np.flatnonzero(self.unseen[row]).tolist()]


class DeployedClick(DeployedModel):
    """Probabilities of rows.

    Args:
        artifact: the model version.
        form: its preprocess.
        main: its ONNX part.
    """

    OPERATIONS = ("predict", "program")

    def __init__(self, artifact: Artifact, form: FieldsForm, main: Choice) -> None:
        super().__init__(artifact, main, None)
        self.form = form
        self.fields = Fields(
            [Field(each.name, each.kind, each.dim, each.window, each.items) for each in form.fields],
            form.crosses,
        )
        self._scale = _scale_of(form)
        bags = self.fields.bags
        self._names = tuple(bags)
        self._first_bags = np.array([each.start for each in bags.values()], np.int64)
        self._num_bags = sum(map(len, bags.values()))
        self._tables = {
            name: _KeyedRows(artifact.table(name), spec, ascending_keys(artifact, name))
            for name, spec in form.tables.items()
        }

    def _use_rows(self) -> None:
        self._tables = {
            name: keyed.with_rows(self.artifact.table(name)) for name, keyed in self._tables.items()
        }

    def _form_signatures(self) -> dict[str, Signature]:
        """Return the signature of rows: a tensor for each column in, the probabilities of each label out.

        FP32 [n] of numbers (NaN where one is missing), INT64 [n] of integers, BOOL [n], BYTES [n] of
        categories (empty where one is missing) and of slots (values separated by ``|``), FP32 [n, dim] of
        vectors. The outputs are FP32 [n].
        """
        outputs = by_name(self.manifest.outputs)

        def answer(inputs: Feeds, _: Parameters) -> Outputs:
            of_labels = np.ascontiguousarray(self.predict_tensors(inputs).probabilities.T)
            return dict(zip(outputs, of_labels, strict=True))

        return {
            WHOLE: Signature(
                platform="graphbox",
                inputs=by_name(self.manifest.inputs),
                outputs=outputs,
                answer=answer,
                work=lambda inputs: len(next(iter(inputs.values()))),
                joinable=self._has_independent_rows,
            )
        }

    def _joins_onnx_rows(self) -> bool:
        has_row_axis = self._program is not None and self._program.row_dimension is not None
        return has_row_axis and self._has_independent_rows

    def predict(self, rows: Sequence[Mapping[str, Any]]) -> Predictions:
        """Return the probabilities of rows, each an object of column and value.

        Raises:
            InvalidRequestError: a row lacks a column, or a value cannot be read.
        """
        return self.predict_columns(columns_of_rows(self.form.fields, rows))

    def predict_tensors(self, tensors: Mapping[str, npt.NDArray[Any]]) -> Predictions:
        """Return the probabilities of rows given as a tensor for each column; see `columns_of_tensors`."""
        return self.predict_columns(columns_of_tensors(self.form.fields, tensors))

    def predict_columns(self, columns: Mapping[str, FieldColumn]) -> Predictions:
        """Return the probabilities of rows given as columns."""
        return self.predict_rows(self.fields.prepare(columns))

    def predict_rows(self, rows: Rows) -> Predictions:
        """Return the probabilities of prepared rows."""
        count = row_count(rows)
        parts = [
            self._predict(take_rows(rows, np.arange(start, min(start + _CHUNK_ROWS, count))))
            for start in range(0, count, _CHUNK_ROWS)
        ]
        none = np.zeros((0, len(self.form.probabilities)), np.float32)
        return Predictions(
            np.concatenate([none, *(part.probabilities for part in parts)]),
            np.concatenate([np.zeros((0, len(self._names)), bool), *(part.unseen for part in parts)]),
            self._names,
        )

    def feeds(self, rows: Rows) -> dict[str, npt.NDArray[Any]]:
        """Return what the bare ONNX part is fed for prepared rows."""
        return self._feeds(self.fields.arrays(rows, self._scale))[0]

    def _predict(self, rows: Rows) -> Predictions:
        check_cancelled()
        feeds, unseen = self._feeds(self.fields.arrays(rows, self._scale))
        found = self._run_built(feeds, *[(len(unseen),)] * len(self.form.probabilities))
        return Predictions(np.stack(found, axis=1), unseen, self._names)

    def _feeds(self, rows: FieldRows) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.bool_]]:
        feeds: dict[str, npt.NDArray[Any]] = {}
        if self.form.numbers is not None:
            feeds[self.form.numbers] = rows.numbers
        unseen = np.ones((len(rows), len(self._names)), bool)
        for table in self._tables.values():
            feeds[table.input], asked, found = table.sums(rows)
            unseen &= self._by_field(asked) & ~self._by_field(found)
        return feeds, unseen

    def _by_field(self, of_bags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return whether it is so of any bag of each field: bool [n, fields]."""
        by_field: npt.NDArray[np.bool_] = np.logical_or.reduceat(
            of_bags[:, : self._num_bags], self._first_bags, axis=1
        )
        return by_field

    def warm_up(self) -> None:
        """Do now what the first request would wait for: read the keys, run once."""
        self.predict_rows(self._examples())

    @property
    def num_queries(self) -> int:
        """Number of rows of the example request."""
        return row_count(self._examples())

    def calls(self, operation: Operation, pool: Int64, k: int) -> Callable[[int], object]:  # noqa: ARG002 - see the base class
        """Return a function that answers the i-th of a pool of rows; see `DeployedModel.calls`."""
        examples = self._examples()
        rows = [take_rows(examples, index) for index in pool]
        if operation == "predict":
            return lambda number: self.predict_rows(rows[number % len(rows)])
        feeds = [self.feeds(each) for each in rows]
        return lambda number: self.run(feeds[number % len(feeds)])

    def program_feeds(self, queries: Int64) -> Feeds:
        """Return the feeds of rows of the example request; see `DeployedModel.program_feeds`."""
        return self.feeds(take_rows(self._examples(), queries))

    def _examples(self) -> Rows:
        """Return the rows of the example request."""
        tensors: dict[str, npt.NDArray[Any]] = {}
        try:
            for given in self.artifact.example_inputs():
                tensors[given["name"]] = _tensor(given)
            return self.fields.prepare(columns_of_tensors(self.form.fields, tensors))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise FormatError(
                f"expected an example request with the columns of the model ({error})",
                where=str(self.artifact.path),
            ) from error


def ascending_keys(artifact: Artifact, table: str) -> Int64:
    """Return the keys of the rows of a table of values, int64 [rows].

    Raises:
        FormatError: they are not integers, or not ascending.
    """
    ids = artifact.table(table).ids
    keys: Int64 = ids.to_arrow().to_numpy(zero_copy_only=False)
    if ids.kind != "int64" or (np.diff(keys) <= 0).any():
        raise FormatError(
            "expected keys that are integers, ascending, received others", where=str(artifact.path)
        )
    return keys


class _KeyedRows:
    """Rows of values, found by their keys."""

    def __init__(self, table: RowTable, spec: FieldTable, keys: Int64) -> None:
        self.input = spec.input
        self._table = table
        self._has_crosses = spec.crosses
        self._keys = keys

    def sums(
        self, rows: FieldRows
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return the sums of weighted rows, float32 [n, bags, dim], which have a key, and which a row."""
        keys, offsets, weights = rows.keys, rows.offsets, rows.weights
        if self._has_crosses:
            crosses = rows.crosses.ravel()
            keys = np.concatenate([keys, crosses])
            offsets = np.concatenate([offsets, offsets[-1] + np.arange(1, len(crosses) + 1)])
            weights = np.concatenate([weights, np.ones(len(crosses), np.float32)])
        bags = len(offsets) - 1
        place, known = self._places(keys)
        bag = np.repeat(np.arange(bags), np.diff(offsets))
        asked = np.bincount(bag[weights > 0], minlength=bags) > 0
        found = np.bincount(bag[known & (weights > 0)], minlength=bags) > 0
        sums = self._table.sums(np.where(known, place, -1), offsets, weights)
        shape = (-1, len(rows))
        return (
            np.ascontiguousarray(sums.reshape(*shape, self._table.dim).transpose(1, 0, 2)),
            asked.reshape(shape).T,
            found.reshape(shape).T,
        )

    def with_rows(self, table: RowTable) -> _KeyedRows:
        """Return the same for a table with row updates; keys that they add follow the others in any order."""
        view = copy.copy(self)
        view._table = table
        return view

    def _places(self, keys: Int64) -> tuple[Int64, npt.NDArray[np.bool_]]:
        """Return the row of each key, and whether it has one."""
        if len(self._table) > len(self._keys):
            found = self._table.ids.index(keys, missing=-1)
            return found, found >= 0
        place = np.minimum(np.searchsorted(self._keys, keys), max(len(self._keys) - 1, 0))
        return place, self._keys[place] == keys if len(self._keys) else np.zeros(len(keys), bool)


def _scale_of(form: FieldsForm) -> NumberScale:
    knots = [each.knots for each in form.fields if each.is_number]
    padded = np.full((len(knots), max(map(len, knots), default=0)), np.inf)
    for row, values in zip(padded, knots, strict=True):
        row[: len(values)] = values
    return NumberScale(
        np.array([value for each in form.fields for value in each.mean]),
        np.array([value for each in form.fields for value in each.deviation]),
        padded,
        form.positive_rate,
    )


def _tensor(given: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return an input of a request as the tensor that a client sends."""
    data, shape = given["data"], given["shape"]
    if given["datatype"] == "BYTES":
        tensor = np.empty(len(data), np.object_)
        tensor[:] = [text.encode() for text in data]
        return tensor
    dtypes = {"FP32": np.float32, "INT64": np.int64, "BOOL": np.bool_}
    return np.array(data, dtypes[given["datatype"]]).reshape(shape)
