"""Readers of the Dockerfiles, manifests and units in ``operations/``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "operations"
HTTP_PORT = 8710
GRPC_PORT = 8711
USER = 10001
LIVE = "/healthz/live"
READY = "/healthz/ready"

Object = dict[str, Any]


@dataclass(frozen=True)
class Command:
    """Command by which a file starts the server.

    Attributes:
        where: the file.
        arguments: arguments of ``graphbox``.
        environment: variables with a value; those of a secret are not among them.
    """

    where: Path
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def option(self, name: str) -> str | None:
        """Return the value of ``--name=VALUE``."""
        values = [text.split("=", 1)[1] for text in self.arguments if text.startswith(f"--{name}=")]
        return values[-1] if values else None


def load(path: Path) -> Object:
    """Return the one object of a YAML file."""
    (document,) = YAML(typ="safe", pure=True).load_all(path.read_text())
    assert isinstance(document, dict)
    return document


def yaml_files() -> list[Path]:
    """Return all YAML files."""
    return sorted(OPERATIONS.rglob("*.yaml"))


def objects_of_kind(*kinds: str) -> Iterator[tuple[Path, Object]]:
    """Yield the objects of these kinds and their files."""
    for path in yaml_files():
        loaded = load(path)
        if loaded["kind"] in kinds:
            yield path, loaded


def pod_specs() -> dict[Path, Object]:
    """Return the specs of pods by their file; KServe's runtime has one, too."""
    specs = {path: loaded["spec"]["template"]["spec"] for path, loaded in objects_of_kind(*WORKLOADS)}
    return specs | {path: loaded["spec"] for path, loaded in objects_of_kind("ServingRuntime")}


WORKLOADS = ("Deployment", "StatefulSet")


def only_container(spec: Object) -> Object:
    """Return the only container of a pod."""
    (container,) = spec["containers"]
    assert isinstance(container, dict)
    return container


@dataclass(frozen=True)
class Dockerfile:
    """The instructions of a Dockerfile: keyword and text, continued lines joined."""

    path: Path

    @property
    def instructions(self) -> list[tuple[str, str]]:
        lines = [line for line in self.path.read_text().splitlines() if not line.lstrip().startswith("#")]
        text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
        return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]

    def last_stage(self, keyword: str) -> list[str]:
        """Return the texts of an instruction in the stage that is the image."""
        instructions = self.instructions
        start = max(position for position, (word, _) in enumerate(instructions) if word == "FROM")
        return [text for word, text in instructions[start:] if word == keyword]

    def environment(self) -> dict[str, str]:
        """Return the variables of the image."""
        pairs = [pair for text in self.last_stage("ENV") for pair in shlex.split(text)]
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}

    def command(self) -> Command:
        """Return what the image runs."""
        (entry,), (command,) = self.last_stage("ENTRYPOINT"), self.last_stage("CMD")
        assert json.loads(entry) == ["graphbox"]
        environment = {name: value for name, value in self.environment().items() if name != "PATH"}
        return Command(self.path, json.loads(command), environment)


def dockerfiles() -> list[Dockerfile]:
    """Return the Dockerfiles."""
    return [Dockerfile(path) for path in sorted((OPERATIONS / "docker").glob("*.Dockerfile"))]


def container_command(path: Path, container: Object) -> Command:
    """Return what a container runs: the entry point of its image with arguments of its own."""
    variables = {
        variable["name"]: variable["value"] for variable in container.get("env", ()) if "value" in variable
    }
    return Command(path, container["args"], variables)


UNIT = OPERATIONS / "systemd" / "graphbox.service"
PROGRAM = "/opt/graphbox/bin/graphbox"


def unit_settings() -> dict[str, list[str]]:
    """Return the values of each setting in the unit."""
    settings: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def unit_words() -> list[str]:
    """Return the words of the command that systemd runs, with ``$$`` read as it does."""
    (line,) = unit_settings()["ExecStart"]
    return [word.replace("$$", "$") for word in shlex.split(line)]


def commands() -> list[Command]:
    """Return the commands of images and of pods; that of the unit is `unit_words`."""
    images = [each.command() for each in dockerfiles()]
    return [*images, *(container_command(path, only_container(spec)) for path, spec in pod_specs().items())]
