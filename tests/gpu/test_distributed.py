"""Several GPUs: what goes through NCCL, and tables divided among processes with a GPU each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.table.distributed_processes import Processes

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes("tests.table.distributed_checks") as started:
        yield started


def need_gpus(count: int) -> None:
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if there < count:
        pytest.skip(f"this needs {count} CUDA devices, there {'is 1' if there == 1 else f'are {there}'}")
    if not torch.distributed.is_nccl_available():
        pytest.skip("this PyTorch has no NCCL")


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("check", ["tensors_on_gpus", "rows_for_gpus", "rows_of_device_tables"])
def test_processes_with_a_gpu_each(processes: Processes, tmp_path: Path, check: str, size: int) -> None:
    need_gpus(size)
    processes.run(check, size, tmp_path, device="cuda")


@pytest.mark.parametrize("repeated", [False, True])
def test_rows_are_those_of_one_process(processes: Processes, tmp_path: Path, repeated: bool) -> None:
    need_gpus(2)
    processes.run("rows_are_those_of_one_process", 2, tmp_path, device="cuda", repeated=repeated)


def test_a_process_that_is_killed_ends_the_other(processes: Processes, tmp_path: Path) -> None:
    need_gpus(2)
    other, killed = processes.outcomes("dies_on_a_gpu", 2, tmp_path, device="cuda")
    assert killed == {"code": "died"}
    assert other["error"] == "ProcessLostError", other


def test_a_training_on_two_gpus_ends_as_on_one(tmp_path: Path) -> None:
    need_gpus(2)
    for package in ("pydantic", "pyarrow", "torch_geometric", "safetensors"):
        pytest.importorskip(package)
    from graphbox.config import ClassifyTaskConfig, GraphNetworkConfig
    from graphbox.train import fit, make_split
    from tests.train.conftest import build_graph

    graph = build_graph(tmp_path / "small")
    task = ClassifyTaskConfig(
        kind="classify", node_type="item", label="topic", group=("item", "part_of", "group")
    )
    config = GraphNetworkConfig(
        kind="gnn",
        task="topic",
        dim=8,
        num_neighbors=(1000, 1000),
        features={"item": ("size", "kept")},
        embeddings=("item", "tag", "group"),
        batch_size=50,
        epochs=2,
        dropout=0.0,
        patience=None,
    )

    def trained(processes: int) -> Any:
        return fit(
            graph,
            make_split(graph, task, 0),
            name="net",
            config=config,
            task=task,
            run_folder=tmp_path / str(processes),
            seed=3,
            device=torch.device("cuda", 0),
            processes=processes,
        )

    expected, found = trained(1), trained(2)
    for name, vectors in expected.embeddings.items():
        np.testing.assert_allclose(found.embeddings[name], vectors, atol=0.02, err_msg=name)
