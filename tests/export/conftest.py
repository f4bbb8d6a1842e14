"""A small two-tower model with random weights, and its export."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch

from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.export import ExportResult, NewVersion, export_encoder
from graphbox.models.sage import TwoTowerSAGE

Float = npt.NDArray[np.float32]
COUNTS = {"package": 1500, "source": 400, "tag": 30}
DIM = 16
# The order mixes source types, so that grouping them has to permute the columns of the Linear layer.
RELATIONS = [
    ("package", "depends", "package"),
    ("source", "builds", "package"),
    ("package", "depended_on_by", "package"),
    ("tag", "tags", "package"),
    *[("package", f"relation_{number}", "package") for number in range(4)],
]


@dataclass(frozen=True, eq=False)
class RandomEncoder:
    """Result of a training, with random numbers."""

    model: TwoTowerSAGE
    inputs: dict[str, Float]
    neighbors: dict[Any, npt.NDArray[np.int32]]
    target: Float


def make_encoder(seed: int = 0) -> RandomEncoder:
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    neighbors = {}
    for number, relation in enumerate(RELATIONS):
        fan_out = 1 if relation[0] == "source" else 3 + number
        table = random.integers(0, COUNTS[relation[0]], (COUNTS["package"], fan_out), dtype=np.int32)
        table[random.random(table.shape) < 0.6] = -1
        table[:5] = -1
        neighbors[relation] = table
    inputs = {name: random.standard_normal((count, DIM), np.float32) for name, count in COUNTS.items()}
    target = random.standard_normal((COUNTS["package"], DIM), np.float32)
    model = TwoTowerSAGE("package", RELATIONS, DIM, {}).eval()
    return RandomEncoder(model, inputs, neighbors, target)


def make_ids() -> dict[str, pa.Array]:
    return {name: pa.array([f"{name}-{number}" for number in range(count)]) for name, count in COUNTS.items()}


@pytest.fixture(scope="session")
def trained() -> RandomEncoder:
    return make_encoder()


@pytest.fixture(scope="session")
def exported(trained: RandomEncoder, tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    path = tmp_path_factory.mktemp("models") / "sage" / "1"
    metrics = {"companion": {"recall@20": 0.4}}
    return export_encoder(trained, make_ids(), NewVersion(path, "sage", 1, "companion", metrics))


@pytest.fixture(scope="session")
def deployed(exported: ExportResult) -> Iterator[DeployedEncoder]:
    with open_encoder(exported.artifact.path) as model:
        yield model


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"
