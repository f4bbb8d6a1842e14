"""`graphbox predict`: how probable rows of a table are clicked, or which classes nodes of a graph have."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

import typer

from graphbox.cli.embed import ModelOption
from graphbox.cli.nodes import NodesOption, chosen_nodes, nodes_to_embed, tell_left_out
from graphbox.cli.runs import is_run
from graphbox.cli.session import Session, command
from graphbox.cli.text import table
from graphbox.durable import flush_to_disk, replace_durably
from graphbox.errors import GraphboxError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from graphbox.fields import Fields, Rows
    from graphbox.graph import Graph
    from graphbox.train import TrainedNetwork
    from graphbox.workspace import Workspace

_SHOWN_ROWS = 20
_SUFFIXES = (".parquet", ".csv", ".tsv")


def predict(
    session: Session,
    name: Annotated[str, typer.Argument(help="Id of a run (`last`), or name of a model of the workspace.")],
    rows: Annotated[
        Path | None,
        typer.Option(
            "--input", "-i", help="Rows to predict, of a model of clicks: CSV, TSV, Parquet, Arrow, NumPy."
        ),
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            "--graph",
            metavar="NAME",
            help="Graph whose nodes to predict, by a model of kind gnn. (default: that of its training)",
        ),
    ] = None,
    nodes: NodesOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write: .parquet, .csv or .tsv. (default: show the first rows)"
        ),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column of the table to write beside each probability.")
    ] = None,
    model: ModelOption = None,
    version: Annotated[
        int | None, typer.Option("--version", help="Version of a model. (default: the active one)")
    ] = None,
) -> None:
    """Predict rows of a table, or nodes of a graph.

    A model of clicks tells how probable it is that each row of `--input` is positive. Its columns are called
    and read as those the model was trained on, lists in cells of CSV with the same separator; other columns
    are passed over. A value that was never learnt
    counts as nothing. The file has the columns `row`, from 0, and `probability`; of a model of several labels
    (kind mmoe) `probability.LABEL` of the others as well.

    A graph network (kind gnn) that classifies tells the class of nodes, in the graph as it is now: those that
    came after training are told by their features and neighbours. The file has the columns `id`, `class` and
    `probability`.
    """
    if output is not None and output.suffix not in _SUFFIXES:
        raise UsageError(
            f"expected a file called *{', *'.join(_SUFFIXES)}, received `{output.name}`", where="--output"
        )
    if output is not None and not output.parent.is_dir():
        raise UsageError(
            f"expected a folder that exists for `{output.name}`, there is none at {output.parent}",
            where="--output",
            hint=f"mkdir -p {output.parent}",
        )
    asked = _Asked(rows, id_column, graph, nodes)
    with ExitStack() as stack:
        workspace = stack.enter_context(session.workspace())
        predictions = _predictions(workspace, stack, name, model, version, asked)
        writer = stack.enter_context(_Writer(output, predictions.schema))
        for part in predictions.parts:
            writer.write(part)
        writer.finish()
    tell_left_out(session, predictions.left_out)
    document = {
        **predictions.about,
        "rows": writer.num_rows,
        "output": output,
        **({} if output else {"predictions": writer.first}),
    }
    title = f"Predictions of {predictions.about['model']}"
    session.answer(document, lambda console: writer.show(console, title))


@dataclass(frozen=True)
class _Asked:
    """Input of a prediction.

    Attributes:
        rows: table of rows.
        id_column: column of it.
        graph: name of a graph.
        nodes: file of ids of its nodes.
    """

    rows: Path | None
    id_column: str | None
    graph: str | None
    nodes: Path | None

    def of_rows(self, model: str) -> Path:
        """Return the table of rows, for a model of clicks.

        Raises:
            UsageError: there is none, or nodes are asked for.
        """
        for option, value in (("--graph", self.graph), ("--nodes", self.nodes)):
            if value is not None:
                raise UsageError(
                    f"expected rows of a table for `{model}`, a model of clicks, received `{value}`",
                    where=option,
                    hint="give it `--input TABLE`",
                )
        if self.rows is None:
            raise UsageError(
                f"expected a table of rows to predict by `{model}`, a model of clicks, received none",
                where="--input",
                hint="give it `--input TABLE`",
            )
        return self.rows

    def check_nodes(self, model: str) -> None:
        """Check that nodes are asked for, of a graph network.

        Raises:
            UsageError: rows are.
        """
        for option, value in (("--input", self.rows), ("--id", self.id_column)):
            if value is not None:
                raise UsageError(
                    f"expected nodes of a graph for `{model}`, a graph network, received `{value}`",
                    where=option,
                    hint="`graphbox import --append` adds nodes to the graph; `--nodes FILE` names some",
                )


@dataclass(frozen=True)
class _Predictions:
    """Predictions, and what made them.

    Attributes:
        about: what made them, for the answer.
        schema: columns of each part.
        parts: tables of them.
        left_out: how many nodes of a type cannot be predicted.
    """

    about: dict[str, Any]
    schema: pa.Schema
    parts: Iterator[pa.Table]
    left_out: Mapping[str, int] = field(default_factory=dict)


def _predictions(
    workspace: Workspace, stack: ExitStack, name: str, model: str | None, version: int | None, asked: _Asked
) -> _Predictions:
    if is_run(workspace, name):
        if version is not None:
            raise UsageError("expected a version of a model, received one of a run", where="--version")
        return _of_run(workspace, name, model, asked)
    if model is not None:
        raise UsageError("expected a model of a run, received one of the workspace", where="--model")
    record = workspace.model(name, version)
    about: dict[str, Any] = {"model": record.name, "version": record.version}
    from graphbox.artifact import Artifact

    artifact = Artifact.open(record.path)
    if artifact.manifest.network is not None:
        from graphbox.graph import Graph
        from graphbox.train import load_network

        network = load_network(artifact.path / artifact.manifest.network, may_import=False)
        network.class_head()  # before what is asked of it: no answer would help with one of links
        asked.check_nodes(record.name)
        graph = Graph.open(workspace.graph(asked.graph or artifact.manifest.lineage.graph or "").path)
        return _of_nodes(network, graph, asked.nodes, about)
    from graphbox.deploy import open_click

    rows = asked.of_rows(record.name)
    deployed = stack.enter_context(open_click(record.path, verify=False))
    return _of_rows(
        rows,
        asked.id_column,
        deployed.fields,
        deployed.form.list_separator,
        lambda rows: deployed.predict_rows(rows).probabilities,
        deployed.form.labels,
        about,
    )


def _of_run(workspace: Workspace, run: str, model: str | None, asked: _Asked) -> _Predictions:
    from graphbox.config import kinds_that
    from graphbox.pipeline.run_data import RunData
    from graphbox.train import ClassHead

    data = RunData.open(workspace, run, graph=asked.graph, as_it_is=True)
    trained = data.trained(model, can=lambda section: section.PREDICTS)
    about: dict[str, Any] = {"run": data.record.id, "model": trained.name}
    if trained.click is not None:
        rows = asked.of_rows(trained.name)
        learnt_from = data.config.graph.nodes.get(trained.node_type)  # None: a stored graph, taken as it is
        separator = None if learnt_from is None else learnt_from.list_separator
        click = trained.click
        return _of_rows(
            rows, asked.id_column, click.fields, separator, click.predict_rows, click.labels, about
        )
    if trained.network is None or not isinstance(trained.network.head, ClassHead):
        raise UsageError(
            f"expected a model that predicts rows or nodes, received `{trained.name}` of kind {trained.kind}",
            where="--model",
            hint=f"models of kind {', '.join(kinds_that(lambda section: section.PREDICTS))} do, of a task of "
            "kind click or classify",
        )
    asked.check_nodes(trained.name)
    return _of_nodes(trained.network, data.graph, asked.nodes, about, data.config.threads)


def _of_rows(
    rows: Path,
    id_column: str | None,
    fields: Fields,
    list_separator: str | None,
    predict_rows: Callable[[Rows], NDArray[np.float32]],
    labels: tuple[str, ...],
    about: dict[str, Any],
) -> _Predictions:
    """Return the predictions of a table's rows, made as they are read."""
    import pyarrow as pa

    from graphbox.artifact.fields_form import probability_names
    from graphbox.graph.feature_rows import read_feature_rows

    names = probability_names(labels)

    def parts() -> Iterator[pa.Table]:
        first = 0
        further = [] if id_column is None else [id_column]
        for part in read_feature_rows(rows, fields.fields, further, list_separator=list_separator):
            found = predict_rows(fields.prepare(part.columns))
            yield pa.table(
                {
                    "row": pa.array(range(first, first + len(found)), pa.int64()),
                    **part.further,
                    **{name: pa.array(found[:, place]) for place, name in enumerate(names)},
                }
            )
            first += len(found)

    ids = [] if id_column is None else [(id_column, pa.string())]
    probabilities = [(name, pa.float32()) for name in names]
    return _Predictions(about, pa.schema([("row", pa.int64()), *ids, *probabilities]), parts())


