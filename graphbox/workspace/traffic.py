"""Shares of a model's requests for versions besides the active one.

A canary answers its share of the requests. A shadow repeats a share of them after they were answered, and the
differences are summed here, over all servers of the workspace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Row, delete, insert, select, update

from graphbox.errors import UsageError
from graphbox.workspace import tables

__all__ = [
    "DEFAULT_TOLERANCE",
    "Canary",
    "ModelTraffic",
    "Role",
    "Shadow",
    "ShadowOutput",
    "ShadowSums",
]

Role: TypeAlias = Literal["canary", "shadow"]

DEFAULT_TOLERANCE = 1e-4
"""Largest absolute difference of two numbers that count as equal."""

_MOST_ERROR_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Canary:
    """The version that answers a share of the requests that name no version.

    Attributes:
        version: its number.
        percent: the share, above 0 and at most 100.
        change: number of the request that set it; later ones are higher.
    """

    version: int
    percent: float
    change: int


@dataclass(frozen=True, slots=True)
class Shadow:
    """The version on which a share of the answered requests is repeated.

    Attributes:
        version: its number.
        percent: the share, above 0 and at most 100.
        tolerance: largest absolute difference of two numbers that count as equal.
        change: number of the request that set it; later ones are higher.
    """

    version: int
    percent: float
    tolerance: float
    change: int


@dataclass(frozen=True, slots=True)
class ModelTraffic:
    """Versions of a model that get a share of its requests besides the active one; None: there is none."""

    canary: Canary | None = None
    shadow: Shadow | None = None


@dataclass(slots=True)
class ShadowOutput:
    """Sums of the differences of one output.

    Attributes:
        rows: rows compared.
        different_rows: rows with an element that differs by more than the tolerance, or in another shape.
        numbers: pairs of finite numbers compared.
        difference_sum: of their absolute differences.
        difference_max: the largest of these.
        listed: ids in the lists of the active version, where rows are lists of ids.
        shared: ids among them that the shadow's list of the same row has, too.
    """

    rows: int = 0
    different_rows: int = 0
    numbers: int = 0
    difference_sum: float = 0.0
    difference_max: float = 0.0
    listed: int = 0
    shared: int = 0

    def add(self, other: ShadowOutput) -> None:
        """Add other sums to these."""
        self.rows += other.rows
        self.different_rows += other.different_rows
        self.numbers += other.numbers
        self.difference_sum += other.difference_sum
        self.difference_max = max(self.difference_max, other.difference_max)
        self.listed += other.listed
        self.shared += other.shared

    @property
    def different_share(self) -> float | None:
        """Share of the rows that differ; None: none was compared."""
        return self.different_rows / self.rows if self.rows else None

    @property
    def mean_difference(self) -> float | None:
        """Mean absolute difference; None: no numbers were compared."""
        mean = self.difference_sum / self.numbers if self.numbers else math.nan
        return mean if math.isfinite(mean) else None

    @property
    def largest_difference(self) -> float | None:
        """Largest absolute difference; None: no numbers were compared."""
        return self.difference_max if self.numbers and math.isfinite(self.difference_max) else None

    @property
    def overlap(self) -> float | None:
        """Share of the listed ids that both versions list; None: rows are not lists of ids."""
        return self.shared / self.listed if self.listed else None


@dataclass(slots=True)
class ShadowSums:
    """Sums over calls that were, or should have been, repeated on a shadow.

    Attributes:
        calls: calls compared.
        failed: calls that the shadow could not answer.
        dropped: calls that were not repeated, as the server was busy or the shadow not open.
        active_ns: execution time of the compared calls on the active version.
        shadow_ns: execution time of the compared calls on the shadow.
        error: the last reason why the shadow could not answer.
        outputs: by name.
    """

    calls: int = 0
    failed: int = 0
    dropped: int = 0
    active_ns: int = 0
    shadow_ns: int = 0
    error: str | None = None
    outputs: dict[str, ShadowOutput] = field(default_factory=dict)

    def add(self, other: ShadowSums) -> None:
        """Add later sums to these."""
        self.calls += other.calls
        self.failed += other.failed
        self.dropped += other.dropped
        self.active_ns += other.active_ns
        self.shadow_ns += other.shadow_ns
        self.error = other.error or self.error
        for name, output in other.outputs.items():
            self.outputs.setdefault(name, ShadowOutput()).add(output)

    @property
    def active_ms(self) -> float | None:
        """Mean execution time of a compared call on the active version; None: none was compared."""
        return self.active_ns / self.calls / 1e6 if self.calls else None

    @property
    def shadow_ms(self) -> float | None:
        """Mean execution time of a compared call on the shadow; None: none was compared."""
        return self.shadow_ns / self.calls / 1e6 if self.calls else None


def check_percent(percent: float) -> None:
    """Reject a share out of range.

    Raises:
        UsageError: it is not above 0 and at most 100.
    """
    if not 0 < percent <= 100:
        raise UsageError(f"expected a share above 0 and at most 100 percent, received {percent}")


def check_tolerance(tolerance: float) -> None:
    """Reject a tolerance out of range.

    Raises:
        UsageError: it is negative or not finite.
    """
    if not 0 <= tolerance < math.inf:
        raise UsageError(f"expected a tolerance of at least 0, received {tolerance}")


def read_traffic(connection: Connection, name: str | None = None) -> dict[str, ModelTraffic]:
    """Return the shares by model name, of all models or of one; models without any are left out."""
    table = tables.traffic_shares
    query = select(table) if name is None else select(table).where(table.c.name == name)
    canaries: dict[str, Canary] = {}
    shadows: dict[str, Shadow] = {}
    for row in connection.execute(query):
        if row.role == "canary":
            canaries[row.name] = Canary(row.version, row.percent, row.change)
        else:
            shadows[row.name] = Shadow(row.version, row.percent, row.tolerance, row.change)
    return {
        each: ModelTraffic(canaries.get(each), shadows.get(each)) for each in canaries.keys() | shadows.keys()
    }


def write_share(
    connection: Connection, name: str, role: Role, version: int, percent: float, tolerance: float, change: int
) -> None:
    """Set the canary or the shadow of a model in place of the one before."""
    _end(connection, name, role)
    connection.execute(
        insert(tables.traffic_shares).values(
            name=name, role=role, version=version, percent=percent, tolerance=tolerance, change=change
        )
    )
    if role == "shadow":
        connection.execute(
            insert(tables.shadow_calls).values(
                name=name, change=change, calls=0, failed=0, dropped=0, active_ns=0, shadow_ns=0
            )
        )


def end_shares(
    connection: Connection, name: str, *, role: Role | None = None, version: int | None = None
) -> list[tuple[Role, int]]:
    """End the canary and the shadow of a model, or one of them, or those of one version.

    Returns:
        Role and version of each that ended.
    """
    traffic = read_traffic(connection, name).get(name, ModelTraffic())
    found: list[tuple[Role, int]] = []
    if traffic.canary is not None:
        found.append(("canary", traffic.canary.version))
    if traffic.shadow is not None:
        found.append(("shadow", traffic.shadow.version))
    ended = [each for each in found if role in (None, each[0]) and version in (None, each[1])]
    for each, _ in ended:
        _end(connection, name, each)
    return ended


def add_shadow_sums(connection: Connection, name: str, change: int, sums: ShadowSums) -> bool:
    """Add sums to those of a shadow; return False where that shadow has ended, and nothing is added."""
    calls, outputs = tables.shadow_calls, tables.shadow_outputs
    values = {
        column.name: column + getattr(sums, column.name)
        for column in (calls.c.calls, calls.c.failed, calls.c.dropped, calls.c.active_ns, calls.c.shadow_ns)
    }
    if sums.error is not None:
        values["error"] = sums.error[:_MOST_ERROR_CHARACTERS]
    row = (calls.c.name == name) & (calls.c.change == change)
    if not connection.execute(update(calls).where(row).values(values)).rowcount:
        return False
    for output_name, added in sums.outputs.items():
        key = (outputs.c.name == name) & (outputs.c.output == output_name)
        known = connection.execute(select(outputs).where(key)).one_or_none()
        total = ShadowOutput() if known is None else _output(known)
        total.add(added)
        changed = {column: getattr(total, column) for column in ShadowOutput.__dataclass_fields__}
        if known is None:
            connection.execute(insert(outputs).values(name=name, output=output_name, **changed))
        else:
            connection.execute(update(outputs).where(key).values(changed))
    return True


def read_shadow_sums(connection: Connection, name: str) -> ShadowSums | None:
    """Return the sums of the shadow of a model; None: it has no shadow."""
    calls, outputs = tables.shadow_calls, tables.shadow_outputs
    row = connection.execute(select(calls).where(calls.c.name == name)).one_or_none()
    if row is None:
        return None
    rows = connection.execute(select(outputs).where(outputs.c.name == name).order_by(outputs.c.output))
    return ShadowSums(
        row.calls,
        row.failed,
        row.dropped,
        row.active_ns,
        row.shadow_ns,
        row.error,
        {each.output: _output(each) for each in rows},
    )


def _end(connection: Connection, name: str, role: Role) -> None:
    shares = tables.traffic_shares
    connection.execute(delete(shares).where((shares.c.name == name) & (shares.c.role == role)))
    if role == "shadow":
        for table in (tables.shadow_calls, tables.shadow_outputs):
            connection.execute(delete(table).where(table.c.name == name))


def _output(row: Row[Any]) -> ShadowOutput:
    return ShadowOutput(
        row.rows,
        row.different_rows,
        row.numbers,
        row.difference_sum,
        row.difference_max,
        row.listed,
        row.shared,
    )
