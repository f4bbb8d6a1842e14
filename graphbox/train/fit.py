"""Trains one model of a run file, for its task if it has one."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from graphbox.config import HbmConfig, MemoryConfig, ModelConfig, ModelSection, TaskConfig
from graphbox.config.models.learnt_parts import LearntParts
from graphbox.durable import write_atomically
from graphbox.errors import NotFoundError, UsageError
from graphbox.graph import Graph
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.choosing.choose import CHOICES, Measured, Settled, settle, settled_earlier
from graphbox.train.choosing.facts import facts_of
from graphbox.train.choosing.figures import TrialFigure
from graphbox.train.choosing.pruning import MedianRule, curve_of
from graphbox.train.computing import computing_on, summing_in_order
from graphbox.train.distillation import EarlierModels, earlier_models
from graphbox.train.json_record import read_record
from graphbox.train.launch import TrainingOptions, TrainingPhase, job_of, launch
from graphbox.train.loop import (
    CHECKPOINT_INTERVAL_S,
    AtOnce,
    Outcome,
    ProgressCallback,
    StopCallback,
    TrainProgress,
    train,
)
from graphbox.train.memory import TrainingMemory, discard_table
from graphbox.train.metrics_log import MetricsLog
from graphbox.train.model_description import ModelDescription
from graphbox.train.processes import ALONE, TrainingProcesses, check_gpus, check_processes
from graphbox.train.tasks import Split
from graphbox.train.tracking.trackers import Tracker
from graphbox.train.trained import TrainedModel, load_trained, save_trained
from graphbox.train.trainer import Trainer
from graphbox.train.transfer import CPU
from graphbox.train.view import GraphView
from graphbox.train.warm_start import start_from as start_from_earlier

T = TypeVar("T")


def fit(
    graph: Graph,
    split: Split | None,
    *,
    name: str,
    config: ModelConfig,
    task: TaskConfig | None,
    run_folder: Path,
    seed: int,
    threads: int | None = None,
    trackers: tuple[Tracker, ...] = (),
    progress: ProgressCallback | None = None,
    stop: StopCallback | None = None,
    at_once: AtOnce = nullcontext,
    resume: bool = False,
    checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
    memory: MemoryConfig | None = None,
    device: torch.device = CPU,
    processes: int = 1,
    start_from: Path | None = None,
    decided_hbm: HbmConfig | None = None,
) -> TrainedModel:
    """Train a model, and write it and its embeddings into the folder of the run.

    The model sees the graph through :class:`graphbox.train.view.GraphView`. The vectors of the trained model
    come from the graph as it is known when the test fold is predicted.

    Args:
        graph: the whole graph.
        split: the split of the model's task; None: it has no task and sees the whole graph.
        name: name of the model.
        config: the model's section of the run file.
        task: the section of the model's task, or None.
        run_folder: folder of the run; see :func:`graphbox.train.loop.train` and
            :func:`graphbox.train.trained.save_trained` for what is written. Models that ``config`` names as
            teachers, or for positions, are in it already.
        seed: seed of every random choice. The same seed gives the same model, bit for bit, at the same
            number of torch threads on the CPU, and on the same kind of GPU.
        threads: threads for sampling, tables and torch; None: all CPUs of the process.
        trackers: get the figures of the training too.
        progress: called with where the training is.
        stop: asked after each batch whether to stop.
        at_once: see :func:`graphbox.train.loop.train`; also around what prepares the training, and around
            making the vectors of the trained model.
            Several processes stop only after a batch.
        resume: go on from the last checkpoint, if there is one.
        checkpoint_interval_s: seconds between checkpoints.
        memory: budgets of what is read from disk; without any all is in memory.
        device: where the model computes, see :func:`graphbox.device.chosen_device`. A training may go on
            from a checkpoint of another device.
        processes: how many train together, each on its part of every batch: on GPUs one on each, from 0 on.
            The same seed gives the same model for the same number of them, and the same up to rounding for
            any, but for what is left out by ``dropout``. A training may go on with another number.
        start_from: checkpoints of an earlier model of the same kind (``<run>/checkpoints/<model>``), whose
            rows and weights the training starts from, see :func:`graphbox.train.warm_start.start_from`; a
            resumed training has them already. None: it starts anew.
        decided_hbm: budgets of the GPU's memory that placement decided; None: those of ``memory``.

    Raises:
        UsageError: the model and the task or the graph do not fit together, or several processes cannot train
            such a model.
        BackendMissingError: there are not as many GPUs.
        ProcessLostError: one of several processes was ended.
        TimeLimitError: one of several processes did not answer.
        DoesNotFitError: the GPU has too little memory.
        InterruptedRunError: ``stop`` asked to; a checkpoint was written.
        GraphboxError: the loss is no longer a finite number.
        FormatError: the checkpoint is damaged.
        ConflictError: the checkpoint was made with other settings.
    """
    options = TrainingOptions(
        name,
        run_folder,
        seed,
        threads,
        resume,
        checkpoint_interval_s,
        memory or MemoryConfig(),
        str(device),
        start_from,
        decided_hbm,
    )
    if config.auto or config.tune is not None:
        hooks = _Hooks(progress, stop, at_once)
        chosen = _settled(graph, split, config, task, options, hooks)
        # The run of the trial that won is that of the model: it is not trained again.
        options = replace(options, resume=_take_over(chosen, config, options) or resume)
        config = config.settled(chosen.settings)
    if processes > 1:
        check_processes(processes, config, task, name, options.memory)
        check_gpus(processes, device)

    def train_once(config: ModelConfig, options: TrainingOptions) -> TrainedModel | None:
        if processes == 1:
            return fit_in_process(
                graph, split, config, task, options, trackers, progress, stop, at_once=at_once
            )
        job = job_of(graph, split, config, task, options, processes)
        launch(job, processes, progress=progress, trackers=trackers, stop=stop)
        return None if options.is_first else load_trained(run_folder, name)

    if isinstance(config, LearntParts) and config.validate_first:
        trained = fit_twice(config, split, options, train_once)
    else:
        trained = train_once(config, options)
    assert trained is not None  # noqa: S101 - a training that is not the first of two ends with a model
    return trained


def fit_twice(
    config: ModelConfig,
    split: Split | None,
    options: TrainingOptions,
    train_once: Callable[[ModelConfig, TrainingOptions], TrainedModel | None],
) -> TrainedModel | None:
    """Train a model on the training part alone, then on the validation part as well, for as many epochs.

    The second training follows the same schedule of learning rates, and ends after the epoch that was best in
    the first; where the first was not to choose one, both train all epochs. What the first measured is in the
    outcome of the second. The first starts anew even where the second starts from an earlier run, which may
    have seen the validation part.

    Args:
        config: the model's section of the run file, which learns from both parts.
        split: the split of its task.
        options: of the trainings.
        train_once: trains a model, and writes its outcome and, of the second, what was trained into the
            folder of the run.
    """
    file = options.run_folder / "trained" / options.name / "first.json"
    of_first = replace(options, start_from=None, phase=TrainingPhase("first"))
    alone = config.model_copy(update={"train_on": "train", "validate_first": False})
    settings = _settings(alone, split, options.seed, EarlierModels())
    known: dict[str, Any] = {}
    if options.resume and file.exists():
        known = read_record(file, dict, "remove the file; the first training is repeated")
    if known.get("settings") != settings:
        file.unlink(missing_ok=True)
        train_once(alone, of_first)
        known = {"settings": settings, "outcome": asdict(load_outcome(options.run_folder, options.name))}
        with write_atomically(file) as stream:
            stream.write(json.dumps(known, indent=1).encode())
        shutil.rmtree(options.run_folder / "checkpoints" / of_first.logged_name, ignore_errors=True)
    first = Outcome(**known["outcome"])
    most = first.epochs if first.best_epoch is None else first.best_epoch
    trained = train_once(config, replace(options, phase=TrainingPhase("final", most)))
    final = load_outcome(options.run_folder, options.name)
    about = {"epochs": first.epochs, "steps": first.steps, "stage_seconds": first.stage_seconds}
    _write_outcome(
        replace(final, validation=first.validation, best_epoch=first.best_epoch, first=about), options
    )
    return trained


def fit_in_process(
    graph: Graph,
    split: Split | None,
    config: ModelConfig,
    task: TaskConfig | None,
    options: TrainingOptions,
    trackers: tuple[Tracker, ...],
    progress: ProgressCallback | None,
    stop: StopCallback | None,
    processes: TrainingProcesses = ALONE,
    at_once: AtOnce = nullcontext,
) -> TrainedModel | None:
    """Train a model in this process, see :func:`fit`; of several, rank 0 alone has the trained model.

    The first of two trainings ends with its outcome alone.
    """
    name, run_folder = options.name, options.run_folder

    def finish(trainer: Trainer, outcome: Outcome, place: TrainingMemory) -> TrainedModel | None:
        if not processes.is_first:
            return None
        trained: TrainedModel | None = None
        if not options.is_first:
            with at_once():
                trained = trainer.trained(name, GraphView(graph, split, "test"))
        outcome = replace(outcome, places={**outcome.places, **place.table_places()})
        if trained is not None:
            save_trained(trained, graph, run_folder)
        _write_outcome(outcome, options)
        if trained is None:
            return None
        are_on_disk = any(table.path is not None for table in trainer.tables().values())
        of_tables = trained.click is not None or trained.network is not None
        return None if of_tables and are_on_disk else trained

    hooks = _Hooks(progress, stop, at_once)
    trained = _trained_in_process(
        graph, split, config, task, options, trackers, hooks, processes, finish, run_folder
    )
    if trained is None and processes.is_first and not options.is_first:
        return load_trained(run_folder, name)  # whose rows were those of the tables
    return trained


@dataclass(frozen=True)
class _Hooks:
    """Whom to tell of a training, and how it is stopped; see :func:`fit`."""

    progress: ProgressCallback | None
    stop: StopCallback | None
    at_once: AtOnce
    gives_up: Callable[[Trainer], bool] | None = None
    """Asked after each measured epoch, see :func:`graphbox.train.loop.train`."""


def _trained_in_process(
    graph: Graph,
    split: Split | None,
    config: ModelConfig,
    task: TaskConfig | None,
    options: TrainingOptions,
    trackers: tuple[Tracker, ...],
    hooks: _Hooks,
    processes: TrainingProcesses,
    finish: Callable[[Trainer, Outcome, TrainingMemory], T],
    earlier_folder: Path,
) -> T:
    """Train a model and return what ``finish`` makes of its trainer, whose tables are there until then.

    ``earlier_folder`` has the models that the section names as teachers, or for positions.
    """
    name, run_folder, threads = options.name, options.run_folder, options.threads
    device = torch.device(options.device)
    view = GraphView(graph, split, "test" if config.sees_validation else "train")
    place = TrainingMemory(
        options.memory, run_folder / "tables" / name, processes, device, options.decided_hbm
    )
    if processes.is_first:
        place.clear()
    earlier = earlier_models(config, name, earlier_folder)
    assignment = Assignment(
        name,
        view,
        split,
        task,
        options.seed,
        threads,
        memory=place,
        device=device,
        processes=processes,
        earlier=earlier,
    )
    with torch_threads(threads), computing_on(device, name, config):
        with hooks.at_once():
            trainer = make_trainer(config, assignment)
        description = ModelDescription.of_trainer(trainer, config, task, options.seed, view)
        try:
            with summing_in_order(device, wanted=trainer.sums_in_order):
                outcome = train(
                    trainer,
                    model=options.logged_name,
                    run_folder=run_folder,
                    settings=_settings(config, split, options.seed, earlier, options.phase),
                    clock=assignment.clock,
                    trackers=trackers,
                    progress=hooks.progress,
                    stop=hooks.stop,
                    at_once=hooks.at_once,
                    resume=options.resume,
                    threads=threads,
                    checkpoint_interval_s=options.checkpoint_interval_s,
                    processes=processes,
                    description=description,
                    most_epochs=None if options.phase is None else options.phase.most_epochs,
                    gives_up=None if hooks.gives_up is None else partial(hooks.gives_up, trainer),
                    start=None
                    if options.start_from is None
                    else partial(
                        start_from_earlier,
                        options.start_from,
                        trainer,
                        description,
                        model=name,
                        memory=place,
                        threads=threads,
                    ),
                )
                found = finish(trainer, outcome, place)
        finally:
            trainer.close()
            place.release()
            place.remove_folders()
    for table in trainer.tables().values():
        discard_table(table)
    return found


def _settled(
    graph: Graph,
    split: Split | None,
    config: ModelConfig,
    task: TaskConfig | None,
    options: TrainingOptions,
    hooks: _Hooks,
) -> Settled:
    """Return what the data chooses of a section's settings, by trainings in this process where it has to."""
    folder = options.run_folder / CHOICES / options.name
    if not options.resume:
        shutil.rmtree(folder, ignore_errors=True)
    if options.start_from is not None:
        before = settled_earlier(options.start_from.parents[1] / CHOICES / options.start_from.name)
        settings = {} if before is None else before.settings
        return Settled(settings, "as in the run that it starts from")
    if config.tune is not None and (split is None or task is None):
        raise UsageError(
            "expected a task to measure settings on, received none",
            where=f"models.{options.name}.tune",
            hint="name a task of the run file, or leave `tune` out",
        )
    touched = getattr(config, "relations", ()) or getattr(config, "edge_types", ())
    facts = facts_of(graph, split, touched, reads_edges=options.memory.topology is None)

    def try_settings(
        section: ModelSection, place: Path, is_over: Callable[[], bool], rule: MedianRule | None
    ) -> Measured:
        of_trial = replace(options, run_folder=place, resume=True)
        of_hooks = _hooks_of_trial(hooks, place, is_over)
        return _measured(graph, split, section, task, of_trial, of_hooks, rule)

    return settle(
        config,
        facts,
        folder,
        try_settings,
        seed=options.seed,
        compares=facts.validation > 0,
    )


