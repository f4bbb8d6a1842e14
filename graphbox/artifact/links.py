"""Known links of the training graph, kept beside a model so that its answers can be marked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.artifact.array_bundle import Arrays
from graphbox.errors import FormatError

_ONE, _HALF = np.uint64(1), np.uint64(32)
COLUMNS = ("source_type", "relation", "target_type", "source", "target", "held_out")

NO_LINKS: Final[Arrays] = {"edge_types": np.frombuffer(b"[]", np.uint8)}
"""`Links.to_arrays` without links: Arrow arrays of Python objects would load pandas where it is installed."""


@dataclass(frozen=True, slots=True)
class Link:
    """A known link between a query and a neighbour.

    Attributes:
        relation: name of the relation.
        held_out: whether it was kept from training.
        direction: ``out`` from the query to the neighbour, ``in`` the other way.
    """

    relation: str
    held_out: bool
    direction: Literal["out", "in"]


class _Relation:
    """The links of one edge type as sorted 64-bit keys: source in the high half, target in the low one."""

    def __init__(
        self, source: npt.NDArray[np.int64], target: npt.NDArray[np.int64], held_out: npt.NDArray[np.bool_]
    ) -> None:
        # Node indices have 31 bits, which leaves one for `held_out`: of a link that is there twice the one
        # that was not held out comes first.
        keys = _keys(source, target)
        keys <<= _ONE
        keys |= held_out
        keys.sort()
        self.held_out = (keys & _ONE).astype(np.bool_)
        keys >>= _ONE
        self.keys = keys

    @classmethod
    def of_arrays(cls, arrays: Arrays, number: int) -> Self:
        """Return the links of the edge type with a number in `Links.to_arrays`."""
        links = cls.__new__(cls)
        links.keys, links.held_out, links.by_target = (
            arrays[f"{number}.{name}"] for name in ("keys", "held_out", "by_target")
        )
        return links

    @cached_property
    def by_target(self) -> npt.NDArray[np.uint64]:
        """The links with the target in the high half, sorted."""
        keys = self.keys << _HALF
        keys |= self.keys >> _HALF
        keys.sort()
        return keys

    def find(self, source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the position of each pair, -1 where there is no such link."""
        wanted = _keys(source, target)
        position = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[position] == wanted, position, -1)


