"""A small run file with its tables, and the command line called as a user calls it."""

from __future__ import annotations

import io
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphbox.cli.app import main

RUN_FILE = """\
version: 1
name: papers
threads: 1
graph:
  name: papers
  nodes:
    paper: {path: paper.csv, features: {field: categorical, year: number}}
    author: {path: author.csv}
  edges:
    - {type: [paper, cites, paper], path: cites.csv, reverse: cited_by}
    - {type: [author, writes, paper], path: writes.csv, reverse: written_by}
tasks:
  field:
    kind: classify
    node_type: paper
    label: field
  cite:
    kind: recommend
    node_type: paper
    relations: [cites]
    category: field
    k: 5
models:
  walk:
    kind: metapath2vec
    task: field
    dim: 8
    metapaths:
      - [[paper, written_by, author], [author, writes, paper]]
  sage:
    kind: sage
    task: cite
    dim: 8
    epochs: 4
    batch_size: 16
    candidates: 32
    features: [year]
export:
  citer: {model: sage}
  walker: {model: walk}
compress:
  citer: {max_drop: 0.2}
bench:
  batch_sizes: [1, 8]
  seconds: 0.1
"""


@dataclass(frozen=True)
class Outcome:
    """Result of a call of the command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Outcome]


def call_main(arguments: Sequence[str | Path]) -> Outcome:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    # The handler of this call writes into a stream that is gone.
    logging.getLogger().handlers.clear()
    return Outcome(code, out.getvalue(), err.getvalue())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the small run file and its tables, as the working directory."""
    write_tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAPHBOX_WORKSPACE", raising=False)
    return tmp_path


@pytest.fixture
def graphbox(folder: Path) -> Call:
    """Call the command line in ``folder``."""

    def call(*arguments: str | Path) -> Outcome:
        return call_main(arguments)

    return call


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small run file, its tables, and the workspace of its finished run."""
    folder = tmp_path_factory.mktemp("finished")
    write_tables(folder)
    outcome = call_main(["-C", folder / "workspace", "run", folder / "run.yaml", "--json", "-q"])
    assert outcome.code == 0, outcome.err
    (folder / "report.json").write_text(outcome.out)
    return folder


@pytest.fixture
def finished_folder(finished: Path, folder: Path) -> Path:
    """A copy of it as the working directory; times of change are kept, so the import stays valid."""
    shutil.copytree(finished / "workspace", folder / "workspace")
    return folder


def write_tables(folder: Path) -> None:
    """Write the run file and its four tables: 60 papers in 3 fields by 30 authors, citing within a field."""
    fields = ["logic", "optics", "botany"]
    papers = [f"p{number},{fields[number % 3]},{1990 + number % 30}" for number in range(60)]
    cites = [f"p{number},p{(number + 3 * step) % 60}" for number in range(60) for step in (1, 2, 4)]
    writes = [
        f"a{number % 3 + 3 * ((number + shift) % 10)},p{number}" for number in range(60) for shift in (0, 1)
    ]
    tables = {
        "paper.csv": ["id,field,year", *papers],
        "author.csv": ["id", *(f"a{number}" for number in range(30))],
        "cites.csv": ["source,target", *cites],
        "writes.csv": ["source,target", *writes],
    }
    for name, lines in tables.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "run.yaml").write_text(RUN_FILE)
