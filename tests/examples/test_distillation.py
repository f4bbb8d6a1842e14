"""The run files of distillation have what their benchmarks measure."""

from __future__ import annotations

from benchmarks import compress_ranking_distillation
from benchmarks.compress_distillation import MODELS, RUN_FILE
from graphbox.config import LightGCNConfig, MatrixFactorizationConfig, MlpConfig, load_config


def test_the_run_file_has_the_models_that_are_measured() -> None:
    config = load_config(RUN_FILE, check_files=False)
    assert set(MODELS) <= set(config.models)
    student = config.models["student"]
    assert isinstance(student, MlpConfig)
    assert student.distil is not None
    assert student.distil.teachers == ("teacher",)
    assert {each.model for each in config.export.values()} == {"teacher", "student"}


def test_rankings() -> None:
    config = load_config(compress_ranking_distillation.RUN_FILE, check_files=False)
    assert list(compress_ranking_distillation.MODELS) == list(config.models)
    for name in ("student", "student_factors"):
        student = config.models[name]
        assert isinstance(student, LightGCNConfig | MatrixFactorizationConfig)
        assert student.distil is not None
        assert student.distil.teachers == ("teacher",)
