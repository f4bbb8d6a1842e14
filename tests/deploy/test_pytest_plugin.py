"""The conformance kit as a pytest plugin: a test for each case, in the pytest of an adapter's author."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.deploy.test_conformance import REFERENCE, WRONG
from tests.installed_package import install

pytest_plugins = ["pytester"]

_EDITABLE = "ignore:Module already imported so cannot be rewritten"
_LIST_MODULES = """
import sys

def pytest_sessionfinish():
    names = ("graphbox.deploy", "numpy", "torch", "onnxruntime")
    print("LOADED", [name for name in names if name in sys.modules])
"""


@pytest.fixture
def adapters(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages on the path of Python, in child processes."""
    site = pytester.path / "site"
    site.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site


def _run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", _EDITABLE, *arguments)


def test_it_is_registered() -> None:
    (found,) = (each for each in metadata.entry_points(group="pytest11") if each.name == "graphbox")
    assert found.value == "graphbox.pytest_plugin"


def test_each_case_is_a_test(pytester: pytest.Pytester, adapters: Path) -> None:
    install(
        adapters,
        "graphbox_onnx_reference",
        {"graphbox_onnx_reference.py": REFERENCE},
        {"graphbox.adapters": {"onnx_reference": "graphbox_onnx_reference:adapter"}},
    )
    pytester.makepyfile("def test_of_its_own(): pass")
    done = _run(pytester, "--graphbox-target", "onnx_reference", "--graphbox-cycles", "20", "-v")
    outcomes = done.parseoutcomes()
    assert outcomes.keys() == {"passed"}
    assert outcomes["passed"] > 50
    done.stdout.fnmatch_lines(
        ["*test_of_its_own PASSED*", "graphbox-target/onnx_reference::operator Gemm PASSED*"]
    )


def test_cases_are_chosen_by_keyword(pytester: pytest.Pytester) -> None:
    done = _run(pytester, "--graphbox-target", "onnxruntime/cpu", "-k", "Gather")
    outcomes = done.parseoutcomes()
    assert outcomes["passed"] == 2
    assert outcomes["deselected"] > 40


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("imprecise", "wrong/cpu: operator Gemm: batch 1: expected an error of at most 1e-05, received *"),
        ("cleans", "wrong/cpu: passes NaN and infinity on: x + x: expected an error of at most *"),
        ("greedy", "wrong/cpu: threads as asked: asked for 1 threads, uses 64"),
    ],
)
def test_a_fault_fails_its_test_with_the_reason(
    pytester: pytest.Pytester, adapters: Path, fault: str, message: str
) -> None:
    entry_points = {"graphbox.adapters": {"wrong": "wrong_adapter:adapter"}}
    install(adapters, "wrong_adapter", {"wrong_adapter.py": WRONG.format(fault=fault)}, entry_points)
    done = _run(pytester, "--graphbox-target", "wrong", "--graphbox-cycles", "20")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines([message])


def test_what_an_adapter_refuses_is_skipped_with_its_reason(
    pytester: pytest.Pytester, adapters: Path
) -> None:
    text = (
        WRONG.format(fault="")
        .replace(
            "def supports(self, model, device):",
            'def supports(self, model, device):\n        if b"TopK" in model or b"Tanh" in model:\n'
            '            return Support(supported=False, reason="it has no Tanh")',
        )
        .replace(
            "def load(self, package):",
            "def load(self, package):\n        from graphbox.errors import UnsupportedError\n"
            '        if b"Tanh" in package.model:\n            raise UnsupportedError("it has no Tanh")',
        )
    )
    entry_points = {"graphbox.adapters": {"wrong": "picky_adapter:adapter"}}
    install(adapters, "picky_adapter", {"picky_adapter.py": text}, entry_points)
    done = _run(pytester, "--graphbox-target", "wrong", "-k", "operator", "-rs")
    assert done.parseoutcomes()["skipped"] == 1
    done.stdout.fnmatch_lines(["SKIPPED*: it has no Tanh"])


def test_a_target_that_is_not_there_is_an_error(pytester: pytest.Pytester) -> None:
    done = _run(pytester, "--graphbox-target", "onnxruntimee")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: *received `onnxruntimee`*", "*did you mean `onnxruntime`*"])


def test_unused_it_loads_nothing(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(_LIST_MODULES)
    pytester.makepyfile("def test_of_its_own(): pass")
    done = _run(pytester, "-s")
    assert done.parseoutcomes() == {"passed": 1}
    done.stdout.fnmatch_lines(["*LOADED []*"])


def test_without_pytest_graphbox_is_imported(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pytest'] = None; import graphbox.deploy.conformance"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment, cwd=tmp_path)
