"""The example adapter is installed by pip, found by the command line and tested by its own pytest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "adapter"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables of an environment that has the example installed."""
    folder = tmp_path_factory.mktemp("adapter")
    source, site = folder / "source", folder / "site"
    shutil.copytree(EXAMPLE, source)  # a build writes beside its sources
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--target", str(site), str(source)]
    subprocess.run(command, check=True, timeout=120)
    return {**os.environ, "PYTHONPATH": str(site)}


def _run(environment: Mapping[str, str], cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env=dict(environment),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_it_is_listed(environment: Mapping[str, str], tmp_path: Path) -> None:
    done = _run(environment, tmp_path, "graphbox", "--json", "targets", "list")
    assert done.returncode == 0, done.stderr
    (found,) = (each for each in json.loads(done.stdout) if each["adapter"] == "onnx_reference")
    assert (found["available"], found["distribution"]) == (True, "graphbox-onnx-reference 0.1.0")
    assert found["device"]["name"] == "numpy"


def test_the_kit_passes_it(environment: Mapping[str, str], tmp_path: Path) -> None:
    done = _run(environment, tmp_path, "graphbox", "--json", "targets", "test", "onnx_reference")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [case for case in report["cases"] if case["outcome"] != "passed"] == []


def test_its_own_pytest_passes(environment: Mapping[str, str], tmp_path: Path) -> None:
    shutil.copyfile(EXAMPLE / "pyproject.toml", tmp_path / "pyproject.toml")
    done = _run(environment, tmp_path, "pytest", "-p", "no:cacheprovider", "--graphbox-cycles", "20")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout.splitlines()[-1]
    assert "skipped" not in done.stdout
