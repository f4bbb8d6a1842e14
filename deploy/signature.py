"""Signatures: what clients of any protocol send to a model version, and what they receive."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Ids, TensorSpec
from graphbox.artifact.ids import Id
from graphbox.deploy.protocol import DTYPE_OF, Feeds
from graphbox.errors import InvalidRequestError, NotFoundError, did_you_mean

__all__ = [
    "DIGEST_PROPERTY",
    "NEAREST_SUFFIX",
    "NEAREST_VECTORS_SUFFIX",
    "ONNX_SUFFIX",
    "PRECISION_PROPERTY",
    "SUFFIXES",
    "THREADS_PROPERTY",
    "UNSEEN_SUFFIX",
    "WHOLE",
    "Outputs",
    "Parameters",
    "Signature",
    "by_name",
    "decoded_ids",
    "decoded_texts",
    "node_indices",
]

Outputs: TypeAlias = dict[str, npt.NDArray[Any]]
Parameters: TypeAlias = Mapping[str, Any]

WHOLE: Final = ""
"""Suffix of the signature of a whole model: original ids or columns in, answers out."""
ONNX_SUFFIX: Final = ".onnx"
"""Suffix of the signature of a model's bare ONNX part."""
UNSEEN_SUFFIX: Final = ".unseen"
"""Suffix of the signature of an encoder for nodes that it was never given."""
NEAREST_SUFFIX: Final = ".nearest"
"""Suffix of the signature of an encoder for the nearest nodes of original ids."""
NEAREST_VECTORS_SUFFIX: Final = ".nearest_vectors"
"""Suffix of the signature of an encoder for the nearest nodes of vectors."""
SUFFIXES: Final = (ONNX_SUFFIX, UNSEEN_SUFFIX, NEAREST_SUFFIX, NEAREST_VECTORS_SUFFIX)
"""All suffixes but that of the whole."""

# Properties of a bare ONNX part: parameters of its configuration in the KServe protocol.
DIGEST_PROPERTY: Final = "model_sha256"
"""SHA-256 of the ONNX file that runs."""
PRECISION_PROPERTY: Final = "precision"
"""`graphbox.deploy.Effective.precision` of its program."""
THREADS_PROPERTY: Final = "intra_op_thread_count"
"""Threads of one call; the name that Triton's ONNX Runtime backend reads."""

MAX_ID_BYTES: Final = 1024
"""Longest id or name, in UTF-8, that is looked up."""


@dataclass(frozen=True, eq=False)
class Signature:
    """One way to call a model version: named arrays and parameters in, named arrays out.

    An element of a BYTES tensor is a ``bytes`` object in an array of objects.

    Attributes:
        platform: name of the runtime, for clients.
        inputs: by name, in the order in which clients list them.
        outputs: by name.
        answer: computes the outputs of inputs that have the dtypes and shapes of ``inputs``, without a check
            of these. Raises `InvalidRequestError` and `NotFoundError` for values that the model cannot read.
        work: a number that the time to answer grows with, of inputs.
        parameters: names of the parameters that it reads.
        lists: inputs whose first axis is not that of the rows: values of all rows, one row after the other;
            with the input that has the number of values of each row.
        joinable: whether calls may be joined (`graphbox.deploy.joining`): the first axis of every output and
            of every input but `lists` is that of the rows, and an output's row depends on no other row.
        defaults: inputs that clients may leave out, with the value that stands for each row; of `lists`,
            which are empty then, the value is not used.
        properties: facts for clients that compare programs.
        rows_sequence: number of the last row update that answers have; 0: none.
        labels: names of the values of a row, of outputs that are class scores.
    """

    platform: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    answer: Callable[[Feeds, Parameters], Outputs]
    work: Callable[[Feeds], int]
    parameters: frozenset[str] = frozenset()
    lists: Mapping[str, str] = field(default_factory=dict)
    joinable: bool = False
    defaults: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    rows_sequence: int = 0
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def row_inputs(self) -> tuple[str, ...]:
        """Names of the inputs whose first axis is that of the rows, where the signature is joinable."""
        return tuple(name for name in self.inputs if name not in self.lists)

    @cached_property
    def required_inputs(self) -> tuple[str, ...]:
        """Names of the inputs that have no default."""
        return tuple(name for name in self.inputs if name not in self.defaults)

    @cached_property
    def free_inputs(self) -> tuple[str, ...]:
        """Names of the inputs with an axis of any size beyond the first."""
        return tuple(name for name, spec in self.inputs.items() if -1 in spec.shape[1:])

    @cached_property
    def output_row_bytes(self) -> int:
        """Bytes of a row of all outputs; those of BYTES, and outputs with a further free axis, count 0."""
        total = 0
        for spec in self.outputs.values():
            if spec.datatype != "BYTES" and -1 not in spec.shape[1:]:
                total += math.prod(spec.shape[1:]) * DTYPE_OF[spec.datatype].itemsize
        return total

    def completed(self, inputs: Feeds) -> Outputs:
        """Return inputs with `defaults` for those that a client left out.

        Args:
            inputs: all others, of their dtypes.
        """
        found = {**inputs}
        rows = len(inputs[self.required_inputs[0]])
        for name, value in self.defaults.items():
            if name not in found:
                datatype = self.inputs[name].datatype
                dtype = np.dtype(object) if datatype == "BYTES" else DTYPE_OF[datatype]
                found[name] = np.full(0 if name in self.lists else rows, value, dtype)
        return found

    def infer(self, inputs: Feeds, parameters: Parameters = MappingProxyType({})) -> Outputs:
        """Return the outputs by name.

        Args:
            inputs: an array for each input, of its dtype and shape; see `defaults`.
            parameters: by name; those that are left out have their defaults.

        Raises:
            InvalidRequestError: an input is missing, unknown, of another dtype or shape or cannot be read, or
                a parameter is.
            NotFoundError: an id is no node of the model.
        """
        _check_names("inputs", inputs, self.inputs, frozenset(self.required_inputs))
        _check_names("parameters", parameters, self.parameters, frozenset())
        inputs = self.completed(inputs) if self.defaults else inputs
        for name, spec in self.inputs.items():
            _check_array(name, inputs[name], spec)
        return self.answer(inputs, parameters)


