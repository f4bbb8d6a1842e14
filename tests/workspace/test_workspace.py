"""The workspace: records, locks between processes, removal, and what a killed process leaves."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from graphbox.errors import (
    ConflictError,
    FormatError,
    GraphboxError,
    InterruptedRunError,
    NotFoundError,
    UsageError,
)
from graphbox.migrations.upgrade import upgrade
from graphbox.workspace import (
    BenchRecord,
    EdgeTypeCount,
    Workspace,
    folder_size,
    valid_name,
    writer_lock,
)
from graphbox.workspace.database import SCHEMA_REVISION, VERSION_TABLE, sqlite_url
from graphbox.workspace.tables import metadata

DIGEST = "a" * 64


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


def python(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start another process that runs ``code``."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process said nothing"
    return line.strip()


def make_graph(workspace: Workspace, name: str = "papers") -> None:
    folder = workspace.graph_path(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.npy").write_bytes(b"x" * 1000)
    workspace.add_graph(
        name,
        node_types={"paper": 3},
        edge_types=[EdgeTypeCount("paper", "cites", "paper", 5)],
        fingerprint=DIGEST,
    )


def make_model(workspace: Workspace, name: str = "encoder", **values: object) -> int:
    version, path = workspace.new_model_path(name)
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.onnx").write_bytes(b"x" * 100)
    workspace.add_model(
        name,
        version,
        kind="encoder",
        task="companion",
        precision="float32",
        metrics={"companion": {"recall@20": 0.35}},
        **values,  # type: ignore[arg-type]
    )
    return version


# -------------------------------------------------------------------------------------- opening


def test_open_twice_sees_the_same(workspace: Workspace) -> None:
    make_graph(workspace)
    assert [graph.name for graph in Workspace(workspace.root).graphs()] == ["papers"]


def test_absent_workspace_is_not_made_for_reading(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no workspace here"):
        Workspace(tmp_path / "workspace", create=False)
    assert not (tmp_path / "workspace").exists()


def test_file_instead_of_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="expected a workspace folder, received a file"):
        Workspace(tmp_path / "file")


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"received one with other files \(thesis.tex\)"):
        Workspace(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_unwritable_folder() -> None:
    with pytest.raises(UsageError, match="the workspace folder cannot be written"):
        Workspace("/proc/graphbox")


def test_lost_database_is_not_replaced_by_an_empty_one(workspace: Workspace) -> None:
    make_graph(workspace)
    for path in workspace.root.glob("graphbox.db*"):
        path.unlink()
    with pytest.raises(FormatError, match=r"graphbox.db is not there, but its folders are \(graphs\)"):
        Workspace(workspace.root)


def test_database_lost_while_open_is_not_replaced_by_an_empty_one(workspace: Workspace) -> None:
    database = workspace.root / "graphbox.db"
    database.rename(workspace.root / "aside")
    for access in (workspace.models, lambda: workspace.new_model_path("embedding")):
        with pytest.raises(FormatError, match="database file is gone"):
            access()
    assert not database.exists()
    (workspace.root / "aside").rename(database)
    assert workspace.models() == []


def test_text_file_as_database(tmp_path: Path) -> None:
    (tmp_path / "graphbox.db").write_text("this is not a database, but long enough to look like one" * 20)
    with pytest.raises(FormatError, match="a file that is no SQLite database"):
        Workspace(tmp_path)


def test_database_of_another_program(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "graphbox.db")
    connection.execute("CREATE TABLE moz_places (id INTEGER)")
    connection.close()
    with pytest.raises(FormatError, match=r"other tables: moz_places"):
        Workspace(tmp_path)


def test_database_of_a_newer_graphbox(workspace: Workspace) -> None:
    connection = sqlite3.connect(workspace.root / "graphbox.db")
    connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")  # noqa: S608 (a constant)
    connection.commit()
    connection.close()
    with pytest.raises(FormatError, match="received schema 9999: a newer graphbox wrote it"):
        Workspace(workspace.root)


def test_truncated_database(workspace: Workspace) -> None:
    make_graph(workspace)
    path = workspace.root / "graphbox.db"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(FormatError, match="the database is damaged"):
        Workspace(path.parent).runs()


def test_wrong_database_url(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a database URL"):
        Workspace(tmp_path / "w", database_url="nonsense")


def test_database_elsewhere(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "elsewhere.db")
    first = Workspace(tmp_path / "w", database_url=url)
    make_graph(first)
    assert not (tmp_path / "w" / "graphbox.db").exists()
    assert len(Workspace(tmp_path / "w", database_url=url).graphs()) == 1


def test_migrations_give_the_schema_the_tables_define(workspace: Workspace) -> None:
    engine = create_engine(sqlite_url(workspace.root / "graphbox.db"))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert context.get_current_revision() == SCHEMA_REVISION
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_measurements_of_earlier_releases_are_no_requests(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    engine = create_engine(sqlite_url(root / "graphbox.db"))
    with engine.begin() as connection:
        upgrade(connection, "0002")
        connection.exec_driver_sql(
            "INSERT INTO models (name, version, kind, size_bytes, precision, metrics, created_at, active) "
            "VALUES ('encoder', 1, 'encoder', 5, 'int8', '{}', '2026-01-01 00:00:00.000000', 1)"
        )
        connection.exec_driver_sql(
            "INSERT INTO benches VALUES "
            "('encoder', 1, 'cpu', 32, 1, 0.5, 0.9, 64000.0, '2026-01-02 03:04:05.000006')"
        )
    engine.dispose()
    (record,) = Workspace(root).models()
    assert (record.deciding_metric, record.measured_on, record.active) == (None, None, True)
    (bench,) = record.bench
    assert (bench.operation, bench.batch, bench.p50_ms) == ("model", 32, 0.5)
    assert bench.measured_at == datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    assert record.request is None


def test_tables_are_expressible_in_postgresql() -> None:
    for table in metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]


def test_processes_that_make_a_workspace_at_once(tmp_path: Path) -> None:
    code = "import sys; from graphbox.workspace import Workspace; print(Workspace(sys.argv[1]).runs())"
    processes = [python(code, tmp_path / "workspace") for _ in range(4)]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == ["[]"] * 4


# --------------------------------------------------------------------------------------- graphs


def test_graph(workspace: Workspace) -> None:
    make_graph(workspace)
    record = workspace.graph("papers")
    assert record.size_bytes == 1000
    assert record.node_types == {"paper": 3}
    assert record.edge_types == (EdgeTypeCount("paper", "cites", "paper", 5),)
    assert record.path == workspace.root / "graphs" / "papers"
    assert (datetime.now(UTC) - record.created_at).total_seconds() < 60


def test_unknown_graph_suggests(workspace: Workspace) -> None:
    make_graph(workspace)
    with pytest.raises(NotFoundError, match=r"there is no graph `paper`\n  = help: did you mean `papers`\?"):
        workspace.graph("paper")


def test_deleted_graph_folder(workspace: Workspace) -> None:
    make_graph(workspace)
    (workspace.graph_path("papers") / "data.npy").unlink()
    workspace.graph_path("papers").rmdir()
    with pytest.raises(FormatError, match="the folder of the graph `papers` is gone"):
        workspace.graph("papers")
    assert workspace.remove_graph("papers") == 0
    assert workspace.graphs() == []


def test_remove_graph(workspace: Workspace) -> None:
    make_graph(workspace)
    assert workspace.remove_graph("papers") == 1000
    assert workspace.graphs() == []
    assert list((workspace.root / "graphs").iterdir()) == []
    assert [event.event for event in workspace.history("graph", "papers")] == ["imported", "removed"]


# ----------------------------------------------------------------------------------------- runs


def test_run_to_the_end(workspace: Workspace) -> None:
    with workspace.start_run("papers", "version: 1\n", DIGEST, ["import", "train"]) as run:
        assert run.id == "papers-1"
        assert workspace.run("papers-1").state == "running"
        run.begin_stage("import")
        assert workspace.run("papers-1").stage == "import"
        run.finish_stage("import", seconds=1.5, peak_bytes=7, outputs={"graph": "papers"}, size_bytes=10)
        assert run.outputs("import") == {"graph": "papers"}
        assert run.outputs("train") is None
        run.report({"metrics": {"field": {"walk": {"accuracy": 0.8}}}})
        run.finish(size_bytes=20)
    record = workspace.run("last")
    assert (record.state, record.size_bytes, record.seconds) == ("finished", 20, 1.5)
    assert record.report["metrics"]["field"]["walk"]["accuracy"] == 0.8
    assert [event.event for event in workspace.history("run")] == ["created", "started", "finished"]
    mirrored = json.loads((record.path / "run.json").read_text())
    assert mirrored["state"] == "finished"
    assert mirrored["stages"][0] == {
        "name": "import",
        "state": "finished",
        "seconds": 1.5,
        "peak_bytes": 7,
        "outputs": {"graph": "papers"},
    }


def test_run_numbers_are_not_given_again(workspace: Workspace) -> None:
    for expected in ("a-1", "a-2"):
        with workspace.start_run("a", "", DIGEST, []) as run:
            assert run.id == expected
    workspace.remove_run("a-2")
    with workspace.start_run("a", "", DIGEST, []) as run:
        assert run.id == "a-3"


@pytest.mark.parametrize(
    ("error", "state"),
    [(InterruptedRunError("stopped"), "interrupted"), (GraphboxError("broken", hint="mend it"), "failed")],
)
def test_stopped_run(workspace: Workspace, error: GraphboxError, state: str) -> None:
    with workspace.start_run("a", "", DIGEST, ["train"]) as run:
        run.begin_stage("train")
        run.stop_stage("train", error, seconds=1, peak_bytes=1)
    record = workspace.run("a-1")
    assert (record.state, record.stages[0].state) == (state, state)
    assert record.error is not None
    assert record.error["message"] == error.message


HOLD_A_RUN = """
    import sys, time
    from graphbox.workspace import Workspace
    with Workspace(sys.argv[1]).start_run("held", "", "a" * 64, ["train"]) as run:
        run.begin_stage("train")
        print(run.id, flush=True)
        time.sleep(120)
