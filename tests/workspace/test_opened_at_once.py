"""Several processes that open a workspace that is not there yet, at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from graphbox.errors import FormatError
from graphbox.workspace import Workspace
from graphbox.workspace.database import SCHEMA_REVISION, VERSION_TABLE, Database, sqlite_url
from graphbox.workspace.tables import metadata

PROCESSES = 4
TIMEOUT_S = 200
OPEN = """
import sys
from graphbox.workspace.database import Database
print("ready", flush=True)
sys.stdin.readline()
Database(sys.argv[1], "graphbox.db")
"""


def test_files_of_two_versions_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbox.workspace.database.SCHEMA_REVISION", "9999")
    with pytest.raises(FormatError, match="up to schema 9999, received them up to"):
        Database(sqlite_url(tmp_path / "graphbox.db"), "graphbox.db")
    monkeypatch.undo()
    Database(sqlite_url(tmp_path / "graphbox.db"), "graphbox.db")
    check_schema(tmp_path / "graphbox.db")


def check_schema(path: Path) -> None:
    engine = create_engine(sqlite_url(path))
    with engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) == {*metadata.tables, VERSION_TABLE}
        revisions = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}"))  # noqa: S608 (a constant)
        assert revisions.scalars().all() == [SCHEMA_REVISION]
    engine.dispose()


def test_one_new_database_in_several_processes(tmp_path: Path) -> None:
    path = tmp_path / "graphbox.db"
    command = [sys.executable, "-c", OPEN, sqlite_url(path)]
    pipe = subprocess.PIPE
    opening = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(PROCESSES)
    ]
    for process in opening:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in opening:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in opening:
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
    check_schema(path)


def test_new_databases_in_several_threads(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number // 2}.db" for number in range(8)]
    together = threading.Barrier(len(paths))
    problems: list[Exception] = []

    def open_one(path: Path) -> None:
        together.wait(TIMEOUT_S)
        try:
            Database(sqlite_url(path), path.name)
        except Exception as error:  # noqa: BLE001 (whatever a thread met is shown by the test)
            problems.append(error)

    threads = [threading.Thread(target=open_one, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert problems == []
    for path in set(paths):
        check_schema(path)


@pytest.mark.slow
def test_imports_into_one_new_workspace(tmp_path: Path) -> None:
    edges = tmp_path / "edges.tsv"
    edges.write_text("source\ttarget\n" + "".join(f"{node}\t{node + 1}\n" for node in range(50)))
    root = tmp_path / "workspace"
    importing = []
    for number in range(PROCESSES):
        arguments = ["-m", "graphbox", "-C", str(root), "import", str(edges), "--type", "page,links,page"]
        arguments += ["--name", f"g{number}", "--json", "-q"]
        command = [sys.executable, *arguments]
        pipe = subprocess.PIPE
        importing.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
    for process in importing:
        output, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
        assert json.loads(output)["report"]
    assert [graph.name for graph in Workspace(root).graphs()] == [f"g{n}" for n in range(PROCESSES)]
