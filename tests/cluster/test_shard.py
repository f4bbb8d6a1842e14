"""A shard without its server: what it applies, in which order, how often, and until when."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphbox.cluster.lease import Lease
from graphbox.cluster.messages import Kind, Operation, Pull, TablePart
from graphbox.cluster.shard import Buffer, TableShard
from graphbox.errors import (
    ConflictError,
    DataError,
    FormatError,
    GraphboxError,
    NotFoundError,
    ProcessLostError,
    ShardReplacedError,
    TimeLimitError,
    UsageError,
)
from graphbox.table import EmbeddingTable, shard_of
from graphbox.table.settings import table_settings

DIM = 3
SETTINGS = table_settings(EmbeddingTable(DIM, "sgd", lr=1.0, init_scale=0.0))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(**options: object) -> TableShard:
    shard = TableShard(0, 1, **options)  # type: ignore[arg-type]
    shard.make("rows", SETTINGS)
    return shard


def push(
    sequence: int, keys: list[int], trainer: int = 0, kind: Kind = "push", add: float = 1.0
) -> Operation:
    """Return an operation that adds to the rows of keys."""
    values = np.full(len(keys) * DIM if kind == "push" else 0, -add, np.float32)
    nothing = np.zeros(0, np.float32)
    parts = (TablePart("rows", len(keys)),)
    return Operation(1, trainer, sequence, kind, parts, np.array(keys, np.int64), values, nothing)


def ask(keys: list[int], after: int = 0, trainer: int = 0, table: str = "rows") -> Pull:
    return Pull(1, trainer, after, True, (TablePart(table, len(keys)),), np.array(keys, np.int64))


def values(shard: TableShard, keys: list[int], after: int = 0, trainer: int = 0) -> list[float]:
    """Return the first value of each row."""
    rows = shard.pull(ask(keys, after, trainer), Buffer()).values.reshape(-1, DIM)
    return [float(each) for each in rows[:, 0]]


class TestOrder:
    def test_what_comes_again_is_acknowledged_and_not_applied(self) -> None:
        shard = make()
        for sequence in (1, 2, 2, 1, 3):
            assert shard.apply(push(sequence, [7])).applied == max(sequence, shard.ack(0).applied)
        assert values(shard, [7]) == [3.0]

    def test_a_gap_is_refused_and_nothing_applied(self) -> None:
        shard = make()
        shard.apply(push(1, [7]))
        with pytest.raises(ConflictError, match="expected operation 2 of trainer 0, received 3"):
            shard.apply(push(3, [7]))
        assert values(shard, [7]) == [1.0]

    def test_each_trainer_counts_for_itself(self) -> None:
        shard = make()
        shard.apply(push(1, [7], trainer=4))
        shard.apply(push(1, [7], trainer=9))
        assert (shard.ack(4).applied, shard.ack(9).applied, shard.ack(5).applied) == (1, 1, 0)
        assert values(shard, [7]) == [2.0]

    def test_a_pull_waits_for_what_must_come_before(self) -> None:
        shard = make(deadline_s=20.0)
        found: list[list[float]] = []
        waiting = threading.Thread(target=lambda: found.append(values(shard, [7], after=2)))
        waiting.start()
        shard.apply(push(1, [7]))
        assert found == []
        shard.apply(push(2, [7]))
        waiting.join(20.0)
        assert found == [[2.0]]

    def test_a_wait_ends_and_says_for_what(self) -> None:
        shard = make(deadline_s=0.05)
        with pytest.raises(TimeLimitError, match=r"waited 0.05 seconds for operation 1 of trainer 0"):
            values(shard, [7], after=1)

    def test_other_operations_change_rows_too(self) -> None:
        shard = make()
        shard.apply(push(1, [7, 8]))
        shard.apply(push(2, [7], kind="erase"))
        assert shard.contains("rows", np.array([7, 8])).tolist() == [False, True]
        shard.apply(push(3, [], kind="end_pass"))
        assert shard.tables["rows"].passes == 1
        shard.apply(push(4, [], kind="shrink"))
        assert shard.shrink_report("rows").examined == 1

    def test_float16_is_clipped_and_counted(self) -> None:
        shard = make()
        shard.apply(push(1, [7], add=1e6))
        rows = shard.pull(ask([7]), Buffer(), is_half=True)
        assert rows.values.dtype == np.float16
        assert (rows.values.tolist(), rows.clipped) == ([65504.0] * DIM, DIM)


class TestSteps:
    def test_operations_of_a_step_are_applied_together_in_the_order_of_ranks(self) -> None:
        rng = np.random.default_rng(0)
        keys = rng.integers(0, 5, (3, 40))
        grads = rng.normal(size=(3, 40, DIM)).astype(np.float32)
        shard = TableShard(0, 1, trainers=3)
        shard.make("rows", table_settings(EmbeddingTable(DIM, "adagrad", lr=0.1)))
        expected = EmbeddingTable(DIM, "adagrad", lr=0.1)
        expected.push(keys.reshape(-1), grads.reshape(-1, DIM))
        for rank in (2, 0, 1):
            assert len(shard.tables["rows"]) == 0
            own = replace(push(1, keys[rank].tolist(), rank), values=grads[rank].reshape(-1))
            shard.apply(own)
        assert [shard.ack(rank).applied for rank in range(3)] == [1, 1, 1]
        np.testing.assert_array_equal(shard.tables["rows"].pull(np.arange(5)), expected.pull(np.arange(5)))

    def test_a_trainer_may_be_ahead(self) -> None:
        shard = make(trainers=2)
        for sequence in (1, 2, 3):
            shard.apply(push(sequence, [7], trainer=1))
            shard.apply(push(sequence, [7], trainer=1))  # again
        assert values(shard, [7]) == [0.0]
        with pytest.raises(ConflictError, match="expected operation 4 of trainer 1, received 5"):
            shard.apply(push(5, [7], trainer=1))
        for sequence in (1, 2, 3):
            shard.apply(push(sequence, [7], trainer=0))
        assert values(shard, [7]) == [6.0]

    def test_a_wait_says_who_is_missing(self) -> None:
        shard = make(trainers=3, deadline_s=0.05)
        shard.apply(push(1, [7], trainer=1))
        with pytest.raises(TimeLimitError, match="step 1 of the trainers of rank 0, 2"):
            values(shard, [7], after=1, trainer=1)

    def test_different_operations_in_a_step_end_the_training(self) -> None:
        shard = make(trainers=2)
        shard.apply(push(1, [7], trainer=0))
        with pytest.raises(ConflictError, match="push of rank 0, erase of rank 1"):
            shard.apply(push(1, [7], trainer=1, kind="erase"))
        with pytest.raises(ProcessLostError, match="one operation of all trainers"):
            values(shard, [7])


class TestRefusals:
    def test_another_incarnation(self) -> None:
        shard = make(incarnation=2)
        with pytest.raises(ShardReplacedError, match="incarnation 2, received one for 1"):
            shard.apply(push(1, [7]))
        with pytest.raises(ShardReplacedError):
            values(shard, [7])

    def test_keys_of_another_shard(self) -> None:
        shard = TableShard(1, 3)
        shard.make("rows", SETTINGS)
        keys = np.arange(100)
        own, others = keys[shard_of(keys, 3) == 1], keys[shard_of(keys, 3) != 1]
        shard.apply(push(1, own.tolist()))
        for send in (lambda: shard.apply(push(2, others.tolist())), lambda: values(shard, others.tolist())):
            with pytest.raises(FormatError, match=f"received key {others[0]}"):
                send()

    def test_arrays_of_other_sizes(self) -> None:
        shard = make()
        for damaged in (
            replace(push(1, [7]), values=np.zeros(2, np.float32)),
            replace(push(1, [7]), counts=np.zeros(1, np.float32)),
        ):
            with pytest.raises(FormatError, match="as the tables say"):
                shard.apply(damaged)
        assert shard.apply(push(1, [7])).applied == 1

    def test_tables_that_are_not_there_or_twice(self) -> None:
        shard = make()
        with pytest.raises(NotFoundError, match="received `others`"):
            shard.pull(ask([7], table="others"), Buffer())
        with pytest.raises(NotFoundError):
            shard.apply(replace(push(1, [7]), parts=(TablePart("others", 1),)))
        with pytest.raises(FormatError, match="twice"):
            shard.apply(replace(push(1, [7, 8]), parts=(TablePart("rows", 1), TablePart("rows", 1))))

    def test_other_settings(self) -> None:
        shard = make()
        shard.make("rows", SETTINGS)
        with pytest.raises(ConflictError, match="dim"):
            shard.make("rows", SETTINGS | {"dim": 4})

    @pytest.mark.parametrize(
        "changed", [{"path": "/elsewhere"}, {"nonsense": 1}, {"policies": 3}, {"bounds": None}, {"dim": "x"}]
    )
    def test_settings_that_are_none(self, changed: dict[str, object], tmp_path: Path) -> None:
        if "path" in changed:
            changed = {"path": str(tmp_path / "elsewhere")}
        shard = make()
        with pytest.raises((FormatError, UsageError)):
            shard.make("others", SETTINGS | changed)
        assert list(shard.tables) == ["rows"]
        assert list(tmp_path.iterdir()) == []

    def test_infinite_gradients_of_one_of_several_tables_change_none(self) -> None:
        shard = make()
        shard.make("others", SETTINGS)
        both = replace(push(1, [7, 8]), parts=(TablePart("rows", 1), TablePart("others", 1)))
        both.values[-1] = np.inf
        with pytest.raises(DataError, match="others, key 8"):
            shard.apply(both)
        assert values(shard, [7]) == [0.0]
        assert shard.apply(push(1, [7])).applied == 1

    @pytest.mark.parametrize("place", ["/etc", "../beside", "inside/../../beside", "link/inside"])
    def test_folders_elsewhere(self, place: str, tmp_path: Path) -> None:
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "link").symlink_to(tmp_path)
        shard = make(checkpoints=tmp_path / "own")
        for use in (shard.save, shard.load):
            with pytest.raises(UsageError, match="below the one for checkpoints"):
                use("rows", place)

    def test_without_a_folder_for_checkpoints(self) -> None:
        with pytest.raises(UsageError, match="checkpoints"):
            make().save("rows", "anywhere")


class TestLease:
    def test_it_counts_from_before_the_question(self) -> None:
        clock = Clock()
        lease = Lease(10.0, clock)
        assert not lease.holds

        def slow() -> bool:
            clock.now += 4.0
            return True

        assert lease.renew(slow)
        for clock.now, holds in ((9.9, True), (10.0, False)):
            assert lease.holds == holds

    def test_one_that_is_refused_ends_for_good(self) -> None:
        lease = Lease(10.0, Clock())
        assert lease.renew(lambda: True)
        assert not lease.renew(lambda: False)
        assert not lease.holds
        lease.renew(lambda: True)
        assert not lease.holds

    def test_a_question_without_an_answer_changes_nothing(self) -> None:
        lease = Lease(10.0, Clock())
        lease.renew(lambda: True)

        def lost() -> bool:
            raise GraphboxError("no answer")

        with pytest.raises(GraphboxError):
            lease.renew(lost)
        assert lease.holds

    def test_a_shard_without_it_neither_answers_nor_changes_nor_writes(self, tmp_path: Path) -> None:
        clock = Clock()
        lease = Lease(10.0, clock)
        lease.renew(lambda: True)
        shard = make(lease=lease, folder=tmp_path / "shard", checkpoints=tmp_path)
        shard.apply(push(1, [7]))
        clock.now = 11.0
        uses = (
            lambda: values(shard, [7]),
            lambda: shard.apply(push(2, [7])),
            shard.make_durable,
            lambda: shard.save("rows", "checkpoint"),
        )
        for use in uses:
            with pytest.raises(ShardReplacedError, match="has run out"):
                use()
        assert list((tmp_path / "shard").iterdir()) == []
        clock.now = 10.5
        lease.renew(lambda: True)
        assert values(shard, [7]) == [1.0]