def _hooks_of_trial(hooks: _Hooks, place: Path, is_over: Callable[[], bool]) -> _Hooks:
    def show(at: TrainProgress) -> None:
        if hooks.progress is not None:
            hooks.progress(replace(at, model=f"{at.model}, {place.name.replace('-', ' ')}"))

    return _Hooks(show, lambda: is_over() or (hooks.stop is not None and hooks.stop()), hooks.at_once)


def _measured(
    graph: Graph,
    split: Split | None,
    config: ModelSection,
    task: TaskConfig | None,
    options: TrainingOptions,
    hooks: _Hooks,
    rule: MedianRule | None,
) -> Measured:
    """Train on the training part alone and measure on the validation part; the rule may end it early."""
    from graphbox.train.evaluate import evaluate_trained

    assert split is not None and task is not None  # noqa: S101, PT018 - without them nothing is compared
    log = MetricsLog(options.run_folder / "metrics.jsonl", options.logged_name)

    def exceeded(trainer: Trainer) -> float | None:
        return None if rule is None else rule.exceeded(TrialFigure.of_trainer(trainer, task).reports(log))

    def finish(trainer: Trainer, outcome: Outcome, _: TrainingMemory) -> Measured:
        figure = TrialFigure.of_trainer(trainer, task)
        curve, median = curve_of(figure.reports(log)), exceeded(trainer)
        if median is not None:
            share, cost = curve[-1]
            value, best = figure.cost(cost), round(share * trainer.epochs)
            return Measured(figure.name, value, cost, outcome.epochs, best, figure.cost(median), curve)
        if outcome.best_value is not None:
            value, cost = outcome.best_value, figure.cost(outcome.best_value)
            return Measured(figure.name, value, cost, outcome.epochs, outcome.best_epoch, None, curve)
        with hooks.at_once():
            trained = trainer.trained(options.name, GraphView(graph, split, "validation"))
            value = float(evaluate_trained(graph, split, task, trained, "validation")[task.deciding_metric])
        return Measured(task.deciding_metric, value, -value, outcome.epochs, None, None, curve)

    learns = {"train_on": "train"} if config.sees_validation else {}
    section = config.model_copy(update=learns)
    earlier_folder = options.run_folder.parents[2]  # <run>/choices/<model>/<trial>
    hooks = replace(hooks, gives_up=lambda trainer: exceeded(trainer) is not None)
    return _trained_in_process(graph, split, section, task, options, (), hooks, ALONE, finish, earlier_folder)


