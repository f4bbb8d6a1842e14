"""The little languages in the values of a PGLBox YAML file."""

from __future__ import annotations

import pytest

from graphbox.errors import UsageError
from graphbox.pglbox.grammar import (
    EdgeName,
    parse_edge,
    parse_files,
    parse_metapaths,
    parse_node_types,
    parse_pairs,
)


def test_edge() -> None:
    plain = parse_edge(" a2b ")
    assert (plain.source, plain.relation, plain.target) == ("a", None, "b")
    assert (str(plain), str(plain.reversed)) == ("a2b", "b2a")
    assert plain.edge_type == ("a", "to", "b")
    assert plain.reverse_edge_type == ("b", "rev_to", "a")
    named = parse_edge("mini_video2clicks2用户")
    assert (str(named), str(named.reversed)) == ("mini_video2clicks2用户", "用户2clicks2mini_video")
    assert named.edge_type == ("mini_video", "clicks", "用户")
    assert named.reverse_edge_type == ("用户", "rev_clicks", "mini_video")


@pytest.mark.parametrize(
    "text", ["", "a", "a2", "2a", "a2b2c2d", "h2o2b2c", "a2b c", "a__b2c", "a2-b", "a" * 62 + "2b"]
)
def test_no_edge(text: str) -> None:
    with pytest.raises(UsageError):
        parse_edge(text)


def test_files() -> None:
    assert parse_files("a2b:dirA, b2r2c : dir/B ") == {"a2b": "dirA", "b2r2c": "dir/B"}
    assert parse_node_types("a:node_types,b:node_types") == {"a": "node_types", "b": "node_types"}


@pytest.mark.parametrize("text", ["a2b", "a2b:", ":dir", "a2b:dir,", "a2b:x:y", "a2b:dir,a2b:other"])
def test_no_files(text: str) -> None:
    with pytest.raises(UsageError):
        parse_files(text)


def names(paths: list[list[EdgeName]]) -> list[str]:
    return ["-".join(map(str, path)) for path in paths]


def test_metapaths() -> None:
    assert names(parse_metapaths("a2b-b2a;b2a-a2b")) == ["a2b-b2a", "b2a-a2b"]
    assert names(parse_metapaths(" a2x2b - b2c ")) == ["a2x2b-b2c"]
    assert names(parse_metapaths("[a2b-b2a;b2a,b2c]")) == ["a2b-b2a", "b2a", "b2c"]


@pytest.mark.parametrize("text", ["a2b;", "", "[a2b", "a2b]", "a2b-c2a", "a2b--b2a", "[a2b,]"])
def test_no_metapaths(text: str) -> None:
    with pytest.raises(UsageError):
        parse_metapaths(text)


def test_pairs() -> None:
    assert parse_pairs("w2q;q2t") == [("w", "q"), ("q", "t")]
    for text in ("w", "w2", "w2q;", "w2r2q"):
        with pytest.raises(UsageError):
            parse_pairs(text)
