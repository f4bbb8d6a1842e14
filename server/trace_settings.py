"""Trace settings that clients read and change while the server runs, and the traces that they ask for.

A trace is one line of JSON in the log: when a request came in, began to wait, ran and was answered.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Mapping
from typing import Any

import orjson

from graphbox.errors import InvalidRequestError, UnsupportedError, did_you_mean
from graphbox.server.batching import Call, Outcome
from graphbox.server.body import shorten
from graphbox.server.shared_document import Document, SharedDocument

__all__ = ["TraceSettings"]

trace_logger = logging.getLogger("graphbox.server.trace")

_FIELD = "trace"
_ALL_MODELS = ""
_DEFAULTS: dict[str, Any] = {"trace_level": ["OFF"], "trace_rate": 1000, "trace_count": -1}
_FIXED = {"log_frequency": "0", "trace_file": "", "trace_mode": "triton"}
_LEVELS = {"OFF", "TIMESTAMPS"}
_MAX_NUMBER = (1 << 32) - 1
_MAX_MODELS = 1024


class TraceSettings:
    """Sampling of traces of requests, in all workers; settings of a model override those of all models.

    ``trace_level`` is ``OFF`` or ``TIMESTAMPS``, ``trace_rate`` the number of requests to a worker of which
    one is traced, ``trace_count`` the number of remaining traces (-1: any).

    Args:
        document: shared by the workers.

    Attributes:
        sampler: traces requests; None: nothing is traced.
    """

    def __init__(self, document: SharedDocument) -> None:
        self._document = document
        self._applied: Mapping[str, Any] = {}
        self.sampler: _Sampler | None = None

    def current(self, model: str = _ALL_MODELS) -> dict[str, Any]:
        """Return the settings of all models or of one, as the protocol writes them."""
        found = _effective(self._document.read().get(_FIELD, {}), model)
        return {
            "trace_level": found["trace_level"],
            "trace_rate": str(found["trace_rate"]),
            "trace_count": str(found["trace_count"]),
            **_FIXED,
        }

    def change(self, model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change settings and return all of them; others stay.

        Args:
            model: name; empty: all models.
            settings: None as a value removes a setting: it is again that of all models, or the default.

        Raises:
            InvalidRequestError: a setting is unknown or of another type; nothing changes.
            UnsupportedError: a file, or another way to trace, is asked for.
        """
        checked = {name: _checked(name, value) for name, value in settings.items()}

        def add(document: Document) -> Document:
            every = document.get(_FIELD, {})
            own = {**every.get(model, {}), **checked}
            own = {name: value for name, value in own.items() if value is not None and name in _DEFAULTS}
            every = {name: value for name, value in {**every, model: own}.items() if value}
            if len(every) > _MAX_MODELS:
                raise InvalidRequestError(
                    f"expected trace settings of at most {_MAX_MODELS} models", hint="remove others by null"
                )
            return {**document, _FIELD: every}

        if checked:
            self._document.change(add)
            self.poll()
        return self.current(model)

    def poll(self) -> None:
        """Apply what this process or another worker has changed."""
        every = self._document.read().get(_FIELD, {})
        shape = {
            model: {**own, "trace_count": own.get("trace_count", -1) != 0} for model, own in every.items()
        }
        if shape == self._applied:  # a count that goes down changes nothing until it is 0
            return
        self._applied = shape
        is_on = any(_is_on(_effective(every, model)) for model in (_ALL_MODELS, *every))
        self.sampler = _Sampler(self._document, every) if is_on else None
        if is_on:
            trace_logger.setLevel(logging.INFO)  # whatever the rest of the server logs


class _Sampler:
    """Chooses and logs traces.

    Args:
        document: has the number of traces that remain.
        every: settings by model.
    """

    def __init__(self, document: SharedDocument, every: Mapping[str, Mapping[str, Any]]) -> None:
        self._document = document
        self._settings = {model: _effective(every, model) for model in (_ALL_MODELS, *every)}
        self._asked = {model: itertools.count(1) for model in self._settings}
        self._numbers = itertools.count(1)

    def answered(self, model: str, version: str, request_id: str, call: Call, outcome: Outcome) -> None:
        """Trace a call whose answer is encoded, if its turn has come.

        Args:
            model: name, as the client wrote it.
            version: that answered.
            request_id: of the client, or empty.
            call: what ran.
            outcome: its outcome.
        """
        group = model if model in self._settings else _ALL_MODELS
        settings = self._settings[group]
        if not _is_on(settings) or next(self._asked[group]) % settings["trace_rate"]:
            return
        if settings["trace_count"] > 0 and not self._take(group):
            return
        times = {
            "REQUEST_START": call.started_ns,
            "QUEUE_START": call.decoded_ns,
            "COMPUTE_START": outcome.begun_ns,
            "COMPUTE_END": outcome.ended_ns,
            "REQUEST_END": time.perf_counter_ns(),
        }
        trace_logger.info(
            orjson.dumps(
                {
                    "id": next(self._numbers),
                    "model_name": model,
                    "model_version": version,
                    "request_id": request_id,
                    "timestamps": [{"name": name, "ns": ns} for name, ns in times.items()],
                }
            ).decode()
        )

    def _take(self, group: str) -> bool:
        """Take one of the traces that remain, of those of all workers; return whether there was one."""
        taken = False

        def take(document: Document) -> Document:
            nonlocal taken
            every = document.get(_FIELD, {})
            owner = group if "trace_count" in every.get(group, {}) else _ALL_MODELS
            own = every.get(owner, {})
            left = own.get("trace_count", -1)
            taken = left != 0
            if left <= 0:
                return document
            return {**document, _FIELD: {**every, owner: {**own, "trace_count": left - 1}}}

        self._document.change(take)
        return taken


def _effective(every: Mapping[str, Mapping[str, Any]], model: str) -> dict[str, Any]:
    return {**_DEFAULTS, **every.get(_ALL_MODELS, {}), **every.get(model, {})}


def _is_on(settings: Mapping[str, Any]) -> bool:
    return "TIMESTAMPS" in settings["trace_level"] and settings["trace_count"] != 0


def _checked(name: str, value: object) -> object:
    """Return a setting in its own type; None: it is removed."""
    if name not in _DEFAULTS and name not in _FIXED:
        known = [*_DEFAULTS, *_FIXED]
        raise InvalidRequestError(
            f"expected the settings {', '.join(known)}, received `{shorten(name)}`",
            hint=did_you_mean(name, known),
        )
    if value is None:
        return None
    if name == "trace_level":
        levels = [value] if isinstance(value, str) else value
        if not isinstance(levels, list) or len(levels) != 1 or levels[0] not in _LEVELS:
            raise InvalidRequestError(f"expected OFF or TIMESTAMPS, received {value!r:.64}", where=name)
        return levels
    if isinstance(value, list) and len(value) == 1:  # as gRPC has all values
        value = value[0]
    if name in _FIXED:
        if str(value) != _FIXED[name]:
            raise UnsupportedError(
                f"a request cannot change {name}: traces are lines of the log, received {value!r:.64}",
                where=name,
            )
        return value
    return _number(name, value, lowest=1 if name == "trace_rate" else -1)


def _number(name: str, value: object, lowest: int) -> int:
    text = str(value) if type(value) in {int, str} else ""
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(_MAX_NUMBER))
    if not is_number or not lowest <= int(text) <= _MAX_NUMBER:
        raise InvalidRequestError(
            f"expected an integer from {lowest} to {_MAX_NUMBER}, received {value!r:.64}", where=name
        )
    return int(text)
