"""graphbox: embeddings and graph neural networks on graphs larger than fast memory, from training to serving.

Public names are loaded on first use (PEP 562), so that importing ``graphbox.deploy`` or
``graphbox.server`` loads neither torch nor the native core.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from graphbox.artifact import Artifact as Artifact
    from graphbox.errors import GraphboxError as GraphboxError
    from graphbox.graph import Graph as Graph
    from graphbox.pipeline import run as run
    from graphbox.pipeline.forgetting import forget as forget
    from graphbox.sample import LinkNeighborLoader as LinkNeighborLoader
    from graphbox.sample import NeighborLoader as NeighborLoader
    from graphbox.sample import random_walk as random_walk
    from graphbox.sample import sample_neighbors as sample_neighbors
    from graphbox.table import EmbeddingTable as EmbeddingTable
    from graphbox.workspace import Workspace as Workspace

_MODULE_OF = {
    "Artifact": "graphbox.artifact",
    "EmbeddingTable": "graphbox.table",
    "Graph": "graphbox.graph",
    "GraphboxError": "graphbox.errors",
    "LinkNeighborLoader": "graphbox.sample",
    "NeighborLoader": "graphbox.sample",
    "Workspace": "graphbox.workspace",
    "forget": "graphbox.pipeline.forgetting",
    "random_walk": "graphbox.sample",
    "run": "graphbox.pipeline",
    "sample_neighbors": "graphbox.sample",
}

__all__ = [
    "Artifact",
    "EmbeddingTable",
    "Graph",
    "GraphboxError",
    "LinkNeighborLoader",
    "NeighborLoader",
    "Workspace",
    "__version__",
    "forget",
    "random_walk",
    "run",
    "sample_neighbors",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'graphbox' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
