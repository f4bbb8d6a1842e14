"""Access control: token, Host header, origin of a browser's request; refusals before anything is read."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from graphbox.errors import UsageError
from graphbox.server.auth import HostRule, TokenRule
from graphbox.server.problem import RefusedError
from graphbox.server.settings import Settings, is_loopback
from graphbox.server.tokens import Tokens
from graphbox.workspace import Workspace
from tests.server.sample_models import build_workspace
from tests.server.server_process import (
    EVERY_ADDRESS,
    TOKEN,
    ServerProcess,
    StartServer,
    start_process,
)

OVERVIEW = "/api/v1/overview"
BROWSER = {"accept": "text/html,*/*"}


@pytest.fixture
def guarded(start_server: StartServer, shared_workspace: Workspace) -> ServerProcess:
    return start_server(workspace=shared_workspace.root, token=TOKEN)


@pytest.fixture
def visitor(shared_guarded: ServerProcess) -> Iterator[httpx.Client]:
    """A client without cookies of a server with a token."""
    with shared_guarded.client() as client:
        yield client


@pytest.fixture(scope="module")
def shared_guarded(
    shared_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("log") / "guarded.log"
    running = start_process({"port": 0, "workspace": shared_workspace.root, "token": TOKEN}, log)
    yield running
    assert running.stop() == 0
    assert "Traceback" not in log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


def test_nothing_without_the_token(guarded: ServerProcess) -> None:
    with guarded.client() as client:
        for path in (
            OVERVIEW,
            "/metrics",
            "/v2",
            "/v2/models/companion",
            "/favicon.ico",
            "/api/v1/openapi.json",
        ):
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
            wrong = client.get(path, headers={"authorization": f"Bearer {TOKEN}x"})
            assert wrong.status_code == 401
        assert client.get(OVERVIEW).json()["code"] == "token_required"
        assert "expected the token" in client.get("/v2").json()["error"]


def test_bearer_token(guarded: ServerProcess) -> None:
    with guarded.client(headers={"authorization": f"bearer {TOKEN}"}) as client:
        assert client.get(OVERVIEW).status_code == 200
        assert client.get("/metrics").status_code == 200


def test_health_needs_no_token(guarded: ServerProcess) -> None:
    guarded.wait_until_ready()
    for path in ("/healthz", "/healthz/live", "/healthz/ready", "/v2/health/live", "/v2/health/ready"):
        assert httpx.get(guarded.base + path, headers={"host": "10.1.2.3"}).status_code == 200


OPEN = ("/healthz", "/healthz/live", "/healthz/ready", "/v2/health/live", "/v2/health/ready", "/token")


@pytest.mark.parametrize("path", OPEN)
def test_open_paths_are_open_to_their_methods_alone(shared_guarded: ServerProcess, path: str) -> None:
    methods = ("PUT", "DELETE", "PATCH") if path == "/token" else ("POST", "PUT", "DELETE", "PATCH")
    with shared_guarded.client() as client:
        for method in methods:
            assert client.request(method, path, json={"note": "from nobody"}).status_code == 401
    with shared_guarded.client(headers={"authorization": f"Bearer {TOKEN}"}) as client:
        assert client.put(path).status_code == 405
        assert client.get("/api/v1/audit").json() == [], "no change was asked for"


@pytest.mark.parametrize("path", OPEN)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("chunked", [False, True])
def test_open_paths_take_no_large_body(
    shared_guarded: ServerProcess, path: str, method: str, chunked: bool
) -> None:
    if method == "POST" and path != "/token":
        return  # needs a token
    for size, statuses in ((4096, {200, 303, 401, 503}), (4097, {413})):
        body = b"x" * size
        content = iter([body]) if chunked else body
        assert httpx.request(method, shared_guarded.base + path, content=content).status_code in statuses


def test_strangers_write_no_audit_log(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(workspace=build_workspace(tmp_path / "work").root)
    with server.client() as client:
        for path in (*OPEN, "/somewhere", "/v2/somewhere", "/api/v1/models/companion/somewhere"):
            assert client.put(path, json={"note": "x"}).status_code in {404, 405}
        assert client.get("/api/v1/audit").json() == []
        assert client.post("/api/v1/models/companion/promote", json={"version": 1}).status_code == 403
        assert len(client.get("/api/v1/audit").json()) == 1


def test_form_with_the_token_opens_the_page(guarded: ServerProcess) -> None:
    with guarded.client() as client:
        form = client.get("/", headers=BROWSER)
        assert form.status_code == 401
        assert form.headers["www-authenticate"].startswith("Bearer")
        for part in (
            'type="password"',
            'autocomplete="current-password"',
            'action="token"',
            'lang="zh-CN"',
            # Browsers send `Origin: null` from a page without it, which is refused.
            '<meta name="referrer" content="same-origin">',
        ):
            assert part in form.text
        assert "form-action 'self'" in form.headers["content-security-policy"]
        answer = client.post("/token", data={"token": TOKEN}, headers={"origin": guarded.base})
        assert answer.status_code == 303
        assert answer.headers["location"] == "./"
        cookie = answer.headers["set-cookie"]
        assert re.fullmatch(
            rf"graphbox_{guarded.port}=[0-9a-f]{{64}}; Path=/; HttpOnly; SameSite=Strict", cookie
        )
        assert TOKEN not in cookie
        assert client.get(OVERVIEW).status_code == 200
        assert client.get("/").status_code in {200, 503}
    with guarded.client(cookies={f"graphbox_{guarded.port}": TOKEN}) as client:
        assert client.get(OVERVIEW).status_code == 401, "the token itself is no cookie"


@pytest.mark.parametrize(
    "form",
    [
        b"",
        b"token=",
        b"token=wrong-token-wrong",
        f"token={TOKEN}x".encode(),
        f"token={TOKEN}&token={TOKEN}".encode(),
        f"atoken={TOKEN}".encode(),
        "token=缺少令牌缺少令牌缺少令牌缺少".encode(),
        b"token=%ff%fe%E4%BB%A4",
        b"token=\xff\xfe",
        b"%%%",
    ],
)
def test_wrong_forms(visitor: httpx.Client, form: bytes) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = visitor.post("/token", content=form, headers=headers)
    assert answer.status_code == 401
    assert 'role="alert"' in answer.text
    assert "is not the token" in answer.text
    assert 'type="password"' in answer.text
    assert "set-cookie" not in answer.headers
    assert TOKEN not in answer.text


def test_form_keeps_the_rules_of_the_gateway(visitor: httpx.Client) -> None:
    form = {"token": TOKEN}
    for foreign in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        answer = visitor.post("/token", data=form, headers=foreign)
        assert answer.status_code == 403, foreign
        assert "set-cookie" not in answer.headers
    assert visitor.post("/token", data=form, headers={"host": "evil.example"}).status_code == 403
    assert visitor.post("/token", content=b"token=" + b"x" * 4091).status_code == 413
    assert visitor.post("/token", content=b"token=" + b"x" * 4090).status_code == 401
    assert visitor.post("/token", data={"token": f" {TOKEN}\n"}).status_code == 303
    assert visitor.get("/token").headers["location"] == "./"
    assert visitor.put("/token").status_code == 405
    assert visitor.post("/tok%65n", data=form, headers={"host": "evil.example"}).status_code == 403


def test_token_is_not_taken_from_an_address(guarded: ServerProcess) -> None:
    assert guarded.url == f"{guarded.base}/"
    with guarded.client() as client:
        for path in (f"/?token={TOKEN}", f"{OVERVIEW}?token={TOKEN}"):
            answer = client.get(path, headers=BROWSER)
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
        assert "enter it there" in client.get(OVERVIEW).json()["hint"]


def test_token_is_in_no_log(guarded: ServerProcess) -> None:
    with guarded.client() as client:
        client.post("/token", data={"token": TOKEN})
    guarded.stop()
    assert TOKEN not in guarded.log.read_text()


def test_server_without_a_token_has_no_form(server: ServerProcess) -> None:
    answer = httpx.post(f"{server.base}/token", data={"token": "x"})
    assert answer.status_code == 303
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:{port}", "localhost:9"]
)
def test_hosts_that_name_the_server(server: ServerProcess, host: str) -> None:
    answer = httpx.get(server.base + OVERVIEW, headers={"host": host.format(port=server.port)})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8710", "localhost.evil.example", "127.0.0.1.nip.io", "10.0.0.1"]
)
def test_rebound_names_are_refused(server: ServerProcess, host: str) -> None:
    for path in (OVERVIEW, "/v2/models/companion", "/", "/metrics"):
        answer = httpx.get(server.base + path, headers={"host": host})
        assert answer.status_code == 403
        assert host.partition(":")[0] in answer.text


@pytest.mark.parametrize(
    "host", ["", "a b", "local/host", "localhost:port", "user@localhost", "[::1", "x" * 300 + "!"]
)
def test_malformed_hosts(server: ServerProcess, host: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest("GET", OVERVIEW, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


def test_missing_host(server: ServerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest("GET", OVERVIEW, skip_host=True)
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


def test_further_host_names_can_be_allowed(start_server: StartServer, shared_workspace: Workspace) -> None:
    server = start_server(workspace=shared_workspace.root, allowed_hosts=["graphs.example"])
    for host, status in (("graphs.example", 200), ("Graphs.Example:80", 200), ("example", 403)):
        assert httpx.get(server.base + OVERVIEW, headers={"host": host}).status_code == status


def test_other_origins_cannot_act(server: ServerProcess) -> None:
    url = f"{server.base}/v2/repository/index"
    own = {"origin": server.base}
    assert httpx.post(url, headers=own).status_code == 200
    assert httpx.post(url).status_code == 200
    assert httpx.post(url, headers={"sec-fetch-site": "same-origin"}).status_code == 200
    for foreign in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[x"},
        {"origin": f"http://127.0.0.1:{server.port + 1}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = httpx.post(url, headers=foreign)
        assert answer.status_code == 403, foreign
        assert "another origin" in answer.json()["error"]


def test_security_headers(server: ServerProcess) -> None:
    for path in (OVERVIEW, "/v2", "/", "/metrics", "/absent"):
        headers = httpx.get(server.base + path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


# The rules alone


@pytest.mark.parametrize("host", [EVERY_ADDRESS, "::"])
def test_on_every_address_any_address_names_the_server(host: str) -> None:
    rule = HostRule(Settings(host=host, token=TOKEN))
    for name in (b"10.1.2.3:8710", b"[fe80::1]:8710", b"localhost", b"127.0.0.1:1"):
        rule.check(name)
    with pytest.raises(RefusedError):
        rule.check(b"evil.example")


@pytest.mark.parametrize(
    "token", [b"", TOKEN.encode() + b"x", TOKEN.encode()[:-1], b"\xff\xfe", "令牌".encode()]
)
def test_wrong_tokens(token: bytes) -> None:
    rule = TokenRule(Tokens(TOKEN), 8710)
    assert rule.accepts(TOKEN.encode())
    assert not rule.accepts(token)


def test_cookies_of_other_servers_do_not_open_this_one() -> None:
    first, second = TokenRule(Tokens(TOKEN), 1), TokenRule(Tokens(TOKEN + "x"), 1)
    cookie = first.set_cookie(TOKEN.encode()).partition(";")[0].encode()
    first.check({b"cookie": b"other=1; " + cookie})
    with pytest.raises(RefusedError):
        second.check({b"cookie": cookie})


@pytest.mark.parametrize(
    "authorization", [b"", b"Bearer", b"Bearer ", TOKEN.encode(), b"Basic " + TOKEN.encode(), b"Bearer \xff"]
)
def test_other_credentials(authorization: bytes) -> None:
    with pytest.raises(RefusedError):
        TokenRule(Tokens(TOKEN), 8710).check({b"authorization": authorization})


# Settings


@pytest.mark.parametrize("host", [EVERY_ADDRESS, "::", "10.0.0.1"])
def test_reachable_address_needs_a_token(host: str) -> None:
    with pytest.raises(UsageError, match="needs a token") as caught:
        Settings(host=host).check()
    assert caught.value.hint is not None
    assert "--token" in caught.value.hint
    Settings(host=host, token=TOKEN).check()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), (EVERY_ADDRESS, False)],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"port": 65536}, "between 0 and 65535, received 65536"),
        ({"port": -1}, "received -1"),
        ({"token": "short"}, "at least 16 characters, received 5"),
        ({"token": "sixteen characters"}, "without spaces"),
        ({"token": "caf\u00e9" * 8}, "printable ASCII"),
        ({"threads": 0}, "at least 1, received 0"),
        ({"max_json_bytes": 0}, "at least 1, received 0"),
        ({"max_rows_by_model": {"income": 0}}, "at least 1, received 0"),
        ({"max_rows_by_model": {"in/come": 5}}, "expected a model name"),
        ({"host": "no such host"}, "expected a host name"),
    ],
)
def test_wrong_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings(**settings).check()  # type: ignore[arg-type]


def test_rows_limit_of_a_model() -> None:
    settings = Settings(max_rows=10, max_rows_by_model={"income": 3})
    settings.check()
    assert (settings.rows_limit("income"), settings.rows_limit("other")) == (3, 10)


def test_token_is_in_no_text_of_the_settings() -> None:
    assert TOKEN not in repr(Settings(token=TOKEN, workspace=Path("x")))


def test_paths_of_the_page_lead_to_the_form(shared_guarded: ServerProcess) -> None:
    with shared_guarded.client(headers=BROWSER) as client:
        answer = client.get("/runs/debian-1")
        assert answer.status_code == 307
        assert answer.headers["location"] == "../#/runs/debian-1"
        assert client.get("/absent").status_code == 401
    with shared_guarded.client() as client:  # not a browser
        assert client.get("/runs").json()["code"] == "token_required"
