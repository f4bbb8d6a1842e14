"""`graphbox bench --url`: load test of a running server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from graphbox.cli.session import Session
from graphbox.cli.text import count, table
from graphbox.errors import UsageError

if TYPE_CHECKING:
    from graphbox.server.load import LoadReport
    from graphbox.server.load.messages import Address, Message
    from graphbox.server.load.plan import Arrivals, Protocol

_OPEN_LOOP_CONNECTIONS = 256
_BUSY_CLIENT = 0.9


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Options of the command as given; None: the default."""

    url: str
    model: str
    versions: tuple[int, ...]
    batch_sizes: tuple[int, ...] | None
    seconds: float | None
    protocol: str | None
    grpc_port: int | None
    connections: int | None
    rate: float | None
    arrivals: str | None
    processes: int | None
    request: Path | None
    token: str | None = field(repr=False)


def bench_server(session: Session, options: LoadOptions) -> None:
    """Measure a running server and print the figures of each batch size.

    Raises:
        UsageError: an option is wrong.
        GraphboxError: the server cannot be reached, or refuses the requests.
    """
    from graphbox.server.load import LoadPlan, run_load
    from graphbox.server.load.messages import Address, check_answers, encode

    protocol = _protocol(options)
    if len(options.versions) > 1:
        raise UsageError("expected at most one version with --url, received several", where="--version")
    version = options.versions[0] if options.versions else None
    address = Address.parse(options.url, options.model, version, options.token)
    default_connections = 16 if options.rate is None else _OPEN_LOOP_CONNECTIONS
    reports: list[tuple[int, LoadReport]] = []
    for rows, messages in _messages(options, address):
        encoded = tuple(encode(message, address, protocol) for message in messages)
        if protocol != "grpc":
            check_answers(address, encoded[0])
        plan = LoadPlan(
            host=address.host,
            port=options.grpc_port or address.port,
            tls=address.tls,
            token=options.token,
            protocol=protocol,
            requests=encoded,
            connections=default_connections if options.connections is None else options.connections,
            rate=options.rate,
            arrivals=_arrivals(options),
            seconds=10.0 if options.seconds is None else options.seconds,
            warm_up_s=0.5 if options.rate is None else 0.0,  # late answers of an open loop belong to it
            processes=1 if options.processes is None else options.processes,
        )
        plan.check()
        session.note(f"loading {options.url}, {rows} rows a request, for {plan.seconds:g} s")
        reports.append((rows, run_load(plan)))
    documents = [{"batch": rows, **report.as_dict()} for rows, report in reports]
    session.answer(
        {"load": {options.model: documents}}, lambda console: _show(console, options.model, reports)
    )
    for _, report in reports:
        if report.client_cpu > _BUSY_CLIENT:
            session.note("the client used a whole core and may be what limits the rate: try --processes 2")


def _protocol(options: LoadOptions) -> Protocol:
    from graphbox.server.load.plan import Protocol

    protocol = options.protocol or "json"
    if protocol not in get_args(Protocol):
        raise UsageError(f"expected json, binary or grpc, received `{protocol}`", where="--protocol")
    if (protocol == "grpc") != (options.grpc_port is not None):
        raise UsageError("expected --grpc-port and --protocol grpc together", where="--grpc-port")
    return cast("Protocol", protocol)


def _arrivals(options: LoadOptions) -> Arrivals:
    from graphbox.server.load.plan import Arrivals

    arrivals = options.arrivals or "poisson"
    if options.arrivals is not None and options.rate is None:
        raise UsageError("expected --rate with --arrivals", where="--arrivals")
    if arrivals not in get_args(Arrivals):
        raise UsageError(f"expected poisson or constant, received `{arrivals}`", where="--arrivals")
    return cast("Arrivals", arrivals)


def _messages(options: LoadOptions, address: Address) -> list[tuple[int, list[Message]]]:
    """Return number of rows and requests of each measurement."""
    from graphbox.server.load.messages import metadata, read_requests, served_requests, with_batch

    messages = served_requests(address) if options.request is None else read_requests(options.request)
    if options.batch_sizes is None:
        return [(max(len(values) for values in messages[0].inputs.values()), messages)]
    declared = metadata(address)
    return [(batch, with_batch(messages, batch, declared)) for batch in options.batch_sizes]


def _show(console: Any, model: str, reports: list[tuple[int, LoadReport]]) -> None:
    columns = ("rows", "answers/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms", "refused", "failed")
    rows = []
    for batch, report in reports:
        latency = report.tally.latency.summary()
        shown = [f"{latency[f'{name}_ms']:.2f}" for name in ("p50", "p90", "p99", "p99.9", "max")]
        rows.append(
            (str(batch), count(round(report.goodput)), *shown, count(report.refused), count(report.failed))
        )
    console.print(table(f"Requests to {model}", columns, rows, numbers=columns))
    for batch, report in reports:
        tally = report.tally
        if report.refused:
            p99 = tally.refusal.percentile_ms(99)
            console.print(f"{batch} rows: refusals took {p99:.2f} ms at most in 99 % of cases")
        if tally.errors:
            reasons = ", ".join(f"{number} x {reason}" for reason, number in sorted(tally.errors.items()))
            console.print(f"{batch} rows: failed {reasons}")
        if tally.unsent:
            console.print(
                f"{batch} rows: {count(tally.unsent)} requests found no free connection until the end"
            )
