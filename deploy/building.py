"""Builds what a target loads of a model version, or a folder that answers for it, ahead of requests."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from graphbox.artifact import Artifact
from graphbox.deploy.packages import DESCRIPTION_FILE, prepared
from graphbox.deploy.protocol import Adapter, Device, Options, VersionBundler
from graphbox.deploy.select import choose
from graphbox.durable import NO_ROOM
from graphbox.errors import ConflictError, DoesNotFitError, GraphboxError, UnsupportedError, UsageError

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
        out: a folder that does not exist, to write the files to; None: they stay where packages are kept.
            A target that bundles whole versions (`VersionBundler`) keeps nothing there and needs a folder.

    Raises:
        UsageError: the target needs ``out``.
        NotFoundError: there is no such model version or target.
        BackendMissingError: the target is not available.
        UnsupportedError: the model has no ONNX part, the target cannot run it, or it compiles when it loads.
        ConflictError: ``out`` exists.
        DoesNotFitError: the disk is full.
    """
    if out is not None and out.exists():
        raise ConflictError(
            "expected a folder that does not exist, received one that does",
            where=str(out),
            hint="name another folder, or remove this one",
        )
    artifact = Artifact.open(path)
    adapter, device = choose(target)
    options = Options(threads=threads)
    began = time.monotonic()
    if isinstance(adapter, VersionBundler):
        folder = _bundle(adapter, artifact, device, options, out)
    else:
        folder = _package(adapter, artifact, device, options)
        if out is not None:
            shutil.copytree(folder, out, ignore=shutil.ignore_patterns(DESCRIPTION_FILE))
            folder = out
    seconds = time.monotonic() - began
    files = {
        str(file.relative_to(folder)): file.stat().st_size
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != DESCRIPTION_FILE
    }
    return BuiltPackage(adapter.name, device.name, str(folder), files, seconds)


def _package(adapter: Adapter, artifact: Artifact, device: Device, options: Options) -> Path:
    """Build the package of a version's ONNX part, or find it."""
    if artifact.manifest.onnx is None:
        raise UnsupportedError(
            "expected a model with an ONNX part, this one is tables only: no target compiles it",
            where=str(artifact.path),
        )
    if not adapter.builds_ahead:
        raise UnsupportedError(
            f"expected a target that compiles ahead, {adapter.name} compiles when it loads a model",
            where=f"target `{adapter.name}`",
            hint="there is nothing to build: name it where the model is served",
        )
    folder = prepared(adapter, artifact.onnx_bytes(), device, options).folder
    assert folder is not None  # noqa: S101 - the adapter builds ahead
    return folder


def _bundle(
    adapter: VersionBundler, artifact: Artifact, device: Device, options: Options, out: Path | None
) -> Path:
    """Write the bundle of a version beside ``out``, and move the whole into place."""
    if out is None:
        raise UsageError(
            "expected a folder to write to, received none: this target bundles the model's rows, which "
            "are not kept among packages",
            hint="--out FOLDER",
        )
    beside = out.with_name(f".{out.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        beside.mkdir(parents=True)
        adapter.bundle(artifact, device, options, beside)
        beside.rename(out)
    except OSError as error:
        kind: type[GraphboxError] = DoesNotFitError if error.errno in NO_ROOM else GraphboxError
        raise kind(f"cannot write the bundle: {error.strerror or error}", where=str(out)) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return out
