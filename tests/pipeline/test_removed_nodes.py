"""A graph from which nodes were removed trains, evaluates, exports, compresses and serves."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from graphbox.artifact import Artifact
from graphbox.config import load_config
from graphbox.deploy import open_click, open_encoder, open_knowledge_graph
from graphbox.graph import Graph
from graphbox.pipeline import RunReport, run_pipeline
from graphbox.pipeline.graph_changes import compact_graph, given_ids, remove_from_graph
from graphbox.pipeline.stages.import_graph import import_config
from graphbox.train import load_network, load_trained
from graphbox.workspace import Workspace
from tests.cli.conftest import RUN_FILE as PAPERS
from tests.cli.conftest import write_tables
from tests.pipeline.deployed_figures import deployed_figures
from tests.pipeline.test_export_click import RUN_FILE as LOG
from tests.pipeline.test_export_click import table as log_table
from tests.pipeline.test_export_knowledge import RUN_FILE as ATLAS
from tests.pipeline.test_export_rankings import RUN_FILE as SHOP
from tests.train.atlas import facts
from tests.train.shop import build_shop

# The first and the last node of a type, and some between: every kind of shift.
REMOVED = {
    "papers": {"paper": ["p0", "p17", "p18", "p59"], "author": ["a4", "a29"]},
    "shop": {"user": ["u0", "u7", "u119"], "item": ["i1", "i79"]},
    "atlas": {"place": ["p0-0", "p3-3", "p6-6"]},
    "log": {"row": ["0", "17", "599"]},
}
NETWORK = """
  net: {kind: gnn, task: field, layer: gcn, dim: 8, epochs: 2}
"""


NETWORKS = """\
  network: {model: net}
  network-encoder: {model: net, form: encoder}
