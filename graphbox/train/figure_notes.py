"""Notes for reports on the relation of a model's validation and test figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from graphbox.config import GivenSplitConfig, ModelSection, TaskConfig
from graphbox.config.models.learnt_parts import LearntParts
from graphbox.train.completion.trainer import VALIDATION_TRIPLES
from graphbox.train.recommendation.queries import VALIDATION_QUERIES
from graphbox.train.tasks import CompleteSplit, LinkSplit, RecommendSplit, Split


def figure_note(
    model: ModelSection, task: TaskConfig, split: Split, validation: Mapping[str, float]
) -> str | None:
    """Return what a model's validation figures were, and why the test figures cannot be compared with them.

    Args:
        model: the model's section of the run file.
        task: the section of its task.
        split: the split of the task.
        validation: figures of the validation part that its training ended with, by their names in the log.

    Returns:
        A sentence or two; None of a model that measures nothing on the way, and need not.
    """
    learns_both = isinstance(model, LearntParts) and model.sees_validation
    if not validation:
        return _NO_FIGURE if learns_both else None
    figures = ", ".join(
        f"{name.removeprefix('validation_')} {value:.3f}" for name, value in validation.items()
    )
    reasons = [*_reasons(model, task, split)]
    if learns_both:
        reasons.insert(
            0, "a first training made it without the validation part, which the model learnt since"
        )
    if not reasons:
        return f"validation {figures}"
    return f"validation {figures}; not to be compared with test: {'; '.join(reasons)}"


_NO_FIGURE = (
    "no validation figure, as it learnt from the validation part; `validate_first: true` trains it twice to "
    "have one"
)


def _reasons(model: ModelSection, task: TaskConfig, split: Split) -> Iterator[str]:
    """Yield how predicting the validation part differs from predicting the test part."""
    if isinstance(split, RecommendSplit | LinkSplit):
        if model.READS_KNOWN_LINKS:
            yield "links of the validation part are in the graph when test is predicted"
        if task.split.kind in {"time", "leave_last_out"}:
            yield "test comes later in time"
    if isinstance(task.split, GivenSplitConfig) and _cuts_validation(task.split):
        yield "validation was cut from the training part at random, test is given by the data"
    if isinstance(split, RecommendSplit):
        queries = len(np.unique(split.validation[:, 0]))
        if queries > VALIDATION_QUERIES:
            yield f"validation is measured on a sample of {VALIDATION_QUERIES:,} of {queries:,} queries"
    if isinstance(split, CompleteSplit):
        count = len(split.validation)
        if count > VALIDATION_TRIPLES:
            yield f"validation is measured on a sample of {VALIDATION_TRIPLES:,} of {count:,} triples"
        yield "answers known from the validation part do not compete in test"


def _cuts_validation(given: GivenSplitConfig) -> bool:
    """Return whether the data has tables of the test part alone."""
    return bool(given.test_relations) and not given.validation_relations
