"""All figures of a table at once."""

from __future__ import annotations

from dataclasses import dataclass

from graphbox.table.policy import PolicyEvents
from graphbox.table.tier import TierStatistics


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Contents of a table and its activity in this process; ``print`` shows them as a few lines.

    Attributes:
        rows: number of rows in memory and on SSD.
        nbytes: memory of rows and index in bytes.
        memory_bytes: the most memory the table may take, or None.
        passes: number of passes that have ended.
        skipped_gradients: pushed gradients that held NaN or infinity and were left out.
        policies: counts of admission, eviction and shrinking.
        tier: rows by tier and transfers; None for a table without a folder.
    """

    rows: int
    nbytes: int
    memory_bytes: int | None
    passes: int
    skipped_gradients: int
    policies: PolicyEvents
    tier: TierStatistics | None

    def __str__(self) -> str:
        budget = "" if self.memory_bytes is None else f" of {_mebibytes(self.memory_bytes)}"
        lines = [f"{self.rows:,} rows, {_mebibytes(self.nbytes)}{budget} memory, {self.passes:,} passes"]
        if self.tier is not None:
            lines += _tier_lines(self.tier)
        events = self.policies
        happened = {
            "keys admitted": events.admitted_keys,
            "pulled positions refused a row": events.refused_pulls,
            "gradients dropped": events.dropped_gradients,
            "gradients not finite": self.skipped_gradients,
            "rows evicted": events.evicted_rows,
            "rows dropped by shrink()": events.dropped_rows,
        }
        lines.append(", ".join(f"{count:,} {what}" for what, count in happened.items() if count))
        return "\n".join(line for line in lines if line)


@dataclass(frozen=True, slots=True)
class DeviceTableStatistics:
    """Contents of a :class:`graphbox.table.DeviceTable` and its transfers since it was made.

    Attributes:
        rows: rows on the device.
        room_rows: the most that it has room for.
        changed_rows: of them, those that were not written back to the table below.
        hbm_bytes: memory of the device for rows, state, hash and staging.
        hits: positions of batches whose rows were on the device.
        misses: positions whose rows were not.
        rows_read: rows copied to the device when they were pulled.
        rows_prefetched: rows copied there before.
        rows_evicted: rows evicted to make room.
        rows_written: rows copied back.
        below: figures of the table that keeps the rows.
    """

    rows: int
    room_rows: int
    changed_rows: int
    hbm_bytes: int
    hits: int
    misses: int
    rows_read: int
    rows_prefetched: int
    rows_evicted: int
    rows_written: int
    below: TableStatistics

    def __str__(self) -> str:
        lookups = self.hits + self.misses
        found = f", {self.hits / lookups:.1%} of {lookups:,} lookups found there" if lookups else ""
        moved = {
            "read": self.rows_read,
            "prefetched": self.rows_prefetched,
            "evicted": self.rows_evicted,
            "written back": self.rows_written,
        }
        rows = f"{self.rows:,} of at most {self.room_rows:,}"
        lines = [
            f"{rows} rows on the device, {self.changed_rows:,} changed, {_mebibytes(self.hbm_bytes)}{found}",
            ", ".join(f"{count:,} rows {what}" for what, count in moved.items() if count),
            str(self.below),
        ]
        return "\n".join(line for line in lines if line)


def _tier_lines(tier: TierStatistics) -> list[str]:
    lookups = tier.hits + tier.misses
    found = f", {tier.hits / lookups:.1%} of {lookups:,} lookups found in memory" if lookups else ""
    moved = f"{_mebibytes(tier.bytes_read)} read, {_mebibytes(tier.bytes_written)} written"
    size = f"{_mebibytes(tier.segment_bytes)}, {tier.live_share:.0%} of their rows live"
    return [
        f"{tier.hot_rows:,} rows in memory, {tier.cold_rows:,} on SSD alone{found}",
        f"{tier.segments:,} segments, {size}; {moved}",
    ]


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f} MiB"
