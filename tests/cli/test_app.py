"""The frame of the command line: help, options that stand anywhere, documents, and last resorts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

import graphbox as package
from graphbox.cli import app as app_module
from graphbox.cli import text
from tests.cli.conftest import Call

HEAVY = [
    "numpy",
    "torch",
    "pyarrow",
    "fastapi",
    "sqlalchemy",
    "onnxruntime",
    "ruamel",
    "graphbox._core",
]


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["runs", "list", "--help"], ["--version"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from graphbox.cli.app import main
code = main({arguments!r})
found = [name for name in {HEAVY!r} if name in sys.modules]
print("loaded", found, "code", code)
"""
    assert python(code).stdout.strip().endswith("loaded [] code 0")


def test_version(graphbox: Call) -> None:
    outcome = graphbox("--version")
    assert outcome.out.strip() == f"graphbox {package.__version__}"


def test_module_and_program_are_the_same(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "graphbox", "chekc"], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "Did you mean 'check'" in done.stderr


def test_options_of_every_command_stand_before_or_after_it(graphbox: Call, folder: Path) -> None:
    assert graphbox("-C", "w", "import", "run.yaml", "-q").code == 0
    before = graphbox("-C", "w", "--json", "graphs", "list")
    after = graphbox("graphs", "list", "-C", "w", "--json")
    between = graphbox("graphs", "-C", "w", "list", "--json")
    assert before.json[0]["name"] == "papers"
    assert before.out == after.out == between.out
    assert graphbox("graphs", "--json", "-C", "w").out == before.out


