"""Guarantees of a table on a device: the results of the table below, whatever it has room for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from graphbox import _core
from graphbox.errors import ConflictError, DataError, DoesNotFitError, UnsupportedError, UsageError
from graphbox.table import (
    BagSlot,
    CountAdmission,
    DeviceTable,
    EmbeddingTable,
    Expiry,
    ProbabilityAdmission,
    ShowClickScore,
    TableEmbedding,
    TableEmbeddingBag,
    TableEmbeddingBagCollection,
    TableOptimizer,
)
from graphbox.table.device_budget import bytes_for, form_of
from graphbox.table.device_prefetch import ReadAhead
from graphbox.table.optimizer_gpu import DeviceOptimizer

DIM = 4
SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "one row": (1, {"optimizer": "sgd"}),
    "few rows": (7, {"optimizer": "adam", "clip_norm": 1.0}),
    "float16": (24, {"optimizer": "rowwise_adagrad", "dtype": "float16"}),
    "counted": (30, {"optimizer": "adagrad", "admission": CountAdmission(3)}),
    "by chance": (9, {"optimizer": "ftrl", "admission": ProbabilityAdmission(0.6)}),
    "scored": (24, {"score": ShowClickScore(decay=0.7, drop_below=1.5), "mean_gradient": True}),
    "expiring": (400, {"expiry": Expiry(passes=1), "optimizer": "rowwise_adam"}),
}


def table_of(**settings: Any) -> EmbeddingTable:
    return EmbeddingTable(DIM, lr=0.1, threads=1, **{"clock": lambda: 7.0, **settings})


def budget(table: EmbeddingTable, rows: int) -> int:
    """Return the bytes that have room for so many rows and no more."""
    dtype = torch.float16 if table.dtype == "float16" else torch.float32
    optimizer = DeviceOptimizer(table._current.optimizer, dtype, seed=table.seed)
    return bytes_for(form_of(table, optimizer), rows)


def over(table: EmbeddingTable, device: torch.device, rows: int) -> DeviceTable:
    return DeviceTable(table, device, hbm_bytes=budget(table, rows))


def records(table: EmbeddingTable, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return all that rows hold."""
    rows = np.empty((len(keys), _core.table_record_bytes(table._current)), np.uint8)
    _core.table_read_records(table._current, keys, rows, 1)
    return rows


def assert_same_tables(table: EmbeddingTable, other: EmbeddingTable) -> None:
    keys = table.keys()
    if table.path is None and other.path is None:
        np.testing.assert_array_equal(keys, other.keys())
    np.testing.assert_array_equal(np.sort(keys), np.sort(other.keys()))
    np.testing.assert_array_equal(records(table, keys), records(other, keys))


def assert_equal(rows: torch.Tensor, expected: torch.Tensor) -> None:
    np.testing.assert_array_equal(rows.detach().cpu().numpy(), expected.detach().numpy())


