"""Popularity of the rows of a table, by which codecs with tiers divide them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, NeighborLists, PaddedBlockForm, RelationGroup

__all__ = ["popularity_of"]

Int64 = npt.NDArray[np.int64]


def popularity_of(
    artifact: Artifact, name: str, lists: Callable[[RelationGroup], NeighborLists] | None = None
) -> Int64 | None:
    """Return how popular each row of a table is, int64 [rows]; None: the version does not say.

    A row that messages are passed from counts once, as each node can be asked for, and once for each list of
    neighbours that it is in. Of other tables, such as those that are ranked, links of the nodes count that
    were not held out: what a model is measured on decides nothing.

    Args:
        artifact: the model version.
        name: of the table.
        lists: returns the neighbour lists that are read of a group; None: those of the version.
    """
    spec, form = artifact.manifest.tables[name], artifact.preprocess
    if isinstance(form, PaddedBlockForm) and name in _inputs(form, spec.node_type):
        lists = lists or artifact.neighbor_lists
        found = np.ones(spec.rows, np.int64)
        for group in form.groups:
            if group.source == spec.node_type:
                found += np.bincount(lists(group).neighbors, minlength=spec.rows)
    else:
        found = np.add(*artifact.links.counts(spec.node_type, spec.rows, with_held_out=False))
    return found if len(found) and found.min() < found.max() else None


def _inputs(form: PaddedBlockForm, node_type: str) -> tuple[str, ...]:
    return form.rows[node_type].tables if node_type in form.rows else ()
