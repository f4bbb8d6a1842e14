"""Writes a trained model of clicks as an artifact: network as ONNX, rows of values, what columns are."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor, nn

from graphbox.artifact import Artifact, ArtifactWriter, FieldsForm, FieldSpec, FieldTable
from graphbox.deploy import open_click
from graphbox.deploy.field_columns import SLOT_SEPARATOR
from graphbox.export.onnx import ExportedOnnx, TensorInput, export_onnx
from graphbox.export.parity import ParityBounds, ParityReport, check_parity
from graphbox.export.version import ExportResult, Float, NewVersion
from graphbox.fields import Fields, Lists, NumberScale, Rows, row_count, take_rows
from graphbox.graph.columns import Column
from graphbox.models.click_network import ClickNetwork
from graphbox.table import EmbeddingTable

_BOUNDS = ParityBounds()
_EXAMPLE_ROWS = 16
_PARITY_BATCH = 256
_SINGLE_ROWS = 16
_NUMBERS = "numbers"
_WITH_CROSSES = "wide"


class TrainedClicks(Protocol):
    """A trained model of clicks."""

    @property
    def fields(self) -> Fields:
        """Fields of a row that the model reads."""
        ...

    @property
    def scale(self) -> NumberScale:
        """Statistics of the numbers, for their normalization."""
        ...

    @property
    def network(self) -> ClickNetwork:
        """The network, in evaluation mode."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels, of a model that learnt several; else empty."""
        ...

    def predict_rows(self, rows: Rows) -> Float:
        """Return the probabilities of each prepared row: float32 [rows, labels]."""
        ...


def export_click(
    trained: TrainedClicks,
    columns: Mapping[str, Column],
    version: NewVersion,
    bounds: ParityBounds = _BOUNDS,
    *,
    node_type: str,
    list_separator: str | None = None,
) -> ExportResult:
    """Write a model of clicks.

    Before it is moved into place, the artifact is served and compared with the trained model on real rows: in
    batches, one by one, none, such with values that were never learnt, such with nothing but missing ones.

    Args:
        trained: the trained model.
        columns: real rows to compare, by feature; the first ones are the example request.
        version: to be written.
        bounds: of the comparison, of a probability.
        node_type: of the rows.
        list_separator: of the table that was learnt from; None: ``|``.

    Raises:
        GateError: when the exported model differs more than allowed; nothing is written then.
        ConflictError: when the destination exists.
    """
    form = _form(trained, node_type, list_separator)
    exported = _to_onnx(trained.network, form)
    cases = _parity_cases(trained.fields, trained.fields.prepare(columns))
    reports: list[ParityReport] = []

    def prove(artifact: Artifact) -> None:
        with open_click(artifact.path, verify=False) as model:
            reports.append(
                check_parity(
                    lambda rows: model.predict_rows(rows).probabilities,
                    trained.predict_rows,
                    cases,
                    bounds,
                    size=row_count,
                )
            )

    with ArtifactWriter(version.folder) as writer:
        for table_name, table in trained.network.tables().items():
            keys, rows = _sorted_rows(table)
            writer.add_ids(table_name, pa.array(keys))
            writer.add_table(table_name, table_name, rows)
        exported.write(writer)
        writer.set_preprocess(form)
        writer.set_example(_example(form, columns))
        artifact = version.commit(writer, "click", dim=1, check=prove)
    return ExportResult(artifact, reports[0])


