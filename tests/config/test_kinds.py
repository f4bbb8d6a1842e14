"""Kinds of models: found by entry points, loaded when they are used, mistakes kept apart from other kinds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from graphbox.config import ModelKind, ModelSection, model_kind, model_kinds
from graphbox.config.section import Section
from graphbox.errors import UsageError
from tests.installed_package import install

KIND = """
from typing import Literal

from graphbox.config import ModelKind, ModelSection


class Settings(ModelSection):
    '''A kind of another package.'''

    TASK_KINDS = ("classify",)
    BUDGETS = ("features",)
    kind: Literal["NAME"]
    '''Kind of model.'''
    rate: float = 0.5
    '''Rate.'''


kind = ModelKind(Settings, "pkg_NAME.training:Trainer")
"""

CHECK = """
import json, sys
from graphbox.config import load_config
from graphbox.errors import ConfigError, GraphboxError

config = {"version": 1, "name": "x", "graph": {"name": "g"}, "models": {"m": json.loads(sys.argv[1])}}
try:
    print(repr(load_config(config).models["m"]))
except ConfigError as error:
    print("\\n".join(error.problems))
"""


def check(packages: Path, **settings: Any) -> str:
    """Return what a process with some packages installed makes of a model's section."""
    command = [sys.executable, "-c", CHECK, json.dumps(settings)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(packages)}
    )
    return done.stdout.strip()


def install_kind(
    packages: Path, name: str, source: str | None = None, entry: str | None = None, package: str | None = None
) -> None:
    """Install a package with a kind of model into a folder."""
    package = package or f"pkg_{name}"
    files = {} if source is None else {f"{package}.py": source.replace("NAME", name)}
    install(packages, package, files, {"graphbox.models": {name: entry or f"{package}:kind"}})


def test_every_kind_has_the_name_of_its_section() -> None:
    kinds = model_kinds()
    assert "gnn" in kinds
    for name, kind in kinds.items():
        assert kind.name == name
        assert get_args(kind.section.model_fields["kind"].annotation) == (name,)
        assert model_kind(name) is kind


def test_kinds_load_without_torch() -> None:
    program = (
        "import sys; from graphbox.config import model_kinds; model_kinds(); "
        "sys.exit('torch' in sys.modules or 'graphbox.train' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0


def test_a_kind_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"one of gnn, .*received `deepwolk`") as caught:
        model_kind("deepwolk")
    assert caught.value.hint == "did you mean `deepwalk`?"


def test_a_kind_without_warm_starts_refuses_start_from(tmp_path: Path) -> None:
    install_kind(tmp_path, "mine", KIND)
    said = check(tmp_path, kind="mine", start_from="shop")
    assert "expected a kind of model that can start from an earlier run, received `mine`" in said
    assert "models.m.start_from" in said


def test_a_kind_of_another_package(tmp_path: Path) -> None:
    install_kind(tmp_path, "mine", KIND)
    assert (
        check(tmp_path, kind="mine", rate=0.25)
        == "Settings(task=None, kind='mine', start_from=None, tune=None, auto=(), rate=0.25)"
    )
    assert "known keys: task, kind, start_from, tune, auto, rate" in check(tmp_path, kind="mine", speed=3)
    assert "expected a number, received the text 'fast'" in check(tmp_path, kind="mine", rate="fast")
    assert "did you mean `mine`?" in check(tmp_path, kind="mines")


def test_each_mistake_names_the_package_and_the_line(tmp_path: Path) -> None:
    install_kind(tmp_path, "absent", entry="no_such_module:kind")
    install_kind(tmp_path, "nameless", "", package="pkg_nameless")
    install_kind(tmp_path, "number", "kind = 7\n")
    install_kind(tmp_path, "klass", KIND, entry="pkg_klass:Settings")
    install_kind(tmp_path, "other", KIND.replace("NAME", "another"))
    install_kind(tmp_path, "raises", "import json\n\njson.loads('{')\n")
    install_kind(tmp_path, "broken", "kind = (\n")
    install_kind(tmp_path, "mine", KIND)
    for name, line, message in (
        ("absent", "entry_points.txt of pkg_absent:2", "No module named 'no_such_module'"),
        ("nameless", "entry_points.txt of pkg_nameless:2", "has no attribute 'kind'"),
        (
            "number",
            "entry_points.txt of pkg_number:2",
            "received an object of type int from `pkg_number:kind`",
        ),
        ("klass", "entry_points.txt of pkg_klass:2", "received the class Settings from `pkg_klass:Settings`"),
        ("other", "entry_points.txt of pkg_other:2", "received one named `another` from `pkg_other:kind`"),
        ("raises", f"{tmp_path}/pkg_raises.py:3", "received JSONDecodeError: Expecting"),
        ("broken", f"{tmp_path}/pkg_broken.py:1", "received SyntaxError: '(' was never closed"),
    ):
        found = check(tmp_path, kind=name)
        assert f"config: models.m.kind: {line}: expected" in found, found
        assert message in found
        assert f"of pkg_{name} 1.0" in found
        assert "= help: " in found
    assert check(tmp_path, kind="mine").startswith("Settings("), "others keep working"
    assert check(tmp_path, kind="deepwalk").startswith("DeepWalkConfig(")
    assert "one of gnn, mlp, module" in check(tmp_path, kind="nothing")


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    install_kind(tmp_path, "line", KIND, package="pkg_line")
    found = check(tmp_path, kind="line")
    assert "expected one package with a kind of model `line`" in found
    assert "`graphbox.kinds.walks:line` of graphbox" in found
    assert "`pkg_line:kind` of pkg_line 1.0" in found
    assert check(tmp_path, kind="deepwalk").startswith("DeepWalkConfig(")


class Several(ModelSection):
    kind: Literal["a", "b"]


@pytest.mark.parametrize("section", [Section, ModelSection, Several, 7])
def test_a_kind_needs_a_section_of_one_name(section: Any) -> None:
    with pytest.raises(TypeError, match="expected a"):
        ModelKind(section, "package.module:Trainer")
