"""Features of the nodes of batches from a graph on disk: batch by batch, or in passes with a known trace."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import ConflictError, UsageError
from graphbox.native import Int64Array
from graphbox.sample.fan_out import fan_out
from graphbox.sample.gather import gather_rows, pooled_array
from graphbox.sample.sampled import HeteroSample
from graphbox.sample.tiered_neighbor import SampledPass

if TYPE_CHECKING:
    from graphbox.graph.tiered_graph import TieredGraph

Array: TypeAlias = npt.NDArray[Any]
BatchFeatures: TypeAlias = dict[str, dict[str, Array]]
"""Rows of a batch's nodes by node type and name; of slots the values, and their offsets as ``name_ptr``."""

_ALIGNMENT_BYTES = 4096
_RANK_BYTES_OF_448_ROWS = 64


class TierFetch:
    """Fetches features batch by batch, when it is not known what comes next: memory keeps what is used often.

    Args:
        graph: the graph.
        names: of features by node type.
    """

    def __init__(self, graph: TieredGraph, names: Mapping[str, Sequence[str]]) -> None:
        self._graph = graph
        self._names = {node_type: tuple(wanted) for node_type, wanted in names.items()}
        self._kinds = _kinds(graph, self._names)

    def fetch(self, samples: Sequence[HeteroSample[Any]]) -> list[BatchFeatures]:
        """Return the features of each sample's nodes."""
        return [self._fetch(sample) for sample in samples]

    def _fetch(self, sample: HeteroSample[Any]) -> BatchFeatures:
        features: BatchFeatures = {}
        for (node_type, name), kind in self._kinds.items():
            rows, nodes = features.setdefault(node_type, {}), _in_host_memory(sample.nodes[node_type])
            if kind == "slots":
                rows[f"{name}_ptr"], rows[name] = self._graph.slot_lists(node_type, name, nodes)
            else:
                rows[name] = _as_given(self._graph.feature_rows(node_type, name, nodes), kind)
        return features


@dataclass(frozen=True)
class FetchCounts:
    """Counters of a :class:`PassFetch`.

    Attributes:
        hits: rows of windows that memory had.
        misses: rows that were read, also those of batches with more of them than fit.
        windows: how many groups of batches were read together.
    """

    hits: int
    misses: int
    windows: int


