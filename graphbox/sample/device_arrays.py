"""Arrays whose rows a device reads: in its own memory, or rows by measured use, others pinned."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

from graphbox.device import check_device, on_device
from graphbox.errors import UsageError
from graphbox.native import integer_array, thread_count
from graphbox.sample.gather import gather_rows
from graphbox.sample.pass_gate import PassGate
from graphbox.sample.pinned import pinned_empty
from graphbox.sample.resident_lists import (
    ListColumn,
    ResidentLists,
    Residents,
    ResidentStatistics,
    sectors_of_byte,
)

if TYPE_CHECKING:
    import torch

    from graphbox.bandwidth import Bandwidths

Key = TypeVar("Key", bound=Hashable)

Misses: TypeAlias = Literal["read", "copy"]
"""Source of rows that are not on the device: it reads them itself, or the host gathers them for one copy."""

_SHARE_OF_FREE = 0.75
_USUAL_ROW_BYTES = 256
_UNBOUNDED_BYTES = 2**63
_KNOWN_BYTES = 12  # of a row that can be resident: its place, its uses
_BLOCK_BYTES = 32 << 20
_HOST_ROWS_BYTES_PER_SECOND = 5e9  # of one thread; see docs/benchmarks.md on gathering rows


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """An array that is read block by block, so that it need not be in memory as a whole.

    Attributes:
        shape: of the array, rows first.
        dtype: of what ``read`` returns.
        read: returns the rows from the first number to before the second, in host memory.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[int, int], torch.Tensor]

    @classmethod
    def of(cls, array: torch.Tensor) -> RowBlocks:
        """Return those of an array in host memory."""
        return cls(tuple(array.shape), array.dtype, lambda first, last: array[first:last])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    @property
    def bytes(self) -> int:
        """Bytes of the array."""
        return self.shape[0] * self.row_bytes

    def copy_to(self, target: torch.Tensor) -> torch.Tensor:
        """Return ``target``, [rows, ...] anywhere, filled with the rows."""
        step = max(1, _BLOCK_BYTES // max(self.row_bytes, 1))
        for first in range(0, self.shape[0], step):
            last = min(first + step, self.shape[0])
            target[first:last].copy_(self.read(first, last))
        return target


@dataclass(slots=True)
class _Rows:
    """The rows of an array.

    Attributes:
        words: [rows, words of a row], on the device or in pinned host memory.
        dtype: of the values.
        shape: of a row.
        column: of which rows can be resident; None: none can be, or all are.
        misses: how those come that are not.
    """

    words: torch.Tensor
    dtype: torch.dtype
    shape: tuple[int, ...]
    column: ListColumn | None
    misses: Misses


class DeviceArrays(Generic[Key]):
    """Arrays whose rows are read on a device, under a budget of its memory that they share.

    Arrays that fit what is left of ``hbm_bytes`` are in the device's memory as a whole, those with the
    smallest rows first. Of others, rows by measured use are: reads are counted, and :meth:`end_pass` chooses
    anew. All of such an array is in pinned host memory, which the device reads where a row is not resident.
    Wherever rows are, they are the same. Safe for several threads, each with streams of its own.

    Args:
        arrays: by key. They are copied to where they are read, block by block: nothing else holds them.
        device: where rows are wanted.
        hbm_bytes: the most memory of the device for rows and what is known about them; None: three quarters
            of what is free, and any number on the CPU.
        misses: how rows come that are not on the device: ``read`` by the device itself, or ``copy``, gathered
            by the host for one copy, for which it must wait. None: what takes less time by ``bandwidths``.
        bandwidths: of the device; None: as if it read all rows from pinned memory faster than a host gathers
            them, and sectors half as fast as long rows.
        threads: of the host's gathering.

    Raises:
        BackendMissingError: Triton or the device is not there.
        DoesNotFitError: there is too little host memory that can be pinned.
        UsageError: another wrong argument.
    """

    def __init__(
        self,
        arrays: Mapping[Key, RowBlocks],
        device: torch.device | str = "cuda",
        *,
        hbm_bytes: int | None = None,
        misses: Misses | None = None,
        bandwidths: Bandwidths | None = None,
        threads: int | None = None,
    ) -> None:
        import torch

        self.device = torch.device(device)
        check_device(self.device)
        if str(self.device) == "cuda":
            self.device = torch.device("cuda", torch.cuda.current_device())
        if misses not in (None, "read", "copy"):
            raise UsageError(f"expected read or copy, received {misses!r}", where="misses")
        if hbm_bytes is not None and hbm_bytes < 0:
            raise UsageError(f"expected 0 bytes or more, received {hbm_bytes}", where="hbm_bytes")
        if hbm_bytes is None:
            hbm_bytes = _UNBOUNDED_BYTES
            if self.device.type == "cuda":
                hbm_bytes = int(_SHARE_OF_FREE * torch.cuda.mem_get_info(self.device)[0])
        self._hbm_bytes = hbm_bytes
        self._misses = misses
        self._bandwidths = bandwidths
        self._threads = threads
        self._device_bytes = self._pinned_bytes = 0
        self._residents = ResidentLists(
            self.device, sectors_of_byte=sectors_of_byte(bandwidths, _USUAL_ROW_BYTES)
        )
        self._gate = PassGate()
        self._rows: dict[Key, _Rows] = {}
        with on_device(self.device):
            for key in sorted(arrays, key=lambda each: arrays[each].row_bytes):
                self._rows[key] = self._bring(arrays[key])
            self._settle()

    def rows(self, key: Key, index: torch.Tensor) -> torch.Tensor:
        """Return rows of an array [n, ...] on the device; the host does not wait, but to copy misses.

        Args:
            key: of the array.
            index: int64 [n] on the device, numbers of rows that there are, repeated ones too.
        """
        import torch

        from graphbox.sample.feature_rows_gpu import read_rows  # Triton, where it is used

        rows = self._rows[key]
        with self._gate.reading(), on_device(self.device):
            column = rows.column
            residents = None if column is None else self._residents.of(column)
            uses = None if column is None else column.uses
            is_copied = rows.misses == "copy"
            found = read_rows(rows.words, residents, uses, index, reads_away=not is_copied)
            if is_copied:
                self._copy_misses(rows, residents, index, found)
        if found.numel() == 0:  # which has no view as another dtype
            return torch.empty((len(index), *rows.shape), dtype=rows.dtype, device=self.device)
        return found.view(rows.dtype).view(len(index), *rows.shape)

    def end_pass(self) -> ResidentStatistics:
        """Choose anew which rows are resident, by how often each was read; what is read does not change.

        Rows that stay are not read again. It waits for all kernels of the device, and readers wait for it.
        """
        columns = [each.column for each in self._rows.values() if each.column is not None]
        if columns:
            with self._gate.changing(), on_device(self.device):
                self._settle()
                self._residents.end_pass(columns, self._hbm_bytes - self._device_bytes)
                self._settle()
        return self._residents.statistics

    @property
    def statistics(self) -> ResidentStatistics:
        """Number of resident rows, and how often reads hit them."""
        return self._residents.statistics

    @property
    def device_bytes(self) -> int:
        """Bytes on the device."""
        return self._device_bytes + self._residents.held_bytes

    @property
    def pinned_bytes(self) -> int:
        """Bytes in pinned host memory."""
        return self._pinned_bytes

    # Where rows are

    def _bring(self, array: RowBlocks) -> _Rows:
        """Copy an array to the device if it fits there, else to pinned host memory."""
        import torch

        left = self._hbm_bytes - self._device_bytes
        word, count = _word_of(array.row_bytes), array.shape[0]
        shape = (count, array.row_bytes // word.itemsize)
        column = None
        misses: Misses = "read"
        if array.bytes <= left:
            words = torch.empty(shape, dtype=word, device=self.device)
            self._device_bytes += array.bytes
        else:
            words = pinned_empty(shape, word, self.device)
            misses = self._misses or _quicker(self._bandwidths, array.row_bytes, self._threads)
            self._pinned_bytes += array.bytes
            if _KNOWN_BYTES * count <= left:
                uses = torch.zeros(count, dtype=torch.int32, device=self.device)
                column = ListColumn(words.view(-1), uses, row_values=words.shape[1])
                self._device_bytes += _KNOWN_BYTES * count
        if array.bytes:
            array.copy_to(words.view(-1).view(array.dtype).view(array.shape))
        return _Rows(words, array.dtype, array.shape[1:], column, misses)

    def _settle(self) -> None:
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _copy_misses(
        self, rows: _Rows, residents: Residents | None, index: torch.Tensor, found: torch.Tensor
    ) -> None:
        """Let the host gather the rows that are not resident, and copy them at once."""
        import torch

        if residents is None:
            missing = torch.arange(len(index), device=self.device)
        else:
            missing = (residents.places[index] < 0).nonzero().squeeze(1)
        wanted = integer_array(index[missing], "index")
        is_cuda = self.device.type == "cuda"
        gathered = torch.empty(len(wanted), rows.words.shape[1], dtype=rows.words.dtype, pin_memory=is_cuda)
        gather_rows(rows.words, wanted, gathered, num_threads=self._threads)
        found[missing] = gathered.to(self.device, non_blocking=True)


def _word_of(row_bytes: int) -> torch.dtype:
    """Return the widest integers that divide a row."""
    import torch

    width = next(width for width in (8, 4, 2, 1) if row_bytes % width == 0)
    return {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}[width]


def _quicker(bandwidths: Bandwidths | None, row_bytes: int, threads: int | None) -> Misses:
    """Return how rows come from pinned memory in less time."""
    if bandwidths is None or row_bytes == 0:
        return "read"
    read_seconds = row_bytes / bandwidths.rows("pinned", row_bytes)
    gather_seconds = row_bytes / (_HOST_ROWS_BYTES_PER_SECOND * thread_count(threads))
    copy_seconds = gather_seconds + row_bytes / bandwidths.host_to_device
    return "read" if read_seconds <= copy_seconds else "copy"
