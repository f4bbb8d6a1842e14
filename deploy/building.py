"""Builds what a target loads of a model version, ahead of the first request."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from graphbox.artifact import Artifact
from graphbox.deploy.packages import DESCRIPTION_FILE, prepared
from graphbox.deploy.protocol import Options
from graphbox.deploy.select import choose
from graphbox.errors import ConflictError, UnsupportedError

__all__ = ["BuiltPackage", "build_package"]


@dataclass(frozen=True)
class BuiltPackage:
    """A package of a model version.

    Attributes:
        adapter: that built it.
        device: for which it was built.
        folder: where it is.
        files: sizes in bytes, by name.
        seconds: that building took; next to nothing where the package was there.
    """

    adapter: str
    device: str
    folder: str
    files: dict[str, int]
    seconds: float


def build_package(path: Path, target: str, threads: int = 1, out: Path | None = None) -> BuiltPackage:
    """Build the package of a model version, or find the one that was built.

    Args:
        path: folder of the model version.
        target: an adapter's name, or ``adapter/device``.
        threads: that one call of the program may use.
        out: a folder that does not exist, to copy the files to; None: they stay where packages are kept.

    Raises:
        NotFoundError: there is no such model version or target.
        BackendMissingError: the target is not available.
        UnsupportedError: the model has no ONNX part, the target cannot run it, or it compiles when it loads.
        ConflictError: ``out`` exists.
    """
    if out is not None and out.exists():
        raise ConflictError(
            "expected a folder that does not exist, received one that does",
            where=str(out),
            hint="name another folder, or remove this one",
        )
    artifact = Artifact.open(path)
    if artifact.manifest.onnx is None:
        raise UnsupportedError(
            "expected a model with an ONNX part, this one is tables only: no target compiles it",
            where=str(path),
        )
    adapter, device = choose(target)
    if not adapter.builds_ahead:
        raise UnsupportedError(
            f"expected a target that compiles ahead, {adapter.name} compiles when it loads a model",
            where=f"target `{target}`",
            hint="there is nothing to build: name it where the model is served",
        )
    began = time.monotonic()
    folder = prepared(adapter, artifact.onnx_bytes(), device, Options(threads=threads)).folder
    seconds = time.monotonic() - began
    assert folder is not None  # noqa: S101 - the adapter builds ahead
    if out is not None:
        shutil.copytree(folder, out, ignore=shutil.ignore_patterns(DESCRIPTION_FILE))
        folder = out
    files = {
        str(file.relative_to(folder)): file.stat().st_size
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != DESCRIPTION_FILE
    }
    return BuiltPackage(adapter.name, device.name, str(folder), files, seconds)
