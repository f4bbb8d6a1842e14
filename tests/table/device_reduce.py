"""Guarantees of summing on a device: different rows by first appearance, sums in the order of the core."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbox.errors import UsageError
from graphbox.table.reduce_gpu import sum_equal_rows
from tests.table.summed_rows import PART, summed


class DeviceReductions:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("dim", [1, 3, 64, 1500])
    @pytest.mark.parametrize(("size", "different"), [(0, 1), (1, 1), (60, 1), (60, 7), (60, 10**9)])
    def test_sums(self, device: torch.device, size: int, different: int, dim: int) -> None:
        rng = np.random.default_rng(size + dim)
        rows = rng.integers(-different, different, size)
        rows[: size // 10] = np.array([-(2**63), 2**63 - 1, -1, 0, -1, -(2**63)])[: size // 10]
        gradients = (rng.normal(0, 1, (size, dim)) * 10.0 ** rng.integers(-6, 6, (size, dim))).astype(
            np.float32
        )
        gradients[::3, 0] = -0.0
        distinct, sums, counts = sum_equal_rows(
            torch.from_numpy(rows).to(device), torch.from_numpy(gradients).to(device)
        )
        expected = summed(rows, gradients)
        assert distinct.tolist() == expected[0]
        assert sums.dtype == torch.float32
        np.testing.assert_array_equal(sums.cpu().numpy().view(np.int32), expected[1].view(np.int32))
        assert counts.dtype == torch.int32
        assert counts.tolist() == expected[2]

    @pytest.mark.parametrize(
        ("dim", "counts"), [(2, (1, PART - 1, PART, PART + 1, 3, 10 * PART + 5)), (1030, (1, PART + 1, 2))]
    )
    def test_sums_of_several_parts(self, device: torch.device, dim: int, counts: tuple[int, ...]) -> None:
        rng = np.random.default_rng(dim)
        rows = np.repeat(np.array([0, -(2**63), 3, -7, 2**63 - 1, 5])[: len(counts)], counts)
        rows = rows[rng.permutation(len(rows))]
        gradients = (rng.normal(0, 1, (len(rows), dim)) * 10.0 ** rng.integers(-6, 6, (len(rows), 1))).astype(
            np.float32
        )
        distinct, sums, of_rows = sum_equal_rows(
            torch.from_numpy(rows).to(device), torch.from_numpy(gradients).to(device)
        )
        expected = summed(rows, gradients)
        assert (distinct.tolist(), of_rows.tolist()) == (expected[0], expected[2])
        np.testing.assert_array_equal(sums.cpu().numpy(), expected[1])

    def test_other_dtypes(self, device: torch.device) -> None:
        rows = torch.tensor([4, 2, 4], dtype=torch.int32, device=device)
        gradients = torch.tensor([[1.0], [2.0], [0.5]], dtype=torch.float16, device=device)
        distinct, sums, counts = sum_equal_rows(rows, gradients)
        assert distinct.dtype == torch.int32
        assert (distinct.tolist(), sums.tolist(), counts.tolist()) == ([4, 2], [[1.5], [2.0]], [2, 1])

    def test_refusals(self, device: torch.device) -> None:
        rows, gradients = torch.tensor([4, 2], device=device), torch.ones(2, 3, device=device)
        for wrong in (rows.float(), rows[None], rows.repeat(2)[::2]):
            with pytest.raises(UsageError, match=r"rows: expected contiguous torch\.int64 or torch\.int32"):
                sum_equal_rows(wrong, gradients)
        for wrong in (gradients[:1], gradients[0], gradients.int(), gradients.to("meta"), gradients[:, ::2]):
            with pytest.raises(UsageError, match="gradients: expected contiguous floating"):
                sum_equal_rows(rows, wrong)
