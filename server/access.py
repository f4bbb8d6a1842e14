"""Access: which scope of a token each route and each method of gRPC needs. The one table of it.

A request that no row matches needs `Scope.READ` if it changes nothing (GET, HEAD, OPTIONS), else
`Scope.MANAGE`: a route that somebody forgets to list here is closed, not open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

__all__ = [
    "METHODS",
    "ROUTES",
    "Access",
    "Principal",
    "Route",
    "Scope",
    "access_of_method",
    "access_of_request",
]


class Scope(StrEnum):
    """Permissions of a token. None of them includes another one."""

    READ = "read"
    """Documents, metrics, statistics and the web page."""
    INFER = "infer"
    """Requests to models."""
    MANAGE = "manage"
    """Whatever changes what is served or how; and the audit log."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sends a request.

    Attributes:
        name: name of the token.
        scopes: what it may do.
    """

    name: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a route or a method.

    Attributes:
        scope: scope that a token needs; None: open to everybody.
        action: name in the audit log; None: nothing changes, and nothing is recorded.
    """

    scope: Scope | None
    action: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A row of the table.

    Attributes:
        method: of HTTP; GET stands for HEAD, too.
        template: path with placeholders in braces, each for one segment.
        access: to it.
    """

    method: str
    template: str
    access: Access


_OPEN = Access(None)
_READ = Access(Scope.READ)
_INFER = Access(Scope.INFER)
_MANAGE = Access(Scope.MANAGE)


def _managed(action: str) -> Access:
    return Access(Scope.MANAGE, action)


_TABLE: dict[str, Access] = {
    # Probes
    "GET /healthz": _OPEN,
    "GET /healthz/live": _OPEN,
    "GET /healthz/ready": _OPEN,
    "GET /v2/health/live": _OPEN,
    "GET /v2/health/ready": _OPEN,
    # The page, its form for the token, and metrics
    "GET /": _READ,
    "GET /{path:path}": _READ,
    "GET /token": _OPEN,
    "POST /token": _OPEN,
    "GET /metrics": _READ,
    # REST
    "GET /api/v1/openapi.json": _READ,
    "GET /api/v1/overview": _READ,
    "GET /api/v1/graphs": _READ,
    "GET /api/v1/runs": _READ,
    "GET /api/v1/runs/{run_id}": _READ,
    "GET /api/v1/runs/{run_id}/metrics": _READ,
    "GET /api/v1/events": _READ,
    "GET /api/v1/targets": _READ,
    "GET /api/v1/audit": _MANAGE,
    "GET /api/v1/models": _READ,
    "GET /api/v1/models/{name}/ids": _READ,
    "GET /api/v1/models/{name}/example": _READ,
    "GET /api/v1/models/{name}/relations": _READ,
    "GET /api/v1/models/{name}/encode": _READ,
    "GET /api/v1/models/{name}/neighbors": _INFER,
    "GET /api/v1/models/{name}/answers": _INFER,
    "POST /api/v1/models/{name}/predict": _INFER,
    "POST /api/v1/models/{name}/neighbors": _INFER,
    "POST /api/v1/models/{name}/encode": _INFER,
    "POST /api/v1/models/{name}/promote": _managed("promote"),
    "POST /api/v1/models/{name}/rollback": _managed("rollback"),
    "POST /api/v1/models/{name}/canary": _managed("canary"),
    "DELETE /api/v1/models/{name}/canary": _managed("end canary"),
    "POST /api/v1/models/{name}/shadow": _managed("shadow"),
    "DELETE /api/v1/models/{name}/shadow": _managed("end shadow"),
    "POST /api/v1/models/{name}/rows": _managed("update rows"),
    "POST /api/v1/models/{name}/rows/rollback": _managed("roll back rows"),
    "GET /api/v1/models/{name}/updates": _READ,
    # KServe v2
    "POST /v2/models/{model}/infer": _INFER,
    "POST /v2/models/{model}/versions/{version}/infer": _INFER,
    "GET /v2": _READ,
    "GET /v2/models/stats": _READ,
    "GET /v2/models/{model}": _READ,
    "GET /v2/models/{model}/ready": _READ,
    "GET /v2/models/{model}/config": _READ,
    "GET /v2/models/{model}/stats": _READ,
    "GET /v2/models/{model}/versions/{version}": _READ,
    "GET /v2/models/{model}/versions/{version}/ready": _READ,
    "GET /v2/models/{model}/versions/{version}/config": _READ,
    "GET /v2/models/{model}/versions/{version}/stats": _READ,
    "GET /v2/logging": _READ,
    "POST /v2/logging": _managed("log settings"),
    "GET /v2/trace/setting": _READ,
    "POST /v2/trace/setting": _managed("trace setting"),
    "GET /v2/models/{model}/trace/setting": _READ,
    "POST /v2/models/{model}/trace/setting": _managed("trace setting"),
    "GET /v2/systemsharedmemory/status": _INFER,
    "POST /v2/systemsharedmemory/unregister": _INFER,
    "GET /v2/systemsharedmemory/region/{name}/status": _INFER,
    "POST /v2/systemsharedmemory/region/{name}/register": _INFER,
    "POST /v2/systemsharedmemory/region/{name}/unregister": _INFER,
    "GET /v2/cudasharedmemory/status": _INFER,
    "POST /v2/cudasharedmemory/unregister": _INFER,
    "GET /v2/cudasharedmemory/region/{name}/status": _INFER,
    "POST /v2/cudasharedmemory/region/{name}/register": _INFER,
    "POST /v2/cudasharedmemory/region/{name}/unregister": _INFER,
    "POST /v2/repository/index": _READ,
    "POST /v2/repository/models/{model}/load": _managed("load"),
    "POST /v2/repository/models/{model}/unload": _managed("unload"),
}
ROUTES: tuple[Route, ...] = tuple(
    Route(method, template, access) for key, access in _TABLE.items() for method, template in [key.split(" ")]
)
"""Every route of HTTP."""

_INFERENCE = "/inference.GRPCInferenceService/"
METHODS: dict[str, Access] = {
    "/grpc.health.v1.Health/Check": _OPEN,
    "/grpc.health.v1.Health/Watch": _OPEN,
    f"{_INFERENCE}ServerLive": _OPEN,
    f"{_INFERENCE}ServerReady": _OPEN,
    f"{_INFERENCE}ServerMetadata": _READ,
    f"{_INFERENCE}ModelReady": _READ,
    f"{_INFERENCE}ModelMetadata": _READ,
    f"{_INFERENCE}ModelConfig": _READ,
    f"{_INFERENCE}ModelStatistics": _READ,
    f"{_INFERENCE}RepositoryIndex": _READ,
    f"{_INFERENCE}ModelInfer": _INFER,
    f"{_INFERENCE}ModelStreamInfer": _INFER,
    f"{_INFERENCE}SystemSharedMemoryStatus": _INFER,
    f"{_INFERENCE}SystemSharedMemoryRegister": _INFER,
    f"{_INFERENCE}SystemSharedMemoryUnregister": _INFER,
    f"{_INFERENCE}CudaSharedMemoryStatus": _INFER,
    f"{_INFERENCE}CudaSharedMemoryRegister": _INFER,
    f"{_INFERENCE}CudaSharedMemoryUnregister": _INFER,
    f"{_INFERENCE}RepositoryModelLoad": _managed("load"),
    f"{_INFERENCE}RepositoryModelUnload": _managed("unload"),
    f"{_INFERENCE}TraceSetting": _managed("trace setting"),
    f"{_INFERENCE}LogSettings": _managed("log settings"),
}
"""Every method of gRPC, by its path."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Results for the first paths: clients ask for few.
_found: dict[tuple[str, bytes], tuple[Access, dict[str, str]]] = {}
_MOST_FOUND = 4096
_LONGEST_FOUND_BYTES = 256
# The segments of templates, by method and their number.
_BY_LENGTH: dict[tuple[str, int], list[tuple[tuple[str, ...], Route]]] = {}
for _route in ROUTES:
    if ":path}" not in _route.template:  # the page's files: what a GET needs anyway
        _segments = tuple(_route.template.split("/"))
        _BY_LENGTH.setdefault((_route.method, len(_segments)), []).append((_segments, _route))


