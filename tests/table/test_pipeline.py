"""Pipelined training against the plain loop: the same bits, or exactly as stale as was asked."""

import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphbox.errors import ConflictError, DataError, TimeLimitError, UsageError
from graphbox.table import (
    BagSlot,
    EmbeddingTable,
    PipelinedBatches,
    TableEmbedding,
    TableEmbeddingBag,
    TableEmbeddingBagCollection,
    TableOptimizer,
)

DIM = 6
Batch = dict[str, Tensor]


class Model(torch.nn.Module):
    """Modules of all kinds, two of them over one table, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.nodes = TableEmbedding(EmbeddingTable(DIM, "adam", lr=0.05, threads=2), padding_idx=3)
        self.words = TableEmbeddingBag(self.nodes.table, "sum")
        slots: dict[str, BagSlot | EmbeddingTable] = {
            "a": EmbeddingTable(DIM, "rowwise_adagrad"),
            "b": BagSlot(self.nodes.table, salt="b"),
        }
        self.slots = TableEmbeddingBagCollection(slots, concatenate=True)
        self.dense = torch.nn.Linear(DIM, 1)

    def forward(self, batch: Batch) -> Tensor:
        rows = self.nodes(batch["nodes"]) + self.words(batch["words"], batch["offsets"], batch["weights"])
        slots = self.slots({"a": batch["words2"], "b": batch["words2"]})
        loss: Tensor = self.dense(rows + slots[:, :DIM] * slots[:, DIM:]).square().mean()
        return loss

    def arguments(self) -> dict[Any, Callable[[Batch], Any]]:
        return {
            self.nodes: lambda batch: batch["nodes"],
            self.words: lambda batch: (batch["words"], batch["offsets"], batch["weights"]),
            self.slots: lambda batch: {"a": batch["words2"], "b": batch["words2"]},
        }

    def state(self) -> list[Any]:
        tables = [self.nodes.table, *self.slots.tables[:1]]
        rows = [(table.keys().tolist(), table.pull(table.keys()).tobytes()) for table in tables]
        return [rows, [each.tolist() for each in self.dense.parameters()]]


def batches(count: int = 8) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(1)
    for number in range(count):
        lengths = torch.randint(0, 4, (40,), generator=generator)
        total = int(lengths.sum())
        yield {
            "nodes": torch.randint(0, 60 + 20 * number, (40,), generator=generator),
            "words": torch.randint(0, 200, (total,), generator=generator),
            "offsets": torch.cumsum(lengths, 0) - lengths,
            "weights": torch.rand(total, generator=generator),
            "words2": torch.randint(0, 99, (40, 2), generator=generator),
        }


def plain(_: Model, source: Iterable[Batch]) -> Iterable[Batch]:
    return source


def pipelined(model: Model, source: Iterable[Batch]) -> Iterable[Batch]:
    return PipelinedBatches(source, model.arguments())


def train(
    loop: Callable[[Model, Iterable[Batch]], Iterable[Batch]], between: Callable[[Model, int], None]
) -> tuple[list[float], list[Any]]:
    model = Model()
    optimizer = torch.optim.SGD(model.dense.parameters(), lr=0.1)
    losses = []
    for step, batch in enumerate(loop(model, batches())):
        between(model, step)
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state()


def nothing(model: Model, step: int) -> None:
    """What the plain loop does between its steps."""


def much(model: Model, step: int) -> None:
    """Changes to the tables that the pipeline does not know of."""
    table = model.nodes.table
    table.lr = 0.05 / (1 + step)
    if step == 2:
        table.erase(np.arange(0, 50, 3))
    if step == 4:
        table.push(np.arange(7), np.ones((7, DIM), np.float32))
    if step == 5:
        model.eval()
        with torch.no_grad():
            model.nodes(torch.arange(10**6, 10**6 + 9))
        model.train()
    if step == 6:
        model.nodes(torch.arange(5)).sum().backward()  # beside the announced forward pass


@pytest.mark.parametrize("between", [nothing, much])
def test_same_bits_as_the_plain_loop(between: Callable[[Model, int], None]) -> None:
    expected, ours = train(plain, between), train(pipelined, between)
    assert ours[0] == expected[0]
    assert ours[1] == expected[1]


def test_same_bits_when_the_table_optimizer_steps() -> None:
    results = []
    for loop in (plain, pipelined):
        model = Model()
        optimizer = TableOptimizer(model)
        for step, batch in enumerate(loop(model, batches())):
            model(batch).backward()
            if step % 2:
                optimizer.step()
        results.append(model.state())
    assert results[0] == results[1]


def test_a_loop_that_is_left_changed_nothing_ahead() -> None:
    results = []
    for loop in (plain, pipelined):
        model = Model()
        for step, batch in enumerate(loop(model, batches())):
            if step == 3:
                break
            model(batch).backward()
        gc.collect()
        results.append(model.state())
    assert results[0] == results[1]


@pytest.mark.parametrize("staleness", [1, 2, 3])
def test_rows_are_as_stale_as_asked(staleness: int) -> None:
    generator = torch.Generator().manual_seed(2)
    steps = [torch.randint(0, 30, (20,), generator=generator) for _ in range(9)]
    target = torch.randn(20, DIM, generator=generator)
    reference = EmbeddingTable(DIM, "adagrad", lr=0.5)
    pulled = [reference.pull_slots(keys) for keys in steps[: staleness + 1]]
    for step, keys in enumerate(steps):
        if 0 < step < len(steps) - staleness:
            pulled.append(reference.pull_slots(steps[step + staleness]))
        rows, slots = pulled[step]
        reference.lr = 0.5 / (step + 1)
        reference.push_slots(slots, 2 * (rows - target))
        assert len(keys) == len(rows)
    for _ in range(3):  # however the threads run
        module = TableEmbedding(EmbeddingTable(DIM, "adagrad", lr=0.5))
        losses = []
        pipeline = PipelinedBatches(steps, {module: lambda keys: keys}, staleness=staleness)
        for step, keys in enumerate(pipeline):
            module.table.lr = 0.5 / (step + 1)
            loss = (module(keys) - target).square().sum()
            loss.backward()
            losses.append(loss.item())
        for loss_value, (rows, _slots) in zip(losses, pulled, strict=True):
            assert loss_value == (rows - target).square().sum().item()
        assert module.table.keys().tolist() == reference.keys().tolist()
        assert np.array_equal(module.table.pull(reference.keys()), reference.pull(reference.keys()))


def test_evaluation_waits_for_pushes() -> None:
    module = TableEmbedding(EmbeddingTable(2, "sgd", lr=1.0, init_scale=0.0))
    keys = torch.tensor([1])
    with PipelinedBatches([keys] * 3, {module: lambda keys: keys}, staleness=2) as pipeline:
        for step, batch in enumerate(pipeline):
            module(batch).sum().backward()
            module.eval()
            assert module(keys).tolist() == [[-1.0 - step] * 2]
            module.train()
            pipeline.settle()
            assert module.table.pull([1]).tolist() == [[-1.0 - step] * 2]


def test_errors_come_where_the_plain_loop_has_them() -> None:
    module = TableEmbedding(EmbeddingTable(2))
    wrong: list[Tensor] = [torch.tensor([1]), torch.tensor([2]), torch.tensor([0.5])]
    done = 0
    for batch in PipelinedBatches(wrong, {module: lambda keys: keys}):
        if done == 2:
            with pytest.raises(UsageError, match=r"rows of batch 2.*integers"):
                module(batch)
        else:
            module(batch).sum().backward()
        done += 1
    assert done == 3


def test_errors_of_the_batches_come_in_their_turn() -> None:
    def source() -> Iterator[Tensor]:
        yield torch.tensor([1])
        raise OSError("no more")

    module = TableEmbedding(EmbeddingTable(2))
    pipeline = PipelinedBatches(source(), {module: lambda keys: keys})
    assert module(next(pipeline)).shape == (1, 2)
    with pytest.raises(OSError, match="no more"):
        next(pipeline)


@pytest.mark.parametrize("staleness", [0, 1])
def test_errors_of_pushes_reach_the_loop(staleness: int) -> None:
    module = TableEmbedding(EmbeddingTable(2))
    keys = [torch.tensor([number]) for number in range(5)]

    def loop() -> None:
        pipeline = PipelinedBatches(keys, {module: lambda keys: keys}, staleness=staleness)
        for step, batch in enumerate(pipeline):
            (module(batch) * (torch.nan if step == 1 else 1.0)).sum().backward()

    with pytest.raises(DataError, match="NaN" if staleness == 0 else "push of batch 1.*key 1"):
        loop()


def test_a_pull_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = TableEmbedding(EmbeddingTable(2))
    go_on = threading.Event()
    plan = module.plan

    def wait(*arguments: Any) -> Any:
        go_on.wait()
        return plan(*arguments)

    monkeypatch.setattr(module, "plan", wait)
    keys = torch.tensor([1])
    pipeline = PipelinedBatches([keys], {module: lambda keys: keys}, timeout_seconds=0.05)
    batch = next(pipeline)
    with pytest.raises(TimeLimitError, match=r"rows of batch 0: waited 0\.05 seconds"):
        module(batch)
    go_on.set()
    pipeline.close()


def test_one_pipeline_at_a_time() -> None:
    module = TableEmbedding(EmbeddingTable(2))
    other = TableEmbedding(module.table)
    before = threading.enumerate()
    pipeline = PipelinedBatches([torch.tensor([1])] * 9, {module: lambda keys: keys}, staleness=1)
    next(pipeline)
    for each in (module, other):
        with pytest.raises(ConflictError, match="pipeline already"):
            PipelinedBatches([], {each: lambda keys: keys})
    pipeline.close()
    assert list(pipeline) == []
    for _ in range(2):  # after a loop that was left, too
        for _batch in PipelinedBatches([torch.tensor([1])] * 9, {other: lambda keys: keys}, staleness=1):
            break
        gc.collect()
    for thread in threading.enumerate():
        if thread not in before and thread.name.startswith("graphbox-table-pipeline"):
            thread.join()  # they end, or the test does not


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ({}, {}, "modules over tables"),
        ({torch.nn.Linear(1, 1): len}, {}, "modules over tables"),
        ({TableEmbedding(EmbeddingTable(2)): len}, {"staleness": -1}, "number of batches"),
        ({TableEmbedding(EmbeddingTable(2)): len}, {"timeout_seconds": -1}, "expected seconds"),
    ],
)
def test_wrong_arguments(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PipelinedBatches([], arguments, **options)
