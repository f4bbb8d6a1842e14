"""Assignment of requests to versions of a model: rolling back, canaries and shadows."""

from __future__ import annotations

from sqlalchemy import Connection, select

from graphbox.errors import UsageError
from graphbox.workspace import tables
from graphbox.workspace.models import Models
from graphbox.workspace.records import ModelRecord
from graphbox.workspace.serving import next_change
from graphbox.workspace.traffic import (
    DEFAULT_TOLERANCE,
    Canary,
    ModelTraffic,
    Role,
    Shadow,
    ShadowSums,
    check_percent,
    check_tolerance,
    end_shares,
    read_shadow_sums,
    read_traffic,
    write_share,
)


class Versions(Models):
    """Assignment of requests to versions of a model."""

    def roll_back_model(self, name: str) -> ModelRecord:
        """Make the version active that was active before the present one; return it.

        Raises:
            NotFoundError: there is no such model.
            UsageError: no version was active before, or none of those is left.
            FormatError: its folder is gone.
        """
        versions = {record.version: record.active for record in self.models(name)}
        if not versions:
            self._find_model(name, None)  # raises the error with close names
        table = tables.events
        of_name = (table.c.kind == "model") & (table.c.name == name)
        query = select(table.c.event, table.c.detail).where(of_name).order_by(table.c.id.desc())
        with self._database.read() as connection:
            events = connection.execute(query).all()
        first = [row.detail["version"] for row in events if row.event == "added"][-1:]
        active_once = [row.detail["version"] for row in events if row.event == "promoted"] + first
        earlier = next((each for each in active_once if versions.get(each) is False), None)
        if earlier is None:
            raise UsageError(
                f"no other version of the model `{name}` that was active before is left",
                where=str(self.root),
                hint=f"`graphbox models promote {name} --version N` chooses one of its versions",
            )
        return self.promote_model(name, earlier)

    def set_canary(self, name: str, version: int, percent: float) -> Canary:
        """Let a version answer a share of the requests that name no version, in place of another canary.

        Args:
            name: of the model.
            version: not the active one.
            percent: the share, above 0 and at most 100.

        Raises:
            NotFoundError: there is no such version.
            UsageError: it is the active version or of another kind, or the share is out of range.
            FormatError: its folder is gone.
        """
        check_percent(percent)
        change = self._set_share(name, "canary", version, percent, 0.0)
        return Canary(version, percent, change)

    def set_shadow(
        self, name: str, version: int, percent: float = 100.0, tolerance: float = DEFAULT_TOLERANCE
    ) -> Shadow:
        """Repeat a share of the answered requests on a version; its sums begin at 0.

        Args:
            name: of the model.
            version: not the active one.
            percent: the share, above 0 and at most 100.
            tolerance: largest absolute difference of two numbers that count as equal.

        Raises:
            NotFoundError: there is no such version.
            UsageError: it is the active version or of another kind, or the share or the tolerance is out of
                range.
            FormatError: its folder is gone.
        """
        check_percent(percent)
        check_tolerance(tolerance)
        change = self._set_share(name, "shadow", version, percent, tolerance)
        return Shadow(version, percent, tolerance, change)

    def end_share(self, name: str, role: Role) -> bool:
        """End the canary or the shadow of a model; return whether there was one.

        Raises:
            NotFoundError: there is no such model.
        """
        self._find_model(name, None)
        with self._database.write() as connection:
            ended = end_shares(connection, name, role=role)
            self._note_ended(connection, name, ended)
        return bool(ended)

    def traffic(self, name: str) -> ModelTraffic:
        """Return the canary and the shadow of a model.

        Raises:
            NotFoundError: there is no such model.
        """
        self._find_model(name, None)
        return self.traffic_of_models().get(name, ModelTraffic())

    def traffic_of_models(self) -> dict[str, ModelTraffic]:
        """Return the canaries and shadows by model name; models without any are left out."""
        with self._database.read() as connection:
            return read_traffic(connection)

    def shadow_sums(self, name: str) -> ShadowSums | None:
        """Return the sums of the shadow of a model, as servers have written them; None: it has no shadow."""
        with self._database.read() as connection:
            return read_shadow_sums(connection, name)

    def _set_share(self, name: str, role: Role, version: int, percent: float, tolerance: float) -> int:
        """Write a share and return the number of the request."""
        self.model(name, version)  # raises where it, or its folder, is not there
        with self._database.write() as connection:
            self._check_beside_active(connection, name, role, version)
            change = next_change(connection)
            write_share(connection, name, role, version, percent, tolerance, change)
            self._add_event(connection, "model", name, role, {"version": version, "percent": percent})
        return change

    def _check_beside_active(self, connection: Connection, name: str, role: Role, version: int) -> None:
        """Refuse a version that cannot be a canary or a shadow; the connection has the write lock."""
        table = tables.models
        query = select(table.c.version, table.c.kind, table.c.active).where(table.c.name == name)
        rows = {row.version: row for row in connection.execute(query)}
        if version not in rows:  # removed meanwhile
            raise self._no_version(name, version, rows)
        if rows[version].active:
            raise UsageError(
                f"expected a version beside the active one, received version {version}, which is active",
                where=f"{role} of {name}",
                hint=f"`graphbox models list` lists the versions of `{name}`",
            )
        kind = rows[version].kind
        active_kind = next((row.kind for row in rows.values() if row.active), kind)
        if kind != active_kind:
            raise UsageError(
                f"expected a version of the kind {active_kind}, as the active one, received one of {kind}",
                where=f"{role} of {name}",
            )
