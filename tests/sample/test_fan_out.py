"""Streams of passes with several readers hold no more than what some reader has yet to take."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from graphbox.sample.fan_out import fan_out


class _Pass:
    """Something that can be watched as it goes."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_each_reader_gets_all_at_its_own_pace() -> None:
    first, second = fan_out(range(5), 2)
    assert [next(first), next(first), next(second)] == [0, 1, 0]
    assert list(second) == [1, 2, 3, 4]
    assert list(first) == [2, 3, 4]
    nothing: list[int] = []
    assert [list(each) for each in fan_out(nothing, 2)] == [[], []]


def test_what_all_have_taken_is_released() -> None:
    made: list[weakref.ref[_Pass]] = []

    def passes() -> Iterator[_Pass]:
        for number in range(4):
            each = _Pass(number)
            made.append(weakref.ref(each))
            yield each
            del each

    own, others = fan_out(passes(), 2)
    for number in range(4):
        assert next(own).number == number
        assert next(others).number == number
        assert [each() is not None for each in made[:-1]] == [False] * number
