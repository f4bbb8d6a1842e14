"""Mistakes of users: the exit code and message of each, kept as text files in ``golden``.

``GRAPHBOX_UPDATE_GOLDEN=1 pytest tests/cli/test_mistakes.py`` writes the files anew; read the difference
before committing it.
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from graphbox.workspace import Workspace
from tests.cli.conftest import RUN_FILE, Call, Outcome
from tests.pglbox.presets import pgl, yaml_text

GOLDEN = Path(__file__).parent / "golden"

Arguments = Sequence[str]


@dataclass(frozen=True)
class Mistake:
    """A mistake: what is prepared, what is called, and how it must end."""

    name: str
    code: int
    prepare: Callable[[Path], Arguments]
    finished: bool


MISTAKES: list[Mistake] = []


def mistake(
    code: int, *, finished: bool = False
) -> Callable[[Callable[[Path], Arguments]], Callable[[Path], Arguments]]:
    """Register a function that makes a mistake in a folder and returns the call that meets it.

    Args:
        code: exit code of the call.
        finished: whether the folder has the workspace of a finished run.
    """

    def register(prepare: Callable[[Path], Arguments]) -> Callable[[Path], Arguments]:
        MISTAKES.append(Mistake(prepare.__name__, code, prepare, finished))
        return prepare

    return register


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


# --------------------------------------------------------------------------------- the run file


@mistake(2)
def typo_in_a_key(folder: Path) -> Arguments:
    change(folder / "run.yaml", "dim: 8", "dmi: 8")
    return ["check", "run.yaml"]


@mistake(2)
def several_mistakes_at_once(folder: Path) -> Arguments:
    change(folder / "run.yaml", "dim: 8", "dim: eight")
    change(folder / "run.yaml", "label: field", "label: feild")
    change(folder / "run.yaml", "path: cites.csv", "path: sites.csv")
    change(folder / "run.yaml", "    task: cite\n", "")
    return ["run", "run.yaml"]


@mistake(2)
def no_such_run_file(folder: Path) -> Arguments:
    return ["run", "rnu.yaml"]


@mistake(2)
def run_file_that_is_not_utf8(folder: Path) -> Arguments:
    (folder / "run.yaml").write_bytes(RUN_FILE.replace("papers", "pap\xe9rs").encode("latin-1"))
    return ["check", "run.yaml"]


@mistake(2)
def tab_in_the_run_file(folder: Path) -> Arguments:
    change(folder / "run.yaml", "  name: papers", "\tname: papers")
    return ["check", "run.yaml"]


@mistake(2)
def bracket_left_open(folder: Path) -> Arguments:
    change(folder / "run.yaml", "[paper, cites, paper]", "[paper, cites, paper")
    return ["check", "run.yaml"]


@mistake(2)
def key_given_twice(folder: Path) -> Arguments:
    change(folder / "run.yaml", "    dim: 8\n", "    dim: 8\n    dim: 16\n")
    return ["check", "run.yaml"]


@mistake(2)
def newer_run_file(folder: Path) -> Arguments:
    change(folder / "run.yaml", "version: 1", "version: 2")
    return ["check", "run.yaml"]


@mistake(2)
def missing_source_file(folder: Path) -> Arguments:
    (folder / "cites.csv").unlink()
    return ["import", "run.yaml"]


@mistake(2)
def unknown_type_at_the_end_of_an_edge(folder: Path) -> Arguments:
    change(folder / "run.yaml", "[author, writes, paper]", "[auhtor, writes, paper]")
    return ["check", "run.yaml"]


@mistake(2)
def metapath_that_does_not_connect(folder: Path) -> Arguments:
    change(folder / "run.yaml", "[author, writes, paper]]", "[paper, cites, paper]]")
    return ["check", "run.yaml"]


@mistake(2)
def override_of_an_unknown_key(folder: Path) -> Arguments:
    return ["run", "run.yaml", "models.walk.epoch=3"]


@mistake(2)
def override_of_the_wrong_type(folder: Path) -> Arguments:
    return ["run", "run.yaml", "models.walk.epochs=many"]


@mistake(2)
def override_without_a_value(folder: Path) -> Arguments:
    return ["run", "run.yaml", "models.walk.epochs"]


# ------------------------------------------------------------------------------------- the data


@mistake(2)
def missing_column(folder: Path) -> Arguments:
    change(folder / "cites.csv", "source,target", "from,to")
    return ["import", "run.yaml"]


@mistake(4)
def wrong_column_type(folder: Path) -> Arguments:
    change(folder / "paper.csv", "p7,optics,1997", "p7,optics,last year")
    return ["import", "run.yaml", "--strict"]


@mistake(4)
def duplicate_node_id(folder: Path) -> Arguments:
    change(folder / "paper.csv", "p7,", "p3,")
    return ["import", "run.yaml"]


@mistake(4)
def dangling_edge_in_a_strict_import(folder: Path) -> Arguments:
    change(folder / "cites.csv", "p7,p10", "p7,p700")
    return ["import", "run.yaml", "--strict"]


@mistake(4)
def no_edge_at_all(folder: Path) -> Arguments:
    for name in ("cites.csv", "writes.csv"):
        (folder / name).write_text("source,target\n")
    return ["import", "run.yaml"]


@mistake(4)
def empty_file(folder: Path) -> Arguments:
    (folder / "paper.csv").write_text("")
    return ["import", "run.yaml"]


@mistake(4)
def line_with_too_many_cells(folder: Path) -> Arguments:
    change(folder / "cites.csv", "p7,p10", "p7,p10,p11")
    return ["import", "run.yaml", "--strict"]


@mistake(4)
def text_file_named_parquet(folder: Path) -> Arguments:
    (folder / "paper.csv").rename(folder / "paper.parquet")
    change(folder / "run.yaml", "path: paper.csv", "path: paper.parquet")
    return ["import", "run.yaml"]


@mistake(4)
def damaged_graph(folder: Path) -> Arguments:
    imported(folder)
    largest = max((folder / "workspace" / "graphs" / "papers").rglob("*.npy"), key=lambda p: p.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-16])
    return ["describe", "papers"]


@mistake(4)
def lost_graph_folder(folder: Path) -> Arguments:
    imported(folder)
    (folder / "workspace" / "graphs" / "papers").rename(folder / "elsewhere")
    return ["describe", "papers"]


# -------------------------------------------------------------------------------- the workspace


@mistake(2)
def no_workspace_here(folder: Path) -> Arguments:
    return ["runs"]


@mistake(2)
def workspace_that_is_a_file(folder: Path) -> Arguments:
    return ["-C", "run.yaml", "run", "run.yaml"]


@mistake(2)
def workspace_that_cannot_be_written(folder: Path) -> Arguments:
    return ["-C", "/proc/graphbox", "run", "run.yaml"]


@mistake(2)
def folder_of_something_else_as_workspace(folder: Path) -> Arguments:
    return ["-C", ".", "run", "run.yaml"]


@mistake(4)
def database_of_another_program(folder: Path) -> Arguments:
    (folder / "workspace").mkdir()
    connection = sqlite3.connect(folder / "workspace" / "graphbox.db")
    connection.execute("CREATE TABLE bookmarks (id INTEGER)")
    connection.close()
    return ["runs"]


@mistake(4)
def database_of_a_newer_graphbox(folder: Path) -> Arguments:
    imported(folder)
    connection = sqlite3.connect(folder / "workspace" / "graphbox.db")
    connection.execute("UPDATE graphbox_schema SET version_num = '9999'")
    connection.commit()
    connection.close()
    return ["graphs"]


@mistake(2)
def no_such_graph(folder: Path) -> Arguments:
    imported(folder)
    return ["describe", "paper"]


@mistake(2)
def no_such_run(folder: Path) -> Arguments:
    imported(folder)
    return ["runs", "show", "papers-1"]


@mistake(2)
def no_such_model(folder: Path) -> Arguments:
    imported(folder)
    return ["models", "show", "walk"]


# --------------------------------------------------------------------------------- the commands


@mistake(2)
def unknown_command(folder: Path) -> Arguments:
    return ["chekc", "run.yaml"]


@mistake(2)
def unknown_command_of_a_group(folder: Path) -> Arguments:
    return ["runs", "lsit"]


@mistake(2)
def unknown_option(folder: Path) -> Arguments:
    return ["run", "run.yaml", "--fersh"]


@mistake(2)
def missing_argument(folder: Path) -> Arguments:
    return ["run"]


@mistake(2)
def option_of_the_wrong_type(folder: Path) -> Arguments:
    return ["serve", "--port", "http"]


@mistake(2)
def unknown_target(folder: Path) -> Arguments:
    return ["targets", "test", "onnxruntime_cpu"]


@mistake(2)
def reachable_host_without_a_token(folder: Path) -> Arguments:
    imported(folder)
    return ["serve", "--host", "0.0.0.0"]  # noqa: S104 (it is refused)


@mistake(2)
def short_token(folder: Path) -> Arguments:
    imported(folder)
    return ["serve", "--host", "0.0.0.0", "--token", "secret"]  # noqa: S104 (it is refused)


@mistake(2)
def keys_of_a_pglbox_file_that_are_refused(folder: Path) -> Arguments:
    changes = {
        "wlak_len": 24,
        "meta_path": "u2t-t2u;u2x-x2u",
        "train_mode": "online_train",
        "emb_size": "big",
    }
    (folder / "config.yaml").write_text(yaml_text(pgl(**changes)))
    return ["convert-pglbox", "config.yaml"]


@mistake(1)
def run_file_that_is_there_already(folder: Path) -> Arguments:
    (folder / "config.yaml").write_text(yaml_text(pgl()))
    (folder / "graphbox.yaml").write_text("version: 1\n")
    return ["convert-pglbox", "config.yaml"]


# ------------------------------------------------------------------------- after a finished run


@mistake(2, finished=True)
def unknown_id(folder: Path) -> Arguments:
    return ["embed", "neighbors", "last", "p600"]


@mistake(2, finished=True)
def k_out_of_range(folder: Path) -> Arguments:
    return ["embed", "neighbors", "last", "p6", "-k", "60"]


@mistake(2, finished=True)
def no_such_model_in_the_run(folder: Path) -> Arguments:
    return ["embed", "export", "last", "--model", "wlak"]


@mistake(2, finished=True)
def no_embeddings_of_the_type(folder: Path) -> Arguments:
    return ["embed", "export", "last", "--type", "papre"]


@mistake(2, finished=True)
def nodes_of_no_type(folder: Path) -> Arguments:
    (folder / "wanted.txt").write_text("p1\n")
    return ["embed", "export", "last", "--model", "walk", "--nodes", "wanted.txt"]


@mistake(2, finished=True)
def unknown_node_in_a_file(folder: Path) -> Arguments:
    (folder / "wanted.txt").write_text("p1\np600\n")
    return ["embed", "export", "last", "--model", "walk", "--type", "paper", "--nodes", "wanted.txt"]


@mistake(2, finished=True)
def file_of_nodes_that_is_not_there(folder: Path) -> Arguments:
    return ["embed", "export", "last", "--model", "walk", "--type", "paper", "--nodes", "wanted.txt"]


@mistake(2, finished=True)
def unknown_format(folder: Path) -> Arguments:
    return ["embed", "export", "last", "--format", "npz"]


@mistake(2, finished=True)
def no_such_version(folder: Path) -> Arguments:
    return ["models", "promote", "citer", "--version", "7"]


@mistake(2, finished=True)
def wrong_batch_sizes(folder: Path) -> Arguments:
    return ["bench", "citer", "--batch", "1,many"]


@mistake(2, finished=True)
def bench_on_an_unknown_target(folder: Path) -> Arguments:
    return ["bench", "citer", "--target", "onnxruntime_cup"]


@mistake(2, finished=True)
def compression_of_what_is_compressed(folder: Path) -> Arguments:
    return ["compress", "citer"]


@mistake(4, finished=True)
def damaged_artifact(folder: Path) -> Arguments:
    path = folder / "workspace" / "models" / "citer" / "2" / "model.onnx"
    path.write_bytes(path.read_bytes()[:-100])
    return ["bench", "citer"]


@mistake(4, finished=True)
def lost_artifact(folder: Path) -> Arguments:
    (folder / "workspace" / "models" / "citer" / "2").rename(folder / "elsewhere")
    return ["models", "show", "citer"]


@mistake(4, finished=True)
def truncated_checkpoint(folder: Path) -> Arguments:
    workspace = Workspace(folder / "workspace")
    workspace.update_stage("papers-1", "train", {}, state="interrupted")
    last = max((workspace.run("last").path / "checkpoints" / "walk").glob("[0-9]*"))
    path = max(sorted(last.glob("**/*.segment")), key=lambda file: file.stat().st_size)
    path.write_bytes(path.read_bytes()[:-10])
    return ["runs", "resume", "last"]


@mistake(4, finished=True)
def run_whose_database_is_lost(folder: Path) -> Arguments:
    for path in (folder / "workspace").glob("graphbox.db*"):
        path.unlink()
    return ["run", "run.yaml"]


@mistake(6, finished=True)
def gate_that_refuses_an_export(folder: Path) -> Arguments:
    path = folder / "workspace" / "runs" / "papers-1" / "config.yaml"
    change(path, "max_absolute_error: 0.0001", "max_absolute_error: 1.0e-12")
    return ["export", "last"]


@mistake(2)
def model_of_another_kind_of_task(folder: Path) -> Arguments:
    change(folder / "run.yaml", "task: cite", "task: field")
    return ["check", "run.yaml"]


@mistake(2)
def fresh_and_resume_at_once(folder: Path) -> Arguments:
    return ["run", "run.yaml", "--fresh", "--resume"]


@mistake(2)
def resume_without_an_earlier_run(folder: Path) -> Arguments:
    imported(folder)
    return ["run", "run.yaml", "--resume"]


def imported(folder: Path) -> None:
    """Import the small graph."""
    from tests.cli.conftest import call_main

    outcome = call_main(["-C", folder / "workspace", "import", folder / "run.yaml"])
    assert outcome.code == 0, outcome.err


# ------------------------------------------------------------------------------------ the tests


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake(mistake: Mistake, folder: Path, graphbox: Call, request: pytest.FixtureRequest) -> None:
    if mistake.finished:
        request.getfixturevalue("finished_folder")
    arguments = mistake.prepare(folder)
    outcome = graphbox(*arguments)
    check(mistake.name, mistake.code, arguments, outcome, folder)


def test_port_in_use(folder: Path, graphbox: Call) -> None:
    imported(folder)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        arguments = ["serve", "--port", port]
        outcome = graphbox(*arguments)
    hidden = [Outcome(outcome.code, outcome.out, outcome.err.replace(port, "<port>"))]
    check("port_in_use", 1, ["serve", "--port", "<port>"], hidden[0], folder)


def test_run_in_use(finished_folder: Path, graphbox: Call) -> None:
    with Workspace("workspace").resume_run("papers-1"):
        outcome = graphbox("runs", "rm", "papers-1")
    check("run_in_use", 1, ["runs", "rm", "papers-1"], outcome, finished_folder)


def test_with_json_the_message_is_a_document_too(folder: Path, graphbox: Call) -> None:
    change(folder / "run.yaml", "dim: 8", "dmi: 8")
    outcome = graphbox("check", "run.yaml", "--json")
    assert outcome.code == 2
    error = outcome.json["error"]
    assert error["code"] == "config"
    assert "did you mean `dim`?" in error["problems"][0]
    assert "unknown key" in outcome.err


def test_every_golden_file_belongs_to_a_mistake() -> None:
    names = {mistake.name for mistake in MISTAKES} | {"port_in_use", "run_in_use"}
    assert {path.stem for path in GOLDEN.glob("*.txt")} == names
    assert len(names) >= 30


def check(name: str, code: int, arguments: Arguments, outcome: Outcome, folder: Path) -> None:
    """Compare the end of a call with its golden file."""
    message = outcome.err[outcome.err.index("error: ") :] if "error: " in outcome.err else outcome.err
    text = f"$ graphbox {' '.join(arguments)}\nexit code {outcome.code}\n{normalised(message, folder)}"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GRAPHBOX_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert outcome.code == code
    assert "Traceback" not in outcome.out + outcome.err
    assert outcome.out == "", "results and messages must not mix"
    assert not (folder / "state").exists(), "it was taken for a fault of graphbox"


def normalised(text: str, folder: Path) -> str:
    """Return ``text`` without what differs between machines."""
    text = text.replace(str(folder), "<folder>")
    text = re.sub(
        r"process \d+ on .* since [^)]*\)", "process <pid> on <host> (`<command>`, since <time>)", text
    )
    text = re.sub(r"\d(\.\d+)?e-\d+", "<number>", text)
    size = r"[\d,]+ bytes( \([\d.]+ [KMGT]iB\))?"
    text = re.sub(rf"expected at least {size} of memory", "expected at least <n> bytes of memory", text)
    text = re.sub(r"give it \d+ MiB or more", "give it <n> MiB or more", text)
    return re.sub(
        r"model.onnx: expected \d+ bytes, received \d+", "model.onnx: expected <n> bytes, received <m>", text
    )
