"""A compiled model whose feeds are checked before the adapter sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.artifact import OnnxSummary, TensorSpec, inspect_onnx
from graphbox.artifact.onnx_inspection import IndexBound
from graphbox.deploy.packages import prepared
from graphbox.deploy.protocol import (
    DTYPE_OF,
    UNKNOWN_PRECISION,
    Adapter,
    Device,
    Effective,
    Feeds,
    Options,
    Program,
)
from graphbox.errors import InvalidRequestError, UnsupportedError, UsageError, did_you_mean

__all__ = ["CheckedProgram", "compile_model"]

_Axis: TypeAlias = tuple[str, int]
"""A tensor's name and one of its axes."""


class CheckedProgram:
    """Checks the feeds of an adapter's program: names, dtypes, shapes, positions.

    Args:
        program: the adapter's program.
        summary: of the ONNX file it was compiled from.

    Attributes:
        inputs: tensors that `run` takes.
        outputs: tensors that `run` returns.
        effective: the precision, provider and device in use.
        dimensions: of each input by name; a name, or an empty one, where a dimension has any size.
        positions: names of the inputs whose values select rows.
        row_dimension: name of the dimension that is the first one of every input and every output, and no
            other one; None: there is none, or an input has positions in the rows of another.
        quantizes_whole_batches: whether rows of a call are quantized over one range, so that a row with large
            values costs the others their precision.
    """

    def __init__(self, program: Program, summary: OnnxSummary) -> None:
        self.inputs: tuple[TensorSpec, ...] = tuple(program.inputs)
        self.outputs: tuple[TensorSpec, ...] = tuple(program.outputs)
        self.effective: Effective = program.effective
        self._program: Program | None = program
        self._index_inputs = summary.index_inputs
        self.dimensions = summary.dimensions
        self.positions = frozenset(self._index_inputs)
        first = dict(reversed(_named_axes(summary.dimensions)))
        self._equal_sizes = _pairs(summary.dimensions, first)
        self._equal_output_sizes = _pairs(summary.output_dimensions, first)
        self.row_dimension = _row_dimension(summary)
        is_quantized_here = self.effective["precision"] == "int8_dynamic" != summary.precision
        self.quantizes_whole_batches = summary.quantizes_whole_tensors or is_quantized_here
        self._expected = {tensor.name: (DTYPE_OF[tensor.datatype], tensor.shape) for tensor in self.inputs}
        self._given = {tensor.name: (DTYPE_OF[tensor.datatype], tensor.shape) for tensor in self.outputs}

    def bound_positions(self, row_counts: Mapping[str, str]) -> None:
        """Check positions against rows that the model computes as well: the ONNX file has no number of those.

        Args:
            row_counts: by name of an input of positions, the input with as many rows as they select from.
        """
        bounds = dict(self._index_inputs)
        for name, rows in row_counts.items():
            if name in bounds and rows in self._expected:
                bounds[name] = (*bounds[name], IndexBound(None, rows, 0))
        self._index_inputs = {name: tuple(dict.fromkeys(each)) for name, each in bounds.items()}

    def position_limit(self, name: str, feeds: Feeds) -> int | None:
        """Return how many rows, of constants or of ``feeds``, the positions of an input select from.

        None: it is not known, or the input has no positions.
        """
        sizes = (
            feeds[bound.tensor].shape[bound.axis] if bound.size is None else bound.size
            for bound in self._index_inputs.get(name, ())
        )
        return min(sizes, default=None)

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model.

        Args:
            feeds: one array for each input, of its dtype and shape.
            out: arrays to write outputs into, of the output's dtype and shape.

        Returns:
            Every output by name.

        Raises:
            InvalidRequestError: a feed is missing, unknown, or of another dtype or shape; sizes that the
                model gives one name differ; a position is negative or beyond the rows it selects from.
        """
        if feeds.keys() != self._expected.keys():
            raise _wrong_names(feeds, self._expected)
        for name, array in feeds.items():
            _check_array("input", name, array, *self._expected[name])
        self._check_sizes(feeds)
        for name in self._index_inputs:
            self._check_positions(name, feeds)
        if out is not None:
            self._check_out(out)
        outputs = self.run_built(feeds, out)
        self._check_output_sizes(feeds, outputs)
        return outputs

    def run_built(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model on feeds that graphbox built itself: as `run`, without its checks."""
        if self._program is None:
            raise UsageError("expected an open model, this one was closed")
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

    def _check_sizes(self, feeds: Feeds) -> None:
        """Check that dimensions of one name have one size.

        A runtime broadcasts a size of 1 silently, so that rows of one input would meet those of another.
        """
        for dimension, (name, axis), (first, first_axis) in self._equal_sizes:
            size, known = feeds[name].shape[axis], feeds[first].shape[first_axis]
            if known != size:
                raise InvalidRequestError(
                    f"expected {known} as the size of `{dimension}`, as in input `{first}`, received {size}",
                    where=f"input `{name}`",
                )

    def _check_positions(self, name: str, feeds: Feeds) -> None:
        array = feeds[name]
        if not array.size:
            return
        # One pass for both bounds: a negative position is a large one when it is read without its sign.
        is_signed = array.dtype.kind == "i"
        highest = int(np.maximum.reduce(array.view(f"u{array.itemsize}") if is_signed else array, axis=None))
        if is_signed and highest >> (8 * array.itemsize - 1):
            raise InvalidRequestError(
                f"expected positions of at least 0, received {array.min()}", where=f"input `{name}`"
            )
        for bound in self._index_inputs[name]:
            size = feeds[bound.tensor].shape[bound.axis] if bound.size is None else bound.size
            if highest >= size:
                rows = f"input `{bound.tensor}`" if bound.size is None else "the model"
                raise InvalidRequestError(
                    f"expected positions below {size}, the rows of {rows}, received {highest}",
                    where=f"input `{name}`",
                )

    def _check_output_sizes(self, feeds: Feeds, outputs: Mapping[str, npt.NDArray[Any]]) -> None:
        for dimension, (name, axis), (first, first_axis) in self._equal_output_sizes:
            size, expected = outputs[name].shape[axis], feeds[first].shape[first_axis]
            if expected != size:
                raise InvalidRequestError(
                    f"expected inputs of matching sizes: output `{name}` has {size} as the size of "
                    f"`{dimension}`, which is {expected} in input `{first}`"
                )

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
    """Compile a model and check its precision.

    Args:
        adapter: the adapter of the device.
        model: an ONNX file's content.
        device: where to run it.
        options: threads and precision.

    Raises:
        FormatError: the model is damaged or refers to other files.
        UnsupportedError: the device cannot run it, or only in a lower precision.
        GraphboxError: what was compiled ahead cannot be kept; see `graphbox.deploy.packages.prepared`.
        UsageError: `options.threads` is less than 1.
    """
    if options.threads < 1:
        raise UsageError(f"expected at least 1 thread, received {options.threads}")
    summary = inspect_onnx(model, "the model")
    program = adapter.load(prepared(adapter, model, device, options))
    effective = program.effective
    if effective["precision"] != summary.precision and not options.allow_lower_precision:
        program.close()
        computed = effective["precision"]
        received = (
            "does not report its precision" if computed == UNKNOWN_PRECISION else f"would in {computed}"
        )
        raise UnsupportedError(
            f"expected to compute in {summary.precision}, {adapter.name} {received}",
            hint="allow lower precision, or choose another target",
        )
    return CheckedProgram(program, summary)


