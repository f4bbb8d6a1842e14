"""Checks of several processes with one table: each runs in all of them, as a program's jobs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.errors import BackendMissingError, ConflictError, DataError, UnsupportedError, UsageError
from graphbox.table import (
    CountAdmission,
    EmbeddingTable,
    Expiry,
    ProcessGroup,
    ShardedTable,
    ShowClickScore,
    TableEmbedding,
    TableEmbeddingBag,
    TableEmbeddingBagCollection,
    TableOptimizer,
    shard_of,
)
from graphbox.table.distributed_keys import owners_of
from graphbox.table.host_table import host_table
from tests.table.distributed_processes import serve_checks

DIM = 5
SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.01},
    "adagrad": {"optimizer": "adagrad", "lr": 0.1, "clip_norm": 0.5},
    "rowwise_adagrad": {"optimizer": "rowwise_adagrad"},
    "adam": {"optimizer": "adam", "lr": 0.01},
    "ftrl": {"optimizer": "ftrl", "l1": 0.01},
    "mean_gradient": {"optimizer": "adagrad", "mean_gradient": True},
    "float16": {"optimizer": "adagrad", "dtype": "float16"},
}
Batch = tuple[NDArray[np.int64], NDArray[np.float32]]


def sharded(group: ProcessGroup, *, average: bool = False, **settings: Any) -> ShardedTable:
    return ShardedTable(EmbeddingTable(DIM, **settings), group, name="users", average_gradients=average)


def batches(seed: int, size: int, *, repeated: bool) -> list[Batch]:
    """Return keys and gradients of each process, some without any; few keys, so that processes share them."""
    random = np.random.default_rng(seed)
    found = []
    for rank in range(size):
        count = 0 if (seed + rank) % 3 == 0 else int(random.integers(1, 60))
        pool = np.concatenate([random.integers(-(2**63), 2**63 - 1, 20), np.arange(-10, 40)])
        pool = np.unique(np.concatenate([pool, np.arange(60)]))[:80]
        keys = random.choice(pool, count, replace=repeated) if count else np.zeros(0, np.int64)
        found.append((keys, random.normal(size=(count, DIM)).astype(np.float32)))
    return found


def joined(parts: Sequence[Batch]) -> Batch:
    return np.concatenate([each[0] for each in parts]), np.concatenate([each[1] for each in parts])


def rows_are_those_of_one_process(group: ProcessGroup, folder: Path, *, repeated: bool) -> None:
    """Bit for bit without keys that a process has twice, else within rounding."""
    for settings in SETTINGS.values():
        table, whole = sharded(group, **settings), EmbeddingTable(DIM, **settings)
        for step in range(6):
            parts = batches(step, group.size, repeated=repeated)
            keys, gradients = parts[group.rank]
            # Unknown keys, too, which every other pull creates.
            np.testing.assert_array_equal(
                table.pull(keys, create=bool(step % 2)).shape, whole.pull(keys, create=False).shape
            )
            if step % 2:
                whole.pull(joined(parts)[0])
            table.push(keys, gradients)
            whole.push(*joined(parts))
            assert table.total_rows() == len(whole)
        every = whole.keys()
        assert table.contains(every).all()
        assert not table.contains([123456]).any()
        rows, expected = table.pull(every, create=False), whole.pull(every)
        if repeated and settings.get("dtype") != "float16":
            np.testing.assert_allclose(rows, expected, rtol=2e-5, atol=2e-6)
        elif not repeated:
            np.testing.assert_array_equal(rows, expected)
        assert (shard_of(table.local.keys(), group.size) == group.rank).all()


def pulls_give_what_was_asked_for(group: ProcessGroup, folder: Path) -> None:
    table, whole = sharded(group, seed=3), EmbeddingTable(DIM, seed=3)
    keys = np.arange(12).reshape(3, 4) * (group.rank + 1)
    rows = table.pull(keys)
    np.testing.assert_array_equal(rows, whole.pull(keys))
    out = np.zeros((3, 4, DIM), np.float32)
    assert table.pull(keys, out) is out
    np.testing.assert_array_equal(out, rows)
    tensor = table.pull(torch.from_numpy(keys))
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), rows)
    erased = table.erase([0, 1] if group.is_first else [])
    assert erased == 2
    assert table.contains(np.array([0, 1, 2])).tolist() == [False, False, True]
    with pytest.raises(UsageError, match="expected integers"):
        table.pull(np.zeros(3))
    with pytest.raises(UsageError, match="neither copied nor pickled"):
        table.__reduce__()


def owners_are_those_of_checkpoints(group: ProcessGroup, folder: Path) -> None:
    """The arithmetic for tensors on a GPU gives what the core does."""
    random = np.random.default_rng(0)
    keys = np.concatenate([random.integers(-(2**63), 2**63 - 1, 5000), [-(2**63), 2**63 - 1, 0, -1]])
    for shards in (1, 2, 3, 8, 1000, 2**31 - 1):
        # What is not on the CPU takes the other way: "meta" has no values, so a stand-in says where it is.
        found = owners_of(_Elsewhere(torch.from_numpy(keys)), shards)  # type: ignore[arg-type]
        np.testing.assert_array_equal(torch.as_tensor(found).numpy(), shard_of(keys, shards))


class _Elsewhere:
    """A tensor that says it is on a GPU, and computes on the CPU."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.device = torch.device("cuda")

    def __add__(self, other: Any) -> torch.Tensor:
        total: torch.Tensor = self._tensor + other
        return total


