"""What lives where in a training on a GPU: in its memory (HBM), in pinned host memory (MEM), or on SSD.

What is read most for its size goes to the fastest memory: items (the lists of a node, its features, its rows)
are taken in the order of the seconds that they save in an epoch for each byte of HBM, as in the fractional
knapsack problem, until it is full; the rest is divided between MEM and SSD in the same way. Budgets that the
run file gives stand before that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from graphbox.bandwidth import Bandwidths
from graphbox.words import counted_bytes

__all__ = ["KINDS", "TIERS", "Kind", "PlacedThing", "Rates", "Thing", "Tier", "place"]

Kind: TypeAlias = Literal["topology", "features", "tables"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Tier: TypeAlias = Literal["HBM", "MEM", "SSD"]
TIERS: tuple[Tier, ...] = get_args(Tier)

_SSD_BLOCK_BYTES = 4096
"""What is read of an SSD at the least."""


@dataclass(frozen=True, eq=False)
class Thing:
    """What is to be placed, item by item; items of a class are alike.

    Attributes:
        name: what it is, for people.
        kind: whose budget it counts to.
        items: int64 [classes], how many items there are.
        item_bytes: float64 [classes], bytes of an item.
        accesses: float64 [classes], how often an item is read in an epoch.
        read_bytes: what an access reads and writes.
        row_bytes: how much of it is in one piece.
        known_by: where the numbers of accesses are from, for people.
        not_in_hbm: why no item of it can be there, for people; empty: any can.
        known_bytes: what HBM has of every item, wherever it is, if some of the kind are there and not all.
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
        """What HBM has of all items, and of their end, if some of the kind are there and not all."""
        return self.known_bytes * (int(self.items.sum()) + 1)


