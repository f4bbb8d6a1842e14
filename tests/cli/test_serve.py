"""Serving from the command line: a real process, asked over HTTP, ended by a signal."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphbox.config import load_config
from graphbox.workspace import Workspace
from tests.cli.conftest import Call
from tests.server.sample_models import add_model, write_encoder, write_vectors
from tests.server.server_process import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(finished: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "graphbox",
        "-C",
        str(finished / "workspace"),
        "serve",
        "--port",
        "0",
        "--json",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (loopback)
        return json.load(answer)


def test_serve_says_where_and_ends_well(server: subprocess.Popen[str]) -> None:
    try:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        assert len(get(f"{url}api/v1/models/citer/neighbors?type=paper&id=p3&k=4")["neighbors"]) == 4
        run = get(f"{url}api/v1/runs/papers-1")
        assert run["state"] == "finished"
        assert run["report"]["compress"]["citer"]["metric"]["name"] == "recall@5"
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=60)
        assert server.returncode == 0
        assert re.search(r"serving .* on http://127\.0\.0\.1:\d+/ \(Ctrl-C stops\)", err)
    finally:
        server.kill()
        server.communicate(timeout=60)


def test_several_workers_are_announced_once(finished: Path) -> None:
    command = [sys.executable, "-m", "graphbox", "-C", str(finished / "workspace"), "serve", "--port", "0"]
    with subprocess.Popen([*command, "--workers", "2"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        lines += process.stderr.readlines()
    assert process.returncode == 0
    assert re.search(r"serving .* on http://127\.0\.0\.1:\d+/ \(Ctrl-C stops\)", lines[0])
    assert "models ready: " in lines[1]
    assert len(lines) == 2


Serve = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start `graphbox serve` in an empty folder with an empty home; return the process and its address."""
    started: list[subprocess.Popen[str]] = []
    folders = [tmp_path / "home", tmp_path / "elsewhere"]
    for each in folders:
        each.mkdir()

    def start(*arguments: str | Path, **variables: str) -> tuple[subprocess.Popen[str], str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GRAPHBOX_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "graphbox", *map(str, arguments), "--port", "0", "--json"],
            cwd=folders[1],
            env={**environment, "HOME": str(folders[0]), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=60)[1]
        return process, json.loads(line)["url"]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=60)
    assert [path for each in folders for path in each.iterdir()] == []


def ready(url: str) -> dict[str, Any] | None:
    """Return the readiness of a server, None while it is not ready."""
    try:
        answer: dict[str, Any] = get(f"{url}healthz/ready")
    except urllib.error.HTTPError as error:
        error.close()
        return None
    return answer


def end(process: subprocess.Popen[str]) -> str:
    """Stop a server; return what it wrote on standard error."""
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return err


def entries(folder: Path) -> dict[Path, tuple[int, int, int]]:
    found = {path: path.lstat() for path in [folder, *folder.rglob("*")]}
    return {path: (status.st_mtime_ns, status.st_size, status.st_mode) for path, status in found.items()}


