"""Ids in texts are replaced where they stand for a node, and left where they do not."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from graphbox.artifact.row_updates import UPDATES_FOLDER
from graphbox.deploy.row_updates import list_row_updates, update_rows
from graphbox.errors import ConflictError
from graphbox.workspace import Workspace
from graphbox.workspace.audit import AuditRequest
from graphbox.workspace.forgettings import Forgetting, exchange_folders
from graphbox.workspace.redaction import Redactor
from tests.server.sample_models import DIM, add_model, write_vectors


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("received `u1` twice", "received `(forgotten)` twice"),
        ("received 'u1', \"u1\"", "received '(forgotten)', \"(forgotten)\""),
        ("u1 is too short to stand alone, and u11 is another", None),
        (
            "saw customer-1, then customer-1. Not customer-12",
            "saw (forgotten), then (forgotten). Not customer-12",
        ),
        ("took 123456 bytes, received `123456`", "took 123456 bytes, received `(forgotten)`"),
        (
            '{"message": "expected `u2`, received `u1`"}',
            '{"message": "expected `u2`, received `(forgotten)`"}',
        ),
        ("received `zoë b`", "received `(forgotten)`"),
        (json.dumps({"id": "zoë b"}), '{"id": "(forgotten)"}'),
        ("nothing here", None),
    ],
)
def test_texts(given: str, expected: str | None) -> None:
    redacted, count = Redactor(["u1", "customer-1", "123456", "zoë b"]).redact(given)
    assert redacted == (given if expected is None else expected)
    assert count == redacted.count("(forgotten)")


def test_files(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("received `u1`\nreceived `u2`\n")
    (tmp_path / "metrics.jsonl").write_text('{"loss": 1}\n')
    (tmp_path / "rows.npy").write_bytes(b"`u1`")
    (tmp_path / "worker.log").write_bytes(b"\xff received `u1`\n")
    redactor = Redactor(["u1"])
    assert redactor.count_in_files(tmp_path) == 2
    assert redactor.redact_files(tmp_path) == 2
    assert (tmp_path / "worker.log").read_bytes() == b"\xff received `(forgotten)`\n", "no UTF-8"
    assert (tmp_path / "log.txt").read_text() == "received `(forgotten)`\nreceived `u2`\n"
    assert (tmp_path / "rows.npy").read_bytes() == b"`u1`", "no text"


def test_records_and_what_the_database_has_deleted(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        for name in ("kept", "gone"):
            with workspace.start_run(name, "version: 1", name, ["train"]) as writer:
                writer.report({"example": "person-0001"})
        workspace.remove_run("gone-1")
        assert workspace.redact_records(Redactor(["person-0001"])) == 1
        assert workspace.run("kept-1").report == {"example": "(forgotten)"}
    for file in tmp_path.glob("graphbox.db*"):
        assert b"person-0001" not in file.read_bytes()
    with create_engine(f"sqlite:///{tmp_path / 'graphbox.db'}").connect() as connection:
        assert connection.execute(text("pragma integrity_check")).scalar() == "ok"


def test_audit_log(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        detail = {"inputs": [{"name": "id", "data": ["person-0001", "person-0002"]}], "percent": 10}
        request = AuditRequest("boss", "::1", "update rows", "shop", 1, "request-1", detail)
        refused = workspace.begin_audit(request)
        workspace.end_audit(refused, "refused", "expected ids of nodes, received `person-0001`")
        workspace.begin_audit(AuditRequest("boss", "::1", "promote", "shop", 1, "request-2"))
        assert workspace.redact_records(Redactor(["person-0001"])) == 2
        begun, ended = workspace.audit()
        assert (begun.message, begun.request.detail) == (None, {})
        assert ended.message == "expected ids of nodes, received `(forgotten)`"
        assert ended.request.detail["inputs"][0]["data"] == ["(forgotten)", "person-0002"]
        assert ended.request.detail["percent"] == 10
    for file in tmp_path.glob("graphbox.db*"):
        assert b"person-0001" not in file.read_bytes()


def replace_killed(root: Path, rewritten: Path) -> None:
    """Replace a version, and be killed once its folder is exchanged and before the old one is removed."""

    def kill(event: str, _: object) -> None:
        if event == "shutil.rmtree":
            os.kill(os.getpid(), signal.SIGKILL)

    with Workspace(root, create=False) as workspace:
        record = workspace.model("section")
        sys.addaudithook(kill)
        workspace.replace_version(record, rewritten)


def test_a_version_whose_replacement_was_killed_takes_row_updates(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        add_model(workspace, "section", write_vectors)
        rows = np.ones((1, DIM), np.float32)
        update_rows(workspace, "section", ["nginx"], rows, table="package")
        path = workspace.model("section").path
        rewritten = path.with_name("rewritten")
        shutil.copytree(path, rewritten, ignore=shutil.ignore_patterns(UPDATES_FOLDER))
        process = multiprocessing.get_context("fork").Process(
            target=replace_killed, args=(tmp_path, rewritten)
        )
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        assert not (path / UPDATES_FOLDER).exists(), "the folders are exchanged"
        assert (rewritten / UPDATES_FOLDER).exists()
        assert workspace.serving_records().row_sequence("section", 1) == 0
        update_rows(workspace, "section", ["nginx"], rows, table="package")
        found = list_row_updates(workspace, "section")
        assert (found.active, [each.sequence for each in found.updates]) == (1, [1])


def test_journals(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        assert workspace.unfinished_forgettings() == []
        begun = workspace.begin_forgetting(Forgetting("shop", {"user": ["u1"]}, {"shop-1": {"user": [0]}}))
        assert workspace.unfinished_forgettings() == [begun]
        assert workspace.has_unfinished_forgettings()
        with workspace.forgetting_lock():
            assert not workspace.has_unfinished_forgettings(), "it is in progress"
        workspace.end_forgetting(begun)
        assert workspace.unfinished_forgettings() == []
        assert not workspace.has_unfinished_forgettings()


def test_nothing_is_made_of_models_meanwhile(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        made = (workspace.without_forgetting(), workspace.without_forgetting())
        with made[0], made[1], pytest.raises(ConflictError, match="forgetting of nodes is in use"):
            workspace.forgetting_lock(0.1).__enter__()
        with workspace.forgetting_lock(), pytest.raises(ConflictError, match=r"waited 0\.1 s"):
            workspace.without_forgetting(0.1).__enter__()
        with workspace.without_forgetting():
            pass


def test_exchanged_folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchange_folders(tmp_path / "a", tmp_path / "b")
    assert [(tmp_path / name / other).exists() for name, other in (("a", "b"), ("b", "a"))] == [True, True]
