"""The runs of a workspace."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from graphbox.errors import ConflictError, TimeLimitError
from graphbox.workspace import tables
from graphbox.workspace.folders import folder_size, require_folder, valid_name
from graphbox.workspace.locks import living_holder, signal_holder, writer_lock
from graphbox.workspace.records import RunRecord
from graphbox.workspace.rows import run_record
from graphbox.workspace.run_writer import RunWriter, mirror, stop_hint, write_text
from graphbox.workspace.store import Store, now

_POLL_S = 0.05


class Runs(Store):
    """Registry of runs and their progress."""

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

    def start_run(self, name: str, config: str, config_digest: str, stages: Iterable[str]) -> RunWriter:
        """Make a run with its folder, and hold it for writing."""
        valid_name(name, "run")
        stage_names = list(stages)
        created = now()
        with self._database.write() as connection:
            run_id = f"{name}-{self._next_number(connection, f'run {name}')}"
            connection.execute(
                insert(tables.runs).values(
                    id=run_id,
                    name=name,
                    state="created",
                    created_at=created,
                    updated_at=created,
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

    def resume_run(self, run_id: str, *, keeps_record: bool = False) -> RunWriter:
        """Hold the run ``run_id`` for writing.

        Args:
            run_id: the run.
            keeps_record: leave its record as it is, see `RunWriter`.

        Raises:
            NotFoundError: there is no such run.
            ConflictError: another process is running it.
            FormatError: its folder is gone.
        """
        record = self.run(run_id)
        require_folder(record.path, f"run `{record.id}`", f"`graphbox runs rm {record.id}`")
        return RunWriter(self, record, keeps_record=keeps_record)

    def remove_run(self, run_id: str) -> int:
        """Remove the run ``run_id`` and its files; its models stay. Return the bytes freed.

        Raises:
            ConflictError: it is running.
        """
        record = self.run(run_id)
        with ExitStack() as stack:
            if record.path.is_dir():
                stack.enter_context(self.run_lock(record))
            freed = folder_size(record.path)
            with self._database.write() as connection:
                connection.execute(delete(tables.runs).where(tables.runs.c.id == record.id))
                self._plan_removal(connection, record.path)
                self._add_event(connection, "run", record.id, "removed", {})
            self._finish_removals_locked()
        return freed

    @contextmanager
    def run_lock(self, record: RunRecord, timeout_s: float = 0.5) -> Iterator[None]:
        """Hold the right to write the files of a run while the block runs; its record stays as it is.

        Raises:
            ConflictError: it is running.
        """
        with writer_lock(record.path / "lock", f"run `{record.id}`", timeout_s, stop_hint(record.id)):
            yield

    def stop_run(self, run_id: str, timeout_s: float = 60.0) -> RunRecord:
        """Ask the process that runs ``run_id`` to stop, as Ctrl-C does, and wait until it has ended.

        Raises:
            NotFoundError: there is no such run.
            ConflictError: no process is running it, or one on another host is.
            TimeLimitError: it has not ended in time.
        """
        record = self.run(run_id)
        path = record.path / "lock"
        holder = living_holder(path)
        if holder is None:
            raise ConflictError(
                f"expected a run that is running, received one that is {record.state}",
                where=f"run {record.id}",
                hint=f"`graphbox runs resume {record.id}` resumes a run that was stopped",
            )
        signal_holder(holder, f"run {record.id}")
        deadline = time.monotonic() + timeout_s
        while living_holder(path) == holder:
            if time.monotonic() > deadline:
                raise TimeLimitError(
                    f"process {holder['pid']} has not ended {timeout_s:g} s after it was asked to stop",
                    where=f"run {record.id}",
                    hint=f"it may be writing a large checkpoint: `graphbox runs logs {record.id}` shows more",
                )
            time.sleep(_POLL_S)
        return self.run(record.id)

    def update_run(self, run_id: str, event: str | None = None, **values: Any) -> RunRecord:
        """Change columns of a run, note an event, and mirror the run to its ``run.json``."""
        values.setdefault("updated_at", now())
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
                .values(updated_at=now(), heartbeat=now(), **run_values)
            )
        return self._mirrored(run_id)

    def reconfigure_run(
        self, run_id: str, config: str, config_digest: str, stages: list[str], reset: list[str]
    ) -> RunRecord:
        """Change the run file of a run and its list of stages; those in ``reset`` are pending again."""
        of_run = tables.stages.c.run_id == run_id
        with self._database.write() as connection:
            connection.execute(
                update(tables.runs)
                .where(tables.runs.c.id == run_id)
                .values(config=config, config_digest=config_digest, updated_at=now())
            )
            known = set(connection.execute(select(tables.stages.c.name).where(of_run)).scalars())
            connection.execute(delete(tables.stages).where(of_run & tables.stages.c.name.not_in(stages)))
            for position, stage in enumerate(stages):
                values: dict[str, Any] = {"position": position}
                if stage in reset:
                    values |= {"state": "pending", "seconds": None, "peak_bytes": None}
                if stage in known:
                    change = update(tables.stages).where(of_run & (tables.stages.c.name == stage))
                    connection.execute(change.values(**values))
                else:
                    new = {"run_id": run_id, "name": stage, "state": "pending", "outputs": {}}
                    connection.execute(insert(tables.stages).values(**new, **values))
        return self._mirrored(run_id)

    def beat(self, run_id: str) -> None:
        """Note that the process of a run is alive."""
        with self._database.write() as connection:
            connection.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(heartbeat=now()))

    def _run_path(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def _mirrored(self, run_id: str) -> RunRecord:
        record = self.run(run_id)
        mirror(record)
        return record
