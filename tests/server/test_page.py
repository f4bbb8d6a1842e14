"""The web page's files: caching, compression, safety, and what is shown when there is none."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import zipfile
from importlib.resources.abc import Traversable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from graphbox.server.body import accepts
from graphbox.server.page import PageFiles
from graphbox.server.page import router as page_router
from graphbox.server.problem import add_error_handlers

SCRIPT = "assets/index-BWEhfFeP.js"


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """A build like Vite's."""
    root = tmp_path / "static"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_text("<!doctype html><title>graphbox</title>")
    (root / SCRIPT).write_text("console.log(1)")
    (root / f"{SCRIPT}.gz").write_bytes(gzip.compress(b"console.log(1)"))
    (root / "favicon.svg").write_text("<svg/>")
    (root / ".secret").write_text("secret")
    (tmp_path / "outside.txt").write_text("secret")
    return root


class PageClient:
    """Asks an application that serves one build, without a socket."""

    def __init__(self, root: Traversable) -> None:
        self._api = FastAPI()
        add_error_handlers(self._api)
        self._api.include_router(page_router)
        self._api.state.page = PageFiles(root)

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self._ask("GET", path, headers)

    def head(self, path: str) -> httpx.Response:
        return self._ask("HEAD", path, None)

    def _ask(self, method: str, path: str, headers: dict[str, str] | None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._api)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(ask())


def test_page_is_always_asked_for_again(static: Path) -> None:
    answer = PageClient(static).get("/")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'self';" in policy
    assert "http:" not in policy


def test_hashed_files_never_change(static: Path) -> None:
    client = PageClient(static)
    assert client.get(f"/{SCRIPT}").headers["cache-control"] == "public, max-age=31536000, immutable"
    assert client.get("/favicon.svg").headers["cache-control"] == "no-cache"


def test_compressed_file_is_served_when_accepted(static: Path) -> None:
    client = PageClient(static)
    compressed = client.get(f"/{SCRIPT}", headers={"accept-encoding": "br, gzip"})
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.text == "console.log(1)"
    assert compressed.headers["content-type"] == "text/javascript; charset=utf-8"
    plain = client.get(f"/{SCRIPT}", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == "console.log(1)"
    assert plain.headers["vary"] == compressed.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("gzip ;q=0", False),
        ("deflate, br", False),
        ("br", False),
        ("", False),
    ],
)
def test_accept_encoding(header: str, accepted: bool) -> None:
    assert accepts("gzip", header) is accepted


@pytest.mark.parametrize(
    "path",
    [
        "absent.js",
        "assets",
        "assets/",
        ".secret",
        "..%2foutside.txt",
        "%2e%2e/outside.txt",
        "assets/..%2f..%2foutside.txt",
        "assets%5c..%5c..%5coutside.txt",
        "%2fetc%2fpasswd",
        "index.html%00.js",
        f"{SCRIPT}.gz",
    ],
)
def test_nothing_but_the_listed_files(static: Path, path: str) -> None:
    answer = PageClient(static).get(f"/{path}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


def test_page_built_anew_is_served_without_a_restart(static: Path) -> None:
    client = PageClient(static)
    built = "assets/index-CcNewOne.js"
    assert client.get("/").status_code == 200
    assert client.get(f"/{built}").status_code == 404
    shutil.rmtree(static)
    assert client.get("/").status_code == 503
    assert client.get(f"/{SCRIPT}").status_code == 404
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<title>new</title>")
    (static / built).write_text("console.log(2)")
    assert client.get("/").text == "<title>new</title>"
    assert client.get(f"/{built}").text == "console.log(2)"
    assert client.get(f"/{SCRIPT}").status_code == 404


def test_listing_is_read_once(static: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = PageClient(static)
    monkeypatch.setattr(Path, "iterdir", lambda folder: pytest.fail(f"{folder} was listed again"))
    assert client.get("/").status_code == 200
    assert client.get("/absent.js").status_code == 404


def test_file_in_an_archive_is_served(static: Path, tmp_path: Path) -> None:
    """A package may be imported from a zip file, whose entries are no paths of the disk."""
    archive = tmp_path / "page.zip"
    with zipfile.ZipFile(archive, "w") as writer:
        for file in static.rglob("*"):
            if file.is_file():
                writer.write(file, file.relative_to(static))
    client = PageClient(zipfile.Path(archive))
    assert client.get("/").status_code == 200
    assert client.get(f"/{SCRIPT}").text == "console.log(1)"
    assert client.get("/absent.js").status_code == 404


def test_head_of_the_page_answers_like_get(static: Path) -> None:
    got, head = PageClient(static).get("/"), PageClient(static).head("/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


def test_missing_build_is_said(tmp_path: Path) -> None:
    for root in (tmp_path / "absent", tmp_path):
        answer = PageClient(root).get("/")
        assert answer.status_code == 503
        assert "make web" in answer.text
        assert "<script" not in answer.text


def test_shipped_page(client: httpx.Client) -> None:
    """Whatever is built: the page or a readable notice, never an error of the server."""
    answer = client.get("/", headers={"accept": "text/html"})
    assert answer.status_code in {200, 503}
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_head(client: httpx.Client) -> None:
    got, head = client.get("/"), client.head("/")
    assert head.status_code == got.status_code
    assert head.content == b""
    assert head.headers["content-length"] == got.headers["content-length"]


def test_page_does_not_hide_unknown_paths_of_the_interfaces(client: httpx.Client) -> None:
    for path in ("/api/v1/absent", "/api", "/v3", "/metrics/x"):
        answer = client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 404
        assert answer.json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/runs", "./#/runs"),
        ("/explore?id=nginx&k=5", "./#/explore?id=nginx&k=5"),
        ("/graphs", "./#/graphs"),
        ("/targets", "./#/targets"),
        ("/runs/", "../#/runs"),
        ("/runs/debian-1?tab=config", "../#/runs/debian-1?tab=config"),
        ("/models/a%20b%23c", "../#/models/a%20b%23c"),
    ],
)
def test_paths_of_the_page_lead_to_it(client: httpx.Client, path: str, location: str) -> None:
    for answer in (client.get(path), client.head(path)):
        assert answer.status_code == 307
        assert answer.headers["location"] == location
        assert answer.url.join(location).path == "/"


def test_only_the_own_paths_of_the_page_lead_to_it(client: httpx.Client) -> None:
    for path in ("/run", "/runs/a/b", "/graphs/debian", "/api/v1/run", "/v1/models", "/runsx"):
        answer = client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 404, path
        assert answer.json()["code"] == "not_found"
    assert client.post("/runs").status_code == 405
