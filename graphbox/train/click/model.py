"""A trained model of clicks: from the features of rows to probabilities, in memory and on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors.torch import load_file, save
from torch import Tensor

from graphbox.config import ClickModelSection, ModelConfig
from graphbox.durable import write_atomically
from graphbox.errors import UsageError, did_you_mean
from graphbox.fields import Field, NumberScale, Rows, row_count, take_rows
from graphbox.graph.feature_rows import read_feature_rows
from graphbox.graph.source import TableLike
from graphbox.models.click_fields import ClickFields, FieldBatch, scale_from_tensors, scale_tensors
from graphbox.models.click_network import ClickNetwork, ClickShape
from graphbox.table import EmbeddingTable, Table
from graphbox.train.click.rows import LogRows
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.transfer import moved

_BATCH_ROWS = 4096
_CHEAP_EVENTS = 8
"""Events of a row that take about as much memory as its fields."""


def make_fields(config: ClickModelSection, fields: tuple[Field, ...], where: str = "model") -> ClickFields:
    """Return what makes the fields of a model's section.

    Raises:
        UsageError: a cross of features that are not fields, or have no single value, or a history of features
            that are none; ``where`` is told.
    """
    shared = _with_histories(config, {field.name: field for field in fields}, f"{where}.interests")
    return ClickFields(shared, config.combinations, knots=config.knots, where=f"{where}.crosses")


def _with_histories(config: ClickModelSection, fields: dict[str, Field], where: str) -> tuple[Field, ...]:
    """Return the fields, with what a model's section says of histories and their targets."""
    kinds = {"history": ("slots",), "target": ("categorical", "integer")}
    for interest in config.histories:
        for role, name in (("history", interest.history), ("target", interest.target)):
            field = fields.get(name)
            if field is None or field.kind not in kinds[role]:
                fitting = [each.name for each in fields.values() if each.kind in kinds[role]]
                raise UsageError(
                    f"expected as {role} a feature of kind {' or '.join(kinds[role])} that the model reads, "
                    f"received `{name}`{'' if field is None else f' ({field.kind})'}",
                    where=where,
                    hint=did_you_mean(name, fitting) or f"there are: {', '.join(fitting) or 'none'}",
                )
            window = config.history_window if role == "history" else None
            fields[name] = replace(field, window=window, items=interest.target)
    return tuple(fields.values())


def make_network(
    config: ClickModelSection, fields: ClickFields, tables: Mapping[str, Table], labels: int
) -> ClickNetwork:
    """Return the network of a model's section over some tables, for a number of labels."""
    shape = network_shape(config, fields, labels)
    return _network_class(config)(shape, tables, **config.network_arguments)


def table_dims(config: ClickModelSection, fields: ClickFields) -> dict[str, int]:
    """Return the length of a row of each table of a model's section, by name."""
    return _network_class(config).table_dims(network_shape(config, fields))


def _network_class(config: ClickModelSection) -> type[ClickNetwork]:
    found: type[ClickNetwork] = resolve_name(config.NETWORK)
    return found


def network_shape(config: ClickModelSection, fields: ClickFields, labels: int = 1) -> ClickShape:
    """Return the sizes of a model's section, for a number of labels."""
    bags = fields.bags
    return ClickShape(
        fields=sum(map(len, bags.values())),
        numbers=fields.num_dense,
        dim=config.dim,
        hidden=config.hidden,
        dropout=config.dropout,
        row_dropout=config.row_dropout,
        bags=bags,
        labels=labels,
    )


