"""Options of single outputs of a request: classification, and a place in shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphbox.deploy.signature import Signature
from graphbox.errors import InvalidRequestError
from graphbox.server.kserve.classification import classified, count_of
from graphbox.server.kserve.shared_memory import RegionPart, SharedMemory, region_part
from graphbox.server.kserve.tensors import Tensor, encode_binary

__all__ = ["SMALL_DELIVERY_BYTES", "OutputOptions", "delivered", "options_of"]

SMALL_DELIVERY_BYTES = 16 * 1024
"""Outputs up to this size are classified, or written to shared memory, on the event loop."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Wishes about one output.

    Attributes:
        classes: most classes of a row; 0: the values themselves.
        labels: of the values of a row, or none.
        has_rows: whether the first axis is that of rows.
        place: where the bytes go; None: into the response.
    """

    classes: int
    labels: Sequence[str]
    has_rows: bool
    place: RegionPart | None


def options_of(
    name: str, parameters: dict[str, Any], signature: Signature, regions: SharedMemory | None, where: str
) -> OutputOptions | None:
    """Return the wishes about an output; None: it has none beyond the values.

    Args:
        name: of the output.
        parameters: of the output.
        signature: of the model.
        regions: of the server; None: it offers no shared memory.
        where: the output, for messages.

    Raises:
        NotFoundError: a region is named that is not registered.
        InvalidRequestError: a parameter is wrong.
    """
    spec = signature.outputs[name]
    classes = count_of(parameters, spec.datatype, where)
    place = region_part(parameters, regions, where)
    if place is not None and classes:
        raise InvalidRequestError(
            "expected classification or a shared memory region, received both", where=f"{where}.parameters"
        )
    if place is not None and parameters.get("binary_data"):
        raise InvalidRequestError(
            "expected binary_data or a shared memory region, received both", where=f"{where}.parameters"
        )
    if not classes and place is None:
        return None
    return OutputOptions(classes, signature.labels.get(name, ()), spec.shape[:1] == (-1,), place)


def delivered(
    tensors: Mapping[str, Tensor], options: Mapping[str, OutputOptions]
) -> tuple[dict[str, Tensor], frozenset[str]]:
    """Classify outputs and write those that have a place in shared memory.

    Args:
        tensors: the outputs by name.
        options: wishes by name.

    Returns:
        The outputs, and the names of those that were written.

    Raises:
        InvalidRequestError: an output does not fit its place, or the memory is gone.
        DoesNotFitError: the machine has no memory left for it.
    """
    found, placed = dict(tensors), set()
    for name, wanted in options.items():
        if wanted.classes:
            found[name] = classified(tensors[name], wanted.classes, wanted.labels, has_rows=wanted.has_rows)
        if wanted.place is not None:
            wanted.place.write(encode_binary(tensors[name]), f"output `{name}`")
            placed.add(name)
    return found, frozenset(placed)
