"""A compiled model whose every call is checked, whatever the adapter behind it would accept."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from graphbox.artifact import TensorSpec, inspect_onnx
from graphbox.deploy.protocol import DTYPE_OF, Adapter, Device, Effective, Feeds, Options, Program
from graphbox.errors import InvalidRequestError, UnsupportedError, UsageError, did_you_mean

__all__ = ["CheckedProgram", "compile_model"]


class CheckedProgram:
    """Checks names, types, shapes and positions of the feeds before an adapter's program runs.

    Attributes:
        inputs: what `run` takes.
        outputs: what `run` gives.
        effective: what the program really does.
    """

    def __init__(self, program: Program, index_inputs: frozenset[str]) -> None:
        self.inputs: tuple[TensorSpec, ...] = tuple(program.inputs)
        self.outputs: tuple[TensorSpec, ...] = tuple(program.outputs)
        self.effective: Effective = program.effective
        self._program: Program | None = program
        self._index_inputs = index_inputs
        self._expected = {tensor.name: (DTYPE_OF[tensor.datatype], tensor.shape) for tensor in self.inputs}
        self._given = {tensor.name: (DTYPE_OF[tensor.datatype], tensor.shape) for tensor in self.outputs}

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model.

        Args:
            feeds: one array for each input, of its dtype and shape.
            out: arrays to write outputs into, of the output's dtype and shape.

        Returns:
            Every output by name.

        Raises:
            InvalidRequestError: when a feed is missing, unknown, or of another dtype or shape, or
                when a position in it is negative or beyond the rows it points into.
        """
        if self._program is None:
            raise UsageError("expected an open model, this one was closed")
        if feeds.keys() != self._expected.keys():
            raise _wrong_names(feeds, self._expected)
        for name, array in feeds.items():
            dtype, shape = self._expected[name]
            _check_array("input", name, array, dtype, shape)
            # A Gather reads -1 as the last row, without a word.
            if name in self._index_inputs and array.size and array.min() < 0:
                raise InvalidRequestError(
                    f"expected positions of at least 0, received {array.min()}", where=f"input `{name}`"
                )
        if out is not None:
            self._check_out(out)
        return self._program.run(feeds, out)

    def close(self) -> None:
        """Free the model's memory; a second call does nothing."""
        if self._program is not None:
            self._program.close()
            self._program = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_out(self, out: Feeds) -> None:
        for name, array in out.items():
            if name not in self._given:
                raise InvalidRequestError(
                    f"expected one of the outputs {sorted(self._given)}, received `{name}`",
                    hint=did_you_mean(name, self._given),
                )
            dtype, shape = self._given[name]
            _check_array("output", name, array, dtype, shape)
            if not array.flags.c_contiguous or not array.flags.writeable:
                raise InvalidRequestError("expected a writable row-major array", where=f"output `{name}`")


def compile_model(adapter: Adapter, model: bytes, device: Device, options: Options) -> CheckedProgram:
    """Compile a model and check that what came out is what was asked for.

    Args:
        adapter: the adapter of the device.
        model: an ONNX file's content.
        device: where to run it.
        options: what is asked for.

    Raises:
        FormatError: when the model is damaged or refers to other files.
        UnsupportedError: when the device cannot run it, or only in a lower precision.
        UsageError: when an option makes no sense.
    """
    if options.threads < 1:
        raise UsageError(f"expected at least 1 thread, received {options.threads}")
    summary = inspect_onnx(model, "the model")
    program = adapter.compile(model, device, options)
    effective = program.effective
    if effective["precision"] != summary.precision and not options.allow_lower_precision:
        program.close()
        raise UnsupportedError(
            f"expected to compute in {summary.precision}, {adapter.name} would in {effective['precision']}",
            hint="allow lower precision, or choose another target",
        )
    return CheckedProgram(program, summary.index_inputs)


def _wrong_names(
    feeds: Feeds, expected: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
) -> InvalidRequestError:
    unknown = sorted(set(feeds) - set(expected))
    missing = sorted(set(expected) - set(feeds))
    parts = [f"unknown: {unknown}" if unknown else "", f"missing: {missing}" if missing else ""]
    return InvalidRequestError(
        f"expected exactly the inputs {sorted(expected)}; {', '.join(part for part in parts if part)}",
        hint=did_you_mean(unknown[0], missing or expected) if unknown else None,
    )


def _check_array(role: str, name: str, array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if (
        isinstance(array, np.ndarray)
        and array.dtype == dtype
        and len(array.shape) == len(shape)
        and all(want in {-1, got} for want, got in zip(shape, array.shape, strict=True))
    ):
        return
    received = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
    sizes = ", ".join("any" if size < 0 else str(size) for size in shape)
    raise InvalidRequestError(f"expected {dtype} [{sizes}], received {received}", where=f"{role} `{name}`")