"""


def write_papers(folder: Path) -> None:
    write_tables(folder)
    text = PAPERS.replace("  sage:\n", f"  {NETWORK.strip()}\n  sage:\n")
    (folder / "run.yaml").write_text(text.replace("export:\n", f"export:\n{NETWORKS}"))


def write_shop(folder: Path) -> None:
    build_shop(folder)
    (folder / "run.yaml").write_text(SHOP)


def write_atlas(folder: Path) -> None:
    parts = facts()
    for name, triples in (("train", [*parts["train"], *parts["valid"]]), ("test", parts["test"])):
        with gzip.open(folder / f"{name}.txt.gz", "wt") as stream:
            stream.writelines("\t".join(triple) + "\n" for triple in triples)
    (folder / "run.yaml").write_text(ATLAS)


def write_log(folder: Path) -> None:
    pq.write_table(log_table(), folder / "log.parquet")
    (folder / "run.yaml").write_text(LOG)


@dataclass(frozen=True)
class Reduced:
    """A run over a graph from which nodes were removed."""

    workspace: Workspace
    report: RunReport
    graph: Graph

    def artifact(self, name: str, version: int = 1) -> Path:
        return self.workspace.model(name, version).path

    def own_vectors(self, model: str, folder: str, node_type: str) -> dict[str, NDArray[np.float32]]:
        """Return the vectors that the run wrote, by original id."""
        at = self.report.path / "embeddings" / model / folder
        ids = (at / f"{node_type}.ids.txt").read_text().splitlines()
        return dict(zip(ids, np.load(at / f"{node_type}.npy"), strict=True))


def reduced(folder: Path, name: str, write: Callable[[Path], None]) -> Reduced:
    """Import, remove some nodes (some compacted, some not), run every stage."""
    write(folder)
    workspace = Workspace(folder / "workspace")
    config = load_config(folder / "run.yaml")
    import_config(config.graph, workspace)
    path = workspace.graph_path(name)
    for node_type, ids in REMOVED[name].items():
        remove_from_graph(name, given_ids(node_type, ids[:-1], Graph.open(path)), workspace)
    compact_graph(name, workspace)
    for node_type, ids in REMOVED[name].items():
        remove_from_graph(name, given_ids(node_type, ids[-1:], Graph.open(path)), workspace)
    return Reduced(workspace, run_pipeline(config, workspace), Graph.open(path))


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Reduced:
    return reduced(tmp_path_factory.mktemp("papers"), "papers", write_papers)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Reduced:
    return reduced(tmp_path_factory.mktemp("shop"), "shop", write_shop)


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Reduced:
    return reduced(tmp_path_factory.mktemp("atlas"), "atlas", write_atlas)


def check_ids(made: Reduced, name: str) -> None:
    artifact = Artifact.open(made.artifact(name))
    for node_type in artifact.node_types:
        if node_type in made.graph.node_types:
            live = [each for each in made.graph.arrow_ids(node_type).to_pylist() if each is not None]
            assert list(artifact.ids(node_type)) == live
            assert not set(live) & set(REMOVED[made.graph.name].get(node_type, []))


def check_links(made: Reduced, name: str, edge_type: tuple[str, str, str]) -> None:
    """Compare the links of an artifact with the edges of the graph, by original ids."""
    artifact = Artifact.open(made.artifact(name))
    table = pq.read_table(artifact.path / "links.parquet")
    table = table.filter(np.array([each.as_py() == edge_type[1] for each in table.column("relation")]))
    found = zip(*(table.column(end).to_pylist() for end in ("source", "target")), strict=True)
    ids = [list(artifact.ids(edge_type[0])), list(artifact.ids(edge_type[2]))]
    source, target = made.graph.csc(edge_type).coo()
    expected = zip(made.graph.ids(edge_type[0], source), made.graph.ids(edge_type[2], target), strict=True)
    assert sorted((ids[0][s], ids[1][t]) for s, t in found) == sorted(expected)


def test_a_graph_network_in_padded_blocks(papers: Reduced) -> None:
    """Its degrees count edges of removed nodes to themselves, which are in no list."""
    check_ids(papers, "network-encoder")
    expected = papers.own_vectors("net", "", "paper")
    with open_encoder(papers.artifact("network-encoder")) as model:
        found = model.encode(list(expected))
    np.testing.assert_allclose(found, np.stack([*expected.values()]), atol=1e-5)


def test_an_encoder_in_padded_blocks(papers: Reduced) -> None:
    check_ids(papers, "citer")
    check_links(papers, "citer", ("paper", "cites", "paper"))
    own, target = (papers.own_vectors("sage", folder, "paper") for folder in ("", "target"))
    assert not set(REMOVED["papers"]["paper"]) & set(own)
    with open_encoder(papers.artifact("citer")) as model:
        np.testing.assert_allclose(model.encode(list(own)), list(own.values()), atol=1e-4)
        rows = model.artifact.table(model.manifest.targets["paper"].table).rows(np.arange(len(target)))
        np.testing.assert_allclose(rows, list(target.values()), atol=1e-6)
    assert papers.report.document()["compress"]["citer"]["version"] == 2
    with open_encoder(papers.artifact("citer", 2)) as model:
        assert list(model.id_index("paper")) == list(own)


def test_embeddings_as_tables(papers: Reduced) -> None:
    check_ids(papers, "walker")
    for node_type in ("paper", "author"):
        own = papers.own_vectors("walk", "", node_type)
        with open_encoder(papers.artifact("walker")) as model:
            np.testing.assert_array_equal(model.encode(list(own), node_type), list(own.values()))


def test_a_graph_network_for_later_nodes(papers: Reduced) -> None:
    check_ids(papers, "network")
    artifact = Artifact.open(papers.artifact("network"))
    assert artifact.manifest.network is not None
    stored = load_network(artifact.path / artifact.manifest.network, may_import=False)
    for node_type, rows in stored.rows.items():
        assert rows.ids.null_count == 0
        assert not set(rows.ids.to_pylist()) & set(REMOVED["papers"].get(node_type, []))
    own = papers.own_vectors("net", "", "paper")
    live = np.delete(np.arange(60), papers.graph.removed_nodes("paper"))
    vectors = stored.over(papers.graph).embeddings["paper"][live]
    np.testing.assert_allclose(vectors, list(own.values()), atol=1e-5)


def test_rankings_of_another_type(shop: Reduced) -> None:
    for name, model_name in (("shop-items", "light"), ("shop-links", "network")):
        check_ids(shop, name)
        own, target = shop.own_vectors(model_name, "", "user"), shop.own_vectors(model_name, "target", "item")
        with open_encoder(shop.artifact(name)) as model:
            np.testing.assert_allclose(model.encode(list(own), "user"), list(own.values()), atol=1e-6)
            found, score = model.neighbors(["u3", "u50"], 5, node_type="user")
        scores = np.array([own["u3"], own["u50"]]) @ np.array(list(target.values())).T
        np.testing.assert_allclose(score, np.sort(scores, axis=1)[:, ::-1][:, :5], rtol=1e-4)
        best = np.take_along_axis(scores, found, axis=1)
        np.testing.assert_allclose(best, score, rtol=1e-4)
    check_links(shop, "shop-items", ("user", "bought_later", "item"))


@pytest.mark.parametrize(("name", "model"), [("shop-items", "light"), ("shop-links", "network")])
def test_what_is_served_measures_as_it_was_trained(shop: Reduced, name: str, model: str) -> None:
    measured = deployed_figures(shop.workspace, shop.report, name, "test")
    trained = shop.report.document()["metrics"]["items" if model == "light" else "told"][model]
    for key in measured.keys() & trained.keys():
        assert measured[key] == pytest.approx(trained[key], abs=1e-4), key


def test_a_knowledge_graph(atlas: Reduced) -> None:
    for name, model_name in (("atlas-products", "products"), ("atlas-moves", "moves")):
        check_ids(atlas, name)
        trained = load_trained(atlas.report.path, model_name)
        places = ["p1-1", "p6-5"]
        live = np.delete(np.arange(atlas.graph.num_nodes("place")), atlas.graph.removed_nodes("place"))
        assert trained.triples is not None
        relation = np.full(2, trained.triples.relation("east"))
        for to_heads in (False, True):
            expected = trained.score_triples(atlas.graph.index("place", places), relation, to_heads=to_heads)
            with open_knowledge_graph(atlas.artifact(name)) as model:
                rows = model.artifact.ids("place").index(places)
                served = model.scores("east", rows, to_heads=to_heads)
            np.testing.assert_allclose(served, expected[:, live], atol=1e-4)
    links = pq.read_table(Artifact.open(atlas.artifact("atlas-moves")).path / "links.parquet")
    ids = list(Artifact.open(atlas.artifact("atlas-moves")).ids("place"))
    gone = REMOVED["atlas"]["place"]
    known = {each for part in facts().values() for each in part if not {each[0], each[2]} & set(gone)}
    columns = ("source", "relation", "target")
    found = zip(*(links.column(each).to_pylist() for each in columns), strict=True)
    assert {(ids[head], name, ids[tail]) for head, name, tail in found} == known


def test_a_model_of_clicks(tmp_path: Path) -> None:
    made = reduced(tmp_path, "log", write_log)
    document = made.report.document()
    assert document["metrics"]["click"]["fm"]["auc"] > 0
    assert document["export"]["log-fm"]["rows"] > 50
    with open_click(made.artifact("log-fm", 2)) as model:
        model.warm_up()
