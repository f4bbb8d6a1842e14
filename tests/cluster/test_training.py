"""Modules over remote tables learn what modules over tables of their own process learn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from graphbox.cluster import RemoteTable
from graphbox.errors import UsageError
from graphbox.table import (
    EmbeddingTable,
    Table,
    TableEmbedding,
    TableEmbeddingBag,
    TableOptimizer,
)
from tests.cluster.shards import Shards, shards_of

DIM, STEPS, BATCH = 4, 8, 24


def made() -> EmbeddingTable:
    return EmbeddingTable(DIM, "adagrad", lr=0.1, seed=2)


class Model(nn.Module):
    """Rows of users and means of items, and a score of both."""

    def __init__(self, users: Table, items: Table) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.users = TableEmbedding(users)
        self.items = TableEmbeddingBag(items, mode="mean")
        self.score = nn.Linear(2 * DIM, 1)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        score: torch.Tensor = self.score(torch.cat([self.users(users), self.items(items)], dim=1))
        return score.squeeze(1)


def batch(step: int, part: slice = slice(None)) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    users = torch.randint(0, 30, (BATCH,), generator=generator)
    items = torch.randint(0, 40, (BATCH, 3), generator=generator)
    return users[part], items[part], (users % 2).float()[part]


def losses_of(model: Model, part: slice = slice(None), *, optimized: bool = True) -> list[float]:
    """Train; each step's loss is the sum over the part of the batch."""
    optimizer = TableOptimizer(model) if optimized else None
    dense = torch.optim.SGD(model.score.parameters(), lr=0.0)
    losses = []
    for step in range(STEPS):
        users, items, target = batch(step, part)
        loss = nn.functional.binary_cross_entropy_with_logits(model(users, items), target, reduction="sum")
        dense.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if optimizer is not None:
            optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("optimized", [False, True])
def test_one_trainer_learns_what_one_process_learns(optimized: bool, tmp_path: Path) -> None:
    expected = losses_of(Model(made(), made()), optimized=optimized)
    with shards_of(3, tmp_path) as there:
        client = there.client()
        tables = (
            RemoteTable(client, "users", made(), average_gradients=False),
            RemoteTable(client, "items", made(), average_gradients=False),
        )
        model = Model(*tables)
        assert losses_of(model, optimized=optimized) == pytest.approx(expected, rel=1e-5)
        state = model.state_dict()
        model.load_state_dict(state)
        with pytest.raises(UsageError, match="expected a reference"):
            Model(tables[1], tables[0]).load_state_dict(state)


def in_threads(works: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads)


def pushes_in_step(there: Shards, trainers: int, steps: int, at: Callable[[int], None] | None = None) -> None:
    """Let trainers push random gradients in step, each its own part of the batch."""
    tables = [
        RemoteTable(there.client(rank, in_step=True), "rows", made(), average_gradients=False)
        for rank in range(trainers)
    ]

    def train(rank: int) -> None:
        for step in range(steps):
            keys, grads = step_of(step)
            own = slice(rank * BATCH // trainers, (rank + 1) * BATCH // trainers)
            tables[rank].pull(keys[own])
            if at is not None and rank == 0:
                at(step)
            tables[rank].push(keys[own], grads[own])
        tables[rank].pull(np.arange(40), create=False)

    in_threads([lambda rank=rank: train(rank) for rank in range(trainers)])  # type: ignore[misc]


def step_of(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the batch of a step; each trainer has a key once, so that sums have one order."""
    rng = np.random.default_rng(step)
    keys = np.concatenate([rng.permutation(30)[: BATCH // 3] for _ in range(3)])
    return keys, rng.normal(size=(BATCH, DIM)).astype(np.float32)


def rows_of_one_process(steps: int) -> dict[int, list[float]]:
    table = made()
    for step in range(steps):
        keys, grads = step_of(step)
        table.pull(keys)
        table.push(keys, grads)
    return {key: table.pull([key])[0].tolist() for key in table.keys().tolist()}


@pytest.mark.parametrize("shards", [1, 3])
def test_trainers_in_step_have_the_bits_of_one_process(shards: int) -> None:
    with shards_of(shards, trainers=3) as there:
        pushes_in_step(there, 3, STEPS)
        assert there.rows("rows") == rows_of_one_process(STEPS)


def test_also_when_shards_are_replaced_in_between(tmp_path: Path) -> None:
    with shards_of(2, tmp_path, trainers=3) as there:

        def replace(step: int) -> None:
            if step in (2, 5):
                there.shards[0].make_durable()
            if step in (3, 4, 6):
                there.replace(step % 2)

        pushes_in_step(there, 3, STEPS, replace)
        assert there.rows("rows") == rows_of_one_process(STEPS)


def test_a_trainer_without_keys_takes_part() -> None:
    with shards_of(2, trainers=2) as there:
        tables = [
            RemoteTable(there.client(rank, in_step=True), "rows", made(), average_gradients=False)
            for rank in range(2)
        ]

        def train(rank: int) -> None:
            keys = np.arange(10 if rank == 0 else 0)
            for _ in range(3):
                tables[rank].pull(keys)
                tables[rank].push(keys, np.ones((len(keys), DIM), np.float32))

        in_threads([lambda rank=rank: train(rank) for rank in range(2)])  # type: ignore[misc]
        tables[0].pull(np.arange(10))
        expected = made()
        for _ in range(3):
            expected.push(np.arange(10), np.ones((10, DIM), np.float32))
        assert there.rows("rows") == {key: expected.pull([key])[0].tolist() for key in range(10)}


def test_a_table_of_trainers_in_step_wants_an_optimizer() -> None:
    with shards_of(1, trainers=1) as there:
        client = there.client(in_step=True)
        users, items = (
            RemoteTable(client, name, made(), average_gradients=False) for name in ("users", "items")
        )
        user_keys, item_keys, _ = batch(0)
        with pytest.raises(UsageError, match="expected a TableOptimizer"):
            Model(users, items)(user_keys, item_keys)
