"""Limits of compressed models: how they are written, and what exceeds them."""

from __future__ import annotations

import math

import pytest

from graphbox.compress.limits import Figures, Limits, parse_milliseconds, parse_minimum
from graphbox.config import MaxDrop, parse_max_drop
from graphbox.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.005", MaxDrop(0.005)),
        (0.01, MaxDrop(0.01)),
        (0, MaxDrop(0.0)),
        ("0.5%", MaxDrop(0.005, relative=True)),
        (" 2 % ", MaxDrop(0.02, relative=True)),
    ],
)
def test_drops_are_absolute_or_relative(text: str | float, expected: MaxDrop) -> None:
    drop = parse_max_drop(text)
    assert drop.relative == expected.relative
    assert drop.value == pytest.approx(expected.value)


@pytest.mark.parametrize("text", ["", "-0.1", "1.5", "200%", "nan", "inf", "x", "0.5 percent", True])
def test_other_drops_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected a drop like 0\.005 or 0\.5%"):
        parse_max_drop(text)


def test_a_relative_drop_is_one_of_the_originals_value() -> None:
    assert MaxDrop(0.1).floor(0.4) == pytest.approx(0.3)
    assert MaxDrop(0.1, relative=True).floor(0.4) == pytest.approx(0.36)
    assert MaxDrop(0.1, relative=True).floor(-0.4) == pytest.approx(-0.44)


@pytest.mark.parametrize(("text", "expected"), [("3ms", 3.0), ("250us", 0.25), ("0.01 s", 10.0)])
def test_times_have_units(text: str, expected: float) -> None:
    assert parse_milliseconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["3", "0ms", "-1ms", "3 minutes", ""])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a time like 3ms"):
        parse_milliseconds(text)


def test_minimums_name_a_metric() -> None:
    assert parse_minimum("recall@20=0.40") == ("recall@20", 0.4)
    for text in ("recall@20", "=0.4", "recall@20=much", "recall@20=nan"):
        with pytest.raises(UsageError, match=r"expected a minimum like recall@20=0\.40"):
            parse_minimum(text)


def test_each_limit_is_checked() -> None:
    limits = Limits(1000, 2.0, {"ndcg": 0.5}, MaxDrop(0.1, relative=True))
    assert limits.violations(Figures(1000, 2.0, {"recall": 0.36, "ndcg": 0.5}), "recall", 0.4) == []
    found = limits.violations(Figures(1500, 3.0, {"recall": 0.3, "ndcg": 0.4}), "recall", 0.4)
    assert [(each.limit, each.received) for each in found] == [
        ("--max-size", 1500),
        ("--max-p99", 3.0),
        ("--min ndcg", 0.4),
        ("--max-drop", 0.3),
    ]
    assert [each.excess for each in found] == pytest.approx([0.5, 0.5, 0.2, 0.06 / 0.36])


def test_a_metric_that_is_no_number_exceeds_each_limit() -> None:
    limits = Limits(minimums={"recall": 0.1}, max_drop=MaxDrop(0.5))
    found = limits.violations(Figures(1, None, {"recall": math.nan}), "recall", 0.4)
    assert [each.excess for each in found] == [math.inf, math.inf]


def test_minimums_of_unknown_metrics_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"expected one of the measured metrics \['recall'\], received `recal`"
    ):
        Limits(minimums={"recal": 0.4}).check_metrics({"recall": 0.5})
