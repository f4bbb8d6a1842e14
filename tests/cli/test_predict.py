"""`graphbox predict`: rows of a table in, probabilities out; what cannot be read is said where it is."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.artifact import Artifact
from graphbox.pipeline.artifacts import register
from graphbox.workspace import Workspace
from tests.cli.conftest import Call

FORMATS = Path(__file__).parents[1] / "formats" / "artifact-1"
EXPECTED = json.loads((FORMATS / "expected.json").read_text())["click/1"]
COLUMNS = ("user", "item", "tags", "price", "hour", "fresh", "look")


@pytest.fixture
def log(folder: Path) -> Path:
    """A workspace with a model of clicks, and rows with the names of impressions as CSV and Parquet."""
    add_model(folder, "click", "click")
    rows = [{"seen": f"s{number}", **row} for number, row in enumerate(EXPECTED["rows"])]
    pq.write_table(pa.Table.from_pylist(rows), folder / "log.parquet")
    write_csv(folder / "log.csv", rows)
    return folder


def add_model(folder: Path, kind: str, name: str) -> None:
    with Workspace(folder / "workspace") as workspace:
        version, path = workspace.new_model_path(name)
        assert version == 1
        shutil.copytree(FORMATS / kind / "1", path)
        register(workspace, Artifact.open(path), run_id=None, measured=None)


def write_csv(path: Path, rows: list[dict[str, Any]], names: tuple[str, ...] = ("seen", *COLUMNS)) -> None:
    def text(value: Any) -> str:
        if isinstance(value, list):
            return "|".join(map(str, value))
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows([text(row[name]) for name in names] for row in rows)


@pytest.mark.parametrize("table", ["log.parquet", "log.csv"])
def test_rows_of_a_table_have_the_probabilities_of_the_model(log: Path, graphbox: Call, table: str) -> None:
    outcome = graphbox("predict", "click", "--input", table, "--id", "seen", "--json")
    assert outcome.code == 0, outcome.err
    answer = outcome.json
    assert (answer["model"], answer["version"], answer["rows"]) == ("click", 1, len(EXPECTED["rows"]))
    assert [each["row"] for each in answer["predictions"]] == list(range(answer["rows"]))
    assert [each["seen"] for each in answer["predictions"]] == [f"s{row}" for row in range(answer["rows"])]
    found = [each["probability"] for each in answer["predictions"]]
    assert found == pytest.approx(EXPECTED["probabilities"], abs=1e-5)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv"])
def test_predictions_are_written_whole(log: Path, graphbox: Call, suffix: str) -> None:
    path = log / f"out{suffix}"
    outcome = graphbox("predict", "click", "-i", "log.parquet", "--id", "seen", "-o", path)
    assert outcome.code == 0, outcome.err
    assert f"{len(EXPECTED['rows'])} rows" in outcome.out
    if suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    else:
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t" if suffix == ".tsv" else ","))
    assert list(rows[0]) == ["row", "seen", "probability"]
    assert [float(row["probability"]) for row in rows] == pytest.approx(EXPECTED["probabilities"], abs=1e-5)
    assert not list(log.glob(".out*"))


def test_a_missing_column_is_named(log: Path, graphbox: Call) -> None:
    write_csv(log / "log.csv", EXPECTED["rows"], tuple(name for name in COLUMNS if name != "price"))
    outcome = graphbox("predict", "click", "-i", "log.csv", "-o", "out.csv")
    assert outcome.code != 0
    assert "expected a column `price`" in outcome.err
    assert "log.csv" in outcome.err
    assert not [path for path in log.iterdir() if "out" in path.name]


def test_a_value_that_cannot_be_read_is_told_by_line_and_column(log: Path, graphbox: Call) -> None:
    rows = [dict(row) for row in EXPECTED["rows"]]
    rows[3]["hour"] = "seven"
    write_csv(log / "log.csv", rows, COLUMNS)
    outcome = graphbox("predict", "click", "-i", "log.csv", "-o", "out.parquet")
    assert outcome.code != 0
    assert "received 'seven'" in outcome.err
    assert "log.csv:5, column `hour`" in outcome.err  # after the header, and three rows
    assert "Traceback" not in outcome.err
    assert not [path for path in log.iterdir() if "out" in path.name]


def test_a_row_with_too_many_cells_is_told_by_its_line(log: Path, graphbox: Call) -> None:
    lines = (log / "log.csv").read_text().splitlines()
    lines[4] += ",more"
    (log / "log.csv").write_text("\n".join(lines) + "\n")
    outcome = graphbox("predict", "click", "-i", "log.csv")
    assert outcome.code != 0
    assert "log.csv:5" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("click", "-i", "log.csv", "-o", "out.json"), "expected a file called *.parquet, *.csv, *.tsv"),
        (("click", "-i", "log.csv", "--model", "fm"), "expected a model of a run"),
        (("click", "-i", "log.csv", "--version", "7"), "7"),
        (("clicks", "-i", "log.csv"), "clicks"),
        (("click", "-i", "none.csv"), "none.csv"),
        (("click", "-i", "log.csv", "--id", "sene"), "sene"),
        (("click", "-i", "log.csv", "-o", "nowhere/out.csv"), "there is none at nowhere"),
    ],
)
def test_mistakes_are_said(log: Path, graphbox: Call, arguments: tuple[str, ...], message: str) -> None:
    assert log.is_dir()
    outcome = graphbox("predict", *arguments)
    assert outcome.code != 0, outcome.out
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_a_model_of_vectors_predicts_no_rows(log: Path, graphbox: Call) -> None:
    name = Artifact.open(FORMATS / "embedding" / "1").manifest.name
    add_model(log, "embedding", name)
    outcome = graphbox("predict", name, "-i", "log.csv")
    assert outcome.code != 0
    assert "kind embedding" in outcome.err


SEPARATED = """\
version: 1
name: log
threads: 1
graph:
  name: log
  nodes:
    row:
      path: log.csv
      id: null
      list_separator: ";"
      features: {clicked: boolean, tags: slots, look: vector}
