"""Tables on a device, whose kernels Triton's interpreter runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from graphbox.table import EmbeddingTable
from graphbox.table.resident_rows import distinct_in_order
from tests.table.device_table_contract import DeviceTableContract

pytestmark = pytest.mark.gpu_kernel


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


class TestInterpreted(DeviceTableContract):
    pass


def test_distinct_keys_come_in_the_order_of_first_appearance() -> None:
    keys = torch.from_numpy(np.random.default_rng(0).integers(-5, 5, 200))
    distinct, places = distinct_in_order(keys)
    assert distinct.tolist() == list(dict.fromkeys(keys.tolist()))
    assert torch.equal(distinct[places], keys)
    assert [len(each) for each in distinct_in_order(keys[:0])] == [0, 0]


def test_what_was_flushed_outlives_the_process(tmp_path: Path) -> None:
    code = """
import os, sys, torch
from graphbox.table import DeviceTable, EmbeddingTable

below = EmbeddingTable(4, "sgd", 0.5, path=sys.argv[1])
table = DeviceTable(below, "cpu", hbm_bytes=3000)
table.push(torch.arange(12), torch.ones(12, 4))
table.flush()
table.push(torch.arange(12), torch.ones(12, 4))
os._exit(9)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "table")], check=False, timeout=200, capture_output=True
    )
    assert done.returncode == 9, done.stderr
    plain = EmbeddingTable(4, "sgd", 0.5)
    plain.push(np.arange(12), np.ones((12, 4), np.float32))
    with EmbeddingTable.open(tmp_path / "table") as opened:
        np.testing.assert_array_equal(opened.pull(np.arange(12)), plain.pull(np.arange(12)))
