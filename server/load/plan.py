"""Settings and result of a load test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from graphbox.errors import UsageError
from graphbox.server.load.histogram import LatencyHistogram

__all__ = ["Arrivals", "LoadPlan", "LoadReport", "Protocol", "Tally"]

Protocol = Literal["json", "binary", "grpc"]
Arrivals = Literal["poisson", "constant"]


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """Settings of a load test.

    Attributes:
        host: name or address of the server.
        port: of the server.
        tls: whether the connection is encrypted.
        token: sent as a bearer token, if any.
        protocol: HTTP with JSON or binary tensors, or gRPC.
        requests: what is sent, one after the other: whole HTTP requests, or messages `ModelInferRequest`.
        connections: open connections in each process, each with one request at a time.
        rate: requests per second of all processes together; None: closed loop.
        arrivals: distribution of the intervals of an open loop.
        seconds: time in which requests are sent.
        warm_up_s: time before it, whose requests are not counted.
        timeout_s: longest wait for an answer.
        processes: that send.
        seed: of Poisson arrivals.
    """

    host: str
    port: int
    requests: tuple[bytes, ...]
    tls: bool = False
    token: str | None = field(default=None, repr=False)
    protocol: Protocol = "json"
    connections: int = 16
    rate: float | None = None
    arrivals: Arrivals = "poisson"
    seconds: float = 10.0
    warm_up_s: float = 0.5
    timeout_s: float = 10.0
    processes: int = 1
    seed: int = 0

    def check(self) -> None:
        """Reject a plan that cannot be carried out.

        Raises:
            UsageError: a number is out of range, or there are no requests.
        """
        if not self.requests:
            raise UsageError("expected at least one request to send, received none", where="requests")
        for name in ("connections", "processes"):
            if getattr(self, name) < 1:
                raise UsageError(f"expected at least 1, received {getattr(self, name)}", where=name)
        for name in ("seconds", "timeout_s", "rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"expected a positive number, received {value:g}", where=name)
        if not 0 <= self.warm_up_s < float("inf"):
            raise UsageError(f"expected at least 0, received {self.warm_up_s:g}", where="warm_up_s")


@dataclass
class Tally:
    """Counts and latencies of one process.

    Attributes:
        sent: requests sent; each is answered, refused, or an error.
        errors: failed requests, by reason: an HTTP status, a gRPC code, ``timeout``, ``connection``.
        unsent: arrivals of an open loop that found no free connection until the end.
        latency: of accepted requests; in an open loop from the intended time of sending.
        service: of accepted requests, from the actual sending: without waits for a free connection.
        refusal: the same of refused requests (HTTP 503, gRPC RESOURCE_EXHAUSTED).
        begun_ns, ended_ns: `time.monotonic_ns` of the first request and of the last answer.
    """

    sent: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    unsent: int = 0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    service: LatencyHistogram = field(default_factory=LatencyHistogram)
    refusal: LatencyHistogram = field(default_factory=LatencyHistogram)
    begun_ns: int = 0
    ended_ns: int = 0

    def fail(self, reason: str) -> None:
        """Count a failed request."""
        self.errors[reason] = self.errors.get(reason, 0) + 1

    def add(self, other: Tally) -> None:
        """Add what another process counted."""
        self.sent += other.sent
        self.unsent += other.unsent
        for reason, count in other.errors.items():
            self.errors[reason] = self.errors.get(reason, 0) + count
        self.latency.add(other.latency)
        self.service.add(other.service)
        self.refusal.add(other.refusal)
        self.begun_ns = min(self.begun_ns, other.begun_ns) if self.begun_ns else other.begun_ns
        self.ended_ns = max(self.ended_ns, other.ended_ns)


@dataclass(frozen=True)
class LoadReport:
    """Result of a load test.

    Attributes:
        plan: its settings.
        tally: counts and latencies.
        client_cpu: processor seconds of the busiest client process per second. From about 0.9 the client
            limits the rate, and its waits are part of the latencies.
    """

    plan: LoadPlan
    tally: Tally
    client_cpu: float

    @property
    def seconds(self) -> float:
        """Time from the first request to the last answer."""
        return max((self.tally.ended_ns - self.tally.begun_ns) / 1e9, 1e-9)

    @property
    def accepted(self) -> int:
        """Requests that were answered."""
        return self.tally.latency.count

    @property
    def refused(self) -> int:
        """Requests that the server refused because it is busy."""
        return self.tally.refusal.count

    @property
    def failed(self) -> int:
        """Requests without an answer, or with an error."""
        return sum(self.tally.errors.values())

    @property
    def goodput(self) -> float:
        """Answered requests per second."""
        return self.accepted / self.seconds

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        plan, tally = self.plan, self.tally
        return {
            "protocol": plan.protocol,
            "loop": "closed" if plan.rate is None else "open",
            "rate": plan.rate,
            "arrivals": None if plan.rate is None else plan.arrivals,
            "connections": plan.connections * plan.processes,
            "processes": plan.processes,
            "seconds": self.seconds,
            "sent": tally.sent,
            "accepted": self.accepted,
            "refused": self.refused,
            "failed": self.failed,
            "errors": tally.errors,
            "unsent": tally.unsent,
            "goodput": self.goodput,
            "client_cpu": self.client_cpu,
            "latency": tally.latency.summary(),
            "service": tally.service.summary(),
            "refusal": tally.refusal.summary(),
            "histogram_ms": tally.latency.buckets(),
        }