"""


def test_killed_run_is_interrupted_and_resumes(workspace: Workspace) -> None:
    process = python(HOLD_A_RUN, workspace.root)
    run_id = wait_for_line(process)
    assert workspace.run(run_id).state == "running"
    with pytest.raises(ConflictError, match=f"the run `{run_id}` is in use by process {process.pid}"):
        workspace.resume_run(run_id)
    with pytest.raises(ConflictError, match="is in use by process"):
        workspace.remove_run(run_id)
    process.kill()
    process.communicate(timeout=60)
    record = Workspace(workspace.root).run(run_id)
    assert record.state == "interrupted"
    assert record.stages[0].state == "interrupted"
    assert record.error is not None
    assert "process ended during the stage `train`" in record.error["message"]
    with workspace.resume_run(run_id) as run:
        assert run.record.error is None
        assert workspace.run(run_id).state == "running"
    assert workspace.remove_run(run_id) > 0
    assert workspace.runs() == []


def test_resumed_run_is_as_the_process_before_left_it(workspace: Workspace) -> None:
    first = workspace.start_run("a", "", DIGEST, ["train"])
    first.begin_stage("train")

    def finish() -> None:
        time.sleep(0.3)
        first.finish_stage("train", seconds=1, peak_bytes=1, outputs={"kept": 1}, size_bytes=0)
        first.close()

    thread = threading.Thread(target=finish)
    thread.start()
    with workspace.resume_run("a-1") as second:
        assert second.outputs("train") == {"kept": 1}
    thread.join()


def test_child_that_outlives_a_killed_run_does_not_keep_it_running(workspace: Workspace) -> None:
    code = """
        import os, sys, time
        from graphbox.workspace import Workspace
        run = Workspace(sys.argv[1]).start_run("held", "", "a" * 64, [])
        child = os.fork()
        if child == 0:
            os.close(1); os.close(2)
            time.sleep(120)
        print(child, flush=True)
        time.sleep(120)
    """
    process = python(code, workspace.root)
    child = int(wait_for_line(process))
    try:
        assert workspace.run("held-1").state == "running"
        process.kill()
        process.communicate(timeout=60)
        assert workspace.run("held-1").state == "interrupted"
    finally:
        os.kill(child, signal.SIGKILL)


def test_run_names_are_checked(workspace: Workspace) -> None:
    for name in ("", "../x", "a/b", ".hidden", "-x", "x" * 129, "a b", "a\n"):
        with pytest.raises(UsageError, match="expected a run name"):
            workspace.start_run(name, "", DIGEST, [])
    assert valid_name("A_1.b-c", "run") == "A_1.b-c"


def test_numbers_are_unique_between_processes(workspace: Workspace) -> None:
    code = """
        import sys
        from graphbox.workspace import Workspace
        workspace = Workspace(sys.argv[1])
        print(*[workspace.new_model_path("m")[0] for _ in range(20)])
    """
    processes = [python(code, workspace.root) for _ in range(3)]
    numbers = [int(n) for p in processes for n in p.communicate(timeout=120)[0].split()]
    assert sorted(numbers) == list(range(1, 61))


# --------------------------------------------------------------------------------------- models


def test_models(workspace: Workspace) -> None:
    first = make_model(workspace)
    second = make_model(workspace, parent=first)
    assert workspace.promote_model("encoder", second).active
    record = workspace.model("encoder")
    assert (record.version, record.parent, record.active) == (second, first, True)
    assert workspace.model("encoder", first).active is False
    assert record.size_bytes == 100
    assert record.metrics == {"companion": {"recall@20": 0.35}}
    assert workspace.promote_model("encoder", first).active
    assert workspace.model("encoder").version == first


def test_active_versions(workspace: Workspace) -> None:
    assert workspace.active_versions() == {}
    for _ in range(3):
        make_model(workspace, "embedding")
    make_model(workspace, "other")
    assert workspace.active_versions() == {"embedding": 1, "other": 1}
    workspace.promote_model("embedding", 2)
    assert workspace.active_versions() == {"embedding": 2, "other": 1}


def test_only_the_first_version_is_active_at_once(workspace: Workspace) -> None:
    first = make_model(workspace)
    assert workspace.model("encoder").version == first
    make_model(workspace)
    assert workspace.model("encoder").version == first
    workspace.remove_model("encoder")
    assert workspace.model("encoder", make_model(workspace)).active, "no other version is left"


def test_version_that_is_registered_again_stays_active(workspace: Workspace) -> None:
    first = make_model(workspace)
    make_model(workspace)
    workspace.add_model("encoder", first, kind="encoder", task=None, precision="int8", metrics={})
    assert workspace.active_versions() == {"encoder": first}


def test_removing_the_active_version_goes_back_to_the_one_promoted_before(workspace: Workspace) -> None:
    for _ in range(4):
        make_model(workspace)
    for version in (2, 3):
        workspace.promote_model("encoder", version)
    workspace.remove_model("encoder", 3)
    assert workspace.active_versions() == {"encoder": 2}, "version 4 was never promoted"
    workspace.remove_model("encoder", 2)
    assert workspace.active_versions() == {"encoder": 4}


def test_benches_replace_older_ones(workspace: Workspace) -> None:
    version = make_model(workspace)
    for p50_ms in (2.0, 1.0):
        bench = BenchRecord("onnxruntime", 32, 1, p50_ms, 3.0, 1000.0, datetime.now(UTC), "infer")
        workspace.add_benches("encoder", version, [bench])
    assert [bench.p50_ms for bench in workspace.model("encoder").bench] == [1.0]


def test_remove_model_versions(workspace: Workspace) -> None:
    first, second = make_model(workspace), make_model(workspace)
    workspace.add_benches(
        "encoder", second, [BenchRecord("onnxruntime", 1, 1, 1.0, 1.0, 1.0, datetime.now(UTC), "infer")]
    )
    assert workspace.remove_model("encoder", second) == 100
    assert workspace.model("encoder").version == first
    assert workspace.remove_model("encoder") == 100
    assert workspace.models() == []
    assert list((workspace.root / "models").iterdir()) == []
    with pytest.raises(NotFoundError, match="there is no model `encoder`"):
        workspace.remove_model("encoder")
    assert workspace.new_model_path("encoder")[0] == 3


def test_discard_a_version_in_whatever_state_it_is(workspace: Workspace) -> None:
    version = make_model(workspace)
    workspace.discard_model("encoder", version)
    assert workspace.models() == []
    unregistered, path = workspace.new_model_path("encoder")
    path.mkdir(parents=True)
    workspace.discard_model("encoder", unregistered)
    assert not path.exists()
    workspace.discard_model("encoder", 99)


def test_unknown_model(workspace: Workspace) -> None:
    version = make_model(workspace)
    with pytest.raises(NotFoundError, match=r"did you mean `encoder`\?"):
        workspace.model("encodre")
    with pytest.raises(NotFoundError, match=f"has no version 9\n  = help: its versions: {version}"):
        workspace.model("encoder", 9)


# -------------------------------------------------------------------------------------- removal


def test_process_killed_while_removing_leaves_nothing_behind(workspace: Workspace) -> None:
    make_graph(workspace)
    code = """
        import os, shutil, sys
        from graphbox.workspace import Workspace
        shutil.rmtree = lambda *_: os._exit(9)
        Workspace(sys.argv[1]).remove_graph("papers")
    """
    process = python(code, workspace.root)
    process.communicate(timeout=60)
    assert process.returncode == 9
    assert workspace.graphs() == []
    assert len(list((workspace.root / "graphs").iterdir())) == 1
    Workspace(workspace.root)
    assert list((workspace.root / "graphs").iterdir()) == []


def test_unfinished_removal_spares_a_new_graph_of_that_name(workspace: Workspace) -> None:
    make_graph(workspace)
    code = """
        import os, shutil, sys
        from graphbox.workspace import Workspace
        shutil.rmtree = lambda *_: os._exit(9)
        Workspace(sys.argv[1]).remove_graph("papers")
    """
    python(code, workspace.root).communicate(timeout=60)
    make_graph(workspace)
    assert Workspace(workspace.root).graph("papers").size_bytes == 1000


# ---------------------------------------------------------------------------------------- locks


def test_lock_names_its_holder_and_ends_with_it(workspace: Workspace, tmp_path: Path) -> None:
    code = """
        import sys, time
        from graphbox.workspace import Workspace
        with Workspace(sys.argv[1]).graph_lock("papers"):
            print("held", flush=True)
            time.sleep(120)
    """
    process = python(code, workspace.root)
    wait_for_line(process)
    started = time.monotonic()
    message = rf"the graph `papers` is in use by process {process.pid} on .*waited 0.3 s"
    with pytest.raises(ConflictError, match=message), workspace.graph_lock("papers", timeout_s=0.3):
        pass
    assert time.monotonic() - started < 5
    process.kill()
    process.communicate(timeout=60)
    with workspace.graph_lock("papers", timeout_s=5):
        pass


def test_lock_in_an_unwritable_place() -> None:
    with pytest.raises(UsageError, match="cannot be locked"), writer_lock(Path("/proc/none/lock"), "run `x`"):
        pass


def test_hard_links_count_once(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "compacted").mkdir()
    (tmp_path / "base" / "array.npy").write_bytes(b"x" * 1000)
    (tmp_path / "base" / "same.npy").write_bytes(b"x" * 1000)
    os.link(tmp_path / "base" / "array.npy", tmp_path / "compacted" / "array.npy")
    assert folder_size(tmp_path) == 2000
    assert folder_size(tmp_path / "compacted") == 1000