class ClickModel:
    """Tells the probability that rows are clicked, and of further labels where it learnt these.

    Args:
        config: the model's section of the run file.
        fields: makes fields of features.
        scale: of numbers.
        network: the network, trained.
        labels: names of the labels, of a model that learnt several; else empty.
    """

    def __init__(
        self,
        config: ClickModelSection,
        fields: ClickFields,
        scale: NumberScale,
        network: ClickNetwork,
        labels: tuple[str, ...] = (),
    ) -> None:
        self.config = config
        self.fields = fields
        self.scale = scale
        self.network = network.eval()
        self.labels = labels
        self._batch_rows = _BATCH_ROWS // (1 + config.events // _CHEAP_EVENTS)

    def predict(self, table: TableLike) -> NDArray[np.float32]:
        """Return the probability of each row of a table: float32 [rows], of several labels [rows, labels].

        Columns are called and read as those of the features that the model was trained on; others are passed
        over. Values that were never learnt count as nothing.

        Args:
            table: a file, a data frame, or arrays by name; see :func:`graphbox.graph.source.open_table`.

        Raises:
            NotFoundError: there is no such file.
            DataError: a column is missing, or a value cannot be read.
        """
        parts = read_feature_rows(table, self.fields.fields)
        found = (self.predict_rows(self.fields.prepare(part.columns)) for part in parts)
        probabilities = np.concatenate([self._no_rows(), *found])
        return probabilities if self.labels else probabilities[:, 0]

    @torch.no_grad()
    def predict_log(self, log: LogRows, processes: TrainingProcesses = ALONE) -> NDArray[np.float32]:
        """Return the probabilities of each row of a log, in order: float32 [rows, labels].

        Several processes, which all call this, divide the log; each gets all, the bits that one finds.
        """
        windows, sizes = log.measured_windows(), log.block_sizes()
        rows = [int(sizes[window].sum()) for window in windows]
        parts = processes.slices_of(len(windows))
        batches = [sum(-(-count // self._batch_rows) for count in rows[part]) for part in parts]
        own = [self.predict_rows(log.read(window)[0]) for window in windows[parts[processes.rank]]]
        if batches[processes.rank] < max(batches):  # rows of others are looked up in tables of all
            nothing = self._batch(take_rows(log.read(windows[0][:1])[0], np.zeros(0, np.int64)))
            for _ in range(max(batches) - batches[processes.rank]):
                self.network.fetch(nothing)
        found = torch.from_numpy(np.concatenate([self._no_rows(), *own]))
        counts = [sum(rows[part]) for part in parts]
        return processes.gather_rows("probabilities", found, counts).numpy()

    @torch.no_grad()
    def predict_rows(self, rows: Rows) -> NDArray[np.float32]:
        """Return the probabilities of each prepared row: float32 [rows, labels]."""
        count = row_count(rows)
        found = [self._no_rows()]
        self.network.eval()
        for start in range(0, count, self._batch_rows):
            batch = self._batch(take_rows(rows, np.arange(start, min(start + self._batch_rows, count))))
            logits = self.network(self.network.fetch(batch), batch.numbers)
            found.append(torch.sigmoid(logits).cpu().numpy())
        return np.concatenate(found)

    def _no_rows(self) -> NDArray[np.float32]:
        return np.zeros((0, self.network.shape.labels), np.float32)

    def _batch(self, rows: Rows) -> FieldBatch:
        batch: FieldBatch = moved(self.fields.batch(rows, self.scale), self.network.bias.device)
        return batch


def save_click_model(model: ClickModel, folder: Path) -> None:
    """Write a model: its section, its fields, its parameters and its tables."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for name, table in model.network.tables().items():
        table.save(folder / "tables" / name)
    tensors = {f"model.{name}": value for name, value in network_values(model.network).items()}
    tensors |= {f"scale.{name}": value.contiguous() for name, value in scale_tensors(model.scale).items()}
    with write_atomically(folder / "model.safetensors") as stream:
        stream.write(save(tensors))
    header = {
        "section": model.config.model_dump(mode="json"),
        "fields": [asdict(field) for field in model.fields.fields],
        "labels": model.labels,
    }
    with write_atomically(folder / "model.json") as stream:
        stream.write(json.dumps(header, indent=1).encode())


def load_click_model(folder: Path) -> ClickModel:
    """Read what :func:`save_click_model` wrote.

    Raises:
        OSError, ValueError, KeyError, TypeError, FormatError: a file is missing or damaged.
    """
    header = json.loads((folder / "model.json").read_text())
    config = TypeAdapter(ModelConfig).validate_json(json.dumps(header["section"]))
    if not isinstance(config, ClickModelSection):
        raise ValueError(f"a model of kind {config.kind}")
    fields = make_fields(config, tuple(Field(**each) for each in header["fields"]))
    tables = {name: EmbeddingTable.load(folder / "tables" / name) for name in table_dims(config, fields)}
    labels = tuple(header.get("labels", ()))  # runs of earlier releases have none
    network = make_network(config, fields, tables, max(1, len(labels)))
    tensors = load_file(folder / "model.safetensors")
    scale = scale_from_tensors(
        {name.removeprefix("scale."): value for name, value in tensors.items() if name.startswith("scale.")}
    )
    set_network_values(network, {name.removeprefix("model."): value for name, value in tensors.items()})
    return ClickModel(config, fields, scale, network, labels)


def network_values(network: ClickNetwork) -> dict[str, Tensor]:
    """Return the parameters of a network by name."""
    return {name: value.detach() for name, value in network.named_parameters()}


def set_network_values(network: ClickNetwork, values: Mapping[str, Tensor]) -> None:
    """Give a network the parameters that :func:`network_values` returned of another."""
    with torch.no_grad():
        for name, value in network.named_parameters():
            value.copy_(values[name])
