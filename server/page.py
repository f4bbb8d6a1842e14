"""The web page: files of a finished build, shipped as package data."""

from __future__ import annotations

import html
import mimetypes
import re
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

from graphbox.server.problem import RefusedError

__all__ = ["PageFiles", "refused_page", "router"]

# Styles may be inline (component libraries set custom properties that way), scripts never.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    ]
)
_HASHED = re.compile(r"[-.][A-Za-z0-9_-]{8,}\.[a-z0-9]+$")
_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_IMMUTABLE = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class _Listing:
    """The files below a folder by their path, and when each of its folders last changed."""

    files: dict[str, Traversable]
    folders: dict[Traversable, int | None]


class PageFiles:
    """The files of the built page; only a listed path is ever opened.

    The listing is read again once a folder has changed, so that a page built anew is served at once.
    """

    def __init__(self, root: Traversable | None = None) -> None:
        self._root = resources.files("graphbox.server") / "static" if root is None else root
        self._listing = _list(self._root)

    def answer(self, path: str, accept_encoding: str) -> Response | None:
        """Return the file at ``path``, compressed when it was built so and the client takes it."""
        if path.endswith(".gz"):
            return None
        files = self._files()
        names = [f"{path}.gz", path] if accepts_gzip(accept_encoding) else [path]
        name = next((name for name in names if name in files), None)
        if path not in files or name is None:
            return None
        try:
            content = files[name].read_bytes()
        except FileNotFoundError:  # a build removed it just now
            return None
        kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        kind = {"text/javascript": "text/javascript; charset=utf-8"}.get(kind, kind)
        headers = {
            "cache-control": _IMMUTABLE
            if path.startswith("assets/") and _HASHED.search(path)
            else "no-cache",
            "content-security-policy": CONTENT_SECURITY_POLICY,
            "vary": "accept-encoding",
        }
        if name != path:
            headers["content-encoding"] = "gzip"
        return Response(content, media_type=kind, headers=headers)

    def _files(self) -> dict[str, Traversable]:
        if any(_changed_ns(folder) != changed for folder, changed in self._listing.folders.items()):
            self._listing = _list(self._root)
        return self._listing.files


def _list(root: Traversable) -> _Listing:
    listing = _Listing({}, {})
    _walk(root, "", listing)
    return listing


def _walk(folder: Traversable, prefix: str, listing: _Listing) -> None:
    """Add what is below ``folder``, skipping names no build produces."""
    # Taken before the content: what changes while it is read is seen the next time.
    listing.folders[folder] = _changed_ns(folder)
    if not folder.is_dir():
        return
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:  # a build removed it just now
        return
    for entry in entries:
        if not _SEGMENT.fullmatch(entry.name):
            continue
        path = prefix + entry.name
        if entry.is_dir():
            _walk(entry, path + "/", listing)
        elif entry.is_file():
            listing.files[path] = entry


def _changed_ns(folder: Traversable) -> int | None:
    """Return when entries of ``folder`` last changed; None where it is absent, or in an archive."""
    if not isinstance(folder, Path):
        return None
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def accepts_gzip(accept_encoding: str) -> bool:
    """Tell whether an ``Accept-Encoding`` header allows gzip."""
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.strip().partition(";")
        if name.strip() == "gzip":
            return parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


@router.api_route("/", methods=["GET", "HEAD"])
def page(request: Request) -> Response:
    """Answer the page itself."""
    files: PageFiles = request.app.state.page
    answer = files.answer("index.html", request.headers.get("accept-encoding", ""))
    return answer or _document(
        503,
        "The web page is not built",
        "This installation of graphbox came without its web page. The interfaces work:"
        " <code>/api/v1</code>, <code>/v2</code>, <code>/metrics</code>.",
        "<code>make web</code> in a clone of the repository builds it; wheels bring it along.",
    )


@router.api_route("/{path:path}", methods=["GET", "HEAD"])
def file(path: str, request: Request) -> Response:
    """Answer a file of the page."""
    files: PageFiles = request.app.state.page
    answer = files.answer(path, request.headers.get("accept-encoding", ""))
    if answer is None:
        raise HTTPException(404)
    return answer


def refused_page(refusal: RefusedError) -> Response:
    """Return the answer a person sees who opens the page without being admitted."""
    answer = _document(
        int(refusal.status),
        "This page needs its token" if refusal.code == "token_required" else "This page was not opened",
        html.escape(refusal.message),
        html.escape(refusal.hint or ""),
    )
    answer.headers.update(refusal.headers)
    return answer


def _document(status: int, title: str, text: str, hint: str) -> HTMLResponse:
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>graphbox: {title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>:root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;"
        "margin:15vh auto;padding:0 1rem}</style></head>"
        f"<body><main><h1>{title}</h1><p>{text}</p><p>{hint}</p></main></body></html>",
        status_code=status,
        headers={"content-security-policy": CONTENT_SECURITY_POLICY, "cache-control": "no-store"},
    )