def _take_over(chosen: Settled, config: ModelConfig, options: TrainingOptions) -> bool:
    """Let the run of the trial that won be that of the model; return whether there is one.

    A model that learns from the validation part as well is trained anew.
    """
    choices = options.run_folder / CHOICES / options.name
    if chosen.trained is None or config.sees_validation:
        for place in choices.glob("trial-*"):
            shutil.rmtree(place)
        return False
    trial = choices / chosen.trained
    checkpoints = options.run_folder / "checkpoints" / options.name
    source = trial / "checkpoints" / options.name
    if source.is_dir():
        if checkpoints.exists():
            shutil.rmtree(checkpoints)
        MetricsLog(options.run_folder / "metrics.jsonl", options.name).take_over(trial / "metrics.jsonl")
        checkpoints.parent.mkdir(parents=True, exist_ok=True)
        source.rename(checkpoints)
        shutil.rmtree(trial)
    return True


def load_settled(run_folder: Path, name: str) -> Settled | None:
    """Return the settings that the data chose for a model; None: it left none to choose."""
    return settled_earlier(run_folder / CHOICES / name)


def _write_outcome(outcome: Outcome, options: TrainingOptions) -> None:
    with write_atomically(options.run_folder / "trained" / options.name / "outcome.json") as stream:
        stream.write(json.dumps(asdict(outcome), indent=1).encode())


