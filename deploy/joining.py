"""Joins the calls of several clients into one execution, and splits its outputs.

Which signatures allow it says `graphbox.deploy.signature.Signature.joinable`: a row of the outputs depends on
the row of the inputs alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from graphbox.deploy.cancellation import ExecutionCancelledError
from graphbox.deploy.protocol import Feeds
from graphbox.deploy.signature import Outputs, Parameters, Signature
from graphbox.errors import FormatError, TimeLimitError

__all__ = ["Joined", "answer_joined", "batch_key", "join", "split"]


@dataclass(frozen=True, slots=True)
class Joined:
    """Several calls as one.

    Attributes:
        inputs: of the one call.
        rows: of each call, in order.
    """

    inputs: Outputs
    rows: list[int]


def batch_key(signature: Signature, inputs: Feeds, parameters: Parameters) -> Hashable | None:
    """Return the key of a call: calls of a signature with equal keys may be joined.

    Args:
        signature: that is called.
        inputs: of the dtypes and shapes of the signature.
        parameters: by name.

    Returns:
        Sizes beyond the first axis where the signature leaves them free, and the parameters with their types.
        None: the call has to be answered alone. Either the signature is not joinable, a parameter is not
        hashable, or inputs differ in their numbers of rows: joined with another call that has the opposite
        mistake they would pass for well formed, with rows of one call beside those of the other.
    """
    if not signature.joinable:
        return None
    row_inputs = signature.row_inputs
    if len(row_inputs) > 1:
        rows = len(inputs[row_inputs[0]])
        for name in row_inputs:
            if len(inputs[name]) != rows:
                return None
        for values, name in signature.lists.items():
            counts = inputs[name]
            # A negative count is no list.
            listed = max(counts[0], 0) if rows == 1 else np.maximum(counts, 0).sum()
            if listed != len(inputs[values]):
                return None
    shapes = tuple([inputs[name].shape[1:] for name in signature.free_inputs])
    if not parameters:
        return shapes
    try:
        # Types, since True equals 1 and 1.0, and only one of them may be valid.
        return shapes, frozenset([(name, type(value), value) for name, value in parameters.items()])
    except TypeError:
        return None


def join(signature: Signature, requests: Sequence[Feeds]) -> Joined:
    """Return calls with equal `batch_key` as one.

    Args:
        signature: that is called, joinable.
        requests: inputs of each call; at least one.
    """
    first = signature.row_inputs[0]
    return Joined(
        {name: np.concatenate([request[name] for request in requests]) for name in signature.inputs},
        [len(request[first]) for request in requests],
    )


def split(outputs: Outputs, rows: Sequence[int]) -> list[Outputs]:
    """Return the outputs of each call, as views of the outputs of the joined one.

    Args:
        outputs: of the joined call.
        rows: of each call.

    Raises:
        FormatError: an output has another number of rows.
    """
    parts: list[Outputs] = [{} for _ in rows]
    total = sum(rows)
    for name, array in outputs.items():
        if len(array) != total:
            raise FormatError(f"expected {total} rows in the output `{name}`, received {len(array)}")
        stop = 0
        for part, count in zip(parts, rows, strict=True):
            start, stop = stop, stop + count
            part[name] = array[start:stop]
    return parts


def answer_joined(
    signature: Signature, requests: Sequence[Feeds], parameters: Parameters
) -> list[Outputs | Exception]:
    """Return the outputs of calls with equal `batch_key`, or the error of each, as if it was alone.

    Where the joined call fails, each half of the calls is answered by itself, down to single ones: a call
    that fails costs the others a few executions and no answer.

    Args:
        signature: that is called; joinable where there are several calls.
        requests: inputs of each call; at least one.
        parameters: of all of them.

    Raises:
        TimeLimitError: the execution's time limit has passed; see `graphbox.deploy.cancellation`.
        ExecutionCancelledError: the execution was cancelled.
    """
    try:
        if len(requests) == 1:
            return [signature.answer(requests[0], parameters)]
        joined = join(signature, requests)
        return [*split(signature.answer(joined.inputs, parameters), joined.rows)]
    except (TimeLimitError, ExecutionCancelledError):
        raise
    except Exception as error:  # noqa: BLE001 - returned as the answer of the call that caused it
        if len(requests) == 1:
            return [error]
    half = len(requests) // 2
    return [
        *answer_joined(signature, requests[:half], parameters),
        *answer_joined(signature, requests[half:], parameters),
    ]
