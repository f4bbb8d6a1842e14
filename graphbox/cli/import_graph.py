"""`graphbox import`: tables become a graph in the workspace, or change one that is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphbox.cli.change_graph import RemovedNodes, append_source, remove_source
from graphbox.cli.session import Session, command
from graphbox.cli.table_options import (
    PANEL,
    ColumnsOption,
    FormatOption,
    KeepDuplicatesOption,
    MemoryOption,
    SourceOption,
    TableOptions,
    TargetOption,
    ThreadsOption,
    TimestampOption,
    TypeOption,
    WeightOption,
    is_run_file,
)
from graphbox.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.config import GraphConfig

_CHANGE = "Changing a graph"


def import_graph(
    session: Session,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|TABLE [key.path=value ...]",
            help="Run file (.yaml, its section `graph` is read) and overrides of its values; or a table of "
            "edges: a file, a folder or pattern of parts, or a URL.",
            show_default=False,
        ),
    ] = None,
    memory: MemoryOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse what would be skipped, instead of counting it.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Import even if nothing has changed.")] = False,
    threads: ThreadsOption = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the graph. (default: the file's)", rich_help_panel=PANEL)
    ] = None,
    type: TypeOption = None,  # noqa: A002 (the option's name)
    source: SourceOption = None,
    target: TargetOption = None,
    weight: WeightOption = None,
    timestamp: TimestampOption = None,
    format: FormatOption = None,  # noqa: A002 (the option's name)
    columns: ColumnsOption = None,
    id_type: Annotated[
        str | None,
        typer.Option(
            metavar="string|int64", help="What ids are. (default: told by the table)", rich_help_panel=PANEL
        ),
    ] = None,
    keep_duplicates: KeepDuplicatesOption = False,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Add the nodes, edges and features of the run file or table to the graph.",
            rich_help_panel=_CHANGE,
        ),
    ] = False,
    remove: Annotated[
        bool,
        typer.Option(
            "--remove",
            help="Remove the nodes and edges that the run file or table lists, or those of --node.",
            rich_help_panel=_CHANGE,
        ),
    ] = False,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="Remove nodes of this type, with all their edges; the arguments are their ids.",
            rich_help_panel=_CHANGE,
        ),
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The ids are in this file: a .txt with one on each line, or a table with a column `id`.",
            rich_help_panel=_CHANGE,
        ),
    ] = None,
    no_compact: Annotated[
        bool,
        typer.Option(
            "--no-compact",
            help="Leave the rewriting of the graph for `graphbox compact`; until then what was removed "
            "stays on the disk.",
            rich_help_panel=_CHANGE,
        ),
    ] = False,
) -> None:
    """Import a graph from the tables of a run file, or from one table of edges; or change one.

    The table's name, or `--name`, becomes the graph's. `graphbox plan` tells beforehand what it takes.
    Interrupted or killed, an import leaves the graph that was there before, or none.
    """
    if append and remove:
        raise UsageError("expected --append or --remove, received both", hint="call the command twice")
    if not remove and (node is not None or ids is not None):
        raise UsageError("--node and --ids say what to remove", hint="add --remove")
    options = TableOptions(
        name, type, source, target, weight, timestamp, format, columns, id_type, keep_duplicates or None
    )
    if remove:
        nodes = RemovedNodes(node, arguments or (), ids)
        remove_source(session, arguments or (), options, nodes, strict=strict, compact=not no_compact)
        return
    first, *rest = arguments or [""]
    if not first:
        raise UsageError(
            "expected a run file or a table of edges",
            hint="`graphbox import FILE.yaml`, or for example `graphbox import edges.csv --name shop`",
        )
    if append:
        append_source(session, first, rest, options, strict=strict, compact=not no_compact)
        return
    config, threads = read_graph_config(
        session, first, rest, options, memory=memory, strict=strict, threads=threads
    )
    _import(session, config, again=again, threads=threads)


def memory_bytes(memory: str | None, option: str = "--memory") -> int | None:
    """Return an option that is a size in bytes.

    Raises:
        UsageError: it is no size.
    """
    if memory is None:
        return None
    from graphbox.config import parse_byte_size

    try:
        return parse_byte_size(memory)
    except UsageError as error:
        raise UsageError(error.message, where=option, hint=error.hint) from None


def read_graph_config(
    session: Session,
    source: str,
    overrides: list[str],
    options: TableOptions,
    *,
    memory: str | None,
    strict: bool = False,
    threads: int | None = None,
    complete: bool = True,
) -> tuple[GraphConfig, int | None]:
    """Return the graph that a run file or a table with its options describes, and the threads to use.

    Args:
        session: this call.
        source: the run file or the table.
        overrides: of values of the run file.
        options: those of a table.
        memory: the option.
        strict: the option.
        threads: the option.
        complete: whether it is a whole graph, or changes one.

    Raises:
        UsageError: arguments or options do not go together, or the run file has mistakes.
    """
    from graphbox.config import load_config
    from graphbox.pipeline.table_check import table_mistakes

    allowed = memory_bytes(memory)
    if is_run_file(source):
        if options.given():
            raise UsageError(
                f"a run file says itself what {', '.join(options.given())} would say",
                where=source,
                hint="override a value of it instead: `graph.name=other`",
            )
        extra = [*(["graph.strict=true"] if strict else [])]
        extra += [] if allowed is None else [f"graph.memory={allowed}"]
        config = load_config(
            Path(source), [*overrides, *extra], check_tables=table_mistakes, complete=complete
        )
        if config.graph.is_stored:
            raise UsageError(
                f"expected tables to import, received a run file of the stored graph `{config.graph.name}`",
                where=source,
                hint="list them under `graph.nodes` and `graph.edges`",
            )
        return config.graph, threads if threads is not None else config.threads
    if overrides:
        raise UsageError(
            f"expected one table, received also `{overrides[0]}`",
            hint="several parts are named by a pattern in quotes ('edges/*.csv') or their folder; several "
            "tables by a run file",
        )
    graph, remarks = options.graph(source, allowed, strict=strict)
    for remark in remarks:
        session.note(remark)
    return graph, threads


def _import(session: Session, config: GraphConfig, *, again: bool, threads: int | None) -> None:
    from graphbox.cli.import_progress import watched_import
    from graphbox.cli.import_report import print_report
    from graphbox.pipeline.stages.import_graph import import_config

    with session.workspace(create=True) as workspace:
        with watched_import(session) as tell:
            imported = import_config(config, workspace, again=again, threads=threads, progress=tell)
        record, report = imported.record, imported.report
    document = {
        "name": record.name,
        "path": record.path,
        "fingerprint": record.fingerprint,
        "nodes": sum(record.node_types.values()),
        "edges": sum(each.edges for each in record.edge_types),
        "size_bytes": record.size_bytes,
        "report": None if report is None else report.as_dict(),
    }

    def show(console: Console) -> None:
        if report is None:
            console.print(f"{imported.summary}; --again imports it anew", markup=False, soft_wrap=True)
        else:
            print_report(report, console)

    session.answer(document, show)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "import")(import_graph)
