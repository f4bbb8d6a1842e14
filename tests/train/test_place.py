"""Items placed in tiers by `place`, beside a plain reference and the optimum of a linear program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from graphbox.train.plan.device_plan import (
    ASSUMED_BANDWIDTHS,
)
from graphbox.train.plan.placement import KINDS, TIERS, DataPart, Kind, Rates, place

RATES = Rates(ASSUMED_BANDWIDTHS, 1e9)


def part(kind: Kind, items: Any, sizes: Any, accesses: Any, row_bytes: int = 256) -> DataPart:
    return DataPart(
        f"some {kind}",
        kind,
        np.array(items, dtype=np.int64),
        np.array(sizes, dtype=np.float64),
        np.array(accesses, dtype=np.float64),
        float(row_bytes),
        row_bytes,
        "given",
    )


def of_classes(kind: Kind, rows: list[tuple[int, int, int]]) -> DataPart:
    items, sizes, accesses = zip(*rows, strict=True)
    return part(kind, items, sizes, accesses)


classes = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 40), st.integers(0, 9)), min_size=1, max_size=5
)
some_things = st.lists(st.tuples(st.sampled_from(KINDS), classes), min_size=1, max_size=4).map(
    lambda drawn: [of_classes(kind, rows) for kind, rows in drawn]
)
budgets = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 300), max_size=3)


def filled(
    parts: list[DataPart], chosen: set[Kind], room: float, faster: str, slower: str, taken: dict[Any, int]
) -> tuple[dict[Any, int], float]:
    """Return how many items of each class a tier has, put there one by one, and the room that is left."""
    held = dict.fromkeys(taken, 0)
    saved = {}
    for number, each in enumerate(parts):
        gain = RATES.seconds(each, slower) - RATES.seconds(each, faster)  # type: ignore[arg-type]
        for row in range(len(each.items)):
            saved[number, row] = each.accesses[row] * gain / each.item_bytes[row]
    keys = [key for kind in KINDS for key in saved if parts[key[0]].kind == kind and kind in chosen]
    for key in sorted(sorted(keys), key=lambda key: -saved[key]):
        number, row = key
        for _ in range(int(parts[number].items[row]) - taken[key]):
            if parts[number].item_bytes[row] > room:
                break
            held[key] += 1
            room -= parts[number].item_bytes[row]
    return held, room


@settings(max_examples=150)
@given(some_things, st.integers(0, 600), budgets, budgets)
def test_against_items_that_are_put_one_by_one(
    parts: list[DataPart], room: int, hbm: dict[Kind, int], mem: dict[Kind, int]
) -> None:
    found = place(parts, RATES, hbm_bytes=room, hbm_budgets=hbm, mem_budgets=mem)
    none = {(number, row): 0 for number, each in enumerate(parts) for row in range(len(each.items))}
    in_hbm, left = dict(none), float(room)
    for kind, budget in hbm.items():
        if any(each.kind == kind for each in parts):
            held, rest = filled(parts, {kind}, min(budget, left), "HBM", "MEM", none)
            left -= min(budget, left) - rest
            in_hbm = {key: in_hbm[key] + held[key] for key in none}
    held, _ = filled(parts, set(KINDS) - set(hbm), left, "HBM", "MEM", none)
    in_hbm = {key: in_hbm[key] + held[key] for key in none}
    in_mem = {key: int(parts[key[0]].items[key[1]]) - in_hbm[key] for key in none}
    for kind, budget in mem.items():
        held, _ = filled(parts, {kind}, budget, "MEM", "SSD", in_hbm)
        in_mem |= {key: held[key] for key in none if parts[key[0]].kind == kind}
    for (number, row), count in in_hbm.items():
        assert found[number].items["HBM"][row] == count
        assert found[number].items["MEM"][row] == in_mem[number, row]
    for each in found:
        assert sum(each.items[tier] for tier in TIERS).tolist() == each.part.items.tolist()  # type: ignore[union-attr]
        assert sum(each.share(tier) for tier in TIERS) == pytest.approx(1) or not each.part.bytes
    assert sum(each.bytes("HBM") for each in found) <= room


@pytest.mark.parametrize("seed", range(5))
def test_no_placement_is_better_by_more_than_an_item(seed: int) -> None:
    """Against linear programming, which may divide items."""
    generator = np.random.default_rng(seed)
    described: list[tuple[Kind, int]] = [("topology", 32), ("features", 512), ("tables", 260)]
    parts = [
        part(
            kind, generator.integers(1, 900, 40), generator.uniform(8, 64, 40), generator.pareto(1.0, 40), row
        )
        for kind, row in described
    ]
    room = 0.4 * sum(each.bytes for each in parts)
    found = sum(each.epoch_seconds for each in place(parts, RATES, hbm_bytes=int(room)))
    gain = [(RATES.seconds(each, "MEM") - RATES.seconds(each, "HBM")) * each.accesses for each in parts]
    size = np.concatenate([each.item_bytes for each in parts])
    most = np.concatenate([each.items for each in parts])
    best = linprog(
        -1e9 * np.concatenate(gain),
        A_ub=size[None],
        b_ub=[room],
        bounds=list(zip(np.zeros(len(most)), most, strict=True)),
    )
    slow = sum(float(each.items @ each.accesses) * RATES.seconds(each, "MEM") for each in parts)
    least = slow + best.fun / 1e9
    assert least * (1 - 1e-6) <= found <= least + max(float(each.max()) for each in gain)


def test_a_hub_larger_than_the_memory_does_not_keep_others_out() -> None:
    (found,) = place([part("topology", [1, 10], [1000, 1], [1e9, 1])], RATES, hbm_bytes=100)
    assert found.items["HBM"].tolist() == [0, 10]


def test_what_is_read_most_is_told() -> None:
    (found,) = place([part("tables", [10, 90], [100, 100], [90, 1])], RATES, hbm_bytes=1000)
    assert found.share("HBM") == pytest.approx(900 / 990)
    assert found.why == "10.0% of its items, those that are read most for their size, fill HBM"
    told = found.as_dict()
    assert (told["hbm_bytes"], told["mem_bytes"], told["ssd_bytes"]) == (1000, 9000, 0)
    (all_of_it,) = place([found.part], RATES, hbm_bytes=10**6, hbm_budgets={"tables": 10**5})
    assert all_of_it.why == "all of it fits memory.hbm.tables"
    (none,) = place([found.part], RATES, hbm_bytes=10**6, hbm_budgets={"tables": 0})
    assert (none.share("HBM"), none.why) == (0.0, "no room in memory.hbm.tables")
    assert all_of_it.epoch_seconds < found.epoch_seconds < none.epoch_seconds
