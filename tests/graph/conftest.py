"""Graphs that tests of the graph store share."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.graph import GraphSource
from tests.graph.papers import write_papers


@pytest.fixture
def papers(tmp_path: Path) -> GraphSource:
    """Four papers, CSV, and the edges a-b, b-c, c-a."""
    return write_papers(tmp_path)
