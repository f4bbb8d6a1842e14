"""Models that IREE compiles for another processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.deploy import choose, open_encoder
from graphbox.deploy.building import build_package
from graphbox.errors import UnsupportedError
from tests.artifact.sample_model import SampleModel, write_encoder

pytest.importorskip("iree.compiler")


def test_files_for_arm_are_written_and_not_run_here(sample: SampleModel, tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "models" / "1", sample).path
    package = build_package(path, "iree/aarch64", out=tmp_path / "files")
    assert list(package.files) == ["model.vmfb"]
    assert b"embedded-elf-arm_64" in (tmp_path / "files" / "model.vmfb").read_bytes()
    with pytest.raises(UnsupportedError, match="one that files are compiled for"):
        open_encoder(path, target="iree/aarch64")


def test_the_adapters_name_means_this_machine() -> None:
    assert choose("iree")[1].name == "cpu"
