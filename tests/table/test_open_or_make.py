"""Creation of tables: refusals, and ``path=`` of a folder with a table, which opens it if it is the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import ConflictError, FormatError, UsageError
from graphbox.table import CountAdmission, EmbeddingTable, Expiry

SETTINGS: dict[str, Any] = {"optimizer": "adam", "lr": 0.1, "betas": (0.8, 0.9), "expiry": Expiry(7)}


def test_the_same_call_makes_a_table_and_opens_it(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    with EmbeddingTable(3, **SETTINGS, path=folder) as table:
        table.push([1, 2], np.ones((2, 3), np.float32))
        table.lr = 0.05
        rows = table.pull([1, 2])
    with EmbeddingTable(3, **SETTINGS, path=folder, memory_bytes=64 << 20, threads=1) as table:
        assert len(table) == 2
        assert np.array_equal(table.pull([1, 2], create=False), rows)
        assert table.lr == pytest.approx(0.1)  # as the call says
    with EmbeddingTable.open(folder) as table:
        assert table.lr == pytest.approx(0.1)


def test_a_table_with_other_settings_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    EmbeddingTable(3, **SETTINGS, path=folder).close()
    others = {
        "dim": "dim 3, given 4",
        "optimizer": "optimizer 'adam', given 'sgd'",
        "seed": "seed 0, given 5",
        "betas": r"betas \(0\.8, 0\.9\), given \(0\.7, 0\.7\)",
    }
    given = {"dim": 4, "optimizer": "sgd", "seed": 5, "betas": (0.7, 0.7)}
    for name, message in others.items():
        arguments: dict[str, Any] = {"dim": 3, **SETTINGS, name: given[name]}
        if name == "optimizer":
            del arguments["betas"]
        with pytest.raises(ConflictError, match=f"made with other arguments: .*{message}"):
            EmbeddingTable(**arguments, path=folder)
    with pytest.raises(ConflictError, match=r"policies .*7.* given .*8(?s:.*)EmbeddingTable\.open"):
        EmbeddingTable(3, **{**SETTINGS, "expiry": Expiry(8)}, path=folder)
    EmbeddingTable(3, **SETTINGS, path=folder).close()  # and is not locked


@pytest.mark.parametrize("made", [["segments"], ["segments", "catalogue"]])
def test_a_folder_whose_making_was_cut_short_is_made_anew(tmp_path: Path, made: list[str]) -> None:
    EmbeddingTable(3, path=tmp_path / "model").close()
    folder = tmp_path / "rows"
    for name in made:
        (folder / name).mkdir(parents=True)
    with EmbeddingTable(3, path=folder) as table:
        table.pull([5])
    with EmbeddingTable(3, path=folder) as table:
        assert table.keys().tolist() == [5]


def test_a_table_without_its_catalogue_is_still_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    with EmbeddingTable(3, path=folder) as table:
        table.pull([5])
    shutil.rmtree(folder / "catalogue")
    with EmbeddingTable(3, path=folder) as table:
        assert table.keys().tolist() == [5]
        assert table.recovery is not None
        assert table.recovery.catalogue_damage is not None


def test_loading_begins_a_new_folder(tmp_path: Path) -> None:
    table = EmbeddingTable(3)
    table.pull([1])
    table.save(tmp_path / "saved")
    EmbeddingTable(3, path=tmp_path / "rows").close()
    with pytest.raises(UsageError, match="empty folder for a new table, received one with segments"):
        EmbeddingTable.load(tmp_path / "saved", path=tmp_path / "rows")


def test_a_table_that_evicts_is_loaded_without_limit_and_onto_ssd(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="memory_bytes: expected memory_bytes beside eviction='clock'"):
        EmbeddingTable(3, eviction="clock")
    table = EmbeddingTable(3, eviction="clock", memory_bytes=1 << 24)
    table.pull(np.arange(100))
    table.save(tmp_path / "saved")
    loaded = EmbeddingTable.load(tmp_path / "saved")
    assert (loaded.memory_bytes, loaded.policies.eviction) == (None, "clock")
    with EmbeddingTable.load(tmp_path / "saved", path=tmp_path / "rows") as on_ssd:
        assert len(on_ssd) == 100
        assert on_ssd.policies.eviction is None
    counting = EmbeddingTable(3, admission=CountAdmission(2))
    counting.save(tmp_path / "counting")
    with pytest.raises(UsageError, match=r"admission: expected sketch_bytes"):
        EmbeddingTable.load(tmp_path / "counting", path=tmp_path / "other")


def test_a_damaged_checkpoint_is_no_wrong_argument(tmp_path: Path) -> None:
    table = EmbeddingTable(3)
    table.save(tmp_path / "saved")
    (tmp_path / "saved" / "manifest.json").write_text("{}")
    with pytest.raises(FormatError):
        EmbeddingTable.load(tmp_path / "saved")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"optimizer": "sgd", "betas": (0.8, 0.9)}, r"betas: expected no betas, which sgd does not use"),
        ({"optimizer": "adam", "l1": 0.1}, r"l1: .* adam does not use, received 0\.1(?s:.*)for ftrl"),
        ({"optimizer": "ftrl", "eps": 0.1}, r"eps: .* ftrl does not use"),
        ({"optimizer": "rowwise_adam", "initial_accumulator": 1.0}, "initial_accumulator: expected no"),
    ],
)
def test_what_an_optimizer_does_not_use_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EmbeddingTable(3, **arguments)


def test_shows_that_nothing_counts_are_refused() -> None:
    table = EmbeddingTable(1)
    gradients = np.zeros((1, 1), np.float32)
    with pytest.raises(UsageError, match=r"shows: expected a table with score or mean_gradient"):
        table.push([1], gradients, shows=[2])
    _, slots = table.pull_slots([1])
    with pytest.raises(UsageError, match=r"shows: expected a table with score or mean_gradient"):
        table.push_slots(slots, gradients, shows=[2])
    EmbeddingTable(1, mean_gradient=True).push([1], gradients, shows=[2])
