"""What a look at the headers of the tables shows: columns the run file names and the tables lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphbox.config import EdgesConfig, GraphConfig, NodesConfig
from graphbox.errors import UsageError, did_you_mean

__all__ = ["table_mistakes"]

_Mistake = tuple[tuple[str | int, ...], str, str | None]
_SHOWN_COLUMNS = 20


def table_mistakes(config: GraphConfig) -> Iterator[_Mistake]:
    """Yield key, message and hint of each mistake in the section ``graph`` that the tables' headers show.

    Reads the header line of text and the metadata of other files, of the first part where there are several;
    no rows, and nothing from URLs.

    Raises:
        DataError: a file is damaged, or not of the format it is called by.
    """
    for name, nodes in config.nodes.items():
        if nodes.path is not None:
            wanted = [(("id",), nodes.id), *((("features", f), f) for f in nodes.features)]
            yield from _mistakes(config, ("graph", "nodes", name), nodes, nodes.path, wanted)
    for position, edges in enumerate(config.edges):
        optional = [((key,), getattr(edges, key)) for key in ("weight", "timestamp")]
        wanted = [
            (("source",), edges.source),
            (("target",), edges.target),
            *((key, column) for key, column in optional if column is not None),
            *((("features", f), f) for f in edges.features),
        ]
        yield from _mistakes(config, ("graph", "edges", position), edges, edges.path, wanted)


def _mistakes(
    config: GraphConfig,
    key: tuple[str | int, ...],
    section: NodesConfig | EdgesConfig,
    path: str,
    wanted: Sequence[tuple[tuple[str, ...], str]],
) -> Iterator[_Mistake]:
    location = config.locate(path)
    if isinstance(location, str):
        return
    from graphbox.graph.source import open_table

    try:
        table = open_table(
            location,
            format=section.format,
            has_header=section.columns is None,
            names=section.columns,
            node_type=str(key[-1]) if isinstance(section, NodesConfig) else None,
        )
        present = table.column_names()
    except UsageError as error:
        yield (*key, "path"), f"{error.where}: {error.message}" if error.where else error.message, error.hint
        return
    for below, column in wanted:
        times = present.count(column)
        if times > 1 or not table.has_column(column):
            shown = ", ".join(f"`{name}`" for name in present[:_SHOWN_COLUMNS])
            message = f"{location} has {f'the column `{column}` twice' if times else f'no column `{column}`'}"
            given = below[0] in section.model_fields_set
            hint = did_you_mean(column, present) or f"its columns: {shown or 'none'}"
            hint = hint if given else f"{hint}; `{below[0]}:` says which one it is"
            yield (*key, *(below if given else ())), message, hint
