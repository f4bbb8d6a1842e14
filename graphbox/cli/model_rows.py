"""`graphbox models update` and `updates`: new rows of served model versions, their list, rolling back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.promotion import print_servers, server_documents
from graphbox.cli.session import Session
from graphbox.cli.text import age, table
from graphbox.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from graphbox.artifact.row_updates import UpdateManifest

__all__ = ["row_updates", "update_rows"]

NameArgument = Annotated[str, typer.Argument(help="Name of the model.")]
VersionOption = Annotated[int | None, typer.Option("--version", help="Version; without it, the active one.")]


def update_rows(
    session: Session,
    name: NameArgument,
    file: Annotated[Path, typer.Argument(help="File with ids and their new rows.")],
    table_name: Annotated[
        str | None, typer.Option("--table", help="Table of the model; needed where it has several.")
    ] = None,
    version: VersionOption = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="csv, tsv, npy, npz, parquet, safetensors, word2vec, word2vec_binary, pglbox. "
            "(default: by the file's name)",
        ),
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="Text file with an id a line. (default: those of the file)")
    ] = None,
    tensor: Annotated[str | None, typer.Option(help="Name of the tensor where a file has several.")] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Parquet, CSV, TSV: column of the ids. (default: id)")
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(help="Parquet: column of lists. (default: the only one, or a column a dimension)"),
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option("--sequence", help="Number that the update has to get; another one is an error."),
    ] = None,
) -> None:
    """Give new rows to some ids of a model version, while it is served.

    Running servers answer with all of them within a second. Ids that the model lacks are added, except to
    encoders.
    """
    from graphbox.deploy.row_updates import RowUpdater, table_to_update
    from graphbox.model_import import EmbeddingOptions, read_row_file

    with session.workspace() as workspace:
        updater = RowUpdater(workspace, name, version)
        chosen = table_to_update(updater.manifest, table_name)
        options = EmbeddingOptions(ids=ids, tensor=tensor, id_column=id_column, column=column)
        values, rows = read_row_file(file, options, file_format)
        typed = _ids_of_kind(values, updater.has_integer_ids(chosen), file)
        written = updater.write({chosen: (typed, rows)}, sequence)
        servers = workspace.running_servers()
    document = {
        "name": name,
        "version": updater.version,
        **_document(written),
        "servers": server_documents(servers),
    }

    def show(console: Any) -> None:
        console.print(
            f"{name} version {updater.version}: row update {written.sequence}, {written.num_rows:,} rows of "
            f"`{chosen}`",
            soft_wrap=True,
        )
        print_servers(servers, console)

    session.answer(document, show)


def row_updates(
    session: Session,
    name: NameArgument,
    version: VersionOption = None,
    roll_back_to: Annotated[
        int | None,
        typer.Option(
            "--roll-back-to", min=0, help="Serve the rows after this update; 0: those of the version."
        ),
    ] = None,
) -> None:
    """List the row updates of a model version; `*` marks the active one. Roll back to one of them."""
    from graphbox.deploy.row_updates import list_row_updates, roll_back_rows

    with session.workspace() as workspace:
        before = None
        if roll_back_to is not None:
            before = roll_back_rows(workspace, name, roll_back_to, version)
        found = list_row_updates(workspace, name, version)
    document = {
        "name": found.name,
        "version": found.version,
        "active": found.active,
        "active_before": before,
        "updates": [_document(each) for each in found.updates],
        "damaged": {str(number): text for number, text in found.damaged.items()},
    }

    def show(console: Any) -> None:
        if before is not None:
            console.print(
                f"{name} version {found.version}: row update {found.active} is active, before it {before}"
            )
        if not found.updates and not found.damaged:
            console.print(
                f"{name} version {found.version} has no row updates: `graphbox models update {name} FILE`"
            )
            return
        rows = [
            (
                f"{each.sequence}{' *' if each.sequence == found.active else ''}",
                str(each.parent.sequence),
                ", ".join(f"{table_name} {spec.rows:,}" for table_name, spec in each.tables.items()),
                age(each.created),
            )
            for each in found.updates
        ]
        console.print(table(None, ("update", "follows", "rows", "written"), rows, ("follows",)))
        for number, text in found.damaged.items():
            console.print(f"row update {number} cannot be read: {text}", soft_wrap=True)

    session.answer(document, show)


def _document(update: UpdateManifest) -> dict[str, Any]:
    return {
        "sequence": update.sequence,
        "parent": update.parent.sequence,
        "created_at": update.created,
        "rows": {name: spec.rows for name, spec in update.tables.items()},
    }


def _ids_of_kind(ids: pa.Array, are_integers: bool, file: Path) -> pa.Array:
    """Return ids of a file as a table has them: a file of texts may write integers, and the reverse."""
    import pyarrow as pa

    if are_integers == pa.types.is_int64(ids.type):
        return ids
    if are_integers:
        raise DataError(
            "expected ids that are integers, as those of the model, received texts", where=str(file)
        )
    return ids.cast(pa.large_string())
