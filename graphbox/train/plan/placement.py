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

    @property
    def bytes(self) -> int:
        """Bytes of all items."""
        return round(float(self.items @ self.item_bytes))


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
    """

    thing: Thing
    items: Mapping[Tier, NDArray[np.int64]]
    rates: Rates
    why: str

    def bytes(self, tier: Tier) -> int:
        """Return the bytes in a tier."""
        return round(float(self.items[tier] @ self.thing.item_bytes))

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
        left -= _fill(things, in_hbm, chosen, min(given[kind], left), rates, ("HBM", "MEM"))
    free = [number for number in near if things[number].kind not in given]
    _fill(things, in_hbm, free, left, rates, ("HBM", "MEM"))
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
        why = thing.not_in_hbm or _why(thing, items, thing.kind in given, hbm_bytes)
        placed.append(PlacedThing(thing, items, rates, why))
    return placed


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


def _why(thing: Thing, items: Mapping[Tier, NDArray[np.int64]], is_given: bool, hbm_bytes: int) -> str:
    count, there = int(items["HBM"].sum()), int(thing.items.sum())
    by = f"memory.hbm.{thing.kind}" if is_given else "HBM"
    if count == there:
        return f"all of it fits {by}"
    if not count and hbm_bytes <= 0:
        return "no room in HBM: computing takes all of it"
    if not count:
        return f"no room in {by}: others save more there" if not is_given else f"no room in {by}"
    return f"{count / there:.1%} of its items, those that are read most for their size, fill {by}"
