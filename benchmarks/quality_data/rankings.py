"""Figures of data sets on which candidates are ranked for queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.quality_data.protocol import Figure

__all__ = ["ranking_figures"]

_METRICS = ("recall@20", "ndcg@20")


def ranking_figures(
    task: str,
    model: str,
    goals: tuple[float, float],
    published: Mapping[str, tuple[str, str]],
    others: Sequence[str],
) -> tuple[Figure, ...]:
    """Return recall@20 and ndcg@20 of a model, and of others beside it.

    Args:
        task: task of the run file.
        model: the model of the run file that is to reach the goals.
        goals: of recall and ndcg.
        published: what papers report of each, by name in the run file.
        others: models and baselines that are shown for reference.
    """
    return tuple(
        Figure(
            f"{metric} {name}",
            (task, name, metric),
            published.get(name, ("", ""))[number],
            goals[number] if name == model else None,
        )
        for name in (model, *others)
        for number, metric in enumerate(_METRICS)
    )
