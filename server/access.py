"""Access: scope of a token, category and limits of each route and each method of gRPC. The one table of it.

A request is looked up once, when it is admitted; restrictions, tokens, the audit log and the limit on its
body follow from the row that it finds. A request that no row matches needs `Scope.READ` if it changes nothing
(GET, HEAD, OPTIONS), else `Scope.MANAGE`: a route that somebody forgets to list here is closed, not open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias, get_args
from urllib.parse import unquote

__all__ = [
    "CATEGORIES",
    "METHODS",
    "ROUTES",
    "ROW_UPDATE_ACTION",
    "Access",
    "Category",
    "Principal",
    "Route",
    "Scope",
    "access_of_method",
    "access_of_request",
    "is_kserve_path",
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
    """Authenticated sender of a request.

    Attributes:
        name: name of the token.
        scopes: permitted scopes.
    """

    name: str
    scopes: frozenset[Scope]


Category: TypeAlias = Literal[
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
"""Categories of requests, as Triton names them: `graphbox.server.restricted` restricts some of them.

Requests beside the KServe protocol that do the same belong to the same category.
"""


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a route or a method.

    Attributes:
        scope: scope that a token needs; None: open to everybody.
        category: for restrictions; None: it belongs to none, as the page and its form for the token.
        action: name in the audit log; None: nothing changes, and nothing is recorded.
        max_body_bytes: largest body; None: the one of the server.
        is_probe: whether it is asked by probes, which know neither the name nor the token of the server. It
            reveals nothing, and there is no limit on how often a client asks.
        change: access to a method of gRPC if the request has settings, which it then changes; known once its
            message is there. None: the method is either a change or none.
    """

    scope: Scope | None
    category: Category | None = None
    action: str | None = None
    max_body_bytes: int | None = None
    is_probe: bool = False
    change: Access | None = None


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


ROW_UPDATE_ACTION = "update rows"
"""Name in the audit log of requests whose bodies are rows."""

# Whoever has no token may send a form with one, and no more.
_MAX_OPEN_BYTES = 4 * 1024
# Of requests that name a version, a share or a setting.
_MAX_CHANGE_BYTES = 16 * 1024


def _read(category: Category | None) -> Access:
    return Access(Scope.READ, category)


def _infer(category: Category = "inference") -> Access:
    return Access(Scope.INFER, category)


def _managed(
    action: str, category: Category = "model-repository", max_body_bytes: int | None = _MAX_CHANGE_BYTES
) -> Access:
    return Access(Scope.MANAGE, category, action, max_body_bytes)


_PROBE = Access(None, "health", max_body_bytes=_MAX_OPEN_BYTES, is_probe=True)
_FORM = Access(None, max_body_bytes=_MAX_OPEN_BYTES)
_PAGE = _read(None)

