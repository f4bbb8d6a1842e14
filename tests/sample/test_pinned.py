"""Memory that is to be pinned."""

from __future__ import annotations

import mmap
import weakref

import pytest
import torch

from graphbox.sample.pinned import on_own_pages


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("shape", [(5,), (1000, 7)])
def test_tensors_share_no_page(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensors = [on_own_pages(shape, dtype).fill_(number) for number in range(8)]
    pages: set[int] = set()
    for number, each in enumerate(tensors):
        assert (each.shape, each.dtype) == (shape, dtype)
        assert each.is_contiguous()
        assert bool((each == number).all())
        assert each.data_ptr() % mmap.PAGESIZE == 0
        begin, end = each.data_ptr(), each.untyped_storage().data_ptr() + each.untyped_storage().nbytes()
        own = set(range(begin // mmap.PAGESIZE, -(-(begin + each.nbytes) // mmap.PAGESIZE)))
        assert (max(own) + 1) * mmap.PAGESIZE <= end
        assert not own & pages
        pages |= own


def test_one_lives_as_long_as_views_of_it() -> None:
    tensor = on_own_pages((1000,), torch.int64)
    tensor.copy_(torch.arange(1000))
    released = weakref.finalize(tensor, lambda: None)
    part = tensor.view(-1)[3:]
    del tensor
    assert released.alive
    assert int(part[0]) == 3
    del part
    assert not released.alive
