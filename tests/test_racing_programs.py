"""Detection of races: programs with and without them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from tests.racing_kernels_gpu import (
    all_to_one_place,
    of_the_program_before,
    own_elements,
    own_number,
    read_while_added,
    sum_of_all,
    turned_round,
)
from tests.racing_programs import watched_programs


@pytest.mark.parametrize(
    ("kernel", "options", "expected"),
    [
        (own_elements, {}, None),
        (own_number, {"HAS_BARRIER": False}, "by different threads of a program without a barrier"),
        (own_number, {"HAS_BARRIER": True}, None),
        (own_number, {"HAS_BARRIER": False, "num_warps": 1}, None),
        (of_the_program_before, {}, "read at .*, by different programs"),
        (sum_of_all, {}, None),
        (read_while_added, {}, "changed atomically at .*, read at .*, by different programs"),
        (turned_round, {"HAS_BARRIER": False}, "by different threads of a program without a barrier"),
        (turned_round, {"HAS_BARRIER": True}, None),
        (all_to_one_place, {"IS_SAME": False}, "twice in one operation, with different values"),
        (all_to_one_place, {"IS_SAME": True}, None),
    ],
)
def test_races(kernel: Any, options: dict[str, Any], expected: str | None) -> None:
    programs = 1 if kernel is turned_round else 3
    with watched_programs() as races:
        kernel[(programs,)](torch.zeros(1024, dtype=torch.int64), BLOCK=128, **options)
    assert races.launches == 1
    if expected is None:
        assert not races.found
    else:
        assert any(re.search(expected, each) for each in races.found), races.found


def test_launches_follow_each_other() -> None:
    values = torch.zeros(128, dtype=torch.int64)
    with watched_programs() as races:
        for _ in range(2):
            turned_round[(1,)](values, BLOCK=128, HAS_BARRIER=True)
            own_elements[(1,)](values, BLOCK=128)
    assert races.launches == 4
    assert not races.found
