"""The models of a workspace, by version, with what was measured of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from graphbox.errors import NotFoundError
from graphbox.workspace import tables
from graphbox.workspace.folders import folder_size, require_folder, valid_name
from graphbox.workspace.locks import is_held, writer_lock
from graphbox.workspace.records import BenchRecord, ModelRecord
from graphbox.workspace.row_sequences import forget_row_sequence
from graphbox.workspace.rows import model_record
from graphbox.workspace.searches import SearchRecord, list_searches
from graphbox.workspace.serving import ServingRecords, forget_served_model, next_change
from graphbox.workspace.store import Store, now
from graphbox.workspace.traffic import Role, end_shares

SEARCH_MODELS = ".models-"
"""Beginning of the names of folders with models that a search measures."""

_SEARCHES = "compress"


class Models(Store):
    """Registry of models and their versions."""

    def models(self, name: str | None = None) -> list[ModelRecord]:
        """Return all model versions (of ``name``), by name and version."""
        query = select(tables.models).order_by(tables.models.c.name, tables.models.c.version)
        bench_query = select(tables.benches).order_by(
            tables.benches.c.target,
            tables.benches.c.threads,
            tables.benches.c.operation,
            tables.benches.c.batch,
        )
        if name is not None:
            query = query.where(tables.models.c.name == name)
            bench_query = bench_query.where(tables.benches.c.model == name)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            bench_rows = connection.execute(bench_query).all()
        benches: dict[tuple[str, int], list[Row[Any]]] = {}
        for row in bench_rows:
            benches.setdefault((row.model, row.version), []).append(row)
        return [
            model_record(
                row, benches.get((row.name, row.version), []), self._model_path(row.name, row.version)
            )
            for row in rows
        ]

    def change_stamp(self) -> tuple[int, ...] | None:
        """Return numbers that differ once the workspace's database has changed; None: they are not known."""
        return self._database.stamp()

    def active_versions(self) -> dict[str, int]:
        """Return the active version of each model; cheap enough to poll."""
        table = tables.models
        with self._database.read() as connection:
            rows = connection.execute(select(table.c.name, table.c.version).where(table.c.active)).all()
        return {row.name: row.version for row in rows}

    def serving_records(self) -> ServingRecords:
        """Return the requests about served models, such as to unload one."""
        return ServingRecords(self._database)

    def model(self, name: str, version: int | None = None) -> ModelRecord:
        """Return version ``version`` of the model ``name``; without one, the active version.

        Raises:
            NotFoundError: there is none; the hint names close ones.
            FormatError: its folder is gone.
        """
        record = self._find_model(name, version)
        require_folder(
            record.path,
            f"model `{name}` version {record.version}",
            f"`graphbox models rm {name} --version {record.version}`",
        )
        return record

    def new_model_path(self, name: str) -> tuple[int, Path]:
        """Return a version number of ``name`` that was never given before, and the folder for it."""
        valid_name(name, "model")
        with self._database.write() as connection:
            version = self._next_number(connection, f"model {name}")
        path = self._model_path(name, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        return version, path

    def add_model(
        self,
        name: str,
        version: int,
        *,
        kind: str,
        task: str | None,
        precision: str,
        metrics: Mapping[str, Mapping[str, float]],
        parent: int | None = None,
        run_id: str | None = None,
        deciding_metric: str | None = None,
        measured_on: str | None = None,
    ) -> ModelRecord:
        """Register the artifact in ``models/<name>/<version>``, in place of an older record of it.

        The first version of a name is active at once; a later one when it is promoted.
        """
        path = self._model_path(name, version)
        require_folder(path, f"model `{name}` version {version}", "export it first")
        key = (tables.models.c.name == name) & (tables.models.c.version == version)
        with self._database.write() as connection:
            connection.execute(delete(tables.models).where(key))
            if forget_row_sequence(connection, name, version):
                next_change(connection)
            of_name = (tables.models.c.name == name) & tables.models.c.active
            has_active = connection.execute(select(tables.models).where(of_name)).first() is not None
            connection.execute(
                insert(tables.models).values(
                    name=name,
                    version=version,
                    kind=kind,
                    task=task,
                    size_bytes=folder_size(path),
                    precision=precision,
                    parent=parent,
                    run_id=run_id,
                    metrics={task_name: dict(values) for task_name, values in metrics.items()},
                    created_at=now(),
                    active=not has_active,
                    deciding_metric=deciding_metric,
                    measured_on=measured_on,
                )
            )
            detail = {"version": version, "run": run_id, "parent": parent}
            self._add_event(connection, "model", name, "added", detail)
        return self.model(name, version)

    def add_benches(self, name: str, version: int, benches: Iterable[BenchRecord]) -> None:
        """Note measurements of a version, each in place of an older one of the same kind."""
        self._find_model(name, version)
        table = tables.benches
        with self._database.write() as connection:
            for bench in benches:
                connection.execute(
                    delete(table).where(
                        (table.c.model == name)
                        & (table.c.version == version)
                        & (table.c.target == bench.target)
                        & (table.c.batch == bench.batch)
                        & (table.c.threads == bench.threads)
                        & (table.c.operation == bench.operation)
                    )
                )
                connection.execute(
                    insert(table).values(
                        model=name,
                        version=version,
                        target=bench.target,
                        batch=bench.batch,
                        threads=bench.threads,
                        operation=bench.operation,
                        p50_ms=bench.p50_ms,
                        p99_ms=bench.p99_ms,
                        rows_per_s=bench.rows_per_s,
                        measured_at=bench.measured_at,
                    )
                )

    def promote_model(self, name: str, version: int) -> ModelRecord:
        """Make ``version`` the active one: the default, and the one that running servers switch to.

        Ends the canary and the shadow of the model.

        Raises:
            NotFoundError: there is no such version.
            FormatError: its folder is gone.
        """
        self.model(name, version)
        with self._database.write() as connection:
            self._activate(connection, name, version)
        return self.model(name, version)

    def discard_model(self, name: str, version: int) -> None:
        """Remove a version that may be there as a record, as a folder, as both or not at all."""
        if any(record.version == version for record in self.models(name)):
            self.remove_model(name, version)
        elif (path := self._model_path(name, version)).exists():
            with self._database.write() as connection:
                self._plan_removal(connection, path)
            self._finish_removals_locked()

    def remove_model(self, name: str, version: int | None = None) -> int:
        """Remove a version of the model ``name``, or all of them; return the bytes freed.

        A canary or shadow of a version that goes ends.
        When the active version goes, the one that was promoted last of those left becomes active; the newest
        where none was promoted.
        """
        chosen = [self._find_model(name, version)] if version is not None else self.models(name)
        if not chosen:
            raise self._not_found("model", name, {record.name for record in self.models()})
        freed = sum(folder_size(record.path) for record in chosen)
        with self._database.write() as connection:
            for record in chosen:
                key = (tables.models.c.name == name) & (tables.models.c.version == record.version)
                connection.execute(delete(tables.models).where(key))
                if forget_row_sequence(connection, name, record.version):
                    next_change(connection)
                self._plan_removal(connection, record.path)
                for search in self.search_folder(name).glob(f"{record.version}-*"):
                    self._plan_removal(connection, search)
                self._add_event(connection, "model", name, "removed", {"version": record.version})
                self._note_ended(connection, name, end_shares(connection, name, version=record.version))
            left = connection.execute(
                select(tables.models).where(tables.models.c.name == name).order_by(tables.models.c.version)
            ).all()
            if left and not any(row.active for row in left):
                versions = [row.version for row in left]
                self._activate(connection, name, self._last_promoted(connection, name, versions))
            if not left:
                forget_served_model(connection, name)
        self._finish_removals_locked()
        if not left:
            with suppress(OSError):  # not empty: another process is writing a new version there
                (self.root / "models" / name).rmdir()
        return freed

    def search_folder(self, name: str) -> Path:
        """Return the folder of the searches for compressed versions of the model ``name``."""
        return self.root / _SEARCHES / valid_name(name, "model")

    @contextmanager
    def searching(self, name: str, version: int) -> Iterator[None]:
        """Let no other process search for compressed versions of a version while the block runs.

        Raises:
            ConflictError: another one does.
        """
        path = self._search_lock(name, version)
        hint = "wait for that search; its trials are used by the next one"
        with writer_lock(path, f"search of {name} version {version}", timeout_s=1.0, hint=hint):
            yield

    def searches(self, name: str) -> list[SearchRecord]:
        """Return the searches for compressed versions of the model ``name``, the one written last first.

        Raises:
            NotFoundError: there is no such model.
        """
        versions = {record.version for record in self.models(name)}
        if not versions:
            raise self._not_found("model", name, {record.name for record in self.models()})
        return [search for search in list_searches(self.search_folder(name)) if search.version in versions]

    def is_searching(self, name: str, version: int) -> bool:
        """Return whether a process searches for compressed versions of a version."""
        return is_held(self._search_lock(name, version))

    def remove_search_models(self) -> None:
        """Remove the models that searches which were killed were measuring; nothing may search meanwhile."""
        for models in (self.root / _SEARCHES).glob(f"*/{SEARCH_MODELS}*"):
            shutil.rmtree(models)

    def _search_lock(self, name: str, version: int) -> Path:
        return self._lock_path(f"search-{valid_name(name, 'model')}-{version}")

    def _find_model(self, name: str, version: int | None) -> ModelRecord:
        versions = self.models(name)
        if not versions:
            raise self._not_found("model", name, {record.name for record in self.models()})
        for record in versions:
            if record.version == version or (version is None and record.active):
                return record
        raise self._no_version(name, version, [record.version for record in versions])

    def _no_version(self, name: str, version: int | None, versions: Iterable[int]) -> NotFoundError:
        return NotFoundError(
            f"the model `{name}` has no version {version}",
            where=str(self.root),
            hint=f"its versions: {', '.join(map(str, versions)) or 'none'}",
        )

    def _model_path(self, name: str, version: int) -> Path:
        return self.root / "models" / valid_name(name, "model") / str(version)

    def _activate(self, connection: Connection, name: str, version: int) -> None:
        of_name = tables.models.c.name == name
        connection.execute(update(tables.models).where(of_name).values(active=False))
        chosen = of_name & (tables.models.c.version == version)
        connection.execute(update(tables.models).where(chosen).values(active=True))
        self._add_event(connection, "model", name, "promoted", {"version": version})
        self._note_ended(connection, name, end_shares(connection, name))

    def _note_ended(self, connection: Connection, name: str, ended: Iterable[tuple[Role, int]]) -> None:
        """Note that canaries and shadows have ended, for servers and in the history."""
        for role, version in ended:
            next_change(connection)
            self._add_event(connection, "model", name, f"{role} ended", {"version": version})

    def _last_promoted(self, connection: Connection, name: str, versions: Sequence[int]) -> int:
        """Return the one of some versions, ascending, that was promoted last; without any the newest."""
        table = tables.events
        promoted = (table.c.kind == "model") & (table.c.name == name) & (table.c.event == "promoted")
        events = connection.execute(select(table.c.detail).where(promoted).order_by(table.c.id.desc()))
        return next(
            (row.detail["version"] for row in events if row.detail["version"] in versions), versions[-1]
        )
