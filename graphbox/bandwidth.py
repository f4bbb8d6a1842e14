"""Measured read and copy rates of a GPU: the bounds of its kernels, and the input of placement."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from graphbox.device import check_device
from graphbox.errors import DataError

if TYPE_CHECKING:
    import torch

    from graphbox.bandwidth_gpu import Place

ROW_BYTES = (64, 256, 1024)
"""Rows that are measured."""


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """Bytes per second of one device, as the probes of :mod:`graphbox.bandwidth_gpu` measure them.

    Attributes:
        device: its name.
        device_sectors: random sectors of 32 bytes of its own memory.
        pinned_sectors: random sectors of pinned host memory, read by the device.
        device_rows: random rows of its own memory, for each of :data:`ROW_BYTES`.
        pinned_rows: random rows of pinned host memory, read by the device.
        host_to_device: copies out of pinned host memory.
        device_to_host: copies into pinned host memory.
        device_to_device: copies within its own memory; each byte, read once and written once, counts once.
    """

    device: str
    device_sectors: float
    pinned_sectors: float
    device_rows: tuple[float, ...]
    pinned_rows: tuple[float, ...]
    host_to_device: float
    device_to_host: float
    device_to_device: float

    def rows(self, where: Place, row_bytes: int) -> float:
        """Return the bytes per second of random rows of any size.

        Between the sizes that were measured the time of a row is a straight line, and so it goes on beyond
        the largest. A row below the smallest takes the time of the smallest.

        Args:
            where: what is read.
            row_bytes: of a row, 1 or more.
        """
        rates = self.device_rows if where == "device" else self.pinned_rows
        seconds = [size / rate for size, rate in zip(ROW_BYTES, rates, strict=True)]
        if row_bytes <= ROW_BYTES[0]:
            return row_bytes / seconds[0]
        upper = next((n for n, size in enumerate(ROW_BYTES) if row_bytes <= size), len(ROW_BYTES) - 1)
        slope = (seconds[upper] - seconds[upper - 1]) / (ROW_BYTES[upper] - ROW_BYTES[upper - 1])
        return row_bytes / (seconds[upper] + max(slope, 0.0) * (row_bytes - ROW_BYTES[upper]))

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON holds and :meth:`from_dict` reads."""
        return {**asdict(self), "row_bytes": ROW_BYTES}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return what :meth:`as_dict` made.

        Raises:
            DataError: something else made it.
        """
        values = dict(document)
        if tuple(values.pop("row_bytes", ())) != ROW_BYTES or set(values) != {f.name for f in fields(cls)}:
            raise DataError(
                f"expected the bandwidths of a device, of rows of {ROW_BYTES} bytes, "
                f"received {', '.join(map(str, document)) or 'nothing'}",
                hint="measure them again: graphbox doctor --json",
            )
        read: dict[str, Callable[[object, str], Any]] = {
            "device": _name,
            "device_rows": _rates,
            "pinned_rows": _rates,
        }
        return cls(**{name: read.get(name, _rate)(value, name) for name, value in values.items()})


def _name(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"expected the name of a device, received {value!r}", where=name)
    return value


def _rates(values: object, name: str) -> tuple[float, ...]:
    if not isinstance(values, list | tuple) or len(values) != len(ROW_BYTES):
        raise DataError(f"expected {len(ROW_BYTES)} numbers, received {values!r}", where=name)
    return tuple(_rate(value, name) for value in values)


def _rate(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise DataError(f"expected bytes per second, received {value!r}", where=name)
    return float(value)


_measured: dict[str, Bandwidths] = {}
_lock = threading.Lock()


def measured_bandwidths(device: torch.device) -> Bandwidths:
    """Return the bandwidths of ``device``, measured when this process first asks for them, in a few seconds.

    Args:
        device: a GPU, or the CPU with Triton's interpreter, which says nothing of speed.

    Raises:
        BackendMissingError: Triton or the device is not there.
        DoesNotFitError: memory for the probes is missing.
    """
    import torch

    check_device(device)
    name = str(device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        name = torch.cuda.get_device_name(device)
    with _lock:
        if str(device) not in _measured:
            _measured[str(device)] = _measure(device, name)
        return _measured[str(device)]


def _measure(device: torch.device, name: str) -> Bandwidths:
    from graphbox.bandwidth_gpu import copy_bandwidth, row_bandwidth, sector_bandwidth

    return Bandwidths(
        name,
        sector_bandwidth("device", device),
        sector_bandwidth("pinned", device),
        tuple(row_bandwidth("device", size, device) for size in ROW_BYTES),
        tuple(row_bandwidth("pinned", size, device) for size in ROW_BYTES),
        copy_bandwidth("host_to_device", device),
        copy_bandwidth("device_to_host", device),
        copy_bandwidth("device_to_device", device),
    )
