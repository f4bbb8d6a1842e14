"""Model versions of stored rows that answer unknown ids by each policy."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, ArtifactWriter, TargetSpec
from graphbox.artifact.lookup_form import UnknownIds
from graphbox.row_codecs import row_codec

POLICIES: Final[tuple[UnknownIds, ...]] = ("refuse", "zero", "mean")
CODECS: Final = ("float32", "float16", "int8_rowwise", "int4_rotated")
DIM: Final = 9
USERS: Final = [f"user {number}" for number in range(70_000)]
"""More than a block of the mean."""
ITEMS: Final = [-4, 0, 7, 2**53 + 1]


def rows_of(node_type: str) -> npt.NDArray[np.float32]:
    """Return the rows of a node type before they are encoded, far from 0."""
    seed, count = (1, len(USERS)) if node_type == "user" else (2, len(ITEMS))
    return 3 + np.random.default_rng(seed).standard_normal((count, DIM), np.float32)


def write_lookup(
    path: Path,
    unknown_ids: UnknownIds = "mean",
    codec: str = "float32",
    *,
    name: str = "rows",
    version: int = 1,
) -> Artifact:
    """Write rows of users, with ids that are strings, and of items, with integers; items are ranked."""
    with ArtifactWriter(path) as writer:
        for node_type, ids in (("user", USERS), ("item", ITEMS)):
            writer.add_ids(node_type, ids)
            writer.add_table(node_type, node_type, rows_of(node_type), row_codec(codec))
        writer.set_lookup("user", {"user": "user", "item": "item"}, unknown_ids)
        targets = {each: TargetSpec(table="item", score="inner_product") for each in ("user", "item")}
        return writer.commit(
            name=name, version=version, kind="embedding", task=None, dim=DIM, targets=targets
        )
