"""Row updates as one process applies them: in order, within limits; damaged ones are refused."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import Artifact
from graphbox.artifact.row_updates import UPDATES_FOLDER, UpdatesFolder
from graphbox.artifact.updated_rows import UpdatedRows
from graphbox.deploy import DeployedEncoder, open_model
from graphbox.deploy.row_updates import RowUpdater, roll_back_rows, update_rows
from graphbox.deploy.signature import WHOLE
from graphbox.errors import GraphboxError, UsageError
from graphbox.server.counters import Counters, create_counter_file
from graphbox.server.executor import Executor
from graphbox.server.live_rows import LiveRows, RowsCollector
from graphbox.server.repository import Repository
from graphbox.server.settings import Settings
from graphbox.server.slot import Slot
from graphbox.server.sources import VersionFolder
from graphbox.workspace import Workspace
from tests.artifact.long_chain import ROWS, UPDATES, peak_is_bounded, write_chain, write_items, write_manifest
from tests.artifact.lookup_model import DIM, ITEMS, write_lookup
from tests.server.row_update_model import IDS, rows_workspace, tagged
from tests.server.sample_models import add_model, write_encoder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return rows_workspace(tmp_path)


def repository_of(workspace: Workspace) -> Repository:
    repository = Repository(workspace)
    repository.preload()
    return repository


def row(repository: Repository, identifier: str = IDS[0]) -> float:
    with repository.use("rows") as served:
        return float(served.encoder.encode([identifier])[0, 0])


def follow(repository: Repository) -> None:
    repository.poll_requests()
    repository.follow_row_updates()


def test_gap_is_refused_and_the_last_good_rows_are_served(
    workspace: Workspace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphbox.server.live_rows._RETRY_S", 0)
    updater = RowUpdater(workspace, "rows")
    updater.write({"user": (IDS, tagged(1))})
    running = repository_of(workspace)
    assert row(running) == 1
    for tag in (2, 3, 4):
        updater.write({"user": (IDS, tagged(tag))})
    folder = workspace.model("rows").path / UPDATES_FOLDER
    aside = folder.with_name("aside")
    (folder / "3").rename(aside)
    for _ in range(3):
        follow(running)
    assert row(running) == 1, "what leads to the active update is not there"
    late = repository_of(workspace)
    assert row(late) == 2, "the newest update that can be applied"
    state = late.slot("rows").rows_state
    assert (state.sequence, state.wanted) == (2, 4)
    assert "row update 3, found none" in state.failure
    refused = [record for record in caplog.records if "is refused" in record.getMessage()]
    assert len(refused) == 2, "once in each"
    aside.rename(folder / "3")
    for repository in (running, late):
        follow(repository)
        assert row(repository) == 4
        assert repository.slot("rows").rows_state.failure == ""


@pytest.mark.parametrize("file", ["rows.npy", "ids.parquet"])
def test_damaged_update_is_refused(workspace: Workspace, file: str) -> None:
    updater = RowUpdater(workspace, "rows")
    updater.write({"user": (IDS, tagged(1))})
    updater.write({"user": (IDS, tagged(2))})
    running = repository_of(workspace)
    updater.write({"user": (IDS, tagged(3))})
    updater.write({"user": (IDS, tagged(4))})
    damaged = workspace.model("rows").path / UPDATES_FOLDER / "4" / "tables" / "user" / file
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    follow(running)
    assert row(running) == 3
    assert "sha256" in running.slot("rows").rows_state.failure
    assert row(repository_of(workspace)) == 3
    roll_back_rows(workspace, "rows", 2)
    follow(running)
    assert (row(running), running.slot("rows").rows_state.failure) == (2, "")


def test_updates_beyond_the_limit_are_refused(workspace: Workspace) -> None:
    repository = Repository(workspace, max_updated_bytes=4 * DIM * 5)
    repository.preload()
    updater = RowUpdater(workspace, "rows")
    updater.write({"user": (IDS, tagged(1))})
    follow(repository)
    assert row(repository) == 1
    updater.write({"user": (IDS[:1], tagged(2, 1))})
    updater.write({"user": ([f"new {each}" for each in range(9)], tagged(3, 9))})
    follow(repository)
    assert row(repository) == 2
    failure = repository.slot("rows").rows_state.failure
    assert "expected changed rows of at most 180 bytes" in failure
    assert "--max-updated-bytes" in failure


def test_an_update_that_does_not_fit_is_read_once(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason stays the same when its files are gone: nothing looks at them again, nor at what follows."""
    monkeypatch.setattr("graphbox.server.live_rows._RETRY_S", 0)
    repository = Repository(workspace, max_updated_bytes=4 * DIM * 5)
    repository.preload()
    updater = RowUpdater(workspace, "rows")
    updater.write({"user": (IDS, tagged(1))})
    updater.write({"user": ([f"new {each}" for each in range(4)], tagged(2, 4))})
    follow(repository)
    failure = repository.slot("rows").rows_state.failure
    assert "at most 180 bytes, row update 2 makes them 252" in failure
    folder = workspace.model("rows").path / UPDATES_FOLDER
    aside = folder.with_name("aside")
    (folder / "2" / "tables").rename(aside)
    updater.write({"user": (IDS[:1], tagged(3, 1))})
    for _ in range(3):
        follow(repository)
        state = repository.slot("rows").rows_state
        assert (state.sequence, state.wanted, state.failure) == (1, 3, failure)
    aside.rename(folder / "2" / "tables")
    roll_back_rows(workspace, "rows", 1)
    updater.write({"user": ([f"new {each}" for each in range(6)], tagged(4, 6))})
    shutil.rmtree(folder / "4" / "tables")
    follow(repository)
    failure = repository.slot("rows").rows_state.failure
    assert "row update 4 makes them 216" in failure, "too many on their own"
    roll_back_rows(workspace, "rows", 1)
    follow(repository)
    assert (row(repository), repository.slot("rows").rows_state.failure) == (1, "")


