"""The ids that are offered to begin with, against a plain count of links."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.artifact import Artifact, ArtifactWriter, LookupForm, TargetSpec
from graphbox.artifact.links import links_table
from graphbox.errors import FormatError
from graphbox.server.examples import ExampleIds

LINKS = ("package", "depends", "package")
TAGGED = ("package", "tagged", "tag")
IDS = {"package": [f"p{index}" for index in range(30)], "tag": ["web", "mail", "unused"]}


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    """Vectors of two node types with links, some nodes without any."""
    random = np.random.default_rng(3)
    edges = {
        LINKS: (random.integers(2, 25, 80), random.integers(4, 27, 80)),
        TAGGED: (random.integers(0, 30, 40), random.integers(0, 2, 40)),
    }
    tables = [
        links_table(source, target, np.zeros(len(source), bool), edge_type)
        for edge_type, (source, target) in edges.items()
    ]
    with ArtifactWriter(tmp_path / "1") as writer:
        for node_type, ids in IDS.items():
            writer.add_ids(node_type, ids)
            writer.add_table(node_type, node_type, np.ones((len(ids), 2), np.float32))
        writer.set_preprocess(LookupForm(node_type="package", tables={name: name for name in IDS}))
        writer.set_links(pa.concat_tables(tables).unify_dictionaries())
        targets = {name: TargetSpec(table=name, score="cosine") for name in IDS}
        return writer.commit(name="m", version=1, kind="embedding", task="t", dim=2, targets=targets)


def linked(artifact: Artifact, node_types: list[str]) -> list[tuple[str, str]]:
    """Order the nodes that have links by a plain count."""
    table = artifact.path / "links.parquet"
    out: Counter[tuple[str, int]] = Counter()
    into: Counter[tuple[str, int]] = Counter()
    for row in pq.read_table(table).to_pylist():
        out[row["source_type"], row["source"]] += 1
        into[row["target_type"], row["target"]] += 1
    nodes = [(name, index) for name in node_types for index in range(len(IDS[name]))]
    nodes = [node for node in nodes if out[node] + into[node]]
    nodes.sort(key=lambda node: (-min(out[node], into[node]), -(out[node] + into[node])))
    return [(name, IDS[name][index]) for name, index in nodes]


def test_example_request_then_the_nodes_linked_most(artifact: Artifact) -> None:
    request = [("package", "p0"), ("package", "p1")]
    content = {"inputs": [{"name": "id", "data": [identifier for _, identifier in request]}]}
    (artifact.path / "example_request.json").write_text(json.dumps(content))
    for node_type in (None, "package"):
        types = list(IDS) if node_type is None else [node_type]
        expected = request + [node for node in linked(artifact, types) if node not in request]
        examples = ExampleIds(artifact, list(IDS))
        assert examples.first(1000, node_type) == expected
        assert examples.first(5, node_type) == expected[:5]


def test_only_the_asked_type(artifact: Artifact) -> None:
    assert ExampleIds(artifact, list(IDS)).first(10, "tag") == linked(artifact, ["tag"])
    assert ("tag", "unused") not in linked(artifact, ["tag"])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"inputs": []}',
        '{"inputs": [{"data": ["p0"]}]}',
        '{"inputs": [{"name": "id", "data": "p0"}]}',
    ],
)
def test_damaged_example_request_is_named(artifact: Artifact, content: str) -> None:
    (artifact.path / "example_request.json").write_text(content)
    with pytest.raises(FormatError, match=r"example_request\.json"):
        ExampleIds(artifact, list(IDS))


def test_unknown_ids_of_the_request_are_not_offered(artifact: Artifact) -> None:
    request = {"inputs": [{"name": "id", "data": ["absent", "p7"]}]}
    (artifact.path / "example_request.json").write_text(json.dumps(request))
    assert ExampleIds(artifact, list(IDS)).first(1, None) == [("package", "p7")]
