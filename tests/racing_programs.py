"""Finds what a GPU would race about in kernels that the interpreter runs one program after the other.

Programs of a launch run in any order, or at once, and warps of a program wait for each other only at
barriers. The interpreter does neither, so a kernel that needs an order passes every test of values. What each
program reads and writes is noted here, and told where two of them touch an address that one of them writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter

__all__ = ["Races", "watched_programs"]

_READ, _WRITE, _ATOMIC = 0, 1, 2
_WORDS = ("read", "written", "changed atomically")

_WARPS = 4
"""Of a program where a launch does not say."""
_WARP_THREADS = 32

_MEANT = {
    (
        "hash_gpu.py",
        "_search",
    ): "an entry that is erased meanwhile is found or not; then it is exchanged",
}
"""Functions of kernels that may read what others change atomically, and why."""


@dataclass(frozen=True, eq=False)
class _Access:
    """Memory accesses of one operation of a program.

    Attributes:
        program: its number in the launch.
        kind: read, written or atomic.
        part: number of barriers that the program met before.
        line: place of the operation in the source.
        is_repeated: whether several warps hold the operation's tensor, which all read it.
        addresses: int64 [n].
        lanes: int64 [n], place of each in the operation's tensor.
        values: uint64 [n], written values, bit by bit.
    """

    program: int
    kind: int
    part: int
    line: str
    is_repeated: bool
    addresses: NDArray[np.int64]
    lanes: NDArray[np.int64]
    values: NDArray[np.uint64]


@dataclass
class Races:
    """Races that were found.

    Attributes:
        found: descriptions of two accesses that race, each once.
        launches: number of launches that were watched.
    """

    found: dict[str, None] = field(default_factory=dict)
    launches: int = 0
    _accesses: list[_Access] = field(default_factory=list)
    _program: int = -1
    _part: int = 0
    _warps: int = 0

    def begin_launch(self, warps: int) -> None:
        """Note that a launch begins, and how many warps a program has."""
        self._program, self._warps = -1, warps

    def begin_program(self) -> None:
        """Note that the next program of the launch begins."""
        self._program, self._part = self._program + 1, 0

    def meet_barrier(self) -> None:
        """Note that the warps of the program wait for each other."""
        self._part += 1

    def note(self, kind: int, pointers: Any, mask: Any = None, values: Any = None) -> None:
        """Note an operation on memory."""
        addresses = np.asarray(pointers.data).astype(np.int64).reshape(-1)
        line, function = _source()
        if kind == _READ and (line.partition(":")[0], function) in _MEANT:
            return
        chosen = np.ones(len(addresses), bool)
        if mask is not None:
            chosen = np.broadcast_to(mask.data, np.shape(pointers.data)).reshape(-1).astype(bool)
        if not chosen.any():
            return
        bits = np.zeros(len(addresses), np.uint64)
        if values is not None:
            plain = np.ascontiguousarray(np.broadcast_to(values.data, np.shape(pointers.data))).reshape(-1)
            bits = plain.view(f"u{plain.dtype.itemsize}").astype(np.uint64)
        self._accesses.append(
            _Access(
                self._program,
                kind,
                self._part,
                line,
                self._warps > 1 and len(addresses) < _WARP_THREADS * self._warps,
                addresses[chosen],
                np.flatnonzero(chosen),
                bits[chosen],
            )
        )

    def end_launch(self) -> None:
        """Look at what the programs of a launch did."""
        if any(each.kind != _READ for each in self._accesses):
            self._compare()
        self._accesses.clear()
        self.launches += 1

    def _compare(self) -> None:
        accesses = self._accesses
        sizes = [len(each.addresses) for each in accesses]
        number = np.repeat(np.arange(len(accesses)), sizes)
        address = np.concatenate([each.addresses for each in accesses])
        lane = np.concatenate([each.lanes for each in accesses])
        value = np.concatenate([each.values for each in accesses])
        kind = np.array([each.kind for each in accesses])[number]
        changed = np.unique(address[kind != _READ])
        kept = np.isin(address, changed)
        number, address, lane, value = number[kept], address[kept], lane[kept], value[kept]
        order = np.argsort(address, kind="stable")
        number, address, lane, value = number[order], address[order], lane[order], value[order]
        begins = np.flatnonzero(np.r_[True, address[1:] != address[:-1]])
        seen: set[tuple[int, ...]] = set()
        for begin, end in zip(begins, np.r_[begins[1:], len(address)], strict=True):
            if end - begin < 2:
                continue
            here = tuple(number[begin:end].tolist())
            if here not in seen or len(set(value[begin:end].tolist())) > 1:
                seen.add(here)
                self._compare_address(here, lane[begin:end].tolist(), value[begin:end].tolist())

    def _compare_address(self, numbers: tuple[int, ...], lanes: list[int], values: list[int]) -> None:
        accesses = [self._accesses[number] for number in numbers]
        if all(each.kind == _ATOMIC for each in accesses):
            return  # of a node that thousands of programs meet there are too many pairs to look at
        for at, (one, lane, value) in enumerate(zip(accesses, lanes, values, strict=True)):
            if one.kind == _READ:
                continue
            for other_at, other in enumerate(accesses):
                if other_at == at or (other.kind != _READ and other_at < at):
                    continue
                is_same = value == values[other_at]
                if one.kind == _ATOMIC and other.kind == _ATOMIC:
                    continue
                if one.kind == other.kind == _WRITE and is_same:
                    continue  # whoever comes last writes the same
                if one.program != other.program:
                    self._tell("by different programs", one, other)
                elif one is other:
                    self._tell("twice in one operation, with different values", one, other)
                elif one.part == other.part and (lane != lanes[other_at] or one.is_repeated):
                    self._tell("by different threads of a program without a barrier", one, other)

    def _tell(self, how: str, one: _Access, other: _Access) -> None:
        self.found[f"{_WORDS[one.kind]} at {one.line}, {_WORDS[other.kind]} at {other.line}, {how}"] = None


@contextmanager
def watched_programs() -> Iterator[Races]:
    """Note what the programs of all launches do that are interpreted meanwhile."""
    races = Races()
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store
    swap, change = builder.create_atomic_cas, builder.create_atomic_rmw
    begin, barrier, launch = builder.set_grid_idx, builder.create_barrier, interpreter.GridExecutor.__call__

    def watched_load(
        self: Any, pointers: Any, mask: Any, other: Any, cache: Any, is_volatile: Any = False
    ) -> Any:
        if not is_volatile:  # which says that others may change it
            races.note(_READ, pointers, mask)
        return load(self, pointers, mask, other, cache, is_volatile)

    def watched_store(self: Any, pointers: Any, values: Any, mask: Any, *rest: Any) -> Any:
        races.note(_WRITE, pointers, mask, values)
        return store(self, pointers, values, mask, *rest)

    def watched_swap(self: Any, pointers: Any, *rest: Any) -> Any:
        races.note(_ATOMIC, pointers)
        return swap(self, pointers, *rest)

    def watched_change(self: Any, operation: Any, pointers: Any, values: Any, mask: Any, *rest: Any) -> Any:
        races.note(_ATOMIC, pointers, mask)
        return change(self, operation, pointers, values, mask, *rest)

    def watched_begin(self: Any, *place: int) -> None:
        races.begin_program()
        begin(self, *place)

    def watched_barrier(self: Any) -> None:
        races.meet_barrier()
        barrier(self)

    def watched_launch(self: Any, *arguments: Any, **settings: Any) -> None:
        races.begin_launch(settings.get("num_warps", _WARPS))
        launch(self, *arguments, **settings)
        races.end_launch()

    with (
        patch.object(builder, "create_masked_load", watched_load),
        patch.object(builder, "create_masked_store", watched_store),
        patch.object(builder, "create_atomic_cas", watched_swap),
        patch.object(builder, "create_atomic_rmw", watched_change),
        patch.object(builder, "set_grid_idx", watched_begin),
        patch.object(builder, "create_barrier", watched_barrier),
        patch.object(interpreter.GridExecutor, "__call__", watched_launch),
    ):
        yield races


def _source() -> tuple[str, str]:
    """Return which line of which function of a kernel runs."""
    frame = sys._getframe(2)
    while "triton" in frame.f_code.co_filename or frame.f_code.co_filename == __file__:
        if frame.f_back is None:
            return "?", "?"
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno}", code.co_name