class DeviceTableContract:
    @pytest.mark.parametrize("name", SETTINGS)
    def test_any_operations_give_what_the_plain_table_gives(self, device: torch.device, name: str) -> None:
        rows, settings = SETTINGS[name]
        plain, below = table_of(**settings), table_of(**settings)
        table = over(below, device, rows)
        rng = np.random.default_rng(rows)
        counts = {"score"} & settings.keys()

        def batch() -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
            keys = torch.from_numpy(rng.zipf(1.3, int(rng.integers(1, 9 if rows == 1 else 40))) % 90 - 20)
            shows = torch.from_numpy(rng.integers(0, 4, len(keys)).astype(np.float32))
            grads = torch.from_numpy(rng.normal(size=(len(keys), DIM)).astype(np.float32))
            return keys, grads, {"shows": shows, "clicks": shows.minimum(torch.ones(1))} if counts else {}

        for step in range(4):
            keys, grads, seen = batch()
            expected, plain_slots = plain.pull_slots(keys)
            given, slots = table.pull_slots(keys.to(device))
            assert_equal(given, expected)
            ahead = table.prefetch(batch()[0].to(device))
            if step % 2:
                others, other_grads, other_seen = batch()
                plain.push(others, other_grads, **other_seen)
                table.push(others.to(device), other_grads.to(device), **other_seen)
            ahead.wait(60)
            plain.push_slots(plain_slots, grads, **seen)
            table.push_slots(slots, grads.to(device), **seen)
            if step == 2:
                for each in (plain, table):
                    each.end_pass()
                    each.end_pass()
                assert table.shrink() == plain.shrink()
                assert table.erase(keys[:4]) == plain.erase(keys[:4])
            if step == 1:
                for each in (plain, table):
                    each.assign(keys[:3], torch.ones(len(keys[:3]), DIM))
            unseen = torch.arange(60, 75)
            assert_equal(table.pull(unseen.to(device), create=False), plain.pull(unseen, create=False))
            assert plain.policy_events == below.policy_events
        if plain.policies.has_counters:
            known = zip(
                dataclasses.astuple(table.counters(plain.keys())),
                dataclasses.astuple(plain.counters(plain.keys())),
                strict=True,
            )
            for given_counts, expected_counts in known:
                np.testing.assert_array_equal(given_counts, expected_counts)
        assert_same_tables(plain, below)
        assert table.statistics().rows <= rows

    def test_rows_stay_until_others_need_their_room(self, device: torch.device) -> None:
        table = over(table_of(), device, 16)
        first, second = torch.arange(10, device=device), torch.arange(100, 105, device=device)
        table.pull(first)
        table.pull(second)
        before = table.statistics()
        assert (before.rows, before.rows_read, before.misses) == (15, 15, 15)
        table.pull(first)
        table.end_pass()
        table.pull(second)
        assert table.statistics().rows_read == 15
        table.pull(
            torch.arange(200, 206, device=device)
        )  # the first leave, which were used before the second
        table.pull(second)
        after = table.statistics()
        assert (after.rows_read, after.rows_evicted, after.rows_written) == (21, 5, 0)
        table.pull(torch.arange(300, 340, device=device))  # in parts
        assert table.statistics().rows <= 16

    def test_changed_rows_are_written_when_they_leave_and_by_flush(
        self, device: torch.device, tmp_path: Path
    ) -> None:
        pytest.importorskip("lmdb", reason="tables on SSD need it")
        plain = table_of(optimizer="adam")
        below = table_of(optimizer="adam", path=tmp_path / "table")
        keys = torch.arange(12)
        with over(below, device, 8) as table:
            for part in (keys[:8], keys[4:], keys[:6]):
                for each in (plain, table):
                    each.push(part, torch.ones(len(part), DIM))
            table.flush()
            assert table.statistics().changed_rows == 0
            folder = tmp_path / "copy"
            below.save(folder)
            table.push(keys[:2], torch.ones(2, DIM))  # not flushed
            assert_same_tables(EmbeddingTable.load(folder), plain)
            plain.push(keys[:2], torch.ones(2, DIM))
            assert table.statistics().changed_rows == 2
            below.close()  # closes the table above, too
            with pytest.raises(UsageError, match="closed"):
                table.pull(keys)
        with EmbeddingTable.open(tmp_path / "table") as opened:
            assert_same_tables(opened, plain)

    def test_rows_on_ssd_come_through_host_memory(self, device: torch.device, tmp_path: Path) -> None:
        pytest.importorskip("lmdb", reason="tables on SSD need it")
        settings: dict[str, Any] = {"optimizer": "adagrad", "threads": 1}
        plain = EmbeddingTable(512, **settings)
        below = EmbeddingTable(512, path=tmp_path / "table", memory_bytes=14 << 20, **settings)
        keys = np.arange(4000)
        for each in (plain, below):
            for part in np.split(keys, 8):
                each.push(part, np.ones((len(part), 512), np.float32))
        assert below.tier_statistics().cold_rows > 500
        table = DeviceTable(below, device, hbm_bytes=1 << 20)
        some = torch.from_numpy(np.random.default_rng(0).choice(keys, 60))
        assert table.prefetch(some).wait(60).rows_read == len(np.unique(some))
        assert table.statistics().rows_prefetched == len(np.unique(some))
        both: list[Any] = [plain, table]
        for each in both:
            each.push(some, torch.ones(60, 512))
        assert table.statistics().misses == 0
        assert_equal(table.pull(some), plain.pull(some))
        table.close()
        np.testing.assert_array_equal(below.pull(keys, create=False), plain.pull(keys))

    def test_a_chain_of_checkpoints_has_what_was_pushed(self, device: torch.device, tmp_path: Path) -> None:
        plain, below = table_of(), table_of()
        table = over(below, device, 8)
        keys = torch.arange(6)
        for each in (plain, table):
            each.push(keys, torch.ones(6, DIM))
        below.save_base(tmp_path / "base")
        for each in (plain, table):
            each.push(keys[:2], torch.ones(2, DIM))
        below.save_delta(tmp_path / "delta")
        assert table.statistics().rows == 6
        loaded = EmbeddingTable.load(tmp_path / "base", deltas=tmp_path / "delta")
        assert_same_tables(loaded, plain)
        keys_seen = np.concatenate([keys for keys, _ in below.items()])
        np.testing.assert_array_equal(keys_seen, plain.keys())

    def test_a_state_dict_is_of_the_rows_of_a_checkpoint(self, device: torch.device, tmp_path: Path) -> None:
        keys, gradients = torch.arange(6), torch.ones(6, DIM, device=device)
        with over(table_of(), device, 8) as table:
            module = TableEmbedding(table)
            table.push(keys, gradients)
            table.save(tmp_path / "saved")
            state = module.state_dict()
            assert state["_extra_state"][0]["checkpoint"] == str(tmp_path / "saved")
            module.load_state_dict(state)
            table.push(keys, gradients)
            with pytest.raises(ConflictError, match=r"6 rows.*saved.*another"):
                module.load_state_dict(state)

    def test_whoever_uses_the_table_below_sees_all_and_is_seen(self, device: torch.device) -> None:
        plain, below = table_of(), table_of()
        table = over(below, device, 8)
        keys = torch.arange(5)
        for each in (plain, table):
            each.push(keys, torch.ones(5, DIM))
        assert_equal(below.pull(keys), plain.pull(keys))
        for each in (plain, below):
            each.push(keys[:2], torch.ones(2, DIM))
        assert_equal(table.pull(keys), plain.pull(keys))
        native = below._current  # kept, as it is not to be
        table.push(keys, torch.ones(5, DIM))
        native.push(keys.numpy(), np.ones((5, DIM), np.float32), 1)
        with pytest.raises(ConflictError, match="changed directly"):
            table.pull(keys)
        table.discard()
        assert_equal(table.pull(keys), torch.from_numpy(below.pull(keys.numpy())))

    def test_what_was_read_ahead_is_not_older_than_pushes(self, device: torch.device) -> None:
        plain, below = table_of(), table_of()
        table = over(below, device, 32)
        keys, others = torch.arange(4), torch.arange(100, 132)

        def let_keys_leave() -> None:
            for each in (plain, table):
                each.pull(others)

        def read() -> tuple[ReadAhead, torch.Tensor, npt.NDArray[np.bool_]]:
            reading = table._begin_reading(keys.numpy())
            return reading, *table._ahead_staging.read(below._native, keys.numpy(), 1)

        for each in (plain, table):
            each.push(keys, torch.ones(4, DIM))
        let_keys_leave()
        reading, of_rows, has_row = read()
        for each in (plain, table):  # while rows are on their way two of them come, change, and leave
            each.push(keys[:2], torch.ones(2, DIM))
        let_keys_leave()
        table.pull(others[:4])  # the running step needs no more
        assert table._land(keys.to(device), of_rows, has_row, reading) == 2
        assert_equal(table.pull(keys), plain.pull(keys))
        let_keys_leave()
        reading, of_rows, has_row = read()
        assert table._land(keys.to(device), of_rows, has_row, reading) == 0  # all is in use
        reading, of_rows, has_row = read()
        for each in (plain, below):
            each.push(others, torch.ones(32, DIM))
        assert table._land(keys.to(device), of_rows, has_row, reading) == 0
        assert_equal(table.pull(others), plain.pull(others))

    def test_gradients_that_are_not_finite(self, device: torch.device) -> None:
        bad = torch.ones(3, DIM)
        bad[1, 2] = torch.inf
        keys = torch.tensor([5, 6, 5])
        table = over(table_of(), device, 8)
        with pytest.raises(DataError, match="position 1 holds NaN or infinity") as error:
            table.push(keys, bad)
        assert error.value.where == "key 6"
        assert len(table) == 0
        plain = table_of(nonfinite="skip")
        table = over(table_of(nonfinite="skip"), device, 8)
        for each in (plain, table):
            each.push(keys, bad)
        assert plain.skipped_gradients == table.skipped_gradients == 1
        table.flush()
        assert_same_tables(table.local, plain)

    def test_budgets(self, device: torch.device) -> None:
        below = table_of()
        with pytest.raises(DoesNotFitError, match="for one row of 20, received 100"):
            DeviceTable(below, device, hbm_bytes=100)
        with pytest.raises(UsageError, match="number of bytes"):
            DeviceTable(below, device, hbm_bytes=-1)
        table = DeviceTable(below, device, hbm_bytes=100_000)
        held = [each for each in vars(table._rows).values() if isinstance(each, torch.Tensor)]
        staging = [each.on_device for each in (table._staging, table._ahead_staging)]
        pointers = {each.data_ptr(): each.nbytes for each in [*held, *staging]}
        held_bytes = sum(pointers.values()) + table._rows._hash.nbytes
        assert held_bytes <= table.statistics().hbm_bytes <= 100_000
        assert table.statistics().hbm_bytes > 99_000
        assert len(str(table.statistics()).splitlines()) == 2

    def test_mistakes(self, device: torch.device) -> None:
        below = table_of()
        with pytest.raises(UnsupportedError, match="eviction"):
            DeviceTable(table_of(eviction="clock", memory_bytes=64 << 20), device, hbm_bytes=100_000)
        with pytest.raises(UsageError, match="expected an EmbeddingTable, received str"):
            DeviceTable("table", device)  # type: ignore[arg-type]
        table = over(below, device, 8)
        with pytest.raises(ConflictError, match="already"):
            over(below, device, 8)
        with pytest.raises(UsageError, match="integers"):
            table.pull(torch.ones(3))
        with pytest.raises(UsageError, match=r"float32 \(3, 4\)"):
            table.push(torch.arange(3), torch.ones(2, DIM))
        with pytest.raises(UsageError, match="shows"):
            table.push(torch.arange(3), torch.ones(3, DIM), shows=torch.ones(3))
        with pytest.raises(UsageError, match="slots that this table"):
            table.push_slots(table_of().pull_slots([1])[1], torch.ones(1, DIM))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="float32"):
            table.pull(torch.arange(3), out=torch.empty(3, DIM, dtype=torch.float64))
        scored = over(table_of(score=ShowClickScore()), device, 8)
        with pytest.raises(DataError, match="at position 1 there are 1 shows and 2 clicks"):
            scored.push(torch.arange(2), torch.ones(2, DIM), clicks=torch.tensor([0, 2]))
        table.close()
        table.close()
        with pytest.raises(UsageError, match="closed"):
            table.prefetch([1])
        over(below, device, 8)

    def test_empty_batches_and_shapes(self, device: torch.device) -> None:
        table = over(table_of(), device, 8)
        assert table.pull(torch.empty(0, 3, dtype=torch.int64)).shape == (0, 3, DIM)
        table.push([], torch.empty(0, DIM))
        out = torch.empty(2, 2, DIM, device=device)
        assert table.pull(np.array([[1, 2], [2, 1]]), out=out) is out
        torch.testing.assert_close(out[0, 0], out[1, 1], rtol=0, atol=0)
        assert table.pull(torch.tensor(3, dtype=torch.int32)).shape == (DIM,)
        assert table.contains(torch.tensor([1, 9], device=device)).tolist() == [True, False]

    # --- torch modules

    def test_modules_train_as_over_the_plain_table(self, device: torch.device) -> None:
        rng = np.random.default_rng(0)
        tables = table_of(), table_of()
        above = over(tables[1], device, 10)
        outputs = []
        table: EmbeddingTable | DeviceTable
        for table, place in ((tables[0], torch.device("cpu")), (above, device)):
            rows = TableEmbedding(table, padding_idx=0)
            bags = TableEmbeddingBag(table, "mean", padding_idx=1)
            slots = TableEmbeddingBagCollection({"a": BagSlot(table, salt="a"), "b": BagSlot(table, "mean")})
            optimizer = TableOptimizer(rows, bags, slots)
            rng = np.random.default_rng(0)
            for step in range(2):
                keys = torch.from_numpy(rng.integers(0, 9, (4, 3))).to(place)
                weights = torch.linspace(0, 1, 12).reshape(4, 3).to(place).requires_grad_(step == 1)
                weighted = TableEmbeddingBag(table, "sum")
                weighted._gradients = optimizer._gradients
                parts = [rows(keys).sum(1), bags(keys), weighted(keys, None, weights)]
                parts += slots({"a": keys, "b": (keys.reshape(-1), torch.tensor([0, 5, 5, 7]))}).values()
                total = torch.stack(parts).square().sum()
                total.backward()  # type: ignore[no-untyped-call]
                norm = optimizer.clip_grad_norm_([], 1.0)
                optimizer.param_groups[0]["lr"] = 0.2
                optimizer.step()
                outputs.append((torch.stack(parts).detach().cpu(), norm.cpu()))
            rows.eval()
            assert rows(torch.full((2,), 99, device=place)).device.type == place.type
            assert rows.state_dict()["_extra_state"][0]["dim"] == DIM
            optimizer.close()
        for (given, norm), (expected, expected_norm) in zip(outputs[2:], outputs[:2], strict=True):
            torch.testing.assert_close(given, expected)
            torch.testing.assert_close(norm, expected_norm)
        np.testing.assert_array_equal(tables[0].keys(), tables[1].keys())
        torch.testing.assert_close(
            torch.from_numpy(tables[1].pull(tables[0].keys())),
            torch.from_numpy(tables[0].pull(tables[0].keys())),
        )
