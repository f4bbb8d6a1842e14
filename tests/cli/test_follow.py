"""`graphbox train --follow`: what a user sees of a stream."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from graphbox.table import PublishedTables
from tests.cli.conftest import Call, call_main
from tests.train.purchases import RUN_FILE, write_day


@pytest.fixture
def shop(folder: Path) -> Path:
    """The working directory, with the run file of a shop and an empty folder for its purchases."""
    (folder / "shop.yaml").write_text(RUN_FILE)
    (folder / "in").mkdir()
    return folder


FOLLOW = ["train", "shop.yaml", "--follow", "in"]


def test_one_attempt_after_the_other(shop: Path, graphbox: Call) -> None:
    for day in range(2):
        write_day(shop / "in", day)
    first = graphbox(*FOLLOW, "--once", "--json")
    assert first.code == 0, first.err
    assert [chunk["name"] for chunk in first.json["chunks"]] == ["20261101", "20261102"]
    assert "no more chunks: ends instead of waiting for a chunk after 20261102" in first.err

    write_day(shop / "in", 2)
    # What only says how it is followed may change from attempt to attempt.
    second = graphbox(*FOLLOW, "--until-idle", "0", "--json", "stream.poll_seconds=0.5")
    assert second.code == 0, second.err
    document = second.json
    assert document["run"] == first.json["run"] == "shop-1"
    assert [chunk["name"] for chunk in document["chunks"]] == ["20261101", "20261102", "20261103"]
    assert document["chunks"][:2] == first.json["chunks"]
    assert "learnt 1 chunk, 3 in all" in second.err
    assert [stage["name"] for stage in document["stages"]] == ["follow"]

    shown = graphbox("runs", "show", "last")
    assert "Chunks, each scored before it was learnt" in shown.out
    assert "AUC so far" in shown.out
    assert graphbox("runs", "show", "last", "--json").json["chunks"] == document["chunks"]
    assert "shop" in graphbox("describe", "shop").out
    published = PublishedTables.open(shop / "workspace" / "runs" / "shop-1" / "serving")
    assert (published.number, published.name) == (2, "20261103")

    exported = graphbox("embed", "export", "last", "--format", "npy", "-o", shop / "exported")
    assert exported.code == 0, exported.err
    run_guide(published_in=shop / "workspace" / "runs" / "shop-1" / "serving")

    write_day(shop / "in", 3)
    resumed = graphbox("runs", "resume", "shop-1", "--json")
    assert resumed.code == 0, resumed.err
    assert len(resumed.json["chunks"]) == 4


def run_guide(published_in: Path) -> None:
    """Run the code of docs/guides/streams.md."""
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "streams.md"
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    code = blocks[0].replace("/srv/shop", str(published_in))
    exec(compile(code, str(guide), "exec"), {})  # noqa: S102  # the project's own page


def test_the_run_file_of_the_guide_is_right(shop: Path, graphbox: Call) -> None:
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "streams.md"
    blocks = re.findall(r"\n\n((?:    .*\n)+)", guide.read_text(encoding="utf-8"))
    run_file, settings = (
        next(textwrap.dedent(block) for block in blocks if block.startswith(f"    {key}:"))
        for key in ("version", "stream")
    )
    (shop / "guide.yaml").write_text(run_file + settings)
    write_day(shop / "in", 0)
    checked = graphbox(
        "train", "guide.yaml", "--follow", "in", "--once", "stream.chunks=2*", "stream.output=out"
    )
    assert "expected a chunk to begin with" in checked.err  # its markers are others
    (shop / "in" / "20261101" / "to.hadoop.done").touch()
    done = graphbox(
        "train", "guide.yaml", "--follow", "in", "--once", "stream.chunks=2*", "stream.output=out"
    )
    assert done.code == 0, done.err
    assert PublishedTables.open(shop / "out").name == "20261101"


def test_mistakes_are_said_before_anything_begins(shop: Path, graphbox: Call) -> None:
    alone = graphbox("train", "shop.yaml", "--once")
    assert alone.code == 2
    assert "expected --follow with --once" in alone.err
    nothing = graphbox(*FOLLOW, "--once")
    assert nothing.code != 0
    assert "expected a chunk to begin with, received none" in nothing.err
    nowhere = graphbox("train", "shop.yaml", "--follow", "elsewhere", "--once", "graph.name=none")
    assert nowhere.code == 2
    assert "stream.folder: expected a folder in which chunks appear" in nowhere.err
    url = graphbox("train", "shop.yaml", "stream.folder=s3://bucket/in")
    assert "stream.folder: expected a folder of this machine, received the URL s3://bucket/in" in url.err
    assert len(graphbox("runs", "--json").json) == 1, "only what could begin made a run"
    both = graphbox(*FOLLOW, "--once", "stream.keep_chunks=3", "stream.keep_days=3")
    assert both.code == 2
    assert "expected `keep_chunks` or `keep_days`, received both" in both.err


def test_a_run_file_is_checked_before_a_stream_is_there(shop: Path, graphbox: Call) -> None:
    assert "expected a file" in graphbox("check", "shop.yaml").err, "nothing says that tables come later"
    checked = graphbox("check", "shop.yaml", "stream.keep_chunks=3")
    assert checked.code == 0, checked.err
    assert "its tables come with chunks: `graphbox train shop.yaml --follow DIR`" in checked.out
    for alone in ("plan", "train", "run"):
        refused = graphbox(alone, "shop.yaml", "stream.keep_chunks=3")
        assert refused.code == 2
        assert (
            "the tables of a stream come with its chunks: `graphbox train shop.yaml --follow" in refused.err
        )
    wrong = graphbox("check", "shop.yaml", "stream.keep_chunks=0")
    assert "stream.keep_chunks" in wrong.err


def test_what_a_stream_has_no_stage_for_is_told(shop: Path, graphbox: Call) -> None:
    write_day(shop / "in", 0)
    assert graphbox(*FOLLOW, "--once", "-q").code == 0
    refused = graphbox("eval", "last")
    assert refused.code == 2
    assert "the run follows a stream: `graphbox runs show`" in refused.err


def test_models_that_do_not_learn_from_streams_are_refused(shop: Path, graphbox: Call) -> None:
    write_day(shop / "in", 0)
    kind = graphbox(*FOLLOW, "--once", "models.rows={kind: lightgcn, task: next}", "graph.name=other")
    assert kind.code == 2
    assert "received `lightgcn`, which learns from a whole graph" in kind.err
    assert "matrix_factorization" in kind.err
    two = graphbox(*FOLLOW, "--once", "models.more={kind: matrix_factorization, task: next}")
    assert two.code == 2
    assert "expected one model that learns from the stream, received 2 models" in two.err


def test_another_run_does_not_take_the_graph_of_a_stream(shop: Path, graphbox: Call) -> None:
    write_day(shop / "in", 0)
    assert graphbox(*FOLLOW, "--once").code == 0
    other = graphbox(*FOLLOW, "--once", "seed=4")
    assert other.code == 1
    assert "received one with that of shop-1" in other.err
    assert "graphbox runs resume shop-1" in other.err
    assert graphbox(*FOLLOW, "--once", "seed=4", "graph.name=again").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.stress)])
def test_stopped_while_it_waits(shop: Path, number: signal.Signals) -> None:
    write_day(shop / "in", 0)
    write_day(shop / "in", 1, marker=None)
    command = [sys.executable, "-m", "graphbox", *FOLLOW]
    process = subprocess.Popen(command, cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sign = shop / "workspace" / "runs" / "shop-1" / "heartbeat.json"
    deadline = time.monotonic() + 120
    while not (sign.exists() and "wait for a marker in it" in sign.read_text()):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "the first chunk was not learnt in time"
        time.sleep(0.02)
    assert "chunk 20261102" in json.loads(sign.read_text())["stage"]
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75
    assert "`graphbox runs resume shop-1`, resumes from there" in err
    state = call_main(["runs", "show", "last", "--json"]).json
    assert (state["state"], len(state["chunks"])) == ("interrupted", 1)
    (shop / "in" / "20261102" / "done").touch()
    document = call_main([*FOLLOW, "--once", "--json"]).json
    assert [chunk["name"] for chunk in document["chunks"]] == ["20261101", "20261102"]
