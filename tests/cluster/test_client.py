"""Trainers and shards over their streams: rows are those of one table, also when shards are replaced."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import flight

from graphbox.cluster import RemoteTable, ShardClient, ShardServer, TableShard, pull_together
from graphbox.cluster.connection import ShardAddress
from graphbox.errors import (
    ConflictError,
    DataError,
    GraphboxError,
    ProcessLostError,
    TimeLimitError,
    UnsupportedError,
    UsageError,
)
from graphbox.table import CountAdmission, EmbeddingTable, Expiry, ShowClickScore, TableEmbedding
from tests.cluster.shards import shards_of

DIM = 5


def counting() -> EmbeddingTable:
    """Return a table whose rows count the gradients of -1 that they got."""
    return EmbeddingTable(DIM, "sgd", lr=1.0, init_scale=0.0)


def batches(count: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.integers(-9, 60, 80), rng.normal(size=(80, DIM)).astype(np.float32)) for _ in range(count)]


@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "rowwise_adagrad"])
def test_rows_are_those_of_one_table(shards: int, optimizer: str) -> None:
    made = {"dim": DIM, "optimizer": optimizer, "lr": 0.1}
    expected = EmbeddingTable(**made)  # type: ignore[arg-type]
    with shards_of(shards) as there:
        table = RemoteTable(there.client(), "users", EmbeddingTable(**made))  # type: ignore[arg-type]
        for keys, grads in batches(6):
            np.testing.assert_array_equal(table.pull(keys), expected.pull(keys))
            table.push(keys, grads)
            expected.push(keys, grads)
        table.lr = expected.lr = 0.02
        keys, grads = batches(1, seed=7)[0]
        table.push(keys, grads)
        expected.push(keys, grads)
        unknown = np.array([1000, 3])
        np.testing.assert_array_equal(table.pull(unknown, create=False), expected.pull(unknown, create=False))
        assert table.contains([[1000, 3]]).tolist() == [[False, True]]
        assert len(table) == len(expected)
        assert table.erase([3, 1000, 3]) == 1
        assert len(table) == len(expected) - 1
        found = there.rows("users")
    expected.erase([3])
    assert found.keys() == set(expected.keys().tolist())
    for key, row in found.items():
        assert row == expected.pull([key])[0].tolist()


def test_one_request_for_a_batch_whatever_the_tables() -> None:
    with shards_of(3) as there:
        client = there.client()
        tables = [RemoteTable(client, name, counting()) for name in ("users", "items", "tags")]
        wanted = np.arange(60)
        for table in tables[:2]:
            table.push(wanted, -np.ones((60, DIM), np.float32))
        assert [shard.ack(0).applied for shard in there.shards] == [0, 0, 0]  # one table is missing
        tables[2].push(wanted, -np.ones((60, DIM), np.float32))
        client.settle()
        assert [shard.ack(0).applied for shard in there.shards] == [1, 1, 1]
        tables[0].push(wanted, -np.ones((60, DIM), np.float32))
        before = client.pulls
        assert (tables[0].pull(wanted) == 2.0).all()
        assert client.pulls - before == 3
        assert [shard.ack(0).applied for shard in there.shards] == [2, 2, 2]


def test_tables_that_are_pulled_together_take_one_request() -> None:
    with shards_of(3) as there:
        client = there.client()
        users, items = (RemoteTable(client, name, EmbeddingTable(DIM, seed=4)) for name in ("users", "items"))
        user_keys, item_keys = torch.arange(50).reshape(10, 5), torch.arange(30)
        expected = [table.pull(keys) for table, keys in ((users, user_keys), (items, item_keys))]
        before = client.pulls
        pull_together({users: user_keys, items: item_keys})
        modules = (TableEmbedding(users), TableEmbedding(items))
        found = [module(keys) for module, keys in zip(modules, (user_keys, item_keys), strict=True)]
        assert client.pulls - before == 3
        for rows, wanted in zip(found, expected, strict=True):
            assert torch.equal(rows.detach(), wanted)
        found[0].sum().backward()
        pull_together({users: user_keys})
        users.push(user_keys, torch.ones(10, 5, DIM))  # rows that were pulled are those of before
        assert not torch.equal(users.pull(user_keys), expected[0])
        pull_together({items: item_keys})
        assert torch.equal(items.pull(item_keys + 1)[:-1], expected[1][1:])  # others were wanted
        with pytest.raises(UsageError, match="of one client"):
            pull_together(
                {users: [1], RemoteTable(there.client(1), "items", EmbeddingTable(DIM, seed=4)): [1]}
            )


def test_policies_count_in_the_shards() -> None:
    def made() -> EmbeddingTable:
        return EmbeddingTable(
            DIM, "sgd", lr=1.0, expiry=Expiry(passes=2), score=ShowClickScore(), clock=lambda: 1e9
        )

    expected = made()
    with shards_of(2) as there:
        table = RemoteTable(there.client(), "users", made())
        keys = np.arange(20)
        grads = np.ones((20, DIM), np.float32)
        shows = np.arange(20) + 1.0
        for each in (expected, table):
            each.push(keys, grads, shows=shows, clicks=shows / 2)
            each.end_pass()
            each.pull(keys[:5])
            each.push(keys[:5], grads[:5])
            for _ in range(2):
                each.end_pass()
        assert table.shrink() == expected.shrink()
        assert there.rows("users").keys() == set(expected.keys().tolist())


def test_float16_rows(tmp_path: Path) -> None:
    with shards_of(2) as there:
        exact = RemoteTable(there.client(0), "users", EmbeddingTable(DIM, seed=3))
        client = there.client(1, is_half=True)
        half = RemoteTable(client, "users", EmbeddingTable(DIM, seed=3))
        keys = np.arange(50)
        np.testing.assert_array_equal(half.pull(keys), exact.pull(keys).astype(np.float16).astype(np.float32))
        exact.push([1], np.full((1, DIM), -1e12, np.float32))
        exact.pull([1])
        half.pull([1])
        assert client.clipped_values == 0  # rowwise Adagrad takes a step of its learning rate
        assert half.pull([1]).dtype == np.float32


class TestSuccessors:
    def test_nothing_is_lost_or_applied_twice(self, tmp_path: Path) -> None:
        expected = np.zeros(100)
        rng = np.random.default_rng(1)
        with shards_of(2, tmp_path) as there:
            table = RemoteTable(there.client(), "rows", counting())
            for step in range(60):
                keys = rng.integers(0, 100, 20)
                table.push(keys, -np.ones((20, DIM), np.float32))
                np.add.at(expected, keys, 1)
                if step % 7 == 3:
                    there.shards[step % 2].make_durable()
                if step % 10 == 5:
                    there.replace(int(rng.integers(2)))
                if step % 4 == 0:
                    assert table.pull(np.arange(100))[:, 0].tolist() == expected.tolist()
            assert table.pull(np.arange(100))[:, 0].tolist() == expected.tolist()

    def test_one_that_keeps_nothing_ends_the_training_with_a_word(self) -> None:
        with shards_of(1) as there:
            table = RemoteTable(there.client(), "rows", counting())
            for _ in range(12):
                table.push([1], -np.ones((1, DIM), np.float32))
            table.pull([1])
            there.replace(0)
            with pytest.raises(ProcessLostError, match="lost operations 1 to 12 of trainer 0"):
                table.pull([1])

    def test_one_that_does_not_come_ends_the_wait(self, tmp_path: Path) -> None:
        with shards_of(1, tmp_path) as there:
            client = there.client(deadline_s=1.0)
            table = RemoteTable(client, "rows", counting())
            gone = there.shards[0].incarnation
            there.shards[0].lease.end()
            began = time.monotonic()
            with pytest.raises(ProcessLostError, match="waited 1 seconds for a shard or its successor"):
                table.pull([1])
            assert time.monotonic() - began < 10.0
            assert there.shards[0].incarnation == gone

    def test_a_trainer_in_the_place_of_another_goes_on(self, tmp_path: Path) -> None:
        with shards_of(2, tmp_path) as there:
            for trainer in (4, 5):
                client = there.client(trainer)
                RemoteTable(client, "rows", counting()).push([1, 2, 3], -np.ones((3, DIM), np.float32))
                client.settle()
            again = RemoteTable(there.client(5), "rows", counting())
            again.push([1, 2, 3], -np.ones((3, DIM), np.float32))
            assert again.pull([1, 2, 3])[:, 0].tolist() == [3.0] * 3

    def test_what_is_kept_is_bounded(self, tmp_path: Path) -> None:
        with shards_of(1, tmp_path) as there:
            client = there.client(replay_bytes=10_000)
            table = RemoteTable(client, "rows", counting())
            for _ in range(40):
                table.push(np.arange(50), -np.ones((50, DIM), np.float32))
            client.settle()
            assert there.shards[0].ack(0).durable >= 30


class TestWaits:
    def test_a_shard_that_does_not_answer(self) -> None:
        release = threading.Event()

        class Silent(flight.FlightServerBase):  # type: ignore[misc]
            def do_action(self, context: object, action: object) -> list[bytes]:
                release.wait(30.0)
                return []

        with Silent("grpc://127.0.0.1:0") as server:
            address = ShardAddress(f"grpc://127.0.0.1:{server.port}", 1)
            client = ShardClient(lambda _: address, 1, 0, deadline_s=0.5)
            began = time.monotonic()
            with pytest.raises(ProcessLostError, match=r"waited 0.5 seconds for the answer to a hello"):
                RemoteTable(client, "rows", counting())
            assert time.monotonic() - began < 10.0
            client.close()
            release.set()

    def test_a_stream_that_does_not_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        release = threading.Event()
        with shards_of(1) as there:
            client = there.client(deadline_s=0.5)
            table = RemoteTable(client, "rows", counting())
            table.pull([1])
            shard = there.shards[0]
            pull = shard.pull

            def late(*arguments: object, **options: object) -> object:
                release.wait(30.0)
                return pull(*arguments, **options)  # type: ignore[arg-type]

            monkeypatch.setattr(shard, "pull", late)
            with pytest.raises(TimeLimitError, match=r"waited 0.5 seconds for the answer to a pull"):
                table.pull([1])
            release.set()
            monkeypatch.undo()
            assert table.pull([1]).shape == (1, DIM)  # over a new stream

    def test_trainers_in_step_are_named(self) -> None:
        with shards_of(2, trainers=2, deadline_s=0.3) as there:
            client = there.client(0, in_step=True)
            table = RemoteTable(client, "rows", counting(), average_gradients=False)
            table.push([1], -np.ones((1, DIM), np.float32))
            with pytest.raises(TimeLimitError, match="step 1 of the trainers of rank 1"):
                table.pull([1, 2, 3, 4])


class TestRefusals:
    def test_without_the_token(self) -> None:
        with shards_of(1, token="secret") as there:
            RemoteTable(there.client(), "rows", counting()).pull([1])
            for token in (None, "secreT", ""):
                with pytest.raises(GraphboxError, match="refuses this trainer") as caught:
                    RemoteTable(there.client(token=token), "rows", counting())
                assert "same token" in (caught.value.hint or "")

    def test_beyond_loopback_only_with_a_token(self) -> None:
        with pytest.raises(UsageError, match="expected a token"):
            ShardServer(TableShard(0, 1), "10.0.0.1")

    def test_a_shard_of_another_cluster(self) -> None:
        with shards_of(2) as there:
            client = ShardClient(lambda number: there.address(1 - number), 2, 0, deadline_s=5.0)
            with pytest.raises(ConflictError, match="expected shard 0 of 2, found shard 1 of 2"):
                RemoteTable(client, "rows", counting())
            client.close()

    def test_infinite_gradients(self) -> None:
        with shards_of(1) as there:
            table = RemoteTable(there.client(), "rows", counting())
            grads = -np.ones((2, DIM), np.float32)
            grads[1, 2] = np.nan
            with pytest.raises(DataError, match="rows, key 9"):
                table.push([8, 9], grads)
            assert (table.pull([8, 9]) == 0.0).all()
            settings = EmbeddingTable(DIM, "sgd", lr=1.0, init_scale=0.0, nonfinite="skip")
            skipping = RemoteTable(there.client(1), "skipping", settings)
            skipping.push([8, 9], grads)
            assert skipping.pull([8, 9])[:, 0].tolist() == [1.0, 0.0]
            assert skipping.skipped_gradients == 1

    def test_tables_that_cannot_be_remote(self) -> None:
        with shards_of(1) as there:
            client = there.client()
            with pytest.raises(UnsupportedError, match="counts them"):
                RemoteTable(client, "rows", EmbeddingTable(DIM, admission=CountAdmission(2)))
            filled = counting()
            filled.pull([1])
            with pytest.raises(UsageError, match="without rows"):
                RemoteTable(client, "rows", filled)
            RemoteTable(client, "rows", counting())
            with pytest.raises(ConflictError, match="dim"):
                RemoteTable(client, "rows", EmbeddingTable(DIM + 1, "sgd"))


class TestCheckpoints:
    @pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)])
    def test_any_number_of_shards_loads_what_any_number_saved(
        self, before: int, after: int, tmp_path: Path
    ) -> None:
        expected = EmbeddingTable(DIM, "adam", lr=0.1)
        with shards_of(before, tmp_path) as there:
            table = RemoteTable(there.client(), "rows", EmbeddingTable(DIM, "adam", lr=0.1))
            for keys, grads in batches(3):
                table.push(keys, grads)
                expected.push(keys, grads)
            table.save(tmp_path / "checkpoint")
        whole = EmbeddingTable.load(tmp_path / "checkpoint")
        np.testing.assert_array_equal(whole.pull(expected.keys()), expected.pull(expected.keys()))
        for folder in tmp_path.glob("shard-*"):
            folder.rename(tmp_path / f"old-{folder.name}")
        with shards_of(after, tmp_path) as there:
            table = RemoteTable.load(tmp_path / "checkpoint", there.client(), "rows")
            for keys, grads in batches(2, seed=5):
                table.push(keys, grads)
                expected.push(keys, grads)
            np.testing.assert_array_equal(table.pull(expected.keys()), expected.pull(expected.keys()))
            assert len(table) == len(expected)

    def test_only_below_the_folder_for_checkpoints(self, tmp_path: Path) -> None:
        (tmp_path / "own").mkdir()
        with shards_of(1, tmp_path / "own") as there:
            table = RemoteTable(there.client(), "rows", counting())
            with pytest.raises(UsageError, match="below the one for checkpoints"):
                table.save(tmp_path / "elsewhere")
            assert not (tmp_path / "elsewhere").exists()