@dataclass(frozen=True)
class Rates:
    """How fast the tiers are read.

    Attributes:
        gpu: what the GPU reads of its own memory, and of pinned host memory.
        ssd_bytes_per_s: what is read of the SSD.
    """

    gpu: Bandwidths
    ssd_bytes_per_s: float

    def seconds(self, thing: Thing, tier: Tier) -> float:
        """Return how long an access to a thing takes."""
        if tier == "SSD":
            pieces = -(-thing.read_bytes // max(thing.row_bytes, 1))
            return pieces * max(_SSD_BLOCK_BYTES, thing.row_bytes) / self.ssd_bytes_per_s
        return thing.read_bytes / self.gpu.rows("device" if tier == "HBM" else "pinned", thing.row_bytes)


@dataclass(frozen=True, eq=False)
class PlacedThing:
    """Where the items of a thing are.

    Attributes:
        thing: what was placed.
        items: int64 [classes] by tier, how many items of each class it has.
        rates: by which its seconds are told.
        why: why it is where it is, for people.
        known_bytes: what HBM has of all items beside those that are there.
    """

    thing: Thing
    items: Mapping[Tier, NDArray[np.int64]]
    rates: Rates
    why: str
    known_bytes: int = 0

    @property
    def is_near(self) -> bool:
        """Whether all items are in HBM."""
        return bool(np.array_equal(self.items["HBM"], self.thing.items))

    def bytes(self, tier: Tier) -> int:
        """Return the bytes in a tier."""
        known_bytes = self.known_bytes if tier == "HBM" else 0
        return round(float(self.items[tier] @ self.thing.item_bytes)) + known_bytes

    def share(self, tier: Tier) -> float:
        """Return the share of accesses that a tier serves; that of the bytes where nothing is accessed."""
        total = float(self.thing.items @ self.thing.accesses)
        if not total:
            return self.bytes(tier) / self.thing.bytes if self.thing.bytes else float(tier == "HBM")
        return float(self.items[tier] @ self.thing.accesses) / total

    @property
    def epoch_seconds(self) -> float:
        """How long all accesses of an epoch take by themselves."""
        return sum(
            float(self.items[tier] @ self.thing.accesses) * self.rates.seconds(self.thing, tier)
            for tier in TIERS
            if self.items[tier].any()
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "thing": self.thing.name,
            "kind": self.thing.kind,
            "bytes": self.thing.bytes,
            **{f"{tier.lower()}_bytes": self.bytes(tier) for tier in TIERS},
            **{f"{tier.lower()}_share": round(self.share(tier), 4) for tier in TIERS},
            "epoch_seconds": self.epoch_seconds,
            "accesses": float(self.thing.items @ self.thing.accesses),
            "known_by": self.thing.known_by,
            "why": self.why,
        }


def place(
    things: Sequence[Thing],
    rates: Rates,
    *,
    hbm_bytes: int,
    hbm_budgets: Mapping[Kind, int] | None = None,
    mem_budgets: Mapping[Kind, int] | None = None,
) -> list[PlacedThing]:
    """Return where each thing is.

    Args:
        things: what there is.
        rates: how fast the tiers are.
        hbm_bytes: how much HBM there is for all of them.
        hbm_budgets: how much of it the things of a kind have together, whatever the others save there.
        mem_budgets: how much host memory the things of a kind have together; without one all that is not in
            HBM, and nothing is on SSD.
    """
    given, limits = hbm_budgets or {}, mem_budgets or {}
    left = max(0, hbm_bytes)
    in_hbm = [np.zeros_like(each.items) for each in things]
    near = [number for number, each in enumerate(things) if not each.not_in_hbm]
    for kind in given:
        chosen = [number for number in near if things[number].kind == kind]
        left -= _fill_hbm(things, in_hbm, chosen, min(given[kind], left), rates)
    free = [number for number in near if things[number].kind not in given]
    _fill_hbm(things, in_hbm, free, left, rates)
    in_mem = [np.zeros_like(each.items) for each in things]
    for kind in KINDS:
        chosen = [number for number, each in enumerate(things) if each.kind == kind]
        if kind in limits:
            _fill(things, in_mem, chosen, limits[kind], rates, ("MEM", "SSD"), taken=in_hbm)
        else:
            for number in chosen:
                in_mem[number] = things[number].items - in_hbm[number]
    placed = []
    for thing, hbm, mem in zip(things, in_hbm, in_mem, strict=True):
        items: dict[Tier, NDArray[np.int64]] = {"HBM": hbm, "MEM": mem, "SSD": thing.items - hbm - mem}
        known_bytes = thing.all_known_bytes if thing.kind in _kinds_in_part(things, in_hbm) else 0
        why = _why(thing, items, given.get(thing.kind), hbm_bytes)
        placed.append(PlacedThing(thing, items, rates, why, known_bytes))
    return placed


def _fill_hbm(
    things: Sequence[Thing],
    in_hbm: list[NDArray[np.int64]],
    chosen: Sequence[int],
    room: int,
    rates: Rates,
) -> int:
    """Put items into HBM, and what must be known there of a kind that is there in part; return the bytes.

    What is known comes first: without room for it and an item no item is there.
    """
    used = _fill(things, in_hbm, chosen, room, rates, ("HBM", "MEM"))
    known = [number for number in chosen if things[number].known_bytes]
    if all(np.array_equal(in_hbm[number], things[number].items) for number in known):
        return used
    known_bytes = sum(things[number].all_known_bytes for number in known)
    if known_bytes < room:
        used = _fill(things, in_hbm, chosen, room - known_bytes, rates, ("HBM", "MEM"))
        if any(in_hbm[number].any() for number in known):
            return known_bytes + used
    for number in known:
        in_hbm[number][:] = 0
    others = [number for number in chosen if number not in known]
    return _fill(things, in_hbm, others, room, rates, ("HBM", "MEM"))


def _kinds_in_part(things: Sequence[Thing], in_hbm: Sequence[NDArray[np.int64]]) -> set[Kind]:
    """Return the kinds of which some items are in HBM and some are not."""
    pairs = list(zip(things, in_hbm, strict=True))
    some = {thing.kind for thing, items in pairs if items.any()}
    return {thing.kind for thing, items in pairs if thing.kind in some and (items < thing.items).any()}


def _fill(
    things: Sequence[Thing],
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
        things: all there are.
        held: int64 [classes] of each thing, what the tier has; changed.
        chosen: which of the things.
        room: bytes that there are.
        rates: how fast the tiers are.
        tiers: the tier, and that of the rest.
        taken: int64 [classes] of each thing, what a faster tier has.
    """
    if not chosen:
        return 0
    owner = np.concatenate([np.full(len(things[number].items), number) for number in chosen])
    place_of = np.concatenate([np.arange(len(things[number].items)) for number in chosen])
    saved = []
    for number in chosen:
        thing = things[number]
        seconds = rates.seconds(thing, tiers[1]) - rates.seconds(thing, tiers[0])
        saved.append(thing.accesses * seconds / np.maximum(thing.item_bytes, 1e-9))
    left = float(room)
    for at in np.argsort(-np.concatenate(saved), kind="stable"):
        number, row = int(owner[at]), int(place_of[at])
        thing = things[number]
        there = int(thing.items[row]) - (0 if taken is None else int(taken[number][row]))
        size = float(thing.item_bytes[row])
        count = there if size * there <= left else int(left // size)
        held[number][row] = count
        left -= count * size
    return round(room - left)


def _why(thing: Thing, items: Mapping[Tier, NDArray[np.int64]], budget: int | None, hbm_bytes: int) -> str:
    count, there = int(items["HBM"].sum()), int(thing.items.sum())
    is_given = budget is not None
    by = f"memory.hbm.{thing.kind}" if is_given else "HBM"
    if thing.not_in_hbm:
        return f"{thing.not_in_hbm}; {by} changes nothing here" if budget else thing.not_in_hbm
    if count == there:
        return f"all of it fits {by}"
    if not count and hbm_bytes <= 0:
        return "no room in HBM: computing takes all of it"
    if not count and thing.known_bytes:
        known = f"what it must know of all of them, {counted_bytes(thing.all_known_bytes)}"
        return f"no room in {by} beside {known}"
    if not count:
        return f"no room in {by}: others save more there" if not is_given else f"no room in {by}"
    return f"{count / there:.1%} of its items, those that are read most for their size, fill {by}"