tasks:
  click: {kind: click, node_type: row, label: clicked, baselines: [prior]}
models:
  fm: {kind: deepfm, task: click, epochs: 2, dim: 4, hidden: [8]}
export:
  log-fm: {model: fm, parity_rows: 20}
bench: {seconds: 0.01, batch_sizes: [1]}
"""


def test_lists_are_read_with_the_separator_of_the_table_that_was_learnt_from(
    folder: Path, graphbox: Call
) -> None:
    rows: list[dict[str, Any]] = [
        {
            "clicked": str(row % 3 == 0).lower(),
            "tags": [f"t{row % 3}", f"t{row % 7 + 3}"],
            "look": [row % 3, 0.5],
        }
        for row in range(300)
    ]
    for name, separator in (("log.csv", ";"), ("piped.csv", "|")):
        lines = [
            ",".join([each["clicked"], *(separator.join(map(str, each[key])) for key in ("tags", "look"))])
            for each in rows
        ]
        (folder / name).write_text("\n".join(["clicked,tags,look", *lines]) + "\n")
    pq.write_table(pa.Table.from_pylist(rows), folder / "log.parquet")
    (folder / "run.yaml").write_text(SEPARATED)
    outcome = graphbox("run", "run.yaml", "-q")
    assert outcome.code == 0, outcome.err
    found = {}
    for model in ("last", "log-fm"):
        for table in ("log.csv", "log.parquet"):
            outcome = graphbox("predict", model, "-i", table, "--json")
            assert outcome.code == 0, outcome.err
            found[model, table] = [each["probability"] for each in outcome.json["predictions"]]
        # As one value of another length than was learnt from, not as values that nobody knows.
        wrong = graphbox("predict", model, "-i", "piped.csv")
        assert wrong.code == 4, wrong.out
    expected = found["last", "log.parquet"]
    assert max(expected) - min(expected) > 0.01
    for probabilities in found.values():
        assert probabilities == pytest.approx(expected, abs=1e-4)
    # A run is used without its graph: its rows alone are read.
    assert graphbox("graphs", "rm", "log", "-q").code == 0
    assert graphbox("predict", "last", "-i", "log.csv", "-q").code == 0
