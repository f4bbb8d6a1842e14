"""Graph networks are exported as encoders: every kind of layer, several node types, weights, features."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.artifact import Artifact, PaddedBlockForm
from graphbox.artifact.forgetting import write_without
from graphbox.compress.neighbors import ShortenedLists
from graphbox.deploy import DeployedEncoder, UnseenNode, open_encoder
from graphbox.deploy.signature import UNSEEN_SUFFIX
from graphbox.errors import (
    ConfigError,
    FormatError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
    UsageError,
)
from graphbox.models.layer_kinds import LAYER_KINDS
from graphbox.pipeline import RunReport, run
from graphbox.pipeline.run_data import RunData
from graphbox.train import load_trained
from graphbox.workspace import Workspace
from tests.pipeline.deployed_figures import deployed_figures
from tests.server.server_process import start_process

USERS, ITEMS, TASTES, WIDTH = 150, 60, 3, 5
KNOWS, BUYS = ["user", "knows", "user"], ["user", "buys", "item"]
TASK_OF_LAYER = {
    name: ("taste", "item", "sale")[place % 3]
    for place, name in enumerate(sorted(set(LAYER_KINDS) - {"gcn2", "gine"}))
}
MODELS: dict[str, dict[str, Any]] = {
    **{name: {"task": task, "layer": name} for name, task in TASK_OF_LAYER.items()},
    "gatv2": {"task": TASK_OF_LAYER["gatv2"], "layer": "gatv2", "layers": 1},
    "hgt": {"task": TASK_OF_LAYER["hgt"], "layer": "hgt", "layers": 1},
    "gcn2": {"task": "taste", "layer": "gcn2", "layers": 3, "relations": [KNOWS]},
    "merged": {
        "task": "taste",
        "layer": "gat",
        "relations": [KNOWS],
        "merge_relations": True,
        "layer_options": {"heads": 2},
        "edge_weights": True,
        "normalize": True,
        "residual": True,
    },
}
GRAPH = {
    "name": "town",
    "nodes": {
        "user": {
            "path": "user.parquet",
            "features": {
                "taste": "categorical",
                "city": "categorical",
                "age": "number",
                "x": "vector",
                "words": "slots",
            },
        },
        "item": {"path": "item.parquet"},
    },
    "edges": [
        {"type": KNOWS, "path": "knows.parquet", "reverse": "known_by", "weight": "weight"},
        {"type": BUYS, "path": "buys.parquet", "reverse": "bought_by"},
    ],
}
TASKS: dict[str, dict[str, Any]] = {
    "taste": {"kind": "classify", "node_type": "user", "label": "taste"},
    "item": {"kind": "recommend", "node_type": "user", "target_type": "item", "relations": ["buys"], "k": 5},
    "sale": {"kind": "predict_links", "node_type": "user", "target_type": "item", "relations": ["buys"]},
}


def write_tables(folder: Path) -> None:
    """Write users with features of every kind, some without neighbours, and an item that most of them buy."""
    generator = np.random.default_rng(0)
    taste = np.arange(USERS) % TASTES
    vectors = generator.normal(size=(USERS, WIDTH)).astype(np.float32)
    vectors[:, :TASTES] += 2 * np.eye(TASTES, dtype=np.float32)[taste]
    users = {
        "id": [f"u{user}" for user in range(USERS)],
        "taste": [f"taste-{each}" for each in taste],
        "city": [None if user % 11 == 0 else f"city-{user % 4}" for user in range(USERS)],
        "age": [None if user % 13 == 0 else float(user % 50) for user in range(USERS)],
        "x": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
        "words": [[f"word-{word}" for word in range(user % 3)] for user in range(USERS)],
    }
    pq.write_table(pa.table(users), folder / "user.parquet")
    pq.write_table(pa.table({"id": [f"i{item}" for item in range(ITEMS)]}), folder / "item.parquet")
    connected = np.arange(6, USERS)  # the first six are alone
    source, target = generator.choice(connected, (2, 500))
    weight = generator.uniform(0.1, 3.0, len(source)).astype(np.float32)
    _write_edges(folder / "knows.parquet", "u", source, "u", target, weight=weight)
    buyers = np.repeat(connected, 3)
    items = np.where(
        np.arange(len(buyers)) % 3 == 0, 0, (buyers % TASTES) + 3 * generator.integers(0, 19, len(buyers))
    )
    _write_edges(folder / "buys.parquet", "u", buyers, "i", items)


def _write_edges(path: Path, first: str, source: Any, second: str, target: Any, **columns: Any) -> None:
    ends = {"source": [f"{first}{each}" for each in source], "target": [f"{second}{each}" for each in target]}
    pq.write_table(pa.table({**ends, **columns}), path)


def run_file(models: dict[str, dict[str, Any]], export: dict[str, Any]) -> str:
    defaults = {"kind": "gnn", "dim": 8, "epochs": 2, "dropout": 0.0}
    tasks = {name: {**task, "baselines": []} for name, task in TASKS.items()}
    return json.dumps(
        {
            "version": 1,
            "name": "town",
            "threads": 1,
            "graph": GRAPH,
            "tasks": tasks,
            "models": {name: {**defaults, **model} for name, model in models.items()},
            "export": export,
            "bench": {"seconds": 0.02, "batch_sizes": [1]},
            "compress": {"gat": {"max_drop": 0.5}} if "gat" in export else {},
        }
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder)
    return folder


@pytest.fixture(scope="module")
def report(workspace: Workspace, tables: Path) -> RunReport:
    export: dict[str, Any] = {name: {"model": name, "form": "encoder"} for name in MODELS}
    export["few"] = {"model": "gcn", "form": "encoder", "max_neighbors": 3}
    (tables / "run.yaml").write_text(run_file(MODELS, export))
    return run(tables / "run.yaml", (), workspace)


def opened(workspace: Workspace, name: str) -> DeployedEncoder:
    return open_encoder(workspace.model(name, 1).path)


def test_every_kind_of_layer_is_exported() -> None:
    of_edges = {"gine"}  # see test_export_edge_features.py
    assert {model["layer"] for model in MODELS.values()} == set(LAYER_KINDS) - of_edges


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_encoder_computes_what_training_made(workspace: Workspace, report: RunReport, name: str) -> None:
    trained = load_trained(report.path, name)
    parity = report.export[name]
    assert parity["kind"] == "encoder"
    assert parity["rows"] >= USERS
    assert parity["max_absolute_error"] <= 1e-4
    cases = {"empty batch", "one node", "nodes with the most neighbours", "the same node twice"}
    if not LAYER_KINDS[MODELS[name]["layer"]].normalized:  # where a node is its own neighbour
        cases.add("nodes without neighbours")
    assert cases <= set(parity["cases"])
    with opened(workspace, name) as model:
        ids = [f"u{user}" for user in (0, 7, 7, USERS - 1)]
        found = model.encode(ids)
        expected = trained.embeddings["user"][[0, 7, 7, USERS - 1]]
        np.testing.assert_allclose(found, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
        if trained.logits is not None:
            classes, probability = model.classify(ids)
            best = trained.logits[[0, 7, 7, USERS - 1]].argmax(axis=1)
            assert classes == [model.classes[each] for each in best]
            assert ((probability > 1 / TASTES - 1e-6) & (probability <= 1.0)).all()


@pytest.mark.parametrize(("name", "metric"), [("gat", "recall@5"), ("appnp", "accuracy")])
def test_the_served_encoder_reaches_what_was_trained(
    workspace: Workspace, report: RunReport, name: str, metric: str
) -> None:
    task = MODELS[name]["task"]
    trained = report.metrics[task][name][metric]
    assert deployed_figures(workspace, report, name, "test")[metric] == pytest.approx(trained, rel=1e-5)


def test_the_artifact_keeps_the_network_for_predictions(workspace: Workspace, report: RunReport) -> None:
    artifact = Artifact.open(workspace.model("merged", 1).path)
    assert artifact.manifest.network is not None
    assert artifact.manifest.onnx is not None
    assert [tensor.name for tensor in artifact.manifest.onnx.outputs] == ["embedding", "probability"]
    assert RunData.open(workspace, report.run).graph.num_nodes("user") == USERS


@pytest.mark.parametrize(
    ("name", "is_refused"), [("gin", True), ("sage", False), ("gat", False), ("gcn", False)]
)
def test_lists_of_exported_networks_are_shortened(
    workspace: Workspace, report: RunReport, tmp_path: Path, name: str, is_refused: bool
) -> None:
    artifact = Artifact.open(workspace.model(name, 1).path)
    form = artifact.preprocess
    assert isinstance(form, PaddedBlockForm)
    if is_refused:
        with pytest.raises(UnsupportedError, match="adds up the vectors of all neighbours"):
            ShortenedLists(artifact, 3)
        return
    lists = ShortenedLists(artifact, 3)
    assert lists.left_out > 0
    for group in form.groups:
        whole, short = artifact.neighbor_lists(group), lists(group)
        assert 3 <= short.counts.max() <= 3 + 2 * group.self_loops
        if whole.weights is not None and short.weights is not None and group.source_scales is not None:
            sums = [
                np.array(
                    [
                        weights[start : start + count].sum()
                        for start, count in zip(each.start.ravel(), each.counts.ravel(), strict=True)
                    ]
                )
                for each, weights in ((whole, whole.weights), (short, short.weights))
            ]
            np.testing.assert_allclose(sums[1], sums[0], rtol=1e-5)


def test_an_encoder_of_few_neighbours_is_measured_as_it_is_served(
    workspace: Workspace, report: RunReport
) -> None:
    assert report.export["few"]["max_absolute_error"] <= 1e-4
    task = MODELS["gcn"]["task"]
    artifact = Artifact.open(workspace.model("few", 1).path)
    form = artifact.preprocess
    assert isinstance(form, PaddedBlockForm)
    for group in form.layers[0].groups:
        counts = artifact.neighbor_lists(group).counts
        assert 3 <= counts.max() <= 3 + 2 * group.self_loops  # its own, and one that the graph has
    served = deployed_figures(workspace, report, "few", "test")
    assert artifact.manifest.metrics[task] == pytest.approx(served)
    with opened(workspace, "few") as few, opened(workspace, "gcn") as all_of_them:
        ids = [f"u{user}" for user in range(6, 40)]
        assert np.abs(few.encode(ids) - all_of_them.encode(ids)).max() > 1e-3
        alone = ["u0", "u1"]
        np.testing.assert_allclose(few.encode(alone), all_of_them.encode(alone), atol=1e-5)


def test_an_encoder_forgets_nodes(
    workspace: Workspace, report: RunReport, tables: Path, tmp_path: Path
) -> None:
    """The degrees of those that stay are what they were, and so are the vectors of nodes far from them."""
    assert report.state == "finished"
    forgotten = np.array([0, 1])  # without neighbours
    for name in ("gcn2", "merged"):
        path = workspace.model(name, 1).path
        without = write_without(Artifact.open(path), {"user": forgotten}, tmp_path / name)
        with open_encoder(path) as before, open_encoder(without.path) as after:
            ids = ["u7", f"u{USERS - 1}"]
            np.testing.assert_allclose(after.encode(ids), before.encode(ids), atol=1e-5)
            twin = twin_of(before, tables, 7)
            found, expected = after.encode_unseen([twin]), before.encode_unseen([twin])
            np.testing.assert_allclose(found, expected, atol=1e-5)
            with pytest.raises(NotFoundError):
                after.encode(["u0"])


def test_arrays_of_another_shape_are_refused(workspace: Workspace, report: RunReport, tmp_path: Path) -> None:
    assert report.state == "finished"
    shutil.copytree(workspace.model("merged", 1).path, tmp_path / "1")
    weights = np.load(tmp_path / "1" / "unseen" / "0.npy")
    np.save(tmp_path / "1" / "unseen" / "0.npy", np.ascontiguousarray(weights.T))
    with (
        open_encoder(tmp_path / "1", verify=False) as model,
        pytest.raises(
            FormatError, match=r"unseen/0.npy: expected an array of shape \[5, 8\], received \[8, 5\]"
        ),
    ):
        model.encode_unseen([UnseenNode()])


def test_an_encoder_is_compressed_to_int8(workspace: Workspace, report: RunReport) -> None:
    assert report.compress["gat"]["metric"]["drop"] <= 0.5
    artifact = Artifact.open(workspace.model("gat", 2).path)
    assert artifact.manifest.onnx is not None
    assert artifact.manifest.onnx.precision == "int8_dynamic"
    with open_encoder(artifact.path) as model:
        assert model.encode(["u7", "u8"]).shape == (2, artifact.manifest.dim)


def twin_of(model: DeployedEncoder, folder: Path, user: int) -> UnseenNode:
    """Return a node with the features and the neighbours of one that the model was trained on."""
    row = pq.read_table(folder / "user.parquet").to_pylist()[user]
    features = {each.name: row[each.name] for each in model.unseen_reader.features}
    form = model.artifact.preprocess
    assert isinstance(form, PaddedBlockForm)
    neighbors: dict[str, list[Any]] = {}
    weights: dict[str, list[float]] = {}
    for group in form.layers[-1].groups:
        lists, ids = model.artifact.neighbor_lists(group), model.artifact.ids(group.source)
        for place, edge_type in enumerate(group.edge_types):
            start, count = int(lists.start[user, place]), int(lists.counts[user, place])
            found = lists.neighbors[start : start + count]
            others = found != user if group.self_loops else np.ones(count, bool)
            neighbors["__".join(edge_type)] = ids.take(found[others])
            if group.source_scales is None and lists.weights is not None:
                weights["__".join(edge_type)] = lists.weights[start : start + count].tolist()
    return UnseenNode(features, neighbors, weights)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_an_unseen_node_becomes_what_training_made_of_one_like_it(
    workspace: Workspace, report: RunReport, tables: Path, name: str
) -> None:
    trained = load_trained(report.path, name)
    users = [0, 7, 11, 13, USERS - 1]  # without neighbours, a city, an age
    with opened(workspace, name) as model:
        twins = [twin_of(model, tables, user) for user in users]
        expected = trained.embeddings["user"][users]
        bound = 1e-4 * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(model.encode_unseen(twins), expected, atol=bound)
        np.testing.assert_allclose(model.encode_unseen(twins[1:2]), expected[1:2], atol=bound)
        assert model.encode_unseen([]).shape == (0, expected.shape[1])
        if trained.logits is not None:
            vectors, probabilities = model.classify_unseen(twins)
            np.testing.assert_allclose(vectors, expected, atol=bound)
            assert probabilities.argmax(axis=1).tolist() == trained.logits[users].argmax(axis=1).tolist()


def tensors_of(model: DeployedEncoder, nodes: list[UnseenNode]) -> dict[str, npt.NDArray[Any]]:
    """Return nodes as clients of the signature of unseen nodes send them."""
    tensors: dict[str, npt.NDArray[Any]] = {}
    for feature in model.unseen_reader.features:
        values = [node.features[feature.name] for node in nodes]
        if feature.kind in {"categorical", "slots"}:
            texts = ["|".join(map(str, each)) if isinstance(each, list) else each or "" for each in values]
            tensors[f"feature.{feature.name}"] = np.array([each.encode() for each in texts], object)
        else:
            missing = np.nan if feature.kind == "number" else 0
            dtype = {"number": np.float32, "vector": np.float32, "boolean": np.bool_}.get(
                feature.kind, np.int64
            )
            given = [missing if each is None else each for each in values]
            tensors[f"feature.{feature.name}"] = np.array(given, dtype)
    for relation in model.unseen_reader.relations:
        lists = [list(node.neighbors.get(relation, ())) for node in nodes]
        ids = [each.encode() if isinstance(each, str) else each for found in lists for each in found]
        kind = model.signature(UNSEEN_SUFFIX).inputs[f"neighbors.{relation}"].datatype
        tensors[f"neighbors.{relation}"] = np.array(ids, np.int64 if kind == "INT64" else object)
        tensors[f"num_neighbors.{relation}"] = np.array([len(found) for found in lists], np.int64)
        if f"weights.{relation}" in model.signature(UNSEEN_SUFFIX).inputs:
            weights = [
                node.weights.get(relation, [1.0] * len(found))
                for node, found in zip(nodes, lists, strict=True)
            ]
            tensors[f"weights.{relation}"] = np.array(
                [each for found in weights for each in found], np.float32
            )
    return tensors


@pytest.mark.parametrize("name", sorted(MODELS))
def test_unseen_nodes_as_tensors_are_those_given_by_name(
    workspace: Workspace, report: RunReport, tables: Path, name: str
) -> None:
    assert report.state == "finished"
    with opened(workspace, name) as model:
        nodes = [twin_of(model, tables, user) for user in (0, 7, 11, USERS - 1)]
        tensors = tensors_of(model, nodes)
        found = model.infer(tensors, signature=UNSEEN_SUFFIX)
        np.testing.assert_array_equal(found["embedding"], model.encode_unseen(nodes))
        if model.classes:
            np.testing.assert_array_equal(found["probability"], model.classify_unseen(nodes)[1])
        first = next(iter(model.unseen_reader.relations))
        counts = f"num_neighbors.{first}"
        more, fewer = {counts: tensors[counts] + 1}, {counts: tensors[counts][:-1]}
        with pytest.raises(InvalidRequestError, match=rf"input `{counts}`: expected counts"):
            model.infer({**tensors, **more}, signature=UNSEEN_SUFFIX)
        with pytest.raises(InvalidRequestError, match=rf"input `{counts}`: expected 4 nodes"):
            model.infer({**tensors, **fewer}, signature=UNSEEN_SUFFIX)


def test_unseen_nodes_are_encoded_over_http(
    workspace: Workspace, report: RunReport, tables: Path, tmp_path: Path
) -> None:
    assert report.state == "finished"
    with opened(workspace, "merged") as model:
        node = twin_of(model, tables, 7)
        vectors, probabilities = model.classify_unseen([node])
        classes = model.classes
        tensors = [
            {
                "name": name,
                "datatype": model.signature(UNSEEN_SUFFIX).inputs[name].datatype,
                "shape": list(tensor.shape),
                "data": [
                    each.decode() if isinstance(each, bytes) else each for each in tensor.ravel().tolist()
                ],
            }
            for name, tensor in tensors_of(model, [node]).items()
        ]
    settings = {"port": 0, "models": [workspace.model("merged", 1).path], "target": "onnxruntime"}
    server = start_process(settings, tmp_path / "server.log")
    try:
        server.wait_until_ready()
        with server.client() as client:
            encode = "/api/v1/models/merged/encode"
            answer = client.post(encode, json={"nodes": [vars(node)]}).raise_for_status().json()
            np.testing.assert_allclose(answer["nodes"][0]["embedding"], vectors[0], atol=1e-6)
            shares = answer["nodes"][0]["probabilities"]
            np.testing.assert_allclose([shares[name] for name in classes], probabilities[0], atol=1e-6)
            wrong = client.post(encode, json={"nodes": [{"features": {}}]})
            assert wrong.status_code == 400
            assert "expected the feature `city` in every node" in wrong.text
            wrong = client.post(encode, json={"nodes": [{"neighbors": {"user__edges__user": "u7"}}]})
            assert wrong.status_code == 400
            assert "expected a list of original ids" in wrong.text
            found = client.post("/v2/models/merged.unseen/infer", json={"inputs": tensors}).raise_for_status()
            np.testing.assert_allclose(found.json()["outputs"][0]["data"], vectors[0], atol=1e-6)
            described = client.get("/v2/models/merged.unseen").raise_for_status().json()
            assert {each["name"] for each in described["inputs"]} == {each["name"] for each in tensors}
            index = client.post("/v2/repository/index").raise_for_status().json()
            assert {each["name"] for each in index} == {
                "merged",
                "merged.unseen",
                "merged.nearest",
                "merged.nearest_vectors",
                "merged.onnx",
            }
            wrong = client.post("/v2/models/merged.unseen/infer", json={"inputs": tensors[:1]})
            assert wrong.status_code == 400
            assert "missing: " in wrong.text
            ids = {"name": "id", "datatype": "BYTES", "shape": [2], "data": ["u7", "u8"]}
            answer = client.post("/v2/models/merged/infer", json={"inputs": [ids]}).raise_for_status().json()
            assert [(each["name"], each["shape"]) for each in answer["outputs"]] == [
                ("embedding", [2, 8]),
                ("probability", [2, TASTES]),
            ]
    finally:
        server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": {}}, "node 0: expected the feature `city` in every node, received none"),
        ({"features": {"city": 1.5}}, "node 0, feature `city`: expected a category"),
        ({"features": {"town": "x"}}, "node 0: expected one of the features `city`, .*, received `town`"),
        (
            {"neighbors": {"user__like__user": []}},
            "node 0: expected one of the relations `user__.*`user__like",
        ),
        (
            {"neighbors": {"user__edges__user": ["u7", "nobody"]}},
            "node 0, neighbours `user__edges__user`: .*received `nobody`",
        ),
        (
            {"neighbors": {"user__edges__user": ["u7"]}, "weights": {"user__edges__user": [1.0, 2.0]}},
            "node 0, neighbours `user__edges__user`: expected 1 finite weights",
        ),
        (
            {"neighbors": {"user__edges__user": ["u7"]}, "weights": {"user__edges__user": ["x"]}},
            "node 0, neighbours `user__edges__user`: expected 1 finite weights",
        ),
    ],
)
def test_a_mistake_in_an_unseen_node_is_named(
    workspace: Workspace, report: RunReport, tables: Path, change: dict[str, Any], message: str
) -> None:
    assert report.state == "finished"
    with opened(workspace, "merged") as model:
        node = twin_of(model, tables, 7)
        features = change.get("features")
        if features:
            features = {**node.features, **features}
        known = replace(node, neighbors={}, weights={})
        changed = {**change, **({} if features is None else {"features": features})}
        with pytest.raises(UsageError, match=message):
            model.encode_unseen([replace(known, **changed)])


def test_a_model_of_another_kind_has_no_encoder(workspace: Workspace, tmp_path: Path) -> None:
    write_tables(tmp_path)
    walks = {"kind": "deepwalk", "task": "taste", "edge_types": [KNOWS], "epochs": 1}
    text = json.loads(run_file({}, {"walks": {"model": "walks", "form": "encoder"}}))
    text["models"] = {"walks": walks}
    (tmp_path / "few.yaml").write_text(
        json.dumps({**text, "export": {"a": {"model": "walks", "max_neighbors": 3}}})
    )
    with pytest.raises(ConfigError, match="expected `form: encoder` beside `max_neighbors`, received none"):
        run(tmp_path / "few.yaml", (), workspace)
    (tmp_path / "run.yaml").write_text(json.dumps(text))
    with pytest.raises(
        ConfigError, match="expected `vectors` for a model of kind deepwalk, received `encoder`"
    ):
        run(tmp_path / "run.yaml", (), workspace)
