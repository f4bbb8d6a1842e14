"""Metrics of scores of positives and negatives: links and drawn non-links, clicks and impressions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError

_LEAST_PROBABILITY = 1e-7  # log loss of a sure mistake is bounded by it, as float32 holds probabilities


def grouped_roc_auc(
    labels: NDArray[np.bool_], scores: NDArray[np.floating], groups: NDArray[np.integer]
) -> tuple[float, int]:
    """Return the mean of each group's area under the ROC curve, by the groups' sizes, and how many these are.

    GAUC: what ranks the impressions of one user is all that the user sees (Zhu et al., "Optimized cost per
    click in Taobao display advertising", KDD 2017). Groups with positives only or negatives only say nothing
    and are left out.

    Args:
        labels: bool [n].
        scores: float [n], higher for positives.
        groups: integer [n], whose each is, such as users.

    Raises:
        UsageError: wrong shapes, NaN, or no group with both.
    """
    labels, wide = _checked(labels, scores)
    _check_groups(labels, groups)
    order = np.lexsort((wide, groups))
    labels, wide = labels[order], wide[order]
    starts = np.flatnonzero(np.diff(groups[order], prepend=groups[order[0]] - 1))
    size = np.diff(starts, append=len(order))
    # Ranks within a group: those of all, sorted by group and score, less what stands before the group.
    place = (np.arange(len(order)) - np.repeat(starts, size) + 1).astype(np.float64)
    rank = _mean_of_ties(place, np.repeat(np.arange(len(starts)), size), wide)
    positives = np.add.reduceat(labels, starts, dtype=np.int64)
    rank_sum = np.add.reduceat(np.where(labels, rank, 0.0), starts)
    both = (positives > 0) & (positives < size)
    if not both.any():
        raise UsageError("expected a group with positives and negatives, received none", where="groups")
    pairs = positives[both] * (size - positives)[both]
    area = (rank_sum[both] - positives[both] * (positives[both] + 1) / 2) / pairs
    return float(np.average(area, weights=size[both])), int(both.sum())


@dataclass(frozen=True)
class CalibrationBin:
    """Predictions of about the same height, and what came of them.

    Attributes:
        count: predictions.
        predicted: their mean probability.
        observed: the share of positives among them.
    """

    count: int
    predicted: float
    observed: float


def calibration_bins(
    labels: NDArray[np.bool_], probabilities: NDArray[np.floating], bins: int = 10
) -> list[CalibrationBin]:
    """Return up to ``bins`` bins of equally many predictions, from the lowest to the highest.

    Args:
        labels: bool [n].
        probabilities: float [n], of being positive, 0 to 1.
        bins: at least 1.

    Raises:
        UsageError: wrong shapes, what is no probability, or no bin.
    """
    labels, probabilities = _checked_probabilities(labels, probabilities)
    if bins < 1:
        raise UsageError(f"expected at least 1 bin, received {bins}", where="bins")
    order = np.argsort(probabilities, kind="stable")
    return [
        CalibrationBin(len(part), float(probabilities[part].mean()), float(labels[part].mean()))
        for part in np.array_split(order, min(bins, len(order)))
    ]


def binary_report(labels: NDArray[np.bool_], scores: NDArray[np.floating]) -> dict[str, float | int]:
    """Return ``auc``, ``average_precision``, and how many ``positives`` and ``negatives`` were scored.

    ``auc`` is the probability that a positive scores above a negative, a tie counting half;
    ``average_precision`` the area under the step curve of precision over recall, without interpolation.

    Args:
        labels: bool [n], which are positives.
        scores: float [n], higher for positives.

    Raises:
        UsageError: wrong shapes, NaN, or no positive or no negative.
    """
    labels, scores = _checked(labels, scores)
    positives = int(np.count_nonzero(labels))
    return {
        "auc": _roc_auc(labels, scores),
        "average_precision": _average_precision(labels, scores),
        "positives": positives,
        "negatives": len(labels) - positives,
    }


def click_report(
    labels: NDArray[np.bool_],
    probabilities: NDArray[np.floating],
    groups: NDArray[np.integer] | None = None,
) -> dict[str, float | int]:
    """Return what is told of predicted clicks.

    ``auc``; ``log_loss``, of probabilities held within 1e-7 of 0 and 1; ``grouped_auc`` and ``groups`` where
    groups are given and one has both labels; ``click_rate`` and ``predicted_click_rate``, and their ratio
    ``calibration_ratio``, which is 1 when right (also called COPC); ``calibration_error``, the mean distance
    of predicted from observed rate over ten bins, by size (Naeini et al., AAAI 2015); ``impressions``.

    Args:
        labels: bool [n], clicked.
        probabilities: float [n], of a click, 0 to 1.
        groups: integer [n], whose impression each is.

    Raises:
        UsageError: wrong shapes, what is no probability, or clicks only, or none.
    """
    labels, wide = _checked(labels, probabilities)
    bins = calibration_bins(labels, probabilities)
    held = np.clip(wide, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    predicted = float(wide.mean())
    observed = float(np.mean(labels))
    report: dict[str, float | int] = {
        "auc": _roc_auc(labels, wide),
        "log_loss": float(-np.log(np.where(labels, held, 1 - held)).mean()),
        "click_rate": observed,
        "predicted_click_rate": predicted,
        "calibration_ratio": observed / predicted if predicted > 0 else float("inf"),
        "calibration_error": sum(each.count * abs(each.predicted - each.observed) for each in bins)
        / len(labels),
        "impressions": len(labels),
    }
    if groups is not None and _has_group_with_both(labels, groups):
        report["grouped_auc"], report["groups"] = grouped_roc_auc(labels, wide, groups)
    return report


def _roc_auc(labels: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    area, _ = grouped_roc_auc(labels, scores, np.zeros(len(labels), np.int64))
    return area


def _average_precision(labels: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    order = np.argsort(-scores, kind="stable")
    # Equal scores are one step of the curve, which ends with the last of them.
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    positives = np.cumsum(labels[order])[ends]
    return float(np.diff(positives, prepend=0) @ (positives / (ends + 1)) / positives[-1])


def _has_group_with_both(labels: NDArray[np.bool_], groups: NDArray[np.integer]) -> bool:
    _check_groups(labels, groups)
    return bool(np.isin(groups[labels], groups[~labels]).any())


def _check_groups(labels: NDArray[np.bool_], groups: NDArray[np.integer]) -> None:
    if groups.shape != labels.shape:
        raise UsageError(
            f"expected a group for each of {len(labels)} labels, received {groups.shape}", where="groups"
        )


def _mean_of_ties(
    ranks: NDArray[np.float64], groups: NDArray[np.integer], scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ``ranks`` with those of equal score and group, which are neighbours, replaced by their mean."""
    starts = np.flatnonzero(np.append(True, (scores[1:] != scores[:-1]) | (groups[1:] != groups[:-1])))
    size = np.diff(starts, append=len(scores))
    return np.repeat(np.add.reduceat(ranks, starts) / size, size)


def _checked(
    labels: NDArray[np.bool_], scores: NDArray[np.floating]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    labels, wide = _same_shape(labels, scores)
    if labels.all() or not labels.any():
        raise UsageError(
            f"expected positives and negatives, received {int(labels.sum())} positives of {len(labels)}",
            where="labels",
            hint="enlarge the part that is held out",
        )
    return labels, wide


def _checked_probabilities(
    labels: NDArray[np.bool_], probabilities: NDArray[np.floating]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    labels, wide = _same_shape(labels, probabilities)
    outside = (wide < 0) | (wide > 1)
    if outside.any():
        place = int(outside.argmax())
        raise UsageError(
            f"expected probabilities, 0 to 1, received {wide[place]} at position {place}",
            where="probabilities",
        )
    return labels, wide


def _same_shape(
    labels: NDArray[np.bool_], scores: NDArray[np.floating]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    if labels.shape != scores.shape or labels.ndim != 1 or labels.size == 0:
        raise UsageError(
            f"expected labels and scores of one shape [n], n at least 1; received {labels.shape} and "
            f"{scores.shape}"
        )
    if labels.dtype != np.bool_:
        raise UsageError(f"expected labels of type bool, received {labels.dtype}", where="labels")
    wide = scores.astype(np.float64)
    if np.isnan(wide).any():
        place = int(np.isnan(wide).argmax())
        raise UsageError(f"expected numbers, received NaN at position {place}", where="scores")
    return labels, wide
