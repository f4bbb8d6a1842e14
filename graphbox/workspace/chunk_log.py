"""``chunks.jsonl``: what became of each chunk of a stream, one JSON line each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphbox.workspace.run_writer import write_text

_NAME = "chunks.jsonl"


class ChunkLog:
    """Appends chunks to the log of a run.

    Args:
        run_folder: folder of the run.
    """

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / _NAME

    def rewind(self, number: int) -> None:
        """Keep what was written of the chunks before one: a training that goes on writes the others again."""
        kept = [line for line in _lines(self._path) if line["number"] < number]
        if self._path.exists():
            write_text(self._path, "".join(json.dumps(line) + "\n" for line in kept))

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a chunk, which has at least a ``number``."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as stream:
            stream.write(json.dumps(dict(line)).encode() + b"\n")


def read_chunks(run_folder: Path) -> list[dict[str, Any]]:
    """Return what became of the chunks of a run's stream, in order; none where it follows no stream."""
    return _lines(run_folder / _NAME)


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    # The last line may have been cut off when the process died.
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
