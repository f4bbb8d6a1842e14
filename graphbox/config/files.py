"""Local files that a path of the run file names: one, the parts in a folder, or the matches of a pattern."""

from __future__ import annotations

from pathlib import Path

from graphbox.errors import did_you_mean

_LOOKED_AT = "`graph.root` and the run file's place decide where it is looked for"


def is_pattern(path: str) -> bool:
    """Return whether ``path`` is a pattern of file names."""
    return any(sign in path for sign in "*?[")


def matching_files(root: Path, path: str) -> list[Path]:
    """Return the files that ``path``, relative to ``root``, names, in the order of their names.

    A folder stands for the files in it whose names do not start with ``.`` or ``_`` (marks such as
    ``_SUCCESS``). A path that exists is never taken for a pattern.
    """
    whole = root / path
    if whole.is_file():
        return [whole]
    if whole.is_dir():
        return sorted(file for file in whole.iterdir() if file.is_file() and file.name[0] not in "._")
    if not is_pattern(path):
        return []
    anchor = Path(whole.anchor)
    return sorted(file for file in anchor.glob(str(whole.relative_to(anchor))) if file.is_file())


def what_is_missing(root: Path, path: str) -> tuple[str, str | None] | None:
    """Return message and hint when ``path``, relative to ``root``, names no file; None when it names some."""
    if matching_files(root, path):
        return None
    whole = root / path
    if whole.is_dir():
        return f"expected a table or a folder of its parts, but {whole} has no files in it", None
    if is_pattern(path):
        return f"expected files, but nothing matches {whole}", "`*` stands for any part of one name"
    beside = whole.parent
    near = [entry.name for entry in beside.iterdir()] if beside.is_dir() else []
    hint = did_you_mean(whole.name, near) or _LOOKED_AT
    return f"expected a file, but {whole} is not there", hint
