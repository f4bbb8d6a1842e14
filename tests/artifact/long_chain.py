"""A long chain of row updates that takes next to no time and disk to write: they share their files."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from graphbox.artifact import Artifact, ArtifactWriter, LookupForm, TargetSpec
from graphbox.artifact.row_updates import UpdateManifest, UpdatesWriter

DIM: Final = 64
ROWS: Final = 10_000
UPDATES: Final = 80
CHAIN_BYTES: Final = 4 * UPDATES * ROWS * DIM
MOST_PEAK_BYTES: Final = 180_000_000
"""Less than the rows of the chain, and more than those of two batches."""


def write_items(path: Path, *, name: str = "rows", version: int = 1) -> Artifact:
    """Write a model of rows of integers, all zeros."""
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", np.arange(ROWS))
        writer.add_table("item", "item", np.zeros((ROWS, DIM), np.float32))
        writer.set_preprocess(LookupForm(node_type="item", tables={"item": "item"}))
        targets = {"item": TargetSpec(table="item", score="inner_product")}
        return writer.commit(
            name=name, version=version, kind="embedding", task=None, dim=DIM, targets=targets
        )


def write_chain(artifact: Artifact, count: int = UPDATES) -> list[UpdateManifest]:
    """Write updates that follow each other, each of all rows; all have the same rows."""
    writer = UpdatesWriter(artifact.path, artifact.manifest.digest)
    values = np.repeat(np.arange(ROWS, dtype=np.float32)[:, None], DIM, axis=1)
    with writer.locked():
        chain = [writer.write({"item": (pa.array(np.arange(ROWS)), values)}, writer.root, 1)]
    for sequence in range(2, count + 1):
        shutil.copytree(writer.path / "1", writer.path / str(sequence), copy_function=os.link)
        changed = {"sequence": sequence, "parent": chain[-1].point, "depth": sequence}
        chain.append(write_manifest(writer.path / str(sequence), chain[-1].model_copy(update=changed)))
    return chain


def write_manifest(folder: Path, manifest: UpdateManifest) -> UpdateManifest:
    """Write the manifest of an update with the digest that it has to have."""
    whole = manifest.model_copy(update={"digest": manifest.computed_digest()})
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_text(whole.model_dump_json(indent=2))
    return whole


@contextmanager
def peak_is_bounded() -> Iterator[None]:
    """Fail where the block has more memory at a time than two batches of updates."""
    assert CHAIN_BYTES > MOST_PEAK_BYTES
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < MOST_PEAK_BYTES, f"{peak / 1e6:.0f} MB for a chain of {CHAIN_BYTES / 1e6:.0f} MB"
