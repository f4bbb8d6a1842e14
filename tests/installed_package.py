"""A package as an installer leaves it: modules beside a folder of metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["install"]


def install(
    folder: Path, name: str, files: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]]
) -> None:
    """Write a package, version 1.0.

    Args:
        folder: what is on the path of Python.
        name: of the package.
        files: text of its modules, by file name.
        entry_points: import path by name, by group.
    """
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {path}" for key, path in entries.items()), ""]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
