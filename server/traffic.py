"""Assignment of requests to the canary of a model, and of copies to its shadow."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from graphbox.server.counters import Counters, total
from graphbox.workspace.traffic import ModelTraffic, Shadow

__all__ = [
    "ROUTING_KEY_HEADER",
    "CanaryRoute",
    "Route",
    "ShadowRoute",
    "Share",
    "routes_of",
    "unavailable_requests",
]

ROUTING_KEY_HEADER = b"x-routing-key"
"""Requests of a model with the same value of this header go to the same version."""

_POINTS = 1 << 64
# Fractional part of the golden ratio: its multiples, modulo 1, fall evenly into every interval.
_STEP = 0x9E3779B97F4A7C15


class Share:
    """A share of a model's requests. Safe to use from any thread.

    Requests with a routing key are in it or not by the key, the same in every process; a larger share has
    those of a smaller one. The others are spread evenly: of any n in a row, the share differs from n times it
    by less than log n.

    Args:
        name: of the model.
        percent: the share.
    """

    def __init__(self, name: str, percent: float) -> None:
        self._end = round(percent / 100 * _POINTS)
        self._prefix = name.encode() + b"\0"
        self._numbers = itertools.count(1)

    def takes(self, routing_key: bytes | None) -> bool:
        """Return whether the next request is in the share."""
        if routing_key is None:
            return next(self._numbers) * _STEP % _POINTS < self._end
        digest = blake2b(self._prefix + routing_key, digest_size=8).digest()
        return int.from_bytes(digest, "big") < self._end


@dataclass(frozen=True, slots=True, eq=False)
class CanaryRoute:
    """The canary of a model.

    Attributes:
        version: its number.
        share: requests that go to it.
    """

    version: int
    share: Share
    _unavailable: memoryview[int]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count_unavailable(self) -> None:
        """Count a request of the share that goes to the active version instead."""
        with self._lock:
            self._unavailable[0] += 1


@dataclass(frozen=True, slots=True, eq=False)
class ShadowRoute:
    """The shadow of a model.

    Attributes:
        name: of the model.
        shadow: its version, tolerance and number.
        share: requests that are repeated on it.
    """

    name: str
    shadow: Shadow
    share: Share


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Where requests of a model go besides the active version.

    Attributes:
        traffic: what was asked for.
        canary: None: there is none.
        shadow: None: there is none.
    """

    traffic: ModelTraffic
    canary: CanaryRoute | None
    shadow: ShadowRoute | None

    @property
    def versions(self) -> list[tuple[str, int]]:
        """Role and number of each version."""
        traffic = self.traffic
        pairs = (("canary", traffic.canary), ("shadow", traffic.shadow))
        return [(role, share.version) for role, share in pairs if share is not None]


def routes_of(
    traffic: Mapping[str, ModelTraffic], before: Mapping[str, Route], counters: Counters
) -> dict[str, Route]:
    """Return the routes by model name; those that have not changed since ``before`` stay the same objects."""
    return {
        name: before[name]
        if name in before and before[name].traffic == each
        else _route_of(name, each, counters)
        for name, each in traffic.items()
    }


def unavailable_requests(counters: Counters, name: str, version: int) -> int:
    """Return the requests that all workers sent to the active version, as the canary did not answer."""
    sums = total(counters.records(("canary", name, str(version))).get("", []))
    return sums[0] if sums else 0


def _route_of(name: str, traffic: ModelTraffic, counters: Counters) -> Route:
    canary, shadow = traffic.canary, traffic.shadow
    return Route(
        traffic,
        None
        if canary is None
        else CanaryRoute(
            canary.version,
            Share(name, canary.percent),
            counters.record(("canary", name, str(canary.version)), "", 1),
        ),
        None if shadow is None else ShadowRoute(name, shadow, Share(name, shadow.percent)),
    )
