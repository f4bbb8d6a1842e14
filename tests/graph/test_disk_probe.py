"""Measuring a disk that is nearly full."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from graphbox.graph.disk_probe import measure_disk


def test_a_probe_takes_half_of_what_is_free_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    class File:
        def __enter__(self) -> Self:
            self.file = (tmp_path / "probe").open("wb+", buffering=0)
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, block: bytes) -> int:
            written.append(len(block))
            return self.file.write(block)

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: File())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=20 << 20))
    rates = measure_disk(tmp_path)
    assert sum(written) == 8 << 20
    assert rates.write_bytes_per_s > 0
