"""Known links between a query and its neighbours."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

from graphbox.artifact import Link, Links
from graphbox.artifact.links import links_table
from graphbox.errors import FormatError


def test_links_are_those_of_a_plain_search() -> None:
    random = np.random.default_rng(0)
    edge_types = [("a", "likes", "a"), ("a", "knows", "a"), ("a", "has", "b"), ("b", "of", "a")]
    edges = {
        edge_type: (random.integers(0, 20, 60), random.integers(0, 20, 60), random.random(60) < 0.3)
        for edge_type in edge_types
    }
    # Of the same pair twice only one is found: keep the first of each.
    for edge_type, columns in edges.items():
        _, first = np.unique(columns[0] * 100 + columns[1], return_index=True)
        edges[edge_type] = (columns[0][first], columns[1][first], columns[2][first])
    tables = [links_table(*columns, edge_type) for edge_type, columns in edges.items()]
    links = Links(pa.concat_tables(tables).unify_dictionaries())
    assert len(links) == sum(len(source) for source, _, _ in edges.values())
    assert sorted(links.edge_types) == sorted(edge_types)
    for query_type in "ab":
        for neighbor_type in "ab":
            for query in range(20):
                found = links.between(query_type, query, neighbor_type, np.arange(20))
                for neighbor in range(20):
                    directions: list[tuple[Literal["out", "in"], tuple[str, int, str, int]]] = [
                        ("out", (query_type, query, neighbor_type, neighbor)),
                        ("in", (neighbor_type, neighbor, query_type, query)),
                    ]
                    expected = [
                        Link(relation, bool(held), direction)
                        for (source_type, relation, target_type), columns in edges.items()
                        for source, target, held in zip(*columns, strict=True)
                        for direction, ends in directions
                        if ends == (source_type, source, target_type, target)
                    ]
                    assert sorted(found[neighbor], key=repr) == sorted(expected, key=repr)


def test_a_link_that_is_there_twice_is_held_out_only_if_both_are() -> None:
    source, target = np.array([5, 1, 1, 3, 3]), np.array([0, 2, 2, 4, 4])
    for held_out, expected in (([False] * 5, [False] * 2), ([True] * 5, [True] * 2)):
        links = Links(links_table(source, target, np.array(held_out), ("a", "r", "b")))
        pairs = [links.between("a", node, "b", np.array([node + 1])) for node in (1, 3)]
        assert [[link.held_out for link in found] for (found,) in pairs] == [[each] for each in expected]
    mixed = Links(links_table(source, target, np.array([0, 1, 0, 0, 1], bool), ("a", "r", "b")))
    for node in (1, 3):
        ((link,),) = mixed.between("a", node, "b", np.array([node + 1]))
        assert not link.held_out


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_names_of_types_come_as_texts_or_dictionaries_of_several_chunks(kind: pa.DataType) -> None:
    one, same = np.array([1]), np.array([False])
    tables = [links_table(one, one, same, (first, "r", "b")) for first in ("b", "a", "b", "c")]
    table = pa.concat_tables(tables)
    types = [kind] * 3 + table.schema.types[3:]
    table = table.cast(pa.schema(list(zip(table.column_names, types, strict=True))))
    assert table.column(0).num_chunks == 4
    links = Links(table)
    assert sorted(links.edge_types) == [("a", "r", "b"), ("b", "r", "b"), ("c", "r", "b")]
    assert [links.pairs((first, "r", "b")).tolist() for first in "abc"] == [
        [[1, 1]],
        [[1, 1], [1, 1]],
        [[1, 1]],
    ]


def test_no_links_are_fine() -> None:
    none = np.empty(0, np.int64)
    links = Links(links_table(none, none, none.astype(bool), ("a", "r", "b")))
    assert len(links) == 0
    assert links.between("a", 0, "b", np.arange(3)) == [[], [], []]


@pytest.mark.parametrize("wrong", [-1, 1 << 31])
def test_nodes_out_of_range_are_refused(wrong: int) -> None:
    table = links_table(np.array([0]), np.array([wrong]), np.array([False]), ("a", "r", "b"))
    with pytest.raises(FormatError, match="node indices"):
        Links(table, "links.parquet")


def test_other_columns_are_refused() -> None:
    with pytest.raises(FormatError, match="expected the columns"):
        Links(pa.table({"source": [1]}), "links.parquet")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("source", pa.array([None], pa.int64()), "expected a value in every column"),
        ("relation", pa.array([None], pa.string()), "expected a value in every column"),
        ("target", pa.array([0.5]), "expected columns of types"),
        ("source_type", pa.array([b"a"]), "expected columns of types"),
        ("held_out", pa.array(["yes"]), "expected columns of types"),
    ],
)
def test_other_types_are_refused(column: str, values: pa.Array, message: str) -> None:
    table = links_table(np.array([0]), np.array([1]), np.array([False]), ("a", "r", "b"))
    with pytest.raises(FormatError, match=message) as caught:
        Links(table.set_column(table.column_names.index(column), column, values), "links.parquet")
    assert caught.value.where == "links.parquet"


def test_nodes_that_are_not_there_are_refused() -> None:
    links = Links(links_table(np.array([3, 0]), np.array([1, 2]), np.array([False] * 2), ("a", "r", "b")))
    links.check_nodes({"a": 4, "b": 3})
    links.check_nodes({"c": 0})
    for counts in ({"a": 3}, {"b": 2}):
        with pytest.raises(FormatError, match="in links `r`"):
            links.check_nodes(counts)


def test_counts_are_those_of_a_plain_count() -> None:
    random = np.random.default_rng(1)
    edge_types = [("a", "likes", "a"), ("a", "has", "b")]
    edges = {edge_type: (random.integers(0, 20, 60), random.integers(0, 20, 60)) for edge_type in edge_types}
    tables = [
        links_table(source, target, np.zeros(60, bool), edge_type)
        for edge_type, (source, target) in edges.items()
    ]
    links = Links(pa.concat_tables(tables).unify_dictionaries())
    for node_type in "abc":
        out, into = links.counts(node_type, 25)
        for node in range(25):
            assert out[node] == sum(
                int((source == node).sum()) for ends, (source, _) in edges.items() if ends[0] == node_type
            )
            assert into[node] == sum(
                int((target == node).sum()) for ends, (_, target) in edges.items() if ends[2] == node_type
            )


def test_most_linked_come_first_and_unlinked_never() -> None:
    source, target = np.array([0, 1, 2, 4, 4, 4]), np.array([1, 0, 1, 5, 6, 2])
    links = Links(links_table(source, target, np.zeros(6, bool), ("a", "r", "a")))
    # Links out and in: 0: 1 1, 1: 1 2, 2: 1 1, 4: 3 0, 5: 0 1, 6: 0 1; 3 and 7 have none.
    assert links.most_linked("a", 8).tolist() == [1, 0, 2, 4, 5, 6]


def test_counts_refuse_links_to_nodes_that_are_not_there() -> None:
    table = links_table(np.array([0]), np.array([1 << 30]), np.array([False]), ("a", "r", "b"))
    with pytest.raises(FormatError, match=r"in \[0, 3\) in links `r`, received 1073741824"):
        Links(table).counts("b", 3)
