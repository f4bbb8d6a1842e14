"""The policies of a table against a plain model: who gets a row, what is counted, who leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox import _core
from graphbox.errors import DataError, DoesNotFitError, FormatError, UsageError
from graphbox.table import (
    CountAdmission,
    EmbeddingTable,
    Expiry,
    ProbabilityAdmission,
    ShowClickScore,
    TablePolicies,
)

ADMISSION_STREAM = 9
DIM = 4


class PlainPolicies:
    """Rows, counters and counts in dictionaries, one key at a time; values are no concern of it."""

    def __init__(self, count: int, score: ShowClickScore, expiry: Expiry) -> None:
        self.count, self.score, self.expiry = count, score, expiry
        self.pulled: dict[int, int] = {}
        self.rows: dict[int, list[float]] = {}
        self.passes, self.now = 0, 0.0
        self.refused = self.dropped = 0

    def pull(self, keys: list[int]) -> None:
        absent = [key for key in keys if key not in self.rows]
        for key in absent:
            self.pulled[key] = self.pulled.get(key, 0) + 1
        for key in absent:
            if key in self.rows:
                continue
            if self.pulled[key] >= self.count:
                self.rows[key] = [0, 0, self.passes, int(self.now)]
                del self.pulled[key]
            else:
                self.refused += 1

    def push(self, keys: list[int], shows: np.ndarray, clicks: np.ndarray) -> None:
        for key, show, click in zip(keys, shows, clicks, strict=True):
            if key not in self.rows:
                if self.count > 1:
                    self.dropped += 1
                    continue
                self.rows[key] = [0, 0, self.passes, int(self.now)]
            row = self.rows[key]
            factor = self.score.decay ** (self.passes - row[2])
            self.rows[key] = [row[0] * factor + show, row[1] * factor + click, self.passes, int(self.now)]

    def counters(self, key: int) -> tuple[float, float, float]:
        shows, clicks, seen, _ = self.rows[key]
        factor = self.score.decay ** (self.passes - seen)
        shows, clicks = shows * factor, clicks * factor
        score = (shows - clicks) * self.score.nonclick_weight + clicks * self.score.click_weight
        return shows, clicks, score

    def shrink(self) -> tuple[int, int, int]:
        reasons = [0, 0, 0]
        for key in list(self.rows):
            unseen = self.passes - self.rows[key][2]
            seconds = int(self.now) - self.rows[key][3]
            if self.expiry.passes is not None and unseen > self.expiry.passes:
                reasons[0] += 1
            elif self.expiry.seconds is not None and seconds > self.expiry.seconds:
                reasons[1] += 1
            elif self.counters(key)[2] < self.score.drop_below:
                reasons[2] += 1
            else:
                continue
            del self.rows[key]
        return reasons[0], reasons[1], reasons[2]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("count", [1, 3])
def test_agrees_with_the_plain_policies(threads: int, count: int) -> None:
    random = np.random.default_rng(count)
    score = ShowClickScore(nonclick_weight=0.25, click_weight=1.5, decay=0.5, drop_below=0.3)
    expiry = Expiry(passes=3, seconds=50)
    plain = PlainPolicies(count, score, expiry)
    table = EmbeddingTable(
        DIM,
        admission=None if count == 1 else CountAdmission(count),
        score=score,
        expiry=expiry,
        clock=lambda: plain.now,
        threads=threads,
    )
    for step in range(150):
        keys = (random.zipf(1.3, 60) % 200).tolist()
        shows = random.integers(1, 4, 60).astype(np.float32)
        clicks = np.floor(shows * random.random(60, dtype=np.float32))
        grads = np.ones((60, DIM), np.float32)
        if step % 3 == 0:
            table.pull(keys)
            plain.pull(keys)
            table.push(keys, grads, shows=shows, clicks=clicks)
        else:
            _, slots = table.pull_slots(keys)
            plain.pull(keys)
            table.push_slots(slots, grads, shows=shows, clicks=clicks)
        plain.push(keys, shows, clicks)
        plain.now += random.random() * 3
        if step % 7 == 6:
            table.end_pass()
            plain.passes += 1
        if step % 20 == 19:
            report = table.shrink()
            before = len(plain.rows)
            assert (report.unseen_passes, report.unseen_seconds, report.low_score) == plain.shrink()
            assert (report.examined, report.kept) == (before, len(plain.rows))
            assert report.freed_bytes >= report.dropped * (16 + 4 * DIM)
        assert set(table.keys().tolist()) == set(plain.rows)
    known = sorted(plain.rows)
    counters = table.counters(known)
    assert counters.has_row.all()
    expected = np.array([plain.counters(key) for key in known])
    np.testing.assert_allclose(counters.shows, expected[:, 0], rtol=1e-5)
    np.testing.assert_allclose(counters.clicks, expected[:, 1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(counters.score, expected[:, 2], rtol=1e-4, atol=1e-5)
    assert counters.unseen_passes.tolist() == [plain.passes - plain.rows[key][2] for key in known]
    assert counters.last_seen.tolist() == [plain.rows[key][3] for key in known]
    events = table.policy_events
    assert (events.refused_pulls, events.dropped_gradients) == (plain.refused, plain.dropped)


def test_keys_that_are_not_admitted_have_their_initial_values_and_learn_nothing() -> None:
    table = EmbeddingTable(DIM, "sgd", 1.0, admission=CountAdmission(3), seed=5)
    initial = EmbeddingTable(DIM, "sgd", 1.0, seed=5).pull([7])
    for _ in range(2):
        assert np.array_equal(table.pull([7]), initial)
        table.push([7], np.ones((1, DIM), np.float32))
    assert len(table) == 0
    assert np.array_equal(table.pull([7], create=False), initial)  # counts nothing
    assert len(table) == 0
    assert np.array_equal(table.pull([7]), initial)
    assert len(table) == 1
    table.push([7], np.ones((1, DIM), np.float32))
    assert np.array_equal(table.pull([7]), initial - 1)
    assert table.policy_events.dropped_gradients == 2


def test_pulls_of_one_batch_count_before_it_creates_rows() -> None:
    table = EmbeddingTable(DIM, admission=CountAdmission(3))
    _, slots = table.pull_slots([1, 2, 1, 1, 2])
    assert table.contains([1, 2]).tolist() == [True, False]
    table.push_slots(slots, np.ones((5, DIM), np.float32))
    assert table.policy_events.dropped_gradients == 2
    table.erase([1, 2])
    table.pull([1, 2, 2])
    assert len(table) == 0  # what was counted of erased keys is forgotten


def test_exact_counts_can_be_halved() -> None:
    table = EmbeddingTable(DIM, admission=CountAdmission(4, halve_after=10))
    table.pull([1, 1, 1, 2, 3])
    table.pull([4, 5, 6, 7, 8])  # now all are halved: one of key 1 is left, none of others
    table.pull([1, 1, 2, 2])
    assert len(table) == 0
    table.pull([1, 2, 2])
    assert table.contains([1, 2]).tolist() == [True, True]


def exact_counts(stream: np.ndarray) -> dict[int, int]:
    keys, counts = np.unique(stream, return_counts=True)
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


def test_a_sketch_never_misses_and_seldom_errs() -> None:
    random = np.random.default_rng(2)
    stream = random.zipf(1.2, 30_000) % 20_000
    count, sketch_bytes = 12, 16_384
    table = EmbeddingTable(1, admission=CountAdmission(count, sketch_bytes, halve_after=0))
    for batch in np.split(stream, 30):
        table.pull(batch)
    counted = exact_counts(stream)
    often = [key for key, times in counted.items() if times >= count]
    assert table.contains(often).all()
    # A key may be admitted before its time only where its estimate is too high: by more than e N / w for at
    # most e^-4 of the keys. Here N is at most the whole stream and w a quarter of the bytes.
    error = np.e * len(stream) / (sketch_bytes // 4)
    rare = np.array([key for key, times in counted.items() if times < count - error])
    assert len(rare) == 0 or table.contains(rare).mean() <= np.exp(-4)


@pytest.mark.parametrize("rarity", [3, 6])
def test_the_sketch_is_as_good_as_its_bound(rarity: int) -> None:
    distinct = 4096
    table = EmbeddingTable(1, admission=CountAdmission(rarity, 8 * distinct, halve_after=0))
    table.pull(np.arange(distinct))
    # All were pulled once; N / w is 1/2, so an estimate of 1 + e / 2 or more has at most e^-4 of them.
    assert table.contains(np.arange(distinct)).mean() <= np.exp(-4)


def test_a_sketch_is_halved_and_goes_on() -> None:
    table = EmbeddingTable(1, admission=CountAdmission(6, 1 << 16))
    halve_after = (1 << 16) // 8
    table.pull(np.full(5, 7))
    table.pull(np.arange(100, 100 + halve_after))
    table.pull(np.full(3, 7))  # 2 are left of 5
    assert not table.contains([7])[0]
    table.pull([7])
    assert table.contains([7])[0]


def test_probability_draws_by_seed_key_and_pass() -> None:
    keys = np.arange(-2000, 2000)
    table = EmbeddingTable(1, admission=ProbabilityAdmission(0.3), seed=9)
    for number in range(3):
        counters = np.zeros((len(keys), 4), np.uint32)
        positions = keys.astype(np.uint64)
        counters[:, 0] = number
        counters[:, 2] = positions & np.uint64(0xFFFFFFFF)
        counters[:, 3] = positions >> np.uint64(32)
        words = _core.philox(counters, _core.philox_key(ADMISSION_STREAM, 9, 0, 0))[:, 0]
        admitted = words < np.uint32(int(0.3 * 2**32))
        assert abs(admitted.mean() - 0.3) < 0.03
        before = table.contains(keys)
        if number == 1:
            table.push(keys, np.zeros((len(keys), 1), np.float32))  # a push admits as a pull does
        table.pull(keys[::-1])
        assert np.array_equal(table.contains(keys), before | admitted)
        table.end_pass()
    assert EmbeddingTable(1, admission=ProbabilityAdmission(1.0)).pull(keys).shape == (4000, 1)


def test_shows_divide_mean_gradients() -> None:
    def trained(**counts: Any) -> np.ndarray:
        table = EmbeddingTable(1, "sgd", 1.0, init_scale=0.0, mean_gradient=True)
        table.push([1, 1, 2, 3], np.array([[4.0], [8.0], [6.0], [5.0]], np.float32), **counts)
        return table.pull([1, 2, 3]).ravel()

    assert trained().tolist() == [-6, -6, -5]
    assert trained(shows=[3, 1, 2, 0]).tolist() == [-3, -3, 0]


def test_wrong_shows_and_clicks() -> None:
    table = EmbeddingTable(1, score=ShowClickScore())
    grads = np.zeros((2, 1), np.float32)
    for wrong in ({"shows": [1]}, {"clicks": ["a", "b"]}):
        with pytest.raises(UsageError):
            table.push([5, 6], grads, **wrong)
    for refused in ({"shows": [1, -1]}, {"clicks": [0, 2]}, {"shows": [1, np.nan]}, {"shows": [1, np.inf]}):
        with pytest.raises(DataError, match="position 1") as caught:
            table.push([5, 6], grads, **refused)
        assert caught.value.where == "key 6"
    assert len(table) == 0
    with pytest.raises(UsageError, match="a table with score, which counts clicks"):
        EmbeddingTable(1).push([5, 6], grads, clicks=[0, 1])


def test_slots_of_keys_that_are_admitted_later() -> None:
    table = EmbeddingTable(1, admission=CountAdmission(2), optimizer="sgd", lr=1.0, init_scale=0.0)
    _, slots = table.pull_slots([7])
    table.pull([7])
    table.push_slots(slots, np.ones((1, 1), np.float32))
    assert table.pull([7]).item() == -1.0


def test_wrong_policies() -> None:
    wrong: list[Any] = [
        lambda: CountAdmission(0),
        lambda: CountAdmission(256, 4096),
        lambda: CountAdmission(2, 100),
        lambda: CountAdmission(2, halve_after=-1),
        lambda: ProbabilityAdmission(0),
        lambda: ProbabilityAdmission(1.1),
        lambda: Expiry(None, None),
        lambda: Expiry(-1),
        lambda: ShowClickScore(decay=0),
        lambda: ShowClickScore(click_weight=-1),
        lambda: TablePolicies(admission=Expiry()),  # type: ignore[arg-type]
        lambda: TablePolicies(eviction="lru"),  # type: ignore[arg-type]
        lambda: EmbeddingTable(2, eviction="score", memory_bytes=1 << 24),
        lambda: EmbeddingTable(2).counters([1]),
        lambda: EmbeddingTable(2, score=ShowClickScore(), clock=lambda: -1.0).pull([1]),
        lambda: TablePolicies.from_document({"admission": {"kind": "other"}}),
    ]
    for make in wrong:
        with pytest.raises(UsageError):
            make()


def test_a_report_can_be_read() -> None:
    table = EmbeddingTable(1, score=ShowClickScore(), expiry=Expiry(passes=1), clock=lambda: 0.0)
    table.pull(np.arange(1000))
    table.push(np.arange(10), np.zeros((10, 1), np.float32), clicks=np.ones(10))
    report = table.shrink()
    assert str(report).startswith("dropped 990 of 1,000 rows (990 of low score); 10 kept, ")
    assert str(table.shrink()) == "dropped 0 of 10 rows; 10 kept, 0 bytes free for new ones"
    assert table.policy_events.dropped_rows == 990


@pytest.mark.parametrize("admission", [CountAdmission(3), CountAdmission(3, 4096), ProbabilityAdmission(0.5)])
def test_checkpoints_carry_policies_counters_and_counts(
    tmp_path: Path, admission: CountAdmission | ProbabilityAdmission
) -> None:
    def step(table: EmbeddingTable, number: int) -> None:
        keys = np.random.default_rng(number).zipf(1.4, 300) % 400
        table.pull(keys)
        table.push(keys, np.ones((300, DIM), np.float32), clicks=keys % 2)
        table.end_pass()

    def clock() -> float:
        return 1000.0

    policies = TablePolicies(admission, Expiry(4, 90), ShowClickScore(0.5), "clock")
    table = EmbeddingTable(DIM, **policies.arguments(), memory_bytes=1 << 24, clock=clock)
    for number in range(3):
        step(table, number)
    table.save_base(tmp_path / "base")
    step(table, 3)
    table.shrink()
    table.save_delta(tmp_path / "delta")
    loaded = EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"])
    loaded.clock = clock
    assert loaded.policies == policies
    assert loaded.passes == 4
    shards = [
        EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"], shard=(i, 2)) for i in range(2)
    ]
    assert sum(len(shard) for shard in shards) == len(table)
    for number in range(4, 7):
        step(table, number)
        step(loaded, number)
    keys = np.sort(table.keys())
    assert np.array_equal(np.sort(loaded.keys()), keys)
    assert np.array_equal(loaded.pull(keys), table.pull(keys))
    assert np.array_equal(loaded.counters(keys).score, table.counters(keys).score)
    state = tmp_path / "delta" / "policies.state"
    state.write_bytes(state.read_bytes() + b"x")
    with pytest.raises(FormatError, match="manifest"):
        EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"])


def test_exact_counts_stay_in_the_budget() -> None:
    table = EmbeddingTable(1, admission=CountAdmission(2), memory_bytes=3 << 20)
    table.pull(np.arange(20_000))
    with pytest.raises(DoesNotFitError, match="no row"):
        table.pull(np.arange(20_000, 300_000))
    table.pull(np.arange(10))  # what did not fit was not counted, the rest was
    assert table.contains(np.arange(10)).all()
    table.pull([250_000])
    assert not table.contains([250_000])[0]