def _row_dimension(summary: OnnxSummary) -> str | None:
    shapes = [*summary.dimensions.values(), *summary.output_dimensions.values()]
    first = {shape[0] if shape else "" for shape in shapes}
    bounds = [bound for each in summary.index_inputs.values() for bound in each]
    if len(first) != 1 or any(bound.size is None and bound.axis == 0 for bound in bounds):
        return None
    (name,) = first
    if not isinstance(name, str) or not name or any(name in shape[1:] for shape in shapes):
        return None
    return name


def _named_axes(dimensions: Mapping[str, Sequence[int | str]]) -> list[tuple[str, _Axis]]:
    """Return the name of each dimension that has one, with its tensor and axis."""
    return [
        (dimension, (tensor, axis))
        for tensor, shape in dimensions.items()
        for axis, dimension in enumerate(shape)
        if isinstance(dimension, str) and dimension
    ]


def _pairs(
    dimensions: Mapping[str, Sequence[int | str]], first: Mapping[str, _Axis]
) -> list[tuple[str, _Axis, _Axis]]:
    """Return each named dimension with the first input axis of its name, where that is another one."""
    return [
        (dimension, axis, first[dimension])
        for dimension, axis in _named_axes(dimensions)
        if axis != first.get(dimension, axis)
    ]


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
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == len(shape):
        for want, got in zip(shape, array.shape, strict=True):
            if want != got and want >= 0:
                break
        else:
            return
    received = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
    sizes = ", ".join("any" if size < 0 else str(size) for size in shape)
    raise InvalidRequestError(f"expected {dtype} [{sizes}], received {received}", where=f"{role} `{name}`")
