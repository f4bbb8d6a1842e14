"""Mutated requests get an answer that says whose fault it is, in time, and leave the server as it was.

A million of them: ``make fuzz-server``.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.server.fuzz.cases import grpc_case, rest_case
from tests.server.fuzz.run import fuzz_server


@pytest.mark.parametrize(
    ("requests", "seed"),
    [(3_600, 1), pytest.param(150_000, 2, marks=[pytest.mark.stress, pytest.mark.timeout(1800)])],
)
def test_mutated_requests(tmp_path: Path, requests: int, seed: int) -> None:
    report = fuzz_server(tmp_path, seed, requests)
    assert report.findings == []
    assert report.requests == requests
    # The damage is not so large that nothing behind the first check is reached.
    for protocol, accepted in (("REST", "200"), ("gRPC", "0")):
        answers = sum(count for name, count in report.statuses.items() if name.startswith(f"{protocol} "))
        assert 0.1 < report.statuses[f"{protocol} {accepted}"] / answers < 0.9


def test_a_seed_names_its_requests() -> None:
    for make in (rest_case, grpc_case):
        first, again, other = (make(random.Random(seed)) for seed in ("1 5", "1 5", "1 6"))
        assert first == again != other