class Links:
    """The links of all edge types.

    Args:
        table: the columns ``source_type, relation, target_type`` (strings), ``source, target``
            (int64 node indices) and ``held_out`` (bool).
        where: the file, named in messages.
    """

    def __init__(self, table: pa.Table, where: str | None = None) -> None:
        if tuple(table.column_names) != COLUMNS:
            raise FormatError(
                f"expected the columns {list(COLUMNS)}, received {table.column_names}", where=where
            )
        _check_types(table.schema, where)
        if any(column.null_count for column in table.columns):
            raise FormatError("expected a value in every column of every link, received null", where=where)
        self._count: int = table.num_rows
        self._relations: dict[tuple[str, str, str], _Relation] = {}
        if not table.num_rows:
            return
        source, target = (table.column(name).to_numpy() for name in ("source", "target"))
        if min(source.min(), target.min()) < 0 or max(source.max(), target.max()) >= 1 << 31:
            raise FormatError("expected node indices in [0, 2**31)", where=where)
        held_out = table.column("held_out").to_numpy().astype(bool)
        types, group = _groups(table)
        for number, edge_type in enumerate(types):
            chosen = group == number if len(types) > 1 else slice(None)
            self._relations[edge_type] = _Relation(source[chosen], target[chosen], held_out[chosen])

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        """Return the links whose `to_arrays` these are, without copying or checking them."""
        links = cls.__new__(cls)
        types = json.loads(arrays["edge_types"].tobytes())
        links._relations = {
            (source, relation, target): _Relation.of_arrays(arrays, number)
            for number, (source, relation, target) in enumerate(types)
        }
        links._count = sum(len(each.keys) for each in links._relations.values())
        return links

    def to_arrays(self) -> Arrays:
        """Return the links as arrays, sorted in both directions, for `of_arrays`."""
        types = json.dumps(list(self._relations)).encode()
        arrays: dict[str, npt.NDArray[Any]] = {"edge_types": np.frombuffer(types, np.uint8)}
        for number, links in enumerate(self._relations.values()):
            arrays[f"{number}.keys"] = links.keys
            arrays[f"{number}.held_out"] = links.held_out
            arrays[f"{number}.by_target"] = links.by_target
        return arrays

    def __len__(self) -> int:
        return self._count

    @property
    def edge_types(self) -> tuple[tuple[str, str, str], ...]:
        """The edge types that have links."""
        return tuple(self._relations)

    def between(
        self, query_type: str, query: int, neighbor_type: str, neighbors: npt.NDArray[np.int64]
    ) -> list[list[Link]]:
        """Return the links, in both directions, of one query node to each of ``neighbors`` (int64 [k])."""
        found: list[list[Link]] = [[] for _ in range(len(neighbors))]
        queries = np.full(len(neighbors), query, np.int64)
        for (source_type, relation, target_type), links in self._relations.items():
            if (source_type, target_type) == (query_type, neighbor_type):
                _collect(found, relation, "out", links, links.find(queries, neighbors))
            if (source_type, target_type) == (neighbor_type, query_type):
                _collect(found, relation, "in", links, links.find(neighbors, queries))
        return found

    def ends_of(
        self, edge_type: tuple[str, str, str], node: int, *, to_sources: bool = False
    ) -> npt.NDArray[np.int64]:
        """Return the targets that links of one edge type lead to from a node, ascending: int64 [k].

        Args:
            edge_type: source type, relation and target type.
            node: index of the source; of the target with ``to_sources``.
            to_sources: return the sources that lead to the node.
        """
        links = self._relations.get(edge_type)
        if links is None:
            return np.empty(0, np.int64)
        keys = links.by_target if to_sources else links.keys
        start, stop = np.searchsorted(keys, np.array([node, node + 1], np.uint64) << np.uint64(32))
        return (keys[start:stop] & np.uint64(0xFFFFFFFF)).astype(np.int64)

    def linked_to(self, node_type: str, node: int, other_type: str) -> npt.NDArray[np.int64]:
        """Return the nodes of a type that a link of any edge type joins to a node, ascending: int64 [k].

        Args:
            node_type: type of the node.
            node: its index.
            other_type: type of the nodes to return.
        """
        ends = [np.empty(0, np.int64)]
        for edge_type in self._relations:
            if (edge_type[0], edge_type[2]) == (node_type, other_type):
                ends.append(self.ends_of(edge_type, node))
            if (edge_type[0], edge_type[2]) == (other_type, node_type):
                ends.append(self.ends_of(edge_type, node, to_sources=True))
        return np.unique(np.concatenate(ends))

    def pairs(self, edge_type: tuple[str, str, str]) -> npt.NDArray[np.int64]:
        """Return the sources and targets of all links of one edge type, int64 [k, 2], by source."""
        links = self._relations.get(edge_type)
        keys = np.empty(0, np.uint64) if links is None else links.keys
        ends = [keys >> np.uint64(32), keys & np.uint64(0xFFFFFFFF)]
        return np.stack(ends, axis=1).astype(np.int64)

    def check_nodes(self, counts: Mapping[str, int]) -> None:
        """Check that links join nodes that are there.

        Args:
            counts: number of nodes by type; links of other types are not checked.

        Raises:
            FormatError: a link names a node beyond them.
        """
        for (source_type, relation, target_type), links in self._relations.items():
            for node_type, keys in ((source_type, links.keys), (target_type, links.by_target)):
                if node_type in counts:
                    _check_highest(int(keys[-1]) >> 32, counts[node_type], relation)

    def counts(
        self, node_type: str, nodes: int, *, with_held_out: bool = True
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return how many links leave and how many reach each of a type's ``nodes`` nodes, int64 [nodes].

        Args:
            node_type: of the nodes.
            nodes: their number.
            with_held_out: whether links that were kept from training count.

        Raises:
            FormatError: a link names a node beyond them.
        """
        out, into = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
        for (source_type, relation, target_type), links in self._relations.items():
            keys = links.keys if with_held_out else links.keys[~links.held_out]
            for end_type, count, ends in (
                (source_type, out, keys >> np.uint64(32)),
                (target_type, into, keys & np.uint64(0xFFFFFFFF)),
            ):
                if end_type != node_type or not len(ends):
                    continue
                _check_highest(int(ends.max()), nodes, relation)
                np.add(count, np.bincount(ends.astype(np.int64), minlength=nodes), out=count)
        return out, into

    def most_linked(self, node_type: str, nodes: int) -> npt.NDArray[np.int64]:
        """Return the linked nodes of a type with ``nodes`` nodes, those worth an example first, int64 [n].

        A node that everything links to says little about a model, and so does one that merely lists others:
        nodes are ordered by their links in the direction that has fewer, then by all their links.

        Raises:
            FormatError: a link names a node beyond them.
        """
        out, into = self.counts(node_type, nodes)
        order = np.lexsort((-(out + into), -np.minimum(out, into)))
        return order[(out + into)[order] > 0]


def links_table(
    source: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    held_out: npt.NDArray[np.bool_],
    edge_type: tuple[str, str, str],
) -> pa.Table:
    """Return the links of one edge type as the table that `Links` reads; concatenate those of several."""
    repeated = [
        pa.array([name]).dictionary_encode().take(pa.array(np.zeros(len(source), np.int64)))
        for name in edge_type
    ]
    columns = [
        *repeated,
        pa.array(source, pa.int64()),
        pa.array(target, pa.int64()),
        pa.array(held_out, pa.bool_()),
    ]
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


def _check_highest(index: int, nodes: int, relation: str) -> None:
    if index >= nodes:
        raise FormatError(f"expected node indices in [0, {nodes}) in links `{relation}`, received {index}")


def _check_types(schema: pa.Schema, where: str | None) -> None:
    is_text = all(
        pa.types.is_string(kind) or pa.types.is_large_string(kind)
        for kind in (
            field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            for field in list(schema)[:3]
        )
    )
    if not is_text or schema.types[3:] != [pa.int64(), pa.int64(), pa.bool_()]:
        raise FormatError(
            f"expected columns of types string, string, string, int64, int64 and bool, received "
            f"{', '.join(map(str, schema.types))}",
            where=where,
        )


def _collect(
    found: list[list[Link]],
    relation: str,
    direction: Literal["out", "in"],
    links: _Relation,
    position: npt.NDArray[np.int64],
) -> None:
    for neighbor in np.flatnonzero(position >= 0).tolist():
        found[neighbor].append(Link(relation, bool(links.held_out[position[neighbor]]), direction))


def _keys(source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    keys = source.astype(np.uint64)
    keys <<= _HALF
    keys |= target.astype(np.uint64, copy=False)
    return keys


def _groups(table: pa.Table) -> tuple[list[tuple[str, str, str]], npt.NDArray[np.int64]]:
    """Return the edge types and the number of each row's edge type."""
    group = np.zeros(table.num_rows, np.int64)
    names: list[list[str]] = []
    for column in COLUMNS[:3]:
        # Texts of all links would take several times the memory of their numbers.
        encoded = table.column(column).dictionary_encode().unify_dictionaries().combine_chunks()
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(name, len(numbers)) for name in encoded.dictionary.to_pylist()]
        names.append(list(numbers))
        group *= len(numbers)
        if len(numbers) > 1:
            group += np.array(codes)[encoded.indices.to_numpy()]
    found = pa.array(group).dictionary_encode()
    used = np.sort(found.dictionary.to_numpy())
    dense = np.searchsorted(used, found.dictionary.to_numpy())[found.indices.to_numpy()]
    types: list[tuple[str, str, str]] = []
    for code in used.tolist():
        rest, target_type = divmod(code, len(names[2]))
        source_type, relation = divmod(rest, len(names[1]))
        types.append((names[0][source_type], names[1][relation], names[2][target_type]))
    return types, dense
