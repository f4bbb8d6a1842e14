"""Files of kept versions: copies of manifests in the folder ``versions`` of a graph, and who holds them.

``versions/<digest>.json`` is a manifest as it was, ``versions/<digest>.by.<holder>`` an empty file for each
holder; the digest is the manifest's checksum. Writers of the graph leave alone what these manifests name.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphbox.durable import write_atomically
from graphbox.errors import FormatError
from graphbox.graph.manifest import decode_manifest

VERSIONS = "versions"
_PREFIX = "sha256:"


def version_of(content: bytes) -> str:
    """Return the version that the text of a manifest describes: its checksum."""
    return str(json.loads(content)["checksum"])


def is_version(content: bytes, version: str) -> bool:
    """Return whether the text of a manifest describes a version."""
    return f'"{version}"'.encode() in content


def version_path(path: Path, version: str) -> Path:
    """Return where the manifest of a kept version is.

    Args:
        path: the graph's folder.
        version: the version.
    """
    return path / VERSIONS / f"{version.removeprefix(_PREFIX)}.json"


def kept_manifests(path: Path) -> dict[str, dict[str, Any]]:
    """Return the manifests of kept versions; damaged ones are ignored: nobody can open them."""
    found = {}
    for file in sorted((path / VERSIONS).glob("*.json")):
        with contextlib.suppress(FormatError, FileNotFoundError):
            found[_PREFIX + file.stem] = decode_manifest(file.read_bytes(), file)
    return found


def kept_files(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return the entries of all arrays that kept versions name, by path within the folder."""
    return {
        name: entry for manifest in kept_manifests(path).values() for name, entry in manifest["files"].items()
    }


def holders_of(path: Path, version: str) -> list[str]:
    """Return who holds a kept version."""
    start = f"{version.removeprefix(_PREFIX)}."
    names = (file.name for file in (path / VERSIONS).glob(f"{start}by.*"))
    return sorted(name.removeprefix(f"{start}by.") for name in names)


def add_holder(path: Path, version: str, content: bytes, holder: str) -> None:
    """Keep a version for a holder.

    Args:
        path: the graph's folder.
        version: the version.
        content: text of its manifest.
        holder: who needs it.
    """
    file = version_path(path, version)
    with write_atomically(file) as stream:
        stream.write(content)
    _holder_path(file, holder).touch()


def remove_holder(path: Path, version: str, holder: str) -> None:
    """Remove a holder of a version, and the version with the last of them; arrays stay."""
    file = version_path(path, version)
    _holder_path(file, holder).unlink(missing_ok=True)
    if not holders_of(path, version):
        file.unlink(missing_ok=True)


def _holder_path(file: Path, holder: str) -> Path:
    return file.with_name(f"{file.stem}.by.{holder}")


def remove_version(path: Path, version: str) -> None:
    """Remove a kept version, whoever holds it; arrays stay."""
    file = version_path(path, version)
    for holder in holders_of(path, version):
        _holder_path(file, holder).unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def remove_versions(path: Path) -> None:
    """Remove all kept versions; arrays stay."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path / VERSIONS)
