"""New data without training anew: a run that starts from the rows and weights of an earlier one."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.workspace import Workspace
from tests.cli.conftest import Call

START = ("models.walk.start_from=papers", "models.sage.start_from=papers", "models.sage.epochs=2")


def append_papers(graphbox: Call) -> None:
    """Append two papers, an author, and edges to them."""
    Path("new").mkdir()
    Path("new/paper.csv").write_text("id,field,year\np60,logic,2021\np61,optics,2022\n")
    Path("new/author.csv").write_text("id\na30\n")
    Path("new/cites.csv").write_text("source,target\np60,p3\np61,p4\np3,p60\np1,p61\n")
    Path("new/writes.csv").write_text("source,target\na30,p60\na1,p61\n")
    Path("new/run.yaml").write_text(Path("run.yaml").read_text())
    outcome = graphbox("import", "--append", "new/run.yaml", "-q")
    assert outcome.code == 0, outcome.err


def test_the_next_day_starts_from_the_last_run(graphbox: Call, folder: Path) -> None:
    text = Path("run.yaml").read_text()
    Path("run.yaml").write_text(text[: text.index("compress:")])
    assert graphbox("run", "run.yaml", "-q").code == 0
    append_papers(graphbox)
    outcome = graphbox("run", "run.yaml", *START)
    assert outcome.code == 0, outcome.err
    assert "walk started from `walk` of run papers-1" in outcome.out
    assert "rows taken over: 60 of 62 nodes of paper; 2 new" in outcome.out
    assert "rows taken over: 30 of 31 nodes of author; 1 new" in outcome.out
    report = graphbox("runs", "show", "papers-2", "--json").json["report"]
    start = report["training"]["sage"]["started_from"]
    assert (start["run"], start["model"]) == ("papers-1", "sage")
    assert start["nodes"]["paper"] == {"nodes": 62, "taken_over": 60, "new": 2}
    assert start["weights"] > 0
    assert report["metrics"]["cite"]["sage"]["queries"] > 0
    assert report["export"]["citer"]["version"] == 2, "it is exported as any other"
    again = graphbox("run", "run.yaml", *START, "--json").json
    assert again["run"] == "papers-2", "there is nothing new"
    third = graphbox("run", "run.yaml", *START, "--fresh", "--json").json
    assert third["run"] == "papers-3"
    assert third["training"]["walk"]["started_from"]["run"] == "papers-2", "the newest of the name"


def test_by_id_model_and_folder(graphbox: Call, finished_folder: Path) -> None:
    call = ("train", "run.yaml", "models.sage.epochs=1", "--fresh", "--json", "-q")
    for start in ("papers-1/sage", "./workspace/runs/papers-1/checkpoints/sage"):
        outcome = graphbox(*call, f"models.sage.start_from={start}")
        assert outcome.code == 0, outcome.err
        found = outcome.json["training"]["sage"]["started_from"]
        assert (found["run"], found["model"]) == ("papers-1", "sage")
        assert outcome.json["training"]["walk"]["started_from"] is None


@pytest.mark.parametrize(
    ("start", "message", "hint"),
    [
        ("paper", "expected an earlier run, received `paper`", "papers"),
        ("papers-1/sag", "a run with checkpoints of a model `sag`, received papers-1", "sage"),
        ("papers-1/walk", "expected a model of kind sage, received `walk` of run papers-1", "start_from"),
        ("./nowhere", "expected checkpoints of a finished training, received none", "nowhere"),
    ],
)
def test_what_there_is_not(
    graphbox: Call, finished_folder: Path, start: str, message: str, hint: str
) -> None:
    outcome = graphbox("run", "run.yaml", f"models.sage.start_from={start}", "-q")
    assert outcome.code == 2
    assert message in outcome.err
    assert "models.sage.start_from" in outcome.err
    assert hint in outcome.err.split("help:")[1]


def test_the_first_run_is_refused_before_its_import(graphbox: Call, folder: Path) -> None:
    outcome = graphbox("run", "run.yaml", *START, "-q")
    assert outcome.code == 2
    assert "expected an earlier run, received `papers`, which the workspace does not have" in outcome.err
    assert "models.walk.start_from=null" in outcome.err
    assert not list(Path("workspace/graphs").glob("papers/*"))


def test_a_run_that_has_not_finished_its_training(graphbox: Call, finished_folder: Path) -> None:
    assert graphbox("run", "run.yaml", "models.sage.dim=12", "--json", "-q").code == 0
    workspace = Workspace("workspace")
    workspace.update_stage("papers-2", "train", {"state": "interrupted"}, state="interrupted")
    outcome = graphbox("run", "run.yaml", "models.sage.start_from=papers-2", "-q")
    assert outcome.code == 2
    assert "expected a run that has finished its training, received papers-2" in outcome.err
    assert "graphbox runs resume papers-2" in outcome.err


def test_check_looks_earlier_runs_up(graphbox: Call, finished_folder: Path) -> None:
    assert graphbox("check", "run.yaml", *START).code == 0
    outcome = graphbox("check", "run.yaml", "models.sage.start_from=paper")
    assert outcome.code == 2
    assert "models.sage.start_from" in outcome.err
    assert "expected an earlier run, received `paper`" in outcome.err


def test_mistakes_in_the_run_file(graphbox: Call, folder: Path) -> None:
    outcome = graphbox("check", "run.yaml", "models.sage.start_from=a b")
    assert outcome.code == 2
    assert "expected RUN, RUN/MODEL, or a folder that begins with `/`, `./` or `../`" in outcome.err
