"""A kind of model of another package, installed: checked, planned, trained, evaluated and exported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.installed_package import install

KIND = '''
"""Random projections that are smoothed over the graph (FastRP, Chen et al., CIKM 2019)."""

from typing import Literal

from graphbox.config import ModelKind, ModelSection


class FastRPConfig(ModelSection):
    """Random projections, smoothed over the graph."""

    kind: Literal["fastrp"]
    """Kind of model."""
    dim: int = 16
    """Length of an embedding."""
    edge_type: tuple[str, str, str]
    """Edges to smooth over."""
    steps: int = 3
    """Steps over the edges."""


kind = ModelKind(
    FastRPConfig, "fastrp.training:FastRPTrainer", footprint="fastrp.training:FastRPFootprint"
)
'''

TRAINING = '''
import numpy as np
import torch

from graphbox.train import TrainedModel, Trainer
from graphbox.train.plan.footprint import Demand, Footprint


class FastRPTrainer(Trainer):
    """One step over all edges is an epoch of one batch."""

    def __init__(self, config, assignment):
        self.config = config
        self.epochs_done = 0
        source, _, target = config.edge_type
        csc = assignment.view.csc(config.edge_type)
        self.node_type = target
        self.edges = np.repeat(np.arange(len(csc.indptr) - 1), np.diff(csc.indptr)), np.array(csc.indices)
        generator = np.random.default_rng(assignment.seed)
        shape = assignment.view.num_nodes(target), config.dim
        self.step = torch.from_numpy(generator.standard_normal(shape, np.float32))
        self.sum = torch.zeros(shape)

    @property
    def epochs(self):
        return self.config.steps

    def begin_epoch(self, epoch):
        return 1

    def train_batch(self, epoch, batch):
        target, source = (torch.from_numpy(each) for each in self.edges)
        smooth = torch.zeros_like(self.step).index_add_(0, target, self.step[source])
        self.step = torch.nn.functional.normalize(smooth)
        self.sum = self.sum + self.step
        return float((self.step - self.sum).square().mean()), len(target)

    def dense(self):
        return {"step": self.step, "sum": self.sum}

    def tables(self):
        return {}

    def restore(self, dense, tables):
        self.step, self.sum = dense["step"], dense["sum"]

    def trained(self, name, view):
        vectors = {self.node_type: self.sum.numpy()}
        return TrainedModel(name, "embedding", self.config.task, self.node_type, vectors)


class FastRPFootprint(Footprint):
    def demand(self):
        source, _, target = self.model.edge_type
        return Demand(4.0 * 4 * self.model.dim * self.counts.nodes[target], 32.0 * self.edges_of(()))

    def device_bytes(self):
        return self.device_bytes_of(0.0)

    def parts(self, degrees):
        return []
'''

RUN_FILE = """\
version: 1
name: papers
threads: 1
seed: 5
graph:
  name: papers
  nodes: {paper: {path: paper.csv, features: {field: categorical}}}
  edges: [{type: [paper, cites, paper], path: cites.csv, reverse: cited_by}]
tasks:
  field: {kind: classify, node_type: paper, label: field}
models:
  projected: {kind: fastrp, task: field, edge_type: [paper, cites, paper]}
export:
  papers: {model: projected}
"""

TRAIN = """
import sys
import graphbox
report = graphbox.run("run.yaml", ["models.projected.dim=8"], "from_python")
print(report.metrics["field"]["projected"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a run file and its tables, and the package in ``packages``."""
    papers = "".join(f"p{number},{'abc'[number % 3]}\n" for number in range(60))
    cites = "".join(f"p{number},p{(number + 3 * step) % 60}\n" for number in range(60) for step in (1, 2, 4))
    (tmp_path / "paper.csv").write_text("id,field\n" + papers)
    (tmp_path / "cites.csv").write_text("source,target\n" + cites)
    (tmp_path / "run.yaml").write_text(RUN_FILE)
    files = {"fastrp/__init__.py": "", "fastrp/kinds.py": KIND, "fastrp/training.py": TRAINING}
    install(tmp_path / "packages", "fastrp", files, {"graphbox.models": {"fastrp": "fastrp.kinds:kind"}})
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the folder, with the package on its path."""
    environment = os.environ | {"PYTHONPATH": str(folder / "packages"), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.slow
def test_it_is_a_kind_like_those_of_graphbox(folder: Path) -> None:
    done = python(folder, "-m", "graphbox", "check", "run.yaml", "models.projected.step=2")
    assert done.returncode == 2
    assert "did you mean `steps`?" in done.stderr
    done = python(folder, "-m", "graphbox", "plan", "run.yaml", "--json")
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)["training"]["projected"]
    assert (planned["kind"], planned["nodes_bytes"]) == ("fastrp", 4 * 4 * 16 * 60)
    done = python(folder, "-m", "graphbox", "run", "run.yaml", "--json", "-q")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["training"]["projected"]["epochs"] == 3
    (vectors,) = (folder / "workspace" / "runs").rglob("embeddings/projected/**/*.npy")
    assert np.load(vectors).shape == (60, 16)
    done = python(folder, "-c", TRAIN)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout


@pytest.mark.slow
def test_a_trainer_with_a_mistake_names_its_line(folder: Path) -> None:
    source = folder / "packages" / "fastrp" / "training.py"
    source.write_text("import no_such_library\n" + source.read_text())
    done = python(folder, "-m", "graphbox", "run", "run.yaml", "-q")
    assert done.returncode == 5, done.stderr
    assert f"error: {source}:1: expected to import the trainer of the kind of model `fastrp`" in done.stderr
    assert "received ModuleNotFoundError: No module named 'no_such_library'" in done.stderr
