"""Report of the forgetting of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphbox.pipeline.forgetting.holdings import Holding


@dataclass(frozen=True)
class ForgetReport:
    """Result of forgetting nodes.

    Attributes:
        graph: name of the graph.
        given: number of ids that were given, by node type.
        rewritten: holdings of the nodes, rewritten without them.
        removed_bytes: bytes of checkpoints, splits and tables that were removed with them.
        edges: edges that were removed from the graph.
        replaced: ids that were replaced in logs and records.
        servers: addresses of running servers, which serve the rewritten versions.
        unreached: places that may still hold the nodes, each as a sentence.
        seconds: time taken.
    """

    graph: str
    given: Mapping[str, int]
    rewritten: tuple[Holding, ...]
    removed_bytes: int
    edges: int
    replaced: int
    servers: tuple[str, ...]
    unreached: tuple[str, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "graph": self.graph,
            "given": dict(self.given),
            "rewritten": [holding.as_dict() for holding in self.rewritten],
            "removed_bytes": self.removed_bytes,
            "edges": self.edges,
            "replaced": self.replaced,
            "servers": list(self.servers),
            "unreached": list(self.unreached),
            "seconds": self.seconds,
        }
