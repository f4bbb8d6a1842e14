"""Guarantees of optimizers on a device: the rows and the state of a table in host memory, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphbox import EmbeddingTable, _core
from graphbox.errors import UnsupportedError, UsageError
from graphbox.table.optimizer_gpu import DeviceOptimizer, first_nonfinite

KEYS = np.array([5, -3, 10**12, 7, 0, 2, -(2**63), 2**63 - 1])
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "limits": {"weight_decay": 0.1, "bounds": (-0.04, 0.05), "clip_norm": 3.0, "clip_value": 0.9},
    "mean": {"mean_gradient": True},
    "decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True},
}
PART = _core.SUMMED_TOGETHER
DTYPES = {"float32": torch.float32, "float16": torch.float16}


class Both:
    """A table in host memory, and its first rows on a device, with their state."""

    def __init__(
        self, device: torch.device, dim: int, optimizer: Any, dtype: Any = "float32", **settings: Any
    ):
        self.table = EmbeddingTable(dim=dim, optimizer=optimizer, lr=0.1, seed=7, dtype=dtype, **settings)
        self.optimizer = DeviceOptimizer(self.table._current.optimizer, DTYPES[dtype], seed=7)
        self.values = torch.from_numpy(self.table.pull(KEYS)).to(device, DTYPES[dtype])
        self.state = self.optimizer.initial_state(len(KEYS), dim, device)

    def push(self, slots: np.ndarray, gradients: np.ndarray, **arguments: Any) -> None:
        """Apply gradients to both."""
        on_host = {name: value for name, value in arguments.items() if name == "shows"}
        self.table.push(KEYS[slots], gradients, **on_host)
        self.push_on_device(slots, gradients, **arguments)

    def push_on_device(self, slots: np.ndarray, gradients: np.ndarray, **arguments: Any) -> None:
        tensors: dict[str, Any] = {
            name: torch.from_numpy(value).to(self.values.device) if isinstance(value, np.ndarray) else value
            for name, value in {"keys": KEYS[slots % len(KEYS)], **arguments}.items()
        }
        where = self.values.device
        self.optimizer.push(
            self.values,
            self.state,
            torch.from_numpy(slots).to(where),
            torch.from_numpy(gradients).to(where),
            **tensors,
        )

    def assert_same(self) -> None:
        record_bytes = _core.table_record_bytes(self.table._current)
        records = np.empty((len(KEYS), record_bytes), np.uint8)
        assert _core.table_read_records(self.table._current, KEYS, records, 1).all()
        ours = [part.cpu().numpy().view(np.uint8) for part in (self.values, self.state)]
        np.testing.assert_array_equal(np.concatenate(ours, axis=1), records)


class DeviceOptimizers:
    """To be run on a device: the fixture `device` says on which."""

    @pytest.mark.parametrize("settings", SETTINGS)
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl"])
    def test_is_the_table(self, device: torch.device, name: str, dtype: str, settings: str) -> None:
        if name == "ftrl" and settings == "decoupled":
            pytest.skip("ftrl has none")
        rng = np.random.default_rng(len(name))
        both = Both(device, 20, name, dtype, **SETTINGS[settings])
        for count in (1, 30):
            slots = rng.integers(0, len(KEYS) - 1, count)
            shows = {"shows": rng.integers(0, 3, count).astype(np.float32)} if settings == "mean" else {}
            both.push(slots, rng.normal(0, 1, (count, 20)).astype(np.float32), **shows)
        both.assert_same()

    @pytest.mark.parametrize("dim", [1, 16, 17, 64, 300])
    def test_sums_are_in_the_order_of_the_batch(self, device: torch.device, dim: int) -> None:
        """Of numbers whose sum is another one in each order; some rows have many, some have none."""
        rng = np.random.default_rng(dim)
        both = Both(device, dim, "rowwise_adagrad")
        slots = np.repeat([3, 0, 6, 3, 1, 3], [40, 1, 9, 8, 2, 1])[rng.permutation(61)]
        gradients = rng.normal(0, 1, (61, dim)) * 10.0 ** rng.integers(-6, 6, (61, dim))
        gradients[:2] = -0.0
        both.push(slots, gradients.astype(np.float32))
        both.assert_same()

    def test_learning_rates(self, device: torch.device) -> None:
        both = Both(device, 4, "adam")
        gradients = np.ones((2, 4), np.float32)
        both.push(np.array([0, 1]), gradients)
        both.table.lr = 0.3
        both.push(np.array([1, 2]), gradients, lr=0.3)
        both.table.lr = both.optimizer.lr = 0.7
        both.push(np.array([2, 0]), gradients)
        both.assert_same()

    @pytest.mark.parametrize("dtype", [np.int32, np.int64])
    def test_what_is_no_row_is_passed_over(self, device: torch.device, dtype: Any) -> None:
        both = Both(device, 3, "adagrad")
        gradients = np.arange(15, dtype=np.float32).reshape(5, 3)
        both.table.push(KEYS[[2, 4]], gradients[[1, 3]])
        beyond = 2**32 + 1 if dtype == np.int64 else 2**31 - 1
        slots = np.array([-1, 2, len(KEYS), 4, beyond], dtype)
        both.push_on_device(slots, gradients)
        both.assert_same()
        both.push_on_device(slots[:0], gradients[:0])
        both.assert_same()

    @pytest.mark.parametrize("name", ["rowwise_adagrad", "adam"])
    def test_wide_rows_and_their_parts(self, device: torch.device, name: str) -> None:
        """Values and state are columns of records; many steps, whose corrections come to their end."""
        both = Both(device, 6, name, betas=(0.5, 0.9)) if name == "adam" else Both(device, 6, name)
        columns = both.optimizer.state_columns(6)
        records = torch.full((len(KEYS), 6 + columns + 2), 9.0, device=device)
        records[:, 1:7], records[:, 8 : 8 + columns] = both.values, both.state
        both.values, both.state = records[:, 1:7], records[:, 8 : 8 + columns]
        rng = np.random.default_rng(0)
        for _ in range(30):
            both.push(np.array([1, 1, 5]), rng.normal(0, 1, (3, 6)).astype(np.float32))
        assert torch.all(records[:, [0, 7]] == 9)
        both.values, both.state = both.values.contiguous(), both.state.contiguous()
        both.assert_same()

    @pytest.mark.parametrize(
        ("name", "dtype", "settings"), [("sgd", "float32", "plain"), ("ftrl", "float16", "mean")]
    )
    def test_rows_with_many_gradients(
        self, device: torch.device, name: str, dtype: str, settings: str
    ) -> None:
        """Sums of several parts, of which the last has one gradient, all it may have, or some."""
        rng = np.random.default_rng(8)
        both = Both(device, 5, name, dtype, **SETTINGS[settings])
        counts = (PART + 1, 1, 3 * PART + 7, 2, PART)
        slots = np.repeat(np.arange(len(counts)), counts)
        slots = slots[rng.permutation(len(slots))]
        gradients = (rng.normal(0, 1, (len(slots), 5)) * 10.0 ** rng.integers(-6, 6, (len(slots), 5))).astype(
            np.float32
        )
        shows = rng.random(len(slots)).astype(np.float32)
        both.table.push(KEYS[slots], gradients, shows=shows if settings == "mean" else None)
        without_row = np.full(2 * PART, -1)
        slots = np.concatenate([slots, without_row])
        gradients, shows = (np.append(each, each[: 2 * PART], axis=0) for each in (gradients, shows))
        both.push_on_device(slots, gradients, **({"shows": shows} if settings == "mean" else {}))
        both.assert_same()

    def test_gradients_with_nan_are_found(self, device: torch.device) -> None:
        gradients = torch.ones(700, 3, device=device)
        assert first_nonfinite(gradients).tolist() == [700]
        for row, value in ((699, np.nan), (41, np.inf), (1, -np.inf)):
            gradients[row, 2] = value
            assert first_nonfinite(gradients).tolist() == [row]
        assert first_nonfinite(gradients[2:41]).tolist() == [39]
        assert first_nonfinite(torch.empty(0, 3, device=device)).tolist() == [0]
        with pytest.raises(UsageError, match="gradients: expected contiguous floating"):
            first_nonfinite(torch.zeros(2, dtype=torch.int64, device=device))

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("settings", ["plain", "mean"])
    def test_sums_that_were_made_before(self, device: torch.device, dtype: str, settings: str) -> None:
        rng = np.random.default_rng(5)
        both = Both(device, 20, "rowwise_adagrad", dtype, **SETTINGS[settings])
        slots = np.array([0, 3, 3, 6, 3, 0])
        gradients = rng.normal(0, 1, (6, 20)).astype(np.float32)
        both.table.push(KEYS[slots], gradients)
        sums = np.stack(
            [gradients[0] + gradients[5], gradients[1] + gradients[2] + gradients[4], gradients[3]]
        )
        distinct = np.array([0, 3, 6])
        arrays = (distinct, np.append(sums, sums[:1], axis=0), np.array([2, 3, 1, 1], np.int32))
        slots_, sums_, counts = (torch.from_numpy(array).to(device) for array in arrays)
        slots_ = torch.cat([slots_, slots_[:1] - 1])
        keys = torch.from_numpy(KEYS[[0, 3, 6, 0]]).to(device)
        both.optimizer.apply(both.values, both.state, slots_, sums_, counts, keys=keys)
        both.assert_same()

    def test_refusals(self, device: torch.device) -> None:
        both = Both(device, 4, "adam")
        slots, gradients = torch.zeros(2, dtype=torch.int64, device=device), torch.ones(2, 4, device=device)
        both.optimizer.push(both.values, both.state, slots, gradients)
        cases: list[tuple[str, dict[str, Any]]] = [
            ("values: expected torch.float32", {"values": both.values.half()}),
            ("values: expected torch.float32", {"values": both.values.T}),
            ("state: expected torch.float32", {"state": both.state[:, :-1]}),
            ("state: expected torch.float32", {"state": both.state.to("meta")}),
            ("slots: expected contiguous torch.int64 or torch.int32", {"slots": slots.float()}),
            ("slots: expected contiguous torch.int64 or torch.int32", {"slots": slots.to("meta")}),
            ("gradients: expected contiguous floating", {"gradients": gradients[:1]}),
            ("gradients: expected contiguous floating", {"gradients": gradients.int()}),
            ("gradients: expected contiguous floating", {"gradients": gradients.to("meta")}),
            ("shows: expected contiguous torch.float32", {"shows": slots}),
            ("keys: expected contiguous torch.int64", {"keys": slots[:1]}),
        ]
        right = {"values": both.values, "state": both.state, "slots": slots, "gradients": gradients}
        for message, wrong in cases:
            with pytest.raises(UsageError, match=message):
                both.optimizer.push(**{**right, **wrong})
        half = Both(device, 4, "sgd", "float16")
        with pytest.raises(UsageError, match="keys: expected the keys of rows of float16"):
            half.optimizer.push(half.values, half.state, slots, gradients)
        with pytest.raises(UsageError, match="counts: expected contiguous"):
            both.optimizer.apply(both.values, both.state, slots, gradients, slots)
        with pytest.raises(UsageError, match="dtype: expected float32 or float16, received"):
            DeviceOptimizer(both.table._current.optimizer, torch.bfloat16)
        wide = torch.zeros(1, 20_000, device=device)
        with pytest.raises(UnsupportedError, match="rows of 1 to 16384 values on a device, received 20000"):
            both.optimizer.push(wide, wide, slots, wide)
