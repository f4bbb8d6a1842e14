"""Run files whose networks read features of edges, to what is served: known nodes, and nodes never seen."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from graphbox.artifact import Artifact, PaddedBlockForm
from graphbox.artifact.forgetting import write_without
from graphbox.compress.neighbors import ShortenedLists
from graphbox.config import EDGE_FEATURE_LAYERS
from graphbox.deploy import DeployedEncoder, UnseenNode, open_encoder
from graphbox.deploy.adapters.browser_bundle import write_bundle
from graphbox.deploy.signature import UNSEEN_SUFFIX
from graphbox.errors import ConfigError, FormatError, InvalidRequestError, UnsupportedError
from graphbox.pipeline import RunReport, run
from graphbox.train import load_trained
from graphbox.workspace import Workspace
from tests.pipeline.deployed_figures import deployed_figures
from tests.server.server_process import start_process
from tests.train.ratings import KINDS, START, TEXT, USERS, write_tables

BACK, FOLLOWED, FOLLOWS = "item__rev_rated__user", "user__rev_follows__user", "user__follows__user"
EVERY = [*KINDS, "weight", "timestamp"]
READ = {TEXT: EVERY}
MODELS: dict[str, dict[str, Any]] = {
    **{
        layer: {"task": "label", "layer": layer, "layers": layers, "edge_features": READ}
        for layer, layers in zip(EDGE_FEATURE_LAYERS, (1, 2, 2, 1), strict=True)
    },
    "links": {
        "task": "rated",
        "layer": "gatv2",
        "layers": 1,
        "edge_features": {TEXT: ["stars", "timestamp"]},
    },
    "loops": {
        "task": "label",
        "layer": "gat",
        "relations": [["user", "follows", "user"]],
        "reverse": False,
        "embeddings": ["user"],
        "edge_features": {FOLLOWS: ["weight"]},
    },
}
GRAPH = {
    "name": "ratings",
    "nodes": {
        "user": {"path": "user.parquet", "features": {"label": "categorical", "one": "number"}},
        "item": {"path": "item.parquet", "features": {"side": "number"}},
    },
    "edges": [
        {
            "type": ["user", "rated", "item"],
            "path": "rated.parquet",
            "weight": "weight",
            "timestamp": "at",
            "features": KINDS,
            "keep_duplicates": True,
        },
        {"type": ["user", "follows", "user"], "path": "follows.parquet", "weight": "closeness"},
    ],
}
TASKS = {
    "label": {"kind": "classify", "node_type": "user", "label": "label", "baselines": []},
    "rated": {
        "kind": "recommend",
        "node_type": "user",
        "target_type": "item",
        "relations": ["rated"],
        "split": {"kind": "time"},
        "k": 5,
        "baselines": [],
    },
}


def run_file(models: dict[str, dict[str, Any]], **sections: Any) -> str:
    defaults = {"kind": "gnn", "dim": 8, "epochs": 3, "dropout": 0.0}
    return json.dumps(
        {
            "version": 1,
            "name": "ratings",
            "threads": 1,
            "graph": GRAPH,
            "tasks": TASKS,
            "models": {name: {**defaults, **model} for name, model in models.items()},
            "bench": {"seconds": 0.02, "batch_sizes": [1]},
            **sections,
        }
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder, "stars")
    follows = pq.read_table(folder / "follows.parquet")
    closeness = np.random.default_rng(1).uniform(0.5, 9, USERS)
    pq.write_table(follows.append_column("closeness", [closeness]), folder / "follows.parquet")
    return folder


@pytest.fixture(scope="module")
def report(workspace: Workspace, tables: Path) -> RunReport:
    export: dict[str, Any] = {name: {"model": name, "form": "encoder"} for name in MODELS}
    export["few"] = {"model": "gatv2", "form": "encoder", "max_neighbors": 3}
    compress = {"transformer": {"max_drop": 0.9}}
    (tables / "run.yaml").write_text(run_file(MODELS, export=export, compress=compress))
    return run(tables / "run.yaml", (), workspace)


def opened(workspace: Workspace, name: str, version: int = 1) -> DeployedEncoder:
    return open_encoder(workspace.model(name, version).path)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_encoder_computes_what_training_made(workspace: Workspace, report: RunReport, name: str) -> None:
    trained = load_trained(report.path, name)
    assert report.export[name]["max_absolute_error"] <= 1e-4
    with opened(workspace, name) as model:
        found = model.encode([f"u{user}" for user in range(USERS)])
        expected = np.array(trained.embeddings["user"])
        np.testing.assert_allclose(found, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
        assert len(np.unique(expected.round(4), axis=0)) > USERS / 3


def test_the_served_encoder_reaches_what_was_trained(workspace: Workspace, report: RunReport) -> None:
    for name, task, metric in (("gine", "label", "accuracy"), ("links", "rated", "recall@5")):
        trained = report.metrics[task][name][metric]
        assert deployed_figures(workspace, report, name, "test")[metric] == pytest.approx(trained, rel=1e-5)


def test_another_runtime_computes_the_same(workspace: Workspace, report: RunReport, tables: Path) -> None:
    pytest.importorskip("openvino")
    assert report.state == "finished"
    for name in ("gine", "transformer"):
        path = workspace.model(name, 1).path
        with open_encoder(path, "openvino") as other, opened(workspace, name) as model:
            ids, twins = [f"u{user}" for user in range(20)], [twin_of(tables, 7)]
            np.testing.assert_allclose(other.encode(ids), model.encode(ids), rtol=1e-4, atol=1e-4)
            found, expected = other.encode_unseen(twins), model.encode_unseen(twins)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_request_of_few_neighbours_has_their_features(workspace: Workspace, report: RunReport) -> None:
    assert report.export["few"]["max_absolute_error"] <= 1e-4
    with opened(workspace, "few") as few, opened(workspace, "gatv2") as whole:
        ids = [f"u{user}" for user in range(20)]
        assert np.abs(few.encode(ids) - whole.encode(ids)).max() > 1e-4


def test_lists_are_shortened_with_their_features(workspace: Workspace, report: RunReport) -> None:
    assert report.state == "finished"
    artifact = Artifact.open(workspace.model("gatv2", 1).path)
    lists, form = ShortenedLists(artifact, 2), artifact.preprocess
    assert isinstance(form, PaddedBlockForm)
    checked = 0
    for group in form.groups:
        whole, short = artifact.neighbor_lists(group), lists(group)
        if group.edges is None:
            continue
        assert whole.edges is not None
        assert short.edges is not None
        assert len(short.edges) == len(short.neighbors) < len(whole.neighbors)
        for start, count, node in zip(
            short.start.ravel(), short.counts.ravel(), range(short.counts.size), strict=True
        ):
            first, length = int(whole.start.ravel()[node]), int(whole.counts.ravel()[node])
            every = np.column_stack([whole.neighbors, whole.edges])[first : first + length]
            kept = np.column_stack([short.neighbors, short.edges])[start : start + count]
            assert {tuple(row) for row in kept.tolist()} <= {tuple(row) for row in every.tolist()}
            checked += 1
    assert checked > USERS
    with pytest.raises(UnsupportedError, match="adds up the vectors of all neighbours"):
        ShortenedLists(Artifact.open(workspace.model("gine", 1).path), 2)


def test_an_encoder_is_compressed_to_int8(workspace: Workspace, report: RunReport) -> None:
    assert report.compress["transformer"]["metric"]["drop"] <= 0.9
    with opened(workspace, "transformer", 2) as model, opened(workspace, "transformer") as float32:
        ids = [f"u{user}" for user in range(30)]
        found, expected = model.encode(ids), float32.encode(ids)
        assert float(np.abs(found - expected).mean()) < 0.1 * float(np.abs(expected).max())


def test_an_encoder_forgets_nodes(
    workspace: Workspace, report: RunReport, tables: Path, tmp_path: Path
) -> None:
    """Every list of those that stay keeps its edges' features; who has none of the nodes is as before."""
    assert report.state == "finished"
    path = workspace.model("gatv2", 1).path
    without = write_without(Artifact.open(path), {"user": np.array([0])}, tmp_path / "without")
    before, after = Artifact.open(path), Artifact.open(without.path)
    form = before.preprocess
    assert isinstance(form, PaddedBlockForm)
    for group in form.groups:
        if group.edges is not None and group.target == "user":
            old, new = before.neighbor_lists(group), after.neighbor_lists(group)
            assert old.edges is not None
            assert new.edges is not None
            first = int(old.counts[0].sum())
            np.testing.assert_array_equal(new.edges, old.edges[first:])
    with open_encoder(without.path) as model:
        assert np.isfinite(model.encode(["u7", "u9"])).all()
        assert np.isfinite(model.encode_unseen([twin_of(tables, 7)])).all()


