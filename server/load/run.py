"""Runs a load test, in this process or in several."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from graphbox.errors import GraphboxError, ProcessLostError
from graphbox.server.load.grpc_load import GrpcLoad
from graphbox.server.load.http_load import HttpLoad
from graphbox.server.load.plan import LoadPlan, LoadReport, Tally

__all__ = ["run_load"]

_START_TIMEOUT_S = 60.0


def run_load(plan: LoadPlan) -> LoadReport:
    """Send the requests of a plan and measure the answers.

    Raises:
        UsageError: the plan cannot be carried out.
        BackendMissingError: the server cannot be reached, or grpcio is missing.
        ProcessLostError: a process of the client ended.
    """
    plan.check()
    if plan.processes == 1:
        # A thread of its own: the caller may have an event loop, as a notebook has.
        with ThreadPoolExecutor(1) as thread:
            tally, cpu = thread.submit(_run_part, plan, 0).result()
        return LoadReport(plan, tally, cpu)
    parts = _run_processes(plan)
    total = Tally()
    for tally, _ in parts:
        total.add(tally)
    return LoadReport(plan, total, max(cpu for _, cpu in parts))


def _run_part(plan: LoadPlan, number: int, start: Any = None) -> tuple[Tally, float]:
    """Run the part of one process; return what it counted and the share of a core that it used."""

    async def run() -> tuple[Tally, float]:
        offset = number * len(plan.requests) // plan.processes
        load = (GrpcLoad if plan.protocol == "grpc" else HttpLoad)(plan, offset)
        await load.connect()
        if start is not None:
            await asyncio.to_thread(start.wait, _START_TIMEOUT_S)
        wall, cpu = time.monotonic(), time.process_time()
        tally = await load.run()
        return tally, (time.process_time() - cpu) / (time.monotonic() - wall)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def _run_processes(plan: LoadPlan) -> list[tuple[Tally, float]]:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(plan.processes)
    started = []
    for number in range(plan.processes):
        part = replace(
            plan,
            rate=None if plan.rate is None else plan.rate / plan.processes,
            seed=plan.seed + number,
        )
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run_process, args=(part, number, start, sender), daemon=True)
        process.start()
        sender.close()
        started.append((process, receiver))
    try:
        return [_result(receiver) for _, receiver in started]
    finally:
        start.abort()
        for process, _ in started:
            process.join(plan.timeout_s)
            process.kill()


def _run_process(plan: LoadPlan, number: int, start: Any, sender: Connection) -> None:
    try:
        sender.send(_run_part(plan, number, start))
    except GraphboxError as error:
        sender.send(error)


def _result(receiver: Connection) -> tuple[Tally, float]:
    try:
        found = receiver.recv()
    except EOFError as error:
        raise ProcessLostError(
            "expected the figures of every process of the load test, received the end of one"
        ) from error
    if isinstance(found, GraphboxError):
        raise found
    tally, cpu = found
    return tally, cpu
