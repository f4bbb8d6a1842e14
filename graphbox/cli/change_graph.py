"""`graphbox import --append` and `--remove`, and `graphbox compact`: changing a graph of the workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.import_progress import watched_import
from graphbox.cli.import_report import print_edge_losses, print_node_losses
from graphbox.cli.session import Session, command
from graphbox.cli.table_options import TableOptions, is_run_file
from graphbox.cli.text import byte_size, duration
from graphbox.errors import UsageError
from graphbox.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.config import GraphConfig
    from graphbox.graph import Graph
    from graphbox.graph.delta import AppendReport, RemoveReport
    from graphbox.pipeline.graph_changes import Removal
    from graphbox.workspace import GraphRecord, Workspace


@dataclass(frozen=True)
class RemovedNodes:
    """Nodes to remove, as options name them.

    Attributes:
        node_type: their type.
        ids: their ids.
        file: a file with more of them.
    """

    node_type: str | None
    ids: Sequence[str]
    file: Path | None


def append_source(
    session: Session,
    source: str,
    overrides: Sequence[str],
    options: TableOptions,
    *,
    strict: bool,
    compact: bool,
) -> None:
    """Add the tables of a run file, or one table of edges, to a graph."""
    from graphbox.pipeline.graph_changes import append_tables

    with session.workspace() as workspace:
        config = _config_of_change(session, workspace, source, overrides, options, strict=strict)
        workspace.graph(config.name)
        with watched_import(session, "append", unit="tables") as tell:
            record, report = append_tables(config, workspace, compact=compact, progress=tell)
        document = {**report.as_dict(), "fingerprint": record.fingerprint, "graph": _totals(record)}
        session.answer(document, lambda console: _print_appended(report, record, console))


def remove_source(
    session: Session,
    arguments: Sequence[str],
    options: TableOptions,
    nodes: RemovedNodes,
    *,
    strict: bool,
    compact: bool,
) -> None:
    """Remove what the tables of a run file list, the edges of a table, or nodes by their ids."""
    from graphbox.graph import Graph
    from graphbox.pipeline.graph_changes import compact_graph, remove_from_graph

    with session.workspace() as workspace:
        if nodes.node_type is not None or nodes.file is not None:
            name = _required_name(options)
            graph = Graph.open(workspace.graph(name).path)
            removal = _named_nodes(nodes, graph)
        else:
            name, removal = _listed(session, workspace, arguments, options)
        record, report = remove_from_graph(name, removal, workspace, strict=strict)
        if compact:
            with watched_import(session, "compaction", unit="types") as tell:
                compact_graph(name, workspace, progress=tell)
            record = workspace.graph(name)
        document = {
            **report.as_dict(),
            "compacted": compact,
            "fingerprint": record.fingerprint,
            "graph": _totals(record),
        }
        session.answer(document, lambda console: _print_removed(report, record, compact, console))


def compact(
    session: Session,
    graph: Annotated[str, typer.Argument(help="Name of a graph in the workspace.")],
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="About what it may hold in memory, like 2GiB.")
    ] = None,
    if_needed: Annotated[
        bool, typer.Option("--if-needed", help="Only if there are so many changes that reading suffers.")
    ] = False,
    background: Annotated[
        bool, typer.Option("--background", help="Return at once; a process of its own does it.")
    ] = False,
    drop_versions: Annotated[
        bool,
        typer.Option(
            "--drop-versions",
            help="Also remove older versions that runs keep; these can no longer be evaluated or exported.",
        ),
    ] = False,
) -> None:
    """Make one whole of a graph and the changes appended to it; what was removed is then gone from its files.

    Readers keep what they have opened, and the graph may be changed meanwhile. Nodes and the stable ids
    of edges stay.
    """
    from graphbox.cli.import_graph import memory_bytes
    from graphbox.graph.compact import needs_compaction
    from graphbox.graph.versions import kept_versions, release_versions
    from graphbox.pipeline.graph_changes import compact_graph

    allowed = memory_bytes(memory)
    with session.workspace() as workspace:
        path = workspace.graph(graph).path
        document: dict[str, Any] = {"graph": graph, "compacted": False}
        if drop_versions:
            document["dropped_bytes"] = kept_versions(path).size_bytes
            release_versions(path)
        if if_needed and not needs_compaction(path):
            text = f"graph `{graph}` has too few changes to need compaction"
        elif background:
            process, log = _compact_in_background(session, graph, path, memory)
            document |= {"process": process, "log": log}
            text = f"graph `{graph}`: process {process} compacts it; what it says is in {log}"
        else:
            with watched_import(session, "compaction", unit="types") as tell:
                report = compact_graph(graph, workspace, memory_bytes=allowed, progress=tell)
            document |= {
                "compacted": report.changes > 0,
                "changes": report.changes,
                "size_bytes": report.after_bytes,
                "freed_bytes": report.before_bytes - report.after_bytes,
                "seconds": report.seconds,
            }
            sizes = f"{byte_size(report.before_bytes)} -> {byte_size(report.after_bytes)}"
            text = f"graph `{graph}`: compacted, {sizes} ({duration(report.seconds)})"
            if not report.changes:
                text = f"graph `{graph}` has no changes to compact"
    session.answer(document, lambda console: console.print(text, markup=False, soft_wrap=True))


def _compact_in_background(session: Session, graph: str, path: Path, memory: str | None) -> tuple[int, Path]:
    """Start a process that outlives this one; return its id and the file that has what it says."""
    program = [sys.executable, "-m", "graphbox", "-C", str(session.workspace_path), "-q", "compact", graph]
    log = path.parent / f".{path.name}.compaction.log"
    process = os.posix_spawn(
        sys.executable,
        program + ([] if memory is None else ["--memory", memory]),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return process, log


# What is to be appended or removed


def _config_of_change(
    session: Session,
    workspace: Workspace,
    source: str,
    overrides: Sequence[str],
    options: TableOptions,
    *,
    strict: bool,
) -> GraphConfig:
    from graphbox.cli.import_graph import read_graph_config

    if not is_run_file(source):
        options = replace(options, type=_known_type(workspace, options))
    config, _ = read_graph_config(
        session, source, list(overrides), options, memory=None, strict=strict, complete=False
    )
    return config


def _known_type(workspace: Workspace, options: TableOptions) -> str:
    """Return the edge type of a table: the given one, or the only one of the graph."""
    record = workspace.graph(_required_name(options))
    if options.type is not None:
        return options.type
    if len(record.edge_types) != 1:
        types = [f"{each.source},{each.relation},{each.target}" for each in record.edge_types]
        raise UsageError(
            f"expected --type: the graph `{record.name}` has {len(types)} edge types",
            hint=f"one of {' '.join(types)}",
        )
    only = record.edge_types[0]
    return f"{only.source},{only.relation},{only.target}"


def _required_name(options: TableOptions) -> str:
    if options.name is None:
        raise UsageError(
            "expected --name: which graph is to be changed",
            hint="`graphbox graphs` lists them",
        )
    return options.name


def _named_nodes(nodes: RemovedNodes, graph: Graph) -> Removal:
    from graphbox.pipeline.graph_changes import given_ids, ids_of_file

    if nodes.node_type is None:
        raise UsageError("expected --node: of which type the nodes are", hint="for example `--node user`")
    if nodes.file is not None and nodes.ids:
        raise UsageError(
            "expected ids as arguments or --ids FILE, received both", hint="call the command twice"
        )
    if nodes.file is not None:
        return ids_of_file(nodes.node_type, nodes.file, graph)
    if not nodes.ids:
        raise UsageError(
            f"expected the ids of nodes of type `{nodes.node_type}`, received none",
            hint=f"`--node {nodes.node_type} ID ...`, or --ids FILE",
        )
    return given_ids(nodes.node_type, nodes.ids, graph)


def _listed(
    session: Session, workspace: Workspace, arguments: Sequence[str], options: TableOptions
) -> tuple[str, Removal]:
    from graphbox.graph import Graph
    from graphbox.pipeline.graph_changes import removal_of_tables

    if not arguments:
        raise UsageError(
            "expected what to remove, received nothing",
            hint="`--node TYPE ID ...`, a table of edges, or a run file whose tables list nodes and edges",
        )
    config = _config_of_change(session, workspace, arguments[0], arguments[1:], options, strict=False)
    return config.name, removal_of_tables(config, Graph.open(workspace.graph(config.name).path))


# Reports


def _totals(record: GraphRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "nodes": sum(record.node_types.values()),
        "edges": sum(each.edges for each in record.edge_types),
        "size_bytes": record.size_bytes,
    }


def _now(record: GraphRecord) -> str:
    totals = _totals(record)
    counts = f"{counted(totals['nodes'], 'node')}, {counted(totals['edges'], 'edge')}"
    return f"now {counts}, {byte_size(record.size_bytes)}"


def _print_appended(report: AppendReport, record: GraphRecord, console: Console) -> None:
    def show(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    for node_type, nodes in report.nodes.items():
        updated = f", {nodes.updated:,} updated" if nodes.updated else ""
        show(f"{node_type}: {counted(nodes.added, 'node')} added{updated}")
        print_node_losses(node_type, nodes.skipped, nodes.examples, nodes.empty_values, console)
    for edges in report.edges:
        show(f"{' '.join(edges.type)}: {counted(edges.edges, 'edge')} added")
        print_edge_losses(edges, console)
    show(f"graph `{record.name}`: {_now(record)} ({duration(report.seconds)})")


def _print_removed(report: RemoveReport, record: GraphRecord, compacted: bool, console: Console) -> None:
    lines = [f"{node_type}: {counted(number, 'node')} removed" for node_type, number in report.nodes.items()]
    lines += [
        f"{' '.join(edge_type)}: {counted(number, 'edge')} removed"
        for edge_type, number in report.edges.items()
    ]
    for kind, number in report.absent.items():
        lines.append(f"{kind}: {number:,} given are not in the graph")
        lines += [f"    {example}" for example in report.examples.get(kind, ())]
    lines.append(f"graph `{record.name}`: {_now(record)}")
    lines.append(
        "compacted: what was removed is gone from the files of the graph; runs and models that were made "
        "before hold it until `graphbox forget`"
        if compacted
        else f"what was removed is still on the disk until `graphbox compact {record.name}`"
    )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "compact")(compact)
