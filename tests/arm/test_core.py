"""The native core gives the same bits on ARM."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.arm.machine import Machine, assert_same, results_of

pytestmark = pytest.mark.arm

ELF_MACHINE = slice(18, 20)
AARCH64 = (183).to_bytes(2, "little")


def test_the_wheel_is_for_arm(arm_folder: Path, emulated: Machine) -> None:
    (wheel,) = (arm_folder / "dist").glob("*.whl")
    assert wheel.name.endswith("-linux_aarch64.whl")
    with zipfile.ZipFile(wheel) as archive:
        (core,) = [name for name in archive.namelist() if "_core" in name and name.endswith(".so")]
        assert archive.read(core)[ELF_MACHINE] == AARCH64
    program = (
        "import json, platform, graphbox._core as core\n"
        "print(json.dumps([platform.machine(), core.__file__]))"
    )
    machine, file = json.loads(emulated.run("-c", program))
    assert machine == "aarch64"
    assert Path(file) == arm_folder / "site" / core


def test_hashes_samples_walks_and_rows(emulated: Machine, here: Machine, town: Path) -> None:
    graph = town / "workspace" / "graphs" / "town"
    assert_same(results_of(emulated, "core_results", graph), results_of(here, "core_results", graph))


def test_an_import_writes_the_same_files(emulated: Machine, town: Path, tmp_path: Path) -> None:
    emulated.run("-m", "graphbox", "-C", tmp_path, "import", town / "sage.yaml", "-q")
    written = contents(tmp_path / "graphs" / "town")
    assert written == contents(town / "workspace" / "graphs" / "town")
    assert any(name.endswith("indices.npy") for name in written)


def contents(graph: Path) -> dict[str, bytes]:
    """Return the files of a graph, without those that runs left there."""
    paths = [path for path in graph.rglob("*") if path.is_file() and path.parent.name != "versions"]
    return {str(path.relative_to(graph)): path.read_bytes() for path in paths}
