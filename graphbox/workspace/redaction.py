"""Replaces ids of forgotten nodes in texts: logs, figures and records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from graphbox.workspace.run_writer import write_text

REDACTED = "(forgotten)"
"""Stands in the place of an id that was forgotten."""

_QUOTED = re.compile(r"([`'\"])([^`'\"\n]{1,512})\1")
_WORD = re.compile(r"[^\s`'\"(){}\[\],;=]+")
_SHORTEST_WORD = 6
_TEXT_SUFFIXES = {".json", ".jsonl", ".log", ".txt"}


class Redactor:
    """Finds ids in texts and replaces them.

    Messages of graphbox quote ids. An id is also found as a word of its own if it has at least 6 characters
    and is no number: a shorter one, or a number, would be found where something else is meant.

    Args:
        ids: the ids as text.
    """

    def __init__(self, ids: Iterable[str]) -> None:
        plain = set(ids)
        self._quoted = plain | {json.dumps(each)[1:-1] for each in plain}
        self._words = {each for each in self._quoted if len(each) >= _SHORTEST_WORD and not each.isdigit()}

    def redact(self, text: str) -> tuple[str, int]:
        """Return a text without the ids, and how many were replaced."""
        count = 0

        def quoted(match: re.Match[str]) -> str:
            nonlocal count
            if match[2] not in self._quoted:
                return match[0]
            count += 1
            return f"{match[1]}{REDACTED}{match[1]}"

        def word(match: re.Match[str]) -> str:
            nonlocal count
            core = match[0].rstrip(".:!?")
            found = next((each for each in (match[0], core) if each in self._words), None)
            if found is None:
                return match[0]
            count += 1
            return REDACTED + match[0][len(found) :]

        text = _QUOTED.sub(quoted, text)
        return (_WORD.sub(word, text) if self._words else text), count

    def redact_files(self, folder: Path) -> int:
        """Redact the text files directly in a folder; return how many ids were replaced."""
        replaced = 0
        for path, content in _texts(folder):
            text, count = self.redact(content)
            if count:
                write_text(path, text)
                replaced += count
        return replaced

    def count_in_files(self, folder: Path) -> int:
        """Return how many ids the text files directly in a folder name."""
        return sum(self.redact(content)[1] for _, content in _texts(folder))


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the text files directly in a folder with what they hold, also where that is no UTF-8."""
    for path in sorted(folder.iterdir()):
        if path.suffix in _TEXT_SUFFIXES and path.is_file() and not path.is_symlink():
            yield path, path.read_text(encoding="utf-8", errors="surrogateescape")
