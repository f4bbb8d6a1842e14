"""Options of `graphbox serve` from the command line, environment and file; `graphbox tokens` and `audit`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from graphbox.cli.app import app
from graphbox.cli.serve import serve
from graphbox.cli.serve_options import _IN_OTHER_WORDS, _descriptions
from graphbox.server.access import Scope
from graphbox.server.settings import Settings
from graphbox.server.tokens import Tokens, read_token_file
from graphbox.workspace import Workspace
from graphbox.workspace.audit import AuditRequest
from tests.cli.conftest import Call
from tests.server.sample_models import add_model, write_encoder
from tests.server.server_process import wait_until

FILE = """\
port: 9000
max_rows: [1000, income=20]
token_file: secrets/tokens.toml
models: [models]
follow: false
max_client_rate: 2
log_format: json
threads: 3
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GRAPHBOX_")]:
        monkeypatch.delenv(name)


def printed(graphbox: Call, *arguments: str) -> dict[str, Any]:
    outcome = graphbox("serve", *arguments, "--print-config", "--json")
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = outcome.json
    return found


def test_option_beats_environment_beats_file_beats_default(
    graphbox: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "serve.yaml").write_text(FILE)
    monkeypatch.setenv("GRAPHBOX_SERVE_PORT", "9001")
    monkeypatch.setenv("GRAPHBOX_SERVE_THREADS", "4")
    found = printed(graphbox, "--config", "serve.yaml", "--port", "9002")
    assert (found["port"], found["threads"], found["max_client_rate"], found["workers"]) == (9002, 4, 2.0, 1)
    assert found["max_rows"] == ["1000", "income=20"]
    assert found["follow"] is False
    text = graphbox("serve", "--config", "serve.yaml", "--port", "9002", "--print-config").out
    for line in (
        "port: 9002  # option",
        "threads: 4  # environment",
        "follow: false  # file",
        "workers: 1  # default",
    ):
        assert line in text.splitlines()


def test_paths_are_relative_to_the_file(graphbox: Call, folder: Path) -> None:
    (folder / "etc").mkdir()
    (folder / "etc" / "serve.yaml").write_text(FILE)
    found = printed(graphbox, "--config", "etc/serve.yaml")
    assert found["token_file"] == str(folder / "etc" / "secrets" / "tokens.toml")
    assert found["models"] == [str(folder / "etc" / "models")]


def test_printed_config_is_a_config(graphbox: Call, folder: Path) -> None:
    (folder / "serve.yaml").write_text(FILE)
    first = graphbox("serve", "--config", "serve.yaml", "--print-config").out
    (folder / "again.yaml").write_text(first)
    assert printed(graphbox, "--config", "again.yaml") == printed(graphbox, "--config", "serve.yaml")


def test_workspace_of_a_file(graphbox: Call, folder: Path) -> None:
    (folder / "serve.yaml").write_text("workspace: mine")
    assert printed(graphbox, "--config", "serve.yaml")["workspace"] == str(folder / "mine")
    outcome = graphbox("-C", "other", "serve", "--config", "serve.yaml", "--print-config", "--json")
    assert outcome.json["workspace"] == str(folder / "other")


def test_token_is_not_printed(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBOX_TOKEN", "a-token-long-enough-to-be-one")
    outcome = graphbox("serve", "--print-config")
    assert "a-token" not in outcome.out + outcome.err
    assert "# token: given, and not printed" in outcome.out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("prot: 1", "serve.yaml:2: prot: unknown key\n     2 | prot: 1\n  = help: did you mean `port`?"),
        ("port: many", "serve.yaml:2: port: expected an integer, received the text 'many'"),
        ("follow: 1", "serve.yaml:2: follow: expected true or false, received 1"),
        ("models: models", "serve.yaml:2: models: expected a list, received the text 'models'"),
        ("host: [a]", "serve.yaml:2: host: expected text"),
        ("token: secret", "name a file of tokens by `token_file`"),
        ("config: other.yaml", "serve.yaml:2: config: unknown key"),
        ("log_format: yaml", "serve.yaml:2: log_format: "),
        ("threads: 1\nthreads: 2", "the key `threads` is given twice"),
        ("- a", "serve.yaml"),
    ],
)
def test_mistakes_of_a_file(graphbox: Call, folder: Path, line: str, message: str) -> None:
    (folder / "serve.yaml").write_text(f"# options\n{line}\n")
    outcome = graphbox("serve", "--config", "serve.yaml")
    assert outcome.code == 2
    assert message in outcome.err


def test_missing_file(graphbox: Call, folder: Path) -> None:
    outcome = graphbox("serve", "--config", "absent.yaml")
    assert outcome.code == 2
    assert "there is no such configuration of a server" in outcome.err