def test_an_update_that_cannot_be_applied_is_tried_ever_less_often(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphbox.server.live_rows._RETRY_S", 0.02)
    path = workspace.model("rows").path
    update_rows(workspace, "rows", IDS, tagged(1), table="user")
    (path / UPDATES_FOLDER / "1" / "manifest.json").unlink()
    live = LiveRows("rows", 1, path, Counters.of_one_process(), lambda: 1, 1 << 20)
    rows = UpdatedRows.of(Artifact.open(path))
    attempts, end = 0, time.monotonic() + 1
    while time.monotonic() < end:
        if live.is_due(rows):
            live.advance(rows)
            attempts += 1
        time.sleep(0.002)
    assert 2 <= attempts <= 7, "after 0.02 s, 0.06 s, 0.14 s, ..."


def test_memory_of_a_long_chain_is_bounded(tmp_path: Path) -> None:
    """A late worker does not hold all updates at once, also where one of them is damaged."""
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "rows", write_items)
    path = workspace.model("rows").path
    artifact = Artifact.open(path)
    write_chain(artifact)
    workspace.serving_records().write_row_sequence("rows", 1, UPDATES)
    live = LiveRows("rows", 1, path, Counters.of_one_process(), lambda: UPDATES, 1 << 30)
    rows = UpdatedRows.of(artifact)
    _ = rows.base.ids("item"), rows.base.table("item")
    with peak_is_bounded():
        found = live.advance(rows)
    assert (found.point.sequence, live.state.failure) == (UPDATES, "")
    assert found.applied_rows == UPDATES * ROWS
    assert found.artifact.table("item").rows([0, ROWS - 1])[:, 0].tolist() == [0, ROWS - 1]
    damaged = path / UPDATES_FOLDER / str(UPDATES - 10) / "tables" / "item" / "rows.npy"
    damaged.unlink()
    late = LiveRows("rows", 1, path, Counters.of_one_process(), lambda: UPDATES, 1 << 30)
    with peak_is_bounded():
        found = late.advance(rows)
    assert (found.point.sequence, found.applied_rows) == (UPDATES - 11, (UPDATES - 11) * ROWS)
    assert "expected a file of the row update, found none" in late.state.failure


def test_time_that_there_is_not_is_refused(workspace: Workspace) -> None:
    updater = RowUpdater(workspace, "rows")
    for tag in (1, 2):
        updater.write({"user": (IDS, tagged(tag))})
    folder = workspace.model("rows").path / UPDATES_FOLDER
    manifest = UpdatesFolder(folder.parent, "0" * 64).manifest(2)
    write_manifest(folder / "2", manifest.model_copy(update={"created_at": "2026-13-45T99:99:99.999Z"}))
    repository = repository_of(workspace)
    assert row(repository) == 1
    assert "created_at" in repository.slot("rows").rows_state.failure


