"""Row optimizers in the memory of a device: the twin of ``csrc/table/optimizer.cpp``, bit for bit.

Slots were sorted, stably, so that the gradients of a row are next to each other in the order of the batch.
The program that meets the first of them adds the others, or the sums of parts that another kernel made of
many, updates the row, and passes over those of rows that began before. Each gradient is read once, each row
read and written once.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from graphbox import _core
from graphbox.device import check_device, on_device
from graphbox.errors import UnsupportedError, UsageError
from graphbox.table.float16_gpu import rounded_stochastically
from graphbox.table.lanes_gpu import lane_sum
from graphbox.table.reduce_gpu import (
    check_rows,
    check_vector,
    gradients_at,
    is_first_of_equal,
    sum_of_row,
    sums_of_parts,
)

_SGD = tl.constexpr(0)
_ADAGRAD = tl.constexpr(1)
_ROWWISE_ADAGRAD = tl.constexpr(2)
_ADAM = tl.constexpr(3)
_ROWWISE_ADAM = tl.constexpr(4)
_FTRL = tl.constexpr(5)
_NUMBERS: Final = {
    "sgd": 0,
    "adagrad": 1,
    "rowwise_adagrad": 2,
    "adam": 3,
    "rowwise_adam": 4,
    "ftrl": 5,
}
_STATE_PER_VALUE: Final = {"adagrad": 1, "rowwise_adam": 1, "adam": 2, "ftrl": 2}
_WITH_ACCUMULATOR: Final = frozenset({"rowwise_adagrad", "rowwise_adam"})
_WITH_MOMENTS: Final = frozenset({"adam", "rowwise_adam"})
_WITH_STEPS: Final = frozenset({"adam", "rowwise_adam", "ftrl"})
_ROUNDING_STREAM: Final = 8  # Stream::kRowRounding of csrc/random/philox.h
_MOST_CORRECTIONS: Final = 1 << 17
_LARGEST_DIM: Final = 16_384
_TILE: Final = 1024  # values of a program
_FLAT_BLOCK: Final = 4096
_VALUES_PER_WARP: Final = 512
_MOST_WARPS: Final = 16
_INFINITE = tl.constexpr(float("inf"))
_LAST_STEP = tl.constexpr(0xFFFFFFFF)
_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_SIGN = tl.constexpr(0x80000000)
_LANES = tl.constexpr(16)  # of mean_square()
_WIDE_LANES = tl.constexpr(8)  # of square_sum()


@triton.jit
def _clipped_scale(total, scale, clip_norm, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return factors that shorten gradients to ``clip_norm`` where they are longer."""
    wide = tl.abs(total).to(tl.float64)
    wide_scale = scale.to(tl.float64)
    norm = wide_scale * tl.sqrt(lane_sum(wide * wide, _WIDE_LANES, ROWS, COLUMNS))
    most = tl.zeros_like(norm) + clip_norm
    longer = tl.where(norm <= most, 1.0, norm)
    return tl.where(norm <= most, scale, (wide_scale * (most / longer)).to(tl.float32))


