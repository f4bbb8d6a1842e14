"""Calls of many clients run joined: each gets its own rows, in time, and nothing waits where nothing runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import TensorSpec
from graphbox.deploy.cancellation import check_cancelled
from graphbox.deploy.protocol import Feeds
from graphbox.deploy.signature import Outputs, Parameters, Signature, by_name
from graphbox.errors import InvalidRequestError, NotFoundError, TimeLimitError
from graphbox.server.batching import Batcher, Call, Outcome
from graphbox.server.executor import INLINE_NS, Executor
from graphbox.server.problem import RefusedError

SPEC = TensorSpec(name="x", datatype="INT64", shape=(-1,))
Answer = Callable[[Feeds, Parameters], Outputs]


def signature(answer: Answer, *, joinable: bool = True) -> Signature:
    return Signature(
        platform="graphbox",
        inputs=by_name([SPEC]),
        outputs=by_name([SPEC]),
        answer=answer,
        work=lambda inputs: len(inputs["x"]),
        parameters=frozenset({"add"}),
        joinable=joinable,
    )


class Server:
    """A batcher with its executor, and the sizes of the executions."""

    def __init__(self, answer: Answer | None = None, *, joinable: bool = True, **limits: Any) -> None:
        self.sizes: list[int] = []
        self.executor = Executor(limits.pop("max_pending", 64), threads=2)
        given = {"max_wait_s": 0.002, "max_rows": 256, "max_queue_s": 10.0} | limits
        self.batcher = Batcher(
            signature(self._count(answer or add_one), joinable=joinable), self.executor, **given
        )

    def _count(self, answer: Answer) -> Answer:
        def counted(inputs: Feeds, parameters: Parameters) -> Outputs:
            self.sizes.append(len(inputs["x"]))
            return answer(inputs, parameters)

        return counted

    async def infer(self, *values: int, **fields: Any) -> Outcome:
        return await self.infer_call(Call({"x": np.array(values, np.int64)}, **fields))

    async def infer_call(self, call: Call) -> Outcome:
        call.started_ns = call.received_ns = call.decoded_ns = time.perf_counter_ns()
        found: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.batcher.submit(call, found.set_result)
        return await found

    def learn(self, ns: int = INLINE_NS // 100) -> None:
        """Let executions of one row take so long, by default a time that counts as short."""
        for _ in range(3):
            self.batcher.cost.observe(1, ns)


def add_one(inputs: Feeds, parameters: Parameters) -> Outputs:
    return {"x": inputs["x"] + parameters.get("add", 1)}


def outputs_of(outcome: Outcome) -> list[int]:
    assert outcome.error is None
    assert outcome.outputs is not None
    values: list[int] = outcome.outputs["x"].tolist()
    return values


def run(server: Server, work: Callable[[], Any]) -> Any:
    try:
        return asyncio.run(work())
    finally:
        server.executor.close()


def test_calls_of_one_turn_are_joined() -> None:
    server = Server()
    server.learn()

    async def ask() -> list[Outcome]:
        return await asyncio.gather(*(server.infer(number, number + 100) for number in range(10)))

    found = run(server, ask)
    assert [outputs_of(each) for each in found] == [[n + 1, n + 101] for n in range(10)]
    assert sum(server.sizes) == 20
    assert len(server.sizes) < 10


def test_calls_with_large_outputs_run_apart() -> None:
    """Two of these outputs are as large as joined ones may be."""
    width = 16 * 1024
    spec = TensorSpec(name="x", datatype="INT64", shape=(-1, width))
    sizes: list[int] = []

    def answer(inputs: Feeds, _parameters: Parameters) -> Outputs:
        sizes.append(len(inputs["x"]))
        return {"x": np.repeat(inputs["x"][:, None], width, axis=1)}

    server = Server()
    wide = replace(signature(answer), outputs=by_name([spec]))
    assert wide.output_row_bytes == 8 * width
    server.batcher = Batcher(wide, server.executor, max_wait_s=0.002, max_rows=256, max_queue_s=10.0)
    server.learn()

    async def ask() -> list[Outcome]:
        return await asyncio.gather(*(server.infer(number) for number in range(8)))

    for number, outcome in enumerate(run(server, ask)):
        assert outcome.outputs is not None
        assert (outcome.outputs["x"] == number).all()
    assert sizes == [2] * 4


def test_calls_with_other_parameters_run_apart() -> None:
    server = Server()
    server.learn()

    async def ask() -> list[Outcome]:
        return await asyncio.gather(*(server.infer(7, parameters={"add": n % 2}) for n in range(8)))

    assert [outputs_of(each) for each in run(server, ask)] == [[7], [8]] * 4
    assert sorted(server.sizes) == [4, 4]


def test_what_may_not_be_joined_runs_alone() -> None:
    server = Server(joinable=False)
    server.learn()

    async def ask() -> list[Outcome]:
        return await asyncio.gather(*(server.infer(n) for n in range(5)))

    assert [outputs_of(each) for each in run(server, ask)] == [[n + 1] for n in range(5)]
    assert server.sizes == [1] * 5


@pytest.mark.parametrize("ns", [INLINE_NS // 1000, INLINE_NS * 2])
def test_rows_are_never_mixed(ns: int) -> None:
    """64 clients, a million rows, each with the number of its client and of its call, on both paths."""

    def answer(inputs: Feeds, _parameters: Parameters) -> Outputs:
        time.sleep(0)
        return {"x": -inputs["x"]}

    server = Server(answer)
    server.learn(ns)
    rows = 0

    async def client(number: int) -> None:
        nonlocal rows
        random = np.random.default_rng(number)
        for call in range(64):
            count = int(random.integers(0, 490))
            tags = (np.arange(count) + (call << 20) + (number << 32)).tolist()
            assert outputs_of(await server.infer(*tags)) == [-tag for tag in tags]
            rows += count

    async def ask() -> None:
        await asyncio.gather(*(client(number) for number in range(64)))

    run(server, ask)
    assert rows > 950_000


def test_one_wrong_call_does_not_fail_the_others() -> None:
    def answer(inputs: Feeds, _parameters: Parameters) -> Outputs:
        if (inputs["x"] < 0).any():
            raise NotFoundError("there is no node of that id")
        return {"x": inputs["x"]}

    server = Server(answer)
    server.learn()

    async def ask() -> list[Outcome]:
        return await asyncio.gather(*(server.infer(-n if n == 3 else n) for n in range(9)))

    found = run(server, ask)
    # As a node of a model that exists, the id is a wrong request.
    assert isinstance(found[3].error, InvalidRequestError)
    assert [outputs_of(each) for n, each in enumerate(found) if n != 3] == [[n] for n in range(9) if n != 3]


def test_nothing_waits_where_nothing_runs() -> None:
    server = Server(max_wait_s=60)

    async def ask() -> Outcome:
        return await asyncio.wait_for(server.infer(1), 20)

    assert outputs_of(run(server, ask)) == [2]


def test_calls_wait_for_a_running_execution_and_are_joined() -> None:
    begun, release = threading.Event(), threading.Event()

    def answer(inputs: Feeds, parameters: Parameters) -> Outputs:
        begun.set()
        release.wait(20)
        return add_one(inputs, parameters)

    server = Server(answer, max_wait_s=60)

    async def ask() -> list[Outcome]:
        first = asyncio.ensure_future(server.infer(0))
        await asyncio.to_thread(begun.wait, 20)
        later = [asyncio.ensure_future(server.infer(n)) for n in range(1, 8)]
        await asyncio.sleep(0.05)
        assert server.batcher.waiting == 7
        release.set()
        return await asyncio.gather(first, *later)

    assert [outputs_of(each) for each in run(server, ask)] == [[n + 1] for n in range(8)]
    assert server.sizes == [1, 7]


def test_no_call_waits_longer_than_the_limit_to_be_joined() -> None:
    begun, release = threading.Event(), threading.Event()

    def answer(inputs: Feeds, parameters: Parameters) -> Outputs:
        if inputs["x"][0] == 0:
            begun.set()
            release.wait(20)
        return add_one(inputs, parameters)

    server = Server(answer, max_wait_s=0.02)

    async def ask() -> list[Outcome]:
        first = asyncio.ensure_future(server.infer(0))
        await asyncio.to_thread(begun.wait, 20)
        second = await asyncio.wait_for(server.infer(5), 20)  # while the first still runs
        release.set()
        return [await first, second]

    assert [outputs_of(each) for each in run(server, ask)] == [[1], [6]]


def test_a_lower_priority_number_goes_first() -> None:
    order: list[int] = []

    def answer(inputs: Feeds, parameters: Parameters) -> Outputs:
        order.append(int(inputs["x"][0]))
        return add_one(inputs, parameters)

    server = Server(answer, joinable=False)
    server.learn()

    async def ask() -> None:
        await asyncio.gather(
            server.infer(0), server.infer(9, priority=9), server.infer(1, priority=1), server.infer(10)
        )

    run(server, ask)
    assert order == [1, 9, 0, 10]


def test_more_work_than_the_queue_takes_is_refused() -> None:
    server = Server(max_queue_s=0.01)
    server.learn(4_000_000)  # four milliseconds

    async def ask() -> list[Any]:
        return await asyncio.gather(*(server.infer(n) for n in range(10)), return_exceptions=True)

    found = run(server, ask)
    refused = [each for each in found if isinstance(each, RefusedError)]
    assert len(refused) == 8
    assert refused[0].status == 503
    assert refused[0].headers == {"retry-after": "1"}
    assert [outputs_of(each) for each in found[:2]] == [[1], [2]]


def test_a_time_limit_ends_a_call_and_not_those_joined_with_it() -> None:
    release = threading.Event()

    def answer(inputs: Feeds, parameters: Parameters) -> Outputs:
        release.wait(20)
        return add_one(inputs, parameters)

    server = Server(answer)

    async def ask() -> tuple[Outcome, Outcome]:
        patient = asyncio.ensure_future(server.infer(1))
        hasty = asyncio.ensure_future(server.infer(2, timeout_s=0.05))
        late = await asyncio.wait_for(hasty, 20)
        release.set()
        return late, await patient

    late, patient = run(server, ask)
    assert isinstance(late.error, TimeLimitError)
    assert "within 0.05 s" in str(late.error)
    assert outputs_of(patient) == [2]


def test_an_execution_ends_when_all_its_calls_are_cancelled() -> None:
    begun, ended = threading.Event(), threading.Event()

    def answer(inputs: Feeds, _parameters: Parameters) -> Outputs:
        begun.set()
        try:
            while not ended.wait(0.01):
                check_cancelled()
        finally:
            ended.set()
        return dict(inputs)

    server = Server(answer)
    calls = [Call({"x": np.array([n])}) for n in range(2)]

    async def ask() -> None:
        asks = [asyncio.ensure_future(server.infer_call(call)) for call in calls]
        await asyncio.to_thread(begun.wait, 20)
        calls[0].cancel()
        await asyncio.sleep(0.05)
        assert not ended.is_set()
        calls[1].cancel()
        assert await asyncio.to_thread(ended.wait, 20)
        assert not any(each.done() for each in asks)
        for each in asks:
            each.cancel()

    run(server, ask)


def test_one_execution_is_counted_for_joined_calls() -> None:
    server = Server()
    server.learn()

    async def ask() -> list[Outcome]:
        return await asyncio.gather(*(server.infer(n) for n in range(12)))

    assert sum(each.executions for each in run(server, ask)) == len(server.sizes) < 12


def test_an_outcome_that_cannot_be_delivered_does_not_keep_others_from_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    server.learn()
    found: list[Outcome] = []

    def fail(_outcome: Outcome) -> None:
        raise ZeroDivisionError

    async def ask() -> None:
        for done in (fail, found.append):
            server.batcher.submit(Call({"x": np.array([1])}), done)
        await asyncio.sleep(0.05)

    run(server, ask)
    assert [outputs_of(each) for each in found] == [[2]]
    assert "could not be delivered" in caplog.text


def test_calls_that_cannot_be_joined_by_a_fault_are_answered_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    server.learn()

    async def ask() -> list[Outcome]:
        wrong = Call({"y": np.array([1])}, parameters={})
        server.batcher._signature = signature(add_one)
        given: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        server.batcher._queue.append((wrong, 1))
        wrong._done = given.set_result
        return [await server.infer(1), await given]

    outcomes = run(server, ask)
    assert [type(each.error) for each in outcomes] == [KeyError, KeyError]
    assert "calls could not be run" in caplog.text


def test_what_runs_on_threads_counts_as_waiting() -> None:
    release = threading.Event()

    def answer(inputs: Feeds, parameters: Parameters) -> Outputs:
        release.wait(20)
        return add_one(inputs, parameters)

    server = Server(answer, joinable=False, max_queue_s=0.1)
    server.learn(40_000_000)

    async def ask() -> list[Any]:
        asks = [asyncio.ensure_future(server.infer(n)) for n in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(RefusedError, match="as much work"):
            await server.infer(9)
        release.set()
        return await asyncio.gather(*asks)

    assert [outputs_of(each) for each in run(server, ask)] == [[1], [2]]
