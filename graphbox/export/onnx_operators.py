"""Operators of ONNX as functions of torch, one each, for `graphbox.export.onnx_to_torch`.

They follow the specification of the operators (https://onnx.ai/onnx/operators/), opsets 13 to 23, for the
attributes that they read; a node with another attribute is refused. Results are exact where ONNX's are:
integer products, rounding half to even, saturation, the order of equal values in TopK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import torch
from onnx import numpy_helper
from torch import Tensor
from torch.nn import functional

from graphbox.errors import UnsupportedError

__all__ = ["TORCH_OPERATORS", "OnnxCall", "Sizes", "Value", "as_tensor"]

Size: TypeAlias = int | torch.SymInt
Sizes: TypeAlias = tuple[Size, ...]
"""An int64 vector that is known when the model is exported, but for the sizes that stay symbolic."""
Value: TypeAlias = Tensor | Sizes

_INT64_MAX: Final = (1 << 63) - 1
# TensorProto.DataType
_DTYPE_OF: Final[Mapping[int, torch.dtype]] = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
}
_RANGE_OF: Final = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


class OnnxCall:
    """The operands and attributes of one node.

    Args:
        operator: its type.
        where: the node, named in messages.
        operands: None where an optional one is left out.
        constants: for each operand, its array if it is a constant of the model.
        attributes: by name, as ``onnx.helper.get_attribute_value`` returns them.
        output_count: number of the node's outputs.
    """

    def __init__(
        self,
        operator: str,
        where: str,
        operands: Sequence[Value | None],
        constants: Sequence[Any],
        attributes: Mapping[str, Any],
        output_count: int,
    ) -> None:
        self.operator, self.where, self.output_count = operator, where, output_count
        self._operands, self._constants, self._attributes = operands, constants, attributes
        self._read: set[str] = set()

    def refuse(self, message: str) -> UnsupportedError:
        """Return the error that this node is not supported."""
        return UnsupportedError(f"{self.operator}: {message}", where=self.where)

    def refuse_unread_attributes(self) -> None:
        """Refuse a node with an attribute that its function does not know.

        Raises:
            UnsupportedError: there is one.
        """
        if unread := sorted(set(self._attributes) - self._read):
            raise self.refuse(f"the attributes {', '.join(unread)} are not supported")

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute, or its default."""
        self._read.add(name)
        return self._attributes.get(name, default)

    def has(self, number: int) -> bool:
        """Return whether an optional operand is there."""
        return number < len(self._operands) and self._operands[number] is not None

    def value(self, number: int) -> Value:
        """Return an operand.

        Raises:
            UnsupportedError: it is missing.
        """
        found = self._operands[number] if self.has(number) else None
        if found is None:
            raise self.refuse(f"expected an input {number}, which is missing")
        return found

    def tensor(self, number: int = 0) -> Tensor:
        """Return an operand as a tensor."""
        return as_tensor(self.value(number))

    def tensors(self) -> list[Tensor]:
        """Return all operands as tensors."""
        return [self.tensor(number) for number in range(len(self._operands))]

    def known_sizes(self) -> list[Sizes] | None:
        """Return all operands as sizes; None where none comes from ``Shape`` or one is computed."""
        numbers = range(len(self._operands))
        if not any(self.holds_sizes(number) for number in numbers):
            return None
        known = [each for number in numbers if (each := self._sizes(number)) is not None]
        return known if len(known) == len(numbers) else None

    def holds_sizes(self, number: int = 0) -> bool:
        """Return whether an operand is the result of ``Shape``, or made of it."""
        return isinstance(self.value(number), tuple)

    def sizes(self, number: int) -> Sizes:
        """Return an operand that is known when the model is exported.

        Raises:
            UnsupportedError: it depends on values of inputs.
        """
        found = self._sizes(number)
        if found is None:
            raise self.refuse(f"expected a constant as input {number}, received a computed tensor")
        return found

    def _sizes(self, number: int) -> Sizes | None:
        value = self.value(number)
        if isinstance(value, tuple):
            return value
        constant = self._constants[number]
        if constant is None or constant.dtype.kind not in "iu":
            return None
        return tuple(int(each) for each in constant.reshape(-1))

    def integers(self, number: int) -> list[int]:
        """Return an operand of integers that are constants, sizes of dimensions not among them.

        Raises:
            UnsupportedError: they are computed.
        """
        found = self.sizes(number)
        if not all(isinstance(each, int) for each in found):
            raise self.refuse(f"expected a constant as input {number}, received a size")
        return [int(each) for each in found]

    def axes(self, number: int = 1) -> list[int] | None:
        """Return the axes that an input or, in earlier opsets, an attribute lists; None: it lists none."""
        listed = self.attribute("axes", None)
        if self.has(number):
            return self.integers(number)
        return None if listed is None else [int(each) for each in listed]


