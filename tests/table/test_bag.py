"""Bags of rows against torch.nn.EmbeddingBag with the same rows and an optimizer of torch."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphbox.errors import DataError, UsageError
from graphbox.table import (
    BagSlot,
    EmbeddingTable,
    TableEmbeddingBag,
    TableEmbeddingBagCollection,
    salted_keys,
    unsalted_keys,
)
from graphbox.table.arguments import Optimizer
from graphbox.table.bag import BagMode
from graphbox.table.key_bags import KeyBags
from graphbox.table.lookup import Lookup

ROWS, DIM = 50, 8

TORCH: dict[Optimizer, Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1, eps=1e-8),
}


def peers(optimizer: Optimizer, **options: Any) -> tuple[EmbeddingTable, torch.nn.EmbeddingBag]:
    table = EmbeddingTable(DIM, optimizer, lr=0.1, threads=2)
    bag = torch.nn.EmbeddingBag(ROWS, DIM, **options)
    with torch.no_grad():
        bag.weight.copy_(table.pull(torch.arange(ROWS)))
    return table, bag


def some_bags(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Keys and offsets of bags with duplicates, empty ones among them and at the end."""
    lengths = torch.randint(0, 5, (12,), generator=generator)
    lengths[[3, -1]] = 0
    keys = torch.randint(0, ROWS, (int(lengths.sum()),), generator=generator)
    return keys, torch.cumsum(lengths, 0) - lengths


@pytest.mark.parametrize("optimizer", list(TORCH))
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_trains_as_a_torch_bag_does(optimizer: Optimizer, mode: BagMode, weighted: bool) -> None:
    if weighted and mode == "mean":
        return  # torch has no such thing either: below
    table, bag = peers(optimizer, mode=mode)
    module = TableEmbeddingBag(table, mode)
    torch_optimizer = TORCH[optimizer](list(bag.parameters()))
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(DIM, generator=generator)
    for _ in range(5):
        keys, offsets = some_bags(generator)
        weights = torch.rand(len(keys), generator=generator) if weighted else None
        torch_optimizer.zero_grad()
        expected, ours = bag(keys, offsets, weights), module(keys, offsets, weights)
        torch.testing.assert_close(ours, expected)
        for result in (expected, ours):
            (result @ head).square().sum().backward()
        torch_optimizer.step()
    torch.testing.assert_close(table.pull(torch.arange(ROWS)), bag.weight.detach())


