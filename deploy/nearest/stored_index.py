"""Index files among packages (`graphbox.deploy.packages`), built once for rows, score and library."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from graphbox.artifact import Artifact
from graphbox.deploy.nearest.background import Background
from graphbox.deploy.nearest.graph_index import (
    BUILD_SETTINGS,
    BuildStoppedError,
    GraphIndex,
    Score,
    faiss_library,
)
from graphbox.deploy.packages import built_folder
from graphbox.package_folder import packages_folder

__all__ = ["stored_index"]

_BUILDER: Final = "faiss"
_FILE: Final = "rows.faiss"
_POLL_S: Final = 0.25


def stored_index(artifact: Artifact, table: str, score: Score, background: Background) -> GraphIndex:
    """Return the index of a table, loaded from the folder of packages, built before if it is not there.

    One process builds it; others that want the same one wait. A damaged one is built again.

    Args:
        artifact: the model version.
        table: name of its table.
        score: that the rows are ranked by.
        background: runs this function.

    Raises:
        BackendMissingError: faiss is not installed.
        BuildStoppedError: the model was closed meanwhile.
        DoesNotFitError: the disk is full.
        GraphboxError: the folder of packages cannot be used.
    """
    rows_sha256 = _rows_digest(artifact, table)
    parts = {"rows": rows_sha256, "score": score, "faiss": faiss_library().__version__, **BUILD_SETTINGS}
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    rows = artifact.table(table)
    with _alone(packages_folder() / f".{key}.lock", background):
        folder = built_folder(
            key,
            rows_sha256,
            _BUILDER,
            "cpu",
            lambda path: GraphIndex.build(rows, score, path / _FILE, background.is_wanted),
        )
    return GraphIndex(folder / _FILE, rows, score)


def _rows_digest(artifact: Artifact, table: str) -> str:
    """Return the digest of a table: of its files' digests, which were checked when the version was opened."""
    folder = f"tables/{table}/"
    files = {
        path: record.sha256 for path, record in artifact.manifest.files.items() if path.startswith(folder)
    }
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


@contextmanager
def _alone(path: Path, background: Background) -> Iterator[None]:
    """Hold a lock file for the time of the block, while the owner is open.

    Raises:
        BuildStoppedError: the model was closed while another process had the lock.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:  # mounted for reading: what is there is loaded, and an error of building says why
        yield
        return
    try:
        while not _locked(descriptor):
            background.wait(_POLL_S)
            if not background.is_wanted():
                raise BuildStoppedError
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()  # one who waits for it finds the index built, or builds it
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
