"""Memory that is to be pinned."""

from __future__ import annotations

import mmap
import weakref

import pytest
import torch

from graphbox.sample.pinned import on_own_pages


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("shape", [(5,), (1000, 7)])
def test_copies_share_no_page(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    copies = [on_own_pages(tensor) for _ in range(8)]
    pages: set[int] = set()
    for copy in copies:
        assert torch.equal(copy, tensor)
        assert copy.data_ptr() % mmap.PAGESIZE == 0
        begin, end = copy.data_ptr(), copy.untyped_storage().data_ptr() + copy.untyped_storage().nbytes()
        own = set(range(begin // mmap.PAGESIZE, -(-(begin + copy.nbytes) // mmap.PAGESIZE)))
        assert (max(own) + 1) * mmap.PAGESIZE <= end
        assert not own & pages
        pages |= own


def test_a_copy_lives_as_long_as_views_of_it() -> None:
    copy = on_own_pages(torch.arange(1000))
    released = weakref.finalize(copy, lambda: None)
    part = copy.view(-1)[3:]
    del copy
    assert released.alive
    assert int(part[0]) == 3
    del part
    assert not released.alive
