"""Codes of weights: exact without VNNI, and blocks of few bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox.compress.dense.block_weights import BlockWeights, block_codes
from graphbox.compress.dense.weight_codes import weight_codes
from graphbox.errors import UsageError
from tests.compress.dense.onnx_models import rows


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 9), st.floats(1e-6, 1e6))
def test_pairs_never_saturate_16_bits(seed: int, height: int, width: int, size: float) -> None:
    random = np.random.default_rng(seed)
    matrix = (random.standard_normal((height, width)) * size).astype(np.float32)
    matrix[random.random(matrix.shape) < 0.2] = matrix.max()
    codes = weight_codes(matrix)
    integers = codes.codes.astype(np.int64)
    for activation in (0, 255):
        first = integers[:-1] * 255
        second = integers[1:] * np.where(np.sign(integers[1:]) == np.sign(integers[:-1]), 255, activation)
        assert np.abs(first + second).max(initial=0) <= np.iinfo(np.int16).max
    assert (np.abs(integers * codes.scale - matrix) <= 1.51 * codes.scale).all()
    assert np.abs(integers).max() <= 127


def test_the_step_of_normal_weights_grows_little() -> None:
    matrix = rows(512, 256)
    plain = np.abs(matrix).max(axis=0) / 127
    assert 1.1 < float((weight_codes(matrix).scale / plain).mean()) < 1.45


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("height", "block"), [(64, 32), (37, 16), (5, 128)])
def test_blocks_decode(bits: int, height: int, block: int) -> None:
    matrix = rows(height, 11)
    matrix[:, 2] = 0
    found = block_codes(matrix, bits, block)
    codes = found.codes
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:2], -1)
    scales = found.scales.reshape(11, -1, 1)
    decoded = ((codes.astype(np.float32) - (1 << (bits - 1))) * scales).reshape(11, -1)[:, :height].T
    error = np.linalg.norm(decoded - matrix) / np.linalg.norm(matrix)
    assert error < {4: 0.12, 8: 0.008}[bits]
    assert not decoded[:, 2].any()


def test_scales_of_4_bits_are_better_than_those_of_the_largest_weight() -> None:
    quantizer = pytest.importorskip("onnxruntime.capi._pybind_state")
    matrix = rows(256, 64)
    packed = np.zeros((64, 8, 16), np.uint8)
    scales, zeros = np.zeros(64 * 8, np.float32), np.zeros((64, 4), np.uint8)
    quantizer.quantize_matmul_4bits(packed, matrix, scales, zeros, 32, 64, 256, True)
    ours = block_codes(matrix, 4, 32)

    def error(codes: np.ndarray, scale: np.ndarray) -> float:
        wide = np.stack([codes & 15, codes >> 4], axis=-1).reshape(64, 8, 32).astype(np.float32) - 8
        return float(np.square((wide * scale.reshape(64, 8, 1)).reshape(64, 256).T - matrix).sum())

    assert error(ours.codes, ours.scales) < 0.95 * error(packed, scales)


def test_blocks_of_other_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="expected blocks of 16, 32, 64, 128, 256, received 48"):
        BlockWeights(bits=4, block=48)