def load_outcome(run_folder: Path, name: str) -> Outcome:
    """Return how the training of a model ended.

    Raises:
        NotFoundError: the model is not trained yet.
        FormatError: the file is damaged.
    """
    path = run_folder / "trained" / name / "outcome.json"
    try:
        return read_record(
            path, Outcome, "run the stage `train` again: it is resumed from the last checkpoint"
        )
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no trained model `{name}` in this run", where=str(run_folder), hint="train it first"
        ) from None


def _settings(
    config: ModelConfig,
    split: Split | None,
    seed: int,
    earlier: EarlierModels,
    phase: TrainingPhase | None = None,
) -> str:
    """Return a digest of everything that must be the same when a training is resumed."""
    held_out = "nothing" if split is None else split.digest
    taken = earlier.digest
    text = f"{_settings_text(config)} {held_out} {seed}{' ' if taken else ''}{taken}"
    if phase is not None:
        text += f" {phase.name} {phase.most_epochs}"
    return hashlib.sha256(text.encode()).hexdigest()


def _settings_text(config: ModelConfig) -> str:
    """Return the settings as JSON, without those that say how the others were chosen.

    `validate_first` counts where it is set: it came later.
    """
    is_set = isinstance(config, LearntParts) and config.validate_first
    return config.model_dump_json(exclude={"auto", "tune"} | (set() if is_set else {"validate_first"}))


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Let torch have so many threads while the block runs; None: as many as it has."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
