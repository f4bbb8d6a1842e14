"""Mistakes of users of tables: errors name the expected value and a remedy."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphbox import table as tables
from graphbox.errors import ConflictError, NotFoundError, UsageError
from graphbox.table import (
    EmbeddingTable,
    TableEmbeddingBag,
    TableEmbeddingBagCollection,
    hashed_keys,
    salted_keys,
)


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        (np.array([2**64 - 1], np.uint64), r"values\.view\(numpy\.int64\)"),
        (np.array([1.0]), r"values\.astype\(numpy\.int64\)"),
        (torch.tensor([True]), r"values\.astype\(numpy\.int64\)"),
        (["Anna"], r"graphbox\.table\.hashed_keys\(ids\)"),
    ],
)
def test_keys_that_are_no_int64_come_with_what_makes_them_such(keys: Any, hint: str) -> None:
    with pytest.raises(UsageError, match=f"keys: expected integers that fit int64, received .*(?s:.*){hint}"):
        EmbeddingTable(4).pull(keys)


def test_keys_of_texts_are_their_digests_in_any_shape() -> None:
    texts = [["a", "grün"], ["", "a"]]
    expected = [
        [
            int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
            for text in row
        ]
        for row in texts
    ]
    assert hashed_keys(texts).tolist() == expected
    assert hashed_keys(np.array(texts, object)).tolist() == expected
    assert hashed_keys([b"a"])[0] == expected[0][0]
    assert hashed_keys([]).tolist() == []
    assert salted_keys(hashed_keys(["a"]), "one")[0] != salted_keys(hashed_keys(["a"]), "two")[0]


@pytest.mark.parametrize("wrong", [5, None, float("nan")])
def test_what_is_no_text_has_no_hashed_key(wrong: object) -> None:
    with pytest.raises(UsageError, match=r"ids: expected texts, received .* at position 1"):
        hashed_keys(np.array(["a", wrong], object))


def test_gradients_that_numpy_cannot_read_are_refused() -> None:
    with pytest.raises(UsageError, match=r"grads: NumPy has no torch\.bfloat16"):
        EmbeddingTable(2).push([1], torch.ones(1, 2, dtype=torch.bfloat16))


def test_a_closed_table_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    table = EmbeddingTable(4, path=path)
    assert repr(table) == (
        f"EmbeddingTable(rows=0, dim=4, optimizer='rowwise_adagrad', lr=0.05, path={str(path)!r})"
    )
    table.close()
    assert repr(table) == f"EmbeddingTable(closed, path={str(path)!r})"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_tables_are_not_copied(duplicate: Callable[[object], object]) -> None:
    with pytest.raises(UsageError, match=r"neither copied nor pickled\n.*EmbeddingTable\.load\(path\)"):
        duplicate(EmbeddingTable(4))


def test_one_delta_needs_no_list(tmp_path: Path) -> None:
    table = EmbeddingTable(2)
    table.save_base(tmp_path / "base")
    table.pull([5])
    table.save_delta(tmp_path / "delta")
    assert len(EmbeddingTable.load(tmp_path / "base", deltas=tmp_path / "delta")) == 1
    assert len(EmbeddingTable.load(tmp_path / "base", deltas=str(tmp_path / "delta"))) == 1


def test_a_delta_does_not_replace_what_it_builds_on(tmp_path: Path) -> None:
    table = EmbeddingTable(2)
    table.save_base(tmp_path / "base")
    table.pull([5])
    table.save_delta(tmp_path / "delta")
    table.pull([6])
    with pytest.raises(
        ConflictError, match="place for delta 2, received that of delta 1, which it builds on"
    ):
        table.save_delta(tmp_path / "delta")
    with pytest.raises(ConflictError, match="place for delta 2, received that of the base"):
        table.save_delta(tmp_path / "base")
    table.save_delta(tmp_path / "next")
    resumed = EmbeddingTable.load(tmp_path / "base", deltas=tmp_path / "delta")
    resumed.pull([7, 8])
    resumed.save_delta(tmp_path / "next")  # of a run that ended, and is begun again before it
    chain = [tmp_path / "delta", tmp_path / "next"]
    assert sorted(EmbeddingTable.load(tmp_path / "base", deltas=chain).keys()) == [5, 7, 8]


def test_checkpoints_and_folders_of_tables_are_told_apart(tmp_path: Path) -> None:
    EmbeddingTable(2, path=tmp_path / "rows").close()
    EmbeddingTable(2).save(tmp_path / "saved")
    with pytest.raises(NotFoundError, match=r"EmbeddingTable\.open, it is a table on SSD"):
        EmbeddingTable.load(tmp_path / "rows")
    with pytest.raises(NotFoundError, match=r"EmbeddingTable\.load, it is a checkpoint"):
        EmbeddingTable.open(tmp_path / "saved")


def test_slots_come_by_name_and_weights_as_keys_do() -> None:
    table = EmbeddingTable(2)
    with pytest.raises(UsageError, match="slots: expected tables by the names of slots, received list"):
        TableEmbeddingBagCollection([table])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"keys, of shape \(1, 2\), received of shape \(3,\)"):
        TableEmbeddingBag(table, mode="sum")(
            torch.ones(1, 2, dtype=torch.long), per_sample_weights=torch.ones(3)
        )


def test_names_that_need_torch_are_listed() -> None:
    assert set(dir(tables)) == set(tables.__all__)
