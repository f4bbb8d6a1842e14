"""Damaged and hostile model versions, and files of other programs, cause a typed error or an answer.

A finding names a seed: ``python -m tests.deploy.hostile_process FOLDER --first SEED --count 1`` runs it, with
``--kind files`` for files, in an empty folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.hostile_cases import HostileReport, run_cases
from tests.deploy.hostile_onnx import MUTATIONS
from tests.deploy.hostile_versions import PARTS


def _check(report: HostileReport, count: int) -> None:
    assert report.findings == {}
    assert report.outcomes.total() == count
    assert report.outcomes["answered"] > count // 20, "sound versions are refused"


def test_hostile_versions(tmp_path: Path) -> None:
    report = run_cases(tmp_path, 0, 300)
    _check(report, 300)
    assert {*MUTATIONS, *PARTS} <= report.cases.keys()
    assert {"FormatError", "UnsupportedError"} <= report.outcomes.keys()


def test_hostile_files(tmp_path: Path) -> None:
    _check(run_cases(tmp_path, 0, 60, kind="files"), 60)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_many_hostile_files(tmp_path: Path) -> None:
    _check(run_cases(tmp_path, 1_000, 2_000, kind="files"), 2_000)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(10_000, 20_000, 2_500))
def test_many_hostile_versions(tmp_path: Path, first: int) -> None:
    _check(run_cases(tmp_path, first, 2_500), 2_500)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("target", "count"), [("openvino", 600), ("iree", 20)])
def test_hostile_versions_on_adapters_that_build_ahead(tmp_path: Path, target: str, count: int) -> None:
    pytest.importorskip({"openvino": "openvino", "iree": "iree.compiler"}[target])
    _check(run_cases(tmp_path, 50_000, count, target), count)