# ------------------------------------------------------------------------------- nodes never seen


def twin_of(tables: Path, user: int, *, features: bool = True) -> UnseenNode:
    """Return a node with the edges of one that the model was trained on, as they are in the tables."""
    rows = [row for row in pq.read_table(tables / "rated.parquet").to_pylist() if row["source"] == f"u{user}"]
    edges = [{name: row["at" if name == "timestamp" else name] for name in EVERY} for row in rows]
    follows = pq.read_table(tables / "follows.parquet").to_pylist()
    neighbors = {
        BACK: [row["target"] for row in rows],
        FOLLOWS: [row["source"] for row in follows if row["target"] == f"u{user}"],
        FOLLOWED: [row["target"] for row in follows if row["source"] == f"u{user}"],
    }
    return UnseenNode({"one": 1.0}, neighbors, edge_features={BACK: edges} if features else {})


@pytest.mark.parametrize("name", EDGE_FEATURE_LAYERS)
def test_an_unseen_node_becomes_what_training_made_of_one_like_it(
    workspace: Workspace, report: RunReport, tables: Path, name: str
) -> None:
    trained = load_trained(report.path, name)
    users = [0, 3, 7, USERS - 1]
    with opened(workspace, name) as model:
        twins = [twin_of(tables, user) for user in users]
        expected = np.array(trained.embeddings["user"])[users]
        bound = 1e-4 * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(model.encode_unseen(twins), expected, atol=bound)
        np.testing.assert_allclose(model.encode_unseen(twins[1:2]), expected[1:2], atol=bound)
        assert model.encode_unseen([]).shape == (0, 8)
        tensors = tensors_of(model, twins)
        found = model.infer(tensors, signature=UNSEEN_SUFFIX)
        np.testing.assert_array_equal(found["embedding"], model.encode_unseen(twins))
        short = f"edge.{BACK}.stars"
        with pytest.raises(InvalidRequestError, match=rf"input `{short}`: expected 24 edges"):
            model.infer({**tensors, short: tensors[short][:-1]}, signature=UNSEEN_SUFFIX)
        example = model.unseen_example()
        assert [set(each or {}) for each in example.edge_features[BACK]] == [set(EVERY)] * 5
        assert np.isfinite(model.encode_unseen([example])).all()