_TABLE: dict[str, Access] = {
    # Probes
    "GET /healthz": _PROBE,
    "GET /healthz/live": _PROBE,
    "GET /healthz/ready": _PROBE,
    "GET /v2/health/live": _PROBE,
    "GET /v2/health/ready": _PROBE,
    # The page, its form for the token, and metrics
    "GET /": _PAGE,
    "GET /{path:path}": _PAGE,
    "GET /token": _FORM,
    "POST /token": _FORM,
    "GET /metrics": _read("statistics"),
    # REST
    "GET /api/v1/openapi.json": _read("metadata"),
    "GET /api/v1/overview": _read("metadata"),
    "GET /api/v1/graphs": _read("metadata"),
    "GET /api/v1/runs": _read("metadata"),
    "GET /api/v1/runs/{run_id}": _read("metadata"),
    "GET /api/v1/runs/{run_id}/metrics": _read("metadata"),
    "GET /api/v1/events": _read("metadata"),
    "GET /api/v1/targets": _read("metadata"),
    "GET /api/v1/audit": Access(Scope.MANAGE, "model-repository"),
    "GET /api/v1/models": _read("metadata"),
    "GET /api/v1/models/{name}/ids": _read("metadata"),
    "GET /api/v1/models/{name}/example": _read("metadata"),
    "GET /api/v1/models/{name}/relations": _read("metadata"),
    "GET /api/v1/models/{name}/encode": _read("metadata"),
    "GET /api/v1/models/{name}/neighbors": _infer(),
    "GET /api/v1/models/{name}/answers": _infer(),
    "POST /api/v1/models/{name}/predict": _infer(),
    "POST /api/v1/models/{name}/neighbors": _infer(),
    "POST /api/v1/models/{name}/encode": _infer(),
    "POST /api/v1/models/{name}/promote": _managed("promote"),
    "POST /api/v1/models/{name}/rollback": _managed("rollback"),
    "POST /api/v1/models/{name}/canary": _managed("canary"),
    "DELETE /api/v1/models/{name}/canary": _managed("end canary"),
    "POST /api/v1/models/{name}/shadow": _managed("shadow"),
    "DELETE /api/v1/models/{name}/shadow": _managed("end shadow"),
    "POST /api/v1/models/{name}/rows": _managed(ROW_UPDATE_ACTION, max_body_bytes=None),
    "POST /api/v1/models/{name}/rows/rollback": _managed("roll back rows"),
    "GET /api/v1/models/{name}/updates": _read("metadata"),
    "GET /api/v1/models/{name}/compressions": _read("metadata"),
    "GET /api/v1/models/{name}/compressions/{search_id}": _read("metadata"),
    # KServe v2
    "POST /v2/models/{model}/infer": _infer(),
    "POST /v2/models/{model}/versions/{version}/infer": _infer(),
    "GET /v2": _read("metadata"),
    "GET /v2/models/stats": _read("statistics"),
    "GET /v2/models/{model}": _read("metadata"),
    "GET /v2/models/{model}/ready": _read("health"),
    "GET /v2/models/{model}/config": _read("model-config"),
    "GET /v2/models/{model}/stats": _read("statistics"),
    "GET /v2/models/{model}/versions/{version}": _read("metadata"),
    "GET /v2/models/{model}/versions/{version}/ready": _read("health"),
    "GET /v2/models/{model}/versions/{version}/config": _read("model-config"),
    "GET /v2/models/{model}/versions/{version}/stats": _read("statistics"),
    "GET /v2/logging": _read("logging"),
    "POST /v2/logging": _managed("log settings", "logging"),
    "GET /v2/trace/setting": _read("trace"),
    "POST /v2/trace/setting": _managed("trace setting", "trace"),
    "GET /v2/models/{model}/trace/setting": _read("trace"),
    "POST /v2/models/{model}/trace/setting": _managed("trace setting", "trace"),
    "GET /v2/systemsharedmemory/status": _infer("shared-memory"),
    "POST /v2/systemsharedmemory/unregister": _infer("shared-memory"),
    "GET /v2/systemsharedmemory/region/{name}/status": _infer("shared-memory"),
    "POST /v2/systemsharedmemory/region/{name}/register": _infer("shared-memory"),
    "POST /v2/systemsharedmemory/region/{name}/unregister": _infer("shared-memory"),
    "GET /v2/cudasharedmemory/status": _infer("shared-memory"),
    "POST /v2/cudasharedmemory/unregister": _infer("shared-memory"),
    "GET /v2/cudasharedmemory/region/{name}/status": _infer("shared-memory"),
    "POST /v2/cudasharedmemory/region/{name}/register": _infer("shared-memory"),
    "POST /v2/cudasharedmemory/region/{name}/unregister": _infer("shared-memory"),
    "POST /v2/repository/index": _read("model-repository"),
    "POST /v2/repository/models/{model}/load": _managed("load"),
    "POST /v2/repository/models/{model}/unload": _managed("unload"),
}
ROUTES: tuple[Route, ...] = tuple(
    Route(method, template, access) for key, access in _TABLE.items() for method, template in [key.split(" ")]
)
"""Every route of HTTP."""