def as_tensor(value: Value) -> Tensor:
    """Return a value as a tensor: sizes as int64."""
    if isinstance(value, Tensor):
        return value
    if not value:
        return torch.zeros(0, dtype=torch.int64)
    return torch.stack([torch.scalar_tensor(cast("int", each), dtype=torch.int64) for each in value])


OnnxFunction: TypeAlias = Callable[[OnnxCall], "Value | list[Value]"]


def _unary(function: Callable[[Tensor], Tensor]) -> OnnxFunction:
    return lambda call: function(call.tensor())


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> OnnxFunction:
    return lambda call: function(call.tensor(0), call.tensor(1))


def _variadic(function: Callable[[Tensor, Tensor], Tensor]) -> OnnxFunction:
    def folded(call: OnnxCall) -> Tensor:
        first, *others = call.tensors()
        for each in others:
            first = function(first, each)
        return first

    return folded


def _divide(first: Tensor, second: Tensor) -> Tensor:
    """Divide; integers are rounded toward zero."""
    return first / second if first.is_floating_point() else torch.div(first, second, rounding_mode="trunc")


def _power(first: Tensor, second: Tensor) -> Tensor:
    return torch.pow(first, second).to(first.dtype)


def _gelu(call: OnnxCall) -> Tensor:
    return functional.gelu(call.tensor(), approximate=call.attribute("approximate", b"none").decode())


def _leaky_relu(call: OnnxCall) -> Tensor:
    return functional.leaky_relu(call.tensor(), call.attribute("alpha", 0.01))


def _softmax(call: OnnxCall) -> Tensor:
    return torch.softmax(call.tensor(), call.attribute("axis", -1))


def _log_softmax(call: OnnxCall) -> Tensor:
    return torch.log_softmax(call.tensor(), call.attribute("axis", -1))


def _clip(call: OnnxCall) -> Tensor:
    found = call.tensor()
    if call.has(1):
        found = torch.maximum(found, call.tensor(1))
    return torch.minimum(found, call.tensor(2)) if call.has(2) else found


def _cast(call: OnnxCall) -> Value:
    number = int(call.attribute("to", 0))
    call.attribute("saturate", 1)  # of 8-bit floats, which are refused
    if number not in _DTYPE_OF:
        raise call.refuse(f"the type {number} of ONNX is not supported")
    if number == 7 and call.holds_sizes():
        return call.value(0)
    return call.tensor().to(_DTYPE_OF[number])


def _identity(call: OnnxCall) -> Value:
    return call.value(0)


def _shape(call: OnnxCall) -> Value:
    return tuple(call.tensor().shape)[call.attribute("start", 0) : call.attribute("end", None)]


def _concat(call: OnnxCall) -> Value:
    axis = call.attribute("axis", 0)
    known = call.known_sizes()
    if known is not None:
        return tuple(each for sizes in known for each in sizes)
    return torch.cat(call.tensors(), axis)


def _gather(call: OnnxCall) -> Value:
    axis = call.attribute("axis", 0)
    if call.holds_sizes():
        sizes, positions = call.sizes(0), call.integers(1)
        if call.tensor(1).ndim == 1:
            return tuple(sizes[each] for each in positions)
    rows, positions_of = call.tensor(0), call.tensor(1).to(torch.int64)
    return rows[(slice(None),) * (axis % rows.ndim) + (positions_of,)]


def _gather_elements(call: OnnxCall) -> Tensor:
    rows, positions = call.tensor(0), call.tensor(1).to(torch.int64)
    axis = call.attribute("axis", 0) % rows.ndim
    positions = torch.where(positions < 0, positions + rows.shape[axis], positions)
    return torch.gather(rows, axis, positions)


def _slice(call: OnnxCall) -> Value:
    starts, ends = call.integers(1), call.integers(2)
    axes = call.integers(3) if call.has(3) else list(range(len(starts)))
    steps = call.integers(4) if call.has(4) else [1] * len(starts)
    if min(steps, default=1) < 1:
        raise call.refuse("steps below 1 are not supported")
    if call.holds_sizes():
        return call.sizes(0)[starts[0] : ends[0] : steps[0]]
    found = call.tensor()
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        part = slice(start, None if end >= _INT64_MAX else end, step)
        found = found[(slice(None),) * (axis % found.ndim) + (part,)]
    return found


