"""`graphbox targets`: packages that are built ahead, and distributions that overwrite each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call


def test_a_model_is_built_ahead(graphbox: Call, finished_folder: Path) -> None:
    outcome = graphbox("targets", "build", "citer", "--version", "1", "--target", "openvino", "--json")
    assert outcome.code == 0, outcome.err
    package = outcome.json
    assert (package["adapter"], package["device"]) == ("openvino", "cpu")
    (name,) = package["files"]
    assert (Path(package["folder"]) / name).stat().st_size == package["files"][name]
    again = graphbox("targets", "build", "citer", "--version", "1", "--target", "openvino", "--out", "built")
    assert again.code == 0, again.err
    assert name in again.out
    assert [file.name for file in Path("built").iterdir()] == [name]
    refused = graphbox(
        "targets", "build", "citer", "--version", "1", "--target", "openvino", "--out", "built"
    )
    assert refused.code == 1
    assert "expected a folder that does not exist" in refused.err


def test_a_folder_of_a_version_is_built_too(graphbox: Call, finished_folder: Path) -> None:
    (folder,) = Path("workspace").glob("**/citer/1")
    built = graphbox("targets", "build", folder, "--target", "openvino", "--json").json
    assert (
        built["folder"]
        == graphbox("targets", "build", "citer", "--version", "1", "--target", "openvino", "--json").json[
            "folder"
        ]
    )


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("onnxruntime", "onnxruntime compiles when it loads a model"),
        ("onnxruntime/cuda:0", "has no CUDAExecutionProvider"),
        ("openvino/npu", "expected one of the devices ['cpu'], received `npu`"),
    ],
)
def test_what_cannot_be_built_says_why(graphbox: Call, finished_folder: Path, target: str, text: str) -> None:
    outcome = graphbox("targets", "build", "citer", "--target", target)
    assert outcome.code
    assert text in " ".join(outcome.err.split())


def test_doctor_names_distributions_that_overwrite_each_other(tmp_path: Path) -> None:
    information = tmp_path / "onnxruntime_gpu-1.31.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.31.1\n")
    (information / "top_level.txt").write_text("onnxruntime\n")
    program = "import sys; from graphbox.cli.app import main; sys.exit(main(['doctor', '--no-bandwidths']))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "CONFLICT       onnxruntime and onnxruntime-gpu install the same files" in done.stdout
