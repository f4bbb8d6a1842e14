"""Placement of graph and tables on a GPU (HBM), in pinned host memory (MEM), or on SSD.

Items (the lists of a node, its features, its rows) go to HBM in descending order of the seconds that they
save in an epoch for each byte, as in the fractional knapsack problem, until it is full; the rest is divided
between MEM and SSD in the same way. Budgets of the run file take precedence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from graphbox.bandwidth import Bandwidths
from graphbox.words import counted_bytes

Kind: TypeAlias = Literal["topology", "features", "tables"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Tier: TypeAlias = Literal["HBM", "MEM", "SSD"]
TIERS: tuple[Tier, ...] = get_args(Tier)

_SSD_BLOCK_BYTES = 4096
"""Smallest read of an SSD."""


@dataclass(frozen=True, eq=False)
class DataPart:
    """A part of graph or tables to place, item by item; items of a class are equal.

    Attributes:
        name: shown to people.
        kind: the budget it counts to.
        items: int64 [classes], number of items.
        item_bytes: float64 [classes], bytes of an item.
        accesses: float64 [classes], reads of an item in an epoch.
        read_bytes: bytes that an access reads and writes.
        row_bytes: contiguous bytes of an access.
        known_by: source of the numbers of accesses, shown to people.
        not_in_hbm: why no item can be in HBM, shown to people; empty: any can.
        known_bytes: bytes of the index in HBM for every item, if some of the kind are there and not all.
    """

    name: str
    kind: Kind
    items: NDArray[np.int64]
    item_bytes: NDArray[np.float64]
    accesses: NDArray[np.float64]
    read_bytes: float
    row_bytes: int
    known_by: str
    not_in_hbm: str = ""
    known_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of all items."""
        return round(float(self.items @ self.item_bytes))

    @property
    def all_known_bytes(self) -> int:
        """Bytes of the index in HBM for all items and their end, if not all of the kind are there."""
        return self.known_bytes * (int(self.items.sum()) + 1)