def slot_of(workspace: Workspace, wanted: Callable[[], int], counters: Counters, name: str = "rows") -> Slot:
    folder = VersionFolder(name, 1, workspace.model(name).path, "embedding")
    return Slot(folder, "auto", 1, counters, wanted_rows=wanted)


def test_model_whose_rows_cannot_be_asked_for_is_closed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is one of ours, so that the thread that opens models goes on, and it is kept."""
    opened: list[Any] = []

    def open_and_keep(*arguments: Any) -> Any:
        opened.append(open_model(*arguments))
        return opened[-1]

    def fail() -> int:
        raise RuntimeError("no number")

    monkeypatch.setattr("graphbox.server.slot.open_model", open_and_keep)
    add_model(workspace, "companion", write_encoder)
    slot = slot_of(workspace, fail, Counters.of_one_process(), "companion")
    for _ in range(2):
        with pytest.raises(GraphboxError, match="failed with RuntimeError: no number"):
            slot.open()
    assert slot.state()[0] == "UNAVAILABLE"
    (model,) = opened
    assert isinstance(model, DeployedEncoder)
    with pytest.raises(UsageError, match="closed"):
        model.encode(["nginx"])


def metrics_of_rows(counters: Counters) -> dict[str, list[float]]:
    return {
        each.name: [sample.value for sample in each.samples] for each in RowsCollector(counters).collect()
    }


def test_successor_of_a_killed_worker_reports_no_rows_of_its_own(workspace: Workspace) -> None:
    """It continues the counters of that worker, which did not end in order."""
    update_rows(workspace, "rows", IDS, tagged(1), table="user")
    path = workspace.model("rows").path
    (path / UPDATES_FOLDER / "2").mkdir()
    file = create_counter_file()
    killed = Counters([file])
    live = LiveRows("rows", 1, path, killed, None, 1 << 20)
    assert live.advance(UpdatedRows.of(Artifact.open(path))).point.sequence == 1
    found = metrics_of_rows(killed)
    assert (found["graphbox_rows_sequence"], found["graphbox_rows_refused"]) == ([1], [1])
    assert len(found["graphbox_rows_update_age_seconds"]) == 1
    successor = Counters([file])
    os.close(file)
    assert metrics_of_rows(successor) == {
        "graphbox_rows_sequence": [0],
        "graphbox_rows_refused": [0],
        "graphbox_rows_update_age_seconds": [],
        "graphbox_rows_updated": [3],
    }


def test_model_that_closes_while_an_update_is_applied_reports_no_rows(workspace: Workspace) -> None:
    counters = Counters.of_one_process()
    wanted, closes = [1], [False]

    def number() -> int:
        if closes[0]:
            slot.close()
        return wanted[0]

    update_rows(workspace, "rows", IDS, tagged(1), table="user")
    slot = slot_of(workspace, number, counters)
    slot.open()
    assert metrics_of_rows(counters)["graphbox_rows_sequence"] == [1]
    update_rows(workspace, "rows", IDS, tagged(2), table="user")
    wanted[0], closes[0] = 2, True
    slot.follow_rows()
    assert slot.state() == ("LOADING", "")
    assert metrics_of_rows(counters)["graphbox_rows_sequence"] == [0]
    closes[0] = False
    slot.open()
    assert metrics_of_rows(counters)["graphbox_rows_sequence"] == [2]
    slot.close()


def test_signature_that_is_asked_for_while_calls_get_other_rows(workspace: Workspace) -> None:
    """The event loop adds endpoints while the thread of row updates goes through them."""
    update_rows(workspace, "rows", IDS, tagged(1), table="user")
    repository, executor = repository_of(workspace), Executor(max_pending=4)
    update_rows(workspace, "rows", IDS, tagged(2), table="user")
    with repository.use("rows") as served:
        suffixes = [WHOLE, *(each for each in served.model.signatures if each != WHOLE)]
        assert len(suffixes) > 2
        endpoints = [served.endpoint(suffix, executor, Settings()) for suffix in suffixes[:2]]
        path = workspace.model("rows").path
        rows = LiveRows("rows", 1, path, Counters.of_one_process(), lambda: 2, 1 << 20).advance(served.rows)
        updated = served.with_rows(rows)
    used = []
    for endpoint in endpoints:

        def use(signature: Any, batcher: Any = endpoint.batcher, replace: Any = endpoint.batcher.use) -> None:
            updated.endpoint(suffixes[2], executor, Settings())
            used.append(batcher)
            replace(signature)

        endpoint.batcher.use = use  # type: ignore[method-assign]
    updated.take_calls()
    assert used == [endpoint.batcher for endpoint in endpoints]
    executor.close()
    repository.close()


def test_late_worker_serves_what_fits(workspace: Workspace) -> None:
    """An update that repeats the rows of all before it is too large; the last one before it is not."""
    updater = RowUpdater(workspace, "rows", longest_chain=2)
    updater.write({"user": (IDS[:1], tagged(1, 1))})
    updater.write({"user": (IDS[:1], tagged(2, 1))})
    updater.write({"user": (IDS, tagged(3))})
    repository = Repository(workspace, max_updated_bytes=4 * DIM * 2)
    repository.preload()
    assert row(repository) == 2
    state = repository.slot("rows").rows_state
    assert (state.sequence, state.wanted) == (2, 3)
    assert "at most 72 bytes" in state.failure


def test_rewritten_version_has_no_updates(workspace: Workspace) -> None:
    update_rows(workspace, "rows", IDS, tagged(1), table="user")
    repository = repository_of(workspace)
    path = workspace.model("rows").path
    shutil.rmtree(path)
    write_lookup(path, "refuse", name="rows", version=1)
    workspace.add_model("rows", 1, kind="embedding", task=None, precision="float32", metrics={})
    repository.poll()
    follow(repository)
    assert row(repository) != 1
    assert workspace.serving_records().row_sequence("rows", 1) == 0


def test_folder_serves_its_newest_update(workspace: Workspace, tmp_path: Path) -> None:
    update_rows(workspace, "rows", IDS, tagged(1), table="user")
    folder = tmp_path / "models"
    shutil.copytree(workspace.root / "models", folder)
    repository = Repository(None, [folder])
    repository.preload()
    assert row(repository) == 1
    update_rows(workspace, "rows", IDS, tagged(2), table="user")
    updates = workspace.model("rows").path / UPDATES_FOLDER
    shutil.copytree(updates / "2", folder / "rows" / "1" / UPDATES_FOLDER / ".2.new")
    repository.follow_row_updates()
    assert row(repository) == 1
    (folder / "rows" / "1" / UPDATES_FOLDER / ".2.new").rename(folder / "rows" / "1" / UPDATES_FOLDER / "2")
    repository.follow_row_updates()
    assert row(repository) == 2


def test_encoder_reads_changed_rows_of_neighbours(workspace: Workspace) -> None:
    add_model(workspace, "companion", write_encoder)
    repository = repository_of(workspace)
    with repository.use("companion") as served:
        before = served.encoder.encode(["nginx", "zsh"])
    with repository.use("companion") as served:
        row = served.artifact.table("package").rows([1])
    changed = row + np.float32(3)
    update_rows(workspace, "companion", ["nginx-common"], changed, table="package")
    follow(repository)
    with repository.use("companion") as served:
        after = served.encoder.encode(["nginx", "zsh"])
        assert served.rows_sequence == 1
    # nginx has two neighbours, nginx-common among them; the mean of theirs changes by half.
    np.testing.assert_allclose(after[0] - before[0], 1.5, rtol=1e-5)
    np.testing.assert_array_equal(after[1], before[1])


def test_a_call_sees_one_update(workspace: Workspace) -> None:
    """Rows of all ids have the tag of one update, the one of the answer, and never an older one."""
    repository = repository_of(workspace)
    updater = RowUpdater(workspace, "rows")
    updater.write({"user": (IDS, tagged(1)), "item": (ITEMS, tagged(1, len(ITEMS)))})
    follow(repository)
    stop, errors, seen = threading.Event(), list[str](), set[float]()

    def ask() -> None:
        last = 0.0
        while not stop.is_set():
            with repository.use("rows") as served:
                rows = served.encoder.encode(IDS)[:, 0]
                items = served.encoder.encode(ITEMS, "item")[:, 0]
                _, scores = served.encoder.neighbors(IDS[:1], 2)
            tags = {*rows.tolist(), *items.tolist()}
            if len(tags) > 1 or min(tags) < last or min(tags) != served.rows_sequence:
                errors.append(f"{tags} after {last}, sequence {served.rows_sequence}")
            last = min(tags)
            if (scores != DIM * last * last).any():
                errors.append(f"scores {scores} with rows of {last}")
            seen.add(last)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for tag in range(2, 42):
        updater.write({"user": (IDS, tagged(tag)), "item": (ITEMS, tagged(tag, len(ITEMS)))})
        follow(repository)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not errors, errors[:3]
    assert len(seen) > 5
