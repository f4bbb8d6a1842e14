"""`graphbox plan`: what an import takes, and the trainings of a run file, before they are run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.import_graph import memory_bytes, read_graph_config
from graphbox.cli.session import Session, command
from graphbox.cli.table_options import (
    ColumnsOption,
    FormatOption,
    KeepDuplicatesOption,
    MemoryOption,
    SourceOption,
    TableOptions,
    TargetOption,
    ThreadsOption,
    TimestampOption,
    TypeOption,
    WeightOption,
    is_run_file,
)
from graphbox.cli.text import byte_size, count, duration, fitting_tables, table
from graphbox.errors import DataError, DoesNotFitError, NotFoundError, UsageError
from graphbox.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.config import GraphConfig, RunConfig
    from graphbox.graph.distinct import Estimate
    from graphbox.graph.plan import ImportPlan, TypePlan
    from graphbox.train.baseline_costs import BaselineCost
    from graphbox.train.plan import GraphCounts, TrainingPlan
    from graphbox.train.plan.accesses import DegreeClasses
    from graphbox.train.plan.decisions import Placement
    from graphbox.train.plan.device_plan import Gpu

_FAR_APART = 1.15
"""Where what may be written differs by more, both are told."""


@dataclass(frozen=True)
class _Room:
    """The machine that trainings are planned for.

    Attributes:
        memory_bytes: memory that is available.
        read_bytes_per_s: rate of the disk with the graph.
    """

    memory_bytes: int
    read_bytes_per_s: float


def plan(
    session: Session,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|TABLE [key=value ...]",
            help="Run file (.yaml) and overrides of its values, or a table of edges.",
            show_default=False,
        ),
    ] = None,
    memory: MemoryOption = None,
    threads: ThreadsOption = None,
    type: TypeOption = None,  # noqa: A002 (the option's name)
    source: SourceOption = None,
    target: TargetOption = None,
    weight: WeightOption = None,
    timestamp: TimestampOption = None,
    format: FormatOption = None,  # noqa: A002 (the option's name)
    columns: ColumnsOption = None,
    keep_duplicates: KeepDuplicatesOption = False,
    hbm: Annotated[
        str | None,
        typer.Option(
            "--hbm", metavar="SIZE", help="Plan trainings for a GPU with so much free memory, like `80GiB`."
        ),
    ] = None,
    bandwidths: Annotated[
        Path | None,
        typer.Option(
            "--bandwidths",
            metavar="FILE",
            help="How fast that GPU reads, as `graphbox doctor --json` measured it there.",
        ),
    ] = None,
) -> None:
    """Predict the memory, disk and time that an import takes, and the memory of the trainings of a run file.

    On a machine with a GPU, or with `--hbm`, it also says what lives where: in the memory of the GPU, in that
    of the host, or on SSD.

    Exit code 3 means that it does not fit; the message says what would make it fit. Nothing is imported:
    tables up to 512 MiB are read once, larger ones in part, and disk and processor are measured for a moment.
    """
    if not arguments:
        raise UsageError("expected a run file or a table of edges", hint="`graphbox plan FILE`")
    options = TableOptions(
        None, type, source, target, weight, timestamp, format, columns, None, keep_duplicates or None
    )
    memory_bytes(memory)
    hbm_bytes = memory_bytes(hbm, "--hbm")
    run = _trained_config(arguments)
    _check_trained(run, {"--hbm": hbm, "--bandwidths": bandwidths})
    if run is not None and run.graph.is_stored:
        _plan_stored(session, arguments, run, hbm_bytes, bandwidths)
        return
    config, threads = read_graph_config(
        session, arguments[0], arguments[1:], options, memory=memory, threads=threads
    )
    _plan_import(session, config, run, threads, hbm_bytes, bandwidths)


def _plan_import(
    session: Session,
    config: GraphConfig,
    run: RunConfig | None,
    threads: int | None,
    hbm_bytes: int | None,
    bandwidths: Path | None,
) -> None:
    from graphbox.graph.plan import plan_import
    from graphbox.pipeline.stages.import_graph import graph_source

    destination = session.workspace_path / "graphs" / config.name
    found = plan_import(graph_source(config), destination, memory_bytes=config.memory, threads=threads)
    room = _Room(found.available_memory_bytes, found.disk.read_bytes_per_s)
    planned = _Trainings({}, {}, {}, {}, [])
    if run is not None:
        planned = _planned(session, run, _counts(found, run), room, hbm_bytes, bandwidths)

    def show(console: Console) -> None:
        _print(found, console)
        planned.print(room, console)

    session.answer({**found.as_dict(), **planned.as_dict()}, show)
    _refuse([*found.problems, *planned.lacking], found.name)


def _plan_stored(
    session: Session, arguments: list[str], run: RunConfig, hbm_bytes: int | None, bandwidths: Path | None
) -> None:
    """Plan the trainings of a run file whose graph is stored: there is nothing to import."""
    from graphbox.config import load_config
    from graphbox.graph import Graph
    from graphbox.graph.disk_probe import measure_disk
    from graphbox.memory import available_bytes, resident_bytes
    from graphbox.train.plan import GraphCounts

    load_config(arguments[0], arguments[1:], stored_schema=session.stored_schema())
    record = session.workspace().graph(run.graph.name)
    counts = GraphCounts.of(Graph.open(record.path))
    room = _Room(available_bytes() + resident_bytes(), measure_disk(record.path).read_bytes_per_s)
    planned = _planned(session, run, counts, room, hbm_bytes, bandwidths)

    def show(console: Console) -> None:
        sizes = (
            f"{counted(sum(counts.nodes.values()), 'node')}, {counted(sum(counts.edges.values()), 'edge')}"
        )
        console.print(
            f"graph `{record.name}` is stored: {sizes}, {byte_size(record.size_bytes)}", markup=False
        )
        planned.print(room, console)

    document = {"name": record.name, "stored": True, "size_bytes": record.size_bytes}
    session.answer({**document, **planned.as_dict()}, show)
    _refuse(planned.lacking, record.name)


@dataclass(frozen=True)
class _Trainings:
    """Memory that the trainings of a run file need.

    Attributes:
        plans: by model; None where the kind is not predicted.
        placements: what is kept where, by model.
        baselines: the most that baselines take, by task and name.
        may_be_left_out: why those that no task names may not run, by task and name.
        lacking: message and hint of what does not fit.
    """

    plans: Mapping[str, TrainingPlan | None]
    placements: Mapping[str, Placement]
    baselines: Mapping[str, Mapping[str, BaselineCost]]
    may_be_left_out: Mapping[str, Mapping[str, str]]
    lacking: list[tuple[str, str]]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "training": {name: each and each.as_dict() for name, each in self.plans.items()},
            "placement": {name: each.as_dict() for name, each in self.placements.items()},
            "baselines": {
                task: {
                    name: {
                        "memory_bytes": cost.memory_bytes,
                        "most_seconds": round(cost.seconds, 1),
                        "may_be_left_out": name in self.may_be_left_out[task],
                    }
                    for name, cost in costs.items()
                }
                for task, costs in self.baselines.items()
            },
        }

    def print(self, room: _Room, console: Console) -> None:
        """Print them as tables."""
        _print_trainings(room, self.plans, console)
        _print_baselines(self.baselines, self.may_be_left_out, console)
        _print_decisions(self.placements, console)
        _print_gpu_plans(self.placements, console)


def _planned(
    session: Session,
    run: RunConfig,
    counts: GraphCounts,
    room: _Room,
    hbm_bytes: int | None,
    bandwidths: Path | None,
) -> _Trainings:
    from graphbox.train.plan.baselines import baseline_problems, baselines_without_room, plan_baselines

    placements, without_room = _placements(session, room, run, counts, hbm_bytes, bandwidths)
    plans, lacking = _trainings(room, run, counts, placements)
    baselines = plan_baselines(run, counts)
    lacking += without_room + baseline_problems(run, baselines, room.memory_bytes)
    may_be_left_out = baselines_without_room(run, baselines, room.memory_bytes)
    return _Trainings(plans, placements, baselines, may_be_left_out, lacking)


def _refuse(problems: list[tuple[str, str]], graph: str) -> None:
    if problems:
        messages, hints = zip(*problems, strict=True)
        raise DoesNotFitError("; ".join(messages), where=f"graph `{graph}`", hint="; ".join(hints))


def _trained_config(arguments: list[str]) -> RunConfig | None:
    """Return the run file; None where a table is given, or it trains nothing."""
    if not is_run_file(arguments[0]):
        return None
    from graphbox.config import load_config

    config = load_config(arguments[0], arguments[1:], check_files=False)
    return config if config.models else None


def _check_trained(run: RunConfig | None, options: Mapping[str, object]) -> None:
    """Refuse options that are about trainings where there are none."""
    given = [name for name, value in options.items() if value is not None]
    if run is None and given:
        raise UsageError(
            "expected a run file with models, which are planned for a GPU; received none",
            where=", ".join(given),
            hint="an import takes the same with a GPU: leave it out",
        )


def _counts(found: ImportPlan, config: RunConfig) -> GraphCounts:
    from graphbox.artifact.edge_features import CATEGORY_DIM
    from graphbox.train.plan import GraphCounts

    nodes = {each.name: each for each in found.types if each.kind == "nodes"}
    edges = {each.name: each for each in found.types if each.kind == "edges"}
    return GraphCounts(
        nodes={name: each.count.likely for name, each in nodes.items()},
        edges={each.type: edges["__".join(each.type)].count.likely for each in config.graph.edges},
        feature_bytes={name: each.feature_bytes for name, each in nodes.items()},
        values={name: each.values for name, each in nodes.items()},
        edge_widths={
            each.type: {
                name: CATEGORY_DIM
                if kind == "categorical"
                else edges["__".join(each.type)].vector_dims.get(name, 1)
                for name, kind in each.features.items()
            }
            for each in config.graph.edges
        },
    )


def _trainings(
    room: _Room,
    config: RunConfig,
    counts: GraphCounts,
    placements: Mapping[str, Placement],
) -> tuple[dict[str, TrainingPlan | None], list[tuple[str, str]]]:
    """Return the plans of the models of a run file, and what does not fit with what would."""
    from graphbox.train.plan import plan_trainings, problems

    pinned = {name: each.plan.pinned_bytes for name, each in placements.items() if each.plan is not None}
    plans = plan_trainings(config, counts, pinned=pinned)
    lacking = problems(config, counts, plans, room.memory_bytes)
    return plans, [(message, hint) for _, message, hint in lacking]


def _placements(
    session: Session,
    room: _Room,
    config: RunConfig,
    counts: GraphCounts,
    hbm_bytes: int | None,
    bandwidths: Path | None,
) -> tuple[dict[str, Placement], list[tuple[str, str]]]:
    """Return what models keep where, and what has no room on a GPU that is there or asked for."""
    import torch

    from graphbox.train.plan.decisions import placements
    from graphbox.train.plan.device_plan import device_problems, plan_devices

    gpu = _gpu(config, hbm_bytes, bandwidths, room.read_bytes_per_s)
    if gpu is None:
        return placements(config, torch.device("cpu"), {}, {}), []
    if hbm_bytes is not None:  # a GPU is asked for, whatever the run file would take
        config = config.model_copy(update={"device": "cuda"})
    plans = plan_devices(config, counts, _degrees(session, config), gpu)
    on_cpu, without_room = device_problems(config, counts, plans)
    for name, why in on_cpu.items():
        session.note(f"`{name}` would be trained on the CPU: {why}")
    found = placements(config, torch.device("cuda"), plans, on_cpu)
    return found, [(message, hint) for _, message, hint in without_room]


def _gpu(
    config: RunConfig, hbm_bytes: int | None, bandwidths: Path | None, ssd_bytes_per_s: float
) -> Gpu | None:
    """Return the GPU to plan for: the one that is described, else the one that the run file would take."""
    import json

    from graphbox.bandwidth import Bandwidths, measured_bandwidths
    from graphbox.device import chosen_device
    from graphbox.train.plan.device_plan import ASSUMED_BANDWIDTHS, Gpu
    from graphbox.train.plan.placement import Rates

    if bandwidths is not None and hbm_bytes is None:
        raise UsageError(
            "expected how much memory the GPU has",
            where="--bandwidths",
            hint="add `--hbm SIZE`, like `80GiB`",
        )
    if hbm_bytes is None:
        device = chosen_device(config.device)
        if device.type == "cpu":
            return None
        here = Gpu.of(device, config.processes)
        return replace(here, rates=Rates(measured_bandwidths(device), ssd_bytes_per_s))
    rates = ASSUMED_BANDWIDTHS
    if bandwidths is not None:
        try:
            document = json.loads(bandwidths.read_text())
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {bandwidths}", where="--bandwidths") from None
        except (OSError, ValueError) as error:
            raise DataError(f"expected JSON, received: {error}", where=str(bandwidths)) from None
        measured = _first_bandwidths(document)
        if measured is None:
            raise DataError(
                "expected the bandwidths of a GPU, but none were measured there",
                where=str(bandwidths),
                hint="`graphbox doctor --json` measures them where there is a GPU",
            )
        rates = Bandwidths.from_dict(measured)
    name = "a GPU elsewhere" if config.processes == 1 else f"each of {config.processes} GPUs elsewhere"
    return Gpu(name, hbm_bytes, Rates(rates, ssd_bytes_per_s))


def _first_bandwidths(document: Any) -> dict[str, Any] | None:
    """Return those of the first GPU that `graphbox doctor --json` measured; None where there are none."""
    gpu = document.get("gpu") if isinstance(document, dict) else None
    devices = gpu.get("devices") if isinstance(gpu, dict) else None
    for each in devices if isinstance(devices, list) else ():
        if isinstance(each, dict) and isinstance(each.get("bandwidths"), dict):
            found: dict[str, Any] = each["bandwidths"]
            return found
    return None


def _degrees(session: Session, config: RunConfig) -> Mapping[str, DegreeClasses]:
    """Return the degrees of the graph, where it is imported."""
    from graphbox.graph import Graph
    from graphbox.train.plan.accesses import DegreeClasses

    if not session.workspace_path.is_dir():
        return {}
    try:
        return DegreeClasses.of(Graph.open(session.workspace().graph(config.graph.name).path))
    except NotFoundError:
        return {}


def _print_baselines(
    baselines: Mapping[str, Mapping[str, BaselineCost]],
    may_be_left_out: Mapping[str, Mapping[str, str]],
    console: Console,
) -> None:
    rows = [
        (
            task if number == 0 else "",
            name,
            byte_size(cost.memory_bytes),
            duration(cost.seconds),
            "left out where it is so" if name in may_be_left_out[task] else "yes",
        )
        for task, costs in baselines.items()
        for number, (name, cost) in enumerate(costs.items())
    ]
    if rows:
        console.print()
        columns = ("task", "baseline", "memory", "at most", "runs")
        console.print(table("Baselines, beside the libraries", columns, rows, ("memory", "at most")))


def _print_decisions(placements: Mapping[str, Placement], console: Console) -> None:
    rows = [
        (name if number == 0 else "", each.what, each.where, each.by, each.why)
        for name, placement in placements.items()
        for number, each in enumerate(placement.decisions)
    ]
    if rows:
        console.print()
        console.print(table("Placement", ("model", "what", "where", "decided by", "why"), rows))


def _print_gpu_plans(placements: Mapping[str, Placement], console: Console) -> None:
    columns = ("part", "size", "HBM", "MEM", "SSD", "served by HBM", "an epoch reads")
    for name, placement in placements.items():
        plan = placement.plan
        if plan is None:
            continue
        rows = [
            (
                each.part.name,
                byte_size(each.part.bytes),
                *(byte_size(each.bytes(tier)) if each.bytes(tier) else "" for tier in ("HBM", "MEM", "SSD")),
                f"{each.share('HBM'):.0%}",
                duration(each.epoch_seconds),
            )
            for each in plan.parts
        ]
        console.print()
        for part in fitting_tables(f"What lives where, `{name}`", columns, rows, console.width):
            console.print(part)
        room = byte_size(plan.gpu.hbm_bytes)
        lines = [
            f"{plan.gpu.name}: {room}, of which computing takes {byte_size(plan.working_bytes)}",
            f"bandwidths: {plan.gpu.rates.gpu.device}",
        ]
        lines += [f"{each.part.name}: {each.why}" for each in plan.parts]
        known_by = dict.fromkeys(each.part.known_by for each in plan.parts)
        lines += [f"accesses: {each}" for each in known_by]
        for line in lines:
            console.print(line, markup=False)


def _print_trainings(room: _Room, trainings: Mapping[str, TrainingPlan | None], console: Console) -> None:
    rows = [
        (
            name,
            each.kind,
            byte_size(each.libraries_bytes),
            byte_size(each.nodes_bytes),
            byte_size(each.edges_bytes),
            byte_size(each.pinned_bytes) if each.pinned_bytes else "",
            *([byte_size(each.process_bytes)] if each.processes > 1 else []),
            byte_size(each.peak_bytes),
        )
        for name, each in trainings.items()
        if each is not None
    ]
    processes = max((each.processes for each in trainings.values() if each is not None), default=1)
    each_process = (f"each of {processes} processes",) if processes > 1 else ()
    columns = ("model", "kind", "libraries", "nodes", "edges", "pinned", *each_process, "peak memory")
    if rows:
        console.print()
        console.print(table("Training", columns, rows, columns[2:]))
        console.print(f"there is {byte_size(room.memory_bytes)}", markup=False)
    unknown = [name for name, each in trainings.items() if each is None]
    if unknown:
        console.print(f"not predicted for models of this kind: {', '.join(unknown)}", markup=False)


def _print(found: ImportPlan, console: Console) -> None:
    rows = [
        (
            each.name.replace("__", " "),
            _about(each.rows) if each.rows is not None else "",
            _gives(each),
            byte_size(each.size_bytes),
            byte_size(each.held_bytes),
            byte_size(each.scratch_bytes) if each.scratch_bytes else "",
        )
        for each in found.types
    ]
    columns = ("type", "rows", "gives", "on disk", "in memory", "scratch")
    console.print(table(f"Import of `{found.name}`", columns, rows, columns[1:]))
    console.print()
    console.print(table("Tiers", ("tier", "peak", "there is"), _tiers(found), ("peak", "there is")))
    console.print()
    for line in _remarks(found):
        console.print(line, markup=False)


def _remarks(found: ImportPlan) -> list[str]:
    memory = f"memory: {byte_size(found.memory_bytes)} are allowed"
    if found.in_memory_bytes > found.peak_memory_bytes:
        memory += f"; with {byte_size(found.in_memory_bytes)} nothing would be spilled"
    low, _, high = found.seconds
    read, write = byte_size(found.disk.read_bytes_per_s), byte_size(found.disk.write_bytes_per_s)
    whole = f"topology {byte_size(found.topology_bytes)}, features {byte_size(found.feature_bytes)}"
    graph, scratch = byte_size(found.size_bytes), byte_size(found.scratch_bytes)
    written = f"{byte_size(found.written_bytes)} are written in all"
    if found.written_range_bytes[1] > _FAR_APART * found.written_range_bytes[0]:
        least, most = map(byte_size, found.written_range_bytes)
        written = f"{written}: {least} to {most}, as it cannot be told whether something has to be spilled"
    measured = f"(measured: disk {read}/s read, {write}/s written; reading and building a part)"
    lines = [
        memory,
        f"disk: {graph} graph and {scratch} scratch at the peak; {written}",
        f"time: about {duration(low)} to {duration(high)} {measured}",
        f"all of the graph in memory later: {whole}, ids {byte_size(found.ids_bytes)}",
    ]
    lines += [f"estimated from a part: {each}" for each in found.uncertain]
    return lines if found.problems else [*lines, "it fits"]


def _tiers(found: ImportPlan) -> list[tuple[str, str, str]]:
    return [
        ("MEM", byte_size(found.peak_memory_bytes), byte_size(found.available_memory_bytes)),
        ("SSD", byte_size(found.peak_disk_bytes), byte_size(found.free_bytes)),
    ]


def _gives(each: TypePlan) -> str:
    if each.count.exact:
        return counted(each.count.likely, each.kind.removesuffix("s"))
    return f"{_about(each.count)} {each.kind}"


def _about(estimate: Estimate) -> str:
    return f"{estimate.likely:,}" if estimate.exact else f"~{count(estimate.likely)}"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "plan")(plan)