def test_gradient_of_weights() -> None:
    table, bag = peers("sgd", mode="sum")
    module = TableEmbeddingBag(table, "sum")
    generator = torch.Generator().manual_seed(1)
    keys, offsets = some_bags(generator)
    values = torch.rand(len(keys), generator=generator)
    gradients = []
    for lookup in (bag, module):
        weights = values.clone().requires_grad_()
        lookup(keys, offsets, weights).square().sum().backward()
        gradients.append(weights.grad)
    torch.testing.assert_close(gradients[1], gradients[0])
    assert bag.weight.grad is not None
    expected = bag.weight.detach() - 0.1 * bag.weight.grad
    torch.testing.assert_close(table.pull(torch.arange(ROWS)), expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_large_bags_against_rows(threads: int, dtype: str) -> None:
    generator = np.random.default_rng(2)
    table = EmbeddingTable(5, "sgd", dtype=dtype, threads=threads)  # type: ignore[arg-type]
    lengths = generator.choice([0, 1, 3, 700, 9000], 200)
    keys = generator.integers(-3000, 3000, lengths.sum())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    weights = generator.normal(size=len(keys)).astype(np.float32)
    divisors = generator.integers(1, 5, len(lengths)).astype(np.float32)
    bags = KeyBags(*map(torch.from_numpy, (offsets, weights, divisors)))
    pulled = Lookup(table, torch.from_numpy(keys), bags).pull()
    rows = table.pull(keys).astype(np.float64) * weights[:, None]
    starts = np.concatenate([np.zeros((1, 5)), np.cumsum(rows, axis=0)])
    expected = (starts[offsets[1:]] - starts[offsets[:-1]]) / divisors[:, None]
    np.testing.assert_allclose(pulled.values, expected, rtol=1e-4, atol=2e-4)


def test_same_bits_for_any_number_of_threads() -> None:
    results = []
    for threads in (1, 2, 5):
        generator = torch.Generator().manual_seed(3)
        table = EmbeddingTable(7, "adam", threads=threads)
        module = TableEmbeddingBag(table, "mean")
        keys = torch.randint(0, 4000, (20000,), generator=generator)
        offsets = torch.sort(torch.randint(0, 20000, (3000,), generator=generator)).values
        offsets[0] = 0
        for _ in range(3):
            sums = module(keys, offsets)
            sums.square().sum().backward()
        results.append((sums.detach(), table.pull(torch.arange(4000))))
    for sums, rows in results[1:]:
        assert torch.equal(sums, results[0][0])
        assert torch.equal(rows, results[0][1])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("form", ["padded", "offsets", "last_offset", "jagged", "strided"])
def test_forms_of_input(form: str) -> None:
    table = EmbeddingTable(3)
    bags = [[4, 5], [7, 8]] if form == "padded" else [[4, 5], [], [7]]
    flat = torch.tensor([key for bag in bags for key in bag])
    module = TableEmbeddingBag(table, "sum", include_last_offset=form == "last_offset")
    expected = torch.stack([table.pull(torch.tensor(bag, dtype=torch.int64)).sum(0) for bag in bags])
    if form == "padded":
        result = module(torch.tensor(bags))
    elif form == "offsets":
        result = module(flat.int(), torch.tensor([0, 2, 2]))
    elif form == "last_offset":
        result = module(flat, torch.tensor([0, 2, 2, 3]))
    else:
        layout = torch.jagged if form == "jagged" else torch.strided
        tensors = [torch.tensor(bag, dtype=torch.int64) for bag in bags]
        result = module(torch.nested.nested_tensor(tensors, layout=layout))
    torch.testing.assert_close(result.detach(), expected)


def test_padding_adds_nothing_and_gets_no_row() -> None:
    table, bag = peers("sgd", mode="mean", padding_idx=7)
    module = TableEmbeddingBag(table, "mean", padding_idx=7)
    table.erase([7])
    keys = torch.tensor([[7, 1, 7], [7, 7, 7], [3, 4, 3]])
    optimizer = torch.optim.SGD(bag.parameters(), lr=0.1)
    for lookup in (bag, module):
        lookup(keys).square().sum().backward()
    optimizer.step()
    assert not table.contains([7])[0]
    others = torch.tensor([key for key in range(ROWS) if key != 7])
    torch.testing.assert_close(table.pull(others), bag.weight.detach()[others])


def test_evaluation_makes_no_rows() -> None:
    table = EmbeddingTable(3)
    module = TableEmbeddingBag(table, "sum").eval()
    keys = torch.tensor([[5, 6]])
    assert torch.equal(module(keys), EmbeddingTable(3).pull(torch.tensor([5, 6])).sum(0, keepdim=True))
    assert len(table) == 0


def test_gradients_that_are_not_finite_are_refused() -> None:
    table = EmbeddingTable(3)
    module = TableEmbeddingBag(table, "sum")
    before = table.pull([1, 2, 3]).copy()
    sums = module(torch.tensor([[1, 2], [2, 3]]))
    with pytest.raises(DataError, match="key 2"):
        (sums * torch.tensor([[1.0], [torch.inf]])).sum().backward()
    assert np.array_equal(table.pull([1, 2, 3]), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.arange(3),), "without offsets"),
        ((torch.zeros(2, 2, dtype=torch.int64), torch.tensor([0])), "no offsets"),
        ((torch.arange(3), torch.tensor([1, 2])), "begin with 0"),
        ((torch.arange(3), torch.tensor([0, 2, 1])), "never fall"),
        ((torch.arange(3), torch.tensor([0, 4])), "never fall"),
        ((torch.rand(3), torch.tensor([0])), "integers"),
        ((torch.arange(3), torch.tensor([0]), torch.rand(2)), "one weight for each of 3"),
        ((torch.arange(3), torch.tensor([0]), torch.arange(3)), "floating"),
        (([1, 2],), "a tensor of keys"),
    ],
)
def test_wrong_input(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TableEmbeddingBag(EmbeddingTable(3), "sum")(*arguments)


def test_wrong_modes() -> None:
    with pytest.raises(UsageError, match="sum or mean"):
        TableEmbeddingBag(EmbeddingTable(3), "max")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="mode sum only"):
        TableEmbeddingBag(EmbeddingTable(3), "mean")(
            torch.zeros(1, 1, dtype=torch.int64), None, torch.ones(1, 1)
        )


def test_salted_keys_are_distinct_and_come_back() -> None:
    keys = np.array([0, 1, -1, 2**63 - 1, -(2**63), *range(-1000, 1000)])
    first, second = salted_keys(keys, "user"), salted_keys(keys, "item")
    assert len(set(first.tolist()) | set(second.tolist())) == 2 * len(set(keys.tolist()))
    assert np.array_equal(unsalted_keys(first, "user"), keys)
    assert torch.equal(salted_keys(torch.from_numpy(keys), "user"), torch.from_numpy(first))
    assert salted_keys(5, "user").shape == ()
    assert int(unsalted_keys(salted_keys(5, "user"), "user")) == 5
    assert salted_keys(keys, "user").tolist() == [plain_salted_key(key, "user") for key in keys.tolist()]
    with pytest.raises(UsageError, match="a text"):
        salted_keys(keys, 3)  # type: ignore[arg-type]


