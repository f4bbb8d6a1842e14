"""Random operations on a table with policies, and on rows in a dictionary that has the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from graphbox.table import CountAdmission, EmbeddingTable, Expiry, ShowClickScore
from graphbox.table.arguments import DType, Optimizer
from tests.table.reference import OPTIMIZERS, PlainTable
from tests.table.test_state_machine import SEEDS, TableMachine, run

DECAY = 0.5
"""Scores are exact, with this and whole shows."""
ADMITTED_AT = 3
UNSEEN_PASSES = 2
SCORE = ShowClickScore(nonclick_weight=0.25, click_weight=1.0, decay=DECAY, drop_below=0.5)
POLICIES: dict[str, Any] = {
    "admission": CountAdmission(ADMITTED_AT),
    "expiry": Expiry(passes=UNSEEN_PASSES),
    "score": SCORE,
}


class PlainPolicies(PlainTable):
    """A table that admits keys when they come often, and drops what is unseen or of low score."""

    def __init__(self, dim: int, optimizer: Optimizer, seed: int) -> None:
        super().__init__(dim, optimizer, seed)
        self.passes = 0
        self.pulls: Counter[int] = Counter()
        self.seen: dict[int, int] = {}
        self.shown: dict[int, tuple[float, float]] = {}

    def pull(self, keys: Iterable[int], create: bool = True) -> npt.NDArray[np.float64]:
        keys = list(keys)
        if not create:
            return super().pull(keys, create=False)
        unknown = Counter(key for key in keys if key not in self.rows)
        self.pulls.update(unknown)
        admitted = [key for key in unknown if self.pulls[key] >= ADMITTED_AT]
        super().pull(admitted)
        for key in admitted:
            del self.pulls[key]
            self.seen[key] = self.passes
            self.shown[key] = (0.0, 0.0)
        return super().pull(keys, create=False)

    def push(self, keys: Sequence[int], grads: npt.NDArray[np.float32]) -> None:
        self.learn(keys, grads, np.ones(len(keys)), np.zeros(len(keys)))

    def learn(
        self,
        keys: Sequence[int],
        grads: npt.NDArray[np.float32],
        shows: npt.NDArray[np.float64],
        clicks: npt.NDArray[np.float64],
    ) -> None:
        known = [place for place, key in enumerate(keys) if key in self.rows]
        super().push([keys[place] for place in known], grads[known])
        for place in known:
            key = keys[place]
            self.seen[key] = self.passes
            shown, clicked = self.shown[key]
            self.shown[key] = (shown + shows[place], clicked + clicks[place])

    def end_pass(self) -> None:
        self.passes += 1
        self.shown = {key: (shows * DECAY, clicks * DECAY) for key, (shows, clicks) in self.shown.items()}

    def score(self, key: int) -> float:
        shows, clicks = self.shown[key]
        return (shows - clicks) * SCORE.nonclick_weight + clicks * SCORE.click_weight

    def shrink(self) -> tuple[int, int]:
        """Return how many rows were dropped since they were unseen, and how many for their score."""
        unseen = [key for key in self.rows if self.passes - self.seen[key] > UNSEEN_PASSES]
        self.erase(unseen)
        low = [key for key in self.rows if self.score(key) < SCORE.drop_below]
        self.erase(low)
        return len(unseen), len(low)

    def erase(self, keys: Iterable[int]) -> int:
        keys = list(keys)
        for key in keys:
            self.pulls.pop(key, None)
            self.seen.pop(key, None)
            self.shown.pop(key, None)
        return super().erase(keys)


class PolicyMachine(TableMachine):
    """Random operations on a table with admission of keys."""

    plain: PlainPolicies

    @initialize(
        dim=st.sampled_from([1, 3, 16]),
        optimizer=st.sampled_from(OPTIMIZERS),
        dtype=st.sampled_from(["float32", "float32", "float16"]),
        seed=st.integers(0, 2**64 - 1),
    )
    def make(self, dim: int, optimizer: Optimizer, dtype: DType, seed: int) -> None:
        super().make(dim, optimizer, dtype, seed)
        self.plain = PlainPolicies(dim, optimizer, seed)

    def new_table(self, dim: int, optimizer: Optimizer, **options: Any) -> EmbeddingTable:
        return super().new_table(dim, optimizer, **options, **POLICIES)

    def new_twin(self, dim: int, optimizer: Optimizer, **options: Any) -> EmbeddingTable:
        return super().new_twin(dim, optimizer, **options, **POLICIES)

    @rule(seed=SEEDS)
    def push_shows(self, seed: int) -> None:
        keys = self.keys(seed)
        grads = self.gradients(keys, seed)
        rng = np.random.default_rng(seed)
        clicks = rng.integers(0, 3, len(keys)).astype(np.float64)
        shows = clicks + rng.integers(0, 4, len(keys))
        for table in (self.table, self.twin):
            table.push(keys, grads, shows=shows, clicks=clicks)
        self.plain.learn(keys.tolist(), grads, shows, clicks)

    @rule()
    def end_pass(self) -> None:
        for each in (self.table, self.twin, self.plain):
            each.end_pass()

    @rule()
    def shrink(self) -> None:
        rows = len(self.plain.rows)
        unseen, low = self.plain.shrink()
        for table in (self.table, self.twin):
            report = table.shrink()
            assert (report.examined, report.unseen_passes, report.low_score) == (rows, unseen, low)


def test_policies_agree_with_a_dictionary() -> None:
    run(PolicyMachine, 20, 30, is_fixed=True)


@pytest.mark.stress
@pytest.mark.timeout(4 * 3600)
def test_policies_agree_with_a_dictionary_for_long() -> None:
    run(PolicyMachine, 200, 100, is_fixed=False)
