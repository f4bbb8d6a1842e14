"""Log settings that clients read and change while the server runs, in the words of the KServe protocol."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from graphbox.errors import InvalidRequestError, UnsupportedError, did_you_mean
from graphbox.server.body import shorten
from graphbox.server.shared_document import Document, SharedDocument

__all__ = ["LogSettings"]

_LOGGER_NAME = "graphbox.server"
# Traces have settings of their own; what requests change is in the log whatever they change.
_OTHER_LOGGER_NAMES = frozenset({"graphbox.server.trace", "graphbox.server.audit"})
_FIELD = "logging"
_LEVELS = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
_MAX_VERBOSE_LEVEL = 255


class LogSettings:
    """Log levels of the server, in all workers; records of the audit log are always written.

    ``log_info``, ``log_warning`` and ``log_error`` switch single levels, ``log_verbose_level`` from 1 that of
    debugging. Before the first change they are as at the server's start.

    Args:
        document: shared by the workers.
    """

    def __init__(self, document: SharedDocument) -> None:
        self._document = document
        self._logger = logging.getLogger(_LOGGER_NAME)
        self._filter = _LevelFilter()
        self._applied: Mapping[str, Any] | None = None
        self._first = {name: self._logger.isEnabledFor(level) for name, level in _LEVELS.items()} | {
            "log_verbose_level": int(self._logger.isEnabledFor(logging.DEBUG))
        }

    def current(self) -> dict[str, Any]:
        """Return the settings as the protocol names them."""
        changed = self._document.read().get(_FIELD, {})
        return {"log_file": "", **self._first, "log_format": "default", **changed}

    def change(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change settings and return all of them; others stay.

        Raises:
            InvalidRequestError: a setting is unknown or of another type; nothing changes.
            UnsupportedError: a file or another format is asked for.
        """
        checked = {name: _checked(name, value) for name, value in settings.items()}
        kept = {name: value for name, value in checked.items() if name in self._first}

        def add(document: Document) -> Document:
            return {**document, _FIELD: {**document.get(_FIELD, {}), **kept}}

        if kept:
            self._document.change(add)
            self.poll()
        return self.current()

    def poll(self) -> None:
        """Apply what this process or another worker has changed."""
        changed = self._document.read().get(_FIELD)
        if changed is None or changed == self._applied:
            return
        self._applied = changed
        settings = {**self._first, **changed}
        enabled = {level for name, level in _LEVELS.items() if settings[name]}
        if settings["log_verbose_level"]:
            enabled.add(logging.DEBUG)
        self._filter.enabled = frozenset(enabled)
        self._logger.setLevel(min(enabled, default=logging.CRITICAL + 1))
        for handler in logging.getLogger().handlers:
            if self._filter not in handler.filters:
                handler.addFilter(self._filter)


class _LevelFilter(logging.Filter):
    """Drops records of the server whose level is switched off, while lower ones are on."""

    def __init__(self) -> None:
        super().__init__()
        self.enabled: frozenset[int] = frozenset()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        name = record.name
        if name in _OTHER_LOGGER_NAMES or not f"{name}.".startswith(f"{_LOGGER_NAME}."):
            return True
        return min(record.levelno, logging.ERROR) // 10 * 10 in self.enabled


def _checked(name: str, value: object) -> object:
    if name in _LEVELS:
        if not isinstance(value, bool):
            raise InvalidRequestError(f"expected true or false, received {value!r:.64}", where=name)
        return value
    if name == "log_verbose_level":
        if type(value) is not int or not 0 <= value <= _MAX_VERBOSE_LEVEL:
            raise InvalidRequestError(
                f"expected an integer from 0 to {_MAX_VERBOSE_LEVEL}, received {value!r:.64}", where=name
            )
        return value
    if name == "log_file" and value != "":
        raise UnsupportedError(
            "a request cannot name a file for the log", where=name, hint="redirect standard error at start"
        )
    if name == "log_format" and value != "default":
        raise UnsupportedError(
            f"a request cannot change the format of the log, received {value!r:.64}",
            where=name,
            hint="it is chosen when the server starts",
        )
    known = [*_LEVELS, "log_verbose_level", "log_file", "log_format"]
    if name not in known:
        raise InvalidRequestError(
            f"expected the settings {', '.join(known)}, received `{shorten(name)}`",
            hint=did_you_mean(name, known),
        )
    return value
