"""Windows of histories beside plain loops: each event is predicted once, from what came before it alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from graphbox.train.compressed import CompressedRows
from graphbox.train.sequences.windows import PackedWindows, Windows, last_windows, pack


def some_histories(seed: int, nodes: int = 200, longest: int = 60) -> CompressedRows:
    """Return histories of distinct items, so that an item tells which event it is of."""
    generator = np.random.default_rng(seed)
    length = generator.integers(0, longest, nodes)
    offsets = np.concatenate([[0], np.cumsum(length)])
    return CompressedRows(offsets, generator.permutation(int(offsets[-1])))


def sequences_of(packed: PackedWindows) -> list[tuple[list[int], list[int]]]:
    """Return the items of each packed window, and what is to be predicted after each."""
    found, place = [], 0
    is_event = np.zeros(len(packed.events.items), bool)
    is_event[packed.events.events] = True
    targets = np.full(len(is_event), -1)
    targets[packed.events.events] = packed.targets
    for count, length in packed.events.shapes:
        for _ in range(count):
            own = slice(place, place + length)
            kept = is_event[own]
            assert kept[: kept.sum()].all(), "padding comes last"
            found.append((packed.events.items[own][kept].tolist(), targets[own][kept].tolist()))
            place += length
    assert place == len(packed.events.items)
    return found


def plain_windows(history: list[int], window: int) -> list[tuple[list[int], list[int]]]:
    """Return the windows of a history, the last first: events, and the one after each."""
    found, end = [], len(history) - 1
    while end > 0:
        start = max(0, end - window)
        found.append((history[start:end], history[start + 1 : end + 1]))
        end = start
    return found


def lists_of(histories: CompressedRows) -> list[list[int]]:
    return [each.tolist() for each in np.split(histories.values, histories.offsets[1:-1])]


@pytest.mark.parametrize("window", [1, 3, 7, 50])
def test_windows_are_those_of_a_plain_loop(window: int) -> None:
    histories = some_histories(window)
    windows = Windows.of(histories, window)
    expected = [each for history in lists_of(histories) for each in plain_windows(history, window)]
    found = sequences_of(windows.pack(np.arange(len(windows))))
    assert sorted(found) == sorted(expected)
    assert len(windows) == len(expected)
    np.testing.assert_array_equal(windows.length, [len(events) for events, _ in expected])


@pytest.mark.parametrize("window", [1, 3, 50])
def test_each_event_is_predicted_once_and_only_from_those_before_it(window: int) -> None:
    histories = some_histories(11)
    windows = Windows.of(histories, window)
    place = np.empty(len(histories.values), np.int64)
    place[histories.values] = np.arange(len(place))  # items are distinct
    owner = np.repeat(np.arange(len(histories.offsets) - 1), np.diff(histories.offsets))
    predicted: list[int] = []
    for events, targets in sequences_of(windows.pack(np.arange(len(windows)))):
        for number, target in enumerate(targets):
            seen = place[events[: number + 1]]
            assert (seen < place[target]).all()
            assert (owner[seen] == owner[place[target]]).all()
            assert len(seen) <= window
        predicted += targets
    is_first = np.zeros(len(place), bool)
    is_first[histories.offsets[:-1][np.diff(histories.offsets) > 0]] = True
    assert sorted(predicted) == sorted(histories.values[~is_first].tolist())


def test_events_are_packed_with_little_padding() -> None:
    generator = np.random.default_rng(0)
    length = np.minimum(1 + generator.geometric(0.12, 4096), 50)
    start = np.cumsum(length) - length
    packed = pack(np.arange(int(length.sum())), start, length)
    assert len(packed.events) == length.sum()
    assert len(packed.items) < 1.08 * length.sum()
    assert max(width for _, width in packed.shapes) == length.max()


def test_the_last_event_of_each_sequence_is_found() -> None:
    histories = some_histories(3)
    start, length = last_windows(histories, 9)
    expected = [history[-9:] for history in lists_of(histories)]
    np.testing.assert_array_equal(length, [len(each) for each in expected])
    rows = np.flatnonzero(length)
    packed = pack(histories.values, start[rows], length[rows])
    assert packed.items[packed.last].tolist() == [each[-1] for each in expected if each]


def test_no_sequences_are_packed() -> None:
    none: NDArray[np.int64] = np.empty(0, np.int64)
    packed = pack(none, none, none)
    assert packed.shapes == ()
    assert len(packed.items) == len(packed.last) == 0