def access_of_request(method: str, path: bytes) -> tuple[Access, dict[str, str]]:
    """Return the access to a route, and the values of its placeholders.

    Args:
        method: of the request.
        path: still percent-encoded. As the applications decode it: below ``/v2`` each segment alone.
    """
    known = _found.get((method, path))
    if known is None:
        known = _look_up(method, path)
        if len(_found) < _MOST_FOUND and len(path) < _LONGEST_FOUND_BYTES:
            _found[method, path] = known
    return known


def _look_up(method: str, path: bytes) -> tuple[Access, dict[str, str]]:
    text = path.decode("latin-1")
    if "%" in text and not (text == "/v2" or text.startswith("/v2/")):
        text = unquote(text)
    segments = text.split("/")
    if "%" in text and segments[1] == "v2":
        segments = [unquote(each) for each in segments]
    looked_up = "GET" if method == "HEAD" else method
    for template, route in _BY_LENGTH.get((looked_up, len(segments)), ()):
        if all(
            wanted == received or wanted[:1] == "{"
            for wanted, received in zip(template, segments, strict=True)
        ):
            values = {
                wanted[1:-1]: received
                for wanted, received in zip(template, segments, strict=True)
                if wanted[:1] == "{"
            }
            return route.access, values
    return (_READ if method in _SAFE_METHODS else _managed(f"{method} of an unlisted path")), {}


def access_of_method(path: str) -> Access:
    """Return the access to a method of gRPC."""
    return METHODS.get(path, _MANAGE)
