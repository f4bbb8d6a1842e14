"""A model of users and items whose items are enough for an index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, ArtifactWriter, TargetSpec
from graphbox.artifact.links import links_table
from graphbox.artifact.manifest import Score
from graphbox.artifact.preprocess import LookupForm
from graphbox.deploy import DeployedEncoder
from graphbox.deploy.nearest.recall import RecallCounter
from graphbox.row_codecs import row_codec

__all__ = [
    "DIM",
    "ITEMS",
    "LINKED",
    "USERS",
    "clustered",
    "wait_for_index",
    "wait_for_queries",
    "write_items",
]

ITEMS: Final = 12_000
USERS: Final = 300
LINKED: Final = 7
"""Items that each user is linked to."""
DIM: Final = 16


def clustered(count: int, seed: int, clusters: int = 60) -> npt.NDArray[np.float32]:
    """Return rows around common centres, float32 [count, DIM]."""
    centres = np.random.default_rng(0).standard_normal((clusters, DIM))
    random = np.random.default_rng(seed)
    rows = centres[random.integers(clusters, size=count)] + 0.4 * random.standard_normal((count, DIM))
    return np.asarray(rows, np.float32)


def write_items(
    path: Path, *, score: Score = "cosine", items: int = ITEMS, codec: str = "float32", seed: int = 1
) -> Artifact:
    """Write a model version that ranks items for users and for items; users are linked to items near them."""
    rows, users = clustered(items, seed), clustered(USERS, 2)
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", [f"item-{number:05d}" for number in range(items)])
        writer.add_ids("user", range(1_000, 1_000 + USERS))
        writer.add_table("items", "item", rows, row_codec("int8_rowwise" if codec == "int8" else codec))
        writer.add_table("users", "user", users)
        writer.set_preprocess(LookupForm(node_type="item", tables={"item": "items", "user": "users"}))
        if items >= LINKED:
            best = np.argsort(-(users @ rows.T), axis=1)[:, :LINKED]
            source = np.repeat(np.arange(USERS), LINKED)
            held_out = np.zeros(len(source), np.bool_)
            writer.set_links(links_table(source, best.reshape(-1), held_out, ("user", "likes", "item")))
        targets = {name: TargetSpec(table="items", score=score) for name in ("item", "user")}
        return writer.commit(
            name=path.parent.name, version=1, kind="embedding", task=None, dim=DIM, targets=targets
        )


def wait_for_index(model: DeployedEncoder, query_type: str) -> str:
    """Return the state of the rows that are ranked for a type once it is final."""
    model.nearest.ranking(query_type)
    for _ in range(1_200):
        state = model.nearest.states[query_type]
        if state != "building":
            return state
        time.sleep(0.05)
    raise TimeoutError("the index was not ready after a minute")


def wait_for_queries(counter: RecallCounter, queries: int) -> tuple[int, int, int]:
    """Return the counts once so many queries were sampled, or after ten seconds."""
    for _ in range(200):
        if counter.counts()[0] >= queries:
            break
        time.sleep(0.05)
    return counter.counts()
