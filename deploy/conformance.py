"""Tells whether an adapter keeps the contract: small models with known answers, and requests to refuse.

``graphbox targets test NAME`` runs it on any registered adapter, in any installation: the models are written
and the answers computed with NumPy alone.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.deploy.conformance_models import (
    OPERATORS,
    OperatorCase,
    gather_model,
    reshape_model,
    sum_model,
)
from graphbox.deploy.conformance_report import CaseResult, ConformanceReport
from graphbox.deploy.program import CheckedProgram, compile_model
from graphbox.deploy.protocol import Adapter, Device, Options
from graphbox.deploy.select import choose
from graphbox.errors import FormatError, GraphboxError, InvalidRequestError, UnsupportedError, UsageError
from graphbox.package_folder import FOLDER_VARIABLE

__all__ = ["Check", "FailedCaseError", "RefusedCaseError", "cases", "check_adapter"]

_BATCHES = (0, 1, 2, 31, 256)
_THREADS = 8
_MAX_GROWTH_BYTES = 32 << 20
_BUILD_TIMEOUT_S = 300.0
_POLL_S = 0.001
_BUILD = """
import sys
from graphbox.deploy import Options, choose
from graphbox.deploy.conformance_models import sum_model
from graphbox.deploy.packages import prepared
adapter, device = choose(sys.argv[1])
prepared(adapter, sum_model(), device, Options())
"""
_TOLERANCE = {"float32": 1e-5}
_LOWER_PRECISION_TOLERANCE = 5e-3

Check = Callable[[Adapter, Device], None]


def check_adapter(target: str, cycles: int = 1000) -> ConformanceReport:
    """Run every case on a target.

    Args:
        target: an adapter's name, or ``adapter/device``.
        cycles: how often a program is loaded and closed, to see that memory stays flat.

    Raises:
        NotFoundError: when there is no such target.
        BackendMissingError: when it is not available.
    """
    start = time.perf_counter()
    adapter, device = choose(target)
    with compile_model(adapter, sum_model(), device, Options()) as program:
        runtime = program.effective["runtime"]
    results = tuple(_result(name, check, adapter, device) for name, check in cases(adapter, cycles))
    return ConformanceReport(
        adapter=adapter.name,
        device=device.name,
        description=device.description,
        runtime=runtime,
        graphbox=metadata.version("graphbox"),
        seconds=round(time.perf_counter() - start, 1),
        cases=results,
    )


class FailedCaseError(Exception):
    """A case found a breach of the contract."""


class RefusedCaseError(Exception):
    """The adapter does not support what the case needs; the message has its reason."""


def _result(name: str, check: Check, adapter: Adapter, device: Device) -> CaseResult:
    try:
        check(adapter, device)
    except RefusedCaseError as refusal:
        return CaseResult(name, "refused", str(refusal))
    except FailedCaseError as failure:
        return CaseResult(name, "failed", str(failure))
    except Exception as error:  # noqa: BLE001 - whatever an adapter raises is a finding about it
        return CaseResult(name, "failed", f"{type(error).__name__}: {error}")
    return CaseResult(name, "passed")


def cases(adapter: Adapter, cycles: int = 1000) -> Iterator[tuple[str, Check]]:
    """Yield the name and the check of each case.

    A check takes the adapter and the device; it raises `FailedCaseError`, `RefusedCaseError`, or what the
    adapter raises where it must not.

    Args:
        adapter: that is tested.
        cycles: see `check_adapter`.
    """
    for operator in OPERATORS:
        yield f"operator {operator.name}", _operator_check(operator)
    yield from (
        ("probe is truthful", _probe),
        ("effective is complete", _effective),
        ("threads as asked", _threads),
        ("supports says no to unknown operators", _unknown_operator),
        ("refuses a truncated model", _truncated_model),
        ("refuses a missing feed", _refused(lambda _: {})),
        ("refuses an unknown feed", _refused(lambda x: {"x": x, "y": x})),
        ("refuses a wrong dtype", _refused(lambda x: {"x": x.astype(np.float64)})),
        ("refuses a wrong rank", _refused(lambda x: {"x": np.ravel(x)})),
        ("refuses a wrong size", _refused(lambda x: {"x": x[:, :-1]})),
        ("refuses a negative position", _refused_positions(-1, -5, -(2**31))),
        ("refuses a position beyond the rows", _refused_positions(5, 2**31 - 1, 2**62)),
        ("an inference that fails raises, each time", _failing),
        ("passes NaN and infinity on", _not_finite),
        ("accepts strided feeds", _strided),
        ("writes into out", _out),
        ("same feeds, same bits", _repeatable),
        (f"{_THREADS} threads on one program", _concurrent),
        ("close twice, then refuse to run", _close),
        (f"{cycles} programs leave no memory behind", _cycles_check(cycles)),
    )
    if adapter.builds_ahead:
        yield "killed while it builds, it builds again", _killed


def _operator_check(case: OperatorCase) -> Check:
    def check(adapter: Adapter, device: Device) -> None:
        random, model = np.random.default_rng(0), case.model()
        _needs(adapter, model, device)
        with compile_model(adapter, model, device, Options()) as program:
            tolerance = _TOLERANCE.get(program.effective["precision"], _LOWER_PRECISION_TOLERANCE)
            for batch in _BATCHES:
                feeds = case.feeds(random, batch)
                _compare(program.run(feeds)["result"], case.answer(feeds), tolerance, f"batch {batch}")

    return check


def _needs(adapter: Adapter, model: bytes, device: Device) -> None:
    """Let a case be refused where the adapter supports its model neither in words nor in deed."""
    support = adapter.supports(model, device)
    if not support.supported:
        _expect(UnsupportedError, lambda: compile_model(adapter, model, device, Options()))
        raise RefusedCaseError(support.reason or "it gives no reason")


def _compare(received: npt.NDArray[Any], expected: npt.NDArray[Any], tolerance: float, what: str) -> None:
    if received.shape != expected.shape or received.dtype != expected.dtype:
        raise FailedCaseError(
            f"{what}: expected {expected.dtype} {expected.shape}, received {received.dtype} {received.shape}"
        )
    if not np.allclose(received, expected, rtol=tolerance, atol=tolerance, equal_nan=True):
        error = np.abs(received.astype(np.float64) - expected.astype(np.float64)).max()
        raise FailedCaseError(f"{what}: expected an error of at most {tolerance:g}, received {error:g}")


def _open_sum(adapter: Adapter, device: Device, threads: int = 1) -> CheckedProgram:
    return compile_model(adapter, sum_model(), device, Options(threads=threads))


def _values(rows: int = 4) -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((rows, 3), np.float32)


def _probe(adapter: Adapter, device: Device) -> None:
    devices = adapter.probe()
    if device.name not in [found.name for found in devices if found.available]:
        raise FailedCaseError(f"{device.name} was available and is not in {devices}")
    silent = [found.name for found in devices if not found.available and not found.reason]
    if silent:
        raise FailedCaseError(f"no reason is given why these are not available: {silent}")


def _effective(adapter: Adapter, device: Device) -> None:
    expected = {
        "provider": str,
        "device": str,
        "precision": str,
        "threads": int,
        "fallback_nodes": list,
        "runtime": str,
    }
    with _open_sum(adapter, device) as program:
        effective = dict(program.effective)
    if {name: type(value) for name, value in effective.items()} != expected:
        raise FailedCaseError(f"expected the keys {sorted(expected)}, received {effective}")
    if effective["device"] != device.name:
        raise FailedCaseError(f"asked for {device.name}, runs on {effective['device']}")


def _threads(adapter: Adapter, device: Device) -> None:
    for threads in (1, 2):
        with _open_sum(adapter, device, threads) as program:
            if program.effective["threads"] > threads:
                raise FailedCaseError(f"asked for {threads} threads, uses {program.effective['threads']}")


def _unknown_operator(adapter: Adapter, device: Device) -> None:
    model = sum_model(operator="NoSuchOperator")
    support = adapter.supports(model, device)
    if support.supported or not support.reason or "NoSuchOperator" not in support.reason:
        raise FailedCaseError(f"expected a refusal that names NoSuchOperator, received {support}")
    _expect(UnsupportedError, lambda: compile_model(adapter, model, device, Options()))


def _truncated_model(adapter: Adapter, device: Device) -> None:
    model = sum_model()
    for length in range(0, len(model), 7):
        compile_part = functools.partial(compile_model, adapter, model[:length], device, Options())
        _expect((FormatError, UnsupportedError), compile_part)


def _refused(feeds: Callable[[npt.NDArray[np.float32]], dict[str, npt.NDArray[Any]]]) -> Check:
    def check(adapter: Adapter, device: Device) -> None:
        with _open_sum(adapter, device) as program:
            _expect(InvalidRequestError, lambda: program.run(feeds(_values())))

    return check


def _refused_positions(*positions: int) -> Check:
    """Return the check that positions of either type among 5 rows are refused."""

    def check(adapter: Adapter, device: Device) -> None:
        for dtype in (np.int64, np.int32):
            with compile_model(adapter, gather_model(dtype), device, Options()) as program:
                for position in positions:
                    if position > np.iinfo(dtype).max:
                        continue
                    feeds: dict[str, npt.NDArray[Any]] = {
                        "rows": np.ones((5, 2), np.float32),
                        "positions": np.array([0, position], dtype),
                    }
                    _expect(InvalidRequestError, functools.partial(program.run, feeds))

    return check


def _expect(
    expected: type[GraphboxError] | tuple[type[GraphboxError], ...], call: Callable[[], object]
) -> None:
    try:
        result = call()
    except expected:
        return
    raise FailedCaseError(f"expected a refusal, received {result}")


def _failing(adapter: Adapter, device: Device) -> None:
    """Check that no answer of an earlier call is returned for one that failed, and that sound calls go on."""
    x = _values()
    _needs(adapter, reshape_model(), device)

    def answer(program: CheckedProgram, *shape: int) -> npt.NDArray[Any]:
        return program.run({"x": x, "shape": np.array(shape, np.int64)})["result"]

    for threads in (1, 2):
        with compile_model(adapter, reshape_model(), device, Options(threads=threads)) as program:
            for _ in range(2):
                _compare(answer(program, 2, 6), x.reshape(2, 6), 0, "a sound shape")
                for _ in range(2):
                    _expect(GraphboxError, lambda: answer(program, 5, 6))
    with _open_sum(adapter, device) as program:
        for values in (x, x + 1):
            _compare(program.run({"x": values})["result"], values + values, 0, "another model after it")


def _not_finite(adapter: Adapter, device: Device) -> None:
    values = _values()
    values[0, 0], values[1, 1], values[2, 2] = np.nan, np.inf, -np.inf
    with _open_sum(adapter, device) as program:
        _compare(program.run({"x": values})["result"], values + values, 1e-5, "x + x")


def _strided(adapter: Adapter, device: Device) -> None:
    values = _values(8)[::2]
    columns = np.asfortranarray(_values(8))
    with _open_sum(adapter, device) as program:
        _compare(program.run({"x": values})["result"], values + values, 1e-5, "every second row")
        _compare(program.run({"x": columns})["result"], columns + columns, 1e-5, "column-major")


def _out(adapter: Adapter, device: Device) -> None:
    values = _values()
    out = np.zeros_like(values)
    with _open_sum(adapter, device) as program:
        result = program.run({"x": values}, {"result": out})["result"]
        _compare(out, values + values, 1e-5, "out")
        if not np.shares_memory(result, out):
            raise FailedCaseError("expected the array given as out to be returned, received another")
        _expect(InvalidRequestError, lambda: program.run({"x": values}, {"result": out[:2]}))


def _repeatable(adapter: Adapter, device: Device) -> None:
    case = next(operator for operator in OPERATORS if operator.name == "Gemm")
    feeds = case.feeds(np.random.default_rng(0), 256)
    with compile_model(adapter, case.model(), device, Options()) as program:
        first, second = (program.run(feeds)["result"].tobytes() for _ in range(2))
    if first != second:
        raise FailedCaseError("two calls with the same feeds gave different bits")


def _concurrent(adapter: Adapter, device: Device) -> None:
    def answer(number: int) -> bool:
        values = np.full((1 + number % 5, 3), number, np.float32)
        return bool((program.run({"x": values})["result"] == 2 * number).all())

    with _open_sum(adapter, device) as program, concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        wrong = [number for number, right in enumerate(pool.map(answer, range(400))) if not right]
    if wrong:
        raise FailedCaseError(f"{len(wrong)} of 400 calls got another call's rows")


def _close(adapter: Adapter, device: Device) -> None:
    program = _open_sum(adapter, device)
    program.close()
    program.close()
    _expect(UsageError, lambda: program.run({"x": _values()}))


def _cycles_check(cycles: int) -> Check:
    def check(adapter: Adapter, device: Device) -> None:
        def cycle(count: int) -> None:
            for _ in itertools.repeat(None, count):
                with _open_sum(adapter, device) as program:
                    program.run({"x": _values()})

        cycle(max(1, cycles // 10))
        before = _resident_bytes()
        cycle(cycles)
        growth = _resident_bytes() - before
        if growth > _MAX_GROWTH_BYTES:
            raise FailedCaseError(f"expected at most {_MAX_GROWTH_BYTES} bytes more, received {growth}")

    return check


def _killed(adapter: Adapter, device: Device) -> None:
    """Kill a process that builds as soon as there is something, then build the same here."""
    with tempfile.TemporaryDirectory() as folder, _packages_in(Path(folder)):
        target = f"{adapter.name}/{device.name}"
        process = subprocess.Popen([sys.executable, "-c", _BUILD, target])
        deadline = time.monotonic() + _BUILD_TIMEOUT_S
        while process.poll() is None and not any(Path(folder).iterdir()):
            if time.monotonic() > deadline:
                process.kill()
                raise FailedCaseError(f"a process built nothing within {_BUILD_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)
        process.kill()
        process.wait()
        with _open_sum(adapter, device) as program:
            _compare(program.run({"x": _values()})["result"], 2 * _values(), 1e-5, "after the kill")


@contextlib.contextmanager
def _packages_in(folder: Path) -> Iterator[None]:
    before = os.environ.get(FOLDER_VARIABLE)
    os.environ[FOLDER_VARIABLE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[FOLDER_VARIABLE]
        else:
            os.environ[FOLDER_VARIABLE] = before


def _resident_bytes() -> int:
    """Return the memory this process holds in RAM (Linux)."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
