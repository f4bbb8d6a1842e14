"""Checkpoints: whole or not there, and every damage named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphbox.errors import ConflictError, FormatError
from graphbox.table import EmbeddingTable
from graphbox.train.checkpoint import Checkpoint, CheckpointStore, optimizer_tensors, restore_optimizer
from graphbox.train.storage import save_tensors


def make(step: int) -> Checkpoint:
    table = EmbeddingTable(4, seed=3)
    table.push(np.arange(10), np.full((10, 4), 0.1 * step, np.float32))
    dense = {"model.weight": torch.full((2, 3), float(step)), "optimizer.0.step": torch.tensor(float(step))}
    return Checkpoint(step, {"epoch": step, "time_s": 0.5}, dense, {"item": table})


def store(folder: Path) -> CheckpointStore:
    return CheckpointStore(folder / "checkpoints", "settings")


def test_comes_back(tmp_path: Path) -> None:
    saved = make(7)
    store(tmp_path).save(saved)
    loaded = store(tmp_path).load()
    assert loaded is not None
    assert (loaded.step, dict(loaded.state)) == (7, {"epoch": 7, "time_s": 0.5})
    assert loaded.dense.keys() == saved.dense.keys()
    for name, value in saved.dense.items():
        torch.testing.assert_close(loaded.dense[name], value, rtol=0, atol=0)
    keys = np.arange(10)
    np.testing.assert_array_equal(loaded.tables["item"].pull(keys), saved.tables["item"].pull(keys))


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    for step in (1, 5, 20):
        checkpoints.save(make(step))
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["0000000005", "0000000020"]
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded.step == 20
    checkpoints.save(make(20))  # the same place again
    checkpoints.remove()
    assert checkpoints.load() is None


def test_one_that_was_never_finished_does_not_count(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    place = checkpoints.save(make(1))
    unfinished = place.parent / ".0000000002.partial"
    unfinished.mkdir()
    (unfinished / "dense.safetensors").write_bytes(b"half")
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded.step == 1
    checkpoints.save(make(2))
    assert not unfinished.exists()


class Death(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("step", [2, 3])
def test_death_while_one_is_removed_leaves_whole_ones(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die_early(folder: Path) -> None:
        next(path for path in sorted(folder.rglob("*")) if path.is_file()).unlink()
        raise Death

    checkpoints = store(tmp_path)
    checkpoints.save(make(1))
    checkpoints.save(make(2))
    with monkeypatch.context() as patched:
        patched.setattr("graphbox.train.checkpoint.shutil", SimpleNamespace(rmtree=die_early))
        with pytest.raises(Death):
            checkpoints.save(make(step))
        loaded = checkpoints.load()
        assert loaded is not None
        assert loaded.step == step
        with pytest.raises(Death):
            checkpoints.remove()
        assert checkpoints.load() is None
    checkpoints.save(make(9))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0000000009"]


def test_death_while_one_is_replaced_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Death

    checkpoints = store(tmp_path)
    checkpoints.save(make(1))
    checkpoints.save(make(2))
    monkeypatch.setattr("graphbox.train.checkpoint.replace_durably", die)
    with pytest.raises(Death):
        checkpoints.save(make(2))
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded.step == 1


@pytest.mark.parametrize(
    "name", ["dense.safetensors", "item.table/manifest.json", "item.table/rows-00000.segment", "state.json"]
)
@pytest.mark.parametrize("damage", ["cut off", "changed", "missing"])
def test_damage_names_the_file_and_the_way_on(tmp_path: Path, name: str, damage: str) -> None:
    checkpoints = store(tmp_path)
    before = checkpoints.save(make(1))
    place = checkpoints.save(make(2))
    path = place / name
    whole = path.read_bytes()
    if damage == "cut off":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "changed":
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    else:
        path.unlink()
    with pytest.raises(FormatError) as caught:
        checkpoints.load()
    assert str(path) in str(caught.value)
    assert f"delete the folder {place} to go on from that of step 1" in str(caught.value)
    # Doing what the message says works.
    shutil.rmtree(place)
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded.step == 1
    assert before.exists()


def test_a_whole_table_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    before, place = checkpoints.save(make(1)), checkpoints.save(make(2))
    shutil.rmtree(place / "item.table")
    shutil.copytree(before / "item.table", place / "item.table")
    with pytest.raises(FormatError, match="expected the table of this checkpoint, received another one"):
        checkpoints.load()


def test_what_the_system_refuses_is_told_as_such(tmp_path: Path) -> None:
    """A full disk, say, which safetensors tells in an error of its own."""
    with pytest.raises(FileNotFoundError) as caught:
        save_tensors({"a": torch.zeros(3)}, tmp_path / "nowhere" / "x.safetensors")
    assert caught.value.filename == str(tmp_path / "nowhere" / "x.safetensors")


def test_of_other_settings_or_version_is_refused(tmp_path: Path) -> None:
    place = store(tmp_path).save(make(1))
    with pytest.raises(ConflictError, match="same task, model and seed"):
        CheckpointStore(tmp_path / "checkpoints", "others").load()
    state = json.loads((place / "state.json").read_text())
    (place / "state.json").write_text(json.dumps({**state, "version": 99}))
    with pytest.raises(FormatError, match=r"version 2 of graphbox-checkpoint, received 99"):
        store(tmp_path).load()
    (place / "state.json").write_text("[]")
    with pytest.raises(FormatError, match="to go on from the beginning"):
        store(tmp_path).load()


def test_optimizer_goes_on_where_it_was() -> None:
    def fresh() -> tuple[torch.nn.Linear, torch.optim.Adam]:
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        return layer, torch.optim.Adam(layer.parameters(), lr=0.1)

    def step(layer: torch.nn.Linear, optimizer: torch.optim.Adam, number: int) -> None:
        optimizer.zero_grad()
        layer(torch.full((1, 3), float(number))).sum().backward()
        optimizer.step()

    whole, whole_optimizer = fresh()
    for number in range(6):
        step(whole, whole_optimizer, number)

    first, first_optimizer = fresh()
    for number in range(3):
        step(first, first_optimizer, number)
    second, second_optimizer = fresh()
    second.load_state_dict(first.state_dict())
    restore_optimizer(second_optimizer, optimizer_tensors(first_optimizer))
    for number in range(3, 6):
        step(second, second_optimizer, number)
    torch.testing.assert_close(second.weight, whole.weight, rtol=0, atol=0)
