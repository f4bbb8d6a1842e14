"""The pool of threads: bounded, fair to its callers, and quick to say no."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from graphbox.deploy.cancellation import Cancellation, check_cancelled
from graphbox.errors import TimeLimitError
from graphbox.server.executor import INLINE_NS, LONG_NS, CostEstimate, Executor
from graphbox.server.problem import RefusedError


def test_more_than_it_takes_is_refused() -> None:
    async def fill() -> None:
        executor = Executor(max_pending=3, threads=1)
        release = threading.Event()
        try:
            running = [asyncio.ensure_future(executor.run(lambda: release.wait(20))) for _ in range(3)]
            await asyncio.sleep(0)
            assert executor.pending == 3
            with pytest.raises(RefusedError) as caught:
                await executor.run(lambda: None)
            assert caught.value.status == 503
            assert caught.value.headers == {"retry-after": "1"}
            release.set()
            assert await asyncio.gather(*running) == [True] * 3
            assert await executor.run(lambda: 7) == 7
            assert executor.pending == 0
        finally:
            release.set()
            executor.close()

    asyncio.run(fill())


def test_a_caller_that_left_frees_its_place_when_its_work_is_done() -> None:
    async def leave() -> None:
        executor = Executor(max_pending=1, threads=1)
        release, begun = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            release.wait(20)

        try:
            running = asyncio.ensure_future(executor.run(work))
            await asyncio.to_thread(begun.wait, 20)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert executor.pending == 1
            release.set()
            await asyncio.wait_for(wait_for_none(executor), 20)
            assert await executor.run(lambda: "next") == "next"
        finally:
            release.set()
            executor.close()

    async def wait_for_none(executor: Executor) -> None:
        while executor.pending:
            await asyncio.sleep(0.01)

    asyncio.run(leave())


def test_work_of_a_caller_that_left_is_cancelled() -> None:
    """Queued work never begins; running work ends at its next check."""

    async def leave() -> None:
        executor = Executor(max_pending=3, threads=1)
        begun, ended = threading.Event(), threading.Event()
        calls: list[str] = []

        def run_until_cancelled() -> None:
            begun.set()
            try:
                while not ended.wait(0.01):
                    check_cancelled()
            finally:
                ended.set()

        try:
            running = asyncio.ensure_future(executor.run(run_until_cancelled))
            await asyncio.to_thread(begun.wait, 20)
            queued = asyncio.ensure_future(executor.run(lambda: calls.append("queued")))
            await asyncio.sleep(0)
            for caller in (queued, running):
                caller.cancel()
            assert await asyncio.to_thread(ended.wait, 20)
            assert await executor.run(lambda: "next") == "next"
            assert calls == []
        finally:
            ended.set()
            executor.close()

    asyncio.run(leave())


def test_a_caller_that_is_cancelled_ends_its_work() -> None:
    async def leave() -> None:
        executor = Executor(max_pending=2, threads=1)
        begun, ended = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            try:
                while not ended.wait(0.01):
                    check_cancelled()
            finally:
                ended.set()

        try:
            running = asyncio.ensure_future(executor.run(work))
            await asyncio.to_thread(begun.wait, 20)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await asyncio.to_thread(ended.wait, 20)
        finally:
            ended.set()
            executor.close()

    asyncio.run(leave())


def test_short_work_does_not_wait_for_long_work() -> None:
    async def mix() -> None:
        executor = Executor(max_pending=20, threads=2)
        release = threading.Event()
        try:
            long = [asyncio.ensure_future(executor.run(release.wait, long=True)) for _ in range(10)]
            for number in range(20):
                assert await asyncio.wait_for(executor.run(partial(int, number)), 20) == number
            assert not any(each.done() for each in long)
            release.set()
            assert all(await asyncio.gather(*long))
        finally:
            release.set()
            executor.close()

    asyncio.run(mix())


def test_a_time_limit_ends_queued_work() -> None:
    async def wait() -> None:
        executor = Executor(max_pending=2, threads=1)
        try:
            with pytest.raises(TimeLimitError, match=r"within 0\.5 s"):
                await executor.run(lambda: None, Cancellation(0.5, elapsed_s=1.0))
        finally:
            executor.close()

    asyncio.run(wait())


def test_errors_reach_the_caller() -> None:
    async def fail() -> None:
        executor = Executor(max_pending=2)
        with pytest.raises(ZeroDivisionError):
            await executor.run(lambda: 1 // 0)
        assert executor.pending == 0
        executor.close()
        with pytest.raises(RefusedError, match="stopping"):
            await executor.run(lambda: None)

    asyncio.run(fail())


def test_cost_is_learnt() -> None:
    cost = CostEstimate()
    assert not cost.is_short(1), "what is not known may be long"
    cost.observe(10, INLINE_NS // 10)
    assert cost.is_short(50)
    assert not cost.is_short(200)
    for _ in range(100):
        cost.observe(1, INLINE_NS * 2)
    assert not cost.is_short(1)
    cost.observe(0, 1)
    assert not cost.is_short(0)


def test_a_first_execution_that_lost_its_processor_is_not_believed() -> None:
    cost = CostEstimate()
    cost.observe(1, INLINE_NS // 10)
    cost.observe(2, INLINE_NS * 100)
    assert cost.is_short(2)
    for _ in range(20):
        cost.observe(2, INLINE_NS * 100)
    assert not cost.is_short(2), "each time it took long"


def test_slow_first_executions_do_not_make_short_work_long() -> None:
    cost = CostEstimate()
    assert not cost.is_long(2)
    assert cost.is_long(1000), "of unknown cost, much work is long"
    cost.observe(1, LONG_NS)
    assert not cost.is_long(2)
    assert cost.is_long(1000)
    for _ in range(2):
        cost.observe(1, LONG_NS)
    assert cost.is_long(2)
    for _ in range(3):
        cost.observe(2000, LONG_NS // 2)
    assert not cost.is_long(2000), "each time it took less"


def test_an_estimate_that_keeps_calls_apart_is_forgotten() -> None:
    """Else calls that were once too long together would never be joined again, and never be measured."""
    cost = CostEstimate()
    cost.observe(1, INLINE_NS // 20)
    for _ in range(20):
        cost.observe(8, INLINE_NS * 4)
    assert not cost.is_short(8)
    for _ in range(2 * 4096):
        cost.observe(1, INLINE_NS // 20)
    assert cost.is_short(8)
    assert cost.is_short(1)


def test_calls_are_not_refused_by_the_first_executions() -> None:
    cost = CostEstimate()
    for _ in range(2):
        cost.observe(4, INLINE_NS * 1000)
        assert cost.at_least_ns(4) == 0
    cost.observe(4, INLINE_NS * 1000)
    assert cost.at_least_ns(4) == INLINE_NS * 1000
    assert cost.at_least_ns(1) == 0
