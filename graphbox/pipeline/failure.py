"""Translation of the errors that end a stage or a command into the user's terms."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from graphbox.errors import DoesNotFitError, GraphboxError, InterruptedRunError, missing_extra
from graphbox.pipeline.progress import STOPPED

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "train": ("torch", "torch_geometric", "sklearn", "scipy", "onnx", "onnxscript", "safetensors"),
}
"""The modules that an extra of the package brings."""

_REFUSED = {
    errno.EACCES,
    errno.EFBIG,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.EPERM,
    errno.EROFS,
    errno.ESTALE,
}
"""Errors of reading and writing files that the system causes."""


def known_failure(error: BaseException) -> GraphboxError | None:
    """Return an error of Python or the system that has a plain cause as one of ours; None for any other.

    A module of an extra that is not installed, a full disk, files that the system refuses, and no memory left
    are such causes.
    """
    if isinstance(error, GraphboxError):
        return error
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        for extra, modules in EXTRAS.items():
            if module in modules:
                return missing_extra(module, extra)
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DoesNotFitError(
            "there is no space left on the disk",
            where=str(error.filename) if error.filename else None,
            hint="free some: `graphbox runs`, `graphs` and `models` show sizes, and each has `rm`",
        )
    if isinstance(error, OSError) and error.errno in _REFUSED:
        return GraphboxError(
            f"the system refuses to read or write: {error.strerror}",
            where=str(error.filename) if error.filename else None,
            hint="see who owns the file and its folder, and how the disk is mounted",
        )
    if isinstance(error, MemoryError):
        return DoesNotFitError(
            f"there is not enough memory{f': {error}' if str(error) else ''}",
            hint="make batches or embeddings smaller, or use a machine with more memory",
        )
    return None


def stage_failure(
    error: BaseException, stage: str, run_id: str, log_path: Path, *, keeps_results: bool = False
) -> GraphboxError:
    """Return what ended a stage as an error that says how to resume.

    Args:
        error: what ended it.
        stage: its name.
        run_id: the run.
        log_path: log of the run.
        keeps_results: whether it was a finished stage that ran again: the run keeps its results.
    """
    resuming = f"the same command, or `graphbox runs resume {run_id}`, resumes from there"
    if keeps_results:
        resuming = "the run keeps its earlier results; the same command runs the stage again"
    if isinstance(error, InterruptedRunError):
        work = "" if error.message == STOPPED else f": {error.message}"
        return InterruptedRunError(
            f"stopped during the stage `{stage}`{work}", where=f"run {run_id}", hint=resuming
        )
    if isinstance(error, KeyboardInterrupt):
        return InterruptedRunError(
            f"stopped at once during the stage `{stage}`", where=f"run {run_id}", hint=resuming
        )
    return known_failure(error) or GraphboxError(
        f"the stage `{stage}` failed unexpectedly: {type(error).__name__}: {error}",
        where=f"run {run_id}",
        hint=f"this is a fault of graphbox; please report it with {log_path}",
    )
