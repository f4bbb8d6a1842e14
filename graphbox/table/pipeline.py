"""Training steps whose pulls and pushes overlap the compute of other steps."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from graphbox import _core
from graphbox.errors import ConflictError, GraphboxError, TimeLimitError, UnsupportedError, UsageError
from graphbox.table.distributed_kind import is_sharded
from graphbox.table.gradients import Gradient, RowGradient, pushers
from graphbox.table.lookup import Plan, PulledRows
from graphbox.table.module import TableModule
from graphbox.table.table import EmbeddingTable

Batch = TypeVar("Batch")
Result = TypeVar("Result")
Pulled = tuple[Plan, list[PulledRows]]


class PipelinedBatches(Iterator[Batch], Generic[Batch]):
    """Hands out batches, and pulls the rows of those to come while the loop computes.

    With ``staleness=0`` the results are bit by bit those of the plain loop: the rows of the next batch are
    read while this one computes, without making new ones; when the next forward pass asks for them, those
    that changed meanwhile or were missing are pulled again. Whatever else changes the table in between is
    seen.

    With ``staleness=s`` of 1 or more, pushes go to the background, too: the rows of a batch are those before
    the pushes of the ``s`` batches before it. One thread pulls and pushes in the order of the loop, and the
    learning rate of a push is that at its backward pass: the results are the same in each run. Looking at a
    table directly, for instance to save it, needs :meth:`settle` first; modules in evaluation mode do that.

    A forward pass whose arguments are not those announced, or a second one of the same module for a batch,
    pulls for itself. At the end of the batches, and when this is closed or dropped, all pushes are done.

    Args:
        batches: what to iterate over; read one batch ahead, or ``staleness`` batches.
        arguments: for modules over tables, what their forward pass will get for a batch: a tuple of
            arguments, or the only one.
        staleness: how many batches' pushes the rows of a batch may lack.
        timeout_seconds: the longest wait for rows or for pushes; 0: no limit.

    Raises:
        UsageError: a wrong argument.
        ConflictError: a module or its table has such a pipeline already.
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        arguments: Mapping[TableModule, Callable[[Batch], Any]],
        *,
        staleness: int = 0,
        timeout_seconds: float = 600.0,
    ) -> None:
        if isinstance(staleness, bool) or not isinstance(staleness, int) or staleness < 0:
            raise UsageError(f"expected a number of batches, received {staleness!r}", where="staleness")
        if not arguments or not all(isinstance(each, TableModule) for each in arguments):
            raise UsageError("expected modules over tables, received none or others", where="arguments")
        if not timeout_seconds >= 0:
            raise UsageError(f"expected seconds, received {timeout_seconds!r}", where="timeout_seconds")
        self._batches = iter(batches)
        self._arguments = dict(arguments)
        self._waiting: deque[_Waiting[Batch]] = deque()
        self._number = 0
        self._pipeline = _Pipeline(tuple(arguments), staleness, timeout_seconds)
        # Not a bound method of this object: that would keep it alive.
        self._end = weakref.finalize(self, self._pipeline.close)

    def __repr__(self) -> str:
        state = "open" if self._end.alive else "closed"
        return (
            f"PipelinedBatches(modules={len(self._arguments)}, staleness={self._pipeline.staleness}, "
            f"batches={self._number - len(self._waiting)}, {state})"
        )

    def __iter__(self) -> PipelinedBatches[Batch]:
        return self

    def __enter__(self) -> PipelinedBatches[Batch]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __next__(self) -> Batch:
        try:
            self._pipeline.raise_failure()
        except BaseException:
            self.close()
            raise
        while self._end.alive and len(self._waiting) <= self._pipeline.ahead and self._announce():
            pass
        if not self._waiting:
            self.close()
            raise StopIteration
        waiting = self._waiting.popleft()
        if waiting.error is not None:
            self.close()
            raise waiting.error
        self._pipeline.begin_step(waiting.pulls)
        return waiting.batch[0]

    def settle(self) -> None:
        """Wait until all pushes so far are applied.

        Raises:
            GraphboxError: what a push in the background raised.
            TimeLimitError: they did not end within ``timeout_seconds``.
        """
        self._pipeline.settle()

    def close(self) -> None:
        """Apply the pushes so far and end the thread; the modules pull for themselves again."""
        self._waiting.clear()
        self._end()

    def _announce(self) -> bool:
        """Read another batch and have its rows pulled; return whether there may be more."""
        if self._waiting and self._waiting[-1].error is not None:
            return False
        try:
            batch = next(self._batches)
            arguments = {module: _tuple_of(make(batch)) for module, make in self._arguments.items()}
        except StopIteration:
            return False
        except Exception as error:  # noqa: BLE001 - raised when it is this batch's turn
            self._waiting.append(_Waiting((), {}, error))
            return False
        number, self._number = self._number, self._number + 1
        self._waiting.append(_Waiting((batch,), self._pipeline.pull(number, arguments)))
        return True


