"""Changing a graph of the workspace in place: appending, removing, compacting; its record follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphbox.config import GraphConfig
from graphbox.errors import DataError, NotFoundError, UsageError, did_you_mean
from graphbox.pipeline.run_graph import release_unused_versions
from graphbox.pipeline.stages.import_graph import graph_source
from graphbox.workspace import GraphRecord, Workspace

if TYPE_CHECKING:
    import pyarrow as pa

    from graphbox.graph import Graph
    from graphbox.graph.compact import CompactReport
    from graphbox.graph.delta import AppendReport, RemoveReport
    from graphbox.graph.schema import IdType

_BATCH_BYTES = 16 << 20


@dataclass(frozen=True)
class Removal:
    """Nodes and edges to remove.

    Attributes:
        nodes: original ids by node type.
        edges: original ids of sources and targets by edge type.
    """

    nodes: Mapping[str, pa.Array]
    edges: Mapping[tuple[str, str, str] | str, tuple[pa.Array, pa.Array]]


def append_tables(
    config: GraphConfig, workspace: Workspace, *, compact: bool = True, progress: Any = None
) -> tuple[GraphRecord, AppendReport]:
    """Add the tables of a section ``graph`` to the graph of its name.

    Args:
        config: the tables; ``strict`` and ``name`` count as in an import.
        workspace: where the graph is.
        compact: also compact the graph when changes have become many.
        progress: see `graphbox.graph.delta.append`.

    Raises:
        NotFoundError: there is no such graph.
        GraphboxError: see `graphbox.graph.delta.append`.
    """
    from graphbox.graph.delta import append

    with _changing(workspace, config.name, "appended to") as change:
        report = append(
            change.before.path,
            graph_source(config),
            progress,
            strict=config.strict,
            compact="auto" if compact else "never",
        )
    return change.after, report


def remove_from_graph(
    name: str, removal: Removal, workspace: Workspace, *, strict: bool = False
) -> tuple[GraphRecord, RemoveReport]:
    """Remove nodes, with all their edges, and edges from a graph.

    Raises:
        NotFoundError: there is no such graph or type, nothing of what is to be removed is there, or with
            ``strict`` something is not.
    """
    from graphbox.graph import Graph
    from graphbox.graph.delta import remove

    with _changing(workspace, name, "removed from") as change:
        if strict:
            _check_all_there(Graph.open(change.before.path), removal)
        report = remove(change.before.path, removal.nodes, removal.edges)
    if not any(report.nodes.values()) and not any(report.edges.values()):
        kind, examples = next(iter(report.examples.items()), ("", ()))
        raise NotFoundError(
            f"nothing was removed: none of the {sum(report.absent.values()):,} given is in the graph, "
            f"for example {examples[0]}"
            if examples
            else "nothing was removed: nothing was given",
            where=f"graph `{name}`" + (f", {kind}" if kind else ""),
            hint=f"`graphbox describe {name}` shows what there is",
        )
    return change.after, report


def compact_graph(
    name: str, workspace: Workspace, *, memory_bytes: int | None = None, progress: Any = None
) -> CompactReport:
    """Make one base of a graph and its changes; others may change it meanwhile.

    Args:
        name: the graph.
        workspace: where it is.
        memory_bytes: about the most to take for blocks of edges and features.
        progress: see `graphbox.graph.compact.compact`.

    Raises:
        NotFoundError: there is no such graph.
        ConflictError: it was imported anew meanwhile.
        DoesNotFitError: the disk has not enough room.
        TimeLimitError: another process is compacting it.
    """
    from graphbox.graph.compact import compact

    path = workspace.graph(name).path
    release_unused_versions(workspace, name)
    limits = {} if memory_bytes is None else {"memory_bytes": memory_bytes}
    report = compact(path, progress, **limits)
    if report.changes:
        workspace.note_graph(name, "compacted")
    return report


class _Change:
    before: GraphRecord
    after: GraphRecord


@contextmanager
def _changing(workspace: Workspace, name: str, event: str) -> Iterator[_Change]:
    """Hold the graph while the block changes it; its record follows."""
    change = _Change()
    workspace.graph(name)
    with workspace.writing_graph(name, event):
        change.before = change.after = workspace.graph(name)
        yield change
    change.after = workspace.graph(name)


# What is to be removed


def removal_of_tables(config: GraphConfig, graph: Graph) -> Removal:
    """Return what the tables of a section ``graph`` list: nodes by their ids, edges by those of their ends.

    Raises:
        UsageError: a node type has no table, or an edge type is not in the graph.
        DataError: a table is damaged, or has other ids.
    """
    source = graph_source(config)
    nodes = {}
    for node_type, table in source.nodes.items():
        if table.data is None:
            if any(node_type in (each.type[0], each.type[2]) for each in source.edges):
                continue
            raise UsageError(
                f"expected a table with the ids to remove, received the node type `{node_type}` without one"
            )
        if table.id is None:
            raise UsageError(
                "expected a column with the ids to remove, received a table without one",
                where=f"node type `{node_type}`",
                hint="name it: `id: ...`",
            )
        (ids,) = _columns(table, [table.id])
        nodes[node_type] = _as_kind(ids, _id_type(graph, node_type), node_type)
    edges: dict[tuple[str, str, str] | str, tuple[pa.Array, pa.Array]] = {}
    for each in source.edges:
        ends = _whole_rows(_columns(each, [each.source, each.target]))
        kinds = [_id_type(graph, end) for end in (each.type[0], each.type[2])]
        sources, targets = (
            _as_kind(ids, kind, end)
            for ids, kind, end in zip(ends, kinds, (each.type[0], each.type[2]), strict=True)
        )
        edges[each.type] = (sources, targets)
    return Removal(nodes, edges)


def given_ids(node_type: str, ids: Sequence[str], graph: Graph) -> Removal:
    """Return nodes named by their ids as text.

    Raises:
        NotFoundError: the graph has no such node type.
        DataError: an id is no integer where the graph's are.
    """
    import pyarrow as pa

    return Removal(
        {node_type: _as_kind(pa.array(ids, pa.large_string()), _id_type(graph, node_type), node_type)}, {}
    )


def ids_of_file(node_type: str, path: Path, graph: Graph) -> Removal:
    """Return nodes named in a file, see :func:`read_ids`.

    Raises:
        NotFoundError: there is no such file or node type.
        DataError: the file is no text or table, or its ids are of another kind.
    """
    return Removal({node_type: _as_kind(read_ids(path), _id_type(graph, node_type), node_type)}, {})


def read_ids(path: Path) -> pa.Array:
    """Return the ids that a file names.

    A ``.txt`` has one on each line; of a table the column ``id`` is read, or its only one.

    Raises:
        NotFoundError: there is no such file.
        DataError: the file is no text or table.
    """
    import pyarrow as pa

    from graphbox.graph import NodeSource
    from graphbox.graph.source import open_table

    if path.suffix.lower() != ".txt":
        present = open_table(path).column_names()
        column = present[0] if len(present) == 1 else "id"
        (ids,) = _columns(NodeSource(path, id=column), [column])
        return ids
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise NotFoundError("there is no such file", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"expected a text file with an id on each line: {error}", where=str(path)) from None
    return pa.array([line for line in lines if line], pa.large_string())


def _columns(source: Any, names: Sequence[str]) -> list[pa.Array]:
    import pyarrow as pa

    from graphbox.graph.source import open_table

    table = open_table(source.data, format=source.format, has_header=source.has_header, names=source.names)
    batches = [batch.columns for batch in table.batches(names, batch_bytes=_BATCH_BYTES) if batch.num_rows]
    if not batches:
        return [pa.array([], pa.int64()) for _ in names]
    return [pa.concat_arrays([batch[name] for batch in batches]) for name in names]


def _whole_rows(columns: list[pa.Array]) -> list[pa.Array]:
    import pyarrow.compute as pc

    whole = pc.and_(columns[0].is_valid(), columns[1].is_valid())
    return [column.filter(whole) for column in columns]


def _id_type(graph: Graph, node_type: str) -> IdType:
    if node_type not in graph.node_types:
        raise NotFoundError(
            f"the graph has no node type `{node_type}`",
            where=f"graph `{graph.name}`",
            hint=did_you_mean(node_type, graph.node_types)
            or f"its node types: {', '.join(graph.node_types)}",
        )
    return graph.id_type(node_type)


def _as_kind(ids: pa.Array, kind: IdType, node_type: str) -> pa.Array:
    """Return ids as the graph has them; text becomes integers where the graph's ids are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = ids.drop_null() if ids.null_count else ids
    if kind == "string":
        return ids.cast(pa.large_string())
    try:
        return ids.cast(pa.int64())
    except pa.ArrowInvalid:
        plain = pc.match_substring_regex(ids.cast(pa.large_string()), r"^-?[0-9]{1,19}$")
        wrong = ids.filter(pc.invert(plain))
        received = wrong[0].as_py() if len(wrong) else ids[0].as_py()
        raise DataError(
            f"expected 64-bit integers, as the ids of `{node_type}` in the graph are, received {received!r}",
            where=f"ids of `{node_type}`",
        ) from None


def _check_all_there(graph: Graph, removal: Removal) -> None:
    for node_type, ids in removal.nodes.items():
        absent = graph.index(node_type, ids, missing=-1) < 0
        if absent.any():
            raise NotFoundError(
                f"{int(absent.sum()):,} of the {len(ids):,} nodes of type `{node_type}` are not in the "
                f"graph, first `{ids[int(absent.argmax())].as_py()}`",
                where=f"graph `{graph.name}`",
                hint="without --strict the others are removed and these are counted",
            )