class _Model(torch.nn.Module):
    def __init__(self, table: Any, other: Any) -> None:
        super().__init__()
        self.rows = TableEmbedding(table, padding_idx=7)
        self.bag = TableEmbeddingBag(table, "mean")
        self.slots = TableEmbeddingBagCollection({"a": table, "b": other})

    def forward(self, keys: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        slots = self.slots({"a": keys, "b": keys + 1})
        found = self.rows(keys).sum(1) + self.bag(keys) * 2 + slots["a"] + slots["b"]
        total: torch.Tensor = (found.tanh().sum(1) * weights).sum()
        return total


def modules_learn_as_in_one_process(group: ProcessGroup, folder: Path, *, average: bool) -> None:
    settings: dict[str, Any] = {"optimizer": "adagrad", "lr": 0.1}
    whole_tables = EmbeddingTable(DIM, **settings), EmbeddingTable(DIM, seed=1, **settings)
    tables = (
        ShardedTable(EmbeddingTable(DIM, **settings), group, name="a", average_gradients=average),
        ShardedTable(EmbeddingTable(DIM, seed=1, **settings), group, name="b", average_gradients=average),
    )
    model = _Model(*tables)
    optimizer_of_model = TableOptimizer(model)
    with pytest.warns(UserWarning, match="has tables of its own"):
        whole = _Model(*whole_tables)
    optimizer_of_whole = TableOptimizer(whole)
    for step in range(5):
        random = torch.Generator().manual_seed(step)
        keys = torch.randint(0, 30, (9, 4), generator=random)
        weights = torch.rand(9, generator=random)
        part = group.slice_of(9) if step != 2 else slice(0, 9 if group.is_first else 0)
        scale = group.size if average else 1
        loss = model(keys[part], weights[part] * scale)
        if len(keys[part]):
            loss.backward()
        optimizer_of_model.step()
        expected = whole(keys, weights)
        expected.backward()
        optimizer_of_whole.step()
        total = group.add("loss", loss.detach() / scale)
        torch.testing.assert_close(total, expected.detach())
        for table, other in zip(tables, whole_tables, strict=True):
            every = other.keys()
            np.testing.assert_allclose(
                table.pull(every, create=False), other.pull(every), rtol=1e-4, atol=1e-6
            )
    model.eval()
    keys = torch.tensor([[1000, 2000, 7, 1]])
    torch.testing.assert_close(model(keys, torch.ones(1)), whole.eval()(keys, torch.ones(1)))
    assert tables[0].total_rows() == len(whole_tables[0])


def single_lookups_need_no_second_exchange(group: ProcessGroup, folder: Path) -> int:
    """Return how many collectives a step takes."""
    table = sharded(group, optimizer="sgd", lr=1.0)
    model = TableEmbedding(table)
    optimizer = TableOptimizer(model)
    before = group._number
    model(torch.arange(10) + group.rank).sum().backward()
    optimizer.step()
    rows = EmbeddingTable(DIM, "sgd", 1.0).pull(np.arange(11))
    taken = group._number - before
    pushed = np.zeros((11, 1), np.float32)
    for rank in range(group.size):
        pushed[rank : rank + 10][: 11 - rank] += 1
    np.testing.assert_allclose(table.pull(np.arange(11)), rows - pushed, atol=1e-6)
    return taken


def shows_and_clicks_are_counted(group: ProcessGroup, folder: Path) -> None:
    settings: dict[str, Any] = {"score": ShowClickScore(), "expiry": Expiry(passes=2)}
    table, whole = sharded(group, **settings), EmbeddingTable(DIM, **settings)
    for step in range(4):
        parts = batches(step + 20, group.size, repeated=True)
        shows = [
            np.random.default_rng([step, rank]).integers(1, 5, len(parts[rank][0]))
            for rank in range(group.size)
        ]
        clicks = [each // 2 for each in shows]
        table.push(*parts[group.rank], shows=shows[group.rank], clicks=clicks[group.rank])
        whole.push(*joined(parts), shows=np.concatenate(shows), clicks=np.concatenate(clicks))
        table.end_pass()
        whole.end_pass()
    own = table.local.keys()
    counted, expected = table.local.counters(own), whole.counters(own)
    np.testing.assert_allclose(counted.shows, expected.shows, rtol=1e-6)
    np.testing.assert_allclose(counted.clicks, expected.clicks, rtol=1e-6)
    table.shrink()
    whole.shrink()
    assert table.total_rows() == len(whole)


def gradients_that_are_no_numbers(group: ProcessGroup, folder: Path) -> None:
    table = sharded(group, optimizer="adam")
    keys, gradients = np.arange(8) + group.rank, np.ones((8, DIM), np.float32)
    table.push(keys, gradients)
    before = table.pull(np.arange(12), create=False)
    wrong = gradients.copy()
    if group.rank == group.size - 1:
        wrong[3, 2] = np.nan
    where = rf"users, key {3 + group.size - 1}: gradients must be finite; one of rank {group.size - 1} holds"
    with pytest.raises(DataError, match=where):
        table.push(keys, wrong)
    np.testing.assert_array_equal(table.pull(np.arange(12), create=False), before)
    model = TableEmbedding(table)
    optimizer = TableOptimizer(model)
    rows = model(torch.from_numpy(keys))
    (rows * torch.from_numpy(wrong)).sum().backward()
    with pytest.raises(DataError, match=where):
        optimizer.step()
    np.testing.assert_array_equal(table.pull(np.arange(12), create=False), before)
    table.push(keys, gradients)  # training goes on
    assert not np.array_equal(table.pull(np.arange(12), create=False), before)

    skipping, whole = sharded(group, nonfinite="skip"), EmbeddingTable(DIM, nonfinite="skip")
    parts = [(np.arange(8) + rank, np.ones((8, DIM), np.float32)) for rank in range(group.size)]
    parts[-1][1][3, 2] = np.inf
    parts[-1][1][5] = np.nan
    skipping.push(*parts[group.rank])
    whole.push(*joined(parts))
    np.testing.assert_array_equal(skipping.pull(np.arange(12)), whole.pull(np.arange(12)))
    assert skipping.skipped_gradients == (2 if group.rank == group.size - 1 else 0)


def train(table: Any, group: ProcessGroup | None, size: int, steps: range) -> None:
    for step in steps:
        parts = batches(step, size, repeated=False)
        table.push(*(joined(parts) if group is None else parts[group.rank]))


def saves(
    group: ProcessGroup, folder: Path, *, path: str, batches_of: int, first: int = 0, load: str = ""
) -> int:
    """Train and save; each batch is one of ``batches_of`` parts, which the processes divide."""
    if load:
        table = ShardedTable.load(load, group, name="users", average_gradients=False)
    else:
        table = sharded(group, optimizer="adam", lr=0.01)
    for step in range(first, first + 4):
        parts = batches(step, batches_of, repeated=False)[group.slice_of(batches_of)]
        table.push(*joined([(np.zeros(0, np.int64), np.zeros((0, DIM), np.float32)), *parts]))
    table.save(path)
    return table.total_rows()


def cannot_save(group: ProcessGroup, folder: Path) -> None:
    table = sharded(group)
    table.pull(np.arange(20))
    table.save(folder / "nowhere" / "table")


def asks_for_what_is_not_supported(group: ProcessGroup, folder: Path) -> None:
    table = sharded(group)
    with pytest.raises(UsageError, match="expected a TableOptimizer for a table in several processes"):
        TableEmbedding(table)(torch.arange(3))
    model = TableEmbedding(table)
    optimizer = TableOptimizer(model)
    with pytest.raises(UnsupportedError, match="of this process alone for clip_grad_norm_"):
        optimizer.clip_grad_norm_([], 1.0)


def admission_by_count(group: ProcessGroup, folder: Path) -> None:
    sharded(group, admission=CountAdmission(2))


def differing_settings(group: ProcessGroup, folder: Path) -> None:
    with pytest.raises(
        ConflictError, match="users: expected tables of the same settings in all processes, rank 1"
    ):
        sharded(group, seed=min(group.rank, 1))
    raise ConflictError("as expected")


def foreign_keys(group: ProcessGroup, folder: Path) -> None:
    table = EmbeddingTable(DIM)
    table.pull(np.arange(100))
    ShardedTable(table, group, name="users")


def dies(group: ProcessGroup, folder: Path) -> None:
    table = sharded(group)
    for step in range(10):
        if step == 5 and group.rank == group.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        table.pull(np.arange(step, 100))
        table.push(np.arange(step, 100), np.zeros((100 - step, DIM), np.float32))


def fails(group: ProcessGroup, folder: Path) -> None:
    """The first process has no room; what it raises, the others hear."""
    table = sharded(group, memory_bytes=20_000 if group.is_first else None)
    for step in range(100):
        table.pull(np.arange(step * 100, step * 100 + 100))


def stalls(group: ProcessGroup, folder: Path) -> None:
    table = sharded(group)
    table.pull(np.arange(3))
    if group.rank == 0:
        time.sleep(4)
    table.pull(np.arange(4))


def comes_to_another(group: ProcessGroup, folder: Path) -> None:
    """One looks up more often than the others, which add numbers up meanwhile."""
    table = sharded(group)
    if group.is_first:
        table.pull(np.arange(3))
    group.add("losses", torch.zeros(1))


def waits_for_files(group: ProcessGroup, folder: Path) -> None:
    """Wait for a process that writes files longer than the group's limit, but not for good."""
    if group.is_first:
        time.sleep(2)
    group.barrier("files", timeout_seconds=60)
    if group.is_first:
        time.sleep(2)
    group.barrier("more files", timeout_seconds=0.5)


def leaves(group: ProcessGroup, folder: Path) -> None:
    table = sharded(group)
    if group.rank:
        table.pull(np.arange(4))


class _DoneTooLate:
    """Work that is done just after a wait for it has ended."""

    def __init__(self) -> None:
        self.waits = 0

    def wait(self, timeout: Any = None) -> None:
        self.waits += 1
        if timeout is not None:
            raise RuntimeError("Operation timed out!")

    def is_completed(self) -> bool:
        return True


def work_that_is_done_as_a_wait_ends(group: ProcessGroup, folder: Path) -> None:
    work = _DoneTooLate()
    group._wait("late", work)
    assert work.waits == 2


def gpus_that_cannot_be_connected(group: ProcessGroup, folder: Path) -> None:
    """A process that cannot use its GPU says why, and the others, which can, do not wait for it."""
    from unittest import mock

    def connects(ranks: list[int], backend: str, **_: Any) -> Any:
        if backend == "nccl":
            raise RuntimeError("NCCL error in: NCCLUtils.cpp\nLast error:\nDuplicate GPU detected")
        return new_group(ranks, backend=backend)

    new_group = torch.distributed.new_group
    with pytest.raises(BackendMissingError, match="this PyTorch was built without it"):
        ProcessGroup("cuda:0")
    with (
        mock.patch("torch.distributed.is_nccl_available", return_value=True),
        mock.patch("torch.cuda.set_device"),
        mock.patch("torch.empty", return_value=torch.ones(1)),
        mock.patch("torch.distributed.new_group", connects),
        pytest.raises(BackendMissingError, match=r"NCCL error in: .* Duplicate GPU detected") as caught,
    ):
        ProcessGroup("cuda:0")
    assert caught.value.where == f"rank {group.rank} of {group.size}, cuda:0"


def numbers_and_texts(group: ProcessGroup, folder: Path) -> None:
    size = group.size
    sent = np.arange(size * 2).reshape(size, 2) + 100 * group.rank
    received = group.exchange("numbers", sent)
    assert received.tolist() == [
        [100 * r + 2 * group.rank, 100 * r + 2 * group.rank + 1] for r in range(size)
    ]
    assert group.gather("ranks", np.array([group.rank])).tolist() == [[rank] for rank in range(size)]
    assert group.tell("a text", "gräph" if group.is_first else "") == "gräph"
    assert group.add("sum", torch.ones(3)).tolist() == [size] * 3
    parts = [group.slice_of(10) for _ in range(1)]
    counts = group.gather("counts", np.array([parts[0].stop - parts[0].start]))
    assert counts.sum() == 10
    assert counts.max() - counts.min() <= 1
    rows_of_all_are_gathered(group)
    with pytest.raises(UsageError, match="expected seconds"):
        ProcessGroup(timeout_seconds=0)


def rows_of_all_are_gathered(group: ProcessGroup) -> None:
    for counts in ([3] * group.size, [2 * rank for rank in range(group.size)], [0] * group.size):
        for shape, dtype in (((5,), torch.float32), ((), torch.int64)):
            every = torch.arange(sum(counts) * max(1, *shape, 1)).reshape(-1, *shape).to(dtype)
            parts = torch.split(every.to(group.device), counts)
            found = group.gather_rows("rows", parts[group.rank], counts)
            assert found.device == group.device
            assert found.dtype == dtype
            assert torch.equal(found.cpu(), every)


def gathered_slices_have_gradients(group: ProcessGroup, folder: Path) -> None:
    """Those of all processes, of two gathers in one graph; slices may be of nothing."""
    device = group.device
    for count in (0, 1, 2, 7):
        generator = torch.Generator().manual_seed(count)
        first, second = (torch.randn(n, 3, generator=generator).to(device) for n in (count, count + 4))
        weights = torch.randn(group.size, count, count + 4, generator=generator).to(device)
        expected = [each.clone().requires_grad_() for each in (first, second)]
        (weights * (expected[0] @ expected[1].T).square()).sum().backward()  # type: ignore[no-untyped-call]
        slices = [group.slice_of(len(each)) for each in (first, second)]
        parts = [
            each[own].clone().requires_grad_() for each, own in zip((first, second), slices, strict=True)
        ]
        one, other = (
            group.gather_slices("rows", part, n) for part, n in zip(parts, (count, count + 4), strict=True)
        )
        assert torch.equal(one, first)
        assert torch.equal(other, second)
        (weights[group.rank] * (one @ other.T).square()).sum().backward()  # type: ignore[no-untyped-call]
        for part, own, each in zip(parts, slices, expected, strict=True):
            assert part.grad is not None
            assert each.grad is not None
            torch.testing.assert_close(part.grad, each.grad[own], rtol=1e-4, atol=1e-4)
    with pytest.raises(
        UsageError, match=f"expected {5 // group.size if group.is_first else '[0-9]'} of 5 rows"
    ):
        group.gather_slices("rows", torch.zeros(6, 2, device=device), 5)


def rows_of_device_tables(group: ProcessGroup, folder: Path) -> None:
    """Each process has its rows on its device: a GPU, or the CPU by Triton's interpreter."""
    from graphbox.table import DeviceTable

    settings: dict[str, Any] = {"optimizer": "rowwise_adagrad", "lr": 0.1}
    local, whole = EmbeddingTable(DIM, **settings), EmbeddingTable(DIM, **settings)
    with DeviceTable(local, group.device, hbm_bytes=1 << 20) as on_device:
        table = ShardedTable(on_device, group, name="users", average_gradients=False)
        assert table.local is host_table(table, "a check") is local
        for step in range(3):
            parts = batches(step + 1, group.size, repeated=bool(step % 2))
            keys, gradients = (torch.from_numpy(each).to(group.device) for each in parts[group.rank])
            assert table.pull(keys).device == group.device
            table.push(keys, gradients)
            whole.pull(joined(parts)[0])
            whole.push(*joined(parts))
        model = TableEmbedding(table)
        model.load_state_dict(model.state_dict())
        assert model.get_extra_state() == [local.reference()]
        optimizer = TableOptimizer(model)
        keys = torch.arange(8, device=group.device) + group.rank
        rows = model(keys)
        assert rows.device == group.device
        rows.sum().backward()
        optimizer.step()
        pushed = np.concatenate([np.arange(8) + rank for rank in range(group.size)])
        whole.push(pushed, np.ones((len(pushed), DIM), np.float32))
        every = whole.keys()
        expected = whole.pull(every)
        np.testing.assert_allclose(table.pull(every, create=False), expected, rtol=1e-4, atol=1e-6)
        assert table.contains(every).all()
        table.save(folder / "users")
        group.barrier("saved")
        np.testing.assert_allclose(
            EmbeddingTable.load(folder / "users").pull(every), expected, rtol=1e-4, atol=1e-6
        )
        wrong = torch.full((3, DIM), np.nan, device=group.device)
        with pytest.raises(DataError, match="users, key 0: gradients must be finite; one of rank 0"):
            table.push(torch.arange(3, device=group.device), wrong if group.is_first else wrong.nan_to_num(0))
        assert table.erase([0, 1, 2] if group.is_first else []) == 3


def rows_on_devices_in_all_or_none(group: ProcessGroup, folder: Path) -> None:
    """Where one process has no room, all keep rows in host memory; and what came to devices goes back."""
    from unittest import mock

    from graphbox.config import HbmConfig, MemoryConfig
    from graphbox.train.memory import TrainingMemory
    from graphbox.train.processes import TrainingProcesses

    def place(hbm_bytes: int) -> TrainingMemory:
        return TrainingMemory(
            MemoryConfig(hbm=HbmConfig(tables=hbm_bytes)), processes=TrainingProcesses(group)
        )

    with mock.patch("graphbox.train.memory.has_kernels", return_value=True):
        without_room = place(0 if group.rank == 1 else 1 << 20)
        table = without_room.new_table("users", DIM, "sgd", 0.1)
        assert without_room.near({"users": table}) == {"users": table}
        if group.is_first:
            assert without_room.table_places() == {
                "tables": "users on the cpu: the GPU of rank 1 cannot have its rows"
            }
        with_room = place(1 << 20)
        near = with_room.near({"users": table})["users"]
        assert "DeviceTable" in repr(near._rows)  # type: ignore[attr-defined]
        assert near.is_collective
        keys = np.arange(7) + group.rank
        near.push(keys, np.ones((7, DIM), np.float32))
        expected = near.pull(np.arange(10))
        assert with_room.table_places() == {"tables": "cpu"}
        with_room.release()
        np.testing.assert_array_equal(table.pull(np.arange(10)), expected)


def tensors_on_gpus(group: ProcessGroup, folder: Path) -> None:
    """Compare tensors that NCCL carries with those that gloo carries."""
    device, size, rank = group.device, group.size, group.rank
    assert device == torch.device("cuda", rank)
    counts = group.exchange("counts", np.arange(size)[:, None] + rank)[:, 0].tolist()
    sends = [number + rank for number in range(size)]
    rows = torch.arange(sum(sends) * 3, device=device).reshape(-1, 3) + 1000 * rank
    received = group.all_to_all("rows", rows, sends, counts)
    assert received.device == device
    parts = torch.split(received.cpu(), counts)
    for sender, part in enumerate(parts):
        before = sum(number + sender for number in range(rank))
        expected = torch.arange(before * 3, (before + counts[sender]) * 3).reshape(-1, 3) + 1000 * sender
        assert torch.equal(part, expected)
    assert (
        group.add("sum", torch.full((5,), rank + 1.0, device=device)).tolist() == [size * (size + 1) / 2] * 5
    )
    assert group.broadcast("first", torch.full((2,), rank + 7, device=device)).tolist() == [7, 7]
    rows_of_all_are_gathered(group)
    gathered_slices_have_gradients(group, folder)
    keys = torch.randint(-(2**63), 2**63 - 1, (100_000,), device=device)
    for shards in (1, 3, 8, 2**31 - 1):
        found = owners_of(keys, shards).cpu().numpy()
        np.testing.assert_array_equal(found, shard_of(keys.cpu(), shards))


def rows_for_gpus(group: ProcessGroup, folder: Path) -> None:
    """Models on GPUs pull and push rows that are in host memory, divided among the processes."""
    table, whole = sharded(group, optimizer="adagrad"), EmbeddingTable(DIM, optimizer="adagrad")
    model = TableEmbedding(table).to(group.device)
    optimizer = TableOptimizer(model)
    for step in range(5):
        keys = [torch.arange(rank, 30 + rank) * (step + 1) for rank in range(group.size)]
        rows = model(keys[group.rank].to(group.device))
        assert rows.device == group.device
        rows.square().sum().backward()
        optimizer.step()
        joined_keys = torch.cat(keys).numpy()
        whole.push(joined_keys, 2 * whole.pull(joined_keys))
    every = whole.keys()
    np.testing.assert_allclose(table.pull(every, create=False), whole.pull(every), rtol=1e-5, atol=1e-6)


def dies_on_a_gpu(group: ProcessGroup, folder: Path) -> None:
    for step in range(20):
        if step == 10 and group.rank:
            os.kill(os.getpid(), signal.SIGKILL)
        group.add("sum", torch.ones(1 << 20, device=group.device))
        group.barrier("step")


if __name__ == "__main__":
    serve_checks({name: value for name, value in list(globals().items()) if callable(value)})
