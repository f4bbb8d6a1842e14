"""Guarantees of gathering on a device: the rows that an index names, from wherever they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphbox.errors import UsageError
from graphbox.table.gather_gpu import gather_rows

FLOATING = [torch.float32, torch.float16, torch.bfloat16]


def pinned(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the tensor in host memory that the device reads."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def expected_rows(
    source: torch.Tensor, index: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    rows = torch.zeros(len(index), source.shape[1], dtype=source.dtype)
    is_there = (index >= 0) & (index < len(source))
    rows[is_there] = source[index[is_there].long()]
    return rows.to(dtype or source.dtype)


class DeviceGathers:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("where", ["device", "pinned"])
    @pytest.mark.parametrize("dim", [1, 3, 64, 100, 4097])
    @pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32])
    def test_rows(self, device: torch.device, dim: int, where: str, index_dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(dim)
        source = torch.randn(50, dim, generator=generator)
        there = pinned(source, device) if where == "pinned" else source.to(device)
        for size in (0, 1, 70):
            index = torch.randint(-3, 53, (size,), generator=generator, dtype=index_dtype)
            rows = gather_rows(there, index.to(device))
            assert rows.device.type == device.type
            assert torch.equal(rows.cpu(), expected_rows(source, index))

    @pytest.mark.parametrize("dtype", FLOATING)
    @pytest.mark.parametrize("source_dtype", FLOATING)
    def test_casts(self, device: torch.device, source_dtype: torch.dtype, dtype: torch.dtype) -> None:
        source = (torch.randn(20, 33) * 100).to(source_dtype)
        source[0, :4] = torch.tensor([float("inf"), -0.0, 1e-7, 60_000]).to(source_dtype)
        if device.type == "cpu":  # the interpreter does not round to bfloat16 as devices do
            source = source.bfloat16().to(source_dtype)
        index = torch.tensor([0, 19, 0, 4])
        rows = gather_rows(source.to(device), index.to(device), dtype=dtype)
        assert rows.dtype == dtype
        assert torch.equal(rows.cpu(), expected_rows(source, index, dtype))
        out = torch.empty(4, 33, dtype=dtype, device=device)
        assert gather_rows(source.to(device), index.to(device), out=out) is out
        assert torch.equal(out, rows)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float64])
    def test_other_dtypes_as_they_are(self, device: torch.device, dtype: torch.dtype) -> None:
        source = torch.arange(21).reshape(7, 3).to(dtype)
        index = torch.tensor([6, 0, -1])
        assert torch.equal(
            gather_rows(source.to(device), index.to(device)).cpu(), expected_rows(source, index)
        )

    def test_parts_of_wider_rows(self, device: torch.device) -> None:
        records = torch.randn(30, 11)
        index = torch.tensor([29, 3, 3, 0])
        rows = gather_rows(records.to(device)[::2, 2:8], (index // 2).to(device))
        assert torch.equal(rows.cpu(), records[::2, 2:8][index // 2])

    def test_refusals(self, device: torch.device) -> None:
        source, index = torch.randn(4, 3, device=device), torch.tensor([1, 2], device=device)
        cases: list[tuple[str, Any, dict[str, Any]]] = [
            (r"source: expected \[rows, dim\]", (source[0], index), {}),
            (r"source: expected \[rows, dim\]", (source.T, index), {}),
            ("source: expected a tensor on .* or in pinned", (source.to("meta"), index), {}),
            (r"index: expected contiguous int64 or int32 \[n\]", (source, index.float()), {}),
            (r"index: expected contiguous int64 or int32 \[n\]", (source, index[None]), {}),
            (r"index: expected contiguous int64 or int32 \[n\]", (source, index.repeat(2)[::2]), {}),
            ("dtype of source: expected torch.float32, or", (source, index), {"dtype": torch.int64}),
            ("out: expected contiguous torch.float32", (source, index), {"out": torch.empty(3, 3)}),
            (
                "out: expected contiguous torch.float16",
                (source, index),
                {"out": torch.empty(2, 3, device=device), "dtype": torch.float16},
            ),
        ]
        for message, arguments, named in cases:
            with pytest.raises(UsageError, match=message):
                gather_rows(*arguments, **named)
