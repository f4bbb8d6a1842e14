"""A model whose rows are updated in tests: what updates write is seen in every element of a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphbox.workspace import Workspace
from tests.artifact.lookup_model import DIM, write_lookup
from tests.server.sample_models import add_model

IDS = ["user 1", "user 2", "user 3"]


def tagged(tag: float, count: int = len(IDS)) -> npt.NDArray[np.float32]:
    """Return rows whose elements are all ``tag``."""
    return np.full((count, DIM), tag, np.float32)


def rows_workspace(folder: Path) -> Workspace:
    """Return a workspace with a model `rows` that refuses unknown ids."""
    workspace = Workspace(folder / "work")
    add_model(workspace, "rows", lambda path, **named: write_lookup(path, "refuse", **named))
    return workspace
