"""Number of distinct values of a column: counted or sketched in full, or estimated from blocks of rows.

A sketch of all values is preferred where they can be read in a moment: no estimate from a sample of rows can
promise a small error on every input (Charikar, Chaudhuri, Motwani and Narasayya, "Towards estimation error
guarantees for distinct values", PODS 2000), while a sketch has the same small error on all.

Larger tables are sampled by blocks of rows from all over. The estimate uses the number of blocks in which a
value occurs, not the number of rows: adjacent rows are often alike, as in a table sorted by one of its
columns, while blocks at separate places are not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox import _core

Hashes = npt.NDArray[np.uint64]

_LENGTH_BITS = 12
_LONGEST_TEXT = (1 << _LENGTH_BITS) - 1
_SMALLEST_RATIO = 0.01
_DOUBT_PER_DOUBLING = 0.02
_DEVIATIONS = 3
"""Half width of a range, in standard deviations."""
_PARTS = (0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Estimate:
    """A number that may be known only about: at least ``low``, at most ``high``, probably ``likely``."""

    low: int
    likely: int
    high: int

    @classmethod
    def exactly(cls, number: int) -> Estimate:
        """Return a number that is known."""
        return cls(number, number, number)

    def at_most(self, other: Estimate) -> Estimate:
        """Return this estimate with no bound above the other's."""
        return Estimate(min(self.low, other.low), min(self.likely, other.likely), min(self.high, other.high))

    @property
    def exact(self) -> bool:
        """Whether the number is known."""
        return self.low == self.high


# Hashes


