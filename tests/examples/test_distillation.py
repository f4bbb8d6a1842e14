"""The run file of distillation has what its benchmark measures."""

from __future__ import annotations

from benchmarks.compress_distillation import MODELS, RUN_FILE
from graphbox.config import MlpConfig, load_config


def test_the_run_file_has_the_models_that_are_measured() -> None:
    config = load_config(RUN_FILE, check_files=False)
    assert set(MODELS) <= set(config.models)
    student = config.models["student"]
    assert isinstance(student, MlpConfig)
    assert student.distil is not None
    assert student.distil.teachers == ("teacher",)
    assert {each.model for each in config.export.values()} == {"teacher", "student"}
