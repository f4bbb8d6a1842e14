"""The graph store: import, open and look at heterogeneous graphs kept as compressed adjacency on disk."""

from __future__ import annotations

from graphbox.graph.schema import CSC as CSC
from graphbox.graph.schema import CSR as CSR
from graphbox.graph.schema import EdgeSource as EdgeSource
from graphbox.graph.schema import EdgeType as EdgeType
from graphbox.graph.schema import FeatureSpec as FeatureSpec
from graphbox.graph.schema import GraphSource as GraphSource
from graphbox.graph.schema import NodeSource as NodeSource
from graphbox.graph.store import Graph as Graph

__all__ = ["CSC", "CSR", "EdgeSource", "EdgeType", "FeatureSpec", "Graph", "GraphSource", "NodeSource"]
