"""DIN beside plain references: keys of events and targets, the attention unit, and the whole network."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from graphbox import _core
from graphbox.fields import Field, Lists, NumberScale
from graphbox.fields.rows import FieldKind
from graphbox.graph.columns import Column
from graphbox.models.click_fields import ClickFields, FieldBatch
from graphbox.models.click_network import ClickShape
from graphbox.models.din import DIN, AttentionUnit
from graphbox.table import EmbeddingTable, salted_keys
from tests.models.test_click_fields import categories

WINDOW, DIM = 3, 4
HISTORIES = [["a", "b"], [], ["a", "b", "c", "a", "d"], ["e"]]
TARGETS = ["b", "a", "a", "c"]
PRICES = np.array([1.0, 2.0, 3.0, 4.0], np.float32)


def hashes(texts: list[str]) -> NDArray[np.int64]:
    """Return the values that an import gives to texts in slots."""
    found = np.empty(len(texts), np.int64)
    offsets = np.cumsum([0, *map(len, texts)])
    _core.hash_strings(offsets, np.frombuffer("".join(texts).encode(), np.uint8), found)
    return found


def slots(lists: list[list[str]]) -> Column:
    offsets = np.cumsum([0, *map(len, lists)])
    return Column("slots", hashes([each for cells in lists for each in cells]), None, offsets)


FIELDS = ClickFields(
    (
        Field("seen", "slots", None, WINDOW, "item"),
        Field("item", "categorical", None, None, "item"),
        Field("price", "number"),
    )
)
NO_NUMBERS = NumberScale(np.zeros(0), np.zeros(0), np.zeros((0, 0)), 0.5)
COLUMNS = {"seen": slots(HISTORIES), "item": categories(*TARGETS), "price": Column("number", PRICES)}


def batch() -> FieldBatch:
    rows = FIELDS.prepare(COLUMNS)
    return FIELDS.batch(rows, FIELDS.scale_of([(rows, np.array([[1], [0], [1], [0]], np.int8))], 4))


def key(text: str) -> int:
    return int(salted_keys(hashes([text]), "item")[0])


@pytest.mark.parametrize("seed", range(4))
def test_the_last_values_of_lists_are_those_of_slices(seed: int) -> None:
    random = np.random.default_rng(seed)
    lists = [random.integers(0, 99, random.integers(0, 7)).tolist() for _ in range(8)]
    offsets = np.cumsum([0, *map(len, lists)])
    given = Lists(offsets, np.array([each for values in lists for each in values], np.int64))
    for whole, expected in ((given, lists), (Lists(offsets[3:6], given.values), lists[3:5])):
        found = whole.last(3)
        cut = [found.values[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)]
        assert cut == [each[-3:] for each in expected]


def test_an_event_has_a_bag_and_the_key_of_the_target() -> None:
    given = batch()
    assert {name: (bags.start, bags.stop) for name, bags in FIELDS.bags.items()} == {
        "seen": (0, 3), "item": (3, 4), "price": (4, 5),
    }  # fmt: skip
    ends, keys = given.offsets.tolist(), given.keys.tolist()
    bags = [keys[start:end] for start, end in itertools.pairwise(ends)]
    for row, history in enumerate(HISTORIES):
        events = [key(text) for text in history[-WINDOW:]]
        expected = [[event] for event in events] + [[]] * (WINDOW - len(events))
        assert [bags[place * 4 + row] for place in range(WINDOW)] == expected
        assert bags[WINDOW * 4 + row] == [key(TARGETS[row])]
    assert given.weights[: sum(len(each[-WINDOW:]) for each in HISTORIES)].tolist() == [1.0] * 6


def test_a_thing_has_one_key_as_category_as_integer_and_in_slots() -> None:
    numbers = np.array([7, -(2**62) - 1, 2**63 - 1])
    columns = {
        "text": categories(*map(str, numbers.tolist())),
        "integer": Column("integer", numbers),
        "seen": Column("slots", numbers, None, np.arange(4)),
    }
    kinds: tuple[FieldKind, ...] = ("categorical", "integer", "slots")
    shared = [Field(name, kind, None, None, "x") for name, kind in zip(columns, kinds, strict=True)]
    fields = ClickFields(shared)
    assert fields.num_dense == 0  # an integer that names a thing is no number
    keys = fields.batch(fields.prepare(columns), NO_NUMBERS).keys.view(3, 3)
    assert keys[0].tolist() == keys[1].tolist() == keys[2].tolist() == salted_keys(numbers, "x").tolist()


def network(window: int = WINDOW) -> DIN:
    torch.manual_seed(0)
    shape = ClickShape(
        window + 2, FIELDS.num_dense, DIM, (6, 5),
        bags={
            "seen": range(window), "item": range(window, window + 1), "price": range(window + 1, window + 2)
        },
    )  # fmt: skip
    table = EmbeddingTable(DIM, "sgd", 0.5, init_scale=0.5, seed=1)
    return DIN(shape, {"fields": table}, interests=(("seen", "item"),), attention=(7, 3))


def weigh(unit: Any, event: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the weight of one event, by the formula of the paper."""
    found = torch.cat([event, target, event - target, event * target])
    for place in range(0, len(unit.layers) - 1, 2):
        linear, slope = unit.layers[place], unit.layers[place + 1]
        found = functional.linear(found, linear.weight, linear.bias)
        found = torch.where(found > 0, found, slope.weight * found)
    last = unit.layers[-1]
    weight: torch.Tensor = functional.linear(found, last.weight, last.bias)[0]
    return weight


