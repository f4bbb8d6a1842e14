"""Which versions are open, and when: real model folders, no server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import BackendMissingError, FormatError, InvalidRequestError, NotFoundError, UsageError
from graphbox.server.repository import Repository, Slot
from graphbox.workspace import Workspace
from tests.server.sample_models import PACKAGES, add_model, expected_embeddings, write_encoder, write_vectors


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "section", write_vectors)
    return workspace


def encode(repository: Repository, version: int | None = None) -> np.ndarray:
    with repository.use("companion", version) as served:
        return served.encoder.encode(PACKAGES)


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


def test_load_follows_the_workspace(workspace: Workspace) -> None:
    repository = Repository(workspace)
    old = encode(repository)
    add_model(workspace, "companion", write_encoder, scale=-1.0)
    np.testing.assert_array_equal(encode(repository), old)
    repository.load("companion")
    np.testing.assert_array_equal(encode(repository), -old)
    np.testing.assert_array_equal(encode(repository, 1), old)
    workspace.promote_model("companion", 1)
    repository.reload()
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
    rows = workspace.model("companion", version).path / "tables" / "package" / "rows.npy"
    rows.write_bytes(rows.read_bytes()[:-1])
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
    rows = workspace.model("companion").path / "tables" / "package" / "rows.npy"
    content = rows.read_bytes()
    rows.write_bytes(content[:-1])
    repository = Repository(workspace)
    with pytest.raises(FormatError):
        encode(repository)
    rows.write_bytes(content)
    with pytest.raises(FormatError):
        encode(repository)
    repository.load("companion")
    np.testing.assert_allclose(encode(repository), expected_embeddings(PACKAGES), rtol=1e-5)


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


def test_explicit_folders_come_first(workspace: Workspace, tmp_path: Path) -> None:
    write_encoder(tmp_path / "other", name="companion", version=7, scale=-1.0)
    repository = Repository(workspace, [tmp_path / "other"])
    np.testing.assert_allclose(encode(repository), -expected_embeddings(PACKAGES), rtol=1e-5)
    np.testing.assert_allclose(encode(repository, 1), expected_embeddings(PACKAGES), rtol=1e-5)
    with pytest.raises(NotFoundError):
        Repository(None, [tmp_path / "absent"])


def test_wrong_target_is_said_once_used(workspace: Workspace) -> None:
    repository = Repository(workspace, target="onnxruntime_cpo")
    with pytest.raises(NotFoundError) as caught:
        encode(repository)
    assert "onnxruntime_cpu" in str(caught.value)


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


def test_open_and_close_many_times(workspace: Workspace) -> None:
    """A slot that is opened, used and closed by several threads never gives a closed model."""
    record = workspace.model("companion")
    slot = Slot("companion", 1, record.path, "encoder", "auto", 1)
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
