"""Stage `train`: every model of the run file, one after the other; stops and resumes at a checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from graphbox.pipeline.earlier_models import earlier_models
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.pipeline.stages.import_graph import open_graph
from graphbox.pipeline.stages.split import load_splits

if TYPE_CHECKING:
    from graphbox.train import TrainProgress


def _run(context: StageContext) -> StageResult:
    import torch

    from graphbox.device import chosen_device, lacks_for_cuda
    from graphbox.train import fit, load_outcome
    from graphbox.train.fit import load_settled
    from graphbox.train.plan import check_room
    from graphbox.train.plan.decisions import place_trainings
    from graphbox.train.tracking.trackers import open_trackers

    config = context.config
    device = chosen_device(config.device)
    if config.device == "auto" and device.type == "cpu" and torch.cuda.is_available():
        context.progress.note(f"training on the CPU; there is {lacks_for_cuda()}")
    graph = open_graph(context)
    places = place_trainings(config, graph, device)
    check_room(config, graph, {name: each.plan.pinned_bytes for name, each in places.items() if each.plan})
    for name, place in places.items():
        if place.device.type != device.type:
            context.progress.note(f"`{name}` is trained on the CPU: {place.decisions[0].why}")
    splits = load_splits(context)
    earlier = earlier_models(config, context.workspace, context.run_id)
    about = {"name": config.name, "graph": config.graph.name, "seed": str(config.seed)}
    with open_trackers(config.track, context.run_path, context.run_id, about) as trackers:
        for name, model in config.models.items():
            context.stop.check()
            fit(
                graph,
                None if model.task is None else splits[model.task],
                name=name,
                config=model,
                task=None if model.task is None else config.tasks[model.task],
                run_folder=context.run_path,
                seed=config.seed,
                threads=config.threads,
                trackers=trackers,
                progress=lambda at: _show(context, at),
                stop=context.stop,
                at_once=context.stop.at_once,
                resume=context.resumed,
                memory=config.memory,
                device=places[name].device,
                processes=config.processes,
                start_from=earlier.get(name),
                decided_hbm=places[name].hbm,
            )
    report = {name: asdict(load_outcome(context.run_path, name)) for name in config.models}
    for name, place in places.items():
        report[name]["placement"] = place.as_dict()
        chosen = load_settled(context.run_path, name)
        if chosen is not None:
            report[name]["chosen"] = asdict(chosen)
    return StageResult(
        f"trained {', '.join(config.models)}", {"models": list(config.models)}, {"training": report}
    )


def _show(context: StageContext, at: TrainProgress) -> None:
    context.progress.step(at.model, at.epoch, at.epochs, "", {"epoch": at.epoch, **at.values})


STAGE = Stage(
    "train",
    _run,
    wanted=lambda config: bool(config.models),
    section="models",
    last_work="writing a checkpoint",
)
