"""Faults of shards, trainers and their use: what was acknowledged stays, what is wrong is said at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import flight

from graphbox.cluster import RemoteTable, ShardClient, ShardServer, TableShard, pull_together
from graphbox.cluster.connection import ShardAddress
from graphbox.cluster.messages import TablePart, read_head
from graphbox.errors import ConflictError, DataError, GraphboxError, ProcessLostError, UsageError
from graphbox.table import EmbeddingTable
from tests.cluster.shards import shards_of
from tests.cluster.test_client import DIM, counting
from tests.cluster.test_generations import added, shard_in
from tests.cluster.test_shard import SETTINGS, make, push, values


def ones(count: int) -> np.ndarray:
    """Return gradients that add one to the rows of :func:`counting`."""
    return -np.ones((count, DIM), np.float32)


def saved_table(folder: Path, value: int) -> Path:
    """Save a table in which the rows of 0 to 9 have a value."""
    table = counting()
    table.push(np.arange(10), value * ones(10))
    table.save(folder / "checkpoint")
    return folder / "checkpoint"


OTHERS = pa.schema([("others", pa.string())])


def opened(client: Any, command: bytes) -> tuple[Any, Any]:
    """Open a stream with columns that no message has."""
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command))
    with suppress(OSError):  # the shard may have ended the stream by now
        writer.begin(OTHERS)
    return writer, reader


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    until = time.monotonic() + 10.0
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


class TestSuccessorsKnow:
    def test_rows_that_were_loaded(self, tmp_path: Path) -> None:
        with shards_of(2, tmp_path) as there:
            table = RemoteTable.load(saved_table(tmp_path, 7), there.client(), "rows")
            table.push(np.arange(10), ones(10))
            for number in range(2):
                there.replace(number)
            assert (table.pull(np.arange(10)) == 8.0).all()

    def test_rows_that_were_loaded_or_the_training_ends(self, tmp_path: Path) -> None:
        with shards_of(1) as there:
            client = ShardClient(there.address, 1, 0, deadline_s=5.0, checkpoints=tmp_path)
            there.shards[0]._checkpoints = tmp_path
            table = RemoteTable.load(saved_table(tmp_path, 7), client, "rows")
            assert (table.pull(np.arange(10)) == 7.0).all()
            there.replace(0)
            with pytest.raises(ProcessLostError, match="lost the rows of a checkpoint"):
                table.pull(np.arange(10))
            client.close()

    def test_all_pushes_before_a_call(self, tmp_path: Path) -> None:
        with shards_of(1, tmp_path) as there:
            client = there.client()
            table = RemoteTable(client, "rows", counting())
            for number in range(200):
                table.push([number], ones(1))
            client.settle()
            there.replace(0)
            table.save(tmp_path / "checkpoint")
            assert len(EmbeddingTable.load(tmp_path / "checkpoint")) == 200
            there.replace(0)
            assert len(table) == 200

    def test_also_where_the_thread_meets_them_first(self) -> None:
        with shards_of(1) as there:
            client = there.client(staleness=2)
            table = RemoteTable(client, "rows", counting())
            for _ in range(12):
                table.push([1], ones(1))
            table.pull([1])
            there.replace(0)
            wait_until(lambda: client._links[0]._connection is None)
            with pytest.raises(ProcessLostError, match="lost operations"):
                table.pull([1])

    def test_addresses_that_raise_once(self, tmp_path: Path) -> None:
        with shards_of(1, tmp_path) as there:
            raising, has_raised = threading.Event(), threading.Event()

            def address(number: int) -> ShardAddress:
                if raising.is_set():
                    has_raised.set()
                    raise RuntimeError("nobody knows")
                return there.address(number)

            with ShardClient(address, 1, 0, deadline_s=10.0) as client:
                table = RemoteTable(client, "rows", counting())
                raising.set()
                assert has_raised.wait(10.0)
                raising.clear()
                table.push([1], ones(1))
                there.replace(0)
                wait_until(lambda: there.shards[0].ack(0).applied == 1)  # before anything was asked of it

    def test_a_save_that_is_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        release = threading.Event()
        with shards_of(1, tmp_path) as there:
            table = RemoteTable(there.client(), "rows", counting())
            table.push([1], ones(1))
            old = there.shards[0]
            monkeypatch.setattr(old, "save", lambda *_: release.wait(30.0))
            threading.Timer(0.3, lambda: there.replace(0)).start()
            began = time.monotonic()
            table.save(tmp_path / "checkpoint")
            assert time.monotonic() - began < 10.0
            release.set()
            assert len(EmbeddingTable.load(tmp_path / "checkpoint")) == 1


class TestOnce:
    def test_an_operation_that_fails_half_way_ends_the_shard(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shard = make()
        shard.make("others", SETTINGS)
        both = replace(push(1, [7, 8]), parts=(TablePart("rows", 1), TablePart("others", 1)))

        full: Any = mock.Mock(side_effect=MemoryError)
        with monkeypatch.context() as patch:
            patch.setattr(shard.tables["others"], "push", full)
            with pytest.raises(MemoryError):
                shard.apply(both)
        for after in (0, 1):
            with pytest.raises(ProcessLostError, match="a part of it was applied: MemoryError"):
                values(shard, [7], after)
        with pytest.raises(ProcessLostError):
            shard.apply(both)  # sent again, as the stream has ended
        assert shard.tables["rows"].pull([7])[0, 0] == 1.0

    def test_a_part_of_a_step_before_a_restart_is_dropped(self) -> None:
        shard = make(trainers=2)
        for trainer in range(2):
            shard.greet(1, trainer, 10 + trainer, 0)
        old = replace(push(1, [7], trainer=1, add=100.0), life=11)
        shard.apply(old)
        shard.greet(1, 0, 20, 1)
        shard.apply(replace(push(1, [7], trainer=0), life=20))
        with pytest.raises(ConflictError, match="the last client with number 1"):
            shard.apply(old)  # a trainer that was not ended yet
        with pytest.raises(ConflictError, match="session 1, received one of 0"):
            shard.greet(1, 1, 12, 0)
        assert shard.greet(1, 1, 21, 1).applied == 0
        shard.apply(replace(push(1, [7], trainer=1), life=21))
        assert values(shard, [7], trainer=5) == [2.0]

    def test_one_of_two_trainers_with_a_number_is_refused(self) -> None:
        with shards_of(1) as there:
            tables = [RemoteTable(there.client(3), "rows", counting()) for _ in range(2)]
            tables[1].push([1], ones(1))
            tables[0].push([1], ones(1))
            with pytest.raises(ConflictError, match="the last client with number 3"):
                tables[0].pull([1])
            assert tables[1].pull([1])[0, 0] == 1.0

    def test_leaving_a_block_sends_what_is_pending(self) -> None:
        with shards_of(2) as there:
            with there.client() as client:
                tables = [RemoteTable(client, name, counting()) for name in ("users", "items")]
                for _ in range(7):
                    tables[0].push(np.arange(10), ones(10))
            assert all(row == [7.0] * DIM for row in there.rows("users").values())
            assert len(there.rows("users")) == 10


class TestFolders:
    @pytest.mark.parametrize("incarnation", [1, 2])
    def test_an_incarnation_that_was_there_is_refused(self, incarnation: int, tmp_path: Path) -> None:
        first = shard_in(tmp_path, 2)
        first.apply(replace(push(1, [3]), incarnation=2))
        first.make_durable()
        with pytest.raises(ConflictError, match=f"above 2, .* received {incarnation}"):
            TableShard(0, 1, incarnation=incarnation, folder=tmp_path)
        assert added(shard_in(tmp_path, 3))[3] == 1.0

    def test_what_a_killed_process_left_is_removed(self, tmp_path: Path) -> None:
        left = tmp_path / ".00000001-00000004.4711-0123abcd.partial"
        own = tmp_path / ".00000002-00000009.4711-0123abcd.partial"
        for each in (left, own):
            each.mkdir()
        shard = shard_in(tmp_path, 2)
        shard.apply(replace(push(1, [3]), incarnation=2))
        shard.make_durable()
        assert not left.exists()
        assert own.exists()

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(GraphboxError, match="cannot write"):
            TableShard(0, 1, folder=tmp_path / "file" / "shard")


class TestSaidAtOnce:
    def test_a_sum_beyond_float32(self) -> None:
        with shards_of(1) as there:
            table = RemoteTable(there.client(), "rows", counting())
            with pytest.raises(DataError, match="rows, key 1"):
                table.push([1, 1], np.full((2, DIM), 3e38, np.float32))
            assert (table.pull([1]) == 0.0).all()

    def test_what_the_shard_refuses(self) -> None:
        with shards_of(1) as there:
            client = there.client()
            table = RemoteTable(client, "rows", counting())
            there.shards[0].tables["rows"].memory_bytes = there.shards[0].tables["rows"].nbytes + 100_000
            table.push(np.arange(200_000), np.zeros((200_000, DIM), np.float32))
            began = time.monotonic()
            with pytest.raises(GraphboxError, match="memory"):
                client.settle()
            assert time.monotonic() - began < 5.0

    def test_settings_that_contradict_each_other(self) -> None:
        with shards_of(1, trainers=1) as there:
            with pytest.raises(UsageError, match="beside in_step"):
                there.client(in_step=True, staleness=2)
            with pytest.raises(UsageError, match="expected the processes"):
                RemoteTable(there.client(in_step=True), "rows", counting())

    def test_a_table_that_was_refused_is_not_remembered(self) -> None:
        with shards_of(1) as there:
            client = there.client()
            table = RemoteTable(client, "rows", counting())
            with pytest.raises(ConflictError):
                RemoteTable(client, "rows", EmbeddingTable(DIM + 1, "sgd"))
            assert table.pull([1]).shape == (1, DIM)

    @pytest.mark.parametrize("token", [None, ""])
    def test_a_shard_for_others_without_a_token(self, token: str | None) -> None:
        for host in ("10.0.0.1", "shard-1.example"):
            with pytest.raises(UsageError, match="expected a token"):
                ShardServer(TableShard(0, 1), host, token=token)

    def test_a_port_that_is_taken(self) -> None:
        with ShardServer(TableShard(0, 1), "localhost") as server:
            port = int(server.location.rpartition(":")[2])
            with pytest.raises(ConflictError, match=f"port {port}"):
                ShardServer(TableShard(0, 1), "127.0.0.1", port)

    def test_an_address_that_is_none(self) -> None:
        client = ShardClient(lambda _: ShardAddress("127.0.0.1:7100", 1), 1, 0, deadline_s=2.0)
        with pytest.raises(UsageError, match=r"like grpc://"):
            RemoteTable(client, "rows", counting())
        client.close()


class TestBytesOfAnybody:
    """Bytes that no client of ours sends: each is answered by an error of ours, and the shard serves on."""

    @pytest.mark.parametrize("name", ["hello", "make", "contains", "rows", "save", "nothing"])
    @pytest.mark.parametrize(
        "body", [b"", b"{", b"[]", b"\xff\x00", b'{"incarnation": 1, "trainer": 0, "after": 0}\n123', b"{}"]
    )
    def test_as_a_call(self, name: str, body: bytes) -> None:
        with shards_of(1) as there:
            client = flight.FlightClient(there.address(0).location)
            (answer,) = client.do_action(flight.Action(name, body))
            with pytest.raises(GraphboxError):
                read_head(answer.body.to_pybytes())
            client.close()
            assert RemoteTable(there.client(), "rows", counting()).pull([1]).shape == (1, DIM)

    @pytest.mark.parametrize("stream", ["pull", "push", "call"])
    @pytest.mark.parametrize("call", ["save", "contains", "nothing"])
    @pytest.mark.parametrize("metadata", [b"", b"[]", b'{"incarnation": 1, "trainer": 0, "after": 0}'])
    def test_as_a_stream(self, stream: str, call: str, metadata: bytes) -> None:
        command = b'{"protocol": 1, "stream": "%s", "call": "%s"}' % (stream.encode(), call.encode())
        with shards_of(1) as there:
            client = flight.FlightClient(there.address(0).location)
            writer, reader = opened(client, command)
            batch = pa.record_batch([pa.array(["x"])], schema=OTHERS)
            writer.write_with_metadata(batch, pa.py_buffer(metadata))
            with pytest.raises(GraphboxError):
                read_head(reader.read_chunk().app_metadata)
            reader.cancel()
            client.close()
            assert RemoteTable(there.client(), "rows", counting()).pull([1]).shape == (1, DIM)

    @pytest.mark.parametrize("command", [b"", b"{}", b'{"protocol": 2}', b'{"protocol": 1, "stream": "x"}'])
    def test_as_a_command(self, command: bytes) -> None:
        with shards_of(1) as there:
            client = flight.FlightClient(there.address(0).location)
            _, reader = opened(client, command)
            with pytest.raises((GraphboxError, StopIteration)):  # which may overtake what it said
                read_head(reader.read_chunk().app_metadata)
            reader.cancel()
            client.close()
            assert RemoteTable(there.client(), "rows", counting()).pull([1]).shape == (1, DIM)


class TestPulledTogether:
    def test_keys_may_be_filled_anew(self) -> None:
        with shards_of(1) as there:
            table = RemoteTable(there.client(), "rows", EmbeddingTable(DIM, seed=1))
            expected = table.pull(torch.tensor([1, 2]))
            keys = torch.tensor([1])
            pull_together({table: keys})
            keys[0] = 2
            assert torch.equal(table.pull(keys)[0], expected[1])

    def test_rows_that_were_erased_are_not_used(self) -> None:
        with shards_of(1) as there:
            table = RemoteTable(there.client(), "rows", counting())
            table.push([1], ones(1))
            pull_together({table: [1]})
            table.erase([1])
            assert (table.pull([1]) == 0.0).all()


def test_a_shard_ends_while_a_trainer_is_connected(tmp_path: Path) -> None:
    shard = shard_in(tmp_path)
    server = ShardServer(shard, durable_every_s=3600)
    address = ShardAddress(server.location, 1)
    client = ShardClient(lambda _: address, 1, 0, deadline_s=1.0)
    table = RemoteTable(client, "rows", EmbeddingTable(3, "sgd", lr=1.0, init_scale=0.0))
    table.push([3], -np.ones((1, 3), np.float32))
    client.settle()
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began < 10.0
    assert added(shard_in(tmp_path, 2))[3] == 1.0
    with pytest.raises(GraphboxError):
        table.pull([3])
    client.close()


_SHARD = """
import sys
from pathlib import Path
from graphbox.cluster import ShardServer, TableShard

server = ShardServer(TableShard(0, 1, folder=Path(sys.argv[1])))
print(server.location, flush=True)
server.run()
"""


def test_a_process_ends_though_trainers_are_connected(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SHARD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path.cwd(),
    )
    assert process.stdout is not None
    try:
        address = ShardAddress(process.stdout.readline().strip(), 1)
        client = ShardClient(lambda _: address, 1, 0, deadline_s=2.0)
        RemoteTable(client, "rows", counting()).push([3], ones(1))
        client.settle()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        client.close()
    finally:
        process.kill()
        process.stdout.close()
    assert TableShard(0, 1, incarnation=2, folder=tmp_path).ack(0).applied == 1


def test_the_thread_is_gone_with_its_client() -> None:
    before = threading.active_count()
    with shards_of(1) as there, there.client() as client:
        RemoteTable(client, "rows", counting()).pull([1])
    assert not [each for each in threading.enumerate() if each.name == "shards"]
    assert threading.active_count() <= before + 1
