"""Limits of compressed models: how they are written, and what exceeds them."""

from __future__ import annotations

import math

import pytest

from graphbox.compress.latency import Latency, latency_steps
from graphbox.compress.limits import Figures, Limits, parse_minimum
from graphbox.config import LatencyLimit, MaxDrop, parse_latency_limit, parse_max_drop
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


@pytest.mark.parametrize(
    ("given", "expected", "shown"),
    [
        ("3ms", LatencyLimit(3.0), "3ms"),
        ("250us", LatencyLimit(0.25), "0.25ms"),
        ("0.01 s", LatencyLimit(10.0), "10ms"),
        (2, LatencyLimit(2.0), "2ms"),
        ("100%", LatencyLimit(1.0, relative=True), "100%"),
        ("82.5 %", LatencyLimit(0.825, relative=True), "82.5%"),
    ],
)
def test_latencies_are_times_or_relative(given: str | float, expected: LatencyLimit, shown: str) -> None:
    limit = parse_latency_limit(given, "--max-p50")
    assert limit == expected
    assert str(limit) == shown
    assert parse_latency_limit(shown, "--max-p50") == limit


@pytest.mark.parametrize("given", ["3", "0ms", "-1ms", "3 minutes", "", "0%", -1.0, math.inf, True])
def test_other_latencies_are_refused(given: str | float) -> None:
    with pytest.raises(UsageError, match="expected a time like 3ms or 250us, or like 100% of the original's"):
        parse_latency_limit(given, "--max-p50")


def latency(p50_ms: float, p99_ms: float = 4.0, p50_min_ms: float | None = None) -> Latency:
    """Return a latency beside an original of 2 and 4 ms."""
    return Latency(p50_ms, p50_min_ms or p50_ms, p50_ms, p99_ms, 2.0, 4.0)


def test_latencies_count_in_steps_of_5_percent() -> None:
    assert [latency_steps(ratio) for ratio in (0.9, 0.977, 1.0, 1.024, 1.03, 1.1)] == [-2, 0, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("limits", "measured", "exceeded"),
    [
        (Limits(max_p50=LatencyLimit(2.0)), latency(2.0), None),
        (Limits(max_p50=LatencyLimit(2.0)), latency(2.01), "--max-p50 2ms (it has 2.01ms)"),
        (Limits(max_p50=LatencyLimit(1.0, relative=True)), latency(2.049), None),
        (
            Limits(max_p50=LatencyLimit(1.0, relative=True)),
            latency(2.06),
            "--max-p50 100% (it has 103%)",
        ),
        (Limits(max_p50=LatencyLimit(0.5, relative=True)), latency(1.02), None),
        (Limits(max_p50=LatencyLimit(0.5, relative=True)), latency(1.1), "--max-p50 50% (it has 55%)"),
        (Limits(max_p99=LatencyLimit(4.0)), latency(1.0, 4.4), "--max-p99 4ms (it has 4.4ms)"),
        (
            Limits(max_p99=LatencyLimit(1.0, relative=True)),
            latency(1.0, 4.4),
            "--max-p99 100% (it has 110%)",
        ),
        (Limits(max_p99=LatencyLimit(1.1, relative=True)), latency(9.0, 4.4), None),
    ],
)
def test_relative_limits_are_exceeded_by_more_than_noise(
    limits: Limits, measured: Latency, exceeded: str | None
) -> None:
    found = limits.violations(Figures(1, measured, {"recall": 0.4}), "recall", 0.4)
    assert [str(each) for each in found] == ([] if exceeded is None else [exceeded])
    assert not any(each.is_of_quality for each in found)


def test_a_model_of_which_a_repeat_was_within_may_keep_a_limit() -> None:
    limits = Limits(1000, LatencyLimit(1.0, relative=True), max_drop=MaxDrop(0.0))
    doubtful, slow = latency(2.4, p50_min_ms=2.0), latency(2.4, p50_min_ms=2.2)
    assert limits.may_keep(Figures(1000, doubtful, {"recall": 0.4}), "recall", 0.4)
    assert not limits.may_keep(Figures(1000, slow, {"recall": 0.4}), "recall", 0.4)
    assert not limits.may_keep(Figures(1001, doubtful, {"recall": 0.4}), "recall", 0.4)
    assert not limits.may_keep(Figures(1000, doubtful, {"recall": 0.3}), "recall", 0.4)


def test_minimums_name_a_metric() -> None:
    assert parse_minimum("recall@20=0.40") == ("recall@20", 0.4)
    for text in ("recall@20", "=0.4", "recall@20=much", "recall@20=nan"):
        with pytest.raises(UsageError, match=r"expected a minimum like recall@20=0\.40"):
            parse_minimum(text)


def test_each_limit_is_checked() -> None:
    drop = MaxDrop(0.1, relative=True)
    limits = Limits(1000, LatencyLimit(1.0), LatencyLimit(2.0), {"ndcg": 0.5}, drop)
    within = Figures(1000, latency(1.0, 2.0), {"recall": 0.36, "ndcg": 0.5})
    assert limits.violations(within, "recall", 0.4) == []
    beyond = Figures(1500, latency(1.5, 3.0), {"recall": 0.3, "ndcg": 0.4})
    found = limits.violations(beyond, "recall", 0.4)
    assert [(each.limit, each.received) for each in found] == [
        ("--max-size", 1500),
        ("--max-p50", 1.5),
        ("--max-p99", 3.0),
        ("--min ndcg", 0.4),
        ("--max-drop", 0.3),
    ]
    assert [each.excess for each in found] == pytest.approx([0.5, 0.5, 0.5, 0.2, 0.06 / 0.36])


def test_a_metric_that_is_no_number_exceeds_each_limit() -> None:
    limits = Limits(minimums={"recall": 0.1}, max_drop=MaxDrop(0.5))
    found = limits.violations(Figures(1, None, {"recall": math.nan}), "recall", 0.4)
    assert [each.excess for each in found] == [math.inf, math.inf]


def test_minimums_of_unknown_metrics_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"expected one of the measured metrics \['recall'\], received `recal`"
    ):
        Limits(minimums={"recal": 0.4}).check_metrics({"recall": 0.5})
