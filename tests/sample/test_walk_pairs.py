"""Skip-gram pairs against a plain implementation, and straight from walks as from the walks themselves."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.sample import keep_probability, random_walk, skip_gram_pairs, walk_pairs

WINDOW_STREAM = 6
KEEP_HOP = 1


def word(key: int, hop: int, walk: int, draw: int, attempt: int = 0) -> int:
    counter = np.array([[draw // 4, hop | attempt << 24, walk, 0]], np.uint32)
    return int(_core.philox(counter, key)[0, draw % 4])


def bounded(key: int, walk: int, draw: int, range_: int) -> int:
    """Draw a number below ``range_``: Lemire's method on Philox words."""
    for attempt in range(256):
        product = word(key, 0, walk, draw, attempt) * range_
        if product % 2**32 >= 2**32 % range_:
            return product >> 32
    raise AssertionError("256 rejections")


def plain_pairs(
    walks: list[list[int]], window: int, offsets: list[int], key: int, *, dynamic: bool, keep: Any = None
) -> list[tuple[int, int]]:
    pairs = []
    for number, walk in enumerate(walks):
        left = []
        for column, node in enumerate(walk):
            if node < 0:
                break
            name = node + offsets[column]
            if keep is None or word(key, KEEP_HOP, number, column) < keep[name] * 2**32:
                left.append((name, column))
        for place, (center, column) in enumerate(left):
            reach = 1 + bounded(key, number, column, window) if dynamic else window
            pairs += [
                (center, left[context][0])
                for context in range(max(0, place - reach), min(len(left), place + reach + 1))
                if context != place
            ]
    return pairs


@settings(deadline=None)
@given(st.data())
def test_pairs_agree_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    width = data.draw(st.integers(1, 9))
    walks = rng.integers(-1, 8, (data.draw(st.integers(0, 30)), width))
    window = data.draw(st.integers(1, 12))
    offsets = data.draw(st.one_of(st.none(), st.just(rng.integers(0, 100, width).tolist())))
    dynamic = data.draw(st.booleans())
    keep = data.draw(st.one_of(st.none(), st.just(np.round(rng.random(108), 1))))
    arguments: dict[str, Any] = {
        "column_offsets": offsets,
        "dynamic_window": dynamic,
        "subsample": keep,
        "seed": 7,
        "epoch": 1,
        "batch": 2,
    }
    centers, contexts = skip_gram_pairs(walks, window, **arguments)
    key = _core.philox_key(WINDOW_STREAM, 7, 1, 2)
    expected = plain_pairs(walks.tolist(), window, offsets or [0] * width, key, dynamic=dynamic, keep=keep)
    assert list(zip(centers.tolist(), contexts.tolist(), strict=True)) == expected


def test_pairs_same_for_any_number_of_threads() -> None:
    walks = np.random.default_rng(0).integers(-1, 100, (5000, 11))
    one = skip_gram_pairs(walks, 4, dynamic_window=True, num_threads=1)
    two = skip_gram_pairs(walks, 4, dynamic_window=True, num_threads=2)
    np.testing.assert_array_equal(one, two)


def test_pairs_of_torch_walks() -> None:
    centers, contexts = skip_gram_pairs(torch.tensor([[0, 1, 0, 1]]), 1)
    assert torch.equal(centers, torch.tensor([0, 1, 1, 0, 0, 1]))
    assert torch.equal(contexts, torch.tensor([1, 0, 0, 1, 1, 0]))


def test_wrong_pairs() -> None:
    walks = np.array([[0, 1, 2]])
    with pytest.raises(UsageError, match="one entry for each column of walks: 3, received 2"):
        skip_gram_pairs(walks, 2, column_offsets=[0, 1])
    for window in (0, -1, 1.5, True):
        with pytest.raises(UsageError, match="window: expected"):
            skip_gram_pairs(walks, window)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"2 dimension\(s\)"):
        skip_gram_pairs([1, 2], 1)
    with pytest.raises(UsageError, match=r"subsample: .*it has 2, walk 0 has key 2"):
        skip_gram_pairs(walks, 1, subsample=[1, 1])
    for keep in ([[1.0]], [-0.1, 1, 1], [2, 1, 1], [float("nan"), 1, 1]):
        with pytest.raises(UsageError, match="subsample: expected probabilities"):
            skip_gram_pairs(walks, 1, subsample=keep)


# ------------------------------------------------------------------ subsampling


def test_keep_probability() -> None:
    visits = np.array([0, 1, 9, 90, 900])
    share = visits[1:] / 1000
    expected = [1, *np.minimum(1, np.sqrt(0.01 / share))]
    np.testing.assert_allclose(keep_probability(visits, 0.01), expected)
    assert keep_probability([0, 0]).tolist() == [1, 1]
    assert keep_probability([]).tolist() == []
    for wrong in ([-1], [float("nan")], [1, float("inf")]):
        with pytest.raises(UsageError, match="visits: expected finite numbers"):
            keep_probability(wrong)
    with pytest.raises(UsageError, match="visits: expected 1 dimension"):
        keep_probability([[1]])
    with pytest.raises(UsageError, match="threshold: expected a number above 0"):
        keep_probability([1], 0)


