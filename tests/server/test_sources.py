"""Folders of models: layout, mistakes, and versions that come and go; no server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from graphbox.errors import FormatError, NotFoundError, TimeLimitError, UsageError
from graphbox.server.readiness import Readiness
from graphbox.server.repository import Repository
from graphbox.server.sources import Listing, WatchedSource
from graphbox.workspace import Workspace
from graphbox.workspace.forgettings import exchange_folders
from tests.server.sample_models import add_model, write_encoder, write_numbers, write_vectors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models, one in two versions, beside things that are not models."""
    root = tmp_path / "models"
    for version in (9, 10):
        write_encoder(root / "companion" / str(version), version=version)
    write_vectors(root / "section" / "1")
    (root / "companion" / "11").mkdir()  # still being written
    (root / "companion" / "notes").mkdir()
    (root / ".hidden" / "1").mkdir(parents=True)
    (root / "README").write_text("models")
    return root


def current(repository: Repository) -> dict[str, int]:
    return {model.name: model.version for model in repository.known() if model.current}


def test_highest_version_of_each_model(folder: Path) -> None:
    repository = Repository(None, [folder])
    repository.preload()
    assert current(repository) == {"companion": 10, "section": 1}
    assert [(model.name, model.version) for model in repository.known()] == [
        ("companion", 9),
        ("companion", 10),
        ("section", 1),
    ]
    assert repository.readiness() == Readiness(True, ["companion", "section"], [], {})


def test_folder_of_one_version(folder: Path) -> None:
    repository = Repository(None, [folder / "companion" / "9", folder / "section" / "1"])
    assert current(repository) == {"companion": 9, "section": 1}


def test_versions_that_come_and_go(folder: Path, tmp_path: Path) -> None:
    repository = Repository(None, [folder])
    repository.preload()
    write_encoder(tmp_path / "new" / "11", version=11)
    (folder / "companion" / "11").rmdir()
    shutil.copytree(tmp_path / "new" / "11", folder / "companion" / "11", ignore=lambda *_: ["manifest.json"])
    repository.poll()
    assert current(repository)["companion"] == 10, "it has no manifest yet"
    shutil.copy(tmp_path / "new" / "11" / "manifest.json", folder / "companion" / "11")
    repository.poll()
    assert current(repository)["companion"] == 11
    shutil.rmtree(folder / "companion" / "11")
    shutil.rmtree(folder / "section")
    write_numbers(folder / "numbers" / "1")
    repository.poll()
    assert current(repository) == {"companion": 10, "numbers": 1}
    assert repository.readiness().ready


def test_version_that_is_rewritten_in_a_folder(folder: Path, tmp_path: Path) -> None:
    for served in (folder, folder / "section" / "1"):
        repository = Repository(None, [served])
        repository.preload()
        section = repository.slot("section")
        repository.poll()
        assert repository.slot("section") is section, "nothing has changed"
        write_vectors(tmp_path / served.name / "1")
        exchange_folders(tmp_path / served.name / "1", folder / "section" / "1")
        repository.poll()
        assert repository.slot("section") is not section
        with repository.use("section"):
            assert repository.readiness().ready


@pytest.mark.parametrize(("name", "version"), [("other", 1), ("misplaced", 2)])
def test_manifest_that_does_not_match_its_folders(folder: Path, name: str, version: int) -> None:
    write_encoder(folder / "misplaced" / "1", name=name, version=version)
    with pytest.raises(
        FormatError, match=f"expected the manifest of misplaced/1.*{name}/{version}"
    ) as caught:
        Repository(None, [folder])
    assert caught.value.hint == f"move the folder to {name}/{version}"


def test_misplaced_manifest_later_is_logged_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    repository = Repository(None, [folder])
    repository.preload()
    write_encoder(folder / "section" / "2", name="other", version=2)
    for _ in range(3):
        repository.poll()
    assert current(repository) == {"companion": 10, "section": 1}
    assert repository.readiness().ready
    assert caplog.text.count("model section version 2 is not served") == 1
    assert len(caplog.records) == 1


def test_unreadable_manifest(folder: Path) -> None:
    (folder / "section" / "1" / "manifest.json").write_text("{")
    with pytest.raises(FormatError, match="expected JSON"):
        Repository(None, [folder])


def test_damaged_version_is_listed(folder: Path) -> None:
    rows = folder / "section" / "1" / "tables" / "tag" / "rows.npy"
    rows.write_bytes(rows.read_bytes()[:-1])
    repository = Repository(None, [folder])
    repository.preload()
    assert repository.readiness().available == ["companion"]
    assert list(repository.readiness().failed) == ["section"]
    damaged = next(model for model in repository.known() if model.name == "section")
    assert (damaged.state, damaged.served) == ("UNAVAILABLE", False)
    assert damaged.manifest().kind == "embedding"


def test_folder_that_is_gone_for_a_moment(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    repository = Repository(None, [folder])
    repository.preload()
    folder.rename(folder.with_name("aside"))
    for _ in range(3):
        repository.poll()
    assert repository.readiness() == Readiness(True, ["companion", "section"], [], {})
    assert caplog.text.count("cannot be listed") == 1
    folder.with_name("aside").rename(folder)
    repository.poll()
    assert caplog.text.count("can be listed again") == 1


class LockedSource:
    """A source that cannot be polled while it is locked, with another message each time."""

    label = "a database"

    def __init__(self) -> None:
        self.polls = 0
        self.is_locked = False

    def differs(self, listing: Listing) -> bool:
        self.polls += 1
        if self.is_locked:
            raise TimeLimitError(f"waited {self.polls} s")
        return bool(listing.versions)

    def listing(self) -> Listing:
        return Listing((), {})


def test_same_error_is_logged_once_whatever_its_message(caplog: pytest.LogCaptureFixture) -> None:
    source = LockedSource()
    watched = WatchedSource(source)
    for source.is_locked in (True, True, True, False, True):
        assert not watched.poll()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "models of a database cannot be listed, retrying",
        "models of a database can be listed again",
        "models of a database cannot be listed, retrying",
    ]


def test_mistaken_folders(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="found none"):
        Repository(None, [tmp_path / "absent"])
    with pytest.raises(NotFoundError, match="found none"):
        Repository(None, [folder / "README"])
    with pytest.raises(UsageError, match="received the folder of one model") as caught:
        Repository(None, [folder / "companion"])
    version = folder / "companion" / "10"
    assert caught.value.hint == f"pass {folder} to serve its models, or {version} to serve one version"


def test_same_name_twice(folder: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    with pytest.raises(UsageError) as caught:
        Repository(workspace, [folder])
    assert caught.value.message == (
        f"the model `companion` is in the workspace {workspace.root} and in the folder {folder}"
    )
    assert caught.value.hint == "rename one of them, or serve only one of the two"


def test_same_name_later_changes_nothing(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = Workspace(tmp_path / "work")
    repository = Repository(workspace, [folder])
    repository.preload()
    add_model(workspace, "companion", write_encoder)
    for _ in range(3):
        repository.poll()
    assert current(repository) == {"companion": 10, "section": 1}
    assert repository.versions("companion") == [9, 10]
    assert caplog.text.count("another source has that name") == 1
    shutil.rmtree(folder / "companion")
    repository.poll()
    assert current(repository) == {"companion": 1, "section": 1}
    assert repository.readiness().ready