_INFERENCE = "/inference.GRPCInferenceService/"
METHODS: dict[str, Access] = {
    "/grpc.health.v1.Health/Check": _PROBE,
    "/grpc.health.v1.Health/Watch": _PROBE,
    f"{_INFERENCE}ServerLive": _PROBE,
    f"{_INFERENCE}ServerReady": _PROBE,
    f"{_INFERENCE}ServerMetadata": _read("metadata"),
    f"{_INFERENCE}ModelReady": _read("health"),
    f"{_INFERENCE}ModelMetadata": _read("metadata"),
    f"{_INFERENCE}ModelConfig": _read("model-config"),
    f"{_INFERENCE}ModelStatistics": _read("statistics"),
    f"{_INFERENCE}RepositoryIndex": _read("model-repository"),
    f"{_INFERENCE}ModelInfer": _infer(),
    f"{_INFERENCE}ModelStreamInfer": _infer(),
    f"{_INFERENCE}SystemSharedMemoryStatus": _infer("shared-memory"),
    f"{_INFERENCE}SystemSharedMemoryRegister": _infer("shared-memory"),
    f"{_INFERENCE}SystemSharedMemoryUnregister": _infer("shared-memory"),
    f"{_INFERENCE}CudaSharedMemoryStatus": _infer("shared-memory"),
    f"{_INFERENCE}CudaSharedMemoryRegister": _infer("shared-memory"),
    f"{_INFERENCE}CudaSharedMemoryUnregister": _infer("shared-memory"),
    f"{_INFERENCE}RepositoryModelLoad": _managed("load"),
    f"{_INFERENCE}RepositoryModelUnload": _managed("unload"),
    f"{_INFERENCE}TraceSetting": Access(Scope.READ, "trace", change=_managed("trace setting", "trace")),
    f"{_INFERENCE}LogSettings": Access(Scope.READ, "logging", change=_managed("log settings", "logging")),
}
"""Every method of gRPC, by its path."""

# Of methods that are not there: a call of one is refused with any token but one that manages.
_NO_METHOD = Access(Scope.MANAGE)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Results for the last paths: clients ask for few.
_found: dict[tuple[str, bytes], tuple[Access, dict[str, str]]] = {}
_MOST_FOUND = 4096
_LONGEST_FOUND_BYTES = 256
# The segments of templates, by method, whether they are those of KServe, and their number.
_BY_LENGTH: dict[tuple[str, bool, int], list[tuple[tuple[str, ...], Route]]] = {}
for _route in ROUTES:
    if ":path}" not in _route.template:  # the page's files: what a GET needs anyway
        _segments = tuple(_route.template.split("/"))
        _key = _route.method, _segments[1] == "v2", len(_segments)
        _BY_LENGTH.setdefault(_key, []).append((_segments, _route))


def is_kserve_path(path: bytes) -> bool:
    """Return whether a path, still percent-encoded, is one of the KServe protocol; REST has the others."""
    return path[:3] == b"/v2" and path[3:4] in (b"", b"/")


def access_of_request(method: str, path: bytes) -> tuple[Access, dict[str, str]]:
    """Return the access to a route, and the values of its placeholders.

    Args:
        method: of the request.
        path: still percent-encoded, without control characters, which the REST app would ignore at its end.
            Decoded once, as the applications do it: of the KServe protocol each segment alone.
    """
    known = _found.get((method, path))
    if known is None:
        known = _look_up(method, path)
        if len(path) < _LONGEST_FOUND_BYTES:
            if len(_found) >= _MOST_FOUND:  # clients choose paths
                _found.clear()
            _found[method, path] = known
    return known


def _look_up(method: str, path: bytes) -> tuple[Access, dict[str, str]]:
    text, is_kserve = path.decode("latin-1"), is_kserve_path(path)
    segments = [unquote(each) for each in text.split("/")] if is_kserve else unquote(text).split("/")
    looked_up = "GET" if method == "HEAD" else method
    for template, route in _BY_LENGTH.get((looked_up, is_kserve, len(segments)), ()):
        pairs = list(zip(template, segments, strict=True))
        if all(wanted == received or wanted[:1] == "{" for wanted, received in pairs):
            return route.access, {wanted[1:-1]: received for wanted, received in pairs if wanted[:1] == "{"}
    return _access_to_unlisted(method, segments), {}


def _access_to_unlisted(method: str, segments: list[str]) -> Access:
    if method not in _SAFE_METHODS:
        return Access(Scope.MANAGE, "model-repository")
    return _read("metadata") if segments[1] in {"v2", "api"} else _PAGE


def access_of_method(path: str) -> Access:
    """Return the access to a method of gRPC."""
    return METHODS.get(path, _NO_METHOD)
