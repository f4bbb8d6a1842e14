"""Ids worth asking a model about, for a person who does not know any yet."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from graphbox.artifact import Artifact, TensorsForm
from graphbox.artifact.ids import Id
from graphbox.errors import UsageError

__all__ = ["ExampleIds"]

_MOST_PER_TYPE = 1000


class ExampleIds:
    """The ids of the example request, then those of the nodes that are linked most, in both directions.

    Linked nodes come in the order of `Links.most_linked`.

    Args:
        artifact: the model version.
        query_types: node types it can be asked about.
        other_types: those that ids are offered of only where the type is named.

    Raises:
        FormatError: the example request or the links are damaged.
        UsageError: the model takes no ids.
    """

    def __init__(
        self, artifact: Artifact, query_types: Sequence[str], other_types: Sequence[str] = ()
    ) -> None:
        form = artifact.preprocess
        if isinstance(form, TensorsForm):
            raise UsageError(f"expected a model that takes ids, `{artifact.manifest.name}` takes tensors")
        encoded = form.node_type
        known = artifact.ids(encoded)
        self._request = [
            (encoded, identifier)
            for identifier in artifact.example_ids()
            if known.find(identifier) is not None
        ]
        self._query_types = query_types
        self._linked = {name: _most_linked(artifact, name) for name in (*query_types, *other_types)}

    def first(self, limit: int, node_type: str | None) -> list[tuple[str, Id]]:
        """Return at most ``limit`` pairs of node type and id, best first; of ``node_type`` only, if given."""
        types = self._query_types if node_type is None else (node_type,)
        ranked = [[(rank, name, identifier) for rank, identifier in self._linked[name]] for name in types]
        linked = [
            (name, identifier) for _, name, identifier in heapq.merge(*ranked, key=lambda entry: entry[0])
        ]
        return list(dict.fromkeys([pair for pair in self._request if pair[0] in types] + linked))[:limit]


def _most_linked(artifact: Artifact, node_type: str) -> list[tuple[tuple[int, int], Id]]:
    """Return ids of linked nodes, best first, each with its rank: the lower, the better."""
    ids = artifact.ids(node_type)
    out, into = artifact.links.counts(node_type, len(ids))
    fewer, total = np.minimum(out, into), out + into
    order = artifact.links.most_linked(node_type, len(ids))[:_MOST_PER_TYPE]
    ranks = zip((-fewer[order]).tolist(), (-total[order]).tolist(), strict=True)
    return list(zip(ranks, ids.take(order), strict=True))
