"""The protocol as a state machine: whatever is sent, lost, repeated or replaced, each push counts once."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from graphbox.cluster.messages import Operation
from graphbox.cluster.shard import TableShard
from graphbox.errors import ConflictError, ShardReplacedError
from tests.cluster.test_shard import SETTINGS, push

TRAINERS, KEYS = 3, 6


class Trainers(RuleBasedStateMachine):
    """Trainers send operations to one shard by hand, over a network that loses and repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.incarnation = 0
        self.sent: list[list[Operation]] = [[] for _ in range(TRAINERS)]
        self.kept_above = [0] * TRAINERS
        self.old: list[TableShard] = []
        self.start()

    def start(self) -> None:
        self.incarnation += 1
        self.shard = TableShard(
            0, 1, incarnation=self.incarnation, folder=Path(self.folder.name), deadline_s=0.01
        )
        self.shard.make("rows", SETTINGS)

    @rule(
        trainer=st.integers(0, TRAINERS - 1), keys=st.lists(st.integers(0, KEYS - 1), max_size=4, unique=True)
    )
    def write(self, trainer: int, keys: list[int]) -> None:
        """A trainer makes an operation, which may never arrive by itself."""
        self.sent[trainer].append(push(len(self.sent[trainer]) + 1, keys, trainer))

    @precondition(lambda self: any(self.sent))
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        """Any operation that the trainer still keeps arrives: in order, too early, or once more."""
        trainer = data.draw(st.sampled_from([each for each in range(TRAINERS) if self.sent[each]]))
        kept = [each for each in self.sent[trainer] if each.sequence > self.kept_above[trainer]]
        if not kept:
            return
        operation = replace(data.draw(st.sampled_from(kept)), incarnation=self.incarnation)
        before = self.shard.ack(trainer).applied
        try:
            ack = self.shard.apply(operation)
        except ConflictError:
            assert operation.sequence > before + 1
            return
        assert ack.applied == max(before, operation.sequence)
        self.kept_above[trainer] = max(self.kept_above[trainer], ack.durable)

    @rule()
    def make_durable(self) -> None:
        self.shard.make_durable()

    @rule()
    def replace_shard(self) -> None:
        """The shard is gone, with what was not durable."""
        self.shard.lease.end()
        self.old.append(self.shard)
        self.start()

    @precondition(lambda self: any(self.sent) and self.old)
    @rule(data=st.data())
    def send_to_the_old_one(self, data: st.DataObject) -> None:
        """Operations that reach a shard that was replaced change nothing, and are not acknowledged."""
        trainer = data.draw(st.sampled_from([each for each in range(TRAINERS) if self.sent[each]]))
        old = data.draw(st.sampled_from(self.old))
        operation = replace(data.draw(st.sampled_from(self.sent[trainer])), incarnation=old.incarnation)
        for use in (lambda: old.apply(operation), old.make_durable):
            try:
                use()
            except ShardReplacedError:
                continue
            assert use == old.make_durable  # it had nothing to write

    @rule()
    def send_all_that_is_missing(self) -> None:
        """A trainer that meets a successor sends what that does not have."""
        for trainer in range(TRAINERS):
            for operation in self.sent[trainer][self.shard.ack(trainer).applied :]:
                assert operation.sequence > self.kept_above[trainer]
                self.shard.apply(replace(operation, incarnation=self.incarnation))

    @invariant()
    def rows_are_those_of_the_operations_applied(self) -> None:
        expected = np.zeros(KEYS)
        for trainer in range(TRAINERS):
            for operation in self.sent[trainer][: self.shard.ack(trainer).applied]:
                expected[operation.keys] += 1
        rows = np.asarray(self.shard.tables["rows"].pull(np.arange(KEYS), create=False))
        assert rows[:, 0].tolist() == expected.tolist()

    @invariant()
    def what_trainers_keep_is_enough(self) -> None:
        for trainer in range(TRAINERS):
            assert self.kept_above[trainer] <= self.shard.ack(trainer).applied

    def teardown(self) -> None:
        self.folder.cleanup()


TestTrainers = Trainers.TestCase
TestTrainers.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