@dataclass(frozen=True)
class Rates:
    """Read rates of the tiers.

    Attributes:
        gpu: rates of the GPU on its own memory, and on pinned host memory.
        ssd_bytes_per_s: rate of the SSD.
    """

    gpu: Bandwidths
    ssd_bytes_per_s: float

    def seconds(self, part: DataPart, tier: Tier) -> float:
        """Return the seconds of an access to a part."""
        if tier == "SSD":
            pieces = -(-part.read_bytes // max(part.row_bytes, 1))
            return pieces * max(_SSD_BLOCK_BYTES, part.row_bytes) / self.ssd_bytes_per_s
        return part.read_bytes / self.gpu.rows("device" if tier == "HBM" else "pinned", part.row_bytes)


@dataclass(frozen=True, eq=False)
class PlacedPart:
    """Where the items of a part are.

    Attributes:
        part: what was placed.
        items: int64 [classes] by tier, how many items of each class it has.
        rates: by which its seconds are told.
        why: why it is where it is, for people.
        known_bytes: what HBM has of all items beside those that are there.
    """

    part: DataPart
    items: Mapping[Tier, NDArray[np.int64]]
    rates: Rates
    why: str
    known_bytes: int = 0

    @property
    def is_near(self) -> bool:
        """Whether all items are in HBM."""
        return bool(np.array_equal(self.items["HBM"], self.part.items))

    def bytes(self, tier: Tier) -> int:
        """Return the bytes in a tier."""
        known_bytes = self.known_bytes if tier == "HBM" else 0
        return round(float(self.items[tier] @ self.part.item_bytes)) + known_bytes

    def share(self, tier: Tier) -> float:
        """Return the share of accesses that a tier serves; that of the bytes where nothing is accessed."""
        total = float(self.part.items @ self.part.accesses)
        if not total:
            return self.bytes(tier) / self.part.bytes if self.part.bytes else float(tier == "HBM")
        return float(self.items[tier] @ self.part.accesses) / total

    @property
    def epoch_seconds(self) -> float:
        """Time of all accesses of an epoch, by themselves."""
        return sum(
            float(self.items[tier] @ self.part.accesses) * self.rates.seconds(self.part, tier)
            for tier in TIERS
            if self.items[tier].any()
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "part": self.part.name,
            "kind": self.part.kind,
            "bytes": self.part.bytes,
            **{f"{tier.lower()}_bytes": self.bytes(tier) for tier in TIERS},
            **{f"{tier.lower()}_share": round(self.share(tier), 4) for tier in TIERS},
            "epoch_seconds": self.epoch_seconds,
            "accesses": float(self.part.items @ self.part.accesses),
            "known_by": self.part.known_by,
            "why": self.why,
        }


def place(
    parts: Sequence[DataPart],
    rates: Rates,
    *,
    hbm_bytes: int,
    hbm_budgets: Mapping[Kind, int] | None = None,
    mem_budgets: Mapping[Kind, int] | None = None,
) -> list[PlacedPart]:
    """Return where each part is.

    Args:
        parts: what there is.
        rates: how fast the tiers are.
        hbm_bytes: how much HBM there is for all of them.
        hbm_budgets: how much of it the parts of a kind have together, whatever the others save there.
        mem_budgets: how much host memory the parts of a kind have together; without one all that is not in
            HBM, and nothing is on SSD.
    """
    given, limits = hbm_budgets or {}, mem_budgets or {}
    left = max(0, hbm_bytes)
    in_hbm = [np.zeros_like(each.items) for each in parts]
    near = [number for number, each in enumerate(parts) if not each.not_in_hbm]
    for kind in given:
        chosen = [number for number in near if parts[number].kind == kind]
        left -= _fill_hbm(parts, in_hbm, chosen, min(given[kind], left), rates)
    free = [number for number in near if parts[number].kind not in given]
    _fill_hbm(parts, in_hbm, free, left, rates)
    in_mem = [np.zeros_like(each.items) for each in parts]
    for kind in KINDS:
        chosen = [number for number, each in enumerate(parts) if each.kind == kind]
        if kind in limits:
            _fill(parts, in_mem, chosen, limits[kind], rates, ("MEM", "SSD"), taken=in_hbm)
        else:
            for number in chosen:
                in_mem[number] = parts[number].items - in_hbm[number]
    placed = []
    for part, hbm, mem in zip(parts, in_hbm, in_mem, strict=True):
        items: dict[Tier, NDArray[np.int64]] = {"HBM": hbm, "MEM": mem, "SSD": part.items - hbm - mem}
        known_bytes = part.all_known_bytes if part.kind in _kinds_in_part(parts, in_hbm) else 0
        why = _why(part, items, given.get(part.kind), hbm_bytes)
        placed.append(PlacedPart(part, items, rates, why, known_bytes))
    return placed


def _fill_hbm(
    parts: Sequence[DataPart],
    in_hbm: list[NDArray[np.int64]],
    chosen: Sequence[int],
    room: int,
    rates: Rates,
) -> int:
    """Put items into HBM, and what must be known there of a kind that is there in part; return the bytes.

    What is known comes first: without room for it and an item no item is there.
    """
    used = _fill(parts, in_hbm, chosen, room, rates, ("HBM", "MEM"))
    known = [number for number in chosen if parts[number].known_bytes]
    if all(np.array_equal(in_hbm[number], parts[number].items) for number in known):
        return used
    known_bytes = sum(parts[number].all_known_bytes for number in known)
    if known_bytes < room:
        used = _fill(parts, in_hbm, chosen, room - known_bytes, rates, ("HBM", "MEM"))
        if any(in_hbm[number].any() for number in known):
            return known_bytes + used
    for number in known:
        in_hbm[number][:] = 0
    others = [number for number in chosen if number not in known]
    return _fill(parts, in_hbm, others, room, rates, ("HBM", "MEM"))


def _kinds_in_part(parts: Sequence[DataPart], in_hbm: Sequence[NDArray[np.int64]]) -> set[Kind]:
    """Return the kinds of which some items are in HBM and some are not."""
    pairs = list(zip(parts, in_hbm, strict=True))
    some = {part.kind for part, items in pairs if items.any()}
    return {part.kind for part, items in pairs if part.kind in some and (items < part.items).any()}


def _fill(
    parts: Sequence[DataPart],
    held: list[NDArray[np.int64]],
    chosen: Sequence[int],
    room: int,
    rates: Rates,
    tiers: tuple[Tier, Tier],
    *,
    taken: Sequence[NDArray[np.int64]] | None = None,
) -> int:
    """Put items into a tier, by what they save there beside the next, until it is full; return their bytes.

    Args:
        parts: all there are.
        held: int64 [classes] of each part, what the tier has; changed.
        chosen: which of the parts.
        room: bytes that there are.
        rates: how fast the tiers are.
        tiers: the tier, and that of the rest.
        taken: int64 [classes] of each part, what a faster tier has.
    """
    if not chosen:
        return 0
    owner = np.concatenate([np.full(len(parts[number].items), number) for number in chosen])
    place_of = np.concatenate([np.arange(len(parts[number].items)) for number in chosen])
    saved = []
    for number in chosen:
        part = parts[number]
        seconds = rates.seconds(part, tiers[1]) - rates.seconds(part, tiers[0])
        saved.append(part.accesses * seconds / np.maximum(part.item_bytes, 1e-9))
    left = float(room)
    for at in np.argsort(-np.concatenate(saved), kind="stable"):
        number, row = int(owner[at]), int(place_of[at])
        part = parts[number]
        there = int(part.items[row]) - (0 if taken is None else int(taken[number][row]))
        size = float(part.item_bytes[row])
        count = there if size * there <= left else int(left // size)
        held[number][row] = count
        left -= count * size
    return round(room - left)


def _why(part: DataPart, items: Mapping[Tier, NDArray[np.int64]], budget: int | None, hbm_bytes: int) -> str:
    count, there = int(items["HBM"].sum()), int(part.items.sum())
    is_given = budget is not None
    by = f"memory.hbm.{part.kind}" if is_given else "HBM"
    if part.not_in_hbm:
        return f"{part.not_in_hbm}; {by} changes nothing here" if budget else part.not_in_hbm
    if count == there:
        return f"all of it fits {by}"
    if not count and hbm_bytes <= 0:
        return "no room in HBM: computing takes all of it"
    if not count and part.known_bytes:
        known = f"what it must know of all of them, {counted_bytes(part.all_known_bytes)}"
        return f"no room in {by} beside {known}"
    if not count:
        return f"no room in {by}: others save more there" if not is_given else f"no room in {by}"
    return f"{count / there:.1%} of its items, those that are read most for their size, fill {by}"