class PassFetch:
    """Fetches features for passes of batches whose nodes are all known before the first is used.

    Batches whose different rows fill up to half of the memory are a window. What a window misses is read at
    once, each row once, in the order of the disk, while the batches of the window before are used. Between
    windows those rows are kept that are wanted soonest (Belady's rule), those of the next pass too.

    One loop at a time. Beside its memory it holds what the trace needs: 8 bytes for each different row of a
    pass, 16 for each row of two windows.

    Args:
        graph: the graph; its own memory for features is not used, and stays empty.
        names: of features by node type.
        memory_bytes: the most memory for rows, shared by node types in proportion to their size on disk;
            None: the graph's ``feature_bytes``. Slots are read batch by batch.

    Raises:
        NotFoundError: there is no such feature.
        UsageError: ``memory_bytes`` is negative.
    """

    def __init__(
        self, graph: TieredGraph, names: Mapping[str, Sequence[str]], *, memory_bytes: int | None = None
    ) -> None:
        memory_bytes = graph.feature_bytes if memory_bytes is None else memory_bytes
        if memory_bytes < 0:
            raise UsageError(f"expected 0 bytes or more, received {memory_bytes}", where="memory_bytes")
        kinds = _kinds(graph, names)
        rows = {
            node_type: [name for name in wanted if kinds[node_type, name] != "slots"]
            for node_type, wanted in names.items()
        }
        self._slots = TierFetch(
            graph, {key: [name for name in names[key] if name not in rows[key]] for key in names}
        )
        made = {key: _NodeRows(graph, key, wanted, kinds) for key, wanted in rows.items() if wanted}
        left, total = memory_bytes, sum(each.table_bytes for each in made.values())
        for each in sorted(made.values(), key=lambda each: each.table_bytes):
            share = min(each.most_bytes, left * each.table_bytes // max(total, 1))
            each.allot(share)
            left, total = left - share, total - each.table_bytes
        self._rows = made
        self._busy = False

    @property
    def counts(self) -> FetchCounts:
        """Counters since it was made."""
        rows = self._rows.values()
        return FetchCounts(
            sum(each.hits for each in rows),
            sum(each.misses for each in rows),
            sum(each.windows for each in rows),
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of rows and of what is kept about them."""
        return sum(each.size_bytes for each in self._rows.values())

    def fetch(
        self, passes: Iterable[SampledPass]
    ) -> Generator[tuple[HeteroSample[Any], BatchFeatures], None, None]:
        """Give each batch of each pass with its features, in order.

        The next pass is taken from ``passes`` when the last window of the one before is about to be used.

        Raises:
            ConflictError: it is giving batches already.
            FormatError, DataError: the graph is damaged, or the disk does not give its bytes.
        """
        if self._busy:
            raise ConflictError("expected the batches of one loop, received a second while the first goes on")
        self._busy = True
        try:
            with ExitStack() as held:
                reader = held.enter_context(ThreadPoolExecutor(1, thread_name_prefix="graphbox-fetch"))
                own, *others = fan_out(passes, 1 + len(self._rows))
                streams = {
                    node_type: held.enter_context(closing(rows.batches(each, reader)))
                    for (node_type, rows), each in zip(self._rows.items(), others, strict=True)
                }
                del others
                for samples in own:
                    for number in range(len(samples)):
                        rows_of = {node_type: next(stream) for node_type, stream in streams.items()}
                        sample = samples[number]
                        features = self._slots.fetch([sample])[0]
                        for node_type, rows in rows_of.items():
                            features.setdefault(node_type, {}).update(rows)
                        yield sample, features
                for stream in streams.values():
                    next(stream, None)  # so that it ends as it should, and keeps its rows for the next loop
        finally:
            self._busy = False


@dataclass(frozen=True, eq=False)
class _Window:
    """Batches whose rows are read together.

    Attributes:
        batches: the nodes of each.
        slots: int64, where the row of each node of each batch is; None: there was no room for them.
        read: done when they are there.
    """

    batches: list[Int64Array]
    slots: Int64Array | None
    read: Future[None]


class _NodeRows:
    """The rows of one node type that are in memory: a slot has those of a node of all features."""

    def __init__(
        self, graph: TieredGraph, node_type: str, names: Sequence[str], kinds: Mapping[tuple[str, str], str]
    ) -> None:
        self._graph = graph
        self._node_type = node_type
        self._kinds = {name: kinds[node_type, name] for name in names}
        self._empty = {name: graph.feature_rows(node_type, name, []) for name in names}
        self._num_nodes = graph.graph.num_nodes(node_type)
        self._row_bytes = sum(_row_bytes(each) for each in self._empty.values())
        self._slots = 0
        self._values: dict[str, Array] = {}
        self._cache = _core.TraceCache(self._num_nodes, 0)
        self._counted = [0, 0]  # hits and misses of caches before this one
        self.windows = 0

    @property
    def table_bytes(self) -> int:
        """Bytes of all rows."""
        return self._row_bytes * self._num_nodes

    @property
    def most_bytes(self) -> int:
        """Bytes that keeping all rows takes."""
        return self._bytes_beside + self._num_nodes * (self._row_bytes + _core.TraceCache.slot_bytes)

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        return self._cache.bytes + sum(each.nbytes for each in self._values.values())

    @property
    def hits(self) -> int:
        """Rows of windows that were there."""
        return self._counted[0] + self._cache.hits

    @property
    def misses(self) -> int:
        """Rows of windows that were read."""
        return self._counted[1] + self._cache.misses

    @property
    def _bytes_beside(self) -> int:
        ranks = (self._num_nodes // 448 + 1) * _RANK_BYTES_OF_448_ROWS
        return ranks + _ALIGNMENT_BYTES * len(self._kinds)

    def allot(self, memory_bytes: int) -> None:
        """Take as many slots as fit."""
        for_slots = max(memory_bytes - self._bytes_beside, 0)
        self._slots = min(for_slots // (self._row_bytes + _core.TraceCache.slot_bytes), self._num_nodes)
        self._values = {
            name: _aligned((self._slots, *empty.shape[1:]), empty.dtype)
            for name, empty in self._empty.items()
        }
        self._forget()

    def _forget(self) -> None:
        self._counted = [self.hits, self.misses]
        self._cache = _core.TraceCache(self._num_nodes, self._slots)

    def batches(
        self, passes: Iterator[SampledPass], reader: ThreadPoolExecutor
    ) -> Generator[dict[str, Array], None, None]:
        """Give the rows of each batch of each pass, in order; a window is read while one is used."""
        ahead: _Window | None = None
        try:
            windows = self._read_windows(passes, reader)
            ahead = next(windows, None)
            while ahead is not None:
                window, ahead = ahead, None
                ahead = next(windows, None)
                window.read.result()
                yield from self._rows_of(window)
                self._cache.release()
        except BaseException:
            # Whatever was being read may not be there: nothing in the slots can be relied on.
            if ahead is not None:
                ahead.read.cancel()
            self._forget()
            raise

    def _read_windows(self, passes: Iterator[SampledPass], reader: ThreadPoolExecutor) -> Iterator[_Window]:
        for samples in passes:
            batches = samples.nodes(self._node_type)
            del samples
            begins = self._cache.begin_pass(batches)
            for first, last in pairwise(begins):
                group = batches[first:last]
                has_slots, rows, slots, wanted = self._cache.plan(group)
                self.windows += 1
                yield _Window(group, wanted if has_slots else None, reader.submit(self._read, rows, slots))

    def _read(self, rows: Int64Array, slots: Int64Array) -> None:
        if len(rows):
            for name, values in self._values.items():
                self._graph.read_feature_rows(self._node_type, name, rows, values, slots)

    def _rows_of(self, window: _Window) -> Iterator[dict[str, Array]]:
        begin = 0
        for nodes in window.batches:
            end = begin + len(nodes)
            rows = {}
            if window.slots is None:
                self._counted[1] += len(nodes)
            for name, values in self._values.items():
                if window.slots is not None:
                    found = gather_rows(values, window.slots[begin:end], num_threads=1)
                else:
                    found = pooled_array((len(nodes), *values.shape[1:]), values.dtype)
                    self._graph.read_feature_rows(self._node_type, name, nodes, found)
                rows[name] = _as_given(found, self._kinds[name])
            begin = end
            yield rows


def _in_host_memory(nodes: Any) -> Int64Array:
    in_host: Int64Array = nodes if isinstance(nodes, np.ndarray) else nodes.cpu().numpy()
    return in_host


def _kinds(graph: TieredGraph, names: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    return {
        (node_type, name): graph.feature_kind(node_type, name)
        for node_type, wanted in names.items()
        for name in wanted
    }


def _as_given(values: Array, kind: str) -> Array:
    """Return rows as loaders give them: categories as int64 codes."""
    return values.astype(np.int64) if kind == "categorical" else values


def _row_bytes(rows: Array) -> int:
    return rows.dtype.itemsize * math.prod(rows.shape[1:])


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array that begins at a page; memory comes with use."""
    size = dtype.itemsize * math.prod(shape)
    memory = np.empty(size + _ALIGNMENT_BYTES, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[begin : begin + size].view(dtype).reshape(shape)