def tensors_of(model: DeployedEncoder, nodes: list[UnseenNode]) -> dict[str, npt.NDArray[Any]]:
    """Return nodes as clients of the signature of unseen nodes send them."""
    found: dict[str, npt.NDArray[Any]] = {"feature.one": np.ones(len(nodes), np.float32)}
    for relation in model.unseen_reader.relations:
        lists = [list(node.neighbors[relation]) for node in nodes]
        ids = [each.encode() if isinstance(each, str) else each for ids in lists for each in ids]
        found[f"neighbors.{relation}"] = np.array(ids, np.int64 if relation == BACK else object)
        found[f"num_neighbors.{relation}"] = np.array([len(ids) for ids in lists], np.int64)
    edges = [edge or {} for node in nodes for edge in node.edge_features[BACK]]
    for name in EVERY:
        values = [edge[name] for edge in edges]
        kind = model.signature(UNSEEN_SUFFIX).inputs[f"edge.{BACK}.{name}"].datatype
        dtype = {"INT64": np.int64, "BOOL": np.bool_}.get(kind, np.float32)
        tensor = (
            np.array([(each or "").encode() for each in values], object)
            if kind == "BYTES"
            else np.array([np.nan if each is None else each for each in values], dtype)
        )
        found[f"edge.{BACK}.{name}"] = tensor
    return found


