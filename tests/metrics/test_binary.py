"""Metrics of scored positives and negatives, against their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics as reference

from graphbox.errors import UsageError
from graphbox.metrics import (
    binary_report,
    calibration_bins,
    click_report,
    grouped_roc_auc,
)


def problem(seed: int, count: int = 200, levels: int = 30) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return labels and probabilities with many ties, 0 and 1 among them."""
    random = np.random.default_rng(seed)
    labels = random.random(count) < random.uniform(0.05, 0.95)
    labels[:2] = [True, False]
    return labels, random.integers(0, levels + 1, count) / levels


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("levels", [1, 30, 1_000_000])
def test_equals_the_definition(seed: int, levels: int) -> None:
    labels, scores = problem(seed, levels=levels)
    above = scores[labels][:, None] - scores[~labels]
    auc = np.mean((above > 0) + (above == 0) / 2)
    assert binary_report(labels, scores)["auc"] == pytest.approx(auc, abs=1e-12)
    assert click_report(labels, scores)["auc"] == pytest.approx(auc, abs=1e-12)
    precision = [labels[scores >= score].mean() for score in scores[labels]]
    assert binary_report(labels, scores)["average_precision"] == pytest.approx(np.mean(precision), abs=1e-12)
    likelihood = np.where(labels, scores, 1 - scores).clip(1e-7, 1 - 1e-7)
    assert click_report(labels, scores)["log_loss"] == pytest.approx(-np.log(likelihood).mean(), abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_grouped_area_is_the_mean_of_the_groups_by_size(seed: int) -> None:
    labels, scores = problem(seed)
    groups = np.random.default_rng(seed).integers(-9, 9, len(labels)) * (1 << 40)
    areas, sizes = [], []
    for group in np.unique(groups):
        inside = groups == group
        if 0 < labels[inside].sum() < inside.sum():
            areas.append(reference.roc_auc_score(labels[inside], scores[inside]))
            sizes.append(inside.sum())
    area, count = grouped_roc_auc(labels, scores, groups)
    assert area == pytest.approx(np.average(areas, weights=sizes), abs=1e-12)
    assert count == len(areas)


def test_bins_hold_equally_many_from_low_to_high() -> None:
    labels, scores = problem(3, count=1003)
    bins = calibration_bins(labels, scores)
    assert [each.count for each in bins] == [101, 101, 101, *[100] * 7]
    assert all(a.predicted <= b.predicted for a, b in itertools.pairwise(bins))
    assert sum(each.count * each.observed for each in bins) == pytest.approx(labels.sum())
    assert sum(each.count * each.predicted for each in bins) == pytest.approx(scores.sum())


def test_calibration_of_right_and_of_doubled_probabilities() -> None:
    random = np.random.default_rng(0)
    right = random.uniform(0, 0.5, 200_000)
    labels = random.random(len(right)) < right
    report = click_report(labels, right)
    assert report["calibration_ratio"] == pytest.approx(1, abs=0.02)
    assert report["calibration_error"] < 0.01
    doubled = click_report(labels, 2 * right)
    assert doubled["calibration_ratio"] == pytest.approx(0.5, abs=0.01)
    assert doubled["calibration_error"] == pytest.approx(0.25, abs=0.01)
    assert doubled["auc"] == report["auc"]


def test_reports_say_how_many_were_scored() -> None:
    labels, scores = problem(1)
    report = binary_report(labels, scores)
    assert (report["positives"], report["negatives"]) == (labels.sum(), (~labels).sum())
    assert click_report(labels, scores)["impressions"] == len(labels)
    one_of_each = np.arange(len(labels))
    assert "grouped_auc" not in click_report(labels, scores, one_of_each)
    assert click_report(labels, scores, one_of_each // 50)["groups"] == 4


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        (np.array([True]), np.array([1.0, 2.0]), "of one shape"),
        (np.zeros(0, bool), np.zeros(0), "n at least 1"),
        (np.array([1, 0]), np.array([1.0, 2.0]), "of type bool"),
        (np.array([True, True]), np.array([1.0, 2.0]), "positives and negatives"),
        (np.array([True, False]), np.array([1.0, np.nan]), "NaN at position 1"),
    ],
)
def test_mistakes(labels: NDArray[np.bool_], scores: NDArray[np.float64], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        binary_report(labels, scores)


def test_what_is_no_probability() -> None:
    with pytest.raises(UsageError, match=r"0 to 1, received 1\.5 at position 1"):
        click_report(np.array([True, False]), np.array([0.5, 1.5]))
    with pytest.raises(UsageError, match="at least 1 bin"):
        calibration_bins(np.array([True, False]), np.array([0.5, 0.5]), bins=0)
    with pytest.raises(UsageError, match="a group with positives and negatives"):
        grouped_roc_auc(np.array([True, False]), np.array([0.5, 0.5]), np.array([0, 1]))
    with pytest.raises(UsageError, match="a group for each"):
        grouped_roc_auc(np.array([True, False]), np.array([0.5, 0.5]), np.array([0]))
