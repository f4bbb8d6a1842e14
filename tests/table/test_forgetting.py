"""Erased keys: what is left of them, and that nothing is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphbox import _core
from graphbox.errors import FormatError, NotFoundError
from graphbox.table import EmbeddingTable


def test_in_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr("graphbox.table.forgetting._SETTLED_S", 0.05)
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


def at_the_first_read(happens: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let something happen when files were listed and none was read."""
    read = _core.segment_keys
    waiting = [happens]

    def read_then(path: str) -> object:
        if waiting:
            waiting.pop()()
        return read(path)

    monkeypatch.setattr(_core, "segment_keys", read_then)


def saved(path: Path, keys: list[int]) -> EmbeddingTable:
    table = EmbeddingTable(4)
    table.push(np.array(keys, np.int64), np.ones((len(keys), 4), np.float32))
    table.save(path)
    return table


@pytest.mark.parametrize("others", [[], [8], [7]])
def test_a_checkpoint_that_is_replaced_is_read_again(
    tmp_path: Path, others: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "full", [7])
    at_the_first_read(lambda: saved(tmp_path / "full", others), monkeypatch)
    found = EmbeddingTable(4).remnants([7], [tmp_path / "full"]).checkpoints
    assert found == ((tmp_path / "full",) if 7 in others else ())


def test_keys_that_only_the_new_checkpoint_has_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its one file of the old one's name says nothing of those that the old one did not have."""
    table = saved(tmp_path / "base", [7])
    table.save_base(tmp_path / "base")
    table.push([8], np.ones((1, 4), np.float32))
    table.erase([7])
    table.save_delta(tmp_path / "place")  # rows of 8, and that 7 is erased
    delta = tmp_path / "delta"
    (tmp_path / "place").rename(delta)
    saved(tmp_path / "place", [8])

    def exchange() -> None:
        _core.exchange_paths(str(tmp_path / "place"), str(delta))

    at_the_first_read(exchange, monkeypatch)
    assert EmbeddingTable(4).remnants([7], [tmp_path / "place"]).checkpoints == (tmp_path / "place",)


def test_a_checkpoint_that_is_removed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "full", [7])
    at_the_first_read(lambda: shutil.rmtree(tmp_path / "full"), monkeypatch)
    assert not EmbeddingTable(4).remnants([7], [tmp_path / "full"])


def test_a_checkpoint_is_passed_over_while_it_is_removed_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "full", [7])
    left = sorted((tmp_path / "full").iterdir(), reverse=True)  # the manifest is not the last to go
    assert len(left) > 1

    def remove_one(_: float = 0.0) -> None:
        if left:
            left.pop().unlink()
        else:
            (tmp_path / "full").rmdir()

    remove_one()
    monkeypatch.setattr("graphbox.table.forgetting.time.sleep", remove_one)
    assert not EmbeddingTable(4).remnants([7], [tmp_path / "full"])


def test_a_missing_file_of_a_checkpoint_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbox.table.forgetting._SETTLED_S", 0.05)
    saved(tmp_path / "full", [7])
    next((tmp_path / "full").glob("rows-*")).unlink()
    with pytest.raises(NotFoundError, match="rows-"):
        EmbeddingTable(4).remnants([7], [tmp_path / "full"])


def test_segments_that_are_rewritten_are_read_as_what_they_became(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddingTable(256, path=tmp_path / "rows", memory_bytes=16 << 20) as table:
        for keys in np.split(np.arange(20_000), 20):
            table.pull(keys)
        table.erase(np.arange(10))
        table.flush()
        assert table.remnants(np.arange(10)).segments
        at_the_first_read(table.purge, monkeypatch)
        assert not table.remnants(np.arange(10))
        (tmp_path / "rows" / "segments" / "lost.segment").symlink_to("nowhere")
        with pytest.raises(NotFoundError, match="lost"):
            table.remnants(np.arange(10))
