"""Tables on a GPU that is pretended: no operation meets tensors of two devices; rows are those of the CPU.

Kernels are run by the interpreter; what they are given is on the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from graphbox.table import (
    BagSlot,
    CountAdmission,
    DeviceTable,
    EmbeddingTable,
    ShowClickScore,
    Table,
    TableEmbedding,
    TableEmbeddingBag,
    TableEmbeddingBagCollection,
)
from graphbox.table.device_prefetch import DevicePrefetch
from tests.table.device_table_contract import budget
from tests.train.pretended_gpu import PretendedTensor, pretended_gpu

pytestmark = pytest.mark.gpu_kernel

DIM = 4


def content(tensor: Any) -> Any:
    assert isinstance(tensor, PretendedTensor), f"expected a tensor on the GPU, found {type(tensor)}"
    return tensor.content


@contextmanager
def gpu_with_streams() -> Iterator[torch.device]:
    replaced: list[tuple[Any, str, Any]] = [
        (torch.cuda, "Stream", mock.MagicMock()),
        (torch.cuda, "stream", mock.MagicMock()),
        (torch.cuda, "synchronize", mock.MagicMock()),
        (Tensor, "record_stream", lambda tensor, stream: None),
        (DevicePrefetch, "start", lambda prefetch, in_background: prefetch._run()),
    ]
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value))
        gpu = stack.enter_context(pretended_gpu())
        stack.enter_context(mock.patch.object(torch.cuda, "current_stream", mock.MagicMock()))
        yield gpu


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (3, {"score": ShowClickScore(decay=0.5)}),
        (80, {"admission": CountAdmission(2), "dtype": "float16"}),
    ],
)
def test_rows_are_those_of_the_cpu(rows: int, settings: dict[str, Any]) -> None:
    plain, below = (
        EmbeddingTable(DIM, "adam", 0.1, threads=1, clock=lambda: 3.0, **settings) for _ in range(2)
    )
    rng = np.random.default_rng(0)
    with gpu_with_streams() as gpu:
        table = DeviceTable(below, gpu, hbm_bytes=budget(below, rows))
        both: list[Any] = [plain, table]
        for _ in range(3):
            keys = torch.from_numpy(rng.integers(0, 40, 20))
            grads = torch.from_numpy(rng.normal(size=(20, DIM)).astype(np.float32))
            expected, plain_slots = plain.pull_slots(keys)
            given, slots = table.pull_slots(keys.to(gpu))
            assert torch.equal(content(given), expected)
            table.prefetch(torch.arange(20, 60).to(gpu)).wait()
            plain.push_slots(plain_slots, grads)
            table.push_slots(slots, grads.to(gpu))
            for each in both:
                each.push(keys[:9], grads[:9])
                each.erase(keys[:3])
                each.assign(keys[:1], torch.ones(1, DIM))
                each.end_pass()
        assert len(str(table.statistics()).splitlines()) > 2
        table.close()
    np.testing.assert_array_equal(plain.pull(plain.keys()), below.pull(plain.keys()))


def test_lookups_of_modules_stay_on_the_gpu() -> None:
    plain, below = EmbeddingTable(DIM), EmbeddingTable(DIM)
    with gpu_with_streams() as gpu:
        table = DeviceTable(below, gpu, hbm_bytes=budget(below, 10))
        results = []
        for each, place in ((plain, torch.device("cpu")), (table, gpu)):
            rows, bags = TableEmbedding(each, padding_idx=0), TableEmbeddingBag(each, "mean", padding_idx=1)
            slots = TableEmbeddingBagCollection({"a": BagSlot(each, salt="a"), "b": BagSlot(each, "mean")})
            keys = torch.arange(12).remainder(7).reshape(4, 3).to(place)
            weights = torch.linspace(0, 1, 12).reshape(4, 3).to(place)
            batch = {"a": keys, "b": (keys.reshape(-1), torch.tensor([0, 5]).to(place))}
            with torch.no_grad():
                found = [rows(keys), bags(keys), TableEmbeddingBag(each, "sum")(keys, None, weights)]
                found += slots(batch).values()
            pulled = [one.pull() for one in (*rows.plan(keys).lookups, *bags.plan(keys).lookups)]
            gradients = [one.gradient(0, torch.ones_like(one.tensor())) for one in pulled]
            joined = gradients[0].joined(gradients[1:]).scaled(0.5)
            results.append((found, joined.square_sum()))
            learner: Table = each
            learner.learn([joined])
        for given, expected in zip(results[1][0], results[0][0], strict=True):
            torch.testing.assert_close(content(given), expected)
        assert results[1][1] == pytest.approx(results[0][1])
        table.close()
    np.testing.assert_allclose(below.pull(plain.keys()), plain.pull(plain.keys()), rtol=1e-5)