def _of_nodes(
    network: TrainedNetwork,
    graph: Graph,
    nodes: Path | None,
    about: dict[str, Any],
    threads: int | None = None,
) -> _Predictions:
    """Return the classes of nodes of a graph."""
    import pyarrow as pa

    node_type = network.head.node_type
    asked = {node_type: chosen_nodes(graph, node_type, nodes)}
    chosen, left_out = nodes_to_embed(network, graph, asked, are_named=nodes is not None)
    probability = network.class_probabilities(graph, chosen[node_type], threads)
    ids = pa.array(graph.arrow_ids(node_type)).take(pa.array(chosen[node_type]))
    if network.has_several_classes:
        columns = {name: pa.array(probability[:, number]) for number, name in enumerate(network.classes)}
        found = pa.Table.from_arrays([ids, *columns.values()], names=["id", *columns])
    else:
        classes = pa.array([network.classes[number] for number in probability.argmax(axis=1).tolist()])
        best = pa.array(probability.max(axis=1, initial=0.0))
        found = pa.table({"id": ids, "class": classes, "probability": best})
    return _Predictions({**about, "graph": graph.name}, found.schema, iter([found]), left_out)


class _TableWriter(Protocol):
    def write_table(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


class _Writer:
    """Predictions on their way into a file, which appears whole or not at all.

    Attributes:
        num_rows: how many so far.
        first: the first of them, as many as are shown.
    """

    def __init__(self, path: Path | None, schema: pa.Schema) -> None:
        self.num_rows = 0
        self.first: list[dict[str, Any]] = []
        self._path = path
        self._schema = schema
        self._partial = (
            None if path is None else path.with_name(f".{path.name}.partial-{secrets.token_hex(8)}")
        )
        self._writer: _TableWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._partial is not None:
            self._partial.unlink(missing_ok=True)

    def write(self, part: pa.Table) -> None:
        """Take up some rows."""
        if self._path is None:
            self.first += part.slice(0, _SHOWN_ROWS - len(self.first)).to_pylist()
        else:
            self._open(part.schema).write_table(part)
        self.num_rows += part.num_rows

    def finish(self) -> None:
        """Move the file into place."""
        if self._path is None or self._partial is None:
            return
        if self._writer is None:
            self._open(self._schema)
        self._close()
        flush_to_disk(self._partial)
        replace_durably(self._partial, self._path)

    def show(self, console: Any, title: str) -> None:
        """Print where the predictions are, or the first of them."""
        if self._path is not None:
            console.print(f"{self._path}: {self.num_rows:,} rows", markup=False, soft_wrap=True)
            return
        cells = [
            tuple(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values())
            for row in self.first
        ]
        console.print(table(title, tuple(self._schema.names), cells, ("row", "probability")))
        if self.num_rows > len(self.first):
            console.print(f"... of {self.num_rows:,} rows; `--output FILE` writes all", markup=False)

    def _open(self, schema: pa.Schema) -> _TableWriter:
        import pyarrow.csv as arrow_csv
        import pyarrow.parquet as pq

        if self._writer is None and self._path is not None and self._partial is not None:
            try:
                if self._path.suffix == ".parquet":
                    self._writer = pq.ParquetWriter(self._partial, schema, compression="zstd")
                else:
                    delimiter = "\t" if self._path.suffix == ".tsv" else ","
                    options = arrow_csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
                    self._writer = arrow_csv.CSVWriter(self._partial, schema, write_options=options)
            except OSError as error:
                raise GraphboxError(
                    f"the predictions cannot be written: {error.strerror or error}", where=str(self._path)
                ) from error
        assert self._writer is not None  # noqa: S101 - for the type checker
        return self._writer

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "predict")(predict)
