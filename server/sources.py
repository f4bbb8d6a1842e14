"""Sources of served model versions: a workspace, or folders of models."""

from __future__ import annotations

import itertools
import logging
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from graphbox.artifact.manifest import MANIFEST_FILE, Manifest, is_plain_name, read_manifest
from graphbox.errors import FormatError, NotFoundError, UsageError
from graphbox.workspace import Workspace

__all__ = [
    "Listing",
    "ModelFolder",
    "SingleVersion",
    "Source",
    "VersionFolder",
    "WatchedSource",
    "WorkspaceModels",
    "open_folder",
]

logger = logging.getLogger("graphbox.server")

Stamp = tuple[int, int]
"""Inode number and time of change of a manifest."""

_VERSION = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """A model version on disk.

    Attributes:
        name: model name.
        version: version number.
        path: its folder.
        kind: kind of model.
        stamp: changes when the version is rewritten; None where its manifest cannot be found.
        manifest: its manifest, where the source has read it.
    """

    name: str
    version: int
    path: Path
    kind: str
    stamp: Stamp | None = None
    manifest: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The model versions of a source at one moment.

    Attributes:
        versions: all of them.
        active: version to serve, by model name.
    """

    versions: tuple[VersionFolder, ...]
    active: Mapping[str, int]

    @property
    def names(self) -> set[str]:
        """Names of the models."""
        return {version.name for version in self.versions}


class Source(Protocol):
    """A place that holds model versions.

    Attributes:
        label: how messages name it.
    """

    label: str

    def differs(self, listing: Listing) -> bool:
        """Return whether what is to be served differs from a listing; cheap enough to poll."""
        ...

    def listing(self) -> Listing:
        """Return all model versions."""
        ...


class WatchedSource:
    """A source with its newest listing. Safe to use from any thread.

    Attributes:
        label: how messages name the source.
        listing: the newest listing.
        is_workspace: whether it is a workspace, whose database notes the active row updates.
    """

    def __init__(self, source: Source) -> None:
        self.label = source.label
        self.is_workspace = isinstance(source, WorkspaceModels)
        self.listing = source.listing()
        self._source = source
        self._lock = threading.Lock()
        self._reads = itertools.count(1)
        self._newest = 0
        self._error: type[Exception] | None = None

    def read(self) -> None:
        """Replace the listing, unless a read that began later has done so already."""
        number = next(self._reads)
        listing = self._source.listing()
        with self._lock:
            if number > self._newest:
                self._newest, self.listing = number, listing

    def poll(self) -> bool:
        """Read the source again if it has changed; return whether it was read.

        An error keeps the listing. One of the same type as at the last poll is not logged again.
        """
        try:
            changed = self._source.differs(self.listing)
            if changed:
                self.read()
        except Exception as error:  # noqa: BLE001 - no error of a source may stop what is served
            if self._error is not type(error):
                logger.error("models of %s cannot be listed, retrying: %s", self.label, error)
            self._error = type(error)
            return False
        if self._error is not None:
            logger.warning("models of %s can be listed again", self.label)
            self._error = None
        return changed


class WorkspaceModels:
    """The models of a workspace, each served in its active version."""

    def __init__(self, workspace: Workspace) -> None:
        self.label = f"the workspace {workspace.root}"
        self._workspace = workspace
        self._stamp: tuple[int, ...] | None = None
        self._differs = True

    def differs(self, listing: Listing) -> bool:
        """Return whether a version became active or was rewritten. Looks only if the database has changed."""
        stamp = self._workspace.change_stamp()
        if self._differs or stamp is None or stamp != self._stamp:
            active = self._workspace.active_versions()
            self._differs = active != listing.active or _has_rewritten(listing)
            self._stamp = stamp
        return self._differs

    def listing(self) -> Listing:
        """Return all model versions of the workspace."""
        records = self._workspace.models()
        return Listing(
            tuple(
                VersionFolder(record.name, record.version, record.path, record.kind, _stamp(record.path))
                for record in records
            ),
            {record.name: record.version for record in records if record.active},
        )


class ModelFolder:
    """A folder with the layout ``<name>/<version>/manifest.json``; never written to.

    The highest version of each model is served. A version folder without a manifest is still being
    written and is ignored.

    Args:
        path: the folder.

    Raises:
        NotFoundError: the folder does not exist.
        FormatError: a manifest is damaged, or does not match the names of its folders.
        UsageError: the folder cannot be read, or is the folder of one model.
    """

    def __init__(self, path: Path) -> None:
        self.label = f"the folder {path}"
        self._path = path
        self._known: dict[Path, VersionFolder] = {}
        self._rejected: dict[Path, str] = {}
        _check_level(path)
        for version in self._versions():
            self._known[version] = _read_version(version)

    def differs(self, listing: Listing) -> bool:
        """Return whether a model has another highest version, or a version was rewritten. Opens no file."""
        highest: dict[str, int] = {}
        for path in self._versions():
            if path not in self._rejected:
                highest[path.parent.name] = max(int(path.name), highest.get(path.parent.name, 0))
        return highest != listing.active or _has_rewritten(listing)

    def listing(self) -> Listing:
        """Return all versions; one with a wrong manifest is logged once and left out."""
        known: dict[Path, VersionFolder] = {}
        rejected: dict[Path, str] = {}
        for path in self._versions():
            try:
                before = self._known.get(path)
                is_same = before is not None and before.stamp == _stamp(path)
                known[path] = before if before is not None and is_same else _read_version(path)
            except FormatError as error:
                rejected[path] = str(error)
                if self._rejected.get(path) != rejected[path]:
                    logger.error("model %s version %s is not served: %s", path.parent.name, path.name, error)
        self._known, self._rejected = known, rejected
        highest: dict[str, int] = {}
        for version in known.values():
            highest[version.name] = max(version.version, highest.get(version.name, 0))
        return Listing(tuple(known.values()), highest)

    def _versions(self) -> list[Path]:
        """Return the folders of all complete versions."""
        found: list[Path] = []
        for model in _subfolders(self._path):
            if is_plain_name(model.name):
                # A model that is removed meanwhile has no versions.
                with suppress(NotFoundError):
                    found += [each for each in _subfolders(model) if _is_version(each)]
        return found


class SingleVersion:
    """One version folder, served under the name and version of its manifest."""

    def __init__(self, path: Path) -> None:
        self.label = f"the folder {path}"
        self._path = path

    def differs(self, listing: Listing) -> bool:
        """Return whether the version was rewritten."""
        return _has_rewritten(listing)

    def listing(self) -> Listing:
        """Return the version."""
        stamp = _stamp(self._path)
        manifest = _manifest(self._path)
        version = VersionFolder(manifest.name, manifest.version, self._path, manifest.kind, stamp, manifest)
        return Listing((version,), {manifest.name: manifest.version})


def open_folder(path: Path) -> Source:
    """Return the models of a folder: one version if it holds a manifest, else ``<name>/<version>/``.

    Raises:
        NotFoundError: the folder does not exist.
        FormatError: a manifest is damaged, or does not match the names of its folders.
        UsageError: the folder cannot be read, or is the folder of one model.
    """
    folder = path.absolute()
    return SingleVersion(folder) if (folder / MANIFEST_FILE).is_file() else ModelFolder(folder)


def _check_level(path: Path) -> None:
    """Reject the folder of one model: its parent was meant."""
    versions = [each for each in _subfolders(path) if _is_version(each)]
    if versions:
        raise UsageError(
            f"expected a folder with <name>/<version>/{MANIFEST_FILE}, received the folder of one model",
            where=str(path),
            hint=f"pass {path.parent} to serve its models, or {versions[0]} to serve one version",
        )


def _subfolders(path: Path) -> list[Path]:
    """Return the folders in ``path`` by name.

    Raises:
        NotFoundError: ``path`` is not a folder.
        UsageError: it cannot be read.
    """
    try:
        return sorted(each for each in path.iterdir() if each.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError("expected a folder of models, found none", where=str(path)) from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _is_version(path: Path) -> bool:
    try:
        return _VERSION.fullmatch(path.name) is not None and (path / MANIFEST_FILE).is_file()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"expected a folder this user can read, received: {error.strerror}",
        where=str(path),
        hint="check its permissions",
    )


def _stamp(path: Path) -> Stamp | None:
    """Return what changes when the version in a folder is rewritten."""
    try:
        status = (path / MANIFEST_FILE).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _has_rewritten(listing: Listing) -> bool:
    """Return whether a listed version was rewritten since; not whether it is gone."""
    return any(_stamp(version.path) not in (version.stamp, None) for version in listing.versions)


def _read_version(path: Path) -> VersionFolder:
    stamp = _stamp(path)
    manifest = _manifest(path)
    if (manifest.name, str(manifest.version)) != (path.parent.name, path.name):
        raise FormatError(
            f"expected the manifest of {path.parent.name}/{path.name}, as the folders are named,"
            f" received that of {manifest.name}/{manifest.version}",
            where=str(path / MANIFEST_FILE),
            hint=f"move the folder to {manifest.name}/{manifest.version}",
        )
    return VersionFolder(manifest.name, manifest.version, path, manifest.kind, stamp, manifest)


def _manifest(path: Path) -> Manifest:
    file = path / MANIFEST_FILE
    try:
        return read_manifest(file.read_bytes(), file)
    except OSError as error:
        raise FormatError(f"expected a readable file, received: {error.strerror}", where=str(file)) from error
