"""The Dockerfiles: hadolint, the user, the pins, and what is sent to the builder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.operations.manifests import (
    GRPC_PORT,
    HTTP_PORT,
    LIVE,
    OPERATIONS,
    ROOT,
    USER,
    Dockerfile,
    dockerfiles,
)

each_image = pytest.mark.parametrize("image", dockerfiles(), ids=lambda image: image.path.name)


def test_there_are_images_for_processors_and_gpus() -> None:
    assert [image.path.name for image in dockerfiles()] == ["cpu.Dockerfile", "cuda.Dockerfile"]


@each_image
def test_hadolint_has_no_objection(image: Dockerfile) -> None:
    program = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [program, "--failure-threshold", "ignore", image.path], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@each_image
def test_image_runs_the_server_as_a_numbered_user(image: Dockerfile) -> None:
    assert image.last_stage("USER") == [f"{USER}:{USER}"]
    assert image.last_stage("EXPOSE") == [f"{HTTP_PORT} {GRPC_PORT}"]
    assert [json.loads(text) for text in image.last_stage("VOLUME")] == [["/workspace"]]
    command = image.command()
    assert command.arguments[:2] == ["serve", "--workspace=/workspace"]
    assert (command.option("port"), command.option("grpc-port")) == (str(HTTP_PORT), str(GRPC_PORT))
    assert not {name for name in command.environment if "TOKEN" in name}


@each_image
def test_health_check_asks_for_liveness(image: Dockerfile) -> None:
    (text,) = image.last_stage("HEALTHCHECK")
    program = json.loads(text.partition("CMD ")[2])
    assert program[:2] == ["python", "-c"]
    compile(program[2], "HEALTHCHECK", "exec")
    assert f"http://127.0.0.1:{HTTP_PORT}{LIVE}" in program[2]


@each_image
def test_base_images_have_a_version_and_no_registry(image: Dockerfile) -> None:
    stages: set[str] = set()
    for text in [text for word, text in image.instructions if word == "FROM"]:
        name, _, stage = text.partition(" AS ")
        assert name in stages or re.fullmatch(r"[a-z]+(/[a-z]+)?:[0-9]+\.[0-9]+(\.[0-9]+)?[a-z0-9.-]*", name)
        stages.add(stage)


@each_image
def test_copied_files_exist_and_are_sent_to_the_builder(image: Dockerfile) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    sent = {line[1:] for line in ignored if line.startswith("!")}
    for text in [text for word, text in image.instructions if word == "COPY"]:
        *sources, _ = text.split()
        if not sources[0].startswith("--from"):
            assert {source.split("/")[0] for source in sources} <= sent
            assert all((ROOT / source).exists() for source in sources)


def test_both_images_are_built_and_started_alike() -> None:
    processors, gpus = dockerfiles()
    assert processors.command().arguments == gpus.command().arguments
    assert processors.command().environment == gpus.command().environment
    stage = re.compile(r"FROM node.*?(?=\n\nFROM)", re.DOTALL)
    web = [stage.search(image.path.read_text()) for image in (processors, gpus)]
    assert web[0] is not None
    assert web[1] is not None
    assert web[0][0] == web[1][0]


def test_one_distribution_owns_onnxruntime_on_gpus() -> None:
    _, gpus = dockerfiles()
    text = gpus.path.read_text()
    removal, installation = (
        text.index("uninstall --yes onnxruntime"),
        text.index('"onnxruntime-gpu==$version"'),
    )
    assert removal < installation
    assert re.search(r"^onnxruntime==[0-9.]+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def test_no_file_names_a_registry() -> None:
    hosts = re.compile(r"\b(docker|ghcr|quay|gcr|nvcr|mcr|registry)\.(io|com|dev|k8s)\b")
    for path in (path for path in OPERATIONS.rglob("*") if path.is_file()):
        assert not hosts.search(path.read_text()), path
