"""Arrays larger than memory: rows and lists read from disk in batches and passes, the often used kept.

The native core joins the tiers MEM and SSD in one store (``csrc/store``): files are read past the page cache
with many requests in flight, and what is wanted often stays in memory under a budget in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import NotFoundError, UsageError, did_you_mean
from graphbox.graph.array_file import ArrayFile
from graphbox.native import Int64Array, integer_array, thread_count

Array: TypeAlias = npt.NDArray[Any]
Backend = Literal["auto", "io_uring", "threads"]


@dataclass(frozen=True)
class TierOptions:
    """Options of reading files.

    Attributes:
        backend: ``io_uring``, ``threads`` (each waits for one read), or ``auto``: io_uring where the build
            has it and the kernel allows it.
        depth: reads in flight for each thread that reads.
        direct: past the page cache (O_DIRECT) where the file system can; False: through it.
        threads: processor threads of one call; default: the available cores. Results never depend on it.
    """

    backend: Backend = "auto"
    depth: int = 64
    direct: bool = True
    threads: int | None = None


@dataclass(frozen=True)
class TierStats:
    """Requests to a tier since it was opened, and its memory.

    Attributes:
        requests: rows and lists requested.
        hits: parts of them found in memory; a part is a row, or the share of a list in one block of the
            cache; of an array that is wholly in memory each request is one.
        misses: parts read from disk.
        read_bytes: bytes read from disk.
        read_requests: reads made for them.
        resident_bytes: bytes held in memory now, index included.
        budget_bytes: the most it may hold.
    """

    requests: int
    hits: int
    misses: int
    read_bytes: int
    read_requests: int
    resident_bytes: int
    budget_bytes: int

    @property
    def hit_rate(self) -> float:
        """Share of the parts that memory had; 0 before the first request."""
        return self.hits / max(self.hits + self.misses, 1)


class Rows:
    """Rows of one array file, from disk and from memory within a budget.

    Opening reads nothing. Rows of 128 bytes to 64 KiB are kept one by one, others by blocks of 512 bytes; an
    array that fits the budget is kept whole once it was read. What stays is decided by use (SIEVE).

    Beside the budget, a call holds for each thread that reads 8 MiB of staging memory and about 6 MiB of
    bookkeeping, or a tenth of its result where that is more. Safe for several Python threads at once; the
    GIL is released.

    Args:
        file: the array; its first dimension counts rows.
        budget_bytes: the most memory to hold, index included; 0: only disk.
        options: how to read.

    Raises:
        NotFoundError: there is no such file.
        FormatError: the file has another size than the array.
    """

    def __init__(self, file: ArrayFile, *, budget_bytes: int = 0, options: TierOptions | None = None) -> None:
        options = options or TierOptions()
        self._file = file
        self._threads = thread_count(options.threads)
        self._row_bytes = file.dtype.itemsize * math.prod(file.shape[1:])
        units = (file.offset, self._row_bytes, self.num_rows) if self._row_bytes else None
        self._store = _store([file], units, budget_bytes, options)
        self._array = (0, file.offset, self._row_bytes, self.num_rows)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._file.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self._file.dtype

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self._file.shape[1:]

    @property
    def stats(self) -> TierStats:
        """Its requests and memory."""
        return _stats(self._store)

    @property
    def backend(self) -> str:
        """Backend in use: ``io_uring, O_DIRECT``, or another and why not io_uring."""
        return self._store.backend

    def read(
        self,
        index: npt.ArrayLike,
        out: Array | None = None,
        *,
        places: Int64Array | None = None,
        whole_pass: bool = False,
    ) -> Array:
        """Return rows in the order of the index.

        More than 131,072 of them are read in parts in the order of the disk, so that memory stays bounded.

        Args:
            index: row numbers [n], repeated ones too.
            out: where to put them: a C-contiguous array [n, *row_shape] of the dtype.
            places: int64 [n], where in ``out`` (which then is [any, *row_shape]) each row goes; else the
                i-th goes to place i.
            whole_pass: what is used often is not driven out of memory by what is read.

        Raises:
            UsageError: a row number is out of range (the first is named), or ``out`` does not match.
            FormatError: the file was truncated meanwhile.
            DataError: the disk does not give the bytes.
        """
        index = integer_array(index, "index")
        shape = (len(index), *self.row_shape)
        if out is not None and places is not None:
            shape = (len(out), *self.row_shape)
        if out is None:
            out = _empty(shape, self.dtype)
        elif out.dtype != self.dtype or out.shape != shape or not out.flags.c_contiguous:
            layout = "" if out.flags.c_contiguous else ", not C-contiguous"
            raise UsageError(
                f"expected a C-contiguous array {self.dtype} {list(shape)}, received {out.dtype} "
                f"{list(out.shape)}{layout}",
                where="out",
            )
        flat = out.reshape(-1).view(np.uint8)
        self._store.read_rows(self._array, index, flat, whole_pass, self._threads, places)
        return out


@dataclass(frozen=True)
class ListFiles:
    """Array files that hold lists.

    Attributes:
        offsets: int64 [num_lists + 1]; list i is items ``offsets[i]`` to ``offsets[i + 1]``.
        items: arrays of as many items by name, read with the same offsets; the first is what lists hold.
    """

    offsets: ArrayFile
    items: Mapping[str, ArrayFile]


class Lists:
    """Lists of different lengths in array files: neighbours of nodes, features with several values.

    Made by :func:`open_lists`, which lets several share one budget; offsets, too, are read when they are
    needed. Kept in memory are blocks of 512 bytes, or all that fits. Safe for several Python threads at once.
    """

    def __init__(self, store: _core.Store, first_file: int, files: ListFiles, threads: int) -> None:
        self._store = store
        self._threads = threads
        self._offsets = (first_file, files.offsets.offset, 8, files.offsets.shape[0])
        self._items = {
            name: (first_file + 1 + number, file.offset, file.dtype.itemsize, file.shape[0])
            for number, (name, file) in enumerate(files.items.items())
        }
        self._dtypes = {name: file.dtype for name, file in files.items.items()}
        self._num_items = next(iter(files.items.values())).shape[0]

    @property
    def num_lists(self) -> int:
        """Number of lists."""
        return self._offsets[3] - 1

    @property
    def num_items(self) -> int:
        """Number of items of all lists."""
        return self._num_items

    @property
    def names(self) -> Sequence[str]:
        """Names of the arrays of items."""
        return tuple(self._items)

    def item_bytes(self, name: str) -> int:
        """Return the bytes of one item of an array."""
        return self._dtypes[name].itemsize

    @property
    def stats(self) -> TierStats:
        """Requests and memory of the store, for all that share it."""
        return _stats(self._store)

    @property
    def backend(self) -> str:
        """Backend in use: ``io_uring, O_DIRECT``, or another and why not io_uring."""
        return self._store.backend

    def lists(self, index: npt.ArrayLike) -> tuple[Int64Array, Array]:
        """Return lists in the order of the index.

        Args:
            index: list numbers [n], repeated ones too.

        Returns:
            (offsets int64 [n + 1], items): list i is ``items[offsets[i]:offsets[i + 1]]``.

        Raises:
            UsageError: a list number is out of range; the first is named.
            FormatError: the file was truncated meanwhile, or its offsets do not ascend.
            DataError: the disk does not give the bytes.
        """
        first = next(iter(self._items))
        read = self.read(index, (first,))
        return read.offsets, read.items[first]

    def read(
        self,
        index: npt.ArrayLike,
        names: Sequence[str],
        *,
        bounds: Int64Array | None = None,
        whole_pass: bool = False,
    ) -> ReadLists:
        """Return several arrays of the same lists; see :meth:`lists`.

        Args:
            index: list numbers [n].
            names: which arrays of items.
            bounds: what :meth:`bounds` gave for the index; None: read now.
            whole_pass: what is used often is not driven out of memory by what is read.

        Raises:
            NotFoundError: there is no array of that name.
            UsageError, FormatError, DataError: as :meth:`lists` does.
        """
        index = integer_array(index, "index")
        for name in names:
            self._check_name(name)
        if bounds is None:
            bounds, starts = self._store.read_bounds(
                self._offsets, self._num_items, index, whole_pass, self._threads
            )
        else:
            starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(bounds[:, 1] - bounds[:, 0])])
        items = {}
        for name in names:
            items[name] = _empty((int(starts[-1]),), self._dtypes[name])
            self._store.read_items(
                self._items[name],
                index,
                self.num_lists,
                bounds,
                starts,
                items[name].view(np.uint8),
                whole_pass,
                self._threads,
            )
        return ReadLists(starts, items, bounds)

    def bounds(self, index: Int64Array) -> Int64Array:
        """Return the positions at which lists begin and end in the files: int64 [n, 2].

        Args:
            index: list numbers [n], repeated ones too. What is used often stays in memory.

        Raises:
            UsageError, FormatError, DataError: as :meth:`lists` does.
        """
        bounds, _ = self._store.read_bounds(self._offsets, self._num_items, index, True, self._threads)
        return bounds

    def items_at(self, name: str, positions: Int64Array, *, whole_pass: bool = False) -> Array:
        """Return single items of one array by their positions in the files, whatever lists they are in.

        Args:
            name: which array of items.
            positions: int64 [n].
            whole_pass: what is used often is not driven out of memory by what is read.

        Raises:
            NotFoundError: there is no array of that name.
            UsageError: a position is out of range; the first is named.
        """
        self._check_name(name)
        out = _empty((len(positions),), self._dtypes[name])
        index = integer_array(positions, "positions")
        self._store.read_rows(self._items[name], index, out.view(np.uint8), whole_pass, self._threads)
        return out

    def _check_name(self, name: str) -> None:
        if name not in self._items:
            raise NotFoundError(
                f"there is no array `{name}` of these lists",
                hint=did_you_mean(name, self._items) or f"there are {', '.join(self._items)}",
            )


@dataclass(frozen=True, eq=False)
class ReadLists:
    """Lists that were read.

    Attributes:
        offsets: int64 [n + 1]; list i is ``items[name][offsets[i]:offsets[i + 1]]``.
        items: what they hold, by name of the array.
        bounds: int64 [n, 2], where each list begins and ends in the files.
    """

    offsets: Int64Array
    items: Mapping[str, Array]
    bounds: Int64Array

    def positions(self) -> Int64Array:
        """Return where each item stands in the files, int64 [offsets[-1]]."""
        lengths = np.diff(self.offsets)
        moved = np.repeat(self.bounds[:, 0] - self.offsets[:-1], lengths)
        return moved + np.arange(len(moved), dtype=np.int64)


Key = TypeVar("Key")


def open_lists(
    files: Mapping[Key, ListFiles], *, budget_bytes: int = 0, options: TierOptions | None = None
) -> dict[Key, Lists]:
    """Open lists that share one budget: what of them all is used most is kept.

    Args:
        files: the lists by any key.
        budget_bytes: the most memory to hold, index included; 0: only disk.
        options: how to read.

    Raises:
        NotFoundError: there is no such file.
        FormatError: a file has another size than its array.
        UsageError: offsets are not int64, or arrays of the same lists differ in length.
    """
    options = options or TierOptions()
    all_files: list[ArrayFile] = []
    first = {}
    for key, each in files.items():
        _check_lists(each)
        first[key] = len(all_files)
        all_files += [each.offsets, *each.items.values()]
    if not all_files:
        return {}
    store = _store(all_files, None, budget_bytes, options)
    threads = thread_count(options.threads)
    return {key: Lists(store, first[key], each, threads) for key, each in files.items()}


def _check_lists(files: ListFiles) -> None:
    where = str(files.offsets.path)
    if files.offsets.dtype != np.int64 or len(files.offsets.shape) != 1 or files.offsets.shape[0] < 1:
        raise UsageError(
            f"expected offsets int64 [lists + 1], received {files.offsets.dtype} {list(files.offsets.shape)}",
            where=where,
        )
    shapes = {file.shape for file in files.items.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise UsageError(f"expected arrays [items] of one length, received {sorted(shapes)}", where=where)


def _store(
    files: Sequence[ArrayFile], rows: tuple[int, int, int] | None, budget_bytes: int, options: TierOptions
) -> _core.Store:
    if budget_bytes < 0:
        raise UsageError(f"expected 0 bytes or more, received {budget_bytes}", where="budget_bytes")
    sizes = [(str(file.path), file.offset + file.data_bytes) for file in files]
    return _core.Store(sizes, rows, budget_bytes, options.backend, options.depth, options.direct)


def _stats(store: _core.Store) -> TierStats:
    return TierStats(**store.stats(), budget_bytes=store.budget_bytes)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return memory to read into: huge pages that are used again, which costs far less than fresh memory."""
    return _core.pooled_bytes(dtype.itemsize * math.prod(shape)).view(dtype).reshape(shape)
