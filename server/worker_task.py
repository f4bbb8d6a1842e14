"""Messages between the supervisor and its workers: one JSON document a line, over a socket pair."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from graphbox import errors
from graphbox.errors import GraphboxError
from graphbox.server.logs import JsonFormatter, start_json_log
from graphbox.server.readiness import Readiness
from graphbox.server.settings import Settings

__all__ = ["LogFormat", "WorkerReport", "WorkerTask"]


@dataclass(frozen=True, slots=True)
class LogFormat:
    """Logging of a process that sends its records to standard error.

    Attributes:
        level: lowest level that is logged.
        format: format of a line of text.
        is_json: whether lines are JSON instead.
    """

    level: int
    format: str
    is_json: bool = False

    @classmethod
    def of_this_process(cls) -> LogFormat | None:
        """Return the format of this process; None: logging is not set up."""
        root = logging.getLogger()
        if not root.handlers:
            return None
        formatter = root.handlers[0].formatter or logging.Formatter()
        is_json = isinstance(formatter, JsonFormatter)
        return cls(root.level, formatter._fmt or logging.BASIC_FORMAT, is_json)

    def start(self, worker: int) -> None:
        """Log in this format, with the position of the worker before each message or as a field."""
        if self.is_json:
            start_json_log(self.level, worker)
            return
        form = self.format.replace("%(message)s", f"worker {worker}: %(message)s")
        logging.basicConfig(level=self.level, format=form, force=True)


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """Settings of one worker process.

    Attributes:
        settings: of the server, with the port that it listens on.
        worker: position among the workers, from 0.
        listeners: descriptors of the sockets that listen for this worker, see `Listeners`.
        counters: descriptors of the counter files of all workers, by position.
        state: SQLite file of the requests about models; None: the workspace has them.
        log: format of its log; None: logging is not set up.
        document: descriptor of the file of the document that workers share.
    """

    settings: Settings
    worker: int
    listeners: tuple[int, int | None]
    counters: tuple[int, ...]
    state: Path | None
    log: LogFormat | None
    document: int

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All descriptors that the process needs."""
        return (*(each for each in self.listeners if each is not None), *self.counters, self.document)

    def to_line(self) -> bytes:
        """Return this task as one line of JSON."""
        return json.dumps(asdict(self), default=str).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> WorkerTask:
        """Return the task of a line that `to_line` returned."""
        given = json.loads(line)
        return cls(
            settings=_settings(given["settings"]),
            worker=given["worker"],
            listeners=(given["listeners"][0], given["listeners"][1]),
            counters=tuple(given["counters"]),
            state=None if given["state"] is None else Path(given["state"]),
            log=None if given["log"] is None else LogFormat(**given["log"]),
            document=given["document"],
        )


def _settings(given: dict[str, Any]) -> Settings:
    read: dict[str, Callable[[Any], Any]] = {
        "Path | None": lambda value: None if value is None else Path(value),
        "tuple[Path, ...]": lambda value: tuple(map(Path, value)),
        "tuple[str, ...]": tuple,
    }
    return Settings(
        **{field.name: read.get(str(field.type), _same)(given[field.name]) for field in fields(Settings)}
    )


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A message of a worker to the supervisor; one of the attributes is set.

    Attributes:
        started: whether it accepts connections.
        preloaded: its readiness after every model was opened or failed to open.
        error: why it cannot serve.
    """

    started: bool = False
    preloaded: Readiness | None = None
    error: GraphboxError | None = None

    def to_line(self) -> bytes:
        """Return this report as one line of JSON."""
        error = self.error
        return (
            json.dumps(
                {
                    "started": self.started,
                    "preloaded": None if self.preloaded is None else asdict(self.preloaded),
                    "error": None
                    if error is None
                    else {
                        "type": type(error).__name__,
                        "message": error.message,
                        "where": error.where,
                        "hint": error.hint,
                    },
                }
            ).encode()
            + b"\n"
        )

    @classmethod
    def of_line(cls, line: bytes) -> WorkerReport:
        """Return the report of a line that `to_line` returned."""
        given = json.loads(line)
        preloaded, error = given["preloaded"], given["error"]
        return cls(
            started=given["started"],
            preloaded=None if preloaded is None else Readiness(**preloaded),
            error=None if error is None else _error(**error),
        )


def _error(type: str, message: str, where: str | None, hint: str | None) -> GraphboxError:  # noqa: A002
    kind = getattr(errors, type, GraphboxError)  # errors of the server's requests are no reason not to start
    error: GraphboxError = kind(message, where=where, hint=hint)
    return error