@dataclass(frozen=True, slots=True)
class _Pull:
    """A pull ahead: for which batch and arguments."""

    number: int
    arguments: tuple[Any, ...]
    result: Future[Pulled]


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Batch]):
    """A batch that was not handed out, in a tuple, or the error in its place."""

    batch: tuple[Batch, ...]
    pulls: Mapping[TableModule, _Pull]
    error: Exception | None = None


class _Pipeline:
    """What modules and tables know of a pipeline: pulls for the former, pushes for the latter."""

    def __init__(self, modules: tuple[TableModule, ...], staleness: int, timeout_seconds: float) -> None:
        self._modules = modules
        self._tables = tuple(dict.fromkeys(table for module in modules for table in module.tables))
        _refuse_sharded(self._tables)
        if any(module._ahead is not None for module in modules) or any(
            table in pushers for table in self._tables
        ):
            raise ConflictError(
                "a table or its module has a pipeline already", where="arguments", hint="close() it first"
            )
        self.staleness = staleness
        self._timeout_seconds = timeout_seconds
        self.ahead = max(1, staleness)
        self._executor = ThreadPoolExecutor(1, "graphbox-table-pipeline")
        self._pulls: dict[TableModule, _Pull] = {}
        self._step = -1
        self._pushed: list[_Pushed] = []  # in this step and the one before it
        self._pushed_before: list[_Pushed] = []
        self._pushes: deque[tuple[int, Future[None]]] = deque()
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        for module in modules:
            module._ahead = self
        for table in self._tables:
            pushers[table] = self

    def pull(self, number: int, arguments: Mapping[TableModule, tuple[Any, ...]]) -> dict[TableModule, _Pull]:
        """Pull in the background what the forward passes of a batch will ask for."""
        return {
            module: _Pull(number, each, self._submit(self._pull, module, each))
            for module, each in arguments.items()
            if module.training
        }

    def begin_step(self, pulls: Mapping[TableModule, _Pull]) -> None:
        """Go on to the next batch."""
        self._pulls = dict(pulls)
        self._step += 1
        with self._lock:
            self._pushed_before, self._pushed = self._pushed, []

    def take(self, module: TableModule, arguments: tuple[Any, ...]) -> Pulled | None:
        """Return what was pulled for the forward pass with these arguments, up to date, or None."""
        pull = self._pulls.pop(module, None)
        if pull is None or not _is_same(_given(pull.arguments), _given(arguments)):
            self.settle()
            return None
        name = f"the rows of batch {pull.number}"
        self._wait_for(pull.result, name)
        try:
            plan, pulled = pull.result.result()
        except Exception as error:
            self.settle()  # a push that failed is why, if there is one: that is what is raised then
            _say_where(error, name)
            raise
        return plan, pulled if self.staleness else [self._up_to_date(each) for each in pulled]

    def push(self, gradient: RowGradient) -> None:
        """Apply a gradient, in the background if rows may be stale."""
        if self.staleness:
            pushed = self._submit(self._push, gradient, gradient.table.lr)
            self._pushes.append((self._step, pushed))
            return
        changes = gradient.push()
        if isinstance(gradient, Gradient):  # on a device nothing is pulled ahead that could be out of date
            with self._lock:
                self._pushed.append(_Pushed(gradient.table, changes, gradient.rows))

    def settle(self) -> None:
        """Wait until all gradients so far are applied."""
        while self._pushes:
            step, push = self._pushes[0]
            self._wait_for(push, f"the push of batch {step}")
            self._pushes.popleft()
            self._raise(push, step)

    def raise_failure(self) -> None:
        """Raise what a push raised that is done."""
        while self._pushes and self._pushes[0][1].done():
            step, push = self._pushes.popleft()
            self._raise(push, step)

    def close(self) -> None:
        """Detach modules and tables, apply what is pushed, end the thread."""
        for module in self._modules:
            module._ahead = None
        for table in self._tables:
            pushers.pop(table, None)
        self._pulls = {}
        try:
            self.settle()
        finally:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Have work done in the background; what it does on a GPU comes after what the loop did there."""
        stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]

        def run() -> Result:
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                return work(*arguments)

        return self._executor.submit(run)

    def _pull(self, module: TableModule, arguments: tuple[Any, ...]) -> Pulled:
        self._stop_after_failure()
        plan = module.plan(*arguments)
        return plan, [each.pull_ahead(is_final=self.staleness > 0) for each in plan.lookups]

    def _push(self, gradient: RowGradient, lr: float) -> None:
        self._stop_after_failure()
        try:
            gradient.push(lr)
        except BaseException as error:
            self._failure = error
            raise

    def _stop_after_failure(self) -> None:
        """What comes after a push that failed would be of other rows than those of the loop."""
        if self._failure is not None:
            raise self._failure

    def _up_to_date(self, pulled: PulledRows) -> PulledRows:
        table = pulled.lookup.table

        def pushed(changes: int) -> list[_core.PulledRows]:
            with self._lock:
                return [
                    each.rows
                    for each in self._pushed_before + self._pushed
                    if each.table is table and each.changes > changes
                ]

        return pulled.up_to_date(pushed)

    def _wait_for(self, result: Future[Any], name: str) -> None:
        wait([result], timeout=self._timeout_seconds or None)
        if not result.done():
            raise TimeLimitError(
                f"waited {self._timeout_seconds:g} seconds, the `timeout_seconds` of the pipeline, in vain",
                where=name,
                hint="give it more time, or 0 for no limit",
            )

    def _raise(self, push: Future[None], step: int) -> None:
        error = push.exception()
        if error is not None:
            self._pushes.clear()  # none of those behind it is applied
            _say_where(error, f"the push of batch {step}")
            raise error


@dataclass(frozen=True, slots=True)
class _Pushed:
    """A push that was applied: the table's count of changes after it, and its rows."""

    table: EmbeddingTable
    changes: int
    rows: _core.PulledRows


def _refuse_sharded(tables: tuple[EmbeddingTable, ...]) -> None:
    if any(is_sharded(table) for table in tables):
        raise UnsupportedError(
            "expected a table of this process alone, received one in several processes: what a thread asks "
            "the others for would get between what the loop asks them for",
            where="arguments",
            hint="leave the pipeline out",
        )


def _say_where(error: BaseException, name: str) -> None:
    if isinstance(error, GraphboxError):
        error.where = f"{name}: {error.where}" if error.where else name
    else:
        error.add_note(f"raised in the background, for {name}")


def _tuple_of(arguments: Any) -> tuple[Any, ...]:
    return arguments if isinstance(arguments, tuple) else (arguments,)


def _given(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments without those at the end that are None, as if they were not given."""
    while arguments and arguments[-1] is None:
        arguments = arguments[:-1]
    return arguments


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.is_nested or other.is_nested or one.device != other.device or one.dtype != other.dtype:
            return False
        return torch.equal(one, other) and not (one.requires_grad or other.requires_grad)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    return False
