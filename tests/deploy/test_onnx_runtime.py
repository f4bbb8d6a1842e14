"""Telemetry of ONNX Runtime: disabled before the import, and reported as it is.

Each program runs in a process of its own with an empty home, because the import order decides.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPORT = """
import json, os, subprocess, sys
from dataclasses import asdict
from graphbox.deploy import targets
from graphbox.deploy.onnx_runtime import load_onnxruntime, telemetry
before = asdict(telemetry())
load_onnxruntime()
child = "import os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
inherited = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout
print(json.dumps({"before": before, "after": asdict(telemetry()), "inherited": inherited.strip()}))
"""
IMPORTED_EARLIER = "import onnxruntime\n" + REPORT
WARNING = "telemetry of onnxruntime"


def run(program: str, home: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """Return what a program printed as JSON, and its standard error."""
    # CI services set variables that disable telemetry too.
    variables = {"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home.parent), **environment}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=True)
    document: dict[str, Any] = json.loads(result.stdout)
    return document, result.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("environment", [{}, {"ORT_DISABLE_TELEMETRY": "0"}, {"ORT_DISABLE_TELEMETRY": ""}])
def test_disabled_before_the_import(home: Path, environment: dict[str, str]) -> None:
    document, errors = run(REPORT, home, **environment)
    assert document["before"]["how"] == "this process has not imported it"
    assert document["after"]["off"]
    assert document["after"]["how"] == "graphbox set ORT_DISABLE_TELEMETRY=1 before the import"
    assert "mobile.events.data.microsoft.com" in document["after"]["by_default"]
    assert document["inherited"] == "1"
    assert list(home.iterdir()) == []
    assert errors == ""


def test_imported_earlier(home: Path) -> None:
    document, errors = run(IMPORTED_EARLIER, home)
    store = home / ".cache/Microsoft/DeveloperTools/.onnxruntime/onnxruntime.db"
    assert store.exists()
    for each in ("before", "after"):
        assert not document[each]["off"]
        assert document[each]["how"] == f"on: its event store {store} is open"
    assert document["inherited"] == "1"
    assert errors.count(WARNING) == 1
    assert "set ORT_DISABLE_TELEMETRY=1 in the environment of the program" in errors


def test_imported_earlier_without_a_store(home: Path) -> None:
    document, errors = run(IMPORTED_EARLIER, Path("/proc/none/home"), TMPDIR=str(home))
    assert not document["after"]["off"]
    assert document["after"]["how"].startswith("may be on: another module imported it")
    assert errors.count(WARNING) == 1


@pytest.mark.parametrize("value", ["1", "true", "Yes", "ON"])
def test_imported_earlier_with_the_variable_set(home: Path, value: str) -> None:
    document, errors = run(IMPORTED_EARLIER, home, ORT_DISABLE_TELEMETRY=value)
    assert document["after"]["off"]
    assert document["after"]["how"] == "ORT_DISABLE_TELEMETRY was set when this process started"
    assert list(home.iterdir()) == []
    assert errors == ""


def test_adapters_of_other_packages_import_it_with_telemetry_disabled(home: Path, tmp_path: Path) -> None:
    package = tmp_path / "packages"
    (package / "acme-1.dist-info").mkdir(parents=True)
    (package / "acme-1.dist-info" / "METADATA").write_text("Name: acme\nVersion: 1\n")
    (package / "acme-1.dist-info" / "entry_points.txt").write_text(
        "[graphbox.adapters]\nacme = acme:adapter\n"
    )
    (package / "acme.py").write_text("import onnxruntime\n")
    program = REPORT.replace("load_onnxruntime()", "assert 'acme' in [each.adapter for each in targets()]")
    document, _ = run(program, home, PYTHONPATH=str(package))
    assert document["after"]["off"]
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "off", "how"),
    [
        (b"no uploader", True, "this build has no telemetry"),
        (
            b"\0events.data.microsoft.com\0",
            False,
            "may be on: this build does not read ORT_DISABLE_TELEMETRY",
        ),
    ],
)
def test_other_builds(home: Path, tmp_path: Path, content: bytes, off: bool, how: str) -> None:
    package = tmp_path / "packages" / "onnxruntime"
    (package / "capi").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '1.22.0'\ndef disable_telemetry_events(): return\n")
    (package / "capi" / "onnxruntime_pybind11_state.so").write_bytes(content)
    document, _ = run(REPORT, home, PYTHONPATH=str(package.parent))
    assert document["after"]["runtime"] == "onnxruntime 1.22.0"
    assert (document["after"]["off"], document["after"]["how"]) == (off, how)
