"""Row updates of open models of each kind, and their writers."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from graphbox.artifact import Artifact
from graphbox.artifact.forgetting import nodes_held, write_without
from graphbox.artifact.row_updates import UPDATES_FOLDER, RowUpdate, UpdatesFolder
from graphbox.artifact.updated_rows import UpdatedRows
from graphbox.deploy import (
    DeployedClick,
    DeployedEncoder,
    DeployedKnowledgeGraph,
    DeployedModel,
    open_encoder,
    open_model,
)
from graphbox.deploy.field_columns import columns_of_rows
from graphbox.deploy.nearest.row_filter import ALL_ROWS, RowFilter
from graphbox.deploy.row_updates import RowUpdater, list_row_updates, roll_back_rows, update_rows
from graphbox.errors import (
    ConflictError,
    DataError,
    FormatError,
    NotFoundError,
    TimeLimitError,
    UnsupportedError,
    UsageError,
)
from graphbox.workspace import Workspace
from tests.artifact.long_chain import ROWS, UPDATES, peak_is_bounded, write_chain
from tests.artifact.long_chain import write_items as write_long
from tests.artifact.lookup_model import DIM, ITEMS, write_lookup
from tests.deploy.form_models import write_click, write_knowledge_graph, write_padded_block, write_tensors
from tests.deploy.nearest_models import DIM as NEAREST_DIM
from tests.deploy.nearest_models import clustered, wait_for_index, write_items

Float32 = npt.NDArray[np.float32]


def workspace_with(root: Path, name: str, write: Callable[[Path], Artifact]) -> Workspace:
    workspace = Workspace(root)
    version, path = workspace.new_model_path(name)
    kind = write(path).manifest.kind
    workspace.add_model(name, version, kind=kind, task=None, precision="float32", metrics={})
    return workspace


def write_rows(path: Path) -> Artifact:
    return write_lookup(path, name="rows")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_with(tmp_path / "work", "rows", write_rows)


def rows_of(workspace: Workspace, name: str) -> UpdatedRows:
    """Return the active rows of a model."""
    artifact = Artifact.open(workspace.model(name).path)
    folder = UpdatesFolder(artifact.path, artifact.manifest.digest)
    active = workspace.serving_records().row_sequence(name, 1)
    return UpdatedRows.of(artifact).apply([folder.read(each) for each in folder.chain(active)[1]])


def updated(workspace: Workspace, name: str, model: DeployedModel) -> Any:
    rows = rows_of(workspace, name)
    return model.with_rows(rows.artifact, rows.point.sequence)


# Nearest rows


def brute_force(rows: Float32, query: Float32, k: int, score: str, allowed: npt.NDArray[np.bool_]) -> Float32:
    """Return the best ``k`` scores of allowed rows."""
    products = rows.astype(np.float64) @ query.astype(np.float64)
    if score == "cosine":
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
        products = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return np.sort(products[allowed])[::-1][:k].astype(np.float32)


@pytest.fixture(scope="module", params=[("cosine", "float32"), ("inner_product", "int8")])
def ranked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    score, codec = request.param
    root = tmp_path_factory.mktemp("ranked")
    workspace = workspace_with(
        root / "work", "shop", lambda path: write_items(path, score=score, items=3_000, codec=codec)
    )
    with open_encoder(workspace.model("shop").path, "onnxruntime") as model:
        yield workspace, model, score


@pytest.mark.parametrize("share", [0.002, 0.3, 1.0])
def test_ranking_of_changed_rows_is_exact(ranked: Any, share: float) -> None:
    workspace, model, score = ranked
    random = np.random.default_rng(round(share * 1000))
    chosen = random.choice(3_000, round(3_000 * share), replace=False)
    ids = [f"item-{each:05d}" for each in chosen] + ["new-1", "new-2"]
    values = 1.5 * clustered(len(ids), 5)
    values[0] = 0
    update_rows(workspace, "shop", ids, values, table="items")
    view: DeployedEncoder = updated(workspace, "shop", model)
    table = view.artifact.table("items")
    rows = table.block(0, len(table))
    assert len(rows) == 3_002
    queries = np.concatenate([clustered(6, 8), np.zeros((1, NEAREST_DIM), np.float32), values[-1:]])
    all_ids = random.permutation(3_002)
    filters = [
        ALL_ROWS,
        RowFilter.of(None, all_ids[:5]),
        RowFilter.of(None, all_ids[:2_500]),
        RowFilter.of(all_ids[:700], all_ids[:3]),
        RowFilter.of(np.array([3_000, 3_001, 5]), np.empty(0, np.int64)),
        RowFilter.of(np.empty(0, np.int64), np.empty(0, np.int64)),
        ALL_ROWS,
        RowFilter.of(None, np.array([3_001])),
    ]
    found = view.nearest.nearest(queries, 12, "user", filters)
    for query, each, (index, scores) in zip(queries, filters, found, strict=True):
        allowed = np.zeros(3_002, np.bool_)
        allowed[np.arange(3_002) if each.allowed is None else each.allowed] = True
        allowed[each.denied] = False
        best = brute_force(rows, query, 12, score, allowed)
        np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-4)
        assert allowed[index].all()
        assert len(set(index.tolist())) == len(index)
    index, scores = view.neighbors(["new-2", ids[1]], 7, node_type="item")
    for row, identifier in enumerate(["new-2", ids[1]]):
        node = view.index([identifier], "item")[0]
        allowed = np.arange(3_002) != node
        best = brute_force(rows, rows[node], 7, score, allowed)
        np.testing.assert_allclose(scores[row], best, rtol=1e-4, atol=1e-4)
        assert node not in index[row]
    roll_back_rows(workspace, "shop", 0)


def test_index_and_changed_rows(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    workspace = workspace_with(tmp_path / "work", "shop", write_items)
    with open_encoder(workspace.model("shop").path, "onnxruntime", nearest="index") as model:
        assert wait_for_index(model, "user") == "index"
        queries = clustered(40, 11)
        before = model.nearest.nearest(queries, 20, "user")
        # The nearest rows of all queries are changed: an index alone would find rows that are gone.
        nearest = sorted({int(row) for index, _ in before for row in index})
        ids = [f"item-{each:05d}" for each in nearest]
        update_rows(workspace, "shop", ids, -clustered(len(ids), 12), table="items")
        view: DeployedEncoder = updated(workspace, "shop", model)
        rows = view.artifact.table("items").block(0, 12_000)
        hits = 0
        for query, (_, scores) in zip(queries, view.nearest.nearest(queries, 20, "user"), strict=True):
            best = brute_force(rows, query, 20, "cosine", np.ones(12_000, np.bool_))
            hits += int(np.count_nonzero(scores >= best[-1] - 1e-5))
        assert hits >= 0.98 * 20 * len(queries)
        after = model.nearest.nearest(queries, 20, "user")
        assert all((a[0] == b[0]).all() for a, b in zip(before, after, strict=True)), (
            "the original is unchanged"
        )


# Other kinds


def test_clicks_read_changed_and_new_keys(tmp_path: Path) -> None:
    workspace = workspace_with(tmp_path / "work", "visits", write_click)
    artifact = Artifact.open(workspace.model("visits").path)
    rows = [{"country": "nl", "tags": [1], "age": 3, "price": 0.7}]
    unknown = [{"country": "xx", "tags": [1], "age": 3, "price": 0.7}]
    with open_model(artifact.path) as model:
        assert isinstance(model, DeployedClick)
        before = model.predict(rows).probability
        assert model.predict(unknown).unseen_fields(0) == ["country"]
        columns = columns_of_rows(model.form.fields, unknown)
        keys = model.fields.arrays(model.fields.prepare(columns), model._scale).keys
        new = [int(each) for each in keys if artifact.ids("values").find(int(each)) is None]
        known = artifact.ids("values")[0]
        values = np.full((len(new) + 1, artifact.manifest.tables["values"].dim), 0.5, np.float32)
        update_rows(workspace, "visits", [known, *new], values)
        view = updated(workspace, "visits", model)
        assert view.predict(unknown).unseen_fields(0) == []
        assert view.predict(unknown).probability != model.predict(unknown).probability
        np.testing.assert_array_equal(model.predict(rows).probability, before)


def test_knowledge_graph_answers_with_changed_and_new_entities(tmp_path: Path) -> None:
    workspace = workspace_with(tmp_path / "work", "likes", write_knowledge_graph)
    with open_model(workspace.model("likes").path) as model:
        assert isinstance(model, DeployedKnowledgeGraph)
        relation = model.artifact.table("to_tails").rows([0])[0]
        head = model.artifact.table("user").rows([0])[0]
        best = 10 * np.sign(relation * head).astype(np.float32)
        update_rows(workspace, "likes", [99, 12], np.stack([best, -best]), table="item")
        view = updated(workspace, "likes", model)
        (answers,) = view.answer("likes", [10], 5, with_known=True)
        named = view.artifact.ids("item").take(answers.index)
        assert named[0] == 99
        (answers,) = view.answer("likes", [10], 6, with_known=True)
        assert view.artifact.ids("item").take(answers.index)[-1] == 12
        assert len(view.answer("likes", [99], 3, to_heads=True)[0].index) == 3
    rows = rows_of(workspace, "likes")
    assert rows.last is not None
    manifest = rows.last.model_copy(update={"parent": rows.point, "sequence": 9})
    with pytest.raises(FormatError, match="new ids of `relation`"):
        rows.apply([RowUpdate(manifest, {"to_tails": (pa.array(["hates"]), best[None])})])


def test_encoder_refuses_new_ids(tmp_path: Path) -> None:
    workspace = workspace_with(tmp_path / "work", "sample", write_padded_block)
    artifact = Artifact.open(workspace.model("sample").path)
    dim = artifact.manifest.tables["package"].dim
    known = artifact.ids("package")[2]
    with pytest.raises(NotFoundError, match="received `123456` of `package`"):
        update_rows(workspace, "sample", [known, 123456], np.ones((2, dim), np.float32), table="package")
    update_rows(workspace, "sample", [known], np.ones((1, dim), np.float32), table="package")
    with open_encoder(artifact.path) as model:
        view = updated(workspace, "sample", model)
        assert (view.encode([known]) != model.encode([known])).any()
        view.warm_up()


# Writers


def test_what_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    ones = np.ones((2, DIM), np.float32)
    ids = ["user 1", "new"]
    cases: list[tuple[type[Exception], str, Any, Any, Any]] = [
        (UsageError, "one of the tables user, item, received none", ids, ones, None),
        (NotFoundError, "received `users`", ids, ones, "users"),
        (DataError, r"numbers \[2, 9\], received float32 \[2, 8\]", ids, ones[:, 1:], "user"),
        (DataError, r"received int64 \[2, 9\]", ids, ones.astype(np.int64), "user"),
        (DataError, "finite numbers", ids, np.where(np.eye(2, DIM) > 0, np.nan, ones), "user"),
        (DataError, "finite numbers", ids, np.full((2, DIM), 1e300), "user"),
        (DataError, "1 duplicates", ["a", "a"], ones, "user"),
        (DataError, "at least one row", [], ones[:0], "user"),
        (DataError, "ids of type int64, received string", ids, ones, "item"),
        (DataError, "all strings or all integers", ["a", 1], ones, "user"),
        (DataError, "all strings or all integers", [True, False], ones, "item"),
        (DataError, "64 bits", [1 << 70, 2], ones, "item"),
        (DataError, "in UTF-8", ["\ud800", "b"], ones, "user"),
    ]
    for kind, message, given, rows, table in cases:
        with pytest.raises(kind, match=message):
            update_rows(workspace, "rows", given, rows, table=table)
    with pytest.raises(ConflictError, match="row update 1, the next one, received 2"):
        update_rows(workspace, "rows", ids, ones, table="user", sequence=2)
    with pytest.raises(NotFoundError, match="no row update 4"):
        roll_back_rows(workspace, "rows", 4)
    with pytest.raises(NotFoundError):
        update_rows(workspace, "other", ids, ones)
    assert list_row_updates(workspace, "rows").updates == ()
    bare = workspace_with(tmp_path / "bare", "bare", write_tensors)
    with pytest.raises(UnsupportedError, match="`select` has none"):
        update_rows(bare, "bare", ids, ones)


def test_updates_follow_the_active_one(workspace: Workspace) -> None:
    updater = RowUpdater(workspace, "rows")
    for tag in (1.0, 2.0, 3.0):
        updater.write({"item": (ITEMS, np.full((len(ITEMS), DIM), tag))})
    assert updater.roll_back(1) == 3
    fourth = updater.write({"item": (ITEMS[:1], np.full((1, DIM), 4.0))})
    assert (fourth.sequence, fourth.parent.sequence, fourth.depth) == (4, 1, 2)
    np.testing.assert_array_equal(
        rows_of(workspace, "rows").artifact.table("item").rows([0, 1, 2, 3])[:, 0], [4, 1, 1, 1]
    )
    updater.roll_back(3)
    assert rows_of(workspace, "rows").artifact.table("item").rows([0])[0, 0] == 3
    updater.roll_back(0)
    assert rows_of(workspace, "rows").last is None
    found = list_row_updates(workspace, "rows")
    assert (found.active, [each.sequence for each in found.updates]) == (0, [1, 2, 3, 4])
    workspace.remove_model("rows")
    assert workspace.serving_records().row_sequence("rows", 1) == 0


def test_long_chains_begin_anew(workspace: Workspace) -> None:
    """The rows, and the numbers of new nodes, are those of all updates; earlier ones can be gone back to."""
    updater = RowUpdater(workspace, "rows", longest_chain=4)
    plain: dict[Any, float] = {}
    random = np.random.default_rng(3)
    for number in range(1, 23):
        ids = [f"new {each}" for each in random.permutation(30)[:5]] + ["user 7"]
        updater.write({"user": (ids, np.full((6, DIM), float(number)))})
        plain |= dict.fromkeys(ids, float(number))
        artifact = rows_of(workspace, "rows").artifact
        found = artifact.table("user").rows(artifact.ids("user").index(list(plain)))[:, 0]
        assert found.tolist() == list(plain.values())
        new = [each for each in plain if each != "user 7"]
        assert artifact.ids("user").take(range(70_000, len(artifact.ids("user")))) == new
    left = list_row_updates(workspace, "rows")
    assert [each.sequence for each in left.updates] == list(range(17, 23))
    assert [each.depth for each in left.updates] == [1, 2, 3, 4, 1, 2]
    updater.roll_back(18)
    artifact = rows_of(workspace, "rows").artifact
    assert artifact.table("user").rows(artifact.ids("user").index(["user 7"]))[0, 0] == 18


def test_memory_of_a_writer_that_begins_anew_is_bounded(tmp_path: Path) -> None:
    workspace = workspace_with(tmp_path / "work", "rows", write_long)
    write_chain(Artifact.open(workspace.model("rows").path))
    workspace.serving_records().write_row_sequence("rows", 1, UPDATES)
    updater = RowUpdater(workspace, "rows", longest_chain=UPDATES)
    with peak_is_bounded():
        written = updater.write({"item": ([5, ROWS + 3], np.full((2, 64), -1.0))})
    assert (written.parent.sequence, written.depth, written.num_rows) == (0, 1, ROWS + 1)
    rows = rows_of(workspace, "rows").artifact.table("item").rows([4, 5, 6, ROWS])
    assert rows[:, 0].tolist() == [4, -1, 6, -1]


def test_locked_database_leaves_no_update_behind(tmp_path: Path) -> None:
    workspace_with(tmp_path / "work", "rows", write_rows).close()
    workspace = Workspace(tmp_path / "work", busy_timeout_s=0.1)
    updater = RowUpdater(workspace, "rows")
    rows = np.ones((len(ITEMS), DIM))
    assert updater.write({"item": (ITEMS, rows)}, sequence=1).sequence == 1
    with closing(sqlite3.connect(workspace.root / "graphbox.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeLimitError, match="locked by another process"):
            updater.write({"item": (ITEMS, 2 * rows)}, sequence=2)
        other.execute("ROLLBACK")
    folder = workspace.model("rows").path / UPDATES_FOLDER
    assert sorted(each.name for each in folder.iterdir()) == [".lock", "1"]
    assert updater.write({"item": (ITEMS, 3 * rows)}, sequence=2).parent.sequence == 1


def test_updates_wait_for_a_forgetting_and_follow_the_version_that_it_wrote(workspace: Workspace) -> None:
    updater = RowUpdater(workspace, "rows")
    updater.write({"item": (ITEMS, np.ones((len(ITEMS), DIM)))})
    record = workspace.model("rows")
    written: list[Any] = []
    writing = threading.Thread(
        target=lambda: written.append(updater.write({"item": (ITEMS[1:], np.full((3, DIM), 2.0))}))
    )
    with workspace.forgetting_lock():
        writing.start()
        writing.join(0.5)
        assert writing.is_alive()
        assert not written
        artifact, beside = Artifact.open(record.path), record.path.with_name("rewritten")
        write_without(artifact, nodes_held(artifact, {"item": pa.array(["-4"], pa.large_string())}), beside)
        workspace.replace_version(record, beside)
    writing.join(30)
    (update,) = written
    assert update.sequence == 1
    assert update.parent.digest == Artifact.open(record.path).manifest.digest != artifact.manifest.digest
    table = rows_of(workspace, "rows").artifact.table("item")
    assert table.rows(np.arange(3))[:, 0].tolist() == [2, 2, 2]
    assert updater.roll_back(0) == 1


def test_roll_back_waits_for_a_forgetting(workspace: Workspace) -> None:
    updater = RowUpdater(workspace, "rows")
    updater.write({"item": (ITEMS, np.ones((len(ITEMS), DIM)))})
    rolling = threading.Thread(target=lambda: updater.roll_back(0))
    with workspace.forgetting_lock():
        rolling.start()
        rolling.join(0.3)
        assert workspace.serving_records().row_sequence("rows", 1) == 1
    rolling.join(30)
    assert workspace.serving_records().row_sequence("rows", 1) == 0


def test_version_that_was_removed_meanwhile(workspace: Workspace) -> None:
    updater = RowUpdater(workspace, "rows")
    shutil.rmtree(workspace.model("rows").path)
    with pytest.raises(NotFoundError, match="version 1 of the model `rows`") as caught:
        updater.write({"item": (ITEMS, np.ones((len(ITEMS), DIM)))})
    assert caught.value.hint is not None
    with pytest.raises(NotFoundError):
        updater.roll_back(0)


def test_writers_at_once_take_turns(workspace: Workspace) -> None:
    errors: list[BaseException] = []

    def write(tag: int) -> None:
        try:
            updater = RowUpdater(Workspace(workspace.root, create=False), "rows")
            for step in range(6):
                updater.write({"user": ([f"writer {tag}", f"step {step}"], np.full((2, DIM), float(tag)))})
        except BaseException as error:  # noqa: BLE001 - reported below
            errors.append(error)

    threads = [threading.Thread(target=write, args=(tag,)) for tag in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    found = list_row_updates(workspace, "rows")
    assert [each.parent.sequence for each in found.updates] == list(range(18))
    artifact = rows_of(workspace, "rows").artifact
    tags = artifact.table("user").rows(artifact.ids("user").index([f"writer {tag}" for tag in (1, 2, 3)]))
    assert tags[:, 0].tolist() == [1, 2, 3]


def test_writers_killed_at_each_step(workspace: Workspace) -> None:
    command = [sys.executable, "-m", "tests.deploy.killed_row_updates", str(workspace.root)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 15
