"""Real queries of a model beyond those that it carries itself: rows that its task was trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphbox.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphbox.compress.dense import Queries
    from graphbox.deploy import DeployedModel
    from graphbox.deploy.protocol import Feeds
    from graphbox.graph import Graph
    from graphbox.train.tasks import Split

    FindQueries = Callable[[DeployedModel], Queries]

__all__ = ["training_queries"]

_MOST_ROWS = 1 << 16


def training_queries(graph: Graph, split: Split) -> FindQueries | None:
    """Return a function that finds queries for an open model of a task.

    A click model carries a few example rows; the rows of the training part are many. Their labels are not
    read. Models that encode nodes know these all themselves.

    Args:
        graph: the graph of the task.
        split: of the task.

    Returns:
        None where the model's own queries are all there are.
    """
    from graphbox.train import ClickSplit

    return (lambda model: _logged_rows(graph, split, model)) if isinstance(split, ClickSplit) else None


def _logged_rows(graph: Graph, split: Split, model: DeployedModel) -> Queries:
    """Return rows of the training part, at most 65,536, drawn at random and the same each time."""
    import numpy as np

    from graphbox.compress.dense import Queries
    from graphbox.deploy import DeployedClick
    from graphbox.fields import take_rows
    from graphbox.models.click_fields import ClickFields
    from graphbox.train import ClickSplit
    from graphbox.train.click.rows import LogRows
    from graphbox.train.view import GraphView

    if not isinstance(model, DeployedClick) or not isinstance(split, ClickSplit):
        raise UsageError(f"expected a model that predicts clicks, received one of kind {model.manifest.kind}")
    known = split.rows("train")
    chosen = np.zeros(len(split.fold), bool)
    chosen[np.random.default_rng(0).permutation(known)[:_MOST_ROWS]] = True
    fields = ClickFields(model.fields.fields, model.fields.crosses)
    log = LogRows(GraphView(graph, split, "train"), split.node_type, fields, chosen, split.all_labels())
    rows, _ = log.read(np.flatnonzero(log.block_sizes()))

    def feeds(numbers: NDArray[np.int64]) -> Feeds:
        return model.feeds(take_rows(rows, numbers))

    return Queries(int(chosen.sum()), feeds)
