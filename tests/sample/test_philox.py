"""The random generator against Random123's known answers and a plain NumPy implementation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.sample import permutation

WORD = st.integers(0, 2**32 - 1)


def philox4x32_10(counters: np.ndarray, key: int) -> np.ndarray:
    """Salmon et al., SC'11, section 4: ten rounds, in 64-bit integers."""
    words = counters.astype(np.uint64)
    low, high = key & 0xFFFFFFFF, key >> 32
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    for _ in range(10):
        first = words[:, 0] * np.uint64(0xD2511F53)
        second = words[:, 2] * np.uint64(0xCD9E8D57)
        words = np.stack(
            [
                (second >> shift) ^ words[:, 1] ^ np.uint64(low),
                second & mask,
                (first >> shift) ^ words[:, 3] ^ np.uint64(high),
                first & mask,
            ],
            axis=1,
        )
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return words.astype(np.uint32)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0, 0, 0, 0], 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([2**32 - 1] * 4, 2**64 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers(counter: list[int], key: int, words: list[int]) -> None:
    assert _core.philox(np.array([counter], dtype=np.uint32), key)[0].tolist() == words


@given(st.lists(st.tuples(WORD, WORD, WORD, WORD), max_size=20), st.integers(0, 2**64 - 1))
def test_agrees_with_numpy(counters: list[tuple[int, int, int, int]], key: int) -> None:
    array = np.array(counters, dtype=np.uint32).reshape(-1, 4)
    np.testing.assert_array_equal(_core.philox(array, key), philox4x32_10(array, key))


@given(st.integers(1, 6), st.integers(0, 2**64 - 1), WORD, st.integers(0, 2**64 - 1))
def test_key_is_philox_of_stream_epoch_batch_under_the_seed(
    stream: int, seed: int, epoch: int, batch: int
) -> None:
    counter = np.array([[stream, epoch, batch & 0xFFFFFFFF, batch >> 32]], dtype=np.uint32)
    low, high = philox4x32_10(counter, seed)[0, :2].tolist()
    assert _core.philox_key(stream, seed, epoch, batch) == high << 32 | low


def test_permutation() -> None:
    order = permutation(10_000, seed=1)
    assert sorted(order) == list(range(10_000))
    np.testing.assert_array_equal(order, permutation(10_000, seed=1))
    assert (order != permutation(10_000, seed=2)).mean() > 0.99
    assert (order != permutation(10_000, seed=1, epoch=1)).mean() > 0.99
    assert permutation(0).shape == (0,)
    with pytest.raises(UsageError, match="0 or more"):
        permutation(-1)


def test_permutations_are_equally_likely() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(4800):
        order = tuple(permutation(4, seed=seed).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    chi_square = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert chi_square < 53.5  # 99.97 % of 23 degrees of freedom
