"""Settings of a server, and their validation."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from graphbox.errors import UsageError, did_you_mean

__all__ = ["DEFAULT_PORT", "RequestLimits", "Settings", "is_loopback"]

DEFAULT_PORT = 8710
SHORTEST_TOKEN = 16
MAX_UPDATED_BYTES = 256 * 1024 * 1024
HIGHEST_PORT = 65535
MOST_WORKERS_OF_A_PROCESSOR = 8
_SHARED_MEMORY_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,200}")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits on one request.

    Attributes:
        max_rows: largest first dimension of an input whose first dimension is free.
        max_json_bytes: largest JSON part.
    """

    max_rows: int
    max_json_bytes: int


# As in `graphbox.deploy.nearest.nodes`, which imports numpy.
NearestMode: TypeAlias = Literal["auto", "exact", "index"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one server.

    With several workers, limits hold for each of them.

    Attributes:
        workspace: folder of the workspace to show and to serve, or None.
        database_url: database of the workspace, None for the SQLite file inside it.
        models: folders of models to serve, ``<name>/<version>/`` inside or one version; only read.
        host: address to listen on. One that is not a loopback address needs a ``token``.
        port: port to listen on, 0 for any free one.
        grpc_port: port to listen on for gRPC, 0 for any free one; None: no gRPC.
        workers: processes that answer requests; more than one have a parent that starts them again.
        tls_certificate: PEM file of the certificate; None: connections are not encrypted.
        tls_key: PEM file of its private key.
        token: secret that every request except health checks must present, at least 16 characters. It has
            all scopes.
        token_file: names, scopes and hashes of further tokens, see `graphbox.server.tokens`; read again when
            it changes.
        allowed_hosts: names accepted in the ``Host`` header besides loopback names and ``host``.
        target: adapter to run models on, ``auto`` for the best one available.
        threads: threads of one model execution.
        nearest: whether nearest nodes are found by an index; see `graphbox.deploy.nearest.nodes.NearestMode`.
        shared_memory: whether clients on this machine may send tensors in shared memory.
        shared_memory_prefix: beginning of the keys of shared memory that they may register.
        restrict: categories of requests that need a secret of their own, see `graphbox.server.restricted`.
        follow: whether the server switches to versions that become active; else only at SIGHUP.
        create: whether a workspace that is not there is made; the server is not ready before it has a model.
        otel: whether requests are traced, see `graphbox.server.tracing`; needs the extra ``otel``.
        max_body_bytes: largest request body, before and after decompression.
        max_buffered_bytes: most bytes of bodies whose requests are not answered, of all connections together.
        max_json_bytes: largest JSON part of a request; larger tensors travel as binary data.
        max_rows: most rows (original ids, batch entries) of one request.
        max_rows_by_model: the same for single models, by name.
        max_neighbors: largest ``k`` of a neighbour query.
        max_updated_bytes: most bytes of rows that row updates have changed, of one model version; updates
            beyond it are refused.
        max_batch_rows: most rows of requests that are joined into one execution.
        max_batch_wait_ms: longest time for which a request waits to be joined while another one runs.
        max_queue_ms: most work that waits for one model, by its estimated time; more is refused with 503.
        max_pending: most model executions waiting for a thread; more are refused with 503.
        max_client_rate: requests per second of one client, which its token names, else its address; more are
            refused with 429. None: any number.
        max_client_burst: requests that a client may send at once after a pause; None: those of a second.
        max_client_pending: most requests of one client that wait for an answer; more are refused with 429.
            None: any number.
        max_connections: most open connections; more are refused with 503.
        header_timeout_s: time a client has to send the request line and the headers.
        body_timeout_s: time a client has to send the body.
        keep_alive_s: time an idle connection stays open.
        drain_timeout_s: time running requests have to finish after SIGTERM.
    """

    workspace: Path | None = None
    database_url: str | None = None
    models: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    grpc_port: int | None = None
    workers: int = 1
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    target: str = "auto"
    threads: int = 1
    nearest: NearestMode = "auto"
    shared_memory: bool = False
    shared_memory_prefix: str = "graphbox_"
    restrict: tuple[str, ...] = ()
    follow: bool = True
    create: bool = False
    otel: bool = False
    max_body_bytes: int = 64 * 1024 * 1024
    max_buffered_bytes: int = 1024 * 1024 * 1024
    max_json_bytes: int = 1024 * 1024
    max_rows: int = 65_536
    max_rows_by_model: Mapping[str, int] = field(default_factory=dict)
    max_neighbors: int = 1_000
    max_updated_bytes: int = MAX_UPDATED_BYTES
    max_batch_rows: int = 256
    max_batch_wait_ms: float = 2.0
    max_queue_ms: float = 100.0
    max_pending: int = 256
    max_client_rate: float | None = None
    max_client_burst: int | None = None
    max_client_pending: int | None = None
    max_connections: int = 1_024
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    keep_alive_s: int = 30
    drain_timeout_s: int = 10

    def rows_limit(self, name: str) -> int:
        """Return the most rows that one request to the model ``name`` may have."""
        return self.max_rows_by_model.get(name, self.max_rows)

    def check(self) -> None:
        """Reject settings that are wrong or unsafe.

        Raises:
            UsageError: a value is out of range, or the address is reachable from other machines
                and there is no token.
        """
        for name, port in (("port", self.port), ("grpc_port", self.grpc_port or 0)):
            if not 0 <= port <= HIGHEST_PORT:
                raise UsageError(f"expected a port between 0 and {HIGHEST_PORT}, received {port}", where=name)
        for name in (
            "workers",
            "threads",
            "max_body_bytes",
            "max_buffered_bytes",
            "max_json_bytes",
            "max_rows",
            "max_neighbors",
            "max_updated_bytes",
            "max_batch_rows",
            "max_queue_ms",
            "max_pending",
            "max_connections",
        ):
            if getattr(self, name) < 1:
                raise UsageError(f"expected at least 1, received {getattr(self, name)}", where=name)
        self._check_workers()
        self._check_client_limits()
        if self.nearest not in get_args(NearestMode):
            raise UsageError(
                f"expected {', '.join(get_args(NearestMode))}, received {self.nearest!r:.64}",
                where="nearest",
                hint=did_you_mean(self.nearest, get_args(NearestMode)),
            )
        if not _SHARED_MEMORY_PREFIX.fullmatch(self.shared_memory_prefix):
            raise UsageError(
                f"expected 1 to 200 letters, digits, `_` or `-`, received {self.shared_memory_prefix!r:.64}",
                where="shared_memory_prefix",
            )
        if self.max_batch_wait_ms < 0:
            raise UsageError(
                f"expected at least 0, received {self.max_batch_wait_ms}", where="max_batch_wait_ms"
            )
        for name, rows in self.max_rows_by_model.items():
            from graphbox.artifact import check_name  # the parent of workers has no use for its numpy

            check_name(name, "model name for max_rows")
            if rows < 1:
                raise UsageError(f"expected at least 1, received {rows}", where=f"max_rows of {name}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise UsageError(
                "expected a certificate and its key, received one of the two",
                where="tls_certificate, tls_key",
                hint="pass both --tls-certificate FILE and --tls-key FILE",
            )
        if self.token is not None:
            check_token(self.token)
        elif self.token_file is None and not is_loopback(self.host):
            raise UsageError(
                f"listening on {self.host}, which other machines can reach, needs a token",
                where="host",
                hint="pass --token SECRET (16 characters or more) or --token-file FILE, "
                "or listen on 127.0.0.1",
            )

    def _check_workers(self) -> None:
        most = MOST_WORKERS_OF_A_PROCESSOR * len(os.sched_getaffinity(0))
        if self.workers > most:
            raise UsageError(
                f"expected at most {most} on this machine, received {self.workers}",
                where="workers",
                hint="a worker keeps one processor busy: as many as there are processors are enough",
            )

    def _check_client_limits(self) -> None:
        for name, least in (("max_client_rate", 0.001), ("max_client_burst", 1), ("max_client_pending", 1)):
            limit = getattr(self, name)
            if limit is not None and not least <= limit < 1e9:
                raise UsageError(f"expected at least {least}, below 10^9, received {limit}", where=name)


def check_token(token: str) -> None:
    """Reject a token that is too short to be a secret, or that a header cannot hold.

    Raises:
        UsageError: the token has fewer than 16 characters, or one outside printable ASCII.
    """
    if len(token) < SHORTEST_TOKEN:
        raise UsageError(
            f"expected a token of at least {SHORTEST_TOKEN} characters, received {len(token)}",
            where="token",
            hint="`python -c 'import secrets; print(secrets.token_urlsafe(24))'` generates one",
        )
    if not all("!" <= character <= "~" for character in token):
        raise UsageError(
            "expected a token of printable ASCII characters without spaces, received another character",
            where="token",
        )


def resolve(host: str) -> str:
    """Return the IP address to bind for ``host``, IPv4 first.

    Raises:
        UsageError: the name has no address.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"expected a host name or IP address of this machine, received {host!r}: {error}", where="host"
        ) from error
    addresses = sorted((family != socket.AF_INET, str(address[0])) for family, *_, address in found)
    return addresses[0][1]


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on ``host``."""
    return ipaddress.ip_address(resolve(host)).is_loopback
