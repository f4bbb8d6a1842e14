"""Tables of the section ``graph`` that a chunk holds, and digests of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphbox.config import GraphConfig, StreamConfig
from graphbox.config.files import matching_files
from graphbox.errors import DataError, UsageError
from graphbox.graph import EdgeSource, GraphSource, NodeSource
from graphbox.pipeline.follow.arrivals import Arrival
from graphbox.pipeline.stages.import_graph import graph_source

_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class _Place:
    """Where a table has its part of a chunk.

    Attributes:
        name: of the table, for messages.
        path: in the chunk's folder.
        node_type: the node type, or None for edges.
        edges: position of the edge type, or None for nodes.
    """

    name: str
    path: str
    node_type: str | None = None
    edges: int | None = None


@dataclass(frozen=True)
class ChunkFiles:
    """Files of a chunk.

    Attributes:
        source: its tables.
        files: all files of them, sorted.
        root: folder that their names are relative to.
    """

    source: GraphSource
    files: tuple[Path, ...]
    root: Path

    def stamp(self) -> str:
        """Return a SHA-256 (hex) of the names, sizes and times of change of the files."""
        digest = hashlib.sha256()
        for file in self.files:
            status = file.stat()
            digest.update(f"{self._name(file)}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
        return digest.hexdigest()

    def digest(self) -> str:
        """Return a SHA-256 (hex) of the names and the content of the files, all of which are read."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(f"{self._name(file)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as stream:
                while block := stream.read(_READ_BYTES):
                    digest.update(block)
        return digest.hexdigest()

    def _name(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()


class ChunkTables:
    """Finds the tables of chunks.

    Args:
        graph: the section ``graph``.
        stream: the section ``stream``, with a folder.
    """

    def __init__(self, graph: GraphConfig, stream: StreamConfig) -> None:
        self._graph = graph
        self._source = graph_source(graph)
        self._markers = stream.markers
        self._folder = Path(stream.folder or ".").resolve()
        places = [
            *(
                _Place(f"graph.nodes.{name}", _in_chunk(nodes.path), node_type=name)
                for name, nodes in graph.nodes.items()
                if nodes.path is not None and not graph.is_url(nodes.path)
            ),
            *(
                _Place(f"graph.edges.{number}", _in_chunk(edges.path), edges=number)
                for number, edges in enumerate(graph.edges)
                if not graph.is_url(edges.path)
            ),
        ]
        self._places = places

    def start(self) -> GraphConfig | None:
        """Return the section ``graph`` with those tables that are there before the stream; None: none is."""
        graph = self._graph
        nodes = {
            name: section
            for name, section in graph.nodes.items()
            if section.path is None or self._is_there(section.path)
        }
        edges = tuple(section for section in graph.edges if self._is_there(section.path))
        ends = {end for section in edges for end in (section.type[0], section.type[2])}
        missing = sorted(ends - set(nodes))
        if missing:
            raise UsageError(
                f"expected the table of the node type `{missing[0]}`, as edges of it are there before the "
                "stream begins",
                where=f"graph.nodes.{missing[0]}.path",
                hint="put it there, or the edges into a chunk",
            )
        nodes = {name: section for name, section in nodes.items() if section.path is not None or name in ends}
        if not edges and not nodes:
            return None
        return graph.model_copy(update={"nodes": nodes, "edges": edges})

    def _is_there(self, path: str) -> bool:
        if self._graph.is_url(path) or self._graph.is_remote(self._graph.root):
            return True
        files = matching_files(self._graph.folder(self._graph.root), path)
        return bool(files) and not any(file.resolve().is_relative_to(self._folder) for file in files)

    def of(self, arrival: Arrival) -> ChunkFiles:
        """Return the tables of a chunk; none where its folder holds nothing but a marker.

        Raises:
            DataError: it holds files, but none of a table.
        """
        found = self._in_folder(arrival) if arrival.is_folder else self._of_file(arrival)
        files = sorted({file for paths in found.values() for file in paths})
        if not files and arrival.is_folder:
            others = [file.name for file in self._data_files(arrival.path)]
            if others:
                raise self._no_table(arrival, others[0])
        nodes = {name: NodeSource(None, id_type=node.id_type) for name, node in self._source.nodes.items()}
        edges: list[EdgeSource] = []
        for place, paths in found.items():
            data = paths[0] if len(paths) == 1 else self._whole(arrival, place)
            if place.node_type is not None:
                nodes[place.node_type] = replace(self._source.nodes[place.node_type], data=data)
            elif place.edges is not None:
                edges.append(replace(self._source.edges[place.edges], data=data))
        root = arrival.path if arrival.is_folder else arrival.path.parent
        return ChunkFiles(GraphSource(self._source.name, nodes, tuple(edges)), tuple(files), root)

    def _in_folder(self, arrival: Arrival) -> dict[_Place, list[Path]]:
        found = {}
        for place in self._places:
            paths = [path for path in matching_files(arrival.path, place.path) if self._is_data(path)]
            if paths:
                found[place] = paths
        only = self._only_place()
        if not found and only is not None:
            paths = self._data_files(arrival.path)
            return {replace(only, path="."): paths} if paths else {}
        return found

    def _of_file(self, arrival: Arrival) -> dict[_Place, list[Path]]:
        for place in self._places:
            if arrival.path.match(Path(place.path).name):
                return {place: [arrival.path]}
        only = self._only_place()
        if only is None:
            raise self._no_table(arrival, arrival.name)
        return {only: [arrival.path]}

    def _only_place(self) -> _Place | None:
        """Return the table that all files are of, if there is only one that chunks can have."""
        if len(self._places) == 1:
            return self._places[0]
        sections = {
            **{place: self._graph.nodes[place.node_type].path for place in self._places if place.node_type},
            **{
                place: self._graph.edges[place.edges].path
                for place in self._places
                if place.edges is not None
            },
        }
        coming = [place for place, path in sections.items() if path is not None and not self._is_there(path)]
        return coming[0] if len(coming) == 1 else None

    def _whole(self, arrival: Arrival, place: _Place) -> Path:
        """Return the pattern, or the folder, that stands for several files of a table."""
        if place.path != ".":
            return arrival.path / place.path
        names = [file.name for file in self._data_files(arrival.path)]
        if all(Path(name).suffix for name in names):
            return arrival.path  # of which the reader takes the files with its suffix alone
        same = [one == other for one, other in zip(names[0], names[-1], strict=False)]
        length = same.index(False) if False in same else len(same)
        return arrival.path / f"{names[0][:length]}*"  # as they are sorted, all begin like first and last

    def _data_files(self, folder: Path) -> list[Path]:
        return sorted(file for file in folder.iterdir() if file.is_file() and self._is_data(file))

    def _is_data(self, path: Path) -> bool:
        return path.name[0] not in "._" and path.name not in self._markers

    def _no_table(self, arrival: Arrival, received: str) -> DataError:
        expected = ", ".join(f"{place.path} ({place.name})" for place in self._places)
        return DataError(
            f"expected a table in the chunk, one of {expected}, received `{received}`",
            where=str(arrival.path),
            hint="a table lies in a chunk's folder under the path that the run file gives it; where the run "
            "file has only one, the files may be called anything",
        )


def _in_chunk(path: str) -> str:
    """Return where a table is in a chunk's folder: under the same path, or name where that is not inside."""
    given = Path(path)
    return given.name if given.is_absolute() or ".." in given.parts else path


def node_types_without_edges(graph: GraphConfig) -> Sequence[str]:
    """Return the node types that are at no end of an edge type, such as the rows of a log."""
    ends = {end for edges in graph.edges for end in (edges.type[0], edges.type[2])}
    return [name for name in graph.nodes if name not in ends]