@triton.jit
def _mean_square(g, cells, DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    squares = tl.where(cells, g * g, 0.0)
    total = lane_sum(squares, _LANES, ROWS, COLUMNS)
    return tl.div_rn(total, tl.full((ROWS,), DIM, tl.float32))


@triton.jit
def _with_sign_of(magnitude, value):
    sign = value.to(tl.uint32, bitcast=True) & _SIGN
    return ((magnitude.to(tl.uint32, bitcast=True) & _MAGNITUDE) | sign).to(tl.float32, bitcast=True)


@triton.jit
def _gradient_of(
    total, shown, value, decay, clip_value, clip_norm,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HAS_SETTINGS: tl.constexpr, IS_MEAN: tl.constexpr,
    CLIPS_NORM: tl.constexpr,
):  # fmt: skip
    """Return what sums of gradients become by the settings: see ``gradient_of`` there."""
    scale = tl.full((ROWS,), 1.0, tl.float32)
    if IS_MEAN:
        scale = tl.where(shown > 0, tl.div_rn(scale, tl.where(shown > 0, shown, 1.0)), 0.0)
    if CLIPS_NORM:
        scale = _clipped_scale(total, scale, clip_norm, ROWS, COLUMNS)
    g = total
    if HAS_SETTINGS:
        g = scale[:, None] * g
        g = tl.where(g < -clip_value, -clip_value, g)
        g = tl.where(g > clip_value, clip_value, g) + decay * value
    return g


@triton.jit
def _adagrad_step(state, cells, g, lr, eps):
    squares = tl.load(state, mask=cells, other=1.0) + g * g
    tl.store(state, squares, mask=cells)
    return tl.div_rn(lr * g, tl.sqrt_rn(squares) + eps)


@triton.jit
def _rowwise_adagrad_step(accumulators, wanted, accumulator, square, g, lr, eps):
    accumulator = accumulator + square
    tl.store(accumulators, accumulator, mask=wanted)
    return tl.div_rn(tl.zeros_like(accumulator) + lr, tl.sqrt_rn(accumulator) + eps)[:, None] * g


@triton.jit
def _first_moment(state, cells, g, rest1):
    first = tl.load(state, mask=cells, other=0.0)
    first += rest1 * (g - first)
    tl.store(state, first, mask=cells)
    return first


@triton.jit
def _correction(table, last, steps, wanted):
    """Return 1 - beta^steps."""
    return tl.load(table + tl.minimum(steps.to(tl.int64), last), mask=wanted, other=1.0)


@triton.jit
def _adam_step(state, cells, first, g, rate, root_scale, eps, beta2, rest2, DIM: tl.constexpr):
    second = tl.load(state + DIM, mask=cells, other=0.0)
    second = beta2 * second + rest2 * g * g
    tl.store(state + DIM, second, mask=cells)
    return tl.div_rn(rate[:, None] * first, root_scale[:, None] * tl.sqrt_rn(second) + eps)


@triton.jit
def _rowwise_adam_step(
    accumulators, wanted, accumulator, square, first, rate, root_scale, eps, beta2, rest2
):  # fmt: skip
    accumulator = beta2 * accumulator + rest2 * square
    tl.store(accumulators, accumulator, mask=wanted)
    return tl.div_rn(rate, root_scale * tl.sqrt_rn(accumulator) + eps)[:, None] * first


@triton.jit
def _ftrl_value(state, cells, value, g, steps, lr, beta, l1, l2, DIM: tl.constexpr):
    """Return values after a step: see ``update_ftrl`` there."""
    z = tl.load(state, mask=cells, other=0.0)
    squares = tl.load(state + DIM, mask=cells, other=0.0)
    rate = tl.zeros_like(value) + lr
    root = tl.sqrt_rn(squares)
    strength = tl.div_rn(beta + root, rate) + l2
    initial = -value * strength - tl.where(value == 0, 0.0, _with_sign_of(tl.zeros_like(value) + l1, value))
    squares += g * g
    next_root = tl.sqrt_rn(squares)
    before = tl.where((steps == 1)[:, None], initial, z)
    z = before + g - tl.div_rn(next_root - root, rate) * value
    tl.store(state, z, mask=cells)
    tl.store(state + DIM, squares, mask=cells)
    excess = tl.abs(z) - l1
    next_strength = tl.div_rn(beta + next_root, rate) + l2
    return tl.where(excess > 0, tl.div_rn(-_with_sign_of(excess, z), next_strength), 0.0)


@triton.jit
def _value_after(
    state, accumulators, corrections1, corrections2, last_correction1, last_correction2,
    wanted, cells, value, accumulator, g, steps, lr, eps, keep, beta1, rest1, beta2, rest2, l1, l2,
    OPTIMIZER: tl.constexpr, DIM: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    HAS_SETTINGS: tl.constexpr,
):  # fmt: skip
    """Return values after a step of the optimizer, whose state is stored."""
    if OPTIMIZER == _FTRL:
        return _ftrl_value(state, cells, value, g, steps, lr, beta1, l1, l2, DIM)
    step = lr * g
    if OPTIMIZER == _ADAGRAD:
        step = _adagrad_step(state, cells, g, lr, eps)
    elif OPTIMIZER == _ROWWISE_ADAGRAD:
        square = _mean_square(g, cells, DIM, ROWS, COLUMNS)
        step = _rowwise_adagrad_step(accumulators, wanted, accumulator, square, g, lr, eps)
    elif OPTIMIZER != _SGD:
        first = _first_moment(state, cells, g, rest1)
        correction1 = _correction(corrections1, last_correction1, steps, wanted)
        correction2 = _correction(corrections2, last_correction2, steps, wanted)
        rate = tl.div_rn(tl.zeros_like(correction1) + lr, correction1)
        root_scale = tl.div_rn(tl.zeros_like(correction2) + 1.0, tl.sqrt_rn(correction2))
        if OPTIMIZER == _ADAM:
            step = _adam_step(state, cells, first, g, rate, root_scale, eps, beta2, rest2, DIM)
        else:
            square = _mean_square(g, cells, DIM, ROWS, COLUMNS)
            step = _rowwise_adam_step(
                accumulators, wanted, accumulator, square, first, rate, root_scale, eps, beta2, rest2
            )
    if HAS_SETTINGS:
        value = value * keep
    return value - step


@triton.jit
def _narrow(slots, narrow, size, num_rows, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    slot = tl.load(slots + number, mask=inside, other=-1)
    slot = tl.where((slot >= 0) & (slot < num_rows), slot, -1)
    tl.store(narrow + number, slot.to(tl.int32), mask=inside)


@triton.jit(do_not_specialize=["size"])  # one kernel for batches of all sizes
def _update(
    values, state, slots, order, gradients, shows, keys, parts, part_shows, part_counts,
    corrections1, corrections2,
    size, num_rows, last_correction1, last_correction2, rounding_key,
    lr, eps, lowest, highest, keep, decay, clip_value, clip_norm, beta1, rest1, beta2, rest2, l1, l2,
    VALUES_STRIDE: tl.constexpr, STATE_STRIDE: tl.constexpr, ACCUMULATOR: tl.constexpr, STEPS: tl.constexpr,
    OPTIMIZER: tl.constexpr, DIM: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    IS_SORTED: tl.constexpr, HAS_SETTINGS: tl.constexpr, IS_MEAN: tl.constexpr, HAS_SHOWS: tl.constexpr,
    CLIPS_NORM: tl.constexpr, IS_HALF: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = number < size
    slot = tl.load(slots + number, mask=inside, other=-1).to(tl.int64)
    wanted = inside & (slot >= 0) & (slot < num_rows)
    if IS_SORTED:
        wanted = wanted & is_first_of_equal(slots, number, slot, inside)
    row = values + slot[:, None] * VALUES_STRIDE + column
    row_state = state + slot * STATE_STRIDE
    # Rows are asked for before gradients are waited for.
    value = tl.load(row, mask=wanted[:, None] & (column < DIM), other=0.0).to(tl.float32)
    accumulator = tl.full((ROWS,), 1.0, tl.float32)
    if ACCUMULATOR >= 0:
        accumulator = tl.load(row_state + ACCUMULATOR, mask=wanted, other=1.0)
    steps = tl.zeros((ROWS,), tl.uint32)
    if STEPS >= 0:
        steps = tl.load(row_state + STEPS, mask=wanted, other=0.0).to(tl.uint32, bitcast=True)
    if IS_SORTED:
        total, shown, _ = sum_of_row(
            slots, order, gradients, shows, parts, part_shows, part_counts,
            number, slot, wanted, size, column, DIM, HAS_SHOWS,
        )  # fmt: skip
        position = tl.load(order + number, mask=wanted, other=0)
    else:
        position = number
        total = gradients_at(gradients, number, wanted, column, DIM)
        shown = tl.load(shows + number, mask=wanted, other=0).to(tl.float32)

    cells = wanted[:, None] & (column < DIM)
    if ACCUMULATOR >= 0 or STEPS >= 0:
        # All threads have read the numbers of their row before one of them, in whichever warp, writes them.
        tl.debug_barrier()
    if STEPS >= 0:
        steps = tl.where(steps == _LAST_STEP, steps, steps + 1)
        tl.store(row_state + STEPS, steps.to(tl.float32, bitcast=True), mask=wanted)
    g = _gradient_of(
        total, shown, value, decay, clip_value, clip_norm,
        ROWS, COLUMNS, HAS_SETTINGS, IS_MEAN, CLIPS_NORM,
    )  # fmt: skip
    value = _value_after(
        row_state[:, None] + column, row_state + ACCUMULATOR,
        corrections1, corrections2, last_correction1, last_correction2,
        wanted, cells, value, accumulator, g, steps, lr, eps, keep, beta1, rest1, beta2, rest2, l1, l2,
        OPTIMIZER, DIM, COLUMNS, ROWS, HAS_SETTINGS,
    )  # fmt: skip
    if HAS_SETTINGS:
        value = tl.where(value < lowest, lowest, value)
        value = tl.where(value > highest, highest, value)
    if IS_HALF:
        key = tl.load(keys + position, mask=wanted, other=0)
        tl.store(row, rounded_stochastically(value, rounding_key, steps, key, ROWS, COLUMNS), mask=cells)
    else:
        tl.store(row, value, mask=cells)


@triton.jit
def _find_nonfinite(gradients, found, size, DIM: tl.constexpr, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    gradient = tl.load(gradients + number, mask=inside, other=0.0).to(tl.float32)
    is_bad = inside & ((tl.abs(gradient) < _INFINITE) == 0)
    first = tl.min(tl.where(is_bad, number, size), axis=0)
    if first < size:
        tl.atomic_min(found, first // DIM, sem="relaxed")


def first_nonfinite(gradients: Tensor) -> Tensor:
    """Return the first row that holds NaN or infinity, without waiting for it.

    Args:
        gradients: floating [n, dim], contiguous, on a device.

    Returns:
        int64 [1] there; n if there is none.

    Raises:
        UsageError: other gradients.
    """
    check_rows(gradients, "gradients", gradients.shape[-1] if gradients.ndim == 2 else 1)
    found = torch.full((1,), len(gradients), dtype=torch.int64, device=gradients.device)
    if gradients.numel() > 0:
        with on_device(gradients.device):
            _find_nonfinite[triton.cdiv(gradients.numel(), _FLAT_BLOCK),](
                gradients,
                found,
                gradients.numel(),
                DIM=gradients.shape[1],
                BLOCK=_FLAT_BLOCK,
                enable_fp_fusion=False,
            )
    return found


class DeviceOptimizer:
    """Applies gradients to rows on a device as :class:`graphbox.EmbeddingTable` applies them in host memory.

    State is float32 [slots, state_columns], in the order of a record of the table: what belongs to each
    value, the accumulator of the row, the bits of its number of steps. Values and state may be parts of wider
    rows.

    Args:
        config: kind and settings.
        dtype: of the values, float32, or float16, which is rounded stochastically.
        seed: of the table; for float16.

    Raises:
        UsageError: another dtype.
    """

    def __init__(
        self, config: _core.OptimizerConfig, dtype: torch.dtype = torch.float32, *, seed: int = 0
    ) -> None:
        if dtype not in (torch.float32, torch.float16):
            raise UsageError(f"expected float32 or float16, received {dtype}", where="dtype")
        self.config = config
        self.dtype = dtype
        self.lr: float = config.lr
        self._rounding_key = _core.philox_key(_ROUNDING_STREAM, seed, 0, 0)
        lowest, highest = config.bounds
        self._has_settings = bool(
            np.isfinite([config.clip_value, config.clip_norm, lowest, highest]).any()
            or config.mean_gradient
            or config.weight_decay != 0
        )
        self._has_steps = config.name in _WITH_STEPS or dtype == torch.float16
        self._corrections: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def state_columns(self, dim: int) -> int:
        """Return how many columns the state of rows has."""
        return self._accumulator_column(dim) + (self.config.name in _WITH_ACCUMULATOR) + self._has_steps

    def initial_state(self, rows: int, dim: int, device: torch.device | str) -> Tensor:
        """Return the state of new rows, float32 [rows, state_columns]."""
        state = torch.zeros(rows, self.state_columns(dim), dtype=torch.float32, device=device)
        name, initial = self.config.name, self.config.initial_accumulator
        if name == "adagrad":
            state[:, :dim] = initial
        elif name == "ftrl":
            state[:, dim : 2 * dim] = initial
        elif name == "rowwise_adagrad":
            state[:, 0] = initial
        return state

    def push(
        self,
        values: Tensor,
        state: Tensor,
        slots: Tensor,
        gradients: Tensor,
        *,
        lr: float | None = None,
        keys: Tensor | None = None,
        shows: Tensor | None = None,
    ) -> None:
        """Apply gradients; those of equal slots are summed (or averaged) first, in the order of the core.

        Nothing is waited for.

        Args:
            values: float32 or float16 [rows, dim], changed in place.
            state: float32 [rows, state_columns], changed in place.
            slots: int64 or int32 [n], rows; others, such as -1, are passed over.
            gradients: floating [n, dim], contiguous.
            lr: the learning rate; None: the one of ``lr``.
            keys: int64 [n], of the rows, which number the draws that round float16; only for that.
            shows: float32 [n], how often each was shown, by which ``mean_gradient`` divides; None: once.

        Raises:
            UsageError: wrong dtypes, shapes or devices.
            UnsupportedError: rows of more than 16,384 values.
            BackendMissingError: kernels do not run there.
        """
        self._check(values, state, slots, gradients, keys)
        if shows is not None:
            check_vector(shows, "shows", (torch.float32,), len(slots), values.device)
        if len(slots) == 0:
            return
        if slots.dtype == torch.int64 and len(values) < 2**31:
            slots = _narrowed(slots, len(values))
        in_order, order = torch.sort(slots, stable=True)
        self._launch(values, state, in_order, order, gradients, lr, keys, shows)

    def apply(
        self,
        values: Tensor,
        state: Tensor,
        slots: Tensor,
        sums: Tensor,
        counts: Tensor,
        *,
        lr: float | None = None,
        keys: Tensor | None = None,
    ) -> None:
        """Apply sums of gradients to different rows.

        Args:
            values: as in :meth:`push`.
            state: as there.
            slots: int64 or int32 [n], distinct, but for those that are no rows, which are passed over.
            sums: floating [n, dim], contiguous.
            counts: int32 or float32 [n], of the gradients in each, by which ``mean_gradient`` divides.
            lr: as there.
            keys: as there.

        Raises:
            UsageError: wrong dtypes, shapes or devices.
            UnsupportedError: rows of more than 16,384 values.
            BackendMissingError: kernels do not run there.
        """
        self._check(values, state, slots, sums, keys)
        check_vector(counts, "counts", (torch.int32, torch.float32), len(slots), values.device)
        if len(slots) > 0:
            self._launch(values, state, slots, None, sums, lr, keys, counts)

    def _launch(
        self,
        values: Tensor,
        state: Tensor,
        slots: Tensor,
        order: Tensor | None,
        gradients: Tensor,
        lr: float | None,
        keys: Tensor | None,
        shows: Tensor | None,
    ) -> None:
        """Launch the kernel; tensors that it is not to read stand for those that are not there."""
        config, dim = self.config, values.shape[1]
        corrections1, corrections2 = self._corrections_on(values.device)
        parts = (corrections1,) * 3
        if order is not None:
            parts = sums_of_parts(slots, order, gradients, shows, least_row=0)
        columns = max(triton.next_power_of_2(dim), 16)
        rows = max(_TILE // columns, 1)
        rate, decay = np.float32(self.lr if lr is None else lr), np.float32(config.weight_decay)
        is_decoupled = config.decoupled_weight_decay
        beta1, beta2 = (np.float32(beta) for beta in config.betas)
        accumulator = self._accumulator_column(dim)
        has_accumulator = config.name in _WITH_ACCUMULATOR
        with on_device(values.device):
            _update[triton.cdiv(len(slots), rows),](
                values,
                state,
                slots,
                slots if order is None else order,
                gradients,
                slots if shows is None else shows,
                slots if keys is None else keys,
                *parts,
                corrections1,
                corrections2,
                len(slots),
                len(values),
                len(corrections1) - 1,
                len(corrections2) - 1,
                self._rounding_key,
                float(rate),
                config.eps,
                *config.bounds,
                float(1 - rate * decay) if is_decoupled else 1.0,
                0.0 if is_decoupled else float(decay),
                config.clip_value,
                config.clip_norm,
                config.beta if config.name == "ftrl" else float(beta1),
                float(1 - beta1),
                float(beta2),
                float(1 - beta2),
                config.l1,
                config.l2,
                VALUES_STRIDE=values.stride(0),
                STATE_STRIDE=state.stride(0),
                ACCUMULATOR=accumulator if has_accumulator else -1,
                STEPS=accumulator + has_accumulator if self._has_steps else -1,
                OPTIMIZER=_NUMBERS[config.name],
                DIM=dim,
                COLUMNS=columns,
                ROWS=rows,
                IS_SORTED=order is not None,
                HAS_SETTINGS=self._has_settings,
                IS_MEAN=config.mean_gradient,
                HAS_SHOWS=shows is not None,
                CLIPS_NORM=bool(np.isfinite(config.clip_norm)),
                IS_HALF=self.dtype == torch.float16,
                num_warps=min(max(columns // _VALUES_PER_WARP, 4), _MOST_WARPS),
                enable_fp_fusion=False,
            )

    def _accumulator_column(self, dim: int) -> int:
        return _STATE_PER_VALUE.get(self.config.name, 0) * dim

    def _corrections_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return 1 - beta^steps of both betas for 0, 1, 2 ... steps, until it is 1 for good or nearly so."""
        if device not in self._corrections:
            betas = self.config.betas if self.config.name in _WITH_MOMENTS else (0.0, 0.0)
            first, second = (torch.from_numpy(_corrections_of(beta)).to(device) for beta in betas)
            self._corrections[device] = first, second
        return self._corrections[device]

    def _check(
        self, values: Tensor, state: Tensor, slots: Tensor, gradients: Tensor, keys: Tensor | None
    ) -> None:
        if values.ndim != 2 or values.dtype != self.dtype or values.stride(1) != 1:
            raise UsageError(
                f"expected {self.dtype} [rows, dim] with values side by side, received "
                f"{values.dtype} {tuple(values.shape)} of strides {values.stride()}",
                where="values",
            )
        check_device(values.device)
        rows, dim = values.shape
        if not 1 <= dim <= _LARGEST_DIM:
            raise UnsupportedError(
                f"expected rows of 1 to {_LARGEST_DIM} values on a device, received {dim}",
                where="values",
                hint="keep the table in host memory",
            )
        expected = (rows, self.state_columns(dim))
        if state.shape != expected or state.dtype != torch.float32 or state.device != values.device:
            raise UsageError(
                f"expected torch.float32 {expected} on {values.device}, received {state.dtype} "
                f"{tuple(state.shape)} on {state.device}",
                where="state",
            )
        if expected[1] > 1 and state.stride(1) != 1:
            raise UsageError(
                f"expected columns side by side, received strides {state.stride()}", where="state"
            )
        check_vector(slots, "slots", (torch.int64, torch.int32), None, values.device)
        check_rows(gradients, "gradients", dim, len(slots), values.device)
        if keys is not None:
            check_vector(keys, "keys", (torch.int64,), len(slots), values.device)
        elif self.dtype == torch.float16:
            raise UsageError(
                "expected the keys of rows of float16, whose rounding they number, received none",
                where="keys",
            )


def _narrowed(slots: Tensor, num_rows: int) -> Tensor:
    """Return slots as int32, of which half as many bits are to be sorted; -1 for what is no row."""
    narrow = torch.empty(len(slots), dtype=torch.int32, device=slots.device)
    with on_device(slots.device):
        _narrow[triton.cdiv(len(slots), _FLAT_BLOCK),](
            slots, narrow, len(slots), num_rows, BLOCK=_FLAT_BLOCK, enable_fp_fusion=False
        )
    return narrow


def _corrections_of(beta: float) -> np.ndarray:
    powers = np.cumprod(np.full(_MOST_CORRECTIONS - 1, beta, np.float64))
    corrections = np.concatenate([[0.0], 1 - powers]).astype(np.float32)
    ones = np.flatnonzero(corrections == 1)
    return corrections[: ones[0] + 1] if len(ones) else corrections