def plain_salted_key(key: int, salt: str) -> int:
    """Return the key by the documentation's formula: keys are in files, so it may not change."""
    bits = key % 2**64
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        bits = (bits ^ bits >> 33) * factor % 2**64
    bits ^= bits >> 33
    bits ^= int.from_bytes(hashlib.blake2b(salt.encode(), digest_size=8).digest(), "little")
    return bits - 2**64 if bits >> 63 else bits


def collection(**options: bool) -> tuple[EmbeddingTable, EmbeddingTable, TableEmbeddingBagCollection]:
    shared, own = EmbeddingTable(DIM, "adagrad", lr=0.1), EmbeddingTable(3, "adagrad", lr=0.1)
    slots: Mapping[str, BagSlot | EmbeddingTable] = {
        "clicked": BagSlot(shared),
        "bought": BagSlot(shared, "mean"),
        "words": own,
        "tags": BagSlot(shared, salt="tags", padding_idx=0),
    }
    return shared, own, TableEmbeddingBagCollection(slots, **options)


def test_slots_over_one_table_are_pulled_and_pushed_once() -> None:
    shared, own, module = collection()
    one, two, batch = some_batch(4)
    plan = module.plan(batch)
    assert [each.table for each in plan.lookups] == [shared, own] == list(module.tables)
    separate, separate_own, _ = collection()
    optimizer_peer = TableEmbeddingBag(separate, "sum")
    mean_peer = TableEmbeddingBag(separate, "mean")
    changes = shared._current.changes
    result = module(batch)
    assert isinstance(result, dict)
    expected = {
        "clicked": optimizer_peer(*one),
        "bought": mean_peer(*two),
        "words": TableEmbeddingBag(separate_own, "sum")(*one),
        "tags": optimizer_peer(salted_keys(batch["tags"], "tags")),
    }
    for name, rows in expected.items():
        torch.testing.assert_close(result[name], rows)
    for rows_of in (result, expected):  # one backward pass: one update of each row, as in torch
        torch.stack([rows.square().sum() for rows in rows_of.values()]).sum().backward()  # type: ignore[no-untyped-call]
    assert shared._current.changes == changes + 1
    keys = shared.keys()
    assert sorted(keys.tolist()) == sorted(separate.keys().tolist())
    np.testing.assert_allclose(shared.pull(keys), separate.pull(keys), rtol=1e-5, atol=1e-6)


def some_batch(seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], dict[str, object]]:
    generator = torch.Generator().manual_seed(seed)
    one, two = some_bags(generator), some_bags(generator)
    tags = torch.randint(1, 9, (12, 2), generator=generator)
    return one, two, {"clicked": one, "bought": two, "words": one, "tags": tags}


def test_slots_side_by_side() -> None:
    _, _, apart = collection()
    _, _, module = collection(concatenate=True)
    *_, batch = some_batch(5)
    result = module(batch)
    assert isinstance(result, Tensor)
    assert result.shape == (12, module.dim)
    torch.testing.assert_close(result, torch.cat(list(apart(batch).values()), dim=1))
    result[:, :DIM].sum().backward()  # type: ignore[no-untyped-call]


def test_weights_of_one_slot() -> None:
    tables = [EmbeddingTable(DIM, "sgd") for _ in range(2)]
    (keys, offsets), (other, other_offsets), _ = some_batch(6)
    weights = [torch.rand(len(keys)).requires_grad_() for _ in range(2)]
    weights[1].data.copy_(weights[0].data)
    module = TableEmbeddingBagCollection({"a": tables[0], "b": BagSlot(tables[0], "mean")})
    result = module({"a": (keys, offsets, weights[0]), "b": (other, other_offsets)})
    result["a"].square().sum().add(result["b"].sum()).backward()
    a = TableEmbeddingBag(tables[1], "sum")(keys, offsets, weights[1])
    b = TableEmbeddingBag(tables[1], "mean")(other, other_offsets)
    a.square().sum().add(b.sum()).backward()
    torch.testing.assert_close(result["b"], b)
    torch.testing.assert_close(weights[0].grad, weights[1].grad)
    everything = tables[1].keys()
    np.testing.assert_allclose(tables[0].pull(everything), tables[1].pull(everything), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"a": torch.zeros(1, 1, dtype=torch.int64)}, "none for words"),
        ({"a": torch.zeros(1, 1, dtype=torch.int64), "word": torch.zeros(1, 1)}, "did you mean `words`"),
        (
            {"a": torch.zeros(1, 1, dtype=torch.int64), "words": torch.zeros(2, 1, dtype=torch.int64)},
            "a: 1, words: 2",
        ),
        ({"a": torch.zeros(1, 1, dtype=torch.int64), "words": torch.zeros(3)}, "words: expected keys of two"),
        ([], "a mapping"),
    ],
)
def test_wrong_batches(batch: object, message: str) -> None:
    table = EmbeddingTable(3)
    module = TableEmbeddingBagCollection({"a": table, "words": table}, concatenate=True)
    with pytest.raises(UsageError, match=message):
        module(batch)
