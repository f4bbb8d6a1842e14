"""The key `processes` of the run file."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.config import MODEL_SECTIONS, config_digest
from graphbox.errors import ConfigError
from tests.config.test_device import load


def test_one_unless_said(tmp_path: Path) -> None:
    assert load(tmp_path).processes == 1
    assert load(tmp_path, "processes: 4").processes == 4


def test_a_run_goes_on_with_another_number(tmp_path: Path) -> None:
    assert config_digest(load(tmp_path)) == config_digest(load(tmp_path, "processes: 4"))


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5"])
def test_no_number_of_processes(tmp_path: Path, number: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"processes: {number}")
    assert "run.yaml:7" in str(caught.value)


def test_which_kinds_are_divided() -> None:
    divided = {kind for kind, section in MODEL_SECTIONS.items() if section.UNDIVIDED is None}
    assert divided == {"gnn", "deepfm", "dcn", "wide_and_deep"}
