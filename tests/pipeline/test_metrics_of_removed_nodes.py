"""Removed nodes are no candidates, negatives or queries: runs have the metrics of a graph without them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.config import load_config
from graphbox.graph import Graph
from graphbox.pipeline import run_pipeline
from graphbox.pipeline.graph_changes import compact_graph, given_ids, remove_from_graph
from graphbox.pipeline.stages.import_graph import import_config
from graphbox.train.view import GraphView
from graphbox.train.walks.sources import MetapathSource
from graphbox.workspace import Workspace
from tests.cli.conftest import RUN_FILE as PAPERS
from tests.cli.conftest import write_tables
from tests.pipeline.test_export_knowledge import RUN_FILE as ATLAS
from tests.train.atlas import facts
from tests.train.shop import build_shop

# The nodes that are removed come last, so that all others have the same index in both graphs.
LATE = 15
SHOP = """\
version: 1
name: shop
threads: 1
graph:
  name: shop
  nodes:
    user: {path: user.parquet, features: {taste: categorical}}
    item: {path: item.parquet}
  edges:
    - {type: [user, bought, item], path: bought.parquet, reverse: bought_by, timestamp: time}
    - {type: [user, bought_later, item], path: bought_later.parquet}
tasks:
  items:
    kind: recommend
    node_type: user
    target_type: item
    relations: [bought]
    split: {kind: given, test_relations: [bought_later]}
    baselines: [popular, user_knn, personalized_pagerank, gfcf, ials]
    k: 5
  told: {kind: predict_links, node_type: user, target_type: item, relations: [bought]}
  popular:
    kind: predict_links
    node_type: user
    target_type: item
    relations: [bought]
    negative_distribution: degree
  next: {kind: predict_links, node_type: user, target_type: item, relations: [bought], split: {kind: time}}
models:
  light: {kind: lightgcn, task: items, dim: 8, epochs: 2, batch_size: 32, candidates: 16}
  factors: {kind: matrix_factorization, task: items, dim: 8, epochs: 2, candidates: 16}
  network: {kind: gnn, task: items, layer: sage, dim: 8, epochs: 1, dropout: 0.0}
  links: {kind: gnn, task: told, layer: sage, dim: 8, epochs: 1, dropout: 0.0}
  by_degree: {kind: gnn, task: popular, layer: sage, dim: 8, epochs: 1, dropout: 0.0}
  remembers: {kind: temporal, task: next, dim: 8, recent: 4, epochs: 1, batch_size: 100}
