"""Settings of all tests: hypothesis has no time limit for examples, kernels run on the CPU.

So do trainings: where kernels are interpreted, no test sees a GPU. Tests of a GPU do without hypothesis and
pytest-timeout, which an environment made for PyTorch may lack.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.compiled_kernels import CompiledLaunch, compiled_launches

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are imported; `make test-gpu` says 0
if os.environ["TRITON_INTERPRET"] == "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

if find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("graphbox", deadline=None)
    settings.load_profile("graphbox")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--data", type=Path, help="folder with data sets, for tests of a GPU on real graphs")
    if not find_spec("pytest_timeout"):
        parser.addini("timeout", "of pytest-timeout, which is not installed")


@pytest.fixture(scope="session", autouse=True)
def _packages_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled models out of the user's cache, in programs that tests start, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHBOX_PACKAGES", str(tmp_path_factory.mktemp("packages")))
        yield


@pytest.fixture
def compiling(pytestconfig: pytest.Config) -> Callable[..., AbstractContextManager[list[CompiledLaunch]]]:
    """Return the context that compiles what it launches, given the names of modules of kernels."""
    cache = pytestconfig.cache
    assert cache is not None
    return partial(compiled_launches, cache=cache.mkdir("triton"))


@pytest.fixture(autouse=True)
def _no_races(request: pytest.FixtureRequest) -> Iterator[None]:
    """Watch what programs of interpreted kernels touch at once on a GPU."""
    marked = {each.name for each in request.node.iter_markers()}
    if "gpu_kernel" not in marked or "races" in marked or not find_spec("triton"):
        yield
        return
    from tests.racing_programs import watched_programs

    with watched_programs() as races:
        yield
    assert not races.found, "\n".join(races.found)