def hash_ids(ids: pa.Array, *, as_text: bool) -> Hashes:
    """Return a hash of each id; the lowest bits hold the bytes of its text where ids are taken as text.

    Args:
        ids: integers or strings without nulls.
        as_text: hash the text, so that 7 and "7" are one id.
    """
    if not as_text:
        return _mixed(ids.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False).view(np.uint64))
    texts = ids.cast(pa.large_string())
    buffers = texts.buffers()
    offsets = np.frombuffer(buffers[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    text = np.frombuffer(buffers[2] or b"", np.uint8)
    hashed = np.empty(len(texts), np.int64)
    if len(texts):
        _core.hash_strings(offsets, text, hashed)
    lengths = np.minimum(np.diff(offsets), _LONGEST_TEXT).astype(np.uint64)[: len(texts)]
    return (hashed.view(np.uint64) & ~np.uint64(_LONGEST_TEXT)) | lengths


def hash_pairs(sources: Hashes, targets: Hashes) -> Hashes:
    """Return a hash of each pair of hashes."""
    return _mixed(_mixed(sources) + targets)


def text_bytes(hashes: Hashes) -> float:
    """Return the mean bytes of the texts that :func:`hash_ids` has hashed."""
    return float(np.mean(hashes & np.uint64(_LONGEST_TEXT))) if len(hashes) else 0.0


def _mixed(values: Hashes) -> Hashes:
    """Return the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), a bijection."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def distinct_hashes(hashes: Hashes) -> Hashes:
    """Return what `numpy.unique` does, which takes a hash table where sorting is many times faster."""
    ordered: Hashes = np.sort(hashes)
    if not len(ordered):
        return ordered
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    distinct: Hashes = ordered[is_first]
    return distinct


# All values


class DistinctSketch:
    """Counts the distinct values among any number of them, in bounded memory.

    The smallest hashes are kept. Up to ``size`` distinct values the count is exact; beyond that it is
    estimated from how close together the kept ones lie, with a relative standard error of 1/sqrt(size), 0.1 %
    as it is, whatever the values and their order (Beyer, Haas, Reinwald, Sismanis and Gemulla, "On synopses
    for distinct-value estimation under multiset operations", SIGMOD 2007).

    Args:
        size: hashes to keep.
    """

    def __init__(self, size: int = 1 << 20) -> None:
        self._size = size
        self._parts: list[Hashes] = []
        self._waiting = 0
        self._limit: np.uint64 | None = None
        """The largest kept hash, once some were dropped."""

    def add(self, hashes: Hashes) -> None:
        """Take the hashes of some values."""
        if self._limit is not None:
            hashes = hashes[hashes <= self._limit]
        self._parts.append(hashes)
        self._waiting += len(hashes)
        if self._waiting > 4 * self._size:
            self._compact()

    def kept(self) -> Hashes:
        """Return the smallest distinct hashes: of values that are picked evenly, however often they occur."""
        self._compact()
        return self._parts[0]

    def count(self) -> Estimate:
        """Return the number of distinct values."""
        kept = self.kept()
        if self._limit is None:
            return Estimate.exactly(len(kept))
        likely = (self._size - 1) * 2.0**64 / float(self._limit)
        doubt = likely * _DEVIATIONS / math.sqrt(self._size)
        return Estimate(int(likely - doubt), int(likely), math.ceil(likely + doubt))

    def _compact(self) -> None:
        kept = distinct_hashes(np.concatenate([np.empty(0, np.uint64), *self._parts]))
        if len(kept) > self._size:
            kept = kept[: self._size].copy()
            self._limit = kept[-1]
        self._parts = [kept]
        self._waiting = len(kept)


# Blocks


def from_blocks(blocks: Sequence[Hashes], share: float) -> Estimate:
    """Return how many distinct values there are in a table, of which blocks from all over are known.

    The likely number continues the growth from a few blocks to all of them (`extrapolate`), where the number
    in a few is the mean over all choices of blocks (rarefaction: Colwell et al., "Models and estimators
    linking individual-based and sample-based rarefaction, extrapolation and comparison of assemblages",
    J. Plant Ecology 5, 2012). It stays within two bounds that assume nothing of how often values occur:

    - from below that of Chao and Lin ("Nonparametric lower bounds for species richness and shared species
      richness under sampling without replacement", Biometrics 68, 2012), which is close where values are
      equally frequent, and where each lies in one block alone;
    - from above that of GEE (Charikar et al., see the module): values in one block stand for as many as there
      are blocks for each that is known.

    Both hold on average; the range adds how much chance moves them. Values that go on beside a block, and are
    in no other, make more of few blocks than there is. So the growth within the blocks is continued too, as
    if each reached to the next; the likely number is the geometric mean of both, the range holds both.

    Args:
        blocks: the hashes of each block; repeated ones count once.
        share: of all rows, those in the blocks.
    """
    parts = [distinct_hashes(block) for block in blocks if len(block)]
    if not parts:
        return Estimate.exactly(0)
    known = np.sort(np.concatenate(parts))
    starts = np.flatnonzero(np.concatenate([[True], known[1:] != known[:-1]]))
    times, values = np.unique_counts(np.diff(np.append(starts, len(known))))
    seen = len(starts)
    if share >= 1:
        return Estimate.exactly(seen)
    once, twice = (int(values[times == number].sum()) for number in (1, 2))
    # How much the blocks differ, in the number that all blocks would give.
    sizes = np.array([len(part) for part in parts])
    uneven = float(sizes.std()) * math.sqrt(len(parts)) / share if len(parts) > 1 else seen / share
    least = _chao_lin(seen, once, twice, len(parts), share)
    most = seen - once + once / share
    counts = [_rarefied(times, values, len(parts), max(1, round(part * len(parts)))) for part in _PARTS]
    likely = min(max(extrapolate(counts, 1 / share).likely, least), most)
    longer = continued(blocks, share)
    of_chance = _DEVIATIONS * math.sqrt(max(once, 1)) / share
    # Blocks of unlike sizes make no doubt where hardly anything is new any more.
    new = once / max(seen, 1)
    doubt = of_chance + _DEVIATIONS * uneven * new
    low = least - _DEVIATIONS * _chao_deviation(once, twice) - _DEVIATIONS * uneven * new
    low = min(low, longer.low)
    likely = math.sqrt(likely * min(max(longer.likely, seen), most))
    return Estimate(max(seen, int(low)), int(likely), math.ceil(most + doubt))


def continued(blocks: Sequence[Hashes], share: float) -> Estimate:
    """Return how many distinct values there are if they grow on as they do within the blocks.

    Args:
        blocks: the hashes of each block.
        share: of all rows, those in the blocks.
    """

    def in_beginnings(part: float) -> int:
        return len(distinct_hashes(np.concatenate([block[: round(part * len(block))] for block in blocks])))

    return extrapolate([in_beginnings(part) for part in _PARTS], 1 / share)


def _chao_lin(seen: int, once: int, twice: int, blocks: int, share: float) -> float:
    pairs = 2 * blocks / max(blocks - 1, 1) * twice
    return seen + once * once / max(pairs + share / (1 - share) * once, 1e-9) if once else float(seen)


def _chao_deviation(once: int, twice: int) -> float:
    """Return the standard deviation of the estimator of Chao (Biometrics 43, 1987)."""
    if not twice:
        return math.sqrt(once)
    ratio = once / twice
    return math.sqrt(twice * (ratio**4 / 4 + ratio**3 + ratio**2 / 2))


def _rarefied(times: npt.NDArray[np.int64], values: npt.NDArray[np.int64], blocks: int, chosen: int) -> float:
    """Return the mean number of distinct values in ``chosen`` of the blocks.

    Args:
        times: in how many blocks values occur.
        values: how many values do.
        blocks: all blocks.
        chosen: blocks that are chosen.
    """
    missed = [
        math.exp(
            math.lgamma(blocks - number + 1)
            + math.lgamma(blocks - chosen + 1)
            - math.lgamma(blocks - number - chosen + 1)
            - math.lgamma(blocks + 1)
        )
        if number + chosen <= blocks
        else 0.0
        for number in times.tolist()
    ]
    return float(values @ (1 - np.array(missed)))


# Growth


def extrapolate(counts: Sequence[float], factor: float) -> Estimate:
    """Return how many distinct values there are in ``factor`` times as many rows.

    With each doubling of the rows the number of distinct values grows by a factor of 2^b. When values are
    drawn alike from a bounded set, b falls by a ratio that about squares with each doubling; when their
    frequencies follow a power law, b falls by about the same ratio each time, if at all (Heaps' law). The two
    frame the estimate; between them the power to which the ratio was raised within the part decides.

    Args:
        counts: distinct values in an eighth, a quarter, a half and all of the part.
        factor: rows of the whole by rows of the part.
    """
    whole = counts[-1]
    if factor <= 1 or counts[0] <= 0:
        return Estimate.exactly(round(whole))
    exponents = [math.log2(after / before) for before, after in itertools.pairwise(counts)]
    # How far chance moves an exponent, by the number of new values it comes from.
    noise = [1 / max(after - before, 1) for before, after in itertools.pairwise(counts)]
    ratios = []
    for position, (before, after) in enumerate(itertools.pairwise(exponents)):
        ratio = min(max(after / before, _SMALLEST_RATIO), 1.0) if before > 0 else _SMALLEST_RATIO
        chance = 2 * math.sqrt(noise[position] + noise[position + 1])
        ratios.append(1.0 if 1 - ratio < chance else ratio)
    power = 1.0
    if ratios[0] < 1 and ratios[1] < 1:
        power = min(max(math.log(ratios[1]) / math.log(ratios[0]), 1.0), 2.0)
    doublings = math.log2(factor)

    def grown(power: float) -> float:
        exponent, ratio, left, total = exponents[-1], ratios[-1], doublings, 0.0
        while left > 0:
            ratio = ratio**power
            exponent *= ratio
            total += exponent * min(1.0, left)
            left -= 1
        return float(whole * 2.0**total)

    likely = grown(power)
    # Beyond what the two laws leave open, each doubling adds a little doubt; and where later rows are about
    # other things than the first ones, as in a sorted table, growth may not slow down at all.
    doubt = 1 + _DOUBT_PER_DOUBLING * doublings
    unslowed = whole * 2.0 ** (exponents[-1] * doublings)
    return Estimate(
        max(int(whole), int(min(grown(2.0), likely / doubt))),
        int(likely),
        math.ceil(max(unslowed, likely * doubt)),
    )
