"""Forgotten nodes are gone from every byte of a workspace; what stays is as it was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import graphbox
from benchmarks.byte_search import ByteSearch
from graphbox.artifact import Artifact
from graphbox.deploy import open_encoder
from graphbox.errors import ConflictError, GraphboxError, NotFoundError, UsageError
from graphbox.graph import Graph
from graphbox.pipeline.forgetting import forget, forget_again, what_holds
from graphbox.pipeline.graph_changes import given_ids, remove_from_graph
from graphbox.train import load_trained
from graphbox.workspace import Workspace
from tests.pipeline.test_export_rankings import RUN_FILE as SHOP
from tests.pipeline.test_removed_nodes import write_atlas, write_papers
from tests.train.shop import build_shop

FORGOTTEN = {
    "shop": ("user", ["user-0000-of-shop", "user-0007-of-shop", "user-0119-of-shop"]),
    "papers": ("paper", ["p0", "p17", "p59"]),
    "atlas": ("place", ["p0-0", "p3-3"]),
}


def write_shop(folder: Path) -> None:
    """Write the shop with ids that a search of bytes cannot confuse with anything else."""
    build_shop(folder)
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        for name in {"id", "source"} & {*table.column_names}:
            number = pc.utf8_slice_codeunits(table[name], 1)
            users = pc.starts_with(table[name], "u")
            long = pc.binary_join_element_wise("user-", pc.utf8_lpad(number, 4, "0"), "-of-shop", "")
            column = pc.if_else(users, long, table[name])
            table = table.set_column(table.column_names.index(name), name, column)
        pq.write_table(table, path)
    (folder / "run.yaml").write_text(SHOP)


WRITERS: dict[str, Callable[[Path], None]] = {
    "shop": write_shop,
    "papers": write_papers,
    "atlas": write_atlas,
}


@pytest.fixture(scope="module", params=list(WRITERS))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of a graph, and a workspace with a finished run of it that no test changes."""
    return request.param, _made(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def trained_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made("shop", tmp_path_factory)


_WORKSPACES: dict[str, Path] = {}


def _made(name: str, factory: pytest.TempPathFactory) -> Path:
    if name not in _WORKSPACES:
        folder = factory.mktemp(name)
        WRITERS[name](folder)
        workspace = Workspace(folder / "workspace")
        report = graphbox.run(folder / "run.yaml", workspace=workspace)
        log = workspace.run(report.run).path / "log.txt"
        log.write_text(log.read_text() + f"expected an item, received `{FORGOTTEN[name][1][0]}`\n")
        workspace.close()
        _WORKSPACES[name] = folder / "workspace"
    return _WORKSPACES[name]


def copied(original: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(original, tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")


def traces(workspace: Workspace, node_type: str, ids: list[str]) -> dict[bytes, str]:
    """Return the bytes of all rows of some nodes, and of ids that are long enough to be found."""
    found = {identifier.encode(): f"id {identifier}" for identifier in ids if len(identifier) > 8}
    for run in workspace.runs():
        for file in sorted((run.path / "embeddings").rglob(f"{node_type}.npy")):
            names = file.with_name(f"{node_type}.ids.txt").read_text().splitlines()
            found |= own_rows(np.load(file), [names.index(each) for each in ids if each in names], file)
        for file in sorted((run.path / "trained").rglob(f"inputs.{node_type}.npy")):
            graph = Graph.open(workspace.graphs()[0].path)
            found |= own_rows(np.load(file), graph.index(node_type, ids, missing=-1), file)
    for record in workspace.models():
        artifact = Artifact.open(record.path)
        for name, spec in artifact.manifest.tables.items():
            if spec.node_type == node_type and artifact.manifest.kind != "click":
                stored = "rows.npy" if spec.codec == "float32" else "codes.npy"
                file = artifact.path / "tables" / name / stored
                found |= own_rows(np.load(file), artifact.ids(node_type).index(ids, missing=-1), file)
    return {trace: name for trace, name in found.items() if len({*trace[:8]}) > 1 and len(trace) >= 8}


def own_rows(rows: npt.NDArray[Any], nodes: npt.ArrayLike, file: Path) -> dict[bytes, str]:
    """Return the bytes of the rows of some nodes, without those that others have too."""
    chosen = [node for node in np.asarray(nodes).tolist() if node >= 0]
    others = {row.tobytes() for row in np.delete(rows, chosen, axis=0)}
    return {row.tobytes(): str(file) for row in rows[chosen] if row.tobytes() not in others}


def holders(workspace: Workspace, graph: str, node_type: str, ids: list[str]) -> list[Any]:
    return what_holds(workspace, graph, {node_type: ids})


def test_every_byte_of_forgotten_nodes_is_gone(trained: tuple[str, Path], tmp_path: Path) -> None:
    name, original = trained
    node_type, ids = FORGOTTEN[name]
    with copied(original, tmp_path) as workspace:
        search = ByteSearch(traces(workspace, node_type, ids))
        before = search.below(workspace.root)
        kinds = {path.partition("/")[0] for path in before}
        assert {"models", "runs"} <= kinds, before.keys()
        held = {holding.kind for holding in holders(workspace, name, node_type, ids)}
        assert held == {"graph", "run", "model", "log"}
        report = forget(workspace, name, {node_type: ids})
        assert search.below(workspace.root) == {}
        assert holders(workspace, name, node_type, ids) == []
        assert {holding.kind for holding in report.rewritten} == held
        assert (report.edges > 0, report.replaced) == (True, 1)
        assert workspace.unfinished_forgettings() == []
        assert not (workspace.root / ".forgetting").exists()
        for each in ids:
            assert each not in (workspace.runs()[0].path / "log.txt").read_text().split("`")


def test_what_stays_is_as_it_was(trained: tuple[str, Path], tmp_path: Path) -> None:
    name, original = trained
    node_type, ids = FORGOTTEN[name]
    before = Workspace(original)
    with copied(original, tmp_path) as workspace:
        forget(workspace, name, {node_type: ids})
        (run,) = workspace.runs()
        assert run.state == "finished"
        assert run.report == before.run(run.id).report
        for file in sorted((run.path / "embeddings").rglob("*.npy")):
            if "relations" not in str(file):
                assert_rows_are_the_same(file, before.root / file.relative_to(workspace.root), ids)
        versions = [(model.name, model.version, model.active) for model in workspace.models()]
        assert versions == [(model.name, model.version, model.active) for model in before.models()]
        for model in workspace.models():
            assert Artifact.open(model.path).manifest.metrics == model.metrics
            assert [each for each in model.path.parent.iterdir() if not each.name.isdigit()] == []


def assert_rows_are_the_same(file: Path, earlier: Path, ids: list[str]) -> None:
    def rows(path: Path) -> dict[str, Any]:
        names = path.with_name(path.name.replace(".npy", ".ids.txt")).read_text().splitlines()
        return dict(zip(names, np.load(path), strict=True))

    before, after = rows(earlier), rows(file)
    of_type = {*ids} & before.keys() if file.stem in {"user", "paper", "place"} else set()
    assert after.keys() == before.keys() - of_type
    for name, row in after.items():
        np.testing.assert_array_equal(row, before[name])


def test_models_of_the_run_work_without_the_forgotten(trained_shop: Path, tmp_path: Path) -> None:
    node_type, ids = FORGOTTEN["shop"]
    with copied(trained_shop, tmp_path) as workspace:
        forget(workspace, "shop", {node_type: ids})
        (run,) = workspace.runs()
        light = load_trained(run.path, "light")
        assert not light.embeddings["user"][[0, 7, 119]].any()
        assert light.embeddings["user"][[1, 6, 118]].all(axis=1).all()
        network = load_trained(run.path, "network").network
        assert network is not None
        graph = Graph.open(workspace.graph("shop").path)
        assert network.over(graph).embeddings["user"].shape[0] == 120
        for record in workspace.models():
            with open_encoder(record.path) as model:
                with pytest.raises(NotFoundError, match="user-0007-of-shop"):
                    model.index(["user-0007-of-shop"], "user")
                if record.name == "shop-items":  # answers unknown ids with the mean, of the users that stay
                    vectors, known = model.encode_known(["user-0007-of-shop"], "user")
                    stay = model.encode_indices(np.arange(len(model.id_index("user"))), "user")
                    np.testing.assert_allclose(vectors[0], stay.mean(axis=0), rtol=1e-4, atol=1e-6)
                    assert not known[0]
                model.neighbors(["user-0008-of-shop"], 5, node_type="user")


def test_a_run_that_is_in_progress_is_not_disturbed(trained_shop: Path, tmp_path: Path) -> None:
    node_type, ids = FORGOTTEN["shop"]
    with copied(trained_shop, tmp_path) as workspace:
        (run,) = workspace.runs()
        before = {path: path.stat().st_mtime_ns for path in workspace.root.rglob("*.npy")}
        with workspace.run_lock(run), pytest.raises(ConflictError, match=f"run `{run.id}` is in use"):
            forget(workspace, "shop", {node_type: ids})
        assert {path: path.stat().st_mtime_ns for path in workspace.root.rglob("*.npy")} == before
        assert workspace.unfinished_forgettings() == []


def test_nodes_that_were_removed_from_the_graph_before(trained_shop: Path, tmp_path: Path) -> None:
    """`import --remove` reaches the graph alone; what it left is forgotten later."""
    node_type, ids = FORGOTTEN["shop"]
    with copied(trained_shop, tmp_path) as workspace:
        search = ByteSearch(traces(workspace, node_type, ids))
        path = workspace.graph("shop").path
        remove_from_graph("shop", given_ids(node_type, ids, Graph.open(path)), workspace)
        assert search.below(workspace.root)
        forget(workspace, "shop", {node_type: ids})
        assert search.below(workspace.root) == {}


def test_graph_that_was_removed_before(trained_shop: Path, tmp_path: Path) -> None:
    node_type, ids = FORGOTTEN["shop"]
    with copied(trained_shop, tmp_path) as workspace:
        search = ByteSearch(traces(workspace, node_type, ids))
        workspace.remove_graph("shop")
        report = forget(workspace, "shop", {node_type: ids})
        assert {holding.kind for holding in report.rewritten} == {"run", "model", "log"}
        assert search.below(workspace.root) == {}


@pytest.mark.parametrize(
    ("graph", "ids", "error", "message"),
    [
        (
            "shop",
            {"user": ["nobody", "no one"]},
            NotFoundError,
            "nothing was forgotten: .*2 ids, .*`nobody`",
        ),
        ("shop", {"usr": ["nobody"]}, NotFoundError, "the graph has no node type `usr`"),
        ("shp", {"user": ["nobody"]}, NotFoundError, "there is no graph `shp`, and no run of it"),
        ("shop", {"user": []}, UsageError, "expected the ids of nodes to forget, received none"),
    ],
)
def test_refused(
    trained_shop: Path, graph: str, ids: dict[str, list[str]], error: type[GraphboxError], message: str
) -> None:
    with pytest.raises(error, match=message):
        forget(Workspace(trained_shop), graph, ids)


def test_all_nodes_of_a_model_are_not_forgotten(trained_shop: Path) -> None:
    workspace = Workspace(trained_shop)
    everyone = Artifact.open(workspace.models()[0].path).ids("user")
    with pytest.raises(ConflictError, match="nothing was changed"):
        forget(workspace, "shop", {"user": list(everyone)})
    assert holders(workspace, "shop", "user", [str(everyone[0])])


def test_what_is_not_reached_is_said(trained_shop: Path, tmp_path: Path) -> None:
    node_type, ids = FORGOTTEN["shop"]
    with copied(trained_shop, tmp_path) as workspace:
        table = pa.table({"source": ids, "target": ["i1"] * len(ids)})
        (tmp_path / "other.yaml").write_text(
            "version: 1\nname: other\ngraph:\n  name: other\n  nodes: {user: {}, item: {}}\n"
            "  edges: [{type: [user, saw, item], path: other.parquet}]\n"
        )
        pq.write_table(table, tmp_path / "other.parquet")
        graphbox.run(tmp_path / "other.yaml", workspace=workspace)
        unreached = " ".join(forget(workspace, "shop", {node_type: ids}).unreached)
        for expected in (
            "the graph `other` has 3 nodes with these ids",
            "your own tables",
            "weights of models",
            "copies outside",
        ):
            assert expected in unreached


_MOMENTS = [
    3,
    13,
    34,
    *(pytest.param(each, marks=pytest.mark.stress) for each in (1, 2, 5, 8, 21, 55, 89, 144)),
]


@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_killed_forgetting_is_resumed(trained_shop: Path, tmp_path: Path, moment: int) -> None:
    """Killed at a step that changes the disk, then killed once more while it is resumed."""
    node_type, ids = FORGOTTEN["shop"]
    with copied(trained_shop, tmp_path) as workspace:
        search = ByteSearch(traces(workspace, node_type, ids))
        options = ["-C", str(workspace.root), "-q", "forget"]
    for arguments in (["shop", "--node", node_type, *ids], ["--resume"]):
        ended = subprocess.run(
            [sys.executable, "-m", "tests.killed_at_a_step", str(moment), *options, *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    with Workspace(tmp_path / "workspace") as workspace:
        if not workspace.unfinished_forgettings() and search.below(workspace.root):
            forget(workspace, "shop", {node_type: ids})  # killed before it had begun
        forget_again(workspace)
        assert search.below(workspace.root) == {}
        assert holders(workspace, "shop", node_type, ids) == []
        for record in workspace.models():
            assert "forget" in Artifact.open(record.path).manifest.lineage.steps
        load_trained(workspace.runs()[0].path, "light")


def test_a_run_that_begins_meanwhile_is_named(trained_shop: Path, tmp_path: Path) -> None:
    node_type, ids = FORGOTTEN["shop"]
    with copied(trained_shop, tmp_path) as workspace:
        config = (workspace.runs()[0].path / "config.yaml").read_text()

        def begin(what: str, done: int, total: int) -> None:
            if what == "runs":
                workspace.start_run("shop", config, "other", ["import"]).close()

        report = forget(workspace, "shop", {node_type: ids}, begin)
        assert "run shop-2 began meanwhile: forget them again when it has ended" in report.unreached


def test_rows_that_only_a_lost_version_could_name_are_not_claimed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with copied(_made("papers", tmp_path_factory), tmp_path) as workspace:
        path = workspace.graph("papers").path
        remove_from_graph("papers", given_ids("paper", ["p5"], Graph.open(path)), workspace)
        unreached = " ".join(forget(workspace, "papers", {"author": ["a4"]}).unreached)
        assert "rows of `author` in model `sage` of run papers-1: only its version" in unreached
    with copied(_made("papers", tmp_path_factory), tmp_path / "kept") as workspace:
        assert "rows of `author`" not in " ".join(forget(workspace, "papers", {"author": ["a4"]}).unreached)


def test_what_cannot_be_read_does_not_keep_the_rest(trained_shop: Path, tmp_path: Path) -> None:
    node_type, ids = FORGOTTEN["shop"]
    with copied(trained_shop, tmp_path) as workspace:
        graph = Graph.open(workspace.graph("shop").path)
        graph.save(workspace.graph_path("other"))
        workspace.graph("other")  # which the workspace notices
        (workspace.graph_path("other") / "manifest.json").write_text("{}")
        (workspace.runs()[0].path / "config.yaml").write_text("damaged: [")
        search = ByteSearch(
            {rows: name for rows, name in traces(workspace, node_type, ids).items() if "id " not in name}
        )
        unreached = " ".join(forget(workspace, "shop", {node_type: ids}).unreached)
        assert "the graph `other` cannot be read" in unreached
        assert "the tables of run shop-1, whose run file cannot be read" in unreached
        assert search.below(workspace.root) == {}
        assert workspace.unfinished_forgettings() == []
