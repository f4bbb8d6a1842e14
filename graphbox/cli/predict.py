"""`graphbox predict`: the probabilities that a model of clicks gives the rows of a table."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

import typer

from graphbox.cli.embed import ModelOption
from graphbox.cli.runs import is_run
from graphbox.cli.session import Session, command
from graphbox.cli.text import table
from graphbox.errors import GraphboxError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from graphbox.fields import Fields, Rows
    from graphbox.workspace import Workspace

__all__ = ["register"]

_SHOWN_ROWS = 20
_SUFFIXES = (".parquet", ".csv", ".tsv")


def predict(
    session: Session,
    name: Annotated[str, typer.Argument(help="Id of a run (`last`), or name of a model of the workspace.")],
    rows: Annotated[
        Path, typer.Option("--input", "-i", help="Table of rows: CSV, TSV, Parquet, Arrow, NumPy.")
    ],
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
    """Predict the rows of a table: how probable it is that each is positive, such as clicked.

    Its columns are called and read as those the model was trained on; other columns are passed over. A value
    that was never learnt counts as nothing. The file has the columns `row`, from 0, and `probability`.
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
    with ExitStack() as stack:
        workspace = stack.enter_context(session.workspace())
        predictor = _predictor(workspace, stack, name, model, version)
        writer = stack.enter_context(_Predictions(output, id_column))
        for part in _predicted(predictor, rows, id_column):
            writer.write(part)
        writer.finish()
    document = {
        **predictor.about,
        "rows": writer.num_rows,
        "output": output,
        **({} if output else {"predictions": writer.first}),
    }
    session.answer(document, lambda console: writer.show(console, _title(predictor)))


class _Predictor:
    """What predicts, and what it is.

    Attributes:
        fields: what is read of a row.
        predict: returns the probability of each prepared row.
        about: for the answer.
    """

    def __init__(
        self, fields: Fields, predict: Callable[[Rows], NDArray[np.float32]], about: dict[str, Any]
    ) -> None:
        self.fields = fields
        self.predict = predict
        self.about = about


def _predictor(
    workspace: Workspace, stack: ExitStack, name: str, model: str | None, version: int | None
) -> _Predictor:
    if is_run(workspace, name):
        if version is not None:
            raise UsageError("expected a version of a model, received one of a run", where="--version")
        from graphbox.pipeline.run_data import RunData

        data = RunData.open(workspace, name)
        trained = data.trained(model)
        if trained.click is None:
            raise UsageError(
                f"expected a model that predicts rows, received `{trained.name}` of kind {trained.kind}",
                where="--model",
                hint="models of kind deepfm, dcn and wide_and_deep do",
            )
        of_run: dict[str, Any] = {"run": data.record.id, "model": trained.name}
        return _Predictor(trained.click.fields, trained.click.predict_rows, of_run)
    if model is not None:
        raise UsageError("expected a model of a run, received one of the workspace", where="--model")
    from graphbox.deploy import open_click

    record = workspace.model(name, version)
    deployed = stack.enter_context(open_click(record.path))
    about: dict[str, Any] = {"model": record.name, "version": record.version}
    return _Predictor(deployed.fields, lambda rows: deployed.predict_rows(rows).probability, about)


def _predicted(predictor: _Predictor, rows: Path, id_column: str | None) -> Iterator[pa.Table]:
    """Yield the rows' predictions as tables."""
    import pyarrow as pa

    from graphbox.graph.feature_rows import read_feature_rows

    first = 0
    for part in read_feature_rows(rows, predictor.fields.fields, [] if id_column is None else [id_column]):
        found = predictor.predict(predictor.fields.prepare(part.columns))
        yield pa.table(
            {
                "row": pa.array(range(first, first + len(found)), pa.int64()),
                **part.further,
                "probability": pa.array(found, pa.float32()),
            }
        )
        first += len(found)


class _TableWriter(Protocol):
    def write_table(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


class _Predictions:
    """Predictions on their way into a file, which appears whole or not at all.

    Attributes:
        num_rows: how many so far.
        first: the first of them, as many as are shown.
    """

    def __init__(self, path: Path | None, id_column: str | None) -> None:
        self.num_rows = 0
        self.first: list[dict[str, Any]] = []
        self._path = path
        self._names = ["row", *([] if id_column is None else [id_column]), "probability"]
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
        import pyarrow as pa

        if self._writer is None:
            kinds = {"row": pa.int64(), "probability": pa.float32()}
            self._open(pa.schema([(name, kinds.get(name, pa.string())) for name in self._names]))
        self._close()
        with self._partial.open("rb") as stream:
            os.fsync(stream.fileno())
        self._partial.replace(self._path)

    def show(self, console: Any, title: str) -> None:
        """Print where the predictions are, or the first of them."""
        if self._path is not None:
            console.print(f"{self._path}: {self.num_rows:,} rows", markup=False, soft_wrap=True)
            return
        cells = [
            tuple(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values())
            for row in self.first
        ]
        console.print(table(title, tuple(self._names), cells, ("row", "probability")))
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


def _title(predictor: _Predictor) -> str:
    return f"Predictions of {predictor.about['model']}"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "predict")(predict)
