"""The emulated machine, and models and a graph made on this one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arm.machine import FOLDER_VARIABLE, Machine
from tests.cli.conftest import call_main
from tests.contract.run_files import write_tables

KINDS = ("sage", "deepfm", "distmult", "node2vec")
"""A model of each form: an encoder, a click model, a knowledge graph, rows alone."""


@pytest.fixture(scope="session")
def arm_folder() -> Path:
    """The folder that ``make arm-root`` made."""
    if shutil.which("qemu-aarch64-static") is None:
        pytest.skip("no emulation of ARM here: apt-get install qemu-user-static, then `make test-arm`")
    if FOLDER_VARIABLE not in os.environ:
        pytest.skip(f"{FOLDER_VARIABLE} names no ARM system: `make test-arm` makes one and runs these tests")
    return Path(os.environ[FOLDER_VARIABLE])


@pytest.fixture(scope="session")
def emulated(arm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    python = arm_folder / "root" / "usr" / "bin" / "python-aarch64"
    machine = Machine(str(python), tmp_path_factory.mktemp("emulated"))
    yield machine
    machine.stop_servers()


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(sys.executable, tmp_path_factory.mktemp("here"))
    yield machine
    machine.stop_servers()


@pytest.fixture(scope="session")
def town(arm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of run files, with a workspace in which this machine has trained and exported models."""
    folder = tmp_path_factory.mktemp("town")
    write_tables(folder)
    for kind in KINDS:
        outcome = call_main(["-C", str(folder / "workspace"), "run", str(folder / f"{kind}.yaml"), "-q"])
        assert outcome.code == 0, outcome.err
    return folder


@pytest.fixture(scope="session")
def models(town: Path) -> Path:
    return town / "workspace" / "models"