def _split(call: OnnxCall) -> list[Value]:
    found, axis = call.tensor(), call.attribute("axis", 0)
    count = call.attribute("num_outputs", call.output_count)
    if call.has(1):
        return list(torch.split(found, call.integers(1), axis))
    size = found.shape[axis]
    if not isinstance(size, int):
        raise call.refuse("a split of a dimension of any size is not supported")
    return list(torch.split(found, -(-size // count), axis))


def _reshape(call: OnnxCall) -> Tensor:
    found, sizes = call.tensor(), list(call.sizes(1))
    if not call.attribute("allowzero", 0):
        for axis, size in enumerate(sizes):
            if isinstance(size, int) and size == 0:
                sizes[axis] = found.shape[axis]
    return found.reshape(sizes)


def _flatten(call: OnnxCall) -> Tensor:
    found = call.tensor()
    axis = call.attribute("axis", 1)
    before: Size = 1
    after: Size = 1
    for size in found.shape[:axis]:
        before = before * size
    for size in found.shape[axis:]:
        after = after * size
    return found.reshape([before, after])


def _expand(call: OnnxCall) -> Tensor:
    """Broadcast in both directions: a size of 1 of either side takes the other's."""
    found, sizes = call.tensor(), call.sizes(1)
    missing = len(sizes) - found.ndim
    own = [1] * max(missing, 0) + list(found.shape)
    sizes = (1,) * max(-missing, 0) + sizes
    wanted = [
        mine if isinstance(size, int) and size == 1 else size for mine, size in zip(own, sizes, strict=True)
    ]
    return found.reshape(own).expand(wanted)


def _transpose(call: OnnxCall) -> Tensor:
    found = call.tensor()
    return found.permute(call.attribute("perm", list(reversed(range(found.ndim)))))


def _unsqueeze(call: OnnxCall) -> Value:
    axes = call.axes()
    if axes is None:
        raise call.refuse("expected axes, received none")
    found = call.tensor()
    rank = found.ndim + len(axes)
    for axis in sorted(each % rank for each in axes):
        found = found.unsqueeze(axis)
    return found


def _squeeze(call: OnnxCall) -> Value:
    axes = call.axes()
    if axes is None:
        raise call.refuse("without axes, its result's shape depends on sizes: not supported")
    found = call.tensor()
    return found.squeeze([each % found.ndim for each in axes])


def _reduced(function: Callable[[Tensor, list[int], bool], Tensor]) -> OnnxFunction:
    """Return a reduction over the axes of an input or an attribute; over all where none are listed."""

    def reduce(call: OnnxCall) -> Tensor:
        found, axes = call.tensor(), call.axes()
        keep, is_kept = bool(call.attribute("keepdims", 1)), call.attribute("noop_with_empty_axes", 0)
        if not axes and is_kept:
            return found
        return function(found, axes or list(range(found.ndim)), keep)

    return reduce


def _sum(values: Tensor, axes: list[int], keep: bool) -> Tensor:
    return values.sum(axes, keepdim=keep, dtype=values.dtype)


def _mean(values: Tensor, axes: list[int], keep: bool) -> Tensor:
    return values.mean(axes, keepdim=keep)


def _length(values: Tensor, axes: list[int], keep: bool) -> Tensor:
    return (values * values).sum(axes, keepdim=keep).sqrt()


def _gemm(call: OnnxCall) -> Tensor:
    first, second = call.tensor(0), call.tensor(1)
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    product = (first.T if call.attribute("transA", 0) else first) @ (
        second.T if call.attribute("transB", 0) else second
    )
    product = product if alpha == 1 else alpha * product
    if not call.has(2):
        return product
    return product + (call.tensor(2) if beta == 1 else beta * call.tensor(2))


def _top_k(call: OnnxCall) -> list[Value]:
    """Sort stably: of equal values, ONNX takes the first."""
    values, (count,) = call.tensor(), call.integers(1)
    axis, largest = call.attribute("axis", -1), bool(call.attribute("largest", 1))
    call.attribute("sorted", 1)  # sorted results are right for both
    ordered, positions = torch.sort(values, dim=axis, descending=largest, stable=True)
    return [ordered.narrow(axis, 0, count), positions.narrow(axis, 0, count)]


def _constant_of_shape(call: OnnxCall) -> Tensor:
    given = call.attribute("value", None)
    filled = torch.zeros(1) if given is None else torch.from_numpy(numpy_helper.to_array(given).copy())
    return filled.reshape([1] * len(call.sizes(0))).expand(list(call.sizes(0)))


def _along(values: Tensor, of_axis: Tensor, axis: int) -> Tensor:
    """Return scales or zero points, one or one for each index of an axis, in a shape that broadcasts."""
    if of_axis.ndim == 0 or (of_axis.ndim == 1 and of_axis.shape[0] == 1 and values.ndim == 0):
        return of_axis
    shape: list[Size] = [1] * values.ndim
    shape[axis % values.ndim] = of_axis.shape[0]
    return of_axis.reshape(shape)


def _codes(call: OnnxCall, values: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    if zero.dtype not in _RANGE_OF:
        raise call.refuse(f"codes of type {zero.dtype} are not supported")
    lowest, highest = _RANGE_OF[zero.dtype]
    shifted = torch.round(values / scale) + zero.to(values.dtype)
    return shifted.clamp(lowest, highest).to(zero.dtype)


def _quantize(call: OnnxCall) -> Tensor:
    values, axis = call.tensor(0), call.attribute("axis", 1)
    call.attribute("saturate", 1)
    _refuse_blocks(call)
    scale = call.tensor(1)
    zero = call.tensor(2) if call.has(2) else torch.zeros((), dtype=torch.uint8)
    return _codes(call, values, _along(values, scale, axis), _along(values, zero, axis))


def _dequantize(call: OnnxCall) -> Tensor:
    codes, axis = call.tensor(0), call.attribute("axis", 1)
    _refuse_blocks(call)
    scale = _along(codes, call.tensor(1), axis)
    if not call.has(2):
        return codes.to(scale.dtype) * scale
    shifted = codes.to(torch.int32) - _along(codes, call.tensor(2), axis).to(torch.int32)
    return shifted.to(scale.dtype) * scale


def _refuse_blocks(call: OnnxCall) -> None:
    if any(call.attribute(name, 0) for name in ("block_size", "output_dtype", "precision")):
        raise call.refuse("blocks and types of outputs are not supported")


def _dynamic_quantize(call: OnnxCall) -> list[Value]:
    values = call.tensor()
    both = torch.cat([values.reshape(-1), torch.zeros(1)])  # the range has 0 in it
    lowest, highest = both.amin(), both.amax()
    scale = (highest - lowest) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.round(-lowest / scale).clamp(0, 255).to(torch.uint8)
    return [_codes(call, values, scale, zero), scale, zero]


def _integer_product(call: OnnxCall) -> Tensor:
    """Multiply in int32: exact, and not faster than float32."""
    first, second = call.tensor(0).to(torch.int32), call.tensor(1).to(torch.int32)
    if call.has(2):
        zero = call.tensor(2).to(torch.int32)
        first = first - (zero.unsqueeze(-1) if zero.ndim else zero)
    if call.has(3):
        second = second - call.tensor(3).to(torch.int32)
    return torch.matmul(first, second)


TORCH_OPERATORS: Final[Mapping[str, OnnxFunction]] = {
    "Abs": _unary(torch.abs),
    "Add": _binary(torch.add),
    "And": _binary(torch.logical_and),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _identity,
    "ConstantOfShape": _constant_of_shape,
    "Cos": _unary(torch.cos),
    "DequantizeLinear": _dequantize,
    "Div": _binary(_divide),
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Equal": _binary(torch.eq),
    "Erf": _unary(torch.erf),
    "Exp": _unary(torch.exp),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "Greater": _binary(torch.gt),
    "GreaterOrEqual": _binary(torch.ge),
    "Identity": _identity,
    "LeakyRelu": _leaky_relu,
    "Less": _binary(torch.lt),
    "LessOrEqual": _binary(torch.le),
    "Log": _unary(torch.log),
    "LogSoftmax": _log_softmax,
    "MatMul": _binary(torch.matmul),
    "MatMulInteger": _integer_product,
    "Max": _variadic(torch.maximum),
    "Min": _variadic(torch.minimum),
    "Mul": _binary(torch.mul),
    "Neg": _unary(torch.neg),
    "Not": _unary(torch.logical_not),
    "Or": _binary(torch.logical_or),
    "Pow": _binary(_power),
    "QuantizeLinear": _quantize,
    "Reciprocal": _unary(torch.reciprocal),
    "ReduceL2": _reduced(_length),
    "ReduceMax": _reduced(lambda values, axes, keep: torch.amax(values, axes, keepdim=keep)),
    "ReduceMean": _reduced(_mean),
    "ReduceMin": _reduced(lambda values, axes, keep: torch.amin(values, axes, keepdim=keep)),
    "ReduceSum": _reduced(_sum),
    "Relu": _unary(torch.relu),
    "Reshape": _reshape,
    "Shape": _shape,
    "Sigmoid": _unary(torch.sigmoid),
    "Sin": _unary(torch.sin),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": _unary(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(torch.sub),
    "Sum": _variadic(torch.add),
    "Tanh": _unary(torch.tanh),
    "TopK": _top_k,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": lambda call: torch.where(call.tensor(0).bool(), call.tensor(1), call.tensor(2)),
    "Xor": _binary(torch.logical_xor),
}
"""Functions by name of the operator."""
