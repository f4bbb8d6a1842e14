"""Memory that is to be pinned."""

from __future__ import annotations

import contextlib
import mmap
import weakref

import pytest
import torch

from graphbox.errors import DoesNotFitError
from graphbox.sample.pinned import on_own_pages, pinned_copy


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


class PretendedRuntime:
    """CUDA's, which notes what is registered, and keeps an error that the next launch reports."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.registered: dict[int, int] = {}
        self.events: list[str] = []
        self.last_error = 0

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        assert flags == 1
        self.last_error = self.status
        if self.status == 0:
            self.registered[address] = size
        return self.status

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.events.append("unregister")
        del self.registered[address]
        return 0

    def launch(self, *size: int, device: torch.device) -> torch.Tensor:
        """Report the last error, as launches of torch do."""
        assert (size, device.type) == ((1,), "cuda")
        error, self.last_error = self.last_error, 0
        if error:
            raise RuntimeError(f"CUDA error {error}")
        return torch.empty(1)


def pretend(monkeypatch: pytest.MonkeyPatch, runtime: PretendedRuntime) -> torch.device:
    """Have a GPU with this runtime."""
    for name, value in {
        "cudart": lambda: runtime,
        "device": lambda _: contextlib.nullcontext(),
        "synchronize": lambda _: runtime.events.append("synchronize"),
        "CudaError": lambda code: f"out of memory ({code})",
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "zeros", runtime.launch)
    return torch.device("cuda", 0)


@pytest.mark.parametrize("size", [1, 5000, 1 << 20])
def test_memory_is_pinned_until_kernels_have_read_it(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    runtime = PretendedRuntime()
    device = pretend(monkeypatch, runtime)
    values = torch.arange(size)
    copy = pinned_copy(values, device)
    assert runtime.registered == {copy.data_ptr(): 8 * size}
    assert torch.equal(copy, values)
    del copy
    assert runtime.events == ["synchronize", "unregister"]
    assert runtime.registered == {}


def test_memory_that_cuda_refuses_to_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = PretendedRuntime(2)
    device = pretend(monkeypatch, runtime)
    message = r"expected 800 bytes of host memory to pin, CUDA refused: out of memory \(2\)"
    with pytest.raises(DoesNotFitError, match=message):
        pinned_copy(torch.arange(100), device)
    assert runtime.last_error == 0
    assert runtime.events == []
    runtime.launch(1, device=device)


def test_on_the_cpu_nothing_is_copied() -> None:
    values = torch.arange(5)
    assert pinned_copy(values, torch.device("cpu")) is values
