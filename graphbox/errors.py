"""The exceptions a user can meet, and the one table that maps them to exit codes and HTTP statuses.

::

    GraphboxError                    exit 1   HTTP 500   something failed
    ├── UsageError                   exit 2   HTTP 400   a wrong argument or option
    │   ├── ConfigError              exit 2   HTTP 400   the run file is wrong
    │   ├── InvalidRequestError      exit 2   HTTP 400   a request to a model is malformed
    │   └── NotFoundError            exit 2   HTTP 404   no such file, graph, run, model or id
    ├── DoesNotFitError              exit 3   HTTP 507   more memory or disk is needed than there is
    ├── DataError                    exit 4   HTTP 422   the input data is wrong
    │   └── FormatError              exit 4   HTTP 422   a file of ours is damaged or of another version
    ├── BackendMissingError          exit 5   HTTP 503   a device, backend or extra is not there
    │   └── UnsupportedError         exit 5   HTTP 501   the backend is there but cannot do this
    ├── GateError                    exit 6   HTTP 409   a quality gate refused the result
    ├── ConflictError                exit 1   HTTP 409   something else holds or already has this
    │   └── ShardReplacedError       exit 1   HTTP 409   another process has the rows of a shard by now
    ├── TimeLimitError               exit 1   HTTP 504   waited for something that did not come
    ├── ProcessLostError             exit 1   HTTP 500   another process of the same training ended
    └── InterruptedRunError          exit 75  HTTP 503   stopped on request; the run can be resumed

Every message says what was expected, what was received and where; ``hint`` says what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

_LONGEST_COMPARED = 128
_MOST_COMPARED = 1000


class GraphboxError(Exception):
    """Base of every error graphbox raises on purpose.

    Args:
        message: what was expected and what was received, one sentence.
        where: file:line, key, node id or tensor the message is about.
        hint: what to do next.
    """

    exit_code: int = 1
    http_status: int = 500

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    @property
    def code(self) -> str:
        """Stable machine-readable name: the class name in snake case without ``Error``."""
        name = type(self).__name__.removesuffix("Error")
        return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f"\n  = help: {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"


class UsageError(GraphboxError):
    """A wrong argument or option."""

    exit_code = 2
    http_status = 400


class ConfigError(UsageError):
    """The run file is wrong. ``problems`` holds one rendered message for each mistake in it."""

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        problems: Iterable[str] = (),
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([*self.problems, super().__str__()])


class InvalidRequestError(UsageError):
    """A request to a served model is malformed."""


class NotFoundError(UsageError):
    """No such file, graph, run, model or id."""

    http_status = 404


class DoesNotFitError(GraphboxError):
    """More memory or disk is needed than there is."""

    exit_code = 3
    http_status = 507


class DataError(GraphboxError):
    """The input data is wrong."""

    exit_code = 4
    http_status = 422


class FormatError(DataError):
    """A file of ours is damaged, truncated or written by another version."""


class BackendMissingError(GraphboxError):
    """A device, a backend or an optional dependency is not there."""

    exit_code = 5
    http_status = 503


class UnsupportedError(BackendMissingError):
    """The backend is there but cannot do what was asked."""

    http_status = 501


class GateError(GraphboxError):
    """A quality gate refused the result."""

    exit_code = 6
    http_status = 409


class ConflictError(GraphboxError):
    """Something else holds, or already has, what was asked for."""

    http_status = 409


class ShardReplacedError(ConflictError):
    """A shard was asked that has a successor, or may have one by now."""


class TimeLimitError(GraphboxError):
    """Waited for something that did not come."""

    http_status = 504


class ProcessLostError(GraphboxError):
    """Another of the processes that train together has ended or failed."""


class InterruptedRunError(GraphboxError):
    """The run was stopped on request; a checkpoint was written and it can be resumed."""

    exit_code = 75
    http_status = 503


def did_you_mean(received: str, known: Iterable[str]) -> str | None:
    """Return ``did you mean `x`?`` for the closest of ``known``, or None when nothing is close.

    Both can come from a request: long texts are compared with nothing, and only the first thousand of
    ``known`` are candidates.
    """
    if len(received) > _LONGEST_COMPARED:
        return None
    candidates = [name for name in islice(known, _MOST_COMPARED) if len(name) <= 2 * _LONGEST_COMPARED]
    matches = difflib.get_close_matches(received, candidates, n=1, cutoff=0.6)
    return f"did you mean `{matches[0]}`?" if matches else None


def missing_extra(package: str, extra: str) -> BackendMissingError:
    """Return the error that names the extra which installs ``package``."""
    return BackendMissingError(
        f"this needs the package `{package}`, which is not installed",
        hint=f"pip install 'graphbox[{extra}]'",
    )
