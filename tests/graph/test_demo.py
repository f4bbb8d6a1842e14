"""The bundled graph: it imports, and its README says what is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import graphbox.demo
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import FeatureKind

FOLDER = Path(next(iter(graphbox.demo.__path__)))
RELATIONS = ("depends", "pre_depends", "recommends", "suggests", "enhances")
FEATURES: dict[str, FeatureKind] = {
    "section": "categorical",
    "priority": "categorical",
    "installed_size_kb": "number",
    "essential": "boolean",
}


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = {name: NodeSource(FOLDER / f"{name}.parquet") for name in ("source", "tag")}
    nodes = {"package": NodeSource(FOLDER / "package.parquet", features=FEATURES), **nodes}
    targets = dict.fromkeys(RELATIONS, "package") | {"built_from": "source", "tagged": "tag"}
    edges = tuple(
        EdgeSource(("package", relation, target), FOLDER / f"{relation}.parquet")
        for relation, target in targets.items()
    )
    destination = tmp_path_factory.mktemp("graphs") / "debian"
    import_graph(GraphSource("debian", nodes, edges), destination, strict=True)
    return Graph.open(destination)


def test_the_readme_has_the_counts(debian: Graph) -> None:
    rows = re.findall(
        r"^\| `(\w+)\.parquet` .*?\| ([\d,]+) \|", (FOLDER / "README.md").read_text(), re.MULTILINE
    )
    stated = {name: int(count.replace(",", "")) for name, count in rows}
    counted = {node_type: debian.num_nodes(node_type) for node_type in debian.node_types}
    counted |= {
        relation: debian.num_edges((source, relation, target))
        for source, relation, target in debian.edge_types
    }
    assert stated == counted


def test_known_packages_are_there(debian: Graph) -> None:
    nginx = debian.index("package", ["nginx"])[0]
    csr = debian.csr("depends")
    needed = debian.ids("package", csr.indices[csr.indptr[nginx] : csr.indptr[nginx + 1]]).tolist()
    assert "nginx-common" in needed
    assert "libc6" in needed
    built_from = debian.csr("built_from")
    assert debian.ids("source", built_from.indices[built_from.indptr[nginx]][None]).tolist() == ["nginx"]
    section = debian.features("package")["section"]
    assert section.categories is not None
    assert section.categories[debian.feature("package", "section")[nginx]] == "httpd"
    assert len(section.categories) == 58
    assert (debian.feature("package", "section") >= 0).all()
    assert debian.feature("package", "essential").sum() == 23


def test_nothing_about_people_is_in_it() -> None:
    columns = {}
    for path in FOLDER.glob("*.parquet"):
        table = pq.read_table(path)
        columns[path.stem] = table.column_names
        for column in table.columns:
            if pa.types.is_string(column.type):
                assert not pc.any(pc.match_substring(column, "@")).as_py(), path
    assert columns == {
        "package": ["id", "section", "priority", "installed_size_kb", "essential"],
        "source": ["id"],
        "tag": ["id"],
        **{relation: ["source", "target", "group"] for relation in RELATIONS},
        "built_from": ["source", "target"],
        "tagged": ["source", "target"],
    }
