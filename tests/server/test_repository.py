"""Open versions, the version that answers for a name, and readiness: real model folders, no server."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from graphbox.artifact import Artifact
from graphbox.artifact.forgetting import nodes_held, write_without
from graphbox.deploy import DeployedModel, open_model
from graphbox.errors import BackendMissingError, FormatError, InvalidRequestError, NotFoundError, UsageError
from graphbox.server.counters import Counters
from graphbox.server.readiness import Readiness
from graphbox.server.repository import Repository
from graphbox.server.slot import Slot
from graphbox.server.sources import VersionFolder
from graphbox.workspace import Workspace
from tests.server.sample_models import PACKAGES, add_model, expected_embeddings, write_encoder, write_vectors
from tests.server.server_process import wait_until


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "section", write_vectors)
    return workspace


def encode(repository: Repository, version: int | None = None) -> np.ndarray:
    with repository.use("companion", version) as served:
        return served.encoder.encode(PACKAGES)


def damage(workspace: Workspace, version: int) -> Callable[[], object]:
    """Truncate a file of the model `companion`; return what restores it."""
    rows = workspace.model("companion", version).path / "tables" / "package" / "rows.npy"
    content = rows.read_bytes()
    rows.write_bytes(content[:-1])
    return lambda: rows.write_bytes(content)


def test_opened_when_first_used(workspace: Workspace) -> None:
    repository = Repository(workspace)
    assert {model.name: model.state for model in repository.known()} == {
        "companion": "LOADING",
        "section": "LOADING",
    }
    np.testing.assert_allclose(encode(repository), expected_embeddings(PACKAGES), rtol=1e-5)
    assert {model.name: model.state for model in repository.known()} == {
        "companion": "READY",
        "section": "LOADING",
    }


def test_opened_once_by_many_threads(workspace: Workspace) -> None:
    repository = Repository(workspace)
    barrier = threading.Barrier(8)

    def use(_: int) -> int:
        barrier.wait(10)
        with repository.use("companion") as served:
            return id(served)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(use, range(8)))) == 1


@pytest.mark.parametrize("follow", ["load", "poll", "reload"])
def test_promoted_versions_are_served(workspace: Workspace, follow: str) -> None:
    repository = Repository(workspace)

    def act() -> None:
        repository.load("companion") if follow == "load" else getattr(repository, follow)()

    old = encode(repository)
    add_model(workspace, "companion", write_encoder, scale=-1.0)
    np.testing.assert_array_equal(encode(repository), old)
    act()
    np.testing.assert_array_equal(encode(repository), -old)
    np.testing.assert_array_equal(encode(repository, 1), old)
    workspace.promote_model("companion", 1)
    act()
    np.testing.assert_array_equal(encode(repository), old)


def test_users_keep_a_replaced_version_open(workspace: Workspace) -> None:
    repository = Repository(workspace)
    with repository.use("companion") as served:
        add_model(workspace, "companion", write_encoder, scale=-1.0)
        repository.load("companion")
        np.testing.assert_allclose(served.encoder.encode(PACKAGES), expected_embeddings(PACKAGES), rtol=1e-5)
    with pytest.raises(UsageError, match="closed"):
        served.encoder.encode(PACKAGES)


def test_failed_load_changes_nothing(workspace: Workspace) -> None:
    repository = Repository(workspace)
    old = encode(repository)
    version = add_model(workspace, "companion", write_encoder)
    damage(workspace, version)
    with pytest.raises(FormatError, match="bytes"):
        repository.load("companion")
    np.testing.assert_array_equal(encode(repository), old)
    for _ in range(2):
        with pytest.raises(FormatError, match="bytes"):
            encode(repository, version)
    states = {(model.name, model.version): (model.state, model.current) for model in repository.known()}
    assert states["companion", 1] == ("READY", True)
    assert states["companion", 2] == ("UNAVAILABLE", False)
    with repository.use("section"):
        pass


def test_failure_is_not_tried_again_by_requests(workspace: Workspace) -> None:
    restore = damage(workspace, 1)
    repository = Repository(workspace)
    with pytest.raises(FormatError):
        encode(repository)
    restore()
    with pytest.raises(FormatError):
        encode(repository)
    repository.load("companion")
    np.testing.assert_allclose(encode(repository), expected_embeddings(PACKAGES), rtol=1e-5)


def test_memory_of_a_closed_model_is_given_back_when_its_last_caller_returns(workspace: Workspace) -> None:
    """The caller that closes it still refers to it when the thread that frees it begins."""
    repository = Repository(workspace)
    slot = repository.slot("companion")
    served = slot.enter()
    model = weakref.ref(served.original)
    collections: list[str] = []
    gc.disable()  # only the thread collects
    gc.callbacks.append(lambda phase, _: collections.append(phase))
    try:
        slot.close()
        slot.leave()
        wait_until(lambda: collections.count("stop") >= 2, what="the thread to have collected once and again")
        assert model() is not None
        del served
        wait_until(lambda: model() is None, what="the model to be freed")
    finally:
        gc.callbacks.pop()
        gc.enable()


def test_unload(workspace: Workspace) -> None:
    repository = Repository(workspace)
    with repository.use("companion") as served:
        repository.unload("companion")
        served.encoder.encode(["zsh"])
        with pytest.raises(BackendMissingError, match="unloaded"), repository.use("companion"):
            pass
    with pytest.raises(UsageError, match="closed"):
        served.encoder.encode(["zsh"])
    repository.reload()
    with pytest.raises(BackendMissingError, match="unloaded"):
        encode(repository)
    repository.load("companion")
    encode(repository)


def test_only_a_few_other_versions_stay_open(workspace: Workspace) -> None:
    for _ in range(4):
        add_model(workspace, "companion", write_encoder, activate=False)
    repository = Repository(workspace)
    for version in (1, 2, 3, 4, 5, 4):
        encode(repository, version)
    states = {model.version: model.state for model in repository.known() if model.name == "companion"}
    assert states == {1: "READY", 2: "LOADING", 3: "LOADING", 4: "READY", 5: "READY"}


def test_removed_versions_are_forgotten(workspace: Workspace) -> None:
    repository = Repository(workspace)
    encode(repository)
    workspace.remove_model("companion")
    assert [model.name for model in repository.known()] == ["section"]
    with pytest.raises(NotFoundError, match="no model `companion`"):
        encode(repository)


def test_preload_opens_every_model(workspace: Workspace) -> None:
    repository = Repository(workspace)
    assert repository.readiness() == Readiness(False, [], ["companion", "section"], {})
    repository.preload()
    assert {model.state for model in repository.known()} == {"READY"}
    assert repository.readiness() == Readiness(True, ["companion", "section"], [], {})


def test_model_that_fails_at_start_is_not_ready_until_mended(workspace: Workspace) -> None:
    version = add_model(workspace, "companion", write_encoder)
    damage(workspace, version)
    repository = Repository(workspace)
    repository.preload()
    readiness = repository.readiness()
    assert (readiness.ready, readiness.available, readiness.loading) == (False, ["section"], [])
    assert list(readiness.failed) == ["companion"]
    assert readiness.failed["companion"].startswith("version 2: expected")
    assert str(workspace.root) not in readiness.failed["companion"]
    repository.poll()
    assert not repository.readiness().ready
    workspace.promote_model("companion", 1)
    repository.poll()
    assert repository.readiness() == Readiness(True, ["companion", "section"], [], {})


@pytest.mark.parametrize("mend", ["remove the version", "remove the model", "load", "reload", "unload"])
def test_readiness_recovers(workspace: Workspace, mend: str) -> None:
    version = add_model(workspace, "companion", write_encoder)
    restore = damage(workspace, version)
    repository = Repository(workspace)
    repository.preload()
    assert not repository.readiness().ready
    if mend == "remove the version":
        workspace.remove_model("companion", version)
        repository.poll()
    elif mend == "remove the model":
        workspace.remove_model("companion")
        repository.poll()
    elif mend == "unload":
        repository.unload("companion")
    else:
        restore()
        repository.poll()
        assert not repository.readiness().ready, "polls do not retry"
        repository.load("companion") if mend == "load" else repository.reload()
    assert repository.readiness().ready


def test_damaged_newer_version_is_logged_once_and_the_old_one_answers(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    repository = Repository(workspace)
    repository.preload()
    old = encode(repository)
    damage(workspace, add_model(workspace, "companion", write_encoder, scale=-1.0))
    for _ in range(3):
        repository.poll()
    np.testing.assert_array_equal(encode(repository), old)
    assert repository.readiness() == Readiness(True, ["companion", "section"], [], {})
    states = {(model.name, model.version): (model.state, model.current) for model in repository.known()}
    assert states["companion", 1] == ("READY", True)
    assert states["companion", 2] == ("UNAVAILABLE", False)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "model companion version 2 cannot be opened",
        "model companion",
    ]
    assert "version 1 keeps answering" in caplog.text


def test_repaired_version_is_served_when_promoted_again(workspace: Workspace) -> None:
    repository = Repository(workspace)
    repository.preload()
    old = encode(repository)
    version = add_model(workspace, "companion", write_encoder, scale=-1.0)
    restore = damage(workspace, version)
    repository.poll()
    workspace.promote_model("companion", 1)
    repository.poll()
    restore()
    workspace.promote_model("companion", version)
    repository.poll()
    np.testing.assert_array_equal(encode(repository), -old)


def test_new_and_removed_models_are_followed(workspace: Workspace) -> None:
    repository = Repository(workspace)
    repository.preload()
    add_model(workspace, "further", write_encoder)
    workspace.remove_model("section")
    repository.poll()
    assert repository.readiness() == Readiness(True, ["companion", "further"], [], {})


def test_unloaded_model_stays_unloaded(workspace: Workspace) -> None:
    repository = Repository(workspace)
    repository.preload()
    repository.unload("companion")
    add_model(workspace, "companion", write_encoder)
    repository.poll()
    assert repository.readiness() == Readiness(True, ["section"], [], {})
    with pytest.raises(BackendMissingError, match="unloaded"):
        encode(repository)


def test_defect_while_opening_is_a_failure_of_that_model_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, *arguments: object) -> DeployedModel:
        if "companion" in str(path):
            raise RuntimeError(f"cannot run {path}/model.onnx")
        return open_model(path)

    monkeypatch.setattr("graphbox.server.slot.open_model", fail)
    repository = Repository(workspace)
    repository.preload()
    assert repository.readiness() == Readiness(
        False,
        ["section"],
        [],
        {
            "companion": "version 1: opening the model failed with RuntimeError:"
            " cannot run companion/1/model.onnx"
        },
    )


@pytest.mark.parametrize("meanwhile", ["promote", "remove", "unload"])
def test_version_that_is_superseded_while_it_is_opened(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    repository = Repository(workspace)
    repository.preload()
    old = encode(repository)
    version = add_model(workspace, "companion", write_encoder, scale=-1.0)
    opened: list[DeployedModel] = []

    def open_slowly(path: Path, *arguments: object) -> DeployedModel:
        opened.append(open_model(path))
        opened[-1].warm_up()  # reads all files
        if meanwhile == "promote":
            workspace.promote_model("companion", 1)
        elif meanwhile == "remove":
            workspace.remove_model("companion", version)
        else:
            repository.unload("companion")
        repository.known()
        return opened[-1]

    monkeypatch.setattr("graphbox.server.slot.open_model", open_slowly)
    repository.poll()
    assert [model.artifact.manifest.version for model in opened] == [version]
    with pytest.raises(UsageError, match="closed"):
        opened[0].warm_up()
    if meanwhile == "unload":
        assert repository.readiness().available == ["section"]
    else:
        np.testing.assert_array_equal(encode(repository), old)


def test_lost_database_is_logged_once_and_nothing_stops(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    repository = Repository(workspace)
    repository.preload()
    old = encode(repository)
    database = workspace.root / "graphbox.db"
    database.rename(workspace.root / "aside")
    for _ in range(3):
        repository.poll()
    assert not database.exists(), "no empty database takes its place"
    np.testing.assert_array_equal(encode(repository), old)
    assert repository.readiness().ready
    assert caplog.text.count("cannot be listed") == 1
    (workspace.root / "aside").rename(database)
    add_model(workspace, "companion", write_encoder, scale=-1.0)
    repository.poll()
    np.testing.assert_array_equal(encode(repository), -old)
    assert caplog.text.count("can be listed again") == 1


def test_wrong_target_is_said_once_used(workspace: Workspace) -> None:
    repository = Repository(workspace, target="onnxruntime_cpo")
    with pytest.raises(NotFoundError) as caught:
        encode(repository)
    assert "onnxruntime" in str(caught.value)


def test_ids(workspace: Workspace) -> None:
    repository = Repository(workspace)
    with repository.use("section") as served:
        assert served.find("web", None) == ("tag", 1)
        assert served.find("python", "tag") == ("tag", 0)
        with pytest.raises(InvalidRequestError, match="package, tag"):
            served.find("python", None)
        with pytest.raises(NotFoundError, match="absent"):
            served.find("absent", None)
        assert served.ids_with_prefix("p", 10, None) == [("package", "python"), ("tag", "python")]


def test_version_that_is_rewritten_is_opened_anew(workspace: Workspace) -> None:
    """Forgotten nodes are not answered any more, by the active version and by older ones."""
    add_model(workspace, "companion", write_encoder, scale=2.0)
    repository = Repository(workspace)
    repository.preload()
    for number in (1, 2):
        with repository.use("companion", number) as served:
            served.encoder.encode(["zsh"])
    gone = {"package": pa.array(["zsh"], pa.large_string())}
    with repository.use("companion") as served:
        for record in workspace.models("companion"):
            artifact = Artifact.open(record.path)
            beside = record.path.with_name("rewritten")
            write_without(artifact, nodes_held(artifact, gone), beside)
            workspace.replace_version(record, beside)
        repository.poll()
        served.encoder.encode(["zsh"])  # a request that had begun before
    for version in (None, 1, 2):
        with repository.use("companion", version) as served, pytest.raises(NotFoundError, match="zsh"):
            served.encoder.encode(["zsh"])
    assert repository.readiness().ready


def test_open_and_close_many_times(workspace: Workspace) -> None:
    """A slot that is opened, used and closed by several threads never gives a closed model."""
    record = workspace.model("companion")
    slot = Slot(VersionFolder("companion", 1, record.path, "encoder"), "auto", 1, Counters.of_one_process())
    stop = threading.Event()

    def use() -> int:
        count = 0
        while not stop.is_set():
            served = slot.enter()
            try:
                served.encoder.encode(["zsh"])
                count += 1
            finally:
                slot.leave()
        return count

    with ThreadPoolExecutor(3) as pool:
        users = [pool.submit(use) for _ in range(2)]
        for _ in range(20):
            slot.enter()
            slot.close()
            slot.leave()
        stop.set()
        assert all(user.result(30) > 0 for user in users)
