"""`graphbox.run` over stored graphs, graphs in memory, PyTorch Geometric's data and data frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import graphbox
from graphbox.artifact import Artifact
from graphbox.config import load_config
from graphbox.errors import ConfigError, ConflictError, DataError, NotFoundError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.delta import append, remove
from graphbox.pipeline import Silence, Stage, StageResult, continue_run, run_pipeline
from graphbox.pipeline.stages import STAGES
from graphbox.workspace import Workspace

BUYS = ("user", "buys", "item")
CONFIG: dict[str, Any] = {
    "version": 1,
    "name": "shop",
    "threads": 1,
    "device": "cpu",
    "tasks": {
        "next": {"kind": "recommend", "node_type": "user", "target_type": "item", "relations": ["buys"]},
    },
    "models": {"light": {"kind": "lightgcn", "task": "next", "dim": 4, "epochs": 1}},
    "export": {"shop": {"model": "light"}},
    "bench": {"batch_sizes": [1], "seconds": 0.05},
}
"""A run that trains, evaluates, exports and measures."""

STORED: dict[str, Any] = {"version": 1, "name": "stored", "threads": 1, "device": "cpu"}
"""A run that only takes its graph."""


def columns(shift: int = 0) -> dict[str | tuple[str, str, str], dict[str, Any]]:
    """Return 20 users, 12 items and 120 purchases as columns."""
    pairs = [(user, (user * 5 + step * 2 + shift) % 12) for user in range(20) for step in range(6)]
    return {
        "user": {
            "id": [f"u{number}" for number in range(20)],
            "age": [20.5 + number for number in range(20)],
            "country": ["fr" if number % 3 else "de" for number in range(20)],
        },
        "item": {
            "id": [f"i{number}" for number in range(12)],
            "price": [number * 1.5 for number in range(12)],
            "sold": [number % 2 == 0 for number in range(12)],
            "year": [2000 + number for number in range(12)],
        },
        BUYS: {
            "user_id": [f"u{user}" for user, _ in pairs],
            "item_id": [f"i{item}" for _, item in pairs],
            "timestamp": list(range(len(pairs))),
            "rating": [float(number % 5) for number in range(len(pairs))],
        },
    }


def frames(library: str, shift: int = 0) -> Mapping[Any, Any]:
    makers: dict[str, Any] = {
        "pandas": pd.DataFrame,
        "polars": pl.DataFrame,
        "arrow": pa.table,
        "arrays": dict,
    }
    return {key: makers[library](values) for key, values in columns(shift).items()}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


def run(graph: Any, workspace: Workspace, config: Mapping[str, Any] = STORED, **options: Any) -> Any:
    return graphbox.run(config, workspace=workspace, graph=graph, **options)


def test_frames_to_metrics_embeddings_and_an_artifact(workspace: Workspace) -> None:
    report = run(frames("pandas"), workspace, CONFIG)
    assert report.state == "finished"
    assert 0 <= report.metrics["next"]["light"]["recall@20"] <= 1
    table = report.embeddings("user")
    assert table.schema.names == ["id", "vector"]
    assert table["id"].to_pylist() == [f"u{number}" for number in range(20)]
    vectors = np.stack(table.to_pandas()["vector"].to_list())
    assert vectors.dtype == np.float32
    assert vectors.shape == (20, 4)
    assert np.array_equal(vectors, np.load(report.path / "embeddings" / "light" / "user.npy"))
    assert report.embeddings("item").num_rows == 12
    artifact = Artifact.open(report.artifacts()["shop"])
    assert artifact.manifest.lineage.graph == "shop"
    assert report.graph().num_edges(BUYS) == 120
    again = graphbox.run(CONFIG, workspace=workspace, graph="shop")
    assert again.run == report.run, "it is the same graph by its name"


def test_embeddings_that_are_not_there(workspace: Workspace) -> None:
    report = run(frames("pandas"), workspace, CONFIG)
    with pytest.raises(UsageError, match="expected one of the node types"):
        report.embeddings()
    with pytest.raises(NotFoundError, match="has no embeddings of `itm`") as caught:
        report.embeddings("itm")
    assert "did you mean `item`" in str(caught.value)
    with pytest.raises(NotFoundError, match="no model `lite`"):
        report.embeddings("user", model="lite")
    with pytest.raises(NotFoundError, match="no vectors of candidates of `user`"):
        report.embeddings("user", candidates=True)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "arrays"])
def test_frames_of_each_library_are_the_same_graph(workspace: Workspace, library: str) -> None:
    graph = run(frames(library), workspace).graph()
    kinds = {name: spec.kind for name, spec in graph.features("user").items()}
    assert kinds == {"age": "number", "country": "categorical"}
    kinds = {name: spec.kind for name, spec in graph.features("item").items()}
    assert kinds == {"price": "number", "sold": "boolean", "year": "integer"}
    assert list(graph.edge_features(BUYS)) == ["rating"]
    assert sorted(graph.csc(BUYS).timestamp) == list(range(120))
    assert graph.ids("item").tolist() == columns()["item"]["id"]


def test_lists_are_vectors_and_slots_and_node_types_without_a_frame_are_found(workspace: Workspace) -> None:
    users = pa.table({"id": [1, 2], "x": [[0.5, 1.5], [2.0, 3.0]], "tags": [["a"], []]})
    graph = run({"user": users, BUYS: pa.table({"user": [1, 2], "item": [7, 8]})}, workspace).graph()
    assert {name: spec.kind for name, spec in graph.features("user").items()} == {
        "x": "vector",
        "tags": "slots",
    }
    assert graph.ids("item").tolist() == [7, 8]


def test_the_index_of_a_pandas_frame(workspace: Workspace) -> None:
    given = frames("pandas")
    users = given["user"][given["user"]["age"] > 25].set_index("id")
    buys = given[BUYS][given[BUYS]["user_id"].isin(users.index)]
    graph = run({"user": users, BUYS: buys}, workspace).graph()
    assert graph.ids("user").tolist() == [f"u{number}" for number in range(5, 20)]
    assert (list(graph.features("user")), list(graph.edge_features(BUYS))) == (["age", "country"], ["rating"])


def test_columns_and_rows_that_are_left_out_are_warned_of(workspace: Workspace) -> None:
    users = pd.DataFrame({"id": [1, 2], "since": pd.to_datetime(["2020-01-01", "2021-01-01"])})
    with pytest.warns(UserWarning, match="`since`.* of node type `user`"):
        run({"user": users, ("user", "knows", "user"): {"a": [1], "b": [2]}}, workspace)
    with pytest.warns(UserWarning, match="1 row, dangling edges") as caught:
        run({"user": {"id": [1, 2]}, ("user", "knows", "user"): {"a": [1, 1], "b": [2, 9]}}, workspace)
    assert caught[0].filename == __file__


def test_the_same_data_is_stored_once_and_changed_data_again(workspace: Workspace) -> None:
    first = run(frames("polars"), workspace)
    events = len(workspace.history("graph", "stored"))
    assert run(frames("polars"), workspace).run == first.run
    assert len(workspace.history("graph", "stored")) == events
    other = run(frames("polars", shift=1), workspace)
    assert other.run != first.run
    assert [each.event for each in workspace.history("graph", "stored")] == ["imported", "replaced"]
    # A stream is read once: it cannot be compared beforehand.
    reader = pa.table(columns()["user"]).to_reader()
    third = run({**frames("arrow"), "user": reader}, workspace)
    assert third.run not in (first.run, other.run)


def test_removed_nodes_have_no_embeddings(workspace: Workspace) -> None:
    model = {"kind": "deepwalk", "dim": 4, "epochs": 1}
    Graph.from_coo(np.arange(9), np.arange(9)[::-1]).save(workspace.graph_path("nine"))
    remove(workspace.graph_path("nine"), {"node": [3]})
    config = {**STORED, "graph": {"name": "nine"}, "models": {"walk": model}}
    table = graphbox.run(config, workspace=workspace).embeddings()
    assert table["id"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 8]


def test_data_given_again_replaces_what_was_saved_meanwhile(workspace: Workspace) -> None:
    run(frames("arrow"), workspace)
    Graph.from_coo([0], [1]).save(workspace.graph_path("stored"))
    again = run(frames("arrow"), workspace)
    assert again.graph().num_edges(BUYS) == 120


def test_a_source_names_its_columns(workspace: Workspace) -> None:
    purchases = pl.DataFrame({"when": [1, 2], "who": ["a", "b"], "what": ["x", "y"]})
    source = GraphSource(
        "purchases",
        {"user": NodeSource(), "item": NodeSource()},
        (EdgeSource(BUYS, purchases, source="who", target="what", timestamp="when", reverse="bought_by"),),
    )
    report = run(source, workspace)
    assert ("item", "bought_by", "user") in report.graph().edge_types
    assert [record.name for record in workspace.graphs()] == ["purchases"]
    assert run(source, workspace).run == report.run


def hetero() -> HeteroData:
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["paper"].x = torch.randn(60, 4, generator=generator)
    data["paper"].y = torch.arange(60) % 3
    data["paper"].y[:5] = -1
    parts = torch.arange(60) % 4
    data["paper"].train_mask, data["paper"].val_mask = parts < 2, parts == 2
    data["paper"].test_mask = parts == 3
    data["author"].num_nodes = 30
    ends = torch.stack([torch.arange(120) % 30, torch.arange(120) % 60])
    data["author", "writes", "paper"].edge_index = ends
    data["paper", "rev_writes", "author"].edge_index = ends.flip(0)
    return data


def test_data_of_pytorch_geometric_with_its_masks(workspace: Workspace) -> None:
    task = {
        "kind": "classify",
        "node_type": "paper",
        "label": "y",
        "split": {"kind": "given", "feature": "split"},
    }
    model = {"kind": "gnn", "task": "field", "dim": 4, "epochs": 1}
    config = {**STORED, "name": "papers", "tasks": {"field": task}, "models": {"sage": model}}
    report = run(hetero(), workspace, config)
    assert report.metrics["field"]["sage"]["nodes"] == 15 - 1
    graph = report.graph()
    assert graph.features("paper")["split"].categories == ("test", "train", "validation")
    assert "train_mask" not in graph.features("paper")
    assert graph.reverse_type(("author", "writes", "paper")) == ("paper", "rev_writes", "author")
    assert graph.is_reverse(("paper", "rev_writes", "author")), "edges held out of one are held out of both"
    assert report.embeddings("paper").column("id").to_pylist() == list(range(60))
    assert run(hetero(), workspace, config).run == report.run
    changed = hetero()
    changed["paper"].x[0] = 0
    assert run(changed, workspace, config).run != report.run


def test_a_reverse_type_with_other_edges_stays_a_type_of_its_own(workspace: Workspace) -> None:
    data = hetero()
    data["paper", "rev_writes", "author"].edge_index = data["paper", "rev_writes", "author"].edge_index[:, 1:]
    graph = run(data, workspace).graph()
    assert graph.num_edges(("paper", "rev_writes", "author")) == 119
    with pytest.raises(UsageError, match="no edge type paper__rev_writes__author") as caught:
        graph.with_reverse_edges()
    assert "`reverse: false`" in str(caught.value)


def test_masks_that_overlap(workspace: Workspace) -> None:
    data = hetero()
    data["paper"].test_mask[0] = True
    with pytest.raises(UsageError, match="each node in one of train_mask"):
        run(data, workspace)


def test_a_homogeneous_data(workspace: Workspace) -> None:
    data = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    assert run(data, workspace).graph().num_nodes("node") == 4


def test_graphs_in_memory_and_opened_ones(workspace: Workspace, tmp_path: Path) -> None:
    graph = Graph.from_coo([0, 1, 2], [1, 2, 0], node_features={"x": np.arange(3.0)})
    first = run(graph, workspace)
    assert first.graph().name == "stored"
    assert run(graph, workspace).run == first.run
    stored = Graph.open(workspace.graph("stored").path)
    assert run(stored, workspace).run == first.run, "a graph of the workspace is not copied"
    graph.save(tmp_path / "elsewhere")
    opened = Graph.open(tmp_path / "elsewhere")
    named = {**STORED, "name": "other", "graph": {"name": "copy"}}
    assert run(opened, workspace, named).graph().num_edges() == 3
    assert run(opened, workspace, named).run == "other-1"
    assert sorted(record.name for record in workspace.graphs()) == ["copy", "stored"]


def test_an_artifact_names_the_graph_of_the_workspace(workspace: Workspace) -> None:
    Graph.from_coo(np.arange(9), np.arange(9)[::-1]).save(workspace.graph_path("nine"))
    model = {"kind": "deepwalk", "dim": 4, "epochs": 1}
    config = {**STORED, "models": {"walk": model}, "export": {"vectors": {"model": "walk"}}}
    report = run("nine", workspace, {**config, "bench": CONFIG["bench"]})
    assert Artifact.open(report.artifacts()["vectors"]).manifest.lineage.graph == "nine"


def test_an_earlier_state_or_a_view_of_a_stored_graph_is_refused(workspace: Workspace) -> None:
    run(Graph.from_coo([0, 1, 2], [1, 2, 0]), workspace)
    stored = Graph.open(workspace.graph("stored").path)
    with pytest.raises(ConflictError, match="an earlier version or a view"):
        run(stored.with_reverse_edges(), workspace)
    view = run(stored.with_reverse_edges(), workspace, {**STORED, "graph": {"name": "both"}})
    assert len(view.graph().edge_types) == 2
    more = EdgeSource(("node", "to", "node"), pa.table({"source": [0], "target": [2]}))
    append(workspace.graph_path("stored"), GraphSource("stored", {}, (more,)))
    with pytest.raises(ConflictError, match="an earlier version or a view"):
        run(stored, workspace)


def test_a_stored_graph_that_changed_starts_a_new_run_and_the_first_keeps_its_version(
    workspace: Workspace,
) -> None:
    path = workspace.graph_path("ring")
    Graph.from_coo([0, 1, 2], [1, 2, 0]).save(path)
    config = {**STORED, "graph": {"name": "ring"}}
    first = graphbox.run(config, workspace=workspace)
    assert graphbox.run(config, workspace=workspace).run == first.run
    more = EdgeSource(("node", "to", "node"), pa.table({"source": [0], "target": [2]}))
    append(path, GraphSource("ring", {}, (more,)), compact="never")
    second = graphbox.run(config, workspace=workspace)
    assert second.run != first.run
    assert (first.graph().num_edges(), second.graph().num_edges()) == (3, 4)


def test_an_interrupted_run_of_given_data_is_resumed_without_it(workspace: Workspace) -> None:
    broken = [True]

    def fail_once(context: Any) -> StageResult:
        if broken:
            raise DataError("not yet", where="here")
        return StageResult(
            "done", {"edges": Graph.open(context.workspace.graph("shop").path).num_edges(BUYS)}
        )

    stages = (STAGES[0], Stage("work", fail_once))
    run(frames("pandas"), workspace, {**STORED, "name": "shop"})
    config = load_config({**STORED, "name": "later", "graph": {"name": "shop"}})
    with pytest.raises(DataError, match="not yet"):
        run_pipeline(config, workspace, stages=stages)
    broken.clear()
    report = continue_run("last", workspace, stages=stages, progress=Silence())
    assert report.state == "finished"


def test_names_that_the_graph_lacks_are_found_before_it_is_stored(workspace: Workspace) -> None:
    tasks = {"next": {**CONFIG["tasks"]["next"], "node_type": "usr", "category": "prize"}}
    with pytest.raises(ConfigError, match="there is no node type `usr` in the graph given") as caught:
        run(frames("pandas"), workspace, {**CONFIG, "tasks": tasks})
    assert "did you mean `user`?" in str(caught.value)
    assert workspace.graphs() == []
    tasks = {"is": {"kind": "classify", "node_type": "user", "label": "age"}}
    with pytest.raises(
        ConfigError, match=r"expected a categorical or integer feature, received `age` \(number\)"
    ):
        run(frames("pandas"), workspace, {**STORED, "tasks": tasks})


def test_a_stored_graph_is_checked_by_its_own_types(workspace: Workspace) -> None:
    run(frames("pandas"), workspace, {**STORED, "name": "shop"})
    for task, message in (
        (
            {"relations": ["sells"]},
            "there is no relation `sells` from `user` to `item` in the stored graph `shop`",
        ),
        ({"split": {"kind": "given", "feature": "part"}}, "there is no feature `part` of `user buys item`"),
        (
            {"split": {"kind": "given", "feature": "rating"}},
            r"expected a categorical feature, received `rating`",
        ),
    ):
        tasks = {"next": {**CONFIG["tasks"]["next"], **task}}
        with pytest.raises(ConfigError, match=message):
            graphbox.run({**CONFIG, "tasks": tasks, "graph": {"name": "shop"}}, workspace=workspace)
    model = {"kind": "metapath2vec", "metapaths": [[["user", "buys", "itm"]]]}
    with pytest.raises(ConfigError, match=r"no edge type \[user, buys, itm\] in the stored graph `shop`"):
        graphbox.run({**STORED, "graph": {"name": "shop"}, "models": {"walk": model}}, workspace=workspace)


def test_a_graph_that_is_not_stored(workspace: Workspace) -> None:
    run(frames("pandas"), workspace, {**STORED, "name": "shop"})
    with pytest.raises(NotFoundError, match="there is no stored graph `shpo`") as caught:
        run("shpo", workspace)
    assert "did you mean `shop`?" in str(caught.value)
    with pytest.raises(ConfigError, match="there is no stored graph `shpo`"):
        graphbox.run({**STORED, "graph": {"name": "shpo"}}, workspace=workspace)


@pytest.mark.parametrize(
    ("graph", "config", "message"),
    [
        ("shop", {"graph": {"name": "x", "nodes": {"user": {"path": "u.csv"}}}}, "received both"),
        ("shop", {"graph": {"name": "other"}}, "expected one name of the graph"),
        (3, {}, "received int"),
        (pd.DataFrame({"a": [1]}), {}, "received DataFrame"),
        ({("user", "buys"): pd.DataFrame({"a": [1]})}, {}, "an edge type of three names"),
        ({"user": "users.csv"}, {}, "tables in files go into the section `graph`"),
    ],
)
def test_what_is_no_graph(workspace: Workspace, graph: Any, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(graph, workspace, {**STORED, **config})


def test_frames_without_ids(workspace: Workspace) -> None:
    with pytest.raises(DataError, match="expected a column `id`, received `user_id`") as caught:
        run({"user": pd.DataFrame({"user_id": [1]})}, workspace)
    assert "rename" in str(caught.value)
    with pytest.raises(DataError, match="expected two columns of ids"):
        run({BUYS: pd.DataFrame({"user": [1]})}, workspace)


def test_overrides_cannot_give_the_graph_another_name(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="overrides of other sections"):
        run(frames("arrow"), workspace, overrides=["graph.name=other"])


def test_a_run_file_with_a_graph_from_python(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("version: 1\nname: file\ngraph: {name: shop}\n")
    report = graphbox.run(path, workspace=workspace, graph=frames("polars"))
    assert report.graph().name == "shop"
    assert graphbox.run(load_config(path), workspace=workspace).run == report.run


def test_a_config_that_is_no_plain_values(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="received DataFrame"):
        graphbox.run({**STORED, "graph": pd.DataFrame()}, workspace=workspace)
