"""`graphbox models`: the model versions of a workspace."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.model_rows import row_updates, update_rows
from graphbox.cli.model_traffic import canary_model, roll_back_model, shadow_model
from graphbox.cli.promotion import comparison_text, print_servers, server_documents
from graphbox.cli.results import measured_text
from graphbox.cli.session import Session, command
from graphbox.cli.text import age, byte_size, metric, table

if TYPE_CHECKING:
    from graphbox.workspace import ModelRecord

group = typer.Typer(help="List, show, add, promote or remove models.")


class NeighborScore(StrEnum):
    """Scores by which neighbours of an embedding are ranked."""

    COSINE = "cosine"
    DOT = "dot"


class UnknownIds(StrEnum):
    """Answers for ids that a model of embeddings lacks."""

    REFUSE = "refuse"
    ZERO = "zero"
    MEAN = "mean"


NameArgument = Annotated[str, typer.Argument(help="Name of the model.")]
VersionOption = Annotated[int | None, typer.Option("--version", help="Version; without it, the active one.")]


def list_models(session: Session) -> None:
    """List all model versions; `*` marks the active one, which is served by default.

    `request p50` is the median latency of the smallest request, end to end but for the network.
    """
    with session.workspace() as workspace:
        models = workspace.models()

    def show(console: Any) -> None:
        if not models:
            console.print("no models yet: `graphbox run FILE` or `graphbox demo` makes some")
            return
        rows = [
            (
                model.name,
                f"{model.version}{' *' if model.active else ''}",
                model.kind,
                model.precision,
                byte_size(model.size_bytes),
                _deciding_metric(model),
                _latency(model),
                age(model.created_at),
            )
            for model in models
        ]
        columns = ("model", "version", "kind", "precision", "size", "metric", "request p50", "made")
        console.print(table(None, columns, rows, ("size", "request p50")))

    session.answer([_document(model) for model in models], show)


def show_model(session: Session, name: NameArgument, version: VersionOption = None) -> None:
    """Show one model version: metrics, sizes, latencies, where it came from, and the active one beside it."""
    from graphbox.workspace import compare

    with session.workspace() as workspace:
        model = workspace.model(name, version)
        active = next(each for each in workspace.models(name) if each.active)
    comparison = None if model.active else compare(model, active).as_dict()

    def show(console: Any) -> None:
        facts = [
            ("kind", model.kind),
            ("task", model.task or ""),
            ("precision", model.precision),
            ("size", byte_size(model.size_bytes)),
            ("made", f"{model.created_at:%Y-%m-%d %H:%M} UTC"),
            ("run", model.run_id or ""),
            ("made from", f"version {model.parent}" if model.parent else ""),
            ("active", "yes" if model.active else "no"),
            ("folder", str(model.path)),
        ]
        if comparison is not None:
            facts.append((f"vs version {active.version}", comparison_text(comparison)))
            facts.append(("", comparison["not_comparable"] or ""))
        console.print(f"[bold]{model.name}[/] version {model.version}")
        for label, value in facts:
            if value:
                console.print(f"  {label:<12} {value}", markup=False, soft_wrap=True)
        metrics = [
            (task, key, metric(value))
            for task, values in model.metrics.items()
            for key, value in values.items()
        ]
        if metrics:
            console.print(table("Metrics", ("task", "metric", "value"), metrics, ("value",)))
        if model.bench:
            rows = [
                (
                    measured_text(b.operation),
                    b.target,
                    str(b.threads),
                    str(b.batch),
                    f"{b.p50_ms:.3f}",
                    f"{b.p99_ms:.3f}",
                    f"{b.rows_per_s:,.0f}",
                )
                for b in model.bench
            ]
            columns = ("measured", "target", "threads", "batch", "p50 ms", "p99 ms", "rows/s")
            console.print(table("Latency", columns, rows, columns[2:]))

    session.answer({**_document(model), "comparison": comparison}, show)


def add_model(
    session: Session,
    name: NameArgument,
    file: Annotated[Path, typer.Argument(help="File to read, or a folder of part files.")],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="onnx, npy, npz, parquet, safetensors, word2vec, word2vec_binary, pglbox. "
            "(default: by the file's name)",
        ),
    ] = None,
    example: Annotated[
        Path | None,
        typer.Option(help="ONNX: a KServe v2 request that the model accepts. (default: inputs are made up)"),
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(help="Rows: text file with an id a line. (default: those of the file, or positions)"),
    ] = None,
    tensor: Annotated[
        str | None, typer.Option(help="Rows: name of the tensor where a file has several.")
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="Parquet: column of the ids. (default: id)")] = None,
    column: Annotated[
        str | None,
        typer.Option(help="Parquet: column of lists. (default: the only one, or a column a dimension)"),
    ] = None,
    node_type: Annotated[str, typer.Option("--type", help="Rows: node type of the ids.")] = "node",
    score: Annotated[
        NeighborScore, typer.Option(help="Rows: what neighbours are ranked by.")
    ] = NeighborScore.COSINE,
    unknown_ids: Annotated[
        UnknownIds,
        typer.Option(help="Rows: answer for ids that are not in the file, an error or a default vector."),
    ] = UnknownIds.REFUSE,
    target: Annotated[
        str, typer.Option(help="ONNX: adapter to try the model on; see `graphbox targets`.")
    ] = "auto",
    join: Annotated[
        bool,
        typer.Option(
            "--join/--no-join",
            help="ONNX: join requests into one execution, where rows are found to be independent.",
        ),
    ] = True,
    promote: Annotated[
        bool,
        typer.Option("--promote", help="Make the version active. The first version of a name always is."),
    ] = False,
) -> None:
    """Add a model that another program made: an ONNX file, or a table of embeddings.

    The file becomes a new version, which is served like the models of a run. An ONNX file is run once before.
    Files with pickles (.pt, .pkl) are refused.
    """
    from graphbox.model_import import EmbeddingOptions, format_of
    from graphbox.model_import import add_model as write
    from graphbox.pipeline.artifacts import register as register_version

    found = format_of(file, file_format)
    options = EmbeddingOptions(
        node_type=node_type,
        score="inner_product" if score is NeighborScore.DOT else "cosine",
        unknown_ids=unknown_ids.value,
        ids=ids,
        tensor=tensor,
        id_column=id_column,
        column=column,
    )
    with session.workspace(create=True) as workspace:
        version, folder = workspace.new_model_path(name)
        try:
            artifact = write(
                file,
                found,
                folder,
                name,
                version,
                target=target,
                example=example,
                join_calls=join,
                embedding=options,
            )
        except BaseException:
            with suppress(OSError):  # other versions are there
                folder.parent.rmdir()
            raise
        record = register_version(workspace, artifact, run_id=None, measured=None)
        if promote and not record.active:
            record = workspace.promote_model(name, version)
        servers = workspace.running_servers()
    manifest = artifact.manifest
    document = {
        **_document(record),
        "format": found,
        "inputs": [each.model_dump(mode="json") for each in manifest.inputs],
        "outputs": [each.model_dump(mode="json") for each in manifest.outputs],
        "rows": sum(spec.rows for spec in manifest.tables.values()),
    }

    def show(console: Any) -> None:
        console.print(f"[bold]{name}[/] version {version}, {manifest.kind}, {byte_size(record.size_bytes)}")
        for label, tensors in (("input", manifest.inputs), ("output", manifest.outputs)):
            for spec in tensors:
                sizes = ", ".join("any" if size < 0 else str(size) for size in spec.shape)
                console.print(
                    f"  {label:<7} {spec.name} {spec.datatype} [{sizes}]", markup=False, soft_wrap=True
                )
        for rows in manifest.tables.values():
            console.print(f"  rows    {rows.rows:,} x {rows.dim}, {rows.codec}", markup=False)
        if record.active:
            print_servers(servers, console)
        else:
            console.print(
                f"not active: `graphbox models promote {name} --version {version}` serves it", soft_wrap=True
            )

    session.answer(document, show)


def promote_model(
    session: Session, name: NameArgument, version: Annotated[int, typer.Option("--version", help="Version.")]
) -> None:
    """Make a version active: the one served by default. Ends the canary and the shadow of the model.

    Promoting an earlier version goes back to it.
    """
    with session.workspace() as workspace:
        before = workspace.active_versions().get(name)
        model = workspace.promote_model(name, version)
        servers = workspace.running_servers()

    def show(console: Any) -> None:
        earlier = "" if before == version else f", before it version {before} was"
        console.print(f"{name}: version {version} is active{earlier}", soft_wrap=True)
        print_servers(servers, console)

    session.answer({**_document(model), "active_before": before, "servers": server_documents(servers)}, show)


def remove_model(session: Session, name: NameArgument, version: VersionOption = None) -> None:
    """Remove a version of a model, or all versions, and their files."""
    with session.workspace() as workspace:
        freed_bytes = workspace.remove_model(name, version)
        left = workspace.active_versions().get(name)
    what = name if version is None else f"{name} version {version}"
    document = {"removed": name, "version": version, "freed_bytes": freed_bytes, "active": left}
    active = "" if left is None else f"; version {left} is active"
    session.answer(
        document, lambda console: console.print(f"removed {what}, {byte_size(freed_bytes)} freed{active}")
    )


def _document(model: ModelRecord) -> dict[str, Any]:
    return {
        "name": model.name,
        "version": model.version,
        "active": model.active,
        "kind": model.kind,
        "task": model.task,
        "precision": model.precision,
        "size_bytes": model.size_bytes,
        "metrics": model.metrics,
        "deciding_metric": model.deciding_metric,
        "bench": bench_documents(model),
        "parent": model.parent,
        "run": model.run_id,
        "created_at": model.created_at,
        "path": model.path,
    }


def bench_documents(model: ModelRecord) -> list[dict[str, Any]]:
    """Return a version's measurements as plain values."""
    return [
        {
            "operation": b.operation,
            "target": b.target,
            "threads": b.threads,
            "batch": b.batch,
            "p50_ms": b.p50_ms,
            "p99_ms": b.p99_ms,
            "rows_per_s": b.rows_per_s,
        }
        for b in model.bench
    ]


def _deciding_metric(model: ModelRecord) -> str:
    if model.quality is not None:
        return f"{model.deciding_metric} {metric(model.quality)}"
    for values in model.metrics.values():
        for name, value in values.items():
            return f"{name} {metric(value)}"
    return ""


def _latency(model: ModelRecord) -> str:
    return f"{model.request.p50_ms:.2f} ms" if model.request else ""


command(group, "list", default=True)(list_models)
command(group, "show")(show_model)
command(group, "add")(add_model)
command(group, "promote")(promote_model)
command(group, "rollback")(roll_back_model)
command(group, "canary")(canary_model)
command(group, "shadow")(shadow_model)
command(group, "update")(update_rows)
command(group, "updates")(row_updates)
command(group, "rm")(remove_model)


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.add_typer(group, name="models")