def test_unknown_and_wrong_variables(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBOX_SERVE_PRT", "1")
    outcome = graphbox("serve")
    assert outcome.code == 2
    assert "did you mean `GRAPHBOX_SERVE_PORT`?" in outcome.err
    monkeypatch.delenv("GRAPHBOX_SERVE_PRT")
    monkeypatch.setenv("GRAPHBOX_SERVE_PORT", "many")
    assert graphbox("serve").code == 2


def test_every_setting_has_an_option_and_a_description() -> None:
    options = {parameter.name for parameter in typer.main.get_command(app).commands["serve"].params}  # type: ignore[attr-defined]
    assert {field.name for field in fields(Settings)} - _IN_OTHER_WORDS <= options
    described = _descriptions(Settings.__doc__ or "")
    assert {field.name for field in fields(Settings)} == set(described)
    assert "``" not in "".join(described.values())
    assert callable(serve)


# `graphbox tokens` and `graphbox audit`


def test_tokens_are_added_listed_and_removed(graphbox: Call, folder: Path) -> None:
    file = folder / "tokens.toml"
    added = graphbox("tokens", "add", "robot", "--scope", "infer", "--scope", "read", "--file", str(file))
    token = added.out.strip()
    assert len(token) > 40
    assert token not in added.err
    principal = Tokens(None, file).of_token(token.encode())
    assert principal is not None
    assert (principal.name, principal.scopes) == ("robot", frozenset({Scope.INFER, Scope.READ}))
    assert (
        graphbox("tokens", "add", "boss", "--scope", "manage", "--file", str(file), "--json").json["name"]
        == "boss"
    )
    listed = graphbox("tokens", "list", "--file", str(file), "--json").json
    assert [(each["name"], each["scopes"]) for each in listed] == [
        ("robot", ["read", "infer"]),
        ("boss", ["manage"]),
    ]
    again = graphbox("tokens", "add", "boss", "--scope", "read", "--file", str(file))
    assert (again.code, "has a token `boss` already" in again.err) == (1, True)
    assert graphbox("tokens", "remove", "robot", "--file", str(file)).code == 0
    assert [entry.name for entry in read_token_file(file)] == ["boss"]
    absent = graphbox("tokens", "remove", "bos", "--file", str(file))
    assert (absent.code, "did you mean `boss`?" in absent.err) == (2, True)
    assert sorted(path.name for path in folder.glob("*tokens*")) == ["tokens.toml"]


def test_tokens_in_a_folder_that_is_not_there(graphbox: Call, folder: Path) -> None:
    outcome = graphbox("tokens", "add", "a", "--scope", "read", "--file", str(folder / "absent" / "t.toml"))
    assert outcome.code == 2
    assert "in a folder that is there" in outcome.err


def test_tokens_added_at_once_are_all_there(folder: Path) -> None:
    file = folder / "tokens.toml"
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "graphbox",
                "tokens",
                "add",
                f"t{number}",
                "--scope",
                "read",
                "--file",
                str(file),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(6)
    ]
    assert [process.wait(120) for process in started] == [0] * 6
    assert {entry.name for entry in read_token_file(file)} == {f"t{number}" for number in range(6)}


def test_audit_is_printed(graphbox: Call, folder: Path) -> None:
    with Workspace(folder / "workspace") as workspace:
        assert "no entries" in graphbox("audit").out
        request = AuditRequest("boss", "::1", "promote", "income", 3, "r1")
        workspace.end_audit(workspace.begin_audit(request), "ok")
        workspace.begin_audit(request)
    shown = graphbox("audit").out
    assert re.search(r"boss +::1 +promote +income +3 +begun", shown)
    entries = graphbox("audit", "--model", "income", "--limit", "1", "--json").json
    assert [(each["result"], each["request_id"]) for each in entries] == [("begun", "r1")]
    assert graphbox("audit", "--model", "other", "--json").json == []


# An empty volume


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (loopback)
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.parametrize("workers", [1, 2])
def test_a_new_workspace_gets_ready_with_its_first_model(tmp_path: Path, workers: int) -> None:
    command = [
        "-C",
        str(tmp_path / "volume"),
        "serve",
        "--create",
        "--port",
        "0",
        "--json",
        "--workers",
        str(workers),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "graphbox", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            url = json.loads(process.stdout.readline())["url"]
            assert status(f"{url}healthz/live") == 200
            assert status(f"{url}healthz/ready") == status(f"{url}v2/health/ready") == 503
            with Workspace(tmp_path / "volume") as workspace:
                add_model(workspace, "companion", write_encoder)
            wait_until(lambda: status(f"{url}healthz/ready") == 200, 30, "the server to be ready")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
