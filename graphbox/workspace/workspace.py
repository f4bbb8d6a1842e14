"""A workspace: a folder of graphs, runs and models, and the database that knows them.

::

    graphbox.db            what exists, its state, history and size (or a database elsewhere, by URL)
    graphs/<name>/         an imported graph
    runs/<id>/             run.json, config.yaml, log, metrics, splits, embeddings, checkpoints
    models/<name>/<n>/     version n of a model
    .locks/                writer locks

Two processes may use one workspace. Whatever is removed is first gone from the database and then from
the disk; a process killed in between leaves the rest to whoever opens the workspace next.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.sql import Select

from graphbox.errors import NotFoundError, did_you_mean
from graphbox.workspace import tables
from graphbox.workspace.database import Database, sqlite_url
from graphbox.workspace.folders import check_folder, folder_size, make_folders, require_folder, valid_name
from graphbox.workspace.locks import writer_lock
from graphbox.workspace.records import (
    BenchRecord,
    EdgeTypeCount,
    EventRecord,
    GraphRecord,
    ModelRecord,
    RunRecord,
)
from graphbox.workspace.rows import graph_record, model_record, run_record
from graphbox.workspace.run_writer import RunWriter, mirror, write_text

__all__ = ["Workspace"]

Kind = Literal["graph", "run", "model"]


class Workspace:
    """Opens the workspace at ``root``; safe to share between threads.

    Args:
        root: the folder.
        database_url: SQLAlchemy URL of a database to use instead of ``root/graphbox.db``.
        create: make the folder and the database when they are not there.

    Raises:
        NotFoundError: there is none and ``create`` is False.
        UsageError: the folder is something else, or cannot be written.
        FormatError: the database is damaged, of another program or of a newer graphbox.
    """

    def __init__(
        self, root: str | Path = "workspace", database_url: str | None = None, *, create: bool = True
    ) -> None:
        self.root = Path(root).absolute()
        check_folder(self.root, create=create, own_database=database_url is None)
        if create:
            make_folders(self.root)
        if database_url is None:
            path = self.root / "graphbox.db"
            url, shown = sqlite_url(path), str(path)
        else:
            url, shown = database_url, "the database given by URL"
        with writer_lock(self._lock_path("workspace"), "workspace"):
            self._database = Database(url, shown)
            self._finish_removals()

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.root.name

    def close(self) -> None:
        """Let go of the database; the workspace can be used again and then opens it again."""
        self._database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -------------------------------------------------------------------------------- graphs

    def graphs(self) -> list[GraphRecord]:
        """Return all graphs, by name."""
        with self._database.read() as connection:
            rows = connection.execute(select(tables.graphs).order_by(tables.graphs.c.name)).all()
        return [graph_record(row, self.graph_path(row.name)) for row in rows]

    def graph(self, name: str) -> GraphRecord:
        """Return the graph ``name``.

        Raises:
            NotFoundError: there is none; the hint names a close one.
            FormatError: its folder is gone.
        """
        graphs = {record.name: record for record in self.graphs()}
        if name not in graphs:
            raise self._not_found("graph", name, graphs)
        record = graphs[name]
        require_folder(record.path, f"graph `{name}`", f"`graphbox graphs rm {name}`, then import it again")
        return record

    def graph_path(self, name: str) -> Path:
        """Return the folder of the graph ``name``, whether it exists or not."""
        return self.root / "graphs" / valid_name(name, "graph")

    @contextmanager
    def graph_lock(self, name: str, timeout_s: float = 10.0) -> Iterator[None]:
        """Hold the right to write the graph ``name`` while the block runs.

        Raises:
            ConflictError: another process holds it.
        """
        with writer_lock(self._lock_path(f"graph-{valid_name(name, 'graph')}"), f"graph `{name}`", timeout_s):
            yield

    def add_graph(
        self,
        name: str,
        *,
        node_types: Mapping[str, int],
        edge_types: Iterable[EdgeTypeCount],
        fingerprint: str,
        run_id: str | None = None,
    ) -> GraphRecord:
        """Register the graph in `graph_path`, in place of an older one of that name."""
        path = self.graph_path(name)
        require_folder(path, f"graph `{name}`", "import it first")
        values = {
            "name": name,
            "size_bytes": folder_size(path),
            "created_at": _now(),
            "node_types": dict(node_types),
            "edge_types": [[e.source, e.relation, e.target, e.edges] for e in edge_types],
            "fingerprint": fingerprint,
            "run_id": run_id,
        }
        with self._database.write() as connection:
            replaced = connection.execute(delete(tables.graphs).where(tables.graphs.c.name == name)).rowcount
            connection.execute(insert(tables.graphs).values(values))
            self._add_event(
                connection, "graph", name, "replaced" if replaced else "imported", {"run": run_id}
            )
        return self.graph(name)

    def change_graph(
        self,
        name: str,
        event: str,
        *,
        node_types: Mapping[str, int],
        edge_types: Iterable[EdgeTypeCount],
        fingerprint: str,
    ) -> GraphRecord:
        """Note that the registered graph ``name`` was changed in place; when and for what it was made stays.

        Args:
            name: the graph.
            event: what happened: ``appended``, ``removed from``, ``compacted``.
            node_types: number of nodes by node type, now.
            edge_types: number of edges by edge type, now.
            fingerprint: identifies the content, now.

        Raises:
            NotFoundError: there is no such graph.
        """
        before = self.graph(name)
        values = {
            "size_bytes": folder_size(before.path),
            "node_types": dict(node_types),
            "edge_types": [[e.source, e.relation, e.target, e.edges] for e in edge_types],
            "fingerprint": fingerprint,
        }
        with self._database.write() as connection:
            connection.execute(update(tables.graphs).where(tables.graphs.c.name == name).values(values))
            details = {"nodes": sum(node_types.values()), "size_bytes": values["size_bytes"]}
            self._add_event(connection, "graph", name, event, details)
        return self.graph(name)

    def remove_graph(self, name: str) -> int:
        """Remove the graph ``name`` and its files; return the bytes freed."""
        known = {record.name: record for record in self.graphs()}
        if name not in known:
            raise self._not_found("graph", name, known)
        with self.graph_lock(name):
            freed = folder_size(known[name].path)
            with self._database.write() as connection:
                connection.execute(delete(tables.graphs).where(tables.graphs.c.name == name))
                self._plan_removal(connection, known[name].path)
                self._add_event(connection, "graph", name, "removed", {})
            self._finish_removals_locked()
        return freed

    # ---------------------------------------------------------------------------------- runs

    def runs(self) -> list[RunRecord]:
        """Return all runs, newest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.runs).order_by(tables.runs.c.created_at.desc(), tables.runs.c.id.desc())
            ).all()
            stage_rows = connection.execute(select(tables.stages).order_by(tables.stages.c.position)).all()
        by_run: dict[str, list[Row[Any]]] = {}
        for stage_row in stage_rows:
            by_run.setdefault(stage_row.run_id, []).append(stage_row)
        return [run_record(row, by_run.get(row.id, []), self._run_path(row.id)) for row in rows]

    def run(self, run_id: str) -> RunRecord:
        """Return the run ``run_id``; the word ``last`` means the newest.

        Raises:
            NotFoundError: there is none; the hint names a close one.
        """
        if run_id == "last":
            newest = self.runs()
            if newest:
                return newest[0]
        with self._database.read() as connection:
            row = connection.execute(select(tables.runs).where(tables.runs.c.id == run_id)).one_or_none()
            stage_rows = connection.execute(
                select(tables.stages)
                .where(tables.stages.c.run_id == run_id)
                .order_by(tables.stages.c.position)
            ).all()
        if row is None:
            raise self._not_found("run", run_id, {record.id for record in self.runs()})
        return run_record(row, stage_rows, self._run_path(row.id))

    def unfinished_run(self, config_digest: str) -> RunRecord | None:
        """Return the newest run of that config if it was interrupted or failed, else None."""
        for record in self.runs():
            if record.config_digest == config_digest:
                unfinished = record.state in {"created", "interrupted", "failed"} and record.path.is_dir()
                return record if unfinished else None
        return None

    def start_run(self, name: str, config: str, config_digest: str, stages: Iterable[str]) -> RunWriter:
        """Make a run with its folder, and hold it for writing."""
        valid_name(name, "run")
        stage_names = list(stages)
        now = _now()
        with self._database.write() as connection:
            run_id = f"{name}-{self._next_number(connection, f'run {name}')}"
            connection.execute(
                insert(tables.runs).values(
                    id=run_id,
                    name=name,
                    state="created",
                    created_at=now,
                    updated_at=now,
                    size_bytes=0,
                    config=config,
                    config_digest=config_digest,
                    report={},
                )
            )
            for position, stage in enumerate(stage_names):
                connection.execute(
                    insert(tables.stages).values(
                        run_id=run_id, name=stage, position=position, state="pending", outputs={}
                    )
                )
            self._add_event(connection, "run", run_id, "created", {})
        path = self._run_path(run_id)
        path.mkdir(parents=True, exist_ok=True)
        write_text(path / "config.yaml", config)
        return self.resume_run(run_id)

    def resume_run(self, run_id: str) -> RunWriter:
        """Hold the run ``run_id`` for writing.

        Raises:
            NotFoundError: there is no such run.
            ConflictError: another process is running it.
            FormatError: its folder is gone.
        """
        record = self.run(run_id)
        require_folder(record.path, f"run `{record.id}`", f"`graphbox runs rm {record.id}`")
        return RunWriter(self, record)

    def remove_run(self, run_id: str) -> int:
        """Remove the run ``run_id`` and its files; its models stay. Return the bytes freed.

        Raises:
            ConflictError: it is running.
        """
        record = self.run(run_id)
        with ExitStack() as stack:
            if record.path.is_dir():
                stack.enter_context(writer_lock(record.path / "lock", f"run `{record.id}`", timeout_s=0.5))
            freed = folder_size(record.path)
            with self._database.write() as connection:
                connection.execute(delete(tables.runs).where(tables.runs.c.id == record.id))
                self._plan_removal(connection, record.path)
                self._add_event(connection, "run", record.id, "removed", {})
            self._finish_removals_locked()
        return freed

    # -------------------------------------------------------------------------------- models

    def models(self, name: str | None = None) -> list[ModelRecord]:
        """Return all model versions (of ``name``), by name and version."""
        query = select(tables.models).order_by(tables.models.c.name, tables.models.c.version)
        bench_query = select(tables.benches).order_by(
            tables.benches.c.target, tables.benches.c.threads, tables.benches.c.batch
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
        activate: bool = True,
    ) -> ModelRecord:
        """Register the artifact in ``models/<name>/<version>``, in place of an older record of it."""
        path = self._model_path(name, version)
        require_folder(path, f"model `{name}` version {version}", "export it first")
        key = (tables.models.c.name == name) & (tables.models.c.version == version)
        with self._database.write() as connection:
            first = (
                connection.execute(select(tables.models).where(tables.models.c.name == name)).first() is None
            )
            connection.execute(delete(tables.models).where(key))
            if activate:
                self._deactivate(connection, name)
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
                    created_at=_now(),
                    active=activate or first,
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
                    )
                )
                connection.execute(
                    insert(table).values(
                        model=name,
                        version=version,
                        target=bench.target,
                        batch=bench.batch,
                        threads=bench.threads,
                        p50_ms=bench.p50_ms,
                        p99_ms=bench.p99_ms,
                        rows_per_s=bench.rows_per_s,
                        measured_at=bench.measured_at,
                    )
                )

    def promote_model(self, name: str, version: int) -> ModelRecord:
        """Make ``version`` the one that the name alone means."""
        record = self.model(name, version)
        key = (tables.models.c.name == name) & (tables.models.c.version == version)
        with self._database.write() as connection:
            self._deactivate(connection, name)
            connection.execute(update(tables.models).where(key).values(active=True))
            self._add_event(connection, "model", name, "promoted", {"version": version})
        return self.model(record.name, record.version)

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

        When the active version goes, the newest that is left becomes active.
        """
        chosen = [self._find_model(name, version)] if version is not None else self.models(name)
        if not chosen:
            raise self._not_found("model", name, {record.name for record in self.models()})
        freed = sum(folder_size(record.path) for record in chosen)
        with self._database.write() as connection:
            for record in chosen:
                key = (tables.models.c.name == name) & (tables.models.c.version == record.version)
                connection.execute(delete(tables.models).where(key))
                self._plan_removal(connection, record.path)
                self._add_event(connection, "model", name, "removed", {"version": record.version})
            left = connection.execute(
                select(tables.models).where(tables.models.c.name == name).order_by(tables.models.c.version)
            ).all()
            if left and not any(row.active for row in left):
                newest = (tables.models.c.name == name) & (tables.models.c.version == left[-1].version)
                connection.execute(update(tables.models).where(newest).values(active=True))
        self._finish_removals_locked()
        if not left:
            with suppress(OSError):  # not empty: another process is writing a new version there
                (self.root / "models" / name).rmdir()
        return freed

    # ------------------------------------------------------------------------------- history

    def history(self, kind: Kind | None = None, name: str | None = None) -> list[EventRecord]:
        """Return what happened (to graphs, runs or models; to ``name``), oldest first."""
        query: Select[Any] = select(tables.events).order_by(tables.events.c.id)
        if kind is not None:
            query = query.where(tables.events.c.kind == kind)
        if name is not None:
            query = query.where(tables.events.c.name == name)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [EventRecord(row.time, row.kind, row.name, row.event, row.detail) for row in rows]

    # ------------------------------------------------------------------ for the run writer

    def update_run(self, run_id: str, event: str | None = None, **values: Any) -> RunRecord:
        """Change columns of a run, note an event, and mirror the run to its ``run.json``."""
        values.setdefault("updated_at", _now())
        with self._database.write() as connection:
            connection.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(**values))
            if event is not None:
                self._add_event(connection, "run", run_id, event, {"stage": values.get("stage")})
        return self._mirrored(run_id)

    def update_stage(
        self, run_id: str, stage: str, run_values: Mapping[str, Any], **values: Any
    ) -> RunRecord:
        """Change columns of a stage and of its run in one step, and mirror the run."""
        key = (tables.stages.c.run_id == run_id) & (tables.stages.c.name == stage)
        with self._database.write() as connection:
            connection.execute(update(tables.stages).where(key).values(**values))
            connection.execute(
                update(tables.runs)
                .where(tables.runs.c.id == run_id)
                .values(updated_at=_now(), heartbeat=_now(), **run_values)
            )
        return self._mirrored(run_id)

    def beat(self, run_id: str) -> None:
        """Note that the process of a run is alive."""
        with self._database.write() as connection:
            connection.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(heartbeat=_now()))

    # ------------------------------------------------------------------------------- inner

    def _find_model(self, name: str, version: int | None) -> ModelRecord:
        versions = self.models(name)
        if not versions:
            raise self._not_found("model", name, {record.name for record in self.models()})
        for record in versions:
            if record.version == version or (version is None and record.active):
                return record
        numbers = ", ".join(str(record.version) for record in versions)
        raise NotFoundError(
            f"the model `{name}` has no version {version}",
            where=str(self.root),
            hint=f"its versions: {numbers}",
        )

    def _lock_path(self, name: str) -> Path:
        return self.root / ".locks" / f"{name}.lock"

    def _run_path(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def _model_path(self, name: str, version: int) -> Path:
        return self.root / "models" / valid_name(name, "model") / str(version)

    def _mirrored(self, run_id: str) -> RunRecord:
        record = self.run(run_id)
        mirror(record)
        return record

    def _next_number(self, connection: Connection, name: str) -> int:
        table = tables.counters
        row = connection.execute(select(table).where(table.c.name == name).with_for_update()).one_or_none()
        if row is None:
            connection.execute(insert(table).values(name=name, value=1))
            return 1
        connection.execute(update(table).where(table.c.name == name).values(value=row.value + 1))
        return int(row.value) + 1

    def _deactivate(self, connection: Connection, name: str) -> None:
        connection.execute(update(tables.models).where(tables.models.c.name == name).values(active=False))

    def _add_event(
        self, connection: Connection, kind: Kind, name: str, event: str, detail: Mapping[str, Any]
    ) -> None:
        values = {"time": _now(), "kind": kind, "name": name, "event": event, "detail": dict(detail)}
        connection.execute(insert(tables.events).values(values))

    def _plan_removal(self, connection: Connection, path: Path) -> None:
        relative = path.relative_to(self.root)
        trash = relative.parent / f".removed-{uuid.uuid4().hex}"
        connection.execute(insert(tables.removals).values(path=str(relative), trash=str(trash)))

    def _finish_removals_locked(self) -> None:
        with writer_lock(self._lock_path("workspace"), "workspace"):
            self._finish_removals()

    def _finish_removals(self) -> None:
        """Delete the folders whose rows are gone, those of a killed process too."""
        with self._database.read() as connection:
            planned = connection.execute(select(tables.removals)).all()
        for row in planned:
            path, trash = self.root / row.path, self.root / row.trash
            # Once moved, the path may already be someone's new folder.
            if path.exists() and not trash.exists():
                path.rename(trash)
            if trash.exists():
                shutil.rmtree(trash)
            with self._database.write() as connection:
                connection.execute(delete(tables.removals).where(tables.removals.c.path == row.path))

    def _not_found(self, kind: Kind, name: str, known: Iterable[str]) -> NotFoundError:
        names = sorted(known)
        there = f"there are: {', '.join(names[:10])}" if names else f"this workspace has no {kind}s yet"
        return NotFoundError(
            f"there is no {kind} `{name}`", where=str(self.root), hint=did_you_mean(name, names) or there
        )


def _now() -> datetime:
    return datetime.now(UTC)
