"""Features of nodes where a device reads them: in its own memory, or rows by measured use, others pinned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy.typing as npt

from graphbox.device import check_device, on_device
from graphbox.errors import UsageError
from graphbox.native import integer_array, thread_count
from graphbox.sample.adjacency import GraphLike
from graphbox.sample.gather import gather_rows
from graphbox.sample.loader.features import FeatureArray, FeatureNames, feature_arrays, feature_names
from graphbox.sample.pass_gate import PassGate
from graphbox.sample.pinned import as_tensor, pinned_copy
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
    from graphbox.sample.sampled import HeteroSample

__all__ = ["DeviceFeatures", "Misses"]

Misses: TypeAlias = Literal["read", "copy"]
"""How rows come that are not on the device: the device reads them, or the host gathers them for one copy."""

_SHARE_OF_FREE = 0.75
_USUAL_ROW_BYTES = 256
_UNBOUNDED_BYTES = 2**63
_KNOWN_BYTES = 12  # of a row that can be resident: its place, its uses
_HOST_ROWS_BYTES_PER_SECOND = 5e9  # of one thread; see docs/benchmarks.md on gathering rows


@dataclass(slots=True)
class _Rows:
    """The rows of a feature.

    Attributes:
        words: [rows, words of a row], on the device or in pinned host memory.
        dtype: of the values.
        shape: of a row.
        is_categorical: they are codes, which are given as int64.
        column: of which rows can be resident; None: none can be, or all are.
        misses: how those come that are not.
    """

    words: torch.Tensor
    dtype: torch.dtype
    shape: tuple[int, ...]
    is_categorical: bool
    column: ListColumn | None
    misses: Misses


class DeviceFeatures:
    """Fetches rows of features to a device, for loaders over a :class:`graphbox.sample.DeviceGraph`.

    What fits ``hbm_bytes`` is in the device's memory as a whole. Of features that do not, rows by measured
    use are: reads are counted, and :meth:`end_pass` chooses anew. Others come from pinned host memory.
    Wherever rows are, they are the same.

    Args:
        graph: has the features: :class:`graphbox.graph.Graph`, or one with its faces. Arrays are copied to
            where they are read; later changes do not show.
        device: where rows are wanted.
        features: names by node type, a sequence where there is one type, None for all but slots.
        hbm_bytes: the most memory of the device for rows and what is known about them; None: three quarters
            of what is free, and any number on the CPU.
        misses: how rows come that are not on the device: ``read`` by the device itself, or ``copy``, gathered
            by the host for one copy, for which it must wait. None: what takes less time by ``bandwidths``.
        bandwidths: of the device; None: as if it read all rows from pinned memory faster than a host gathers
            them, and sectors half as fast as long rows.
        dtype: in which features of floating-point numbers are held and given, such as ``torch.bfloat16``;
            None: their own.
        threads: of the host's gathering.

    Raises:
        BackendMissingError: Triton or the device is not there.
        NotFoundError: there is no such feature.
        UnsupportedError: slots, whose lists differ in length.
        UsageError: another wrong argument.
    """

    def __init__(
        self,
        graph: GraphLike,
        device: torch.device | str = "cuda",
        features: FeatureNames = None,
        *,
        hbm_bytes: int | None = None,
        misses: Misses | None = None,
        bandwidths: Bandwidths | None = None,
        dtype: torch.dtype | None = None,
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
        self._rows: dict[tuple[str, str], _Rows] = {}
        self._num_nodes = {each: graph.num_nodes(each) for each in graph.node_types}
        self._bring(feature_arrays(graph, feature_names(graph, features)), dtype)

    def fetch(self, samples: Sequence[HeteroSample[Any]]) -> list[dict[str, dict[str, torch.Tensor]]]:
        """Return the rows of each sample's nodes by node type and name."""
        found = []
        for sample in samples:
            rows: dict[str, dict[str, torch.Tensor]] = {}
            for node_type, name in self._rows:
                rows.setdefault(node_type, {})[name] = self._read(node_type, name, sample.nodes[node_type])
            found.append(rows)
        return found

    def rows(self, node_type: str, name: str, nodes: torch.Tensor | npt.ArrayLike) -> torch.Tensor:
        """Return rows of a feature [n, ...] on the device.

        Args:
            node_type: the node type.
            name: of the feature.
            nodes: node indices [n], integers, repeated ones too.

        Raises:
            UsageError: no such feature is held, or no such node.
        """
        from graphbox.sample.device import node_tensor

        if (node_type, name) not in self._rows:
            held = ", ".join(f"`{each[1]}` of `{each[0]}`" for each in self._rows)
            raise UsageError(f"expected one of {held or 'no features'}, received `{name}` of `{node_type}`")
        index = node_tensor(nodes, self._num_nodes[node_type], self.device, "nodes")
        return self._read(node_type, name, index)

    def end_pass(self) -> ResidentStatistics:
        """Choose anew which rows are resident, by how often each was read; what is fetched does not change.

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
        """Which rows are resident, and how often they were what was read."""
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

    def _bring(self, arrays: Mapping[tuple[str, str], FeatureArray], dtype: torch.dtype | None) -> None:
        """Place features, those with the smallest rows first: they cost the most to read from elsewhere."""
        import torch

        tensors = {}
        for key, each in arrays.items():
            tensor = as_tensor(each.values)
            tensors[key] = tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
        placed = {}
        for key in sorted(tensors, key=lambda each: (_row_bytes(tensors[each]), each)):
            tensor = tensors[key]
            words = _as_words(tensor)
            left = self._hbm_bytes - self._device_bytes
            column = None
            misses: Misses = "read"
            if words.nbytes <= left:
                words = words.to(self.device)
                self._device_bytes += words.nbytes
            else:
                words = pinned_copy(words, self.device)
                misses = self._misses or _quicker(self._bandwidths, _row_bytes(tensor), self._threads)
                self._pinned_bytes += words.nbytes
                if _KNOWN_BYTES * len(words) <= left:
                    uses = torch.zeros(len(words), dtype=torch.int32, device=self.device)
                    column = ListColumn(words.view(-1), uses, row_values=words.shape[1])
                    self._device_bytes += _KNOWN_BYTES * len(words)
            is_categorical = arrays[key].is_categorical
            placed[key] = _Rows(words, tensor.dtype, tensor.shape[1:], is_categorical, column, misses)
        self._rows = {key: placed[key] for key in tensors}
        self._settle()

    def _settle(self) -> None:
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    # Reading

    def _read(self, node_type: str, name: str, nodes: torch.Tensor) -> torch.Tensor:
        import torch

        from graphbox.sample.feature_rows_gpu import read_rows  # Triton, where it is used

        rows = self._rows[node_type, name]
        with self._gate.reading(), on_device(self.device):
            column = rows.column
            residents = None if column is None else self._residents.of(column)
            uses = None if column is None else column.uses
            is_copied = rows.misses == "copy"
            found = read_rows(rows.words, residents, uses, nodes, reads_away=not is_copied)
            if is_copied:
                self._copy_misses(rows, residents, nodes, found)
        values = found.view(rows.dtype).view(len(nodes), *rows.shape)
        return values.to(torch.int64) if rows.is_categorical else values

    def _copy_misses(
        self, rows: _Rows, residents: Residents | None, nodes: torch.Tensor, found: torch.Tensor
    ) -> None:
        """Let the host gather the rows that are not resident, and copy them at once."""
        import torch

        if residents is None:
            missing = torch.arange(len(nodes), device=self.device)
        else:
            missing = (residents.places[nodes] < 0).nonzero().squeeze(1)
        wanted = integer_array(nodes[missing], "nodes")
        is_cuda = self.device.type == "cuda"
        gathered = torch.empty(len(wanted), rows.words.shape[1], dtype=rows.words.dtype, pin_memory=is_cuda)
        gather_rows(rows.words, wanted, gathered, threads=self._threads)
        found[missing] = gathered.to(self.device, non_blocking=True)


def _row_bytes(rows: torch.Tensor) -> int:
    return rows.element_size() * math.prod(rows.shape[1:])


def _as_words(rows: torch.Tensor) -> torch.Tensor:
    """Return rows as [rows, words] of the widest integers that divide them."""
    import torch

    row_bytes = _row_bytes(rows)
    width = next(width for width in (8, 4, 2, 1) if row_bytes % width == 0)
    word = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}[width]
    as_bytes = rows.contiguous().view(-1).view(torch.uint8)
    return as_bytes.view(word).view(len(rows), row_bytes // width)


def _quicker(bandwidths: Bandwidths | None, row_bytes: int, threads: int | None) -> Misses:
    """Return how rows come from pinned memory in less time."""
    if bandwidths is None or row_bytes == 0:
        return "read"
    read_seconds = row_bytes / bandwidths.rows("pinned", row_bytes)
    gather_seconds = row_bytes / (_HOST_ROWS_BYTES_PER_SECOND * thread_count(threads))
    copy_seconds = gather_seconds + row_bytes / bandwidths.host_to_device
    return "read" if read_seconds <= copy_seconds else "copy"
