"""Compiled models in files: built once for a model, a device and a runtime, and loaded from then on.

A package is a folder named by its key, the digest of all that it depends on: the model's bytes, the adapter
with the version of its distribution, the device with the versions and capabilities that its probe found, and
the options. A package for an old driver is therefore never found; it stays until it was not used for
`_UNUSED_DAYS` days. ``package.json`` lists the digest of each file by its path in the folder, which is of
plain names. A package that is not as it was written is built again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from graphbox.artifact.manifest import is_plain_name
from graphbox.deploy.protocol import API_VERSION, Adapter, Device, Options, Package
from graphbox.deploy.registry import distribution_of
from graphbox.durable import NO_ROOM, flush_to_disk
from graphbox.errors import DoesNotFitError, FormatError, GraphboxError
from graphbox.package_folder import FOLDER_VARIABLE, packages_folder

__all__ = ["DESCRIPTION_FILE", "adapters_with_packages", "built_folder", "is_built", "prepared"]

DESCRIPTION_FILE = "package.json"
_FORMAT = 2
_UNUSED_DAYS = 30
_ABANDONED_HOURS = 24
_ATTEMPTS = 10
_MAX_DEPTH = 8
_CHUNK_BYTES = 1 << 20


class _File(BaseModel):
    """Size and digest of a file of a package."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: int
    sha256: str


