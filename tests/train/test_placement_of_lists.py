"""Lists of neighbours in the memory of a GPU: what must be known of all of them comes first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="graphs need pyarrow, which is not installed")
pytest.importorskip("triton", reason="kernels need Triton")

from graphbox.sample import DeviceGraph, sample_heterogeneous
from graphbox.train.plan import GraphCounts
from graphbox.train.plan.accesses import DegreeClasses
from graphbox.train.plan.device_plan import Gpu, plan_devices
from graphbox.train.plan.placement import DataPart, Kind, place
from tests.sample.device_tiers import ROWS, shop
from tests.train.test_place import RATES, budgets, some_things
from tests.train.test_placement import GIB, MODELS, config, planned


@settings(max_examples=100)
@given(some_things, st.integers(0, 600), budgets, st.integers(0, 6))
def test_what_is_known_of_items_comes_first(
    parts: list[DataPart], room: int, hbm: dict[Kind, int], known_bytes: int
) -> None:
    parts = [replace(each, known_bytes=known_bytes * (each.kind == "topology")) for each in parts]
    found = place(parts, RATES, hbm_bytes=room, hbm_budgets=hbm)
    assert sum(each.bytes("HBM") for each in found) <= room
    lists = [each for each in found if each.part.kind == "topology"]
    assert sum(each.bytes("HBM") for each in lists) <= hbm.get("topology", room)
    is_in_part = any(each.items["HBM"].any() for each in lists) and not all(each.is_near for each in lists)
    for each in lists:
        assert each.known_bytes == is_in_part * known_bytes * (int(each.part.items.sum()) + 1)


def test_reverse_edge_types_have_lists_too() -> None:
    nodes = 1000
    for reverse, lists in ((False, 1), (True, 2)):
        run = config({"network": {**MODELS["network"], "reverse": reverse}})
        found = planned(run, nodes, 20 * GIB)["network"].budgets["topology"]
        assert found == 4 * 20 * nodes + lists * 8 * (nodes + 1)


@pytest.mark.gpu_kernel
@pytest.mark.parametrize("bytes_of_node", [0, 8, 27, 29, 40, 1000])
def test_lists_are_on_the_gpu_if_the_plan_says_so(tmp_path: Path, bytes_of_node: int) -> None:
    """Of a graph in tiers, and of one in memory, whatever the budget has room for."""
    graph = shop(tmp_path / "shop")
    task = {"t": {"kind": "classify", "node_type": "user", "label": "l"}}
    model = {"kind": "gnn", "task": "t", "num_neighbors": [3, 2], "embeddings": ["user"], "reverse": False}
    relations = [list(each) for each in graph.edge_types]
    for memory in ({"topology": 1500}, {}):
        budget = bytes_of_node * ROWS
        run = config(
            {"m": {**model, "relations": relations}},
            tasks=task,
            memory={**memory, "hbm": {"topology": budget}},
        )
        plan = plan_devices(run, GraphCounts.of(graph), DegreeClasses.of(graph), Gpu("gpu", 80 * GIB))["m"]
        assert plan is not None
        lists = [each for each in plan.parts if each.part.kind == "topology"]
        room = plan.budgets["topology"]
        assert room <= budget
        source = graph.tiered(topology_bytes=memory["topology"]) if memory else graph
        on_device = DeviceGraph(source, "cpu", hbm_bytes=room)
        for seed in range(2):
            seeds = {name: torch.arange(graph.num_nodes(name)) for name in ("user", "item")}
            sample_heterogeneous(on_device, seeds, [3, 2], seed=seed)
            on_device.end_pass()
        assert on_device.device_bytes <= room
        are_whole = all(each.is_near for each in lists)
        assert are_whole == (on_device.pinned_bytes == 0 and on_device.disk_lists(graph.edge_types) is None)
        are_some = not are_whole and any(each.items["HBM"].any() for each in lists)
        assert are_some == (on_device.statistics.lists > 0)
