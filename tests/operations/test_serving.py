"""The server, started as each file starts it: options, probes, host names, the token and the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from graphbox.server.access import Scope
from graphbox.server.tokens import TokenEntry, hash_of, token_file_text
from graphbox.workspace import Workspace
from tests.operations.manifests import LIVE, PROGRAM, READY, UNIT, Command, commands, unit_words
from tests.server.sample_models import add_model, build_workspace, write_encoder, write_numbers
from tests.server.server_process import TOKEN, wait_until

START_TIMEOUT_S = 60
BEARER = {"authorization": f"Bearer {TOKEN}"}
# What Kubernetes, KServe and systemd put in the place of their variables.
PLACED = {
    "$(POD_NAMESPACE)": "shop",
    "{{.Name}}": "shop",
    "{{.Namespace}}": "shop",
    "%H": socket.gethostname(),
    "--port=8710": "--port=0",
    "--grpc-port=8711": "--grpc-port=0",
}
FOLDERS = {
    "--workspace=/workspace": "--workspace={workspace}",
    "--workspace=/var/lib/graphbox": "--workspace={workspace}",
    "--models=/models": "--models={workspace}/models",
    "--models=/mnt/models": "--models={workspace}/models",
    "--token-file=/etc/graphbox/tokens.toml": "--token-file={workspace}.tokens.toml",
}


def placed(text: str, workspace: Path) -> str:
    """Return an argument as the server of this test receives it."""
    for name, value in PLACED.items():
        text = text.replace(name, value)
    return FOLDERS.get(text, text).format(workspace=workspace)


def arguments_of(command: Command, workspace: Path) -> list[str]:
    return [placed(text, workspace) for text in command.arguments]


@contextmanager
def running(words: list[str], folder: Path, **variables: str) -> Iterator[str]:
    """Run a server that prints its address as JSON; it has to end well after SIGTERM."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHBOX_")}
    # The image has the token from its environment, all others have a file.
    has_file = any(word.startswith("--token-file=") for word in words)
    token = {} if has_file else {"GRAPHBOX_TOKEN": TOKEN}
    environment = {**inherited, "OMP_NUM_THREADS": "1", **token, **variables}
    log = folder / "server.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith('{"url"'), line + process.stdout.read() + log.read_text()
            address: str = json.loads(line)["url"]
            assert json.loads(line)["grpc"]
            yield address.rstrip("/")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with models; servers write to it one after the other."""
    root = build_workspace(tmp_path_factory.mktemp("operations") / "debian").root
    write_token(root)
    return root


def write_token(workspace: Path) -> None:
    """Write a token file with the token of this test, beside a workspace."""
    entry = TokenEntry("test", hash_of(TOKEN.encode()).hex(), frozenset(Scope))
    Path(f"{workspace}.tokens.toml").write_text(token_file_text([entry]))


def check_answers(address: str, arguments: list[str]) -> None:
    """Ask as probes, clients and Prometheus do."""
    assert httpx.get(address + LIVE).status_code == 200
    wait_until(lambda: httpx.get(address + READY).status_code == 200, START_TIMEOUT_S, "readiness")
    names = [text.split("=", 1)[1] for text in arguments if text.startswith("--allow-host=")]
    for name in [*names, "10.2.3.4:8710"]:
        answer = httpx.get(f"{address}/metrics", headers={**BEARER, "host": name})
        assert answer.status_code == 200, name
    assert httpx.get(f"{address}/metrics").status_code == 401
    assert httpx.get(f"{address}/v2", headers={**BEARER, "host": "elsewhere"}).status_code == 403


# Both images run the same command.
@pytest.mark.parametrize("command", commands()[1:], ids=lambda command: command.where.name)
def test_server_starts_and_answers(command: Command, workspace: Path, tmp_path: Path) -> None:
    arguments = [*arguments_of(command, workspace), "--json"]
    variables = command.environment | {"HOME": str(tmp_path), "GRAPHBOX_PACKAGES": str(tmp_path)}
    with running([sys.executable, "-m", "graphbox", *arguments], tmp_path, **variables) as address:
        check_answers(address, arguments)


def test_image_refuses_an_empty_volume(tmp_path: Path) -> None:
    arguments = arguments_of(commands()[0], tmp_path)
    environment = {**os.environ, "GRAPHBOX_TOKEN": TOKEN}
    done = subprocess.run(
        [sys.executable, "-m", "graphbox", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=START_TIMEOUT_S,
    )
    assert done.returncode == 2
    assert "there is no workspace here" in done.stderr


def test_unit_starts_with_an_empty_folder_and_answers(tmp_path: Path) -> None:
    words = [placed(word, tmp_path / "volume") for word in unit_words()]
    assert words[0] == PROGRAM, UNIT
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    write_token(tmp_path / "volume")
    with running([sys.executable, "-m", "graphbox", *words[1:], "--json"], tmp_path) as address:
        assert httpx.get(address + LIVE).status_code == 200
        assert httpx.get(address + READY).status_code == 503
        with Workspace(tmp_path / "volume") as workspace:
            add_model(workspace, "companion", write_encoder)
        check_answers(address, words)


def test_models_are_upgraded_and_rolled_back_without_a_lost_request(tmp_path: Path) -> None:
    (deployment,) = [command for command in commands() if command.where.name == "deployment.yaml"]
    models = tmp_path / "models"
    write_numbers(models / "numbers" / "1")
    write_token(tmp_path)
    request = (models / "numbers" / "1" / "example_request.json").read_bytes()
    arguments = [*arguments_of(deployment, tmp_path), "--json"]

    def is_served(version: str) -> bool:
        answer = client.post("/v2/models/numbers/infer", content=request)
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["model_version"] == version)

    with (
        running([sys.executable, "-m", "graphbox", *arguments], tmp_path) as address,
        httpx.Client(base_url=address, headers=BEARER, timeout=START_TIMEOUT_S) as client,
    ):
        wait_until(lambda: client.get(READY).status_code == 200, START_TIMEOUT_S, "readiness")
        assert is_served("1")
        write_numbers(tmp_path / "new" / "2", version=2)
        (tmp_path / "new" / "2").rename(models / "numbers" / "2")
        wait_until(lambda: is_served("2"), START_TIMEOUT_S, "the new version")
        (models / "numbers" / "2").rename(tmp_path / "new" / "2")
        wait_until(lambda: is_served("1"), START_TIMEOUT_S, "the previous version")
