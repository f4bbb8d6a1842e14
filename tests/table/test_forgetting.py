"""Erased keys: what is left of them, and that nothing is."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import FormatError
from graphbox.table import EmbeddingTable


def test_in_checkpoints(tmp_path: Path) -> None:
    table = EmbeddingTable(4)
    table.push(np.arange(100), np.ones((100, 4), np.float32))
    assert table.remnants([7]).keys_in_table == 1
    for name in ("full", "base", "gone"):
        getattr(table, "save_base" if name == "base" else "save")(tmp_path / name)
    table.save_base(tmp_path / "serving", serving="int8")
    shutil.rmtree(tmp_path / "gone")
    table.erase([7, 8])
    table.save(tmp_path / "full")
    table.save_delta(tmp_path / "delta")  # which says that 7 and 8 are erased
    remnants = table.remnants([7, 7])
    assert remnants
    assert (remnants.keys_in_table, remnants.segments) == (0, ())
    assert [path.name for path in remnants.checkpoints] == ["base", "serving", "delta"]
    loaded = EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"])
    assert [path.name for path in loaded.remnants([7]).checkpoints] == ["base", "delta"]
    for path in remnants.checkpoints:
        shutil.rmtree(path)
    assert not table.remnants([7, 8])
    other = EmbeddingTable(4)
    assert other.remnants([50], [tmp_path / "full"]).checkpoints == (tmp_path / "full",)
    part = next((tmp_path / "full").glob("rows-*"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(FormatError):
        table.remnants([7])


def test_on_ssd(tmp_path: Path) -> None:
    with EmbeddingTable(256, path=tmp_path / "rows", memory_bytes=16 << 20) as table:
        for keys in np.split(np.arange(20_000), 20):
            table.pull(keys)
        table.flush()
        table.erase(np.arange(10))
        table.flush()
        remnants = table.remnants(np.arange(10))
        assert remnants.segments
        assert remnants.keys_in_table == 0
        table.purge()
        assert not table.remnants(np.arange(10))
