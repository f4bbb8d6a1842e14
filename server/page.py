"""The web page: files of a finished build, shipped as package data; and the form for the token."""

from __future__ import annotations

import html
import mimetypes
import re
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

from graphbox.server.asgi import Scope
from graphbox.server.auth import CHALLENGE
from graphbox.server.body import accepts
from graphbox.server.problem import RefusedError

__all__ = ["TOKEN_PATH", "PageFiles", "TokenMistake", "page_redirect", "refused_page", "router", "token_page"]

TOKEN_PATH = "/token"  # noqa: S105 - a path
"""Path that the form sends the token to."""

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
# The page keeps its addresses behind `#`; these are its own paths, as people type and link them.
_PAGE_PATH = re.compile(r"/(?:(?:explore|graphs|targets)|(?:runs|models)(?:/[^/]+)?)/?")
_IMMUTABLE = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


class TokenMistake(StrEnum):
    """Why a token that was entered does not open the page."""

    WRONG = "wrong"
    NO_SCOPE = "no_scope"


@dataclass(frozen=True, slots=True)
class _Listing:
    """The files below a folder by path, and the time of the last change of each of its folders."""

    files: dict[str, Traversable]
    folders: dict[Traversable, int | None]


class PageFiles:
    """The files of the built page; only listed paths are ever opened.

    The listing is refreshed when a folder has changed: a new build is served at once.
    """

    def __init__(self, root: Traversable | None = None) -> None:
        self._root = resources.files("graphbox.server") / "static" if root is None else root
        self._listing = _list(self._root)

    def answer(self, path: str, accept_encoding: str) -> Response | None:
        """Return the file at ``path`` or None; compressed if there is a ``.gz`` and the client accepts it."""
        if path.endswith(".gz"):
            return None
        files = self._files()
        names = [f"{path}.gz", path] if accepts("gzip", accept_encoding) else [path]
        name = next((name for name in names if name in files), None)
        if path not in files or name is None:
            return None
        try:
            content = files[name].read_bytes()
        except FileNotFoundError:  # removed by a build
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
    """Add the files below ``folder``; skip names that no build produces."""
    # Read before the content, so that later changes are detected.
    listing.folders[folder] = _changed_ns(folder)
    if not folder.is_dir():
        return
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:  # removed by a build
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
    """Return the modification time of ``folder``; None if it is absent or in an archive."""
    if not isinstance(folder, Path):
        return None
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return None


@router.api_route("/", methods=["GET", "HEAD"])
def page(request: Request) -> Response:
    """Return the page."""
    files: PageFiles = request.app.state.page
    answer = files.answer("index.html", request.headers.get("accept-encoding", ""))
    return answer or _document(
        503,
        "The web page is not built",
        "This installation of graphbox has no web page. The interfaces work:"
        " <code>/api/v1</code>, <code>/v2</code>, <code>/metrics</code>.",
        "<code>make web</code> in a clone of the repository builds it; wheels contain it.",
    )


@router.api_route("/{path:path}", methods=["GET", "HEAD"])
def file(path: str, request: Request) -> Response:
    """Return a file of the page."""
    files: PageFiles = request.app.state.page
    answer = files.answer(path, request.headers.get("accept-encoding", "")) or page_redirect(request.scope)
    if answer is None:
        raise HTTPException(404)
    return answer


def page_redirect(scope: Scope) -> Response | None:
    """Return a redirect from a path of the page to its address behind `#`; None for any other path."""
    # Still percent-encoded: decoded, a path could hold line ends or a `#` of its own.
    path = bytes(scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    if scope["method"] not in {"GET", "HEAD"} or not _PAGE_PATH.fullmatch(path):
        return None
    query = scope["query_string"].decode("latin-1")
    # Relative: the page may be below a prefix.
    up = "../" * (path.count("/") - 1) or "./"
    location = f"{up}#{path.rstrip('/')}{'?' if query else ''}{query}"
    return Response(
        status_code=HTTPStatus.TEMPORARY_REDIRECT, headers={"location": location, "cache-control": "no-store"}
    )


def refused_page(refusal: RefusedError) -> Response:
    """Return the page for a person whose request for the page was refused."""
    if refusal.code == "token_required":
        return token_page()
    answer = _document(
        int(refusal.status),
        "This page was not opened",
        html.escape(refusal.message),
        html.escape(refusal.hint or ""),
    )
    answer.headers.update(refusal.headers)
    return answer


def token_page(mistake: TokenMistake | None = None) -> Response:
    """Return the form that asks for the token, in English and Chinese, and says what was wrong before."""
    answer = _html(
        HTTPStatus.UNAUTHORIZED, "token", _FORM.format(error=_MISTAKES[mistake] if mistake else "")
    )
    answer.headers["www-authenticate"] = CHALLENGE
    return answer


_MISTAKES = {
    TokenMistake.WRONG: '<p role="alert">This is not the token of this server. Check it and try again.<br>'
    '<span lang="zh-CN">令牌不正确。请检查后重试。</span></p>',
    TokenMistake.NO_SCOPE: '<p role="alert">This token does not open the page: it lacks the scope '
    '<code>read</code>.<br><span lang="zh-CN">此令牌缺少 <code>read</code> 权限。</span></p>',
}
# The path is relative: the page may be below a prefix.
_FORM = f"""<h1>graphbox</h1>
<p>This page needs the token of its server (<code>--token</code> or <code>GRAPHBOX_TOKEN</code>).<br>
<span lang="zh-CN">打开此页面需要服务器的令牌 (<code>--token</code> 或
<code>GRAPHBOX_TOKEN</code>)。</span></p>
{{error}}<form method="post" action="{TOKEN_PATH.removeprefix("/")}">
<label for="token">Token · <span lang="zh-CN">令牌</span></label>
<input name="username" value="graphbox" autocomplete="username" hidden>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Open · <span lang="zh-CN">打开</span></button>
</form>"""


def _document(status: int, title: str, text: str, hint: str) -> HTMLResponse:
    return _html(status, title, f"<h1>{title}</h1><p>{text}</p><p>{hint}</p>")


def _html(status: int, title: str, content: str) -> HTMLResponse:
    # With no referrer policy but `no-referrer`, browsers send the form with `Origin: null`, which is refused.
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>graphbox: {title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="same-origin">'
        f"<style>{_STYLE}</style></head><body><main>{content}</main></body></html>",
        status_code=status,
        headers={"content-security-policy": CONTENT_SECURITY_POLICY, "cache-control": "no-store"},
    )


_STYLE = (
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;"
    "margin:15vh auto;padding:0 1rem}label{display:block;font-weight:600}"
    "input,button{font:inherit;padding:.4rem .7rem;margin:.3rem .5rem 0 0}input{width:min(24rem,100%);"
    "box-sizing:border-box}[role=alert]{border-left:.25rem solid #d33;padding-left:.6rem}"
)