def test_occurrences_stay_as_often_as_asked() -> None:
    # Two nodes of a walk make pairs where both stay.
    walks = np.tile(np.arange(4).reshape(2, 2), (50_000, 1))
    centers, _ = skip_gram_pairs(walks, 1, subsample=[0.5, 1.0, 0.3, 0.25])
    for node, probability in ((0, 0.5), (2, 0.3 * 0.25)):
        assert stats.binomtest(int((centers == node).sum()), 50_000, probability).pvalue > 1e-5
    assert not len(skip_gram_pairs(walks, 1, subsample=[0.0] * 4)[0])
    np.testing.assert_array_equal(skip_gram_pairs(walks, 1), skip_gram_pairs(walks, 1, subsample=[1.0] * 4))


def test_subsampling_p_values_are_uniform_over_seeds() -> None:
    walks = np.zeros((2000, 5), np.int64)
    p_values = []
    for seed in range(50):
        centers, _ = skip_gram_pairs(walks[:, :2], 1, subsample=[0.4], seed=seed)
        kept = len(centers) // 2
        # A kept share of 0.16; randomised so that the p-values of a discrete count are uniform.
        below, at = stats.binom.cdf(kept - 1, 2000, 0.16), stats.binom.pmf(kept, 2000, 0.16)
        p_values.append(below + at * np.random.default_rng(seed).random())
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


# ------------------------------------------------------------------ straight from walks


def ring_with_chords(num_nodes: int = 300) -> Graph:
    rng = np.random.default_rng(0)
    source = np.concatenate([np.arange(num_nodes - 1), rng.integers(0, num_nodes - 1, num_nodes)])
    target = np.concatenate([np.arange(1, num_nodes), rng.integers(0, num_nodes, num_nodes)])
    return Graph.from_coo(source, target, num_nodes=num_nodes)


@pytest.mark.parametrize("walk", [{}, {"p": 0.5, "q": 2.0}, {"restart_probability": 0.2}])
@pytest.mark.parametrize("pairs", [{}, {"dynamic_window": True}, {"subsample": True, "dynamic_window": True}])
@pytest.mark.parametrize("chunk_pairs", [1, 700, 1 << 20])
def test_the_pairs_of_all_walks(walk: dict[str, Any], pairs: dict[str, Any], chunk_pairs: int) -> None:
    graph = ring_with_chords()
    if "subsample" in pairs:
        pairs = {**pairs, "subsample": np.linspace(0.2, 1, 300)}
    key: dict[str, Any] = {"seed": 3, "epoch": 4, "batch": 5}
    start = np.arange(300).repeat(3)
    expected = skip_gram_pairs(random_walk(graph, start, 8, **walk, **key), 4, **pairs, **key)
    for threads in (1, 2, 4):
        chunks = list(
            walk_pairs(
                graph, start, 8, 4, **walk, **pairs, **key, chunk_pairs=chunk_pairs, num_threads=threads
            )
        )
        assert all(len(centers) for centers, _ in chunks)
        assert max(len(centers) for centers, _ in chunks) <= max(chunk_pairs, 52)
        np.testing.assert_array_equal(np.concatenate([centers for centers, _ in chunks]), expected[0])
        np.testing.assert_array_equal(np.concatenate([contexts for _, contexts in chunks]), expected[1])


def test_walk_pairs_of_little() -> None:
    graph = ring_with_chords()
    assert list(walk_pairs(graph, [], 5, 2)) == []
    assert list(walk_pairs(graph, [1, 2], 0, 2)) == []
    assert list(walk_pairs(graph, [299], 5, 2)) == []  # a dead end
    ((centers, contexts),) = walk_pairs(graph, torch.tensor([0]), 1, 2)
    assert isinstance(centers, torch.Tensor)
    assert sorted([centers.tolist(), contexts.tolist()])[0][0] == 0


def test_wrong_walk_pairs() -> None:
    graph = ring_with_chords()
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(UsageError, match="chunk_pairs: expected"):
            walk_pairs(graph, [0], 3, 2, chunk_pairs=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="window: expected"):
        walk_pairs(graph, [0], 3, 0)
    with pytest.raises(UsageError, match="received 300 at position 7"):
        list(walk_pairs(graph, [0] * 7 + [300], 3, 2, chunk_pairs=1))
    with pytest.raises(UsageError, match=r"type_offsets: expected a number for each .* none for 'node'"):
        walk_pairs(graph, [0], 3, 2, type_offsets={"paper": 1})
    with pytest.raises(UsageError, match="graph: types of nodes need a graph"):
        walk_pairs(graph.csr(), [0], 3, 2, type_offsets={"node": 1})