class _Probabilities(nn.Module):
    """A network as a function of what its tables gave."""

    def __init__(self, network: ClickNetwork, tables: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self._tables = tables

    def forward(self, vectors: list[Tensor], numbers: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the probabilities of each label, float32 [rows]."""
        if numbers is None:
            numbers = vectors[0].new_zeros((vectors[0].shape[0], 0))
        logits: Tensor = self.network(dict(zip(self._tables, vectors, strict=True)), numbers)
        # Runtimes approximate the sigmoid with an error that is large beside a small probability.
        of_labels = logits.unbind(1) if logits.shape[1] > 1 else (logits.squeeze(1),)
        return tuple(1 / (1 + torch.exp(-each)) for each in of_labels)


def _to_onnx(network: ClickNetwork, form: FieldsForm) -> ExportedOnnx:
    rows = 3  # neither 0 nor 1, which the exporter would take for fixed
    tables = network.tables()
    vectors = []
    for name, spec in form.tables.items():
        fields = network.shape.fields + (len(form.crosses) if spec.crosses else 0)
        vectors.append(TensorInput(spec.input, torch.zeros(rows, fields, tables[name].dim), {0: "rows"}))
    arguments: list[TensorInput | list[TensorInput]] = [vectors]
    if form.numbers is not None:
        arguments.append(TensorInput(form.numbers, torch.zeros(rows, network.shape.numbers), {0: "rows"}))
    module = _Probabilities(network, tuple(form.tables)).eval()
    return export_onnx(module, arguments, outputs=form.probabilities)


def _form(trained: TrainedClicks, node_type: str, list_separator: str | None) -> FieldsForm:
    fields, scale = trained.fields, trained.scale
    knots = iter(scale.knots)
    specs, start = [], 0
    for field in fields.fields:
        count = field.dim or int(field.is_number)
        part = slice(start, start + count)
        start += count
        own = next(knots) if field.is_number else np.zeros(0)
        specs.append(
            FieldSpec(
                name=field.name,
                kind=field.kind,
                dim=field.dim,
                mean=tuple(scale.mean[part].tolist()),
                deviation=tuple(scale.deviation[part].tolist()),
                knots=tuple(own[np.isfinite(own)].tolist()),
                window=field.window,
                items=field.items,
            )
        )
    tables = {
        name: FieldTable(input=name, crosses=name == _WITH_CROSSES) for name in trained.network.tables()
    }
    return FieldsForm(
        node_type=node_type,
        fields=tuple(specs),
        crosses=fields.crosses,
        tables=tables,
        numbers=_NUMBERS if fields.num_dense else None,
        positive_rate=scale.positive_rate,
        labels=trained.labels,
        list_separator=list_separator,
    )


def _sorted_rows(table: EmbeddingTable) -> tuple[npt.NDArray[np.int64], Float]:
    """Return the keys of a table, ascending, and their rows."""
    parts = list(table.items())
    keys = np.concatenate([np.zeros(0, np.int64), *(keys for keys, _ in parts)])
    rows = np.concatenate([np.zeros((0, table.dim), np.float32), *(rows for _, rows in parts)])
    order = np.argsort(keys)
    return keys[order], rows[order]


def _parity_cases(fields: Fields, rows: Rows) -> dict[str, list[Rows]]:
    """Return the batches to compare, by case; a case without rows has no batch."""
    count = row_count(rows)
    some = take_rows(rows, np.arange(min(_SINGLE_ROWS, count)))
    numbers = {field.name for field in fields.fields if field.is_number or field.dim is not None}
    changed = {name: _changed(values, is_number=name in numbers) for name, values in some.items()}
    cases: dict[str, list[Rows]] = {
        "batches": [
            take_rows(rows, np.arange(start, min(start + _PARITY_BATCH, count)))
            for start in range(0, count, _PARITY_BATCH)
        ],
        "one row": [take_rows(rows, np.array([row])) for row in range(min(_SINGLE_ROWS, count))],
        "empty batch": [take_rows(rows, np.zeros(0, np.int64))],
        "values never learnt": [changed],
    }
    return {case: batches for case, batches in cases.items() if batches}


def _changed(values: Any, *, is_number: bool) -> Any:
    """Return values that were hardly learnt: other keys, and no numbers."""
    if is_number:
        return np.full_like(values, np.nan)
    return Lists(values.offsets, values.values ^ 1) if isinstance(values, Lists) else values ^ 1


def _example(form: FieldsForm, columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """Return the first rows as a client would send them."""
    inputs = []
    for field in form.fields:
        column = columns[field.name]
        column = column.slice(0, min(_EXAMPLE_ROWS, len(column)))
        data = _example_data(column)
        shape = [len(column), *([] if field.dim is None else [field.dim])]
        inputs.append({"name": field.name, "datatype": field.tensor.datatype, "shape": shape, "data": data})
    return inputs


def _example_data(column: Column) -> list[Any]:
    if column.offsets is not None:
        # The texts of slots are known by their hashes alone; an integer stands for itself.
        slots = [str(value) for value in column.values.tolist()]
        bounds = itertools.pairwise(column.offsets.tolist())
        return [SLOT_SEPARATOR.join(slots[start:end]) for start, end in bounds]
    if column.categories is not None:
        texts = [*column.categories.to_pylist(), ""]  # a missing one has the code -1
        return [texts[code] for code in column.values.tolist()]
    values = column.values.ravel()
    if values.dtype.kind == "f":
        values = np.where(np.isfinite(values), values, 0)  # JSON has no NaN
    data: list[Any] = values.tolist()
    return data