class _Description(BaseModel):
    """The content of ``package.json``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    key: str
    model: str
    adapter: str
    device: str
    files: dict[str, _File]


def prepared(adapter: Adapter, model: bytes, device: Device, options: Options) -> Package:
    """Return a model ready to be loaded, built before or now.

    Args:
        adapter: of the device.
        model: an ONNX file's content (checked).
        device: where it is to run.
        options: what is asked for.

    Raises:
        UnsupportedError: the device cannot run the model.
        DoesNotFitError: the disk is full.
        FormatError: others than this user may write the folder of packages, or the adapter wrote what is no
            package.
        GraphboxError: the system refuses to write there.
    """
    if not adapter.builds_ahead:
        return Package(model, device, options)
    path = built_folder(
        _key(adapter, model, device, options),
        _digest(model),
        adapter.name,
        device.name,
        lambda folder: adapter.build(model, device, options, folder),
    )
    return Package(model, device, options, path)


def built_folder(
    key: str, model_sha256: str, builder: str, device: str, build: Callable[[Path], None]
) -> Path:
    """Return the folder of a package, built before or now.

    Args:
        key: 64 hexadecimal digits, the digest of all that the package depends on.
        model_sha256: digest of what it is built of.
        builder: name of the adapter or the library that builds it.
        device: that it is for.
        build: writes the files into an empty folder.

    Raises:
        DoesNotFitError: the disk is full.
        FormatError: others than this user may write the folder of packages, or ``build`` wrote what is no
            package.
        GraphboxError: the system refuses to write there.
    """
    folder = packages_folder()
    with _system_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_writable_by_others(folder)
        path = folder / key
        if not _is_complete(path, key):
            _remove_unused(folder)
            _build(path, model_sha256, builder, device, build)
        with suppress(OSError):  # a folder that is mounted for reading keeps no time of use
            os.utime(path / DESCRIPTION_FILE)
    return path


def is_built(adapter: Adapter, model: bytes, device: Device, options: Options) -> bool:
    """Return whether `prepared` would find a package."""
    key = _key(adapter, model, device, options)
    return _is_complete(packages_folder() / key, key)


def adapters_with_packages(model: bytes | None) -> set[str]:
    """Return the names of the adapters that have built any package of a model; None: of any model."""
    digest = None if model is None else _digest(model)
    names = set()
    for path in packages_folder().glob(f"*/{DESCRIPTION_FILE}"):
        with suppress(OSError, ValidationError):  # damaged: it is built again when it is wanted
            description = _Description.model_validate_json(path.read_bytes())
            if digest in (None, description.model):
                names.add(description.adapter)
    return names


def _key(adapter: Adapter, model: bytes, device: Device, options: Options) -> str:
    parts = {
        "format": _FORMAT,
        "api": API_VERSION,
        "adapter": adapter.name,
        "distribution": distribution_of(adapter.name),
        "code": _code_digest(adapter),
        "device": [device.name, device.kind, device.description, sorted(device.details.items())],
        "options": asdict(options),
        "model": _digest(model),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _digest(model: bytes) -> str:
    return hashlib.sha256(model).hexdigest()


def _code_digest(adapter: Adapter) -> str:
    """Return the digest of the adapter's module, which may change under one version while it is developed."""
    path = getattr(sys.modules.get(type(adapter).__module__), "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""


def _build(path: Path, model_sha256: str, builder: str, device: str, build: Callable[[Path], None]) -> None:
    """Build beside ``path``, and move the whole into place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    beside.mkdir(mode=0o700)
    try:
        build(beside)
        files = {name: _record(beside / name) for name in _written(builder, beside)}
        description = _Description(
            format=_FORMAT,
            key=path.name,
            model=model_sha256,
            adapter=builder,
            device=device,
            files=files,
        )
        (beside / DESCRIPTION_FILE).write_text(description.model_dump_json(indent=2))
        folders = {str(parent) for name in files for parent in Path(name).parents}  # "." too
        for name in (*files, DESCRIPTION_FILE, *sorted(folders, reverse=True)):
            flush_to_disk(beside / name)
        _move_into_place(beside, path)
        flush_to_disk(path.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _written(builder: str, folder: Path) -> list[str]:
    """Return the relative paths of the files that a builder wrote."""
    names = []
    entries = sorted(folder.iterdir())
    for entry in entries:
        name = entry.relative_to(folder).as_posix()
        mode = entry.lstat().st_mode
        inside = sorted(entry.iterdir()) if stat.S_ISDIR(mode) else []
        if not (stat.S_ISREG(mode) or inside) or not _is_plain_path(name) or name == DESCRIPTION_FILE:
            raise FormatError(
                f"expected plain files with plain names of the adapter `{builder}`, received `{name}`",
                where=str(folder),
            )
        entries += inside
        if not inside:
            names.append(name)
    if not names:
        raise FormatError(
            f"expected files of the adapter `{builder}`, which builds ahead, received none",
            where=str(folder),
        )
    return names


def _is_plain_path(path: str) -> bool:
    parts = path.split("/")
    return len(parts) <= _MAX_DEPTH and all(map(is_plain_name, parts))


def _move_into_place(beside: Path, path: Path) -> None:
    """Let ``path`` be the folder ``beside``, unless another process has built the same meanwhile."""
    for attempt in range(_ATTEMPTS):
        try:
            beside.rename(path)
            return
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST} or attempt == _ATTEMPTS - 1:
                raise
        if _is_complete(path, path.name):
            return
        damaged = beside.with_suffix(".damaged")
        with suppress(FileNotFoundError):  # another process has moved it
            path.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)


def _is_complete(path: Path, key: str) -> bool:
    """Return whether a package is there, with every byte that was written."""
    try:
        description = _Description.model_validate_json((path / DESCRIPTION_FILE).read_bytes())
        if description.format != _FORMAT or description.key != key or not description.files:
            return False
        return all(
            _is_plain_path(name)
            and not any((path / parent).is_symlink() for parent in Path(name).parents)
            and _record(path / name) == record
            for name, record in description.files.items()
        )
    except (OSError, ValidationError):
        return False


def _record(path: Path) -> _File:
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as stream:
        while block := stream.read(_CHUNK_BYTES):
            digest.update(block)
        return _File(bytes=stream.tell(), sha256=digest.hexdigest())


def _refuse_writable_by_others(folder: Path) -> None:
    """Refuse a folder whose packages, which are machine code, another user could have written."""
    found = folder.stat()
    if found.st_uid in {os.geteuid(), 0} and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    raise FormatError(
        f"expected a folder that only you can write, received mode {stat.filemode(found.st_mode)} of user "
        f"{found.st_uid}",
        where=str(folder),
        hint=f"`chmod go-w` the folder, or name another one by {FOLDER_VARIABLE}",
    )


def _remove_unused(folder: Path) -> None:
    """Remove packages that were not used for long, and what killed processes left."""
    now = time.time()
    for path in folder.iterdir():
        is_partial = path.name.startswith(".")
        used = path if is_partial else path / DESCRIPTION_FILE
        limit_s = 3600 * (_ABANDONED_HOURS if is_partial else 24 * _UNUSED_DAYS)
        with suppress(OSError):  # another process removes it too
            if now - used.stat().st_mtime > limit_s:
                shutil.rmtree(path)


@contextmanager
def _system_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind: type[GraphboxError] = DoesNotFitError if error.errno in NO_ROOM else GraphboxError
        raise kind(
            f"cannot keep compiled models: {error.strerror or error}",
            where=str(folder),
            hint=f"free some disk space, or name another folder by {FOLDER_VARIABLE}",
        ) from error