def reference(model: DIN, given: FieldBatch) -> torch.Tensor:
    """Return the logits row by row and event by event."""
    table, logits = model.tables()["fields"], []

    def vector(value: int) -> torch.Tensor:
        return torch.from_numpy(table.pull(np.array([value])))[0]

    ends = given.offsets.tolist()
    for row in range(len(given)):
        target = vector(key(TARGETS[row]))
        interest = torch.zeros(DIM)
        for text in HISTORIES[row][-WINDOW:]:
            interest = interest + weigh(model.units[0], vector(key(text)), target) * vector(key(text))
        price = torch.zeros(DIM)
        bag = (WINDOW + 1) * len(given) + row
        for place in range(ends[bag], ends[bag + 1]):
            price = price + given.weights[place] * vector(int(given.keys[place]))
        found = torch.cat([target, price, interest, given.numbers[row]])
        for layer in model.deep:
            found = layer(found)
        logits.append(model.bias + (model.head.weight[0] * found).sum())
    return torch.stack(logits).unsqueeze(1)


def test_the_network_is_that_of_the_paper() -> None:
    model, given = network(), batch()
    with torch.no_grad():
        found = model(model.fetch(given), given.numbers)
        torch.testing.assert_close(found, reference(model, given), rtol=1e-4, atol=1e-6)


def test_gradients_reach_events_target_and_units() -> None:
    model, given = network(), batch()
    vectors = model.fetch(given)
    held = vectors["fields"].detach().requires_grad_()
    model({"fields": held}, given.numbers).sum().backward()
    assert held.grad is not None
    is_there = torch.zeros(4, WINDOW + 2, dtype=torch.bool)
    for row, history in enumerate(HISTORIES):
        is_there[row, : len(history)] = True
    touched = held.grad.abs().sum(dim=2) > 0
    assert touched[:, :WINDOW][is_there[:, :WINDOW]].all()
    assert touched[:, WINDOW:].all()
    weights = [each for each in model.units.parameters() if each.dim() == 2]
    assert len(weights) == 3
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in weights)


def test_a_longer_window_and_unknown_events_change_nothing() -> None:
    model, given = network(), batch()
    model(model.fetch(given), given.numbers)  # which gives every value a row
    model.eval()
    with torch.no_grad():
        expected = model(model.fetch(given), given.numbers)
        held = model.fetch(given)["fields"]
        padded = torch.cat([held[:, :WINDOW], torch.zeros(4, 5, DIM), held[:, WINDOW:]], dim=1)
        wide = network(WINDOW + 5).eval()
        torch.testing.assert_close(wide({"fields": padded}, given.numbers), expected)
        unknown = given.keys.clone()
        in_last_row = torch.nonzero(given.keys == key("e")).flatten()
        unknown[in_last_row] = 123456789
        changed = FieldBatch(unknown, given.offsets, given.weights, given.crosses, given.numbers)
        found = model(model.fetch(changed), given.numbers)
        torch.testing.assert_close(found[:3], expected[:3])
        held[3, :WINDOW] = 0
        torch.testing.assert_close(found, model({"fields": held}, given.numbers))
        assert found[3] != expected[3]


def test_vectors_of_events_are_not_decayed() -> None:
    model, given = network(), batch()
    vectors = model.fetch(given)
    torch.testing.assert_close(model.decayed(vectors), vectors["fields"][:, WINDOW:])


def test_no_rows_have_no_logits() -> None:
    model, given = network(), batch()
    empty = FieldBatch(
        given.keys[:0], torch.zeros(1, dtype=torch.int64), given.weights[:0], given.crosses[:, :0],
        given.numbers[:0],
    )  # fmt: skip
    assert model.eval()(model.fetch(empty), empty.numbers).shape == (0, 1)


def test_a_missing_target_has_a_key_of_its_own() -> None:
    fields = ClickFields((Field("item", "categorical", None, None, "item"),))
    column = Column("categorical", np.array([0, -1], np.int32), pa.array(["a"], pa.large_string()))
    rows = fields.prepare({"item": column})
    first, missing = fields.batch(rows, NO_NUMBERS).keys.tolist()
    assert first == key("a") != missing


@pytest.mark.parametrize("hidden", [(5,), (6, 3)])
def test_events_that_are_there_give_what_padded_ones_do_with_the_same_gradients(
    hidden: tuple[int, ...],
) -> None:
    torch.manual_seed(4)
    unit = AttentionUnit(DIM, hidden).double()
    with torch.no_grad():
        for name, value in unit.named_parameters():
            if value.numel() == 1 and "weight" in name:
                value.fill_(-0.3)  # a slope below zero, too, is learnt
    is_there = torch.rand(9, 6, 1) < 0.6
    is_there[2] = False
    events = (torch.randn(9, 6, DIM, dtype=torch.float64) * is_there).requires_grad_()
    target = torch.randn(9, DIM, dtype=torch.float64, requires_grad=True)
    factors, found = torch.randn(9, DIM, dtype=torch.float64), []
    for pooled in (unit.eval().pooled(events, target), unit.train().pooled(events, target)):
        inputs = [events, target, *unit.parameters()]
        found.append([pooled.detach(), *torch.autograd.grad((pooled * factors).sum(), inputs)])
    found[0][1] = found[0][1] * is_there  # of what is no event nobody asks for the gradient
    for expected, given in zip(*found, strict=True):
        torch.testing.assert_close(given, expected)
