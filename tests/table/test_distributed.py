"""Tables in several processes: 2 and 3 of them on CPUs, by gloo, beside one process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import UsageError
from graphbox.table import EmbeddingTable, ProcessGroup
from tests.table.distributed_checks import DIM, batches, joined
from tests.table.distributed_processes import Processes


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes("tests.table.distributed_checks") as started:
        yield started


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "check",
    [
        "numbers_and_texts",
        "gpus_that_cannot_be_connected",
        "work_that_is_done_as_a_wait_ends",
        "gathered_slices_have_gradients",
        "pulls_give_what_was_asked_for",
        "owners_are_those_of_checkpoints",
        "shows_and_clicks_are_counted",
        "gradients_that_are_no_numbers",
        "asks_for_what_is_not_supported",
    ],
)
def test_all_processes(processes: Processes, tmp_path: Path, check: str, size: int) -> None:
    processes.run(check, size, tmp_path)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("repeated", [False, True])
def test_rows_are_those_of_one_process(
    processes: Processes, tmp_path: Path, size: int, repeated: bool
) -> None:
    processes.run("rows_are_those_of_one_process", size, tmp_path, repeated=repeated)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("average", [False, True])
def test_modules_learn_as_in_one_process(
    processes: Processes, tmp_path: Path, size: int, average: bool
) -> None:
    processes.run("modules_learn_as_in_one_process", size, tmp_path, average=average)


@pytest.mark.gpu_kernel
def test_rows_may_be_on_devices(processes: Processes, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    processes.run("rows_of_device_tables", 2, tmp_path)
    processes.run("rows_on_devices_in_all_or_none", 2, tmp_path / "of trainings")


def test_a_step_of_one_lookup_sends_keys_once(processes: Processes, tmp_path: Path) -> None:
    # Numbers of keys, keys, rows; then what processes have, and gradients.
    assert processes.run("single_lookups_need_no_second_exchange", 2, tmp_path) == [5, 5]


def test_any_number_of_processes_goes_on_from_a_checkpoint(processes: Processes, tmp_path: Path) -> None:
    whole = EmbeddingTable(DIM, "adam", 0.01)
    first, second = tmp_path / "first", tmp_path / "second"
    processes.run("saves", 3, tmp_path / "a", path=str(first), batches_of=3)
    assert sorted(path.name for path in first.iterdir() if path.suffix != ".segment") == [
        "manifest.json",
        "policies.state",
    ]
    loaded = EmbeddingTable.load(first)
    for step in range(4):
        whole.push(*joined(batches(step, 3, repeated=False)))
    every = np.sort(whole.keys())
    assert np.array_equal(np.sort(loaded.keys()), every)
    np.testing.assert_array_equal(loaded.pull(every), whole.pull(every))

    # Two processes have two parts of a batch, or one: that changes the order in which a key's gradients are
    # added, so rows are equal to rounding only.
    [rows, _] = processes.run(
        "saves", 2, tmp_path / "b", path=str(second), batches_of=3, first=4, load=str(first)
    )
    for step in range(4, 8):
        whole.push(*joined(batches(step, 3, repeated=False)))
    again = EmbeddingTable.load(second)
    assert len(again) == rows == len(whole)
    np.testing.assert_allclose(again.pull(every), whole.pull(every), rtol=1e-4, atol=1e-6)
    # What replaces a checkpoint leaves nothing beside it.
    processes.run("saves", 2, tmp_path / "c", path=str(second), batches_of=3, first=8, load=str(first))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize(
    ("check", "error", "message", "others"),
    [
        ("foreign_keys", "UsageError", r"users: expected keys of rank \d of 2 alone", "UsageError"),
        (
            "admission_by_count",
            "UnsupportedError",
            "users: expected a table that admits keys at",
            "Unsupported",
        ),
        ("differing_settings", "ConflictError", "as expected", "ConflictError"),
    ],
)
def test_tables_that_cannot_be_divided_are_refused(
    processes: Processes, tmp_path: Path, check: str, error: str, message: str, others: str
) -> None:
    outcomes = processes.outcomes(check, 2, tmp_path)
    refusing = [each for each in outcomes if each.get("error") == error]
    assert refusing, outcomes
    assert all(re.search(message, each["message"]) for each in refusing)
    assert all(each in refusing or each["error"] == "ProcessLostError" for each in outcomes)


def test_a_process_that_is_killed_ends_the_others(processes: Processes, tmp_path: Path) -> None:
    *others, killed = processes.outcomes("dies", 3, tmp_path)
    assert killed == {"code": "died"}
    for rank, outcome in enumerate(others):
        assert outcome["error"] == "ProcessLostError", outcome
        assert re.match(
            rf"rank {rank} of 3, (pull|push) of table users: .*: lost (rank \d.* and )?rank 2, which "
            rf"\(process \d+\) ended after operation \d+, push of table users",
            outcome["message"],
        ), outcome["message"]


def test_a_process_that_fails_tells_the_others_why(processes: Processes, tmp_path: Path) -> None:
    first, other = processes.outcomes("fails", 2, tmp_path)
    assert first["error"] == "DoesNotFitError", first
    assert other["error"] == "ProcessLostError", other
    assert "pull of table users: rows: lost rank 0, which failed: DoesNotFitError: " in other["message"]


def test_a_process_that_does_not_come_is_waited_for_no_longer_than_said(
    processes: Processes, tmp_path: Path
) -> None:
    late, waiting = processes.outcomes("stalls", 2, tmp_path, timeout=1.0)
    assert waiting["error"] == "TimeLimitError", waiting
    assert re.match(
        r"rank 1 of 2, pull of table users: numbers of keys: waited 1 seconds for rank 0, which "
        r"\(process \d+\) is after operation \d+, pull of table users: rows\n",
        waiting["message"],
    ), waiting["message"]
    assert late["error"] == "ProcessLostError"
    assert "lost rank 1, which failed: TimeLimitError: waited 1 seconds" in late["message"]


def test_a_process_that_comes_to_another_operation_is_told_of(processes: Processes, tmp_path: Path) -> None:
    found = processes.outcomes("comes_to_another", 2, tmp_path, timeout=1.0)
    assert {each["error"] for each in found} <= {"TimeLimitError", "ProcessLostError"}, found
    asked = ("losses", "pull of table users: numbers of keys")
    assert any(  # the one whose time is over first
        re.search(
            rf"waited 1 seconds for rank {other}, which \(process \d+\) is in operation \d+, "
            rf"{asked[rank]}\n",
            found[rank]["message"],
        )
        for rank, other in ((0, 1), (1, 0))
    ), found


def test_a_process_that_writes_files_is_waited_for_longer(processes: Processes, tmp_path: Path) -> None:
    writing, waiting = processes.outcomes("waits_for_files", 2, tmp_path, timeout=1.0)
    assert waiting["error"] == "TimeLimitError", waiting
    assert re.match(
        r"rank 1 of 2, more files: waited 0\.5 seconds for rank 0, which \(process \d+\) is after operation "
        r"\d+, files\n",
        waiting["message"],
    ), waiting["message"]
    assert writing["error"] == "ProcessLostError", writing


def test_a_process_that_is_done_is_not_waited_for(processes: Processes, tmp_path: Path) -> None:
    done, waiting = processes.outcomes("leaves", 2, tmp_path)
    assert "result" in done
    assert waiting["error"] == "ProcessLostError", waiting
    assert "lost rank 0, which has left the group" in waiting["message"]


def test_what_cannot_be_saved_ends_all(processes: Processes, tmp_path: Path) -> None:
    first, other = processes.outcomes("cannot_save", 2, tmp_path)
    assert first["error"] == "NotFoundError"
    assert other["error"] == "ProcessLostError"
    assert "failed: NotFoundError: " in other["message"]


def test_processes_have_to_know_each_other() -> None:
    with pytest.raises(UsageError, match=r"torch\.distributed was not initialized"):
        ProcessGroup()