def test_workspace_by_environment(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBOX_WORKSPACE", "elsewhere")
    assert graphbox("import", "run.yaml").code == 0
    assert Path("elsewhere/graphs/papers").is_dir()


def commands(app: typer.Typer, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [(*prefix, str(command.name)) for command in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        found += commands(group.typer_instance, (*prefix, str(group.name)))
    return found


@pytest.mark.parametrize("command", commands(app_module.app), ids=" ".join)
def test_every_command_has_help_and_json(command: tuple[str, ...], graphbox: Call) -> None:
    outcome = graphbox(*command, "--help")
    assert outcome.code == 0
    assert "--json" in outcome.out
    assert len(outcome.out.splitlines()[3].strip()) > 10, "no description"


def test_paragraphs_of_help_are_wrapped_by_the_terminal(graphbox: Call) -> None:
    described = graphbox("predict", "--help").out.partition("╭")[0].splitlines()[3:]
    widest = max(len(line.rstrip()) for line in described)
    for line, following in pairwise(described):
        if line.strip() and following.strip():
            assert len(line.rstrip()) + 1 + len(following.split()[0]) > widest, line


def test_document_and_progress_do_not_mix(graphbox: Call) -> None:
    outcome = graphbox("import", "run.yaml", "--json")
    assert outcome.json["nodes"] == 90
    assert "import" in outcome.err
    quiet = graphbox("import", "run.yaml", "--json", "-q", "--again")
    assert quiet.err == ""


def test_check(graphbox: Call) -> None:
    assert "run.yaml is right" in graphbox("check", "run.yaml").out
    assert graphbox("check", "run.yaml", "--json").json["config"]["models"]["walk"]["dim"] == 8
    schema = graphbox("check", "--schema").json
    assert schema["properties"]["graph"]
    assert graphbox("check", "--schema", "--json").json == schema


def test_resolved_run_file_is_a_run_file(graphbox: Call, folder: Path) -> None:
    resolved = graphbox("check", "run.yaml", "--resolved", "models.walk.dim=5").out
    (folder / "resolved.yaml").write_text(resolved)
    first = graphbox("check", "run.yaml", "models.walk.dim=5", "--json").json["digest"]
    assert graphbox("check", "resolved.yaml", "--json").json["digest"] == first


def test_import_keeps_what_has_not_changed(graphbox: Call, folder: Path) -> None:
    assert "graph `papers`: 90 nodes" in graphbox("import", "run.yaml").out
    assert "is already there" in graphbox("import", "run.yaml").out
    os.utime(folder / "cites.csv", (1, 1))
    assert "graph `papers`: 90 nodes" in graphbox("import", "run.yaml").out


def test_describe_and_remove(graphbox: Call) -> None:
    graphbox("import", "run.yaml")
    assert graphbox("describe", "papers", "--json").json["node_types"][0]["nodes"] == 60
    assert "paper cites paper" in graphbox("describe", "papers").out
    removed = graphbox("graphs", "rm", "papers", "--json").json
    assert removed["freed_bytes"] > 0
    assert graphbox("graphs", "--json").json == []
    assert "no graphs yet" in graphbox("graphs").out


def test_describe_compares_files_with_their_digests(graphbox: Call, folder: Path) -> None:
    graphbox("import", "run.yaml")
    assert graphbox("describe", "papers", "--verify").code == 0
    (array,) = (folder / "workspace").rglob("paper__cites__paper/indices.npy")
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(content)
    outcome = graphbox("describe", "papers", "--verify")
    assert outcome.code == 4
    assert "paper__cites__paper/indices.npy" in outcome.err
    # Without digests what is read still has to make sense.
    outcome = graphbox("describe", "papers")
    assert outcome.code == 4
    assert "expected nodes from 0 to 59" in outcome.err


def test_doctor(graphbox: Call) -> None:
    document = graphbox("doctor", "--json").json
    assert document["graphbox"] == package.__version__
    assert document["packages"]["numpy"]
    assert document["memory"]["total_bytes"] > 0
    assert document["targets"][0]["adapter"] == "onnxruntime"
    assert "processor" in graphbox("doctor").out


def test_targets(graphbox: Call) -> None:
    (target, *_) = graphbox("targets", "--json").json
    assert target["adapter"] == "onnxruntime"
    assert target["available"] is True
    assert "onnxruntime" in graphbox("targets").out


def test_fault_is_reported_with_a_file(graphbox: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("graphbox.deploy.targets", broken)
    outcome = graphbox("doctor", "--json")
    assert outcome.code == 1
    assert outcome.json["error"]["code"] == "unexpected"
    assert "Traceback" not in outcome.err
    assert "this is a fault of graphbox; please report it with" in outcome.err
    (path,) = (folder / "state" / "graphbox").glob("error-*.log")
    assert "ZeroDivisionError" in path.read_text()


def test_without_the_extra_it_is_named(folder: Path) -> None:
    code = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"torch", "sklearn"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from graphbox.cli.app import main
sys.exit(main(["run", "run.yaml"]))
"""
    done = python(code)
    assert done.returncode == 5
    assert "pip install 'graphbox[train]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("graphbox.deploy.targets", stopped)
    outcome = graphbox("doctor")
    assert (outcome.code, outcome.err.strip()) == (130, "error: stopped by Ctrl-C")


def test_reader_of_a_pipe_may_leave(folder: Path) -> None:
    command = f"{sys.executable} -m graphbox check --schema | head -n 1"
    done = subprocess.run(command, shell=True, check=False, capture_output=True, text=True, timeout=120)  # noqa: S602
    assert done.stdout.strip() == "{"
    assert done.stderr == ""


def test_colours_only_where_wanted(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[" not in graphbox("nothing").err
    assert "\x1b[" in graphbox("--color", "always", "runs", "show", "x").err


def test_json_takes_what_records_hold() -> None:
    from graphbox.cli.session import _plain

    assert json.dumps(datetime(2026, 1, 2, tzinfo=UTC), default=_plain) == '"2026-01-02T00:00:00+00:00"'
    assert json.dumps(Path("a/b"), default=_plain) == '"a/b"'
    with pytest.raises(TypeError, match="object has no JSON form"):
        json.dumps(object(), default=_plain)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (3_400_000, "3.4 MB"), (2.5e11, "250 GB")],
)
def test_byte_size(size: float, shown: str) -> None:
    assert text.byte_size(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (12.3, "12 s"), (185, "3:05 min"), (3723, "1:02:03 h")],
)
def test_duration(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_age() -> None:
    now = datetime.now(UTC)
    assert text.age(now) == "just now"
    assert text.age(now - timedelta(minutes=5)) == "5 min ago"
    assert text.age(now - timedelta(hours=5)) == "5 h ago"
    assert text.age(datetime(2020, 1, 2, 12, tzinfo=UTC)) == "2020-01-02"
