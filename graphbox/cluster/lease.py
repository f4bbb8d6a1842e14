"""The right of a shard to serve its rows, which ends by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from graphbox.errors import ShardReplacedError

__all__ = ["Lease", "seconds_since_boot"]


def seconds_since_boot() -> float:
    """Return seconds that also pass while the machine sleeps; no two machines have the same."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """A shard's permission to answer and to write files, for a time after it was last asked for.

    Nobody can tell a shard behind a broken network that it was replaced. So its successor is started only
    when the lease has run out, by the clock of the one who gives it. The lease is counted from the moment
    before the shard asked, the giver counts from the moment after it answered: the shard's ends first,
    however long the question took. Only durations are compared, never the clocks of two machines (Gray and
    Cheriton, SOSP 1989).

    Args:
        seconds: how long it lasts; None: for ever, where nobody would start a successor.
        clock: seconds, of this machine.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = seconds_since_boot) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0
        self._lock = threading.Lock()

    def renew(self, ask: Callable[[], bool]) -> bool:
        """Ask for the lease, and have it from before the question on; return whether it was given.

        Args:
            ask: returns whether the shard may go on. What it raises is raised, and the lease is as it was.
        """
        asked = self._clock()
        if not ask():
            self.end()
            return False
        if self._seconds is not None:
            with self._lock:
                self._until = max(self._until, asked + self._seconds)
        return True

    def end(self) -> None:
        """Give the lease up for good."""
        with self._lock:
            self._seconds, self._until = 0.0, 0.0

    @property
    def holds(self) -> bool:
        """True while the shard may serve."""
        return self._seconds is None or self._clock() < self._until

    def check(self, who: str) -> None:
        """Refuse what the shard may not do any more.

        Args:
            who: the shard, for the message.

        Raises:
            ShardReplacedError: the lease has run out.
        """
        if not self.holds:
            raise ShardReplacedError(
                f"expected a lease that holds, that of {who} has run out: another may have its keys by now",
                where=who,
                hint="ask for the shard's present address, and send again",
            )