def test_features_that_are_not_given_are_missing(
    workspace: Workspace, report: RunReport, tables: Path
) -> None:
    """As the mean of a number, no value of a vector, and an unknown category: in part or as a whole."""
    assert report.state == "finished"
    with opened(workspace, "gine") as model:
        bare, given = twin_of(tables, 7, features=False), twin_of(tables, 7)
        edges = given.edge_features[BACK]
        nulls = [dict.fromkeys(EVERY), None, {}, {"place": "nowhere"}, {"look": None}, {"timestamp": None}]
        found = model.encode_unseen([bare, replace(bare, edge_features={BACK: nulls})])
        np.testing.assert_array_equal(found[0], found[1])
        assert np.abs(found[0] - model.encode_unseen([given])[0]).max() > 1e-3
        later = [{**(edge or {}), "timestamp": START} for edge in edges]
        latest = [{**(edge or {}), "timestamp": START + 10**15} for edge in edges]
        same = model.encode_unseen([replace(bare, edge_features={BACK: each}) for each in (later, latest)])
        np.testing.assert_array_equal(same[0], same[1])  # later than all that training saw: of no age


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"user__like__user": []}, "node 0: expected one of the relations .*`user__like"),
        ({FOLLOWS: [{"weight": 1.0}]}, "node 0, neighbours `user__follows__user`: expected no features of"),
        ({BACK: [{"stars": 3}]}, "neighbours `item__rev_rated__user`: expected the features of 6 edges.*1"),
        ({BACK: [{"star": 3}] * 6}, "edge 0: expected one of the features `stars`, .* received `star`"),
        ({BACK: [None] * 5 + [{"stars": "3"}]}, "edge 5, feature `stars`: expected a number or null"),
        ({BACK: [{"look": [1.0]}] * 6}, "edge 0, feature `look`: expected a list of 2 numbers"),
        ({BACK: [{"timestamp": 1.5}] * 6}, "edge 0, feature `timestamp`: expected an integer of 64 bits"),
    ],
)
def test_a_mistake_in_the_features_of_an_edge_is_named(
    workspace: Workspace, report: RunReport, tables: Path, features: dict[str, Any], message: str
) -> None:
    assert report.state == "finished"
    with opened(workspace, "gine") as model, pytest.raises(InvalidRequestError, match=message):
        model.encode_unseen([replace(twin_of(tables, 7), edge_features=features)])


def test_unseen_nodes_are_encoded_over_http(
    workspace: Workspace, report: RunReport, tables: Path, tmp_path: Path
) -> None:
    assert report.state == "finished"
    node = twin_of(tables, 7)
    with opened(workspace, "gine") as model:
        vectors = model.encode_unseen([node])
    settings = {"port": 0, "models": [workspace.model("gine", 1).path], "target": "onnxruntime"}
    server = start_process(settings, tmp_path / "server.log")
    try:
        server.wait_until_ready()
        with server.client() as client:
            encode = "/api/v1/models/gine/encode"
            answer = client.post(encode, json={"nodes": [vars(node)]}).raise_for_status().json()
            np.testing.assert_allclose(answer["nodes"][0]["embedding"], vectors[0], atol=1e-6)
            described = client.get(encode).raise_for_status().json()["unseen"]
            relations = {each["name"]: each["edge_features"] for each in described["relations"]}
            assert [each["name"] for each in relations[BACK]] == EVERY
            assert relations[FOLLOWS] == []
            example = client.post(encode, json={"nodes": [described["example"]]}).raise_for_status().json()
            assert np.isfinite(example["nodes"][0]["embedding"]).all()
            wrong = client.post(
                encode, json={"nodes": [{**vars(node), "edge_features": {BACK: {"stars": 1}}}]}
            )
            assert wrong.status_code == 400
            assert "expected a list with an object or null for each neighbour" in wrong.text
    finally:
        server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()


