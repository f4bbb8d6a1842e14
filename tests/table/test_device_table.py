"""Tables on a device, whose kernels Triton's interpreter runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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
