"""Rows as sums of codebook rows, trained by faiss."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from graphbox.errors import BackendMissingError, DataError, UsageError
from graphbox.row_codecs import ArrayRows, ResidualCodec, TableShape, open_rows
from graphbox.row_codecs import residual as residual_module

RANDOM = np.random.default_rng(0)


def test_more_codebooks_are_closer_and_training_is_deterministic() -> None:
    pytest.importorskip("faiss")
    rows = RANDOM.standard_normal((2000, 12), np.float32)
    errors = []
    for books in (1, 2, 4):
        codec = ResidualCodec(books, beam=2)
        arrays = codec.encode(ArrayRows(rows))
        for name, array in codec.encode(ArrayRows(rows)).items():
            np.testing.assert_array_equal(array, arrays[name])
        stored = open_rows(codec, arrays, TableShape(2000, 12))
        errors.append(np.linalg.norm(stored.block(0, 2000) - rows) / np.linalg.norm(rows))
        assert sum(array.nbytes for array in arrays.values()) == codec.bytes_of(2000, 12)
        assert stored.nbytes == codec.bytes_of(2000, 12)
    assert errors[0] < 0.8
    assert errors[1] < 0.8 * errors[0]
    assert errors[2] < 0.7 * errors[1]


def test_codebooks_are_trained_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(residual_module, "_MOST_TRAINED", 500)
    rows = RANDOM.standard_normal((1500, 4), np.float32)
    assert residual_module._sample(ArrayRows(rows)).shape == (500, 4)
    arrays = ResidualCodec(2, beam=1).encode(ArrayRows(rows))
    assert arrays["codes.npy"].shape == (1500, 2)


def test_too_few_rows_are_refused() -> None:
    pytest.importorskip("faiss")
    with pytest.raises(DataError, match="at least 256 rows, as many as a codebook has, received 255"):
        ResidualCodec(2).encode(ArrayRows(np.ones((255, 4), np.float32)))
    for books, beam in ((0, 1), (65, 1), (4, 0)):
        with pytest.raises(UsageError, match="codebooks"):
            ResidualCodec(books, beam)


def test_a_missing_faiss_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(BackendMissingError, match="expected faiss for the codec `residual") as caught:
        ResidualCodec(2).encode(ArrayRows(np.ones((300, 4), np.float32)))
    assert caught.value.hint == "pip install 'graphbox[ann]'"
