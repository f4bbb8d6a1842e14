"""Calibration feeds: bounded, finite, and made by models from their own queries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphbox.compress.dense import Calibration, convert_dense, dense_methods
from graphbox.compress.dense.values import open_on_cpu
from graphbox.deploy import open_encoder
from graphbox.errors import DataError, UsageError
from tests.artifact.sample_model import make_model, write_encoder
from tests.compress.dense.onnx_models import mlp, rows


def test_feeds_are_bounded_in_rows_and_bytes() -> None:
    feeds = [{"x": rows(10, 4)} for _ in range(20)]
    assert Calibration.of_feeds(feeds, max_rows=35).rows == 30
    assert Calibration.of_feeds(feeds, max_bytes=10 * 4 * 4 * 5).rows == 50
    assert Calibration.of_feeds(feeds, max_bytes=1).rows == 10
    with pytest.raises(UsageError, match="expected positive bounds"):
        Calibration.of_feeds(feeds, max_rows=0)


@pytest.mark.parametrize("feeds", [[], [{"x": rows(0, 4)}]])
def test_empty_feeds_are_refused(feeds: list[dict[str, np.ndarray]]) -> None:
    with pytest.raises(UsageError, match="expected at least one row of calibration feeds, received none"):
        Calibration.of_feeds(feeds)


def test_numbers_that_are_not_finite_are_refused() -> None:
    x = rows(3, 4)
    x[1, 1] = np.nan
    with pytest.raises(DataError, match="expected finite calibration feeds, received 1") as caught:
        Calibration.of_feeds([{"x": x}])
    assert caught.value.where == "input `x`"


def test_constant_columns_are_noted() -> None:
    x = rows(5, 4)
    x[:, 2] = 7
    assert Calibration.of_feeds([{"x": x}]).notes == (
        (
            "input `x`: 1 of 4 columns are constant in the calibration feeds; ranges of activations do not "
            "cover other values of them"
        ),
    )
    assert Calibration.of_feeds([{"x": rows(5, 4)}]).notes == ()


def test_models_make_feeds_of_their_queries(tmp_path: Path) -> None:
    artifact = write_encoder(tmp_path / "sample" / "1", make_model(packages=100, tags=10))
    with open_encoder(artifact.path) as model:
        calibration = Calibration.of_model(model, max_rows=1 << 20)
        assert len(calibration.feeds) == 4
        assert set(calibration.feeds[0]) == {tensor.name for tensor in model.inputs}
        again = Calibration.of_model(model, max_rows=1 << 20)
    for first, second in zip(calibration.feeds, again.feeds, strict=True):
        np.testing.assert_equal(dict(first), dict(second))
    for method in dense_methods():
        error = convert_dense(method, artifact.onnx_bytes(), calibration).report.error
        assert error is not None
        assert 0 < error.rms_relative < 0.25


def test_feeds_can_be_made_up() -> None:
    with open_on_cpu(mlp(6, 20).onnx()) as program:
        assert Calibration.made_up(program).feeds[0]["x"].shape == (64, 6)
