"""Cancellation: checked between the chunks of an execution, in the thread that runs it."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from graphbox.deploy import DeployedEncoder
from graphbox.deploy.cancellation import (
    Cancellation,
    ExecutionCancelledError,
    cancellable,
    check_cancelled,
)
from graphbox.errors import TimeLimitError


def test_nothing_is_cancelled_outside() -> None:
    check_cancelled()
    with cancellable(Cancellation()):
        check_cancelled()
    check_cancelled()


def test_cancelled_executions_end_in_their_own_thread() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellable(cancellation):
        with pytest.raises(ExecutionCancelledError):
            check_cancelled()
        other = threading.Thread(target=check_cancelled)
        other.start()
        other.join(20)
    check_cancelled()


def test_time_limits_count_the_time_before() -> None:
    Cancellation(60.0, elapsed_s=59.0).check()
    with pytest.raises(TimeLimitError, match="expected an answer within 60 s"):
        Cancellation(60.0, elapsed_s=60.5).check()


def test_an_encoder_ends_between_its_chunks(encoder: DeployedEncoder) -> None:
    nodes = np.zeros(10_000_000, np.int64)
    cancellation = Cancellation()
    timer = threading.Timer(0.2, cancellation.cancel)
    timer.start()
    started = time.monotonic()
    with cancellable(cancellation), pytest.raises(ExecutionCancelledError):
        encoder.encode_indices(nodes)
    timer.join(20)
    assert time.monotonic() - started < 20  # all of it takes minutes
