"""A graph that lives: commands in random order, kills between, and what must hold after each.

Every command works, or refuses and changes nothing; no run changes by being read; nothing that was forgotten
is in any byte of the workspace, and nothing of it comes back.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from benchmarks.byte_search import ByteSearch
from graphbox.cli.app import main
from graphbox.errors import NotFoundError
from graphbox.graph import Graph
from graphbox.server.repository import Repository
from graphbox.workspace import RunRecord, Workspace

ITEMS = 12
RUN_FILE = """\
version: 1
name: town
threads: 1
graph:
  name: town
  nodes: {person: {}, item: {}}
  edges: [{type: [person, bought, item], path: bought.parquet}]
tasks:
  items: {kind: recommend, node_type: person, target_type: item, relations: [bought], k: 3, baselines: []}
models:
  light: {kind: lightgcn, task: items, dim: 8, epochs: 1, batch_size: 32, candidates: 8}
export:
  town-items: {model: light, promote: if_better}
compress:
  town-items: {max_drop: 1.0}
"""
READS = (["describe", "town"], ["runs"], ["models"], ["graphs"], ["runs", "show", "last"])
USAGE_OR_REFUSED = {1, 2, 3, 4, 6}


class Life(RuleBasedStateMachine):
    """One workspace, and what must be true of it."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="graphbox-life-"))
        self.people = [f"person-{number:04d}-of-town" for number in range(80)]
        self.forgotten: set[str] = set()
        self.removed: set[str] = set()
        self.appended = 0
        self.step = 0
        generator = np.random.default_rng(0)
        pairs = [(person, item) for person in self.people for item in generator.choice(ITEMS, 5, False)]
        self.write_table("bought.parquet", [(person, f"item-{item}") for person, item in pairs])
        (self.folder / "run.yaml").write_text(RUN_FILE)
        self.known: dict[str, tuple[RunRecord, dict[str, int]]] = {}
        assert self.call("run", str(self.folder / "run.yaml"), "-q") == 0
        self.remember()

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "folder", "/nowhere"), ignore_errors=True)

    # Commands

    @rule(number=st.integers(0, 3))
    def append(self, number: int) -> None:
        self.appended += 1
        newcomer = f"newcomer-{self.appended:04d}-of-town"
        here = [person for person in self.people if person not in self.forgotten | self.removed][:number]
        self.write_table("new.parquet", [(person, "item-1") for person in (newcomer, *here)])
        edge_type = "person,bought,item"
        code = self.call("import", "--append", self.table("new"), "--name", "town", "--type", edge_type, "-q")
        assert code == 0, self.said
        self.people.append(newcomer)

    @rule(index=st.integers(0, 1000))
    def remove(self, index: int) -> None:
        person = self.someone(index)
        code = self.call("import", "--remove", "--name", "town", "--node", "person", person, "-q")
        assert code == 0, self.said
        self.removed.add(person)

    @rule()
    def compact(self) -> None:
        assert self.call("compact", "town", "-q") == 0, self.said

    @rule()
    def train(self) -> None:
        assert self.call("run", str(self.folder / "run.yaml"), "-q") == 0, self.said
        self.remember()

    @rule()
    def evaluate(self) -> None:
        self.works_or_refuses("eval", "last", "tasks.items.k=2", "-q")
        self.remember()

    @rule()
    def export(self) -> None:
        self.works_or_refuses("export", "last", "-q")
        self.remember()

    @rule()
    def compress(self) -> None:
        self.works_or_refuses("compress", "town-items", "--max-drop", "1", "-q")

    @rule(index=st.integers(0, 1000))
    def promote(self, index: int) -> None:
        with self.workspace() as workspace:
            versions = [record.version for record in workspace.models("town-items")]
        chosen = versions[index % len(versions)]
        assert self.call("models", "promote", "town-items", "--version", str(chosen), "-q") == 0, self.said

    @rule(indices=st.lists(st.integers(0, 1000), min_size=1, max_size=2))
    def forget(self, indices: list[int]) -> None:
        people = sorted({self.someone(index) for index in indices})
        assert self.call("forget", "town", "--node", "person", *people, "-q") == 0, self.said
        self.forgotten |= {*people}
        self.remember()

    @rule(reads=st.sampled_from(READS))
    def read(self, reads: Sequence[str]) -> None:
        assert self.call(*reads) == 0, self.said

    @rule(index=st.integers(0, 1000))
    def look_at_neighbors(self, index: int) -> None:
        code = self.call("embed", "neighbors", "last", self.someone(index), "--type", "person")
        assert code in (0, 2), self.said

    @rule()
    def serve(self) -> None:
        with self.workspace() as workspace:
            repository = Repository(workspace)
            repository.preload()
            assert repository.readiness().ready
            with repository.use("town-items") as served:
                here = [str(each) for each in served.artifact.ids("person")]
                served.encoder.neighbors(here[:2], 3, node_type="person")
                for person in sorted(self.forgotten):
                    with pytest.raises(NotFoundError):
                        served.encoder.encode([person], "person")
            repository.close()

    # Kills

    @rule(step=st.integers(1, 60), index=st.integers(0, 1000))
    def killed_while_forgetting(self, step: int, index: int) -> None:
        person = self.someone(index)
        arguments = ("forget", "town", "--node", "person", person, "-q")
        self.killed(step, *arguments)
        if self.call("forget", "--resume", "-q") == 0 and self.holds(person):
            assert self.call(*arguments) == 0, self.said  # killed before it had begun
        self.forgotten.add(person)
        self.remember()

    @rule(step=st.integers(1, 40), which=st.sampled_from(["run", "eval", "compact", "append", "compress"]))
    def killed_in_a_command(self, step: int, which: str) -> None:
        self.write_table("late.parquet", [(self.someone(step), "item-2")])
        options = ("--name", "town", "--type", "person,bought,item", "-q")
        arguments = {
            "run": ("run", str(self.folder / "run.yaml"), "-q"),
            "eval": ("eval", "last", "tasks.items.k=1", "-q"),
            "compact": ("compact", "town", "-q"),
            "append": ("import", "--append", self.table("late"), *options),
            "compress": ("compress", "town-items", "--max-drop", "1", "-q"),
        }[which]
        self.killed(step, *arguments)
        if which == "run":
            self.works_or_refuses(*arguments)  # resumes, or is a run of what the graph is now
        self.remember()

    # What must hold

    @invariant()
    def nothing_forgotten_is_left(self) -> None:
        if getattr(self, "forgotten", None):
            search = ByteSearch({person.encode(): person for person in self.forgotten})
            assert search.below(self.folder / "workspace") == {}

    @invariant()
    @precondition(lambda self: hasattr(self, "known"))
    def runs_are_as_they_were(self) -> None:
        assert self.runs() == self.known

    @invariant()
    @precondition(lambda self: hasattr(self, "known"))
    def the_graph_has_who_is_left(self) -> None:
        graph = Graph.open(self.folder / "workspace" / "graphs" / "town")
        gone = sorted(self.forgotten | self.removed)
        here = [person for person in self.people if person not in gone]
        assert (graph.index("person", here, missing=-1) >= 0).all()
        assert (graph.index("person", gone, missing=-1) < 0).all()

    # Details

    def call(self, *arguments: str) -> int:
        """Run a command in this process; what it says is kept in ``said``."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["-C", str(self.folder / "workspace"), *arguments])
        self.said = f"{arguments}: {code}\n{out.getvalue()}\n{err.getvalue()}"
        assert "fault of graphbox" not in err.getvalue(), self.said
        return code

    def works_or_refuses(self, *arguments: str) -> None:
        before = self.runs()
        code = self.call(*arguments)
        assert code == 0 or code in USAGE_OR_REFUSED, self.said
        if code != 0:
            assert self.runs() == before, self.said

    def killed(self, step: int, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.killed_at_a_step", str(step)]
        ended = subprocess.run(
            [*command, "-C", str(self.folder / "workspace"), *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode in (0, -signal.SIGKILL, *USAGE_OR_REFUSED), ended.stderr
        assert "fault of graphbox" not in ended.stderr, ended.stderr

    def someone(self, index: int) -> str:
        here = [person for person in self.people if person not in self.forgotten | self.removed]
        return here[index % len(here)]

    def holds(self, person: str) -> bool:
        return bool(ByteSearch({person.encode(): person}).below(self.folder / "workspace"))

    def workspace(self) -> Workspace:
        return Workspace(self.folder / "workspace", create=False)

    def runs(self) -> dict[str, tuple[RunRecord, dict[str, int]]]:
        """Return the records of all runs, and when each of their files was written."""
        with self.workspace() as workspace:
            return {run.id: (run, _files(run.path)) for run in workspace.runs()}

    def remember(self) -> None:
        self.known = self.runs()

    def table(self, name: str) -> str:
        return str(self.folder / f"{name}.parquet")

    def write_table(self, name: str, rows: Sequence[tuple[str, Any]]) -> None:
        sources, targets = zip(*rows, strict=True)
        pq.write_table(pa.table({"source": sources, "target": targets}), self.folder / name)


def _files(folder: Path) -> dict[str, int]:
    """Return the time of change of each file of a run but its lock and the sign that it lives."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(("lock", "heartbeat"))
    }


CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@pytest.mark.parametrize(
    ("examples", "steps"), [(2, 12), pytest.param(30, 25, marks=pytest.mark.stress)], ids=["short", "long"]
)
def test_life(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=CHECKS,
            print_blob=True,
        ),
    )