# ------------------------------------------------------------------------------------ the format


def test_an_encoder_without_features_of_edges_is_written_as_before(
    workspace: Workspace, report: RunReport
) -> None:
    """Releases that do not know the key refuse it: it is there where it is needed alone."""
    assert report.state == "finished"
    document = json.loads((workspace.model("gine", 1).path / "preprocess.json").read_text())
    groups = [group for layer in document["layers"] for group in layer["groups"]]
    with_edges = [group for group in groups if "edges" in group]
    assert 0 < len(with_edges) < len(groups)
    types = {tuple(each) for group in with_edges for each in group["edge_types"]}
    assert types == {("user", "rated", "item"), ("item", "rev_rated", "user")}


def test_damaged_features_are_refused(workspace: Workspace, report: RunReport, tmp_path: Path) -> None:
    assert report.state == "finished"
    shutil.copytree(workspace.model("gine", 1).path, tmp_path / "1")
    form = Artifact.open(tmp_path / "1").preprocess
    assert isinstance(form, PaddedBlockForm)
    path = next(tmp_path / "1" / group.edges.values for group in form.groups if group.edges is not None)
    values = np.load(path)
    for changed, message in (
        (values[:-1], r"expected an array of shape|expected .* bytes"),
        (np.full_like(values, np.nan), "expected finite numbers, received others"),
    ):
        np.save(path, changed)
        with pytest.raises(FormatError, match=message):
            open_encoder(tmp_path / "1", verify=False)


def test_a_page_refuses_a_model_that_reads_features_of_edges(
    workspace: Workspace, report: RunReport, tmp_path: Path
) -> None:
    assert report.state == "finished"
    artifact = Artifact.open(workspace.model("gine", 1).path)
    with pytest.raises(UnsupportedError, match="this one reads features of edges"):
        write_bundle(artifact, tmp_path)


# ---------------------------------------------------------------------------------- the run file


@pytest.mark.parametrize(
    ("settings", "sections", "message"),
    [
        ({"layer": "gcn"}, {}, "reads features of edges beside `edge_features`, received `gcn`"),
        (
            {"edge_features": {"user__rates__item": ["stars"]}},
            {},
            "there is no edge type `user__rates__item`",
        ),
        (
            {"edge_features": {BACK: ["stars"]}},
            {},
            "the edges of `user__rated__item` backwards: name that one",
        ),
        ({"edge_features": {TEXT: ["starz"]}}, {}, "there is no feature `starz` of edges of type `user__ra"),
        ({"edge_features": {FOLLOWS: ["timestamp"]}}, {}, "there is no feature `timestamp` of edges of type"),
        (
            {"relations": [["user", "follows", "user"]]},
            {},
            "expected an edge type among the model's `relations`, received `user__rated__item`",
        ),
        (
            {"edge_features": {TEXT: ["stars", "stars"]}},
            {},
            "expected each feature once, received `stars` again",
        ),
        (
            {"num_neighbors": [2, 2]},
            {"memory": {"topology": "64MiB"}},
            "expected models without `edge_features`, which are read in memory, received `m`",
        ),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    workspace: Workspace, tables: Path, settings: dict[str, Any], sections: Any, message: str
) -> None:
    model = {"task": "label", "layer": "gine", "edge_features": READ, **settings}
    (tables / "wrong.yaml").write_text(run_file({"m": model}, **sections))
    with pytest.raises(ConfigError) as caught:
        run(tables / "wrong.yaml", (), workspace)
    assert message in str(caught.value)


def test_a_feature_called_timestamp_is_refused_by_the_run_file(workspace: Workspace, tables: Path) -> None:
    document = json.loads(
        run_file({"m": {"task": "label", "layer": "gine", "edge_features": {TEXT: ["timestamp"]}}})
    )
    rated = next(each for each in document["graph"]["edges"] if each["type"][1] == "rated")
    rated["features"]["timestamp"] = "number"
    (tables / "named.yaml").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="expected `timestamp` to be that of the edges"):
        run(tables / "named.yaml", (), workspace)
