"""Operations of torch on models and optimizers: they work with tables, or raise an error that says why."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphbox.errors import UnsupportedError, UsageError
from graphbox.table import (
    BagSlot,
    EmbeddingTable,
    TableEmbedding,
    TableEmbeddingBag,
    TableEmbeddingBagCollection,
    TableOptimizer,
)
from graphbox.table import module as table_module

KEYS = torch.tensor([3, 5, 3, 8])


def table_of(dim: int = 4, lr: float = 1.0) -> EmbeddingTable:
    return EmbeddingTable(dim, "sgd", lr=lr)


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


# --- Optimizers


def test_schedulers_set_the_learning_rates_of_tables() -> None:
    one, other = table_of(lr=0.5), table_of(lr=0.25)
    model = torch.nn.ModuleList([TableEmbedding(one), TableEmbedding(other)])
    optimizer = TableOptimizer(model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    for lr in (0.5, 0.25, 0.125):
        before = one.pull(KEYS[:1]).clone()
        backward(model[0](KEYS[:1]).sum())
        optimizer.step()
        scheduler.step()
        assert one.lr == lr
        assert other.lr == lr / 2
        torch.testing.assert_close(one.pull(KEYS[:1]), before - lr)
    other.lr = 3.0  # as users set it without a scheduler
    optimizer.step()
    assert optimizer.param_groups[1]["lr"] == other.lr == 3.0


def test_an_optimizer_goes_on_with_its_state() -> None:
    table = table_of(lr=0.5)
    optimizer = TableOptimizer(TableEmbedding(table))
    optimizer.param_groups[0]["lr"] = 0.125
    state = copy.deepcopy(optimizer.state_dict())
    again = table_of(lr=0.5)
    later = TableOptimizer(TableEmbedding(again))
    later.load_state_dict(state)
    later.step()
    assert again.lr == 0.125
    with pytest.raises(UnsupportedError, match="belongs to modules over tables"):
        copy.deepcopy(optimizer)
    with pytest.raises(UsageError, match="param_group: expected no parameters"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
    assert repr(optimizer) == f"TableOptimizer({table!r})"


def test_a_closure_gives_its_loss() -> None:
    table = table_of()
    module = TableEmbedding(table)
    optimizer = TableOptimizer(module)
    before = table.pull(KEYS[:1]).clone()

    def closure() -> float:
        loss = module(KEYS[:1]).sum()
        backward(loss)
        return float(loss.detach())

    assert optimizer.step(closure) == pytest.approx(float(before.sum()))
    torch.testing.assert_close(table.pull(KEYS[:1]), before - 1)


@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_norms_are_clipped_over_rows_and_parameters_together(max_norm: float) -> None:
    torch.manual_seed(0)
    table, bag_table = table_of(), table_of()
    rows, bags = TableEmbedding(table), TableEmbeddingBag(bag_table, "mean")
    head = torch.nn.Linear(4, 1)
    keys, bag_keys = KEYS, torch.tensor([[1, 2], [2, 2], [9, 1], [1, 1]])
    plain, plain_bags = torch.nn.Embedding(10, 4), torch.nn.EmbeddingBag(10, 4, mode="mean")
    with torch.no_grad():
        plain.weight.copy_(table.pull(torch.arange(10)))
        plain_bags.weight.copy_(bag_table.pull(torch.arange(10)))
    plain_head = copy.deepcopy(head)
    optimizer = TableOptimizer(rows, bags)
    for scale in (1, 2):  # two micro-batches
        backward((head(rows(keys) * bags(bag_keys)) * scale).square().sum())
        backward((plain_head(plain(keys) * plain_bags(bag_keys)) * scale).square().sum())
    expected = torch.nn.utils.clip_grad_norm_(
        [plain.weight, plain_bags.weight, *plain_head.parameters()], max_norm
    )
    torch.testing.assert_close(optimizer.clip_grad_norm_(head.parameters(), max_norm), expected)
    torch.testing.assert_close(head.weight.grad, plain_head.weight.grad)
    optimizer.step()
    torch.optim.SGD([plain.weight, plain_bags.weight], lr=1.0).step()
    torch.testing.assert_close(table.pull(torch.arange(10)), plain.weight.detach())
    torch.testing.assert_close(bag_table.pull(torch.arange(10)), plain_bags.weight.detach())


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_norms_to_clip_to_are_positive(wrong: float) -> None:
    with pytest.raises(UsageError, match="max_norm: expected a finite number above 0"):
        TableOptimizer(TableEmbedding(table_of())).clip_grad_norm_([], wrong)


# --- Precision and devices


def test_lookups_under_autocast() -> None:
    table = table_of()
    module, head = TableEmbedding(table), torch.nn.Linear(4, 2)
    before = table.pull(KEYS).clone()
    with torch.autocast("cpu", torch.bfloat16):
        rows = module(KEYS)
        output = head(rows)
    assert rows.dtype == torch.float32
    assert output.dtype == torch.bfloat16
    backward(output.float().sum())
    assert not torch.equal(table.pull(KEYS), before)


@pytest.mark.parametrize("overflows", [False, True])
def test_scaled_losses_are_scaled_back(overflows: bool) -> None:
    table = table_of()
    module = TableEmbedding(table)
    head = torch.nn.Parameter(torch.ones(4))
    dense, optimizer = torch.optim.SGD([head], lr=1.0), TableOptimizer(module)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = table.pull(KEYS[:1]).clone()
    loss = (module(KEYS[:1]) * head).sum() * (math.inf if overflows else 1.0)
    backward(scaler.scale(loss))
    for each in (dense, optimizer):
        scaler.step(each)
    scaler.update()
    torch.testing.assert_close(table.pull(KEYS[:1]), before if overflows else before - 1)
    backward(scaler.scale((module(KEYS[:1]) * head).sum()))
    scaler.unscale_(optimizer)
    with pytest.raises(UsageError, match="expected a GradScaler that did not unscale_"):
        scaler.step(optimizer)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_rows_are_of_the_dtype_that_the_model_was_given(dtype: torch.dtype) -> None:
    table = table_of()
    slots = TableEmbeddingBagCollection({"a": table, "b": table}).to(dtype)
    module = TableEmbedding(table).to(dtype)
    before = table.pull(KEYS[:1]).clone()
    rows = module(KEYS[:1])
    assert rows.dtype == dtype
    torch.testing.assert_close(rows.float(), before, rtol=1e-2, atol=1e-2)
    assert {each.dtype for each in slots({"a": KEYS[:, None], "b": KEYS[:, None]}).values()} == {dtype}
    backward(rows.sum())
    torch.testing.assert_close(table.pull(KEYS[:1]), before - 1)
    with torch.no_grad():
        assert module.eval()(KEYS).dtype == dtype
    assert list(module.state_dict()) == ["_extra_state"]


def test_models_made_on_the_meta_device_look_up_all_the_same() -> None:
    with torch.device("meta"):
        module = TableEmbedding(table_of())
    assert module(KEYS).device.type == "cpu"


# --- Copies, workers, processes


def test_averaged_and_copied_models_are_refused() -> None:
    model = torch.nn.Sequential(TableEmbedding(table_of()), torch.nn.Linear(4, 1))
    for copying in (copy.deepcopy, pickle.dumps, torch.optim.swa_utils.AveragedModel):
        with pytest.raises(UnsupportedError, match="can be neither copied nor pickled"):
            copying(model)


def test_batches_of_workers_are_looked_up() -> None:
    table = table_of()
    module = TableEmbedding(table)
    loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.arange(64)), batch_size=16, num_workers=1
    )
    for (keys,) in loader:
        backward(module(keys).sum())
    assert sorted(table.keys().tolist()) == list(range(64))


def test_tables_of_several_processes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.warns(UserWarning, match="each of the 2 processes has tables of its own") as warned:
        TableEmbedding(table_of())
    assert warned[0].filename == __file__
    assert table_module.__file__ != __file__


def test_state_of_another_model_is_missed() -> None:
    module = TableEmbedding(table_of())
    with pytest.raises(RuntimeError, match="Missing key"):
        module.load_state_dict({})
    module.load_state_dict({}, strict=False)


def test_what_modules_and_pipelines_look_like() -> None:
    table, other = table_of(), table_of(3)
    slots = TableEmbeddingBagCollection({"a": table, "b": BagSlot(table, "mean", salt="b"), "c": other})
    assert repr(slots).splitlines() == [
        "TableEmbeddingBagCollection(",
        f"  table 0: {table!r}",
        f"  table 1: {other!r}",
        "  a: table 0, sum",
        "  b: table 0, mean, salt='b'",
        "  c: table 1, sum",
        ")",
    ]
    bags = TableEmbeddingBag(table, "sum", include_last_offset=True, padding_idx=7)
    assert repr(bags).endswith(", mode='sum', include_last_offset=True, padding_idx=7)")


# --- Rows as arrays


def test_rows_are_assigned_and_read(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 3))
    keys = np.arange(1000) * 7
    for settings in ({}, {"path": tmp_path / "rows", "memory_bytes": 32 << 20}):
        table = EmbeddingTable(3, "adam", **settings)  # type: ignore[arg-type]
        table.push([7, 9], np.ones((2, 3), np.float32))
        table.assign(keys, rows)
        assert np.array_equal(table.pull(keys), rows.astype(np.float32))
        assert len(table) == 1001
        fresh = EmbeddingTable(3, "adam")
        fresh.assign([7], rows[1:2])
        for each in (table, fresh):  # state began anew
            each.push([7], np.full((1, 3), 0.5, np.float32))
        assert np.array_equal(table.pull([7]), fresh.pull([7]))
        table.assign(torch.tensor([[1, 1]]), torch.tensor([[[1.0, 2, 3], [4, 5, 6]]]))
        assert table.pull([1]).tolist() == [[4, 5, 6]]
        table.close()


def test_pretrained_rows_may_exceed_the_memory_beside_a_folder(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40_000, 256)).astype(np.float32)
    with EmbeddingTable(256, "sgd", path=tmp_path / "rows", memory_bytes=24 << 20) as table:
        table.assign(np.arange(40_000), rows)
        assert table.tier_statistics().cold_rows > 0
        for begin in range(0, 40_000, 5000):
            part = slice(begin, begin + 5000)
            assert np.array_equal(table.pull(np.arange(40_000)[part], create=False), rows[part])
        assert "on SSD alone" in str(table.statistics())


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adam", "ftrl"])
def test_assigned_rows_are_in_deltas_and_learn_from_there(tmp_path: Path, optimizer: Any) -> None:
    table = EmbeddingTable(2, optimizer, lr=0.1)
    table.push([1], np.ones((1, 2), np.float32))
    table.save_base(tmp_path / "base")
    table.assign([1, 2], [[5.0, 6], [7, 8]])
    table.save_delta(tmp_path / "delta")
    loaded = EmbeddingTable.load(tmp_path / "base", deltas=tmp_path / "delta")
    assert loaded.pull([1, 2]).tolist() == [[5, 6], [7, 8]]
    loaded.push([1], np.full((1, 2), 1e-6, np.float32))
    np.testing.assert_allclose(loaded.pull([1]), [[5, 6]], atol=0.11)


def test_what_cannot_be_assigned() -> None:
    table = EmbeddingTable(2)
    with pytest.raises(UsageError, match=r"rows: expected floating \(1, 2\), received int64 \(1, 2\)"):
        table.assign([1], [[1, 2]])
    with pytest.raises(UsageError, match=r"received float64 \(2,\)"):
        table.assign([1], [1.0, 2.0])
    with pytest.raises(Exception, match=r"key 5: values must be finite; those at position 1"):
        table.assign([4, 5], [[1.0, 2], [math.nan, 0]])
    assert len(table) == 0


def test_statistics_at_a_glance(tmp_path: Path) -> None:
    table = EmbeddingTable(3, nonfinite="skip", memory_bytes=1 << 24)
    table.push([1, 2], np.array([[1, 2, 3], [math.nan, 0, 0]], np.float32))
    statistics = table.statistics()
    assert (statistics.rows, statistics.tier, statistics.skipped_gradients) == (2, None, 1)
    lines = str(statistics).splitlines()
    assert lines[0].startswith("2 rows, ")
    assert lines[0].endswith(" MiB of 16.0 MiB memory, 0 passes")
    assert lines[1] == "2 keys admitted, 1 gradients not finite"
    with EmbeddingTable(3, path=tmp_path / "rows") as on_ssd:
        assert on_ssd.statistics().tier == on_ssd.tier_statistics()
        assert "0 rows in memory, 0 on SSD alone" in str(on_ssd.statistics())