def by_name(specs: Sequence[TensorSpec]) -> dict[str, TensorSpec]:
    """Return tensors by their names."""
    return {spec.name: spec for spec in specs}


def node_indices(
    tensor: npt.NDArray[Any], ids: Ids, name: str, missing: Literal["raise", -1] = "raise"
) -> npt.NDArray[np.int64]:
    """Return the node index of each original id of a tensor, int64 [n]; see `decoded_ids`.

    Args:
        tensor: BYTES or INT64 [n].
        ids: of the node type.
        name: of the input, for messages.
        missing: ``"raise"``, or -1 to give -1 for ids that are not there.

    Raises:
        InvalidRequestError: an id cannot be read, or is of another kind than those of the node type.
        NotFoundError: naming the ids that are not there.
    """
    try:
        if tensor.dtype == np.int64 and ids.kind == "int64":
            return ids.index(tensor, missing)
        if ids.kind == "string" and tensor.dtype == np.object_:
            # Without decoding them: what is found is UTF-8.
            texts = tensor.tolist()
            found = ids.find_texts(texts)
            if found.min(initial=0) >= 0 and max(map(len, texts), default=0) <= MAX_ID_BYTES:
                return found
        return ids.index(decoded_ids(tensor, ids, name), missing)
    except NotFoundError as error:
        raise NotFoundError(error.message, where=f"input `{name}`", hint=error.hint) from error


def decoded_ids(tensor: npt.NDArray[Any], ids: Ids, name: str) -> list[Id]:
    """Return the original ids of a tensor, BYTES or INT64, as a node type has them.

    A model has one datatype of ids, and may have node types of both kinds: an integer may be given as text.

    Args:
        tensor: [n].
        ids: of the node type.
        name: of the input, for messages.

    Raises:
        InvalidRequestError: an id is longer than `MAX_ID_BYTES`, not UTF-8, or of another kind.
    """
    given: list[Id] = [*decoded_texts(tensor, name)] if tensor.dtype == np.object_ else tensor.tolist()
    if not given or isinstance(given[0], str) == (ids.kind == "string"):
        return given
    return [ids.from_text(str(each)) for each in given]


def decoded_texts(tensor: npt.NDArray[Any], name: str) -> list[str]:
    """Return the texts of a tensor of BYTES.

    Raises:
        InvalidRequestError: one is longer than `MAX_ID_BYTES`, or not UTF-8.
    """
    longest = max(map(len, tensor), default=0)
    if longest > MAX_ID_BYTES:
        raise InvalidRequestError(
            f"expected texts of at most {MAX_ID_BYTES} bytes, received one of {longest}",
            where=f"input `{name}`",
        )
    try:
        return [element.decode() for element in tensor]
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"expected texts in UTF-8, received other bytes: {error}", where=f"input `{name}`"
        ) from error


def _check_names(
    noun: str,
    received: Mapping[str, Any],
    known: Mapping[str, Any] | frozenset[str],
    needed: AbstractSet[str],
) -> None:
    unknown = sorted(received.keys() - known)
    missing = sorted(needed - received.keys())
    if not unknown and not missing:
        return
    parts = [f"unknown: {unknown}" if unknown else "", f"missing: {missing}" if missing else ""]
    raise InvalidRequestError(
        f"expected the {noun} {', '.join(sorted(known)) or '(none)'}; "
        f"{', '.join(part for part in parts if part)}",
        hint=did_you_mean(unknown[0], missing or known) if unknown else None,
    )


def _check_array(name: str, array: Any, spec: TensorSpec) -> None:
    dtype = np.dtype(object) if spec.datatype == "BYTES" else DTYPE_OF[spec.datatype]
    is_array = isinstance(array, np.ndarray)
    if (
        is_array
        and array.dtype == dtype
        and array.ndim == len(spec.shape)
        and all(want < 0 or want == got for want, got in zip(spec.shape, array.shape, strict=True))
    ):
        if dtype != np.object_ or all(isinstance(element, bytes) for element in array.flat):
            return
        raise InvalidRequestError(
            "expected elements of type bytes, received another type", where=f"input `{name}`"
        )
    sizes = ", ".join("any" if size < 0 else str(size) for size in spec.shape)
    received = f"{array.dtype} {list(array.shape)}" if is_array else type(array).__name__
    raise InvalidRequestError(
        f"expected {spec.datatype} ({dtype}) [{sizes}], received {received}", where=f"input `{name}`"
    )
