"""The benchmarks of tables run, and print what machines read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import table, table_checkpoint, table_tier
from benchmarks.store import HAS_FIO

FIELDS = {"case", "system", "threads", "rate", "unit", "min", "max", "repeats", "per_cpu_s"}
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Leave torch as many threads as it had."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def systems_by_case(run: Callable[[], None], capture: Capture) -> dict[str, set[str]]:
    """Return which systems ran which case, having looked at what was printed of each."""
    run()
    systems: dict[str, set[str]] = {}
    for line in capture.readouterr().out.splitlines():
        measured = json.loads(line)
        assert set(measured) == FIELDS
        assert measured["min"] <= measured["rate"] <= measured["max"]
        assert measured["rate"] > 0
        systems.setdefault(measured["case"], set()).add(measured["system"])
    return systems


def test_tables_in_memory(capsys: Capture) -> None:
    cases = table.Cases(table.QUICK, as_json=True)

    def run() -> None:
        cases.all_rows({"lookup", "train", "autograd"})
        cases.small()
        cases.large_batch()
        cases.bags()
        cases.growth()

    systems = systems_by_case(run, capsys)
    assert len(systems) == 2 + 2 * 3 + 2 * 2 + 2 * 2 + 2 + 1  # a case of each kind of keys, and growth
    assert all(any(name.startswith("graphbox") for name in names) for names in systems.values())
    assert all("limit" in names or case.startswith("autograd") for case, names in systems.items())


def test_bytes_of_a_row() -> None:
    counted, gained = table.in_a_process(table.table_bytes, 300_000, "sgd")
    assert counted > 8  # the key
    assert gained > 0
    assert table.in_a_process(table.dictionary_bytes, 1_000_000) > 16  # key and row number


def test_checkpoints(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_checkpoint, "PULL_SECONDS", 0.1)

    def run() -> None:
        cases = {"whole", "delta", "pulls"}
        table_checkpoint.run(tmp_path, table.QUICK.rows, 1, cases, as_json=True)

    systems = systems_by_case(run, capsys)
    assert len(systems) == 5 + 2 * 2
    assert all(any(name.startswith("graphbox") for name in names) for names in systems.values())
    assert sum("limit" in names for names in systems.values()) == (2 if HAS_FIO else 0)
    assert not list(tmp_path.iterdir())


def test_tables_on_ssd(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*cases: str) -> dict[str, set[str]]:
        return systems_by_case(
            lambda: table_tier.run(tmp_path, table_tier.QUICK, set(cases), as_json=True), capsys
        )

    (systems,) = run("cold").values()
    assert systems == ({"graphbox", "limit"} if HAS_FIO else {"graphbox"})
    monkeypatch.setattr(table_tier, "HAS_FIO", False)  # each of its runs takes a second
    assert len(run("evict", "pass", "update", "step")) == 10
    assert not list(tmp_path.iterdir())
