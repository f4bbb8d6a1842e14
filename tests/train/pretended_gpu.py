"""A GPU that is none: its tensors are in host memory and say that they are on `cuda:0`.

Every operation is done by the CPU, in the same order and with the same random numbers as on the CPU. It is
refused where tensors of both devices meet, and where one is read by the host without a copy. So a training
on it ends with the bits of one on the CPU, or shows where something was made on the wrong device. Triton's
interpreter runs kernels, in the thread that pretends: they may read what is there or in pinned host memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any, NoReturn, Self
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

GPU = torch.device("cuda", 0)

_aten = torch.ops.aten
_pinned: dict[int, int] = {}
"""Where memory that was pinned begins, and how many bytes it has."""

_CROSSING = {_aten.copy_.default, _aten._to_copy.default, _aten.lift_fresh.default, _aten.set_.source_Tensor}
"""Operations that take tensors of several devices."""


class PretendedTensor(Tensor):
    """A tensor that says it is on the GPU."""

    __module__ = "torch"  # by which graphbox knows tensors before torch is imported
    content: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Self:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=torch.device("meta"),  # what autograd sees: neither the CPU nor what wants a driver
            requires_grad=False,
        )
        made.content = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return GPU

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return False

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __array__(self, dtype: Any = None) -> NoReturn:
        self.numpy()

    def tolist(self) -> Any:
        return self.content.tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"on the GPU: {self.content!r}"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    _mode_key: Any

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    on_gpu = any(isinstance(each, PretendedTensor) for each in given)
    if func not in _CROSSING and on_gpu:
        for each in given:
            if each.dim() and not isinstance(each, PretendedTensor):
                raise RuntimeError(f"{func}: expected all tensors on {GPU}, found one of {each.shape} on cpu")
    device = kwargs.get("device")
    is_pinned = bool(kwargs.get("pin_memory"))
    if device is not None:
        on_gpu = torch.device(device).type in ("cuda", "meta")  # what autograd takes this class for
        kwargs = {**kwargs, "device": torch.device("cpu"), "pin_memory": False}
        if func is _aten._to_copy.default and not on_gpu and not isinstance(given[0], PretendedTensor):
            return func(*args, **kwargs)
    elif func is _aten.copy_.default:
        on_gpu = isinstance(args[0], PretendedTensor)
    outer = {id(each.content): each for each in given if isinstance(each, PretendedTensor)}
    plain_args, plain_kwargs = tree_map(
        lambda each: each.content if isinstance(each, PretendedTensor) else each, (args, kwargs)
    )
    found = func(*plain_args, **plain_kwargs)
    if is_pinned:
        _pin(found)
    if not on_gpu:
        return found

    def wrapped(each: Any) -> Any:
        if not isinstance(each, Tensor):
            return each
        return outer.get(id(each)) if id(each) in outer else PretendedTensor(each)

    made = tree_map(wrapped, found)
    if func is _aten._to_copy.default:
        return made
    return return_and_correct_aliasing(func, args, kwargs, made)  # type: ignore[no-untyped-call]


def _pin(tensor: Tensor) -> Tensor:
    _register(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
    return tensor


def _register(address: int, size_bytes: int, flags: int = 0) -> int:
    _pinned[address] = size_bytes
    return 0  # which says that it went well


def _unregister(address: int, device: torch.device) -> None:
    _pinned.pop(address, None)


def _is_pinned(tensor: Tensor) -> bool:
    begin = tensor.data_ptr()
    return any(first <= begin < first + size for first, size in _pinned.items())


def _launch(run: Any, executor: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel of Triton's interpreter, which knows tensors of the CPU alone."""
    for each in (*args, *kwargs.values()):
        is_of_host = isinstance(each, Tensor) and not isinstance(each, PretendedTensor)
        if is_of_host and each.numel() and not _is_pinned(each):
            raise RuntimeError(f"{executor.fn.__name__}: expected pinned memory, found {each.shape}")
    return run(executor, *map(_content, args), **{name: _content(each) for name, each in kwargs.items()})


def _content(value: Any) -> Any:
    return value.content if isinstance(value, PretendedTensor) else value


@contextmanager
def pretended_gpu() -> Iterator[torch.device]:
    """Let there be a GPU while the block runs."""
    mode = _Mode()  # type: ignore[no-untyped-call]
    mode._mode_key = torch._C._TorchDispatchModeKey.FAKE  # so that torch does not look for a driver
    cuda = {
        "Event": mock.MagicMock(),
        "cudart": mock.Mock(cudaHostRegister=_register),
        "current_stream": None,
        "device": nullcontext(),
        "empty_cache": None,
        "get_device_name": "pretended",
        "get_rng_state": torch.empty(0),
        "manual_seed": None,
        "mem_get_info": (1 << 40, 1 << 40),
        "set_rng_state": None,
        "synchronize": None,
    }
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Tensor, "pin_memory", _pin))
        stack.enter_context(mock.patch("graphbox.sample.pinned._unregister", _unregister))
        for choice in ("dropout.is_one_kernel", "din.waits_for_counts"):  # a GPU draws other numbers
            stack.enter_context(mock.patch(f"graphbox.models.{choice}", return_value=False))
        if find_spec("triton"):
            from triton.runtime.interpreter import GridExecutor

            run = GridExecutor.__call__

            def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
                return _launch(run, executor, *args, **kwargs)

            stack.enter_context(mock.patch.object(GridExecutor, "__call__", launch))
        for name, value in cuda.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, return_value=value))
        stack.enter_context(mode)
        # Parameters become others, of this class, in place of changing what they hold.
        overwritten = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            yield GPU
        finally:
            torch._C._set_only_lift_cpu_tensors(False)
            torch.__future__.set_overwrite_module_params_on_conversion(overwritten)
