"""Writes part files as PGLBox's sharding tool does, and reads node lines one by one as a reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["read_node_lines", "shard_edges", "shard_nodes", "write_parts"]


def write_parts(folder: Path, parts: Sequence[Iterable[str]]) -> None:
    """Write ``part-00000`` and so on, a line for each text."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, lines in enumerate(parts):
        (folder / f"part-{number:05}").write_text("".join(f"{line}\n" for line in lines))


def shard_nodes(lines: Iterable[str], parts: int) -> list[list[str]]:
    """Put each node line into the part of its id."""
    sharded: list[list[str]] = [[] for _ in range(parts)]
    for line in lines:
        sharded[int(line.split("\t")[1]) % parts].append(line)
    return sharded


def shard_edges(lines: Iterable[str], parts: int, *, symmetry: bool) -> list[list[str]]:
    """Put each edge line into the part of its source and, with ``symmetry``, into the part of its target too.

    Both copies of an edge between nodes of one part go there; a self loop is written once.
    """
    sharded: list[list[str]] = [[] for _ in range(parts)]
    for line in lines:
        source, target = (int(cell) for cell in line.split("\t")[:2])
        sharded[source % parts].append(line)
        if symmetry and source != target:
            sharded[target % parts].append(line)
    return sharded


def read_node_lines(text: str, node_type: str, slot: str) -> list[tuple[str, list[str]]]:
    """Return id and values of a slot for each node of a type; lines must be well-formed."""
    found = []
    for line in text.splitlines():
        kind, identifier, *cells = line.split("\t")
        if kind != node_type:
            continue
        values: list[str] = []
        for cell in cells:
            current = ""
            for piece in cell.removeprefix("s ").split(","):
                name, colon, value = piece.partition(":")
                if colon:
                    current = name
                if current == slot:
                    values.append(value if colon else name)
        found.append((identifier, values))
    return found
