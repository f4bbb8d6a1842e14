"""The right to write one run: its stages, its outcome, and the sign that its process is alive."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from graphbox.durable import write_atomically
from graphbox.errors import GraphboxError
from graphbox.workspace.locks import WriterLock
from graphbox.workspace.records import RunRecord

if TYPE_CHECKING:
    from graphbox.workspace.runs import Runs

_HEARTBEAT_S = 10.0
_log = logging.getLogger("graphbox.workspace")


class RunWriter:
    """Holds a run while it is worked on; a context manager.

    The run's lock file is held until the end, so that others see whether the process lives. Every change
    is written to the database and to ``run.json`` in the run's folder.

    Args:
        workspace: where the run is.
        record: the run.
        keeps_record: leave the record as it is, state and heartbeat too, but for :meth:`replace_results`.
    """

    def __init__(self, workspace: Runs, record: RunRecord, *, keeps_record: bool = False) -> None:
        self._workspace = workspace
        self._lock = WriterLock(record.path / "lock", f"run `{record.id}`", stop_hint(record.id))
        self._lock.acquire(timeout_s=1.0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat-{record.id}", daemon=True)
        # Asked again under the lock: the process that held it may just have gone on or finished.
        self.record = record = workspace.run(record.id)
        if keeps_record:
            return
        # What a killed process left running is not running.
        for stage in record.stages:
            if stage.state in {"running", "interrupted"}:
                workspace.update_stage(record.id, stage.name, {}, state="interrupted")
        self.record = workspace.update_run(
            record.id, event="started", state="running", error=None, heartbeat=datetime.now(UTC)
        )
        self._thread.start()

    @property
    def id(self) -> str:
        """Id of the run."""
        return self.record.id

    @property
    def path(self) -> Path:
        """Folder of the run."""
        return self.record.path

    def outputs(self, stage: str) -> dict[str, Any] | None:
        """Return what ``stage`` recorded if it has finished, else None."""
        for record in self.record.stages:
            if record.name == stage and record.state == "finished":
                return dict(record.outputs)
        return None

    def begin_stage(self, stage: str) -> None:
        """Note that ``stage`` starts."""
        self.record = self._workspace.update_stage(
            self.id, stage, {"stage": stage, "state": "running", "error": None}, state="running"
        )

    def finish_stage(
        self, stage: str, *, seconds: float, peak_bytes: int, outputs: Mapping[str, Any], size_bytes: int
    ) -> None:
        """Note that ``stage`` ended well, with what the stages after it need."""
        self.record = self._workspace.update_stage(
            self.id,
            stage,
            {"size_bytes": size_bytes},
            state="finished",
            seconds=seconds,
            peak_bytes=peak_bytes,
            outputs=dict(outputs),
        )

    def stop_stage(self, stage: str, error: GraphboxError, *, seconds: float, peak_bytes: int) -> None:
        """Note that ``stage``, and with it the run, ended by ``error``."""
        state = "interrupted" if error.code == "interrupted_run" else "failed"
        self.record = self._workspace.update_stage(
            self.id, stage, {}, state=state, seconds=seconds, peak_bytes=peak_bytes
        )
        shown = {"code": error.code, "message": error.message, "where": error.where, "hint": error.hint}
        self.record = self._workspace.update_run(self.id, event=state, state=state, error=shown)

    def reset_stages(self, stages: list[str]) -> None:
        """Note that ``stages`` have to run again; their outputs are kept to compare the new ones with."""
        for stage in stages:
            self.record = self._workspace.update_stage(
                self.id, stage, {}, state="pending", seconds=None, peak_bytes=None
            )

    def reconfigure(self, config: str, config_digest: str, stages: list[str], reset: list[str]) -> None:
        """Note changed settings: the run file, its digest, its stages, and those that have to run again."""
        self.record = self._workspace.reconfigure_run(self.id, config, config_digest, stages, reset)
        write_text(self.path / "config.yaml", config)

    def replace_results(
        self,
        stage: str,
        *,
        config: str,
        config_digest: str,
        report: Mapping[str, Any],
        seconds: float,
        peak_bytes: int,
        outputs: Mapping[str, Any],
        size_bytes: int,
    ) -> None:
        """Note in one step the results of a finished stage that ran again, and the run file that it read."""
        self._workspace.update_stage(
            self.id,
            stage,
            {
                "config": config,
                "config_digest": config_digest,
                "report": dict(report),
                "size_bytes": size_bytes,
            },
            state="finished",
            seconds=seconds,
            peak_bytes=peak_bytes,
            outputs=dict(outputs),
        )
        write_text(self.path / "config.yaml", config)
        self.record = self._workspace.update_run(self.id, event="finished")

    def report(self, report: Mapping[str, Any]) -> None:
        """Note the results as far as they exist."""
        self.record = self._workspace.update_run(self.id, report=dict(report))

    def finish(self, size_bytes: int) -> None:
        """Note that the run ended well."""
        self.record = self._workspace.update_run(
            self.id, event="finished", state="finished", error=None, size_bytes=size_bytes
        )

    def close(self) -> None:
        """Let go of the run."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _beat(self) -> None:
        while not self._stop.wait(_HEARTBEAT_S):
            try:
                self._workspace.beat(self.id)
            except GraphboxError as error:
                # The run goes on: its lock says that it lives, and its next change meets the same error.
                _log.warning("the heartbeat of run %s could not be noted: %s", self.id, error)


def stop_hint(run_id: str) -> str:
    """Return what to do while another process holds a run."""
    return f"wait until it has finished, or stop it: `graphbox runs stop {run_id}`"


def mirror(record: RunRecord) -> None:
    """Write ``run.json`` into the run's folder: what the database knows, readable without it."""
    if not record.path.is_dir():
        return
    document = {
        "id": record.id,
        "name": record.name,
        "state": record.state,
        "stage": record.stage,
        "stages": [
            {
                "name": stage.name,
                "state": stage.state,
                "seconds": stage.seconds,
                "peak_bytes": stage.peak_bytes,
                "outputs": dict(stage.outputs),
            }
            for stage in record.stages
        ],
        "created_at": record.created_at.isoformat(),
        "updated_at": record.updated_at.isoformat(),
        "error": record.error,
        "config_digest": record.config_digest,
        "report": record.report,
    }
    write_text(record.path / "run.json", json.dumps(document, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that a reader sees the old file or the new one."""
    with write_atomically(path) as stream:
        # Bytes of a file that are no UTF-8 stay as they were read.
        stream.write(text.encode(errors="surrogateescape"))