"""


def shop_tables(folder: Path) -> Mapping[str, list[str]]:
    """Write the shop with late users and items, who buy and are bought; return their ids by type."""
    build_shop(folder)
    generator = np.random.default_rng(1)
    late = {kind: [f"late-{kind}-{number}" for number in range(LATE)] for kind in ("user", "item")}
    users = pa.table({"id": late["user"], "taste": ["taste-0"] * LATE, "part": ["train"] * LATE})
    add_rows(folder / "user.parquet", users)
    add_rows(folder / "item.parquet", pa.table({"id": late["item"]}))
    items = [f"i{number}" for number in generator.integers(0, 80, LATE)]
    ends = {"source": late["user"] * 2, "target": [*items, *late["item"]]}
    add_rows(folder / "bought_later.parquet", pa.table(ends))
    further = {"time": generator.integers(0, 1000, 2 * LATE), "part": ["train"] * (2 * LATE)}
    add_rows(folder / "bought.parquet", pa.table({**ends, **further}))
    return late


def add_rows(path: Path, rows: pa.Table) -> None:
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, rows.select(table.column_names).cast(table.schema)]), path)


def papers_tables(folder: Path) -> Mapping[str, list[str]]:
    write_tables(folder)
    late = {"paper": [f"late-{number}" for number in range(LATE)]}
    header, *rows = (folder / "paper.csv").read_text().splitlines()
    fields = rows[0].split(",", 1)[1]
    new = [f"{name},{fields}" for name in late["paper"]]
    (folder / "paper.csv").write_text("\n".join([header, *rows, *new]) + "\n")
    with (folder / "cites.csv").open("a") as stream:
        stream.writelines(f"{name},p{number}\n" for number, name in enumerate(late["paper"]))
    return late


def atlas_tables(folder: Path) -> Mapping[str, list[str]]:
    parts = facts()
    late = {"place": [f"late-{number}" for number in range(LATE)]}
    new = [("p0-0", "east", name) for name in late["place"]]
    for name, triples in (("train", [*parts["train"], *parts["valid"]]), ("test", parts["test"])):
        with gzip.open(folder / f"{name}.txt.gz", "wt") as stream:
            stream.writelines("\t".join(triple) + "\n" for triple in [*triples, *new])
    return late


def without_models(text: str, *models: str) -> str:
    """Return a run file up to its section `export`, with these models alone."""
    head = text.partition("models:\n")[0]
    return head + "models:\n" + "".join(f"  {model}\n" for model in models)


CASES: dict[str, tuple[str, Callable[[Path], Mapping[str, list[str]]]]] = {
    "shop": (SHOP, shop_tables),
    "papers": (
        without_models(
            PAPERS,
            "sage: {kind: sage, task: cite, dim: 8, epochs: 2, batch_size: 16, candidates: 32}",
            "net: {kind: gnn, task: field, dim: 8, epochs: 1}",
        ),
        papers_tables,
    ),
    "atlas": (
        without_models(
            ATLAS,
            "products: {kind: complex, task: missing, dim: 8, epochs: 2, loss: softmax}",
            "moves: {kind: transe, task: missing, dim: 8, epochs: 2, loss: sampled_softmax, candidates: 16}",
        ),
        atlas_tables,
    ),
}


def report_of(folder: Path, name: str, *, is_removed: bool) -> tuple[dict[str, Any], Graph]:
    """Run a graph with late nodes that were removed, or one that never had them."""
    text, write = CASES[name]
    folder.mkdir()
    late = write(folder)
    (folder / "run.yaml").write_text(text)
    workspace = Workspace(folder / "workspace")
    if is_removed:
        import_config(load_config(folder / "run.yaml").graph, workspace)
        for node_type, ids in late.items():
            graph = Graph.open(workspace.graph_path(name))
            remove_from_graph(name, given_ids(node_type, ids[: LATE // 2], graph), workspace)
        compact_graph(name, workspace)
        for node_type, ids in late.items():
            graph = Graph.open(workspace.graph_path(name))
            remove_from_graph(name, given_ids(node_type, ids[LATE // 2 :], graph), workspace)
    else:
        drop_rows(folder, {each for ids in late.values() for each in ids})
    report = run_pipeline(load_config(folder / "run.yaml"), workspace).document()
    return {key: report[key] for key in ("metrics", "baselines")}, Graph.open(workspace.graph_path(name))


def drop_rows(folder: Path, ids: set[str]) -> None:
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        pq.write_table(table.filter(pa.array([not ids & set(row) for row in rows])), path)
    for path in folder.glob("*.csv"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not ids & set(line.strip().split(","))))
    for path in folder.glob("*.txt.gz"):
        with gzip.open(path, "rt") as stream:
            lines = [line for line in stream if not ids & set(line.split())]
        with gzip.open(path, "wt") as stream:
            stream.writelines(lines)


@pytest.mark.parametrize("name", CASES)
def test_metrics_are_those_of_a_graph_that_never_had_them(tmp_path: Path, name: str) -> None:
    found, graph = report_of(tmp_path / "removed", name, is_removed=True)
    expected, alone = report_of(tmp_path / "alone", name, is_removed=False)
    for node_type in alone.node_types:
        left = alone.num_nodes(node_type)
        assert graph.num_nodes(node_type) == left + len(graph.removed_nodes(node_type))
        assert (graph.removed_nodes(node_type) >= left).all()
    assert sum(len(graph.removed_nodes(node_type)) for node_type in graph.node_types) >= LATE
    assert found == expected


def test_walks_start_at_no_removed_node(tmp_path: Path) -> None:
    late = papers_tables(tmp_path)["paper"]
    (tmp_path / "run.yaml").write_text(PAPERS)
    workspace = Workspace(tmp_path / "workspace")
    config = load_config(tmp_path / "run.yaml")
    import_config(config.graph, workspace)
    path = workspace.graph_path("papers")
    remove_from_graph("papers", given_ids("paper", [*late, "p7"], Graph.open(path)), workspace)
    graph = Graph.open(path)
    there_and_back = (("paper", "written_by", "author"), ("author", "writes", "paper"))
    source = MetapathSource(
        GraphView(graph, None),
        [there_and_back],
        walks_per_node=2,
        walk_length=4,
        window=2,
        batch_size=8,
        weighted=False,
        seed=0,
        threads=1,
    )
    removed = source.keys.of("paper", graph.removed_nodes("paper"))
    assert (source.visits()[removed] == 0).all()
    starts = source.batches(0).start
    assert len(starts) == 2 * (graph.num_nodes("paper") - LATE - 1)
    assert not np.isin(starts, graph.removed_nodes("paper")).any()