def test_read_only_folder_is_served_without_a_workspace(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    for version in (1, 2):
        write_encoder(folder / "companion" / str(version), version=version)
    write_vectors(folder / "section" / "1")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = entries(folder)
    process, url = serve("serve", "--models", folder)
    wait_until(lambda: ready(url) is not None, what="readiness")
    assert ready(url) == {"ready": True, "available": ["companion", "section"], "loading": [], "failed": {}}
    assert get(f"{url}api/v1/models/companion/neighbors?id=zsh&k=2")["version"] == 2
    overview = get(f"{url}api/v1/overview")
    assert (overview["workspace_name"], overview["models"]) == (None, 2)
    assert get(f"{url}api/v1/runs") == get(f"{url}api/v1/graphs") == []
    served = {
        (model["name"], version["version"]): version["served"]
        for model in get(f"{url}api/v1/models")
        for version in model["versions"]
    }
    assert served == {("companion", 1): False, ("companion", 2): True, ("section", 1): True}
    with urllib.request.urlopen(url, timeout=30) as page:  # noqa: S310 (loopback)
        assert page.status == 200
    err = end(process)
    assert f"serving {folder} on {url}" in err
    assert "2 of 2 models ready: companion, section" in err
    assert entries(folder) == before
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_new_version_in_a_folder_is_served(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    write_encoder(folder / "companion" / "1")
    process, url = serve("serve", "--models", folder)
    write_encoder(tmp_path / "new" / "2", version=2)
    (tmp_path / "new" / "2").rename(folder / "companion" / "2")
    neighbors = f"{url}api/v1/models/companion/neighbors?id=zsh&k=2"
    wait_until(lambda: get(neighbors)["version"] == 2, 5, what="the new version")
    end(process)


@pytest.mark.parametrize("named_by", ["option", "environment"])
def test_folder_and_workspace_together(serve: Serve, tmp_path: Path, named_by: str) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "section", write_vectors)
    write_encoder(tmp_path / "models" / "companion" / "1")
    given: list[str | Path] = ["-C", workspace.root] if named_by == "option" else []
    variables = {} if given else {"GRAPHBOX_WORKSPACE": str(workspace.root)}
    process, url = serve(*given, "serve", "--models", tmp_path / "models", **variables)
    assert get(f"{url}api/v1/overview")["workspace_name"] == "work"
    assert [model["name"] for model in get(f"{url}api/v1/models")] == ["companion", "section"]
    assert f"serving {workspace.root}, {tmp_path / 'models'} on" in end(process)


def test_same_name_in_folder_and_workspace(graphbox: Call, folder: Path) -> None:
    workspace = Workspace(folder / "work")
    add_model(workspace, "companion", write_encoder)
    write_encoder(folder / "models" / "companion" / "1")
    outcome = graphbox("-C", workspace.root, "serve", "--port", "0", "--models", folder / "models")
    assert outcome.code == 2
    assert outcome.err == (
        f"error: the model `companion` is in the workspace {workspace.root} and in the folder"
        f" {folder / 'models'}\n  = help: rename one of them, or serve only one of the two\n"
    )


def test_start_reports_what_failed(serve: Serve, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "section", write_vectors)
    rows = workspace.model("companion").path / "tables" / "package" / "rows.npy"
    rows.write_bytes(rows.read_bytes()[:-1])
    process, url = serve("-C", workspace.root, "serve", "--max-rows", "absent=5")
    wait_until(lambda: "section" in get_anyhow(f"{url}healthz/ready")["available"], what="preloading")
    assert ready(url) is None
    err = end(process)
    assert "1 of 2 models ready: section\nnot ready: companion, version 1: expected" in err
    assert "--max-rows names absent, which is not among the models" in err


def get_anyhow(url: str) -> Any:
    """Return the JSON of an answer with any status."""
    try:
        return get(url)
    except urllib.error.HTTPError as error:
        with error:
            return json.load(error)


def test_token_from_the_environment_is_not_printed(serve: Serve, tmp_path: Path) -> None:
    token = "a-token-long-enough-to-be-one"
    write_encoder(tmp_path / "model")
    process, url = serve("serve", "--models", tmp_path / "model", GRAPHBOX_TOKEN=token)
    assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/", url)
    with pytest.raises(urllib.error.HTTPError, match="401") as caught:
        get(f"{url}api/v1/overview")
    caught.value.close()
    request = urllib.request.Request(f"{url}api/v1/overview", headers={"authorization": f"Bearer {token}"})  # noqa: S310 (loopback)
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 (loopback)
        assert answer.status == 200
    err = end(process)
    assert "the page asks for the token" in err
    assert token not in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("many", "expected ROWS or NAME=ROWS, from 1, received 'many'"),
        ("income=", "received 'income='"),
        ("=5", "received '=5'"),
        ("income=0", "received 'income=0'"),
        ("income=-5", "received 'income=-5'"),
        ("in come=5", "expected a model name"),
    ],
)
def test_wrong_row_limits(graphbox: Call, text: str, message: str) -> None:
    outcome = graphbox("serve", "--max-rows", text)
    assert outcome.code == 2
    assert message in outcome.err
    assert not Path("workspace").exists()


@pytest.mark.parametrize(
    ("target", "hint"), [("opnvino", "did you mean `openvino`"), ("onnxruntime/cpus", "did you mean `cpu`")]
)
def test_unknown_target(graphbox: Call, target: str, hint: str) -> None:
    outcome = graphbox("serve", "--target", target)
    assert outcome.code == 2
    assert f"received `{target.rpartition('/')[2]}`" in outcome.err
    assert hint in outcome.err
    assert not Path("workspace").exists()


def test_limits_of_requests(serve: Serve, tmp_path: Path) -> None:
    for name in ("wide", "narrow"):
        write_encoder(tmp_path / "models" / name / "1", name=name)
    limits = ["--max-rows", "3", "--max-rows", "narrow=2", "--max-json", "1kB"]
    process, url = serve("serve", "--models", tmp_path / "models", *limits)
    for name, rows in (("wide", "3"), ("narrow", "2")):
        config = get(f"{url}v2/models/{name}/config")
        assert config["parameters"]["max_rows"]["string_value"] == rows
    end(process)


def test_demo_prints_its_run_file(graphbox: Call, folder: Path) -> None:
    text = graphbox("demo", "--print-run-file").out
    (folder / "copy.yaml").write_text(text)
    config = load_config(folder / "copy.yaml")
    assert Path(config.graph.locate("depends.parquet")).is_file()
    assert set(config.tasks) == {"section", "companion"}
    assert set(config.export) >= {"debian-companion"}


def test_example_is_the_demos_run_file() -> None:
    example = ROOT / "examples" / "debian" / "graphbox.yaml"
    assert example.read_bytes() == (ROOT / "graphbox" / "demo" / "graphbox.yaml").read_bytes()
    assert load_config(example).name == "debian"


def test_demo_refuses_a_used_port_before_it_trains(graphbox: Call) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        outcome = graphbox("demo", "--port", str(other.getsockname()[1]))
    assert outcome.code == 1
    assert "is in use by another program" in outcome.err
    assert not Path("workspace").exists()


def test_demo_refuses_a_reachable_address_before_it_trains(graphbox: Call) -> None:
    outcome = graphbox("demo", "--host", "0.0.0.0")  # noqa: S104 (it is refused)
    assert outcome.code == 2
    assert "needs a token" in outcome.err
    assert not Path("workspace").exists()
