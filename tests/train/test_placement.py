"""Placement of each kind of model in a training on a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.plan_training import WORLDS, run_file
from graphbox.config import DeepWalkConfig, LineConfig, MemoryConfig, Metapath2VecConfig, RunConfig
from graphbox.errors import DoesNotFitError
from graphbox.skip_gram.group_size import GroupSize, batches_of_group
from graphbox.table.device_budget import slots_within
from graphbox.table.resident_rows import RowForm
from graphbox.train import GraphView
from graphbox.train.plan import GraphCounts, plan_trainings
from graphbox.train.plan.accesses import DegreeClasses
from graphbox.train.plan.decisions import Decision, place_trainings, placement_of
from graphbox.train.plan.device_plan import (
    ASSUMED_BANDWIDTHS,
    DevicePlan,
    Gpu,
    device_problems,
    plan_devices,
)
from graphbox.train.plan.footprint import footprint_of
from graphbox.train.plan.libraries import Libraries
from graphbox.train.plan.placement import KINDS, Rates
from graphbox.train.recommendation.footprint import SageFootprint
from graphbox.train.walks import sources
from graphbox.train.walks.footprint import WalkFootprint
from graphbox.train.walks.one_type import one_type_graph
from tests.cli.conftest import call_main
from tests.train.conftest import build_graph

RATES = Rates(ASSUMED_BANDWIDTHS, 1e9)
GIB = 1 << 30
LINKS = ("node", "links", "node")
MODELS: dict[str, dict[str, Any]] = {
    "walk": {"kind": "deepwalk"},
    "paths": {"kind": "metapath2vec", "metapaths": [[LINKS]]},
    "lines": {"kind": "line"},
    "network": {"kind": "gnn", "task": "class", "num_neighbors": [10, 5], "embeddings": ["node"]},
    "whole": {"kind": "gnn", "task": "class", "layer": "gcn"},
    "dense": {"kind": "mlp", "task": "class", "positions": "walk"},
    "light": {"kind": "lightgcn", "task": "links"},
    "factors": {"kind": "matrix_factorization", "task": "links"},
    "taught": {"kind": "matrix_factorization", "task": "links", "distil": {"teachers": ["light"]}},
    "towers": {"kind": "sage", "task": "links"},
    "sequences": {"kind": "sasrec", "task": "steps"},
    "units": {"kind": "gru4rec", "task": "steps"},
    "interests": {"kind": "comirec", "task": "steps"},
    "triples": {"kind": "rotate", "task": "facts"},
    "events": {"kind": "temporal", "row_dim": 8},
    "clicks": {"kind": "deepfm", "task": "clicks"},
    "own": {"kind": "module", "task": "class", "model": "a:b", "num_neighbors": [2]},
}


def config(models: dict[str, dict[str, Any]] = MODELS, **changes: Any) -> RunConfig:
    document = {
        "version": 1,
        "name": "planned",
        "graph": {"name": "planned", "nodes": {"node": {"path": "n.csv"}}, "edges": []},
        "tasks": {
            "class": {"kind": "classify", "node_type": "node", "label": "label"},
            "links": {"kind": "recommend", "node_type": "node", "relations": ["links"]},
            "steps": {"kind": "next", "node_type": "node", "relations": ["links"]},
            "facts": {"kind": "complete", "relations": [list(LINKS)]},
            "clicks": {"kind": "click", "node_type": "node", "label": "label"},
        },
        "models": models,
        **changes,
    }
    return RunConfig.model_validate_json(json.dumps(document))


def counts(nodes: int) -> GraphCounts:
    return GraphCounts({"node": nodes}, {LINKS: 10 * nodes}, {"node": 400 * nodes}, {"node": {"user": nodes}})


def skewed(nodes: int) -> dict[str, DegreeClasses]:
    """Return degrees of a graph in which few nodes have most edges."""
    degree = np.array([1.0, 10.0, 1000.0])
    return {
        "node": DegreeClasses(
            np.array([nodes - 2 * (nodes // 100), nodes // 100, nodes // 100]), degree, "given"
        )
    }


def planned(run: RunConfig, nodes: int, hbm_bytes: int, **degrees: Any) -> dict[str, DevicePlan]:
    found = plan_devices(run, counts(nodes), degrees.get("degrees", {}), Gpu("gpu", hbm_bytes))
    return {name: plan for name, plan in found.items() if plan is not None}


def test_every_kind_of_model_is_placed() -> None:
    run = config()
    assert set(planned(run, 10_000, 20 * GIB)) == set(MODELS) - {"own"}
    for name, plan in planned(run, 10_000, 20 * GIB).items():
        assert plan.is_whole, name
        near = [each.part.bytes for each in plan.parts if not each.part.not_in_hbm]
        assert sum(plan.budgets.values()) == sum(near), name
        assert sum(near) > 0 or name == "whole", name
        assert 0 < sum(each.epoch_seconds for each in plan.parts) < 60, name
    assert {each.part.kind for each in planned(run, 10_000, GIB)["network"].parts} == set(KINDS)


def test_towers_take_in_relations_that_leave_their_nodes_too() -> None:
    run = config({"towers": {**MODELS["towers"], "features": ["price", "brand"]}})
    several = GraphCounts(
        {"node": 1000, "group": 10, "far": 5},
        {LINKS: 5000, ("node", "in", "group"): 1000, ("far", "in", "group"): 5},
        {"node": 16_000},
        {"node": {"brand": 9}},
    )
    plan = plan_devices(run, several, {}, Gpu("gpu", 20 * GIB))["towers"]
    assert plan is not None
    parts = {each.part.name: each.part for each in plan.parts}
    assert set(parts) == {"neighbours of node", "features of node", "rows of node", "rows of group"}
    # Two ends of each of 5,000 links and one of 1,000 edges, in three lists of each node.
    assert parts["neighbours of node"].bytes == 4 * (2 * 5000 + 1000) + 3 * 8 * 1001
    chosen = config({"towers": {**MODELS["towers"], "relations": [list(LINKS)]}})
    plan = plan_devices(chosen, several, {}, Gpu("gpu", 20 * GIB))["towers"]
    assert plan is not None
    assert {each.part.name for each in plan.parts} == {"neighbours of node", "rows of node"}


def test_skew_decides() -> None:
    run, nodes = config({"walk": MODELS["walk"]}), 10_000_000
    even = planned(run, nodes, 4 * GIB)["walk"]
    uneven = planned(run, nodes, 4 * GIB, degrees=skewed(nodes))["walk"]

    def share(plan: DevicePlan) -> float:
        rows = [each for each in plan.parts if each.part.kind == "tables"]
        return sum(each.share("HBM") for each in rows) / len(rows)

    assert share(uneven) > 0.8 > share(even) + 0.3
    assert even.parts[0].part.known_by.startswith("not known")


def test_budgets_overrule() -> None:
    run = config({"network": MODELS["network"]}, memory={"hbm": {"features": 0, "tables": "64MiB"}})
    plan = planned(run, 1_000_000, 40 * GIB)["network"]
    assert plan.budgets["features"] == 0
    assert (64 << 20) - 1000 < plan.budgets["tables"] <= 64 << 20
    assert all(each.share("HBM") == 1 for each in plan.parts if each.part.kind == "topology")
    assert plan.pinned_bytes == 0
    away = config({"network": MODELS["network"]}, memory={"hbm": {"topology": 0}})
    plan = planned(away, 1_000_000, 40 * GIB)["network"]
    assert plan.pinned_bytes == sum(each.part.bytes for each in plan.parts if each.part.kind == "topology")
    on_disk = config({"network": MODELS["network"]}, memory={"features": "10MiB"})
    features = [
        each
        for each in planned(on_disk, 10_000_000, 2 * GIB)["network"].parts
        if each.part.kind == "features"
    ]
    assert 0 < features[0].bytes("MEM") <= 10 << 20
    assert features[0].bytes("SSD") > 0
    assert features[0].bytes("HBM") == 0
    assert features[0].why == "vectors are read from SSD ahead of batches, and copied"


def test_the_plan_says_which_budget_changes_nothing() -> None:
    memory = {"features": "10MiB", "hbm": {"features": "1GiB"}}
    plan = planned(config({"network": MODELS["network"]}, memory=memory), 1_000_000, 40 * GIB)["network"]
    (features,) = [each for each in plan.parts if each.part.kind == "features"]
    assert features.why.endswith("and copied; memory.hbm.features changes nothing here")
    assert plan.budgets["features"] == 0


@pytest.mark.parametrize("processes", [2, 4])
def test_each_of_several_processes_has_its_rows_and_all_else(processes: int) -> None:
    models, nodes = {"network": MODELS["network"]}, 999_999
    one, several = config(models), config(models, processes=processes)
    whole = planned(one, nodes, 40 * GIB, degrees=skewed(nodes))["network"]
    part = planned(several, nodes, 40 * GIB, degrees=skewed(nodes))["network"]
    for mine, ours in zip(part.parts, whole.parts, strict=True):
        if ours.part.kind == "tables":
            assert mine.part.items.sum() == -(-nodes // processes)
            assert mine.part.accesses.tolist() == ours.part.accesses.tolist()
        else:
            assert mine.part.bytes == ours.part.bytes
            np.testing.assert_allclose(mine.part.accesses * processes, ours.part.accesses)
    assert part.working_bytes - GIB < whole.working_bytes, "NCCL takes about 1 GiB, and batches are smaller"


def test_several_processes_have_what_the_fullest_gpu_has_free(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    free = {0: 100, 1: 40, 2: 60}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device.index] * GIB, 140 * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "large")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    gpu = torch.device("cuda", 0)
    assert Gpu.of(gpu).hbm_bytes == int(0.95 * 100 * GIB)
    three = Gpu.of(gpu, 3)
    assert three.hbm_bytes == int(0.95 * 40 * GIB)
    assert three.name == "each of 3 GPUs like cuda:0 (large)"


def test_features_of_a_whole_graph_are_part_of_what_computing_takes() -> None:
    run = config({"whole": MODELS["whole"]})
    plan = planned(run, 100_000, 20 * GIB)["whole"]
    assert plan.budgets["features"] == 0
    assert plan.is_whole
    without = GraphCounts({"node": 100_000}, {LINKS: 1_000_000}, {}, {})
    footprint = footprint_of(run.models["whole"], without, run)
    assert footprint is not None
    assert plan.working_bytes - footprint.device_bytes() == 400 * 100_000


def test_what_has_no_room_is_refused_with_what_would_have() -> None:
    run = config({"whole": MODELS["whole"]}, device="cuda")
    plans = plan_devices(run, counts(10_000_000), {}, Gpu("cuda:0 (small)", 8 * GIB))
    on_cpu, ((name, message, hint),) = device_problems(run, counts(10_000_000), plans)
    assert on_cpu == {}
    assert name == "whole"
    assert "GiB) of the memory of cuda:0 (small) to train `whole`, received 8,589,934,592" in message
    assert "`models.whole.num_neighbors=[10,10]` trains on parts of the graph" in hint
    assert "`device=cpu`" in hint
    smaller = config({"whole": {**MODELS["whole"], "num_neighbors": [5, 5]}})
    fits = plan_devices(smaller, counts(10_000_000), {}, Gpu("gpu", 8 * GIB))
    assert device_problems(smaller, counts(10_000_000), fits) == ({}, [])
    greedy = config({"light": MODELS["light"]}, memory={"hbm": {"tables": "20GiB"}})
    plans = plan_devices(greedy, counts(1000), {}, Gpu("gpu", 8 * GIB))
    on_cpu, ((_, message, hint),) = device_problems(greedy, counts(1000), plans)
    assert on_cpu == {}
    assert "with its budgets, received 8,589,934,592" in message
    assert "leave `memory.hbm.tables` out, or let them be" in hint


def test_rows_of_walks_are_where_the_plan_says() -> None:
    nodes = 1_000_000
    for name in ("walk", "paths", "lines"):
        run = config({name: MODELS[name]})
        footprint = footprint_of(run.models[name], counts(nodes), run)
        assert isinstance(footprint, WalkFootprint)
        whole = planned(run, nodes, 40 * GIB)[name]
        assert whole.pinned_bytes == 0
        rooms = footprint.row_rooms(whole.budgets["tables"])
        assert [each.pinned_bytes for each in rooms] == [0] * (2 if name == "lines" else 1)
        room = whole.working_bytes + whole.budgets["tables"] // 2
        half = planned(run, nodes, room, degrees=skewed(nodes))[name]
        rooms = footprint.row_rooms(half.budgets["tables"])
        pinned = sum(each.pinned_bytes for each in rooms)
        rows = next(each for each in half.parts if each.part.name == "rows of node")
        assert rows.bytes("MEM") == pytest.approx(pinned, rel=0.05)
        assert sum(each.device_bytes for each in rooms) <= half.budgets["tables"]
        lists = sum(each.part.bytes for each in half.parts if each.part.kind == "topology")
        assert half.pinned_bytes in (pinned, pinned + lists)
        plans = plan_trainings(run, counts(nodes), libraries=Libraries(0), pinned={name: half.pinned_bytes})
        found, without = plans[name], plan_trainings(run, counts(nodes), libraries=Libraries(0))[name]
        assert found is not None
        assert without is not None
        assert found.peak_bytes == without.peak_bytes + half.pinned_bytes


@pytest.mark.parametrize("nodes", [100, 10_007, 5_000_000])
def test_rows_that_fit_the_plan_fit_the_table_on_the_gpu(nodes: int) -> None:
    run = config({"towers": {**MODELS["towers"], "dim": 48}})
    plan = planned(run, nodes, 40 * GIB)["towers"]
    assert plan.is_whole
    form = RowForm(48, torch.float32, 1, 0)  # row-wise Adagrad
    assert nodes <= slots_within(plan.budgets["tables"], form) <= 1.25 * nodes


def test_walks_that_towers_learn_first_are_placed_with_them() -> None:
    walks = {"metapaths": [[list(LINKS)]]}
    paths = {"kind": "metapath2vec", "task": "class", "dim": 64, **walks}
    run = config({"towers": {**MODELS["towers"], "dim": 64, "pretrain": walks}, "paths": paths})
    nodes = 1_000_000
    both, first = (planned(run, nodes, 40 * GIB)[name] for name in ("towers", "paths"))
    alone = planned(config({"towers": {**MODELS["towers"], "dim": 64}}), nodes, 40 * GIB)["towers"]
    for kind in KINDS:
        assert both.budgets[kind] == alone.budgets[kind] + first.budgets[kind]
    assert both.working_bytes >= max(alone.working_bytes, first.working_bytes)
    assert both.pinned_bytes == 0
    least = planned(run, nodes, both.working_bytes + first.budgets["tables"] // 2, degrees=skewed(nodes))
    footprint = footprint_of(run.models["towers"], counts(nodes), run)
    assert isinstance(footprint, SageFootprint)
    assert footprint.walks is not None
    (room,) = footprint.walks.row_rooms(least["towers"].budgets["tables"])
    lists = [each for each in least["towers"].parts if each.part.kind == "topology"]
    pinned_lists = sum(each.part.bytes for each in lists if each.bytes("HBM") < each.part.bytes)
    assert len(lists) == 2
    assert room.pinned_bytes > 0
    assert least["towers"].pinned_bytes == room.pinned_bytes + pinned_lists


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize("name", ["walk", "lines"])
def test_rows_of_walks_beyond_host_memory(name: str, device: str) -> None:
    """With `device: auto` the CPU trains them, from SSD; before anything begins it is said why."""
    nodes = counts(1_000_000)

    def problems(tables: str) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
        memory = {"tables": tables, "hbm": {"tables": "100MiB"}}
        run = config({name: MODELS[name]}, memory=memory, device=device)
        return device_problems(run, nodes, plan_devices(run, nodes, {}, Gpu("gpu", 40 * GIB)))

    assert problems("2GiB") == ({}, [])
    on_cpu, found = problems("300MiB")
    said = on_cpu[name] if device == "auto" else found[0][1]
    assert said.startswith("expected room in host memory for")
    assert "rows that the device has no room for" in said
    if device == "cuda":
        assert "raise `memory.tables` or `memory.hbm.tables`" in found[0][2]
        assert not on_cpu
    else:
        assert not found


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_rows_that_kernels_have_no_room_for(device: str) -> None:
    run = config({"wide": {"kind": "deepwalk", "dim": 600}}, device=device)
    plans = plan_devices(run, counts(100), {}, Gpu("gpu", 40 * GIB))
    on_cpu, found = device_problems(run, counts(100), plans)
    assert (on_cpu["wide"] if device == "auto" else found[0][1]).endswith("values on a GPU, received dim 600")


def test_pinned_rows_keep_a_budget_of_tables() -> None:
    run = config({"walk": MODELS["walk"]})
    model, nodes = run.models["walk"], counts(1_000_000)
    footprint = footprint_of(model, nodes, run)
    assert isinstance(footprint, WalkFootprint)
    assert isinstance(model, DeepWalkConfig)
    pinned = footprint.row_rooms(100 << 20)[0].pinned_bytes
    assert footprint.pinned_row_bytes(100 << 20) == pinned
    held = 2 * 4 * model.dim * 1_000_000
    for budget in (held // 2, held + 1000, 10 * held):
        within = run.model_copy(update={"memory": MemoryConfig(tables=budget)})
        kept = footprint_of(model, nodes, within)
        assert kept is not None
        assert kept.pinned_row_bytes(100 << 20) == min(pinned, max(0, budget - held))


def test_groups_of_walks_are_those_that_are_trained(tmp_path: Path) -> None:
    graph = build_graph(tmp_path / "small")
    needs = ("item", "needs", "item")
    view, found = GraphView(graph, None), GraphCounts.of(graph)
    one_type = one_type_graph(view, [needs], weighted=False)
    walk = DeepWalkConfig(kind="deepwalk", edge_types=(needs,), walk_length=5, walks_per_node=2)
    line = LineConfig(kind="line", edge_types=(needs,), batch_size=7)
    paths = Metapath2VecConfig(kind="metapath2vec", metapaths=((needs,), (needs, needs)), batch_size=3)
    options: dict[str, Any] = {"seed": 0, "threads": 1}
    walks: list[tuple[DeepWalkConfig | LineConfig | Metapath2VecConfig, sources.WalkSource]] = [
        (
            walk,
            sources.OneTypeSource(
                one_type, walks_per_node=2, walk_length=5, window=2, batch_size=walk.batch_size, **options
            ),
        ),
        (line, sources.EdgeSource(one_type, batch_size=7, **options)),
        (
            paths,
            sources.MetapathSource(
                view,
                paths.metapaths,
                walks_per_node=1,
                walk_length=paths.walk_length,
                window=2,
                batch_size=3,
                weighted=False,
                **options,
            ),
        ),
    ]
    for model, source in walks:
        batches = source.batches(0)
        group = batches_of_group(len(batches.start), len(batches.offsets) - 1)
        footprint = footprint_of(model, found, config({}))
        assert isinstance(footprint, WalkFootprint)
        planned_size = footprint.group_size()
        size = GroupSize.of(batches.offsets, group, planned_size.width, model.negatives)
        assert planned_size.batch_walkers >= size.batch_walkers
        # Nodes without edges start no walk, and edges of a pair are one: a plan counts no less.
        assert size.walkers <= planned_size.walkers <= 2 * size.walkers
        assert footprint.batches_bytes() > 0


def test_degrees_of_a_graph(tmp_path: Path) -> None:
    graph = build_graph(tmp_path / "small")
    found = DegreeClasses.of(graph)
    for name in graph.node_types:
        degree = np.zeros(graph.num_nodes(name))
        for edge_type in graph.edge_types:
            if graph.is_reverse(edge_type):
                continue
            source, target = graph.csc(edge_type).coo()
            for end, nodes in ((edge_type[0], source), (edge_type[2], target)):
                if end == name:
                    np.add.at(degree, nodes, 1)
        values, nodes = np.unique(degree, return_counts=True)
        assert found[name].degree.tolist() == values.tolist()
        assert found[name].nodes.tolist() == nodes.tolist()
        met = found[name].met(100.0, 10.0)
        assert float(met @ found[name].nodes) == pytest.approx(110)


def test_trainings_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    graph = build_graph(tmp_path / "small")
    run = config({"rows": {"kind": "deepwalk", "edge_types": [["item", "needs", "item"]]}})
    device = torch.device("cuda", 0)
    free = 80 * GIB
    measured: list[torch.device] = []

    def bandwidths(of: torch.device) -> Any:
        measured.append(of)
        return replace(ASSUMED_BANDWIDTHS, device="measured")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2 * free))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "small")
    monkeypatch.setattr("graphbox.train.plan.decisions.measured_bandwidths", bandwidths)
    plan = place_trainings(run, graph, device)["rows"].plan
    assert plan is not None
    assert plan.is_whole
    assert not measured
    free = round((plan.working_bytes + sum(plan.budgets.values()) / 2) / 0.95)
    plan = place_trainings(run, graph, device)["rows"].plan
    assert plan is not None
    assert not plan.is_whole
    assert measured == [device]
    assert plan.as_dict()["bandwidths"] == "measured"
    free = 1 << 20
    place = place_trainings(run, graph, device)["rows"]
    assert (place.device.type, place.plan, place.hbm) == ("cpu", None, None)
    device_decision = place.decisions[0]
    assert (device_decision.what, device_decision.where, device_decision.by) == ("device", "cpu", "graphbox")
    assert "of the memory of cuda:0 (small) to train `rows`, received" in device_decision.why
    with pytest.raises(DoesNotFitError, match=r"expected .* bytes \(.*\) of the memory of cuda:0 \(small\)"):
        place_trainings(run.model_copy(update={"device": "cuda"}), graph, device)
    on_cpu = place_trainings(run, graph, torch.device("cpu"))["rows"].decisions[0]
    assert on_cpu == Decision("device", "cpu", "graphbox", "there is no usable GPU")


def test_a_placement_says_who_decided_what_and_leaves_the_request_as_it_is() -> None:
    budgets = MemoryConfig.model_validate({"tables": "1GiB", "hbm": {"tables": "64MiB"}})
    run = config(
        {"rows": {"kind": "deepwalk"}},
        memory={"tables": "1GiB", "hbm": {"tables": "64MiB"}},
        device="cpu",
    )
    found = {each.what: each for each in placement_of(run.models["rows"], run, torch.device("cpu")).decisions}
    assert found["device"] == Decision("device", "cpu", "run file", "`device: cpu`")
    assert found["topology"] == Decision("topology", "memory", "graphbox", "there is no `memory.topology`")
    assert found["tables"].where == "1,073,741,824 bytes (1.0 GiB) in memory, the rest on SSD"
    assert (found["tables"].by, found["tables"].why) == ("run file", "`memory.tables`")
    plan = planned(run, 1_000_000, 40 * GIB)["rows"]
    on_gpu = placement_of(run.models["rows"], run, torch.device("cuda"), plan)
    by_kind = {each.what: each for each in on_gpu.decisions}
    assert by_kind["topology"].by == "graphbox"
    assert by_kind["topology"].where.endswith(" in HBM")
    assert by_kind["tables"].by == "run file"
    assert by_kind["tables"].why == "`memory.hbm.tables` and `memory.tables`"
    assert on_gpu.hbm is not None
    assert on_gpu.hbm.topology == plan.budgets["topology"]
    assert run.memory == budgets


def test_the_command_plans_for_another_machine(tmp_path: Path) -> None:
    WORLDS["links"].write(tmp_path, 2_000)
    command = ["-C", str(tmp_path / "workspace"), "plan", str(run_file(tmp_path, "deepwalk")), "--hbm"]
    outcome = call_main([*command, "80GiB", "--json"])
    assert outcome.code == 0, outcome.err
    plan = outcome.json["placement"]["deepwalk"]["gpu"]
    assert plan["hbm_bytes"] == 80 * GIB
    assert plan["bandwidths"].startswith("assumed")
    assert {each["hbm_share"] for each in plan["parts"]} == {1.0}
    shown = call_main([*command, "80GiB"]).out
    assert "What lives where" in shown
    assert "assumed" in shown
    there = tmp_path / "doctor.json"
    measured = replace(ASSUMED_BANDWIDTHS, device="NVIDIA H200").as_dict()
    there.write_text(json.dumps({"gpu": {"devices": [{"bandwidths": None}, {"bandwidths": measured}]}}))
    by_measure = call_main([*command, "80GiB", "--bandwidths", str(there), "--json"])
    assert by_measure.json["placement"]["deepwalk"]["gpu"]["bandwidths"] == "NVIDIA H200"
    there.write_text("[]")
    nothing = call_main([*command, "80GiB", "--bandwidths", str(there)])
    assert nothing.code == 4
    assert f"{there}: expected the bandwidths of a GPU, but none were measured" in nothing.err
    there.write_text(json.dumps({"gpu": {"devices": [{"bandwidths": {"device": "NVIDIA H200"}}]}}))
    assert call_main([*command, "80GiB", "--bandwidths", str(there)]).code == 4
    assert call_main([*command[:-1], "--bandwidths", str(there)]).code == 2
    tight = call_main([*command, "1MiB"])
    assert tight.code == 3
    assert "expected 1," in tight.err
    assert "`device=cpu` trains in host memory" in tight.err
    assert "(1.0 MiB)" in tight.err
    assert "no room in HBM: computing takes all of it" in tight.out
    assert call_main([*command, "lots"]).code == 2
