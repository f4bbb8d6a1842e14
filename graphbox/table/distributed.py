"""Processes of one machine that train together: what they tell each other, without ever waiting for good."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as torch_distributed
from torch import Tensor

from graphbox.errors import (
    BackendMissingError,
    GraphboxError,
    ProcessLostError,
    TimeLimitError,
    UnsupportedError,
    UsageError,
)
from graphbox.native import Int64Array
from graphbox.table.distributed_board import ProcessBoard

DEFAULT_TIMEOUT_SECONDS = 600.0

FILES_TIMEOUT_SECONDS = 86_400.0
"""The longest wait for a process that reads or writes a checkpoint: what is slow is the disk."""

_GRACE_SECONDS = 2.0
"""Extra time, after a failure of the transport, in which a process may report its own error."""

_SLICE_SECONDS = 0.2
"""Interval at which a wait checks that the other processes are alive."""

_MEETING_SECONDS = 0.005
"""Polling interval of a wait for processes that read or write files."""

_PATH_BYTES = 1024

_REASON_LETTERS = 600
"""The most letters of what a transport says of its failure: NCCL says the reason last."""


class ProcessGroup:
    """The processes that train one model, each with a rank from 0: what they tell each other.

    Each operation is a collective: all processes call the same ones in the same order, each with a name that
    says what it is for. One that another process does not come to ends within ``timeout_seconds``; one whose
    process ended or failed at once. The error says which operation waited for which process, and what that
    one was doing: a page of shared memory holds where each of them is.

    Numbers and what is in host memory go through gloo, tensors on GPUs through NCCL, in groups of their own,
    which collectives of others cannot get between. Those of NCCL begin when the stream that is current comes
    to them, and what follows on that stream waits for them, the process does not: it may use and free
    tensors at once, as those of any operation on that stream. What goes wrong on a GPU shows in the next
    collective of numbers, of which each operation on rows has one. A process that waits for its GPU, whose
    neighbour is gone, cannot look for others: NCCL's own watchdog ends it (SIGABRT) when an operation takes
    longer than the time limit.

    Args:
        device: where rows and gradients are; ``cuda`` needs a GPU for each process, which becomes the current
            one. GPUs are connected here, so that what is wrong with that shows before any work.
        timeout_seconds: the longest wait for another process.
        parent: the group of ``torch.distributed`` whose processes these are; None: all of them.

    Raises:
        UsageError: ``torch.distributed`` was not initialized, or this process is none of the group.
        UnsupportedError: the processes are on several machines.
        BackendMissingError: NCCL is not there, or cannot connect the GPUs.
    """

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        parent: torch_distributed.ProcessGroup | None = None,
    ) -> None:
        if not torch_distributed.is_available() or not torch_distributed.is_initialized():
            raise UsageError(
                "expected processes that know each other, torch.distributed was not initialized",
                hint="call torch.distributed.init_process_group() first, or train with `processes:`",
            )
        if not timeout_seconds > 0:
            raise UsageError(f"expected seconds, received {timeout_seconds!r}", where="timeout_seconds")
        self.device = _with_index(torch.device(device))
        self.timeout_seconds = float(timeout_seconds)
        self.rank = torch_distributed.get_rank(parent)
        self.size = torch_distributed.get_world_size(parent)
        if self.rank < 0:
            raise UsageError("expected a process of the group, this one is none", where="parent")
        ranks = torch_distributed.get_process_group_ranks(parent)
        # A little later than the waits here: they say more.
        limit = timedelta(seconds=self.timeout_seconds + _GRACE_SECONDS)
        self._groups = {"cpu": torch_distributed.new_group(ranks, timeout=limit, backend="gloo")}
        self._failure: GraphboxError | None = None
        self._number = 0
        self._board = self._common_board()
        if self.device.type == "cuda":
            with self.failing():
                self._connect_gpus(ranks, limit)

    def __repr__(self) -> str:
        return f"ProcessGroup(rank={self.rank}, size={self.size}, device={str(self.device)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)
        self.close()

    @property
    def is_first(self) -> bool:
        """Whether this is the process of rank 0, which writes what is written once."""
        return self.rank == 0

    def slice_of(self, count: int) -> slice:
        """Return this process's part of ``count`` things in order: parts differ by one thing at most."""
        return self.slices_of(count)[self.rank]

    def slices_of(self, count: int) -> list[slice]:
        """Return the parts of all processes, by their ranks: see :meth:`slice_of`."""
        bounds = [rank * count // self.size for rank in range(self.size + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]

    # ------------------------------------------------------------------------- collectives

    def exchange(self, name: str, numbers: Int64Array) -> Int64Array:
        """Send row r of ``numbers`` to process r: int64 [size, n]; return what came from each, as many."""
        sent = torch.tensor(numbers)
        received = torch.empty_like(sent)
        self._run(name, lambda group: torch_distributed.all_to_all_single(received, sent, **group), sent)
        return received.numpy()

    def all_to_all(self, name: str, rows: Tensor, sends: list[int], receives: list[int]) -> Tensor:
        """Send parts of ``rows`` to all processes, in the order of their ranks, and return what came.

        Args:
            name: what it is for.
            rows: [sum of sends, ...], contiguous.
            sends: how many rows each process gets.
            receives: how many come from each; what it gives as ``sends`` for this process.

        Returns:
            [sum of receives, ...] on the device of ``rows``, those of rank 0 first.
        """
        received = rows.new_empty((sum(receives), *rows.shape[1:]))
        self._run(
            name,
            lambda group: torch_distributed.all_to_all_single(received, rows, receives, sends, **group),
            rows,
        )
        return received

    def gather(self, name: str, numbers: Int64Array) -> Int64Array:
        """Return the ``numbers`` of all processes, int64 [n] each, as int64 [size, n]."""
        return self.exchange(name, np.tile(numbers, (self.size, 1)))

    def gather_rows(self, name: str, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the rows of all processes, those of rank 0 first: [sum of counts, ...].

        Args:
            name: what it is for.
            rows: [n, ...] of this process.
            counts: how many rows each process has, by its rank; the same numbers in all.
        """
        most = max(counts)
        if most == 0:
            return rows
        own = rows.contiguous()
        if len(own) < most:  # all send as much as each other
            own = rows.new_zeros((most, *rows.shape[1:]))
            own[: len(rows)] = rows
        found = rows.new_empty((self.size * most, *rows.shape[1:]))
        parts = list(torch.split(found, most))
        self._run(name, lambda group: torch_distributed.all_gather(parts, own, **group), own)
        if min(counts) == most:
            return found
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def gather_slices(self, name: str, rows: Tensor, count: int) -> Tensor:
        """Return ``count`` rows in order, of which each process gives its :meth:`slice_of` them.

        Gradients flow back: each process gets those of its slice, those of all processes added up in the
        order of their ranks. So the backward pass is a collective as well: all processes come to it, by way
        of a loss that depends on the result, and to several of them in the same order.

        Args:
            name: what they are for.
            rows: floats [slice, ...].
            count: how many all processes have together.

        Returns:
            [count, ...] on the device of ``rows``, the same bits in each process.

        Raises:
            UsageError: rows that are not as many as the slice has.
        """
        counts = [each.stop - each.start for each in self.slices_of(count)]
        if len(rows) != counts[self.rank]:
            raise UsageError(
                f"expected {counts[self.rank]} of {count} rows, received {len(rows)}",
                where=f"{self._me}, {name}",
            )
        gathered: Tensor = _GatheredSlices.apply(rows, self, name, counts)  # type: ignore[no-untyped-call]
        return gathered

    def add(self, name: str, tensor: Tensor) -> Tensor:
        """Make ``tensor`` the sum of those of all processes, the same bits in each; return it."""
        self._run(name, lambda group: torch_distributed.all_reduce(tensor, **group), tensor)
        return tensor

    def broadcast(self, name: str, tensor: Tensor) -> Tensor:
        """Make ``tensor`` what it is in the process of rank 0; return it."""
        source = torch_distributed.get_global_rank(self._groups["cpu"], 0)
        self._run(name, lambda group: torch_distributed.broadcast(tensor, source, **group), tensor)
        return tensor

    def tell(self, name: str, text: str) -> str:
        """Return the text of rank 0 in all processes; what others give does not count."""
        content = text.encode() if self.is_first else b""
        length = self.broadcast(name, torch.tensor([len(content)]))
        letters = torch.zeros(int(length), dtype=torch.uint8)
        if self.is_first:
            letters[:] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        return bytes(self.broadcast(name, letters).tolist()).decode()

    def barrier(self, name: str, *, timeout_seconds: float | None = None) -> None:
        """Wait until all processes are here.

        Args:
            name: what it is for.
            timeout_seconds: how long, where some read or write files; None: as long as the group says.
        """
        if timeout_seconds is not None:
            self._meet(name, timeout_seconds)
        self.gather(name, np.zeros(1, np.int64))

    # ------------------------------------------------------------------------------ failing

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Let the others fail too if the block does: what they wait for will not come."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Let the others end, with an error that says why: this process comes to no further collective."""
        if self._failure is None:
            self._board.fail(f"{type(error).__name__}: {error}".splitlines()[0])
            self._end(ProcessLostError("this process has failed before", where=self._me))

    def close(self) -> None:
        """Leave the group; a process that the others still wait for has failed, for them."""
        if self._failure is None:
            self._finish_gpu()
        self._board.end()
        if self._failure is None:
            self._failure = UsageError("the group of processes is closed", where=self._me)
            for group in self._groups.values():
                torch_distributed.destroy_process_group(group)

    @property
    def _me(self) -> str:
        return f"rank {self.rank} of {self.size}"

    def _connect_gpus(self, ranks: list[int], limit: timedelta) -> None:
        """Let NCCL connect the GPUs, when all processes are there and can use theirs."""
        if not torch_distributed.is_nccl_available():
            raise BackendMissingError(
                "expected NCCL, by which GPUs talk to each other, this PyTorch was built without it",
                where=self._me,
                hint="install PyTorch for CUDA on Linux, or keep rows and models on the CPU",
            )
        torch.cuda.set_device(self.device)  # NCCL takes the current one for what it allocates
        torch.empty(1, device=self.device)  # what is wrong with a GPU shows before others wait for it
        self.barrier("connect the GPUs")
        try:
            self._groups["cuda"] = torch_distributed.new_group(
                ranks, timeout=limit, backend="nccl", device_id=self.device
            )
        except (AssertionError, RuntimeError) as error:
            raise BackendMissingError(
                f"NCCL cannot connect the GPUs: {_reason_of(error)}",
                where=f"{self._me}, {self.device}",
                hint="each process needs a GPU of its own; NCCL_DEBUG=INFO lets NCCL say more",
            ) from error

    def _finish_gpu(self) -> None:
        """Wait until the GPU has done what it was given: NCCL must not go before its last operations."""
        if self.device.type != "cuda":
            return
        done = torch.cuda.current_stream(self.device).record_event()
        begun = time.monotonic()
        while not done.query():
            if time.monotonic() - begun > self.timeout_seconds:
                raise TimeLimitError(
                    f"waited {self.timeout_seconds:g} seconds for what the GPU was given last",
                    where=f"{self._me}, {self.device}",
                )
            time.sleep(_MEETING_SECONDS)

    def _common_board(self) -> ProcessBoard:
        """Return the board of this group, whose file has no name any more when all have it open."""
        path = torch.zeros(_PATH_BYTES, dtype=torch.uint8)
        own: Path | None = None
        if self.rank == 0:
            descriptor, name = tempfile.mkstemp(prefix="graphbox-processes-")
            os.close(descriptor)
            own = Path(name)
            ProcessBoard.create(own, self.size)
            encoded = os.fsencode(own)
            path[: len(encoded)] = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
        try:
            group = self._groups["cpu"]
            source = torch_distributed.get_global_rank(group, 0)
            torch_distributed.broadcast(path, source, group=group)
            board: ProcessBoard | None = None
            with suppress(OSError):  # all say so below, when all have heard of it
                board = ProcessBoard(Path(os.fsdecode(bytes(path.tolist()).rstrip(b"\0"))), self.rank)
            opened = torch.tensor([int(board is not None)])
            torch_distributed.all_reduce(opened, group=group)
        finally:
            if own is not None:
                own.unlink()
        if board is None or int(opened) < self.size:
            raise UnsupportedError(
                f"expected processes of one machine, not all of {self.size} see the same files",
                where=self._me,
                hint="start all on one machine, with the same folder for temporary files",
            )
        return board

    def _meet(self, name: str, timeout_seconds: float) -> None:
        """Look at the board until all have come, or one is gone: the transport's own limit does not count."""
        if self._failure is not None:
            raise self._failure
        self._number += 1
        self._board.enter(self._number, name)
        begun = time.monotonic()
        while any(place.number < self._number for place in self._board.places()):
            if self._board.gone():
                raise self._lost(name, RuntimeError("a process is gone"))
            if time.monotonic() - begun > timeout_seconds:
                raise self._late(name, timeout_seconds)
            time.sleep(_MEETING_SECONDS)
        self._board.leave(self._number)

    def _run(self, name: str, start: Callable[[dict[str, Any]], Any], tensor: Tensor) -> None:
        if self._failure is not None:
            raise self._failure
        self._number += 1
        self._board.enter(self._number, name)
        group = self._groups.get(tensor.device.type)
        if group is None or (tensor.device.type == "cuda" and tensor.device != self.device):
            raise UsageError(
                f"expected a tensor on {self.device} or in host memory, received one on {tensor.device}",
                where=name,
            )
        try:
            work = start({"group": group, "async_op": True})
            if tensor.device.type == "cpu":
                self._wait(name, work)
            else:
                work.wait()  # the stream waits, not the process
        except RuntimeError as error:
            raise self._lost(name, error) from error
        except BaseException as error:
            self.fail(error)
            raise
        self._board.leave(self._number)

    def _wait(self, name: str, work: Any) -> None:
        begun = time.monotonic()
        while True:
            try:
                work.wait(timedelta(seconds=min(_SLICE_SECONDS, self.timeout_seconds)))
            except RuntimeError:
                if work.is_completed():  # with an error, or just after this wait had ended
                    work.wait()
                    return
            else:
                return
            if self._board.gone():  # though what it sent before may be on its way
                work.wait(timedelta(seconds=_GRACE_SECONDS))
                return
            if time.monotonic() - begun > self.timeout_seconds:
                raise self._late(name, self.timeout_seconds)

    def _late(self, name: str, seconds: float) -> TimeLimitError:
        """Return the error that others did not come to an operation in time, or came to another."""
        places = self._board.places()
        own = places[self.rank]
        missing = [
            f"rank {place.rank}, which {place.doing}"
            for place in places
            if place.number < own.number or (place.number == own.number and place.operation != own.operation)
        ]
        error = TimeLimitError(
            f"waited {seconds:g} seconds for {' and for '.join(missing) or 'the network'}",
            where=f"{self._me}, {name}",
            hint="all processes do the same operations in the same order; where one only takes longer, give "
            "the group more `timeout_seconds`",
        )
        self._board.fail(f"TimeLimitError: {error.message}")
        self._end(error)
        return error

    def _lost(self, name: str, error: RuntimeError) -> GraphboxError:
        """Return the error that another process has ended."""
        if isinstance(error, GraphboxError):
            return error
        # A connection may break a moment before the system says that the process is gone.
        until = time.monotonic() + _GRACE_SECONDS
        while not (gone := self._board.gone()) and time.monotonic() < until:
            time.sleep(0.01)
        what = " and ".join(f"rank {place.rank}, which {place.doing}" for place in gone)
        lost = ProcessLostError(
            f"lost {what}" if gone else f"the transport failed: {_reason_of(error)}",
            where=f"{self._me}, {name}",
            hint="what that process said last tells why; a training goes on from its last checkpoint",
        )
        self._board.fail(f"ProcessLostError: {lost.message}")
        self._end(lost)
        return lost

    def _end(self, error: GraphboxError) -> None:
        self._failure = error
        for kind, group in self._groups.items():
            with suppress(RuntimeError):  # of a connection that is broken already: the error says more
                group._get_backend(torch.device(kind)).abort()


def _with_index(device: torch.device) -> torch.device:
    """Return a device with its number: where tensors say that they are."""
    number = None if device.type != "cuda" or device.index is not None else torch.cuda.current_device()
    return device if number is None else torch.device("cuda", number)


def _reason_of(error: Exception) -> str:
    """Return what a transport says of its failure in one line."""
    return " ".join(str(error).split())[:_REASON_LETTERS]


class _GatheredSlices(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup, name: str, counts: list[int]) -> Tensor:
        ctx.group, ctx.name, ctx.counts = group, name, counts
        return group.gather_rows(name, rows.detach(), counts)

    @staticmethod
    def backward(ctx: Any, *of_results: Tensor) -> tuple[Tensor | None, ...]:
        group, counts = ctx.group, ctx.counts
        own = counts[group.rank]
        came = group.all_to_all(
            f"{ctx.name}: gradients", of_results[0].contiguous(), counts, [own] * group.size
        )
        # One after the other, so that the order of additions is that of ranks on every device.
        total, *others = came.view(group.size, own, *came.shape[1:])
        for each in others:
            total += each
        return total, None, None, None
