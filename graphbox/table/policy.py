"""Admission, expiry and scores of a table's rows: docs/guides/table-policies.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import host_array
from graphbox.table.arguments import Float32Array, chosen, integer, nonnegative

Eviction: TypeAlias = Literal["clock", "score"]

_MOST_COUNT: Final = 2**32 - 2
_MOST_EXACT_COUNT: Final = 2**30 - 1
_MOST_SKETCH_COUNT: Final = 255
_LEAST_SKETCH_BYTES: Final = 1024
_MOST_SKETCH_BYTES: Final = 2**34
_PULLS_PER_SKETCH_BYTE: Final = 8


@dataclass(frozen=True, slots=True)
class CountAdmission:
    """A key gets a row with the pull in which it was pulled ``count`` times.

    Pulls that may create rows count, each position of their batches; a refused pull counts nothing. Counts
    of keys without a row are kept exactly, or in a count-min sketch with conservative update:
    ``sketch_bytes`` is all it takes, it never says less than the count, and more by at most ``4 e N /
    sketch_bytes`` for 98.2 % of keys at least, where N are the pulls it remembers (at most twice
    ``halve_after``; by the usual bound for the standard sketch, which conservative update only improves).
    The key of an evicted row starts to count again, but in a sketch, where what was counted stays until it
    is halved away.

    Args:
        count: 1 or more; with a sketch at most 255.
        sketch_bytes: of the sketch, 1,024 to 2^34. None: exact counts, 16 to 19 bytes for each key without a
            row, which count towards ``memory_bytes`` as the sketch does.
        halve_after: halve all counts whenever so many pulls of keys without a row were counted, so that what
            is rare is forgotten and memory suffices for ever. 0: never. None: never for exact counts;
            ``sketch_bytes // 8`` for a sketch, whose error then stays below one e (2.7) for 98.2 % of keys.

    Raises:
        UsageError: a number out of its range.
    """

    count: int
    sketch_bytes: int | None = None
    halve_after: int | None = None

    def __post_init__(self) -> None:
        most = _MOST_EXACT_COUNT if self.sketch_bytes is None else _MOST_SKETCH_COUNT
        integer(self.count, "count", 1, most)
        if self.sketch_bytes is not None:
            integer(self.sketch_bytes, "sketch_bytes", _LEAST_SKETCH_BYTES, _MOST_SKETCH_BYTES)
        if self.halve_after is not None:
            integer(self.halve_after, "halve_after", 0, 2**63)


@dataclass(frozen=True, slots=True)
class ProbabilityAdmission:
    """A key gets a row with this probability, in each pass anew.

    The draw is a function of the table's seed, the key and the number of passes that ended, so pulls and
    pushes of a pass agree about a key, whatever the order and the number of threads. A key that comes in k
    passes is admitted with probability ``1 - (1 - probability)^k``.

    Args:
        probability: above 0, at most 1.

    Raises:
        UsageError: another number.
    """

    probability: float

    def __post_init__(self) -> None:
        if not 0 < nonnegative(self.probability, "probability") <= 1:
            raise UsageError(
                f"expected a number above 0 and at most 1, received {self.probability!r}", where="probability"
            )


Admission: TypeAlias = CountAdmission | ProbabilityAdmission


@dataclass(frozen=True, slots=True)
class Expiry:
    """Shrinking drops rows that no push has seen for long; a new row counts as seen.

    Args:
        passes: drop rows unseen for more than so many passes. None: passes do not matter.
        seconds: drop rows unseen for more than so many seconds, by the table's clock. None: time does not
            matter.

    Raises:
        UsageError: a number out of its range, or both None.
    """

    passes: int | None = 30
    seconds: int | None = None

    def __post_init__(self) -> None:
        if self.passes is None and self.seconds is None:
            raise UsageError("expected passes or seconds, received neither", where="expiry")
        if self.passes is not None:
            integer(self.passes, "passes", 0, _MOST_COUNT)
        if self.seconds is not None:
            integer(self.seconds, "seconds", 0, _MOST_COUNT)


@dataclass(frozen=True, slots=True)
class ShowClickScore:
    """Score of a row: ``(shows - clicks) * nonclick_weight + clicks * click_weight``.

    Each position of a push is one show unless the push says otherwise; clicks come with the push. Shows and
    clicks of earlier passes decay: by ``decay`` for each pass since.

    Args:
        nonclick_weight: 0 or more.
        click_weight: 0 or more.
        decay: above 0, at most 1.
        drop_below: shrinking drops rows of a lower score; 0: none.

    Raises:
        UsageError: a number is out of its range.
    """

    nonclick_weight: float = 0.1
    click_weight: float = 1.0
    decay: float = 0.98
    drop_below: float = 0.8

    def __post_init__(self) -> None:
        for name in ("nonclick_weight", "click_weight", "drop_below"):
            nonnegative(getattr(self, name), name)
        if not 0 < nonnegative(self.decay, "decay") <= 1:
            raise UsageError(
                f"expected a number above 0 and at most 1, received {self.decay!r}", where="decay"
            )


@dataclass(frozen=True, slots=True)
class TablePolicies:
    """All policies of a table; see :class:`graphbox.table.EmbeddingTable`.

    Raises:
        UsageError: an attribute that is no policy of its kind.
    """

    admission: Admission | None = None
    expiry: Expiry | None = None
    score: ShowClickScore | None = None
    eviction: Eviction | None = None

    def __post_init__(self) -> None:
        kinds = {
            "admission": CountAdmission | ProbabilityAdmission,
            "expiry": Expiry,
            "score": ShowClickScore,
        }
        for name, kind in kinds.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                names = " or ".join(getattr(kind, "__name__", str(kind)).split(" | "))
                raise UsageError(f"expected {names} or None, received {value!r}", where=name)
        if self.eviction is not None:
            chosen(self.eviction, "eviction", Eviction)

    @property
    def has_counters(self) -> bool:
        """Whether rows have counters: 16 bytes each."""
        return self.score is not None or self.expiry is not None

    def check_place(self, *, has_budget: bool, has_folder: bool) -> None:
        """Check that these policies can do what they are for, where a table's rows are kept.

        Args:
            has_budget: the table has ``memory_bytes``.
            has_folder: rows that find no room in memory go to a folder on SSD.

        Raises:
            UsageError: eviction without a budget, or a policy for rows in memory beside a folder.
        """
        if self.eviction is not None and not has_budget:
            raise UsageError(
                f"expected memory_bytes beside eviction={self.eviction!r}: rows leave when it is used up; "
                "received None, which is never used up",
                where="memory_bytes",
                hint="say how much memory the table may take, or leave out eviction",
            )
        if not has_folder:
            return
        if self.eviction is not None:
            raise UsageError(
                "expected no eviction, which drops rows, of a table whose rows go to SSD instead; received "
                f"{self.eviction!r}",
                where="eviction",
                hint="leave out eviction or path; expiry and score drop rows in shrink()",
            )
        if isinstance(self.admission, CountAdmission) and self.admission.sketch_bytes is None:
            raise UsageError(
                "expected sketch_bytes: a table with rows on SSD counts keys in a sketch of fixed size",
                where="admission",
                hint=f"CountAdmission({self.admission.count}, sketch_bytes=...); about 16 bytes for each key "
                "that is counted at a time",
            )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a table with these policies."""
        return {name: getattr(self, name) for name in (*_KINDS, "eviction")}

    def to_document(self) -> dict[str, Any]:
        """Return what JSON can hold, for :meth:`from_document`."""
        document: dict[str, Any] = {"eviction": self.eviction}
        for name, kinds in _KINDS.items():
            policy = getattr(self, name)
            kind = next((key for key, value in kinds.items() if type(policy) is value), None)
            document[name] = None if kind is None else {"kind": kind, **asdict(policy)}
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TablePolicies:
        """Return the policies that :meth:`to_document` described.

        Raises:
            UsageError: it did not make this document.
        """
        policies: dict[str, Any] = {}
        try:
            for name, kinds in _KINDS.items():
                settings = document[name]
                if settings is not None:
                    settings = dict(settings)
                    policies[name] = kinds[settings.pop("kind")](**settings)
            return cls(**policies, eviction=document["eviction"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UsageError(
                f"expected the policies of a table, received {document!r}", where="policies"
            ) from None

    def to_core(self) -> _core.PolicyConfig:
        """Return them as the native core takes them."""
        settings: dict[str, Any] = {"eviction": self.eviction or "none"}
        if isinstance(self.admission, CountAdmission):
            sketch_bytes = self.admission.sketch_bytes
            halve_after = self.admission.halve_after
            if halve_after is None:
                halve_after = 0 if sketch_bytes is None else sketch_bytes // _PULLS_PER_SKETCH_BYTE
            settings |= {
                "admission": "count" if sketch_bytes is None else "sketch",
                "admission_count": self.admission.count,
                "sketch_bytes": sketch_bytes or 0,
                "halve_after": halve_after,
            }
        elif self.admission is not None:
            settings |= {"admission": "probability", "admission_probability": self.admission.probability}
        if self.expiry is not None:
            settings |= {"expiry_passes": self.expiry.passes, "expiry_seconds": self.expiry.seconds}
        if self.score is not None:
            settings |= {"has_score": True, **asdict(self.score)}
        return _core.PolicyConfig(**settings)


_KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "admission": {"count": CountAdmission, "probability": ProbabilityAdmission},
    "expiry": {"unseen": Expiry},
    "score": {"show_click": ShowClickScore},
}


@dataclass(frozen=True, slots=True)
class PolicyEvents:
    """Counts of policy events of a table in this process.

    Attributes:
        admitted_keys: keys that got a row, in a table without admission all new ones.
        refused_pulls: positions of pulled batches whose key got no row, and so its initial values.
        dropped_gradients: positions of pushed batches whose key had no row, and got none.
        evicted_rows: rows that left because ``memory_bytes`` was used up.
        dropped_rows: rows that left by :meth:`graphbox.table.EmbeddingTable.shrink`.
    """

    admitted_keys: int
    refused_pulls: int
    dropped_gradients: int
    evicted_rows: int
    dropped_rows: int


@dataclass(frozen=True, slots=True)
class ShrinkReport:
    """Rows dropped by a shrink, by reason: each row for the first that holds.

    Attributes:
        examined: rows there were.
        unseen_passes: dropped because no push had seen them for more passes than ``Expiry.passes``.
        unseen_seconds: dropped because no push had seen them for longer than ``Expiry.seconds``.
        low_score: dropped because their score was below ``ShowClickScore.drop_below``.
        freed_bytes: memory that is free for new rows now; the table keeps it.
    """

    examined: int
    unseen_passes: int
    unseen_seconds: int
    low_score: int
    freed_bytes: int

    @property
    def dropped(self) -> int:
        """Rows that left."""
        return self.unseen_passes + self.unseen_seconds + self.low_score

    @property
    def kept(self) -> int:
        """Rows that stayed."""
        return self.examined - self.dropped

    def __str__(self) -> str:
        reasons = (
            (self.unseen_passes, "unseen for too many passes"),
            (self.unseen_seconds, "unseen for too long"),
            (self.low_score, "of low score"),
        )
        why = ", ".join(f"{rows:,} {reason}" for rows, reason in reasons if rows)
        return (
            f"dropped {self.dropped:,} of {self.examined:,} rows{f' ({why})' if why else ''}; "
            f"{self.kept:,} kept, {self.freed_bytes:,} bytes free for new ones"
        )


@dataclass(frozen=True, slots=True)
class RowCounters:
    """Policy counters of some keys: arrays of their shape, all 0 for a key without a row.

    Attributes:
        has_row: bool.
        shows: float32, decayed to the present pass.
        clicks: float32, as shows.
        score: float32; see :class:`ShowClickScore`. 0 without one.
        unseen_passes: uint32, the passes that ended since a push saw the row.
        last_seen: uint32, seconds since 1970 when a push last saw the row.
    """

    has_row: npt.NDArray[np.bool_]
    shows: Float32Array
    clicks: Float32Array
    score: Float32Array
    unseen_passes: npt.NDArray[np.uint32]
    last_seen: npt.NDArray[np.uint32]


def clock_seconds(now: object) -> int:
    """Return what a table's clock said as whole seconds since 1970, as counters hold them.

    Raises:
        UsageError: no time from 1970 to 2106.
    """
    if isinstance(now, bool) or not isinstance(now, int | float | np.number) or not math.isfinite(now):
        raise UsageError(f"expected seconds since 1970, received {now!r}", where="clock")
    return integer(math.floor(now), "clock", 0, _MOST_COUNT)


def show_counts(counts: object, name: str, shape: tuple[int, ...]) -> Float32Array | None:
    """Return shows or clicks of a push as contiguous float32 [n], copied only where needed.

    Raises:
        UsageError: another shape, or no numbers.
    """
    if counts is None:
        return None
    array = np.asarray(host_array(counts, name))
    if array.dtype.kind not in "iufb" or array.shape != shape:
        raise UsageError(f"expected numbers {shape}, received {array.dtype} {array.shape}", where=name)
    return np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
