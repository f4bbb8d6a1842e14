"""Stage `evaluate`: models and baselines on the test part of their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from graphbox.artifact import LookupForm
from graphbox.config import (
    ClassifyTaskConfig,
    ClickTaskConfig,
    NextTaskConfig,
    PredictLinksTaskConfig,
    RecommendTaskConfig,
    evaluation_settings,
)
from graphbox.errors import InterruptedRunError, UsageError
from graphbox.pipeline.measured import Measured
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.pipeline.stages.import_graph import open_graph
from graphbox.pipeline.stages.split import load_splits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphbox.config import TaskConfig
    from graphbox.deploy import DeployedEncoder, DeployedKnowledgeGraph, DeployedModel
    from graphbox.graph import Graph
    from graphbox.metrics import Measure, Watch
    from graphbox.train.tasks import NextSplit, Split

Metrics = dict[str, float | int]


def _run(context: StageContext) -> StageResult:
    config = context.config
    with context.stop.at_once():  # loading the libraries takes longer than all else before the first measure
        from graphbox.train import load_outcome
        from graphbox.train.evaluate import planned_baselines
        from graphbox.train.figure_notes import figure_note

        graph = open_graph(context)
        splits = load_splits(context)
    measured = Measured(context.run_path)
    metrics: dict[str, dict[str, Metrics]] = {task: {} for task in config.tasks}
    baselines: dict[str, dict[str, Metrics]] = {task: {} for task in config.tasks}
    left_out: dict[str, Mapping[str, str]] = {}
    notes: dict[str, dict[str, str]] = {task: {} for task in config.tasks}
    for name, task in config.tasks.items():
        with context.stop.at_once():
            planned = planned_baselines(graph, splits[name], task, "test", config.seed)
        left_out[name] = planned.left_out
        inputs = _inputs(context, splits[name], task)
        for baseline, measure in planned.measures.items():
            work = partial(_measure, context, f"{baseline} of {name}", measure)
            baselines[name][baseline] = measured.get(f"baseline {name} {baseline}", inputs, work)
    for name, model in config.models.items():
        if model.task is None:
            continue
        task, split = config.tasks[model.task], splits[model.task]
        inputs = [*_inputs(context, split, task), model.model_dump(mode="json")]
        measure = partial(_measure_model, context, graph, split, task, name)
        work = partial(_measure, context, name, measure)
        metrics[model.task][name] = measured.get(f"model {name}", inputs, work)
        note = figure_note(model, task, split, load_outcome(context.run_path, name).validation)
        if note is not None:
            notes[model.task][name] = note
    report = {
        "metrics": metrics,
        "baselines": baselines,
        "baselines_left_out": left_out,
        "notes": notes,
    }
    return StageResult(", ".join(_best(context, metrics)), {"metrics": metrics}, report)


def _inputs(context: StageContext, split: Split, task: TaskConfig) -> list[Any]:
    """Return what every measurement of a task depends on; the list of baselines is no part of it."""
    settings = task.model_dump(mode="json", exclude={"baselines"})
    return [context.output("import", "fingerprint"), split.digest, context.config.seed, settings]


def _measure_model(
    context: StageContext, graph: Graph, split: Split, task: TaskConfig, name: str, watch: Watch
) -> Metrics:
    from graphbox.train import evaluate_trained, load_trained
    from graphbox.train.distillation import teacher_agreement, teachers_of

    trained = load_trained(context.run_path, name)
    metrics = evaluate_trained(graph, split, task, trained, watch=watch)
    teachers = teachers_of(context.config.models[name])
    if teachers:
        said = [load_trained(context.run_path, each) for each in teachers]
        metrics["teacher_agreement"] = teacher_agreement(trained, said, graph, split, task, watch=watch)
    return metrics


def _measure(context: StageContext, what: str, measure: Measure) -> Metrics:
    """Measure with progress.

    Raises:
        InterruptedRunError: stopped on request; says what was being measured.
    """
    from graphbox.metrics import Watch

    reached = ""

    def step(done: int, total: int) -> None:
        nonlocal reached
        reached = f", {done:,} of {total:,} done"
        context.progress.step(what, done, total, "queries")

    context.progress.step(what, 0, None)
    try:
        with context.stop.at_once():
            return measure(Watch(step, context.stop.check))
    except InterruptedRunError as error:
        raise InterruptedRunError(f"measuring {what}{reached}") from error


def _best(context: StageContext, metrics: dict[str, dict[str, Metrics]]) -> Iterator[str]:
    """Give the best model's deciding metric for each task."""
    for name, task in context.config.tasks.items():
        key = task.deciding_metric
        if metrics[name]:
            yield f"{name} {key} {max(values[key] for values in metrics[name].values()):.3f}"


def evaluate_deployed(
    model: DeployedModel, graph: Graph, split: Split, task: TaskConfig, fold: Literal["validation", "test"]
) -> Metrics:
    """Measure a model on a held-out part of its task as it is served: looked up, encoded, ranked.

    On the validation part two versions of a model can be compared. It is no measure of a model that was
    given that part, as most finished ones were.
    """
    from graphbox.deploy import DeployedClick, DeployedEncoder, DeployedKnowledgeGraph
    from graphbox.models.click_fields import ClickFields
    from graphbox.train import ClickSplit, CompleteSplit
    from graphbox.train.click.evaluation import evaluate_probabilities
    from graphbox.train.completion.evaluation import rank_triples

    if isinstance(model, DeployedEncoder):
        return _evaluate_encoder(model, graph, split, task, fold)
    if (
        isinstance(model, DeployedClick)
        and isinstance(task, ClickTaskConfig)
        and isinstance(split, ClickSplit)
    ):
        fields = ClickFields(model.fields.fields, model.fields.crosses)
        return evaluate_probabilities(
            graph, split, task, fields, lambda rows: model.predict_rows(rows).probabilities, fold
        )
    if isinstance(model, DeployedKnowledgeGraph) and isinstance(split, CompleteSplit):
        num_nodes = {node_type: graph.num_nodes(node_type) for node_type in split.node_types}
        scores = partial(_scores_of_triples, model, graph, split.relations)
        return rank_triples(split, fold, num_nodes, scores)
    raise UsageError(
        f"a model of kind {model.manifest.kind} does no task of kind {task.kind}",
        where=str(model.artifact.path),
    )


def _scores_of_triples(
    model: DeployedKnowledgeGraph,
    graph: Graph,
    names: Sequence[str],
    nodes: NDArray[np.int64],
    relations: NDArray[np.int64],
    *,
    to_heads: bool,
) -> NDArray[np.float32]:
    """Return the scores of all candidates: float32 [n, nodes], -inf of removed ones."""
    import numpy as np

    from graphbox.graph.live_rows import LiveRows

    parts = {}
    for number in np.unique(relations).tolist():
        ends = model.form.ends[names[number]]
        asked, candidates = (LiveRows.of_graph(graph, ends[end]) for end in (to_heads, not to_heads))
        rows = asked.rows(nodes[relations == number])
        found = model.scores(names[number], rows, to_heads=to_heads)
        parts[number] = candidates.spread(found, fill=-np.inf, axis=1)
    scores = np.empty((len(nodes), next(iter(parts.values())).shape[1]), np.float32)
    for number, part in parts.items():
        scores[relations == number] = part
    return scores


def _evaluate_encoder(
    model: DeployedEncoder,
    graph: Graph,
    split: Split,
    task: TaskConfig,
    fold: Literal["validation", "test"],
) -> Metrics:
    import numpy as np

    from graphbox.graph.live_rows import LiveRows
    from graphbox.train import (
        LinkSplit,
        NextSplit,
        evaluate_embeddings,
        evaluate_link_embeddings,
        evaluate_scores,
    )
    from graphbox.train.evaluate import evaluate_class_probabilities
    from graphbox.train.links.evaluation import evaluate_pairs, inner_products

    if isinstance(task, PredictLinksTaskConfig) and isinstance(split, LinkSplit):
        target = model.manifest.targets[split.node_type]
        if target.score == "inner_product":
            # Vectors that were trained to be multiplied: those of targets are in a table of their own.
            sources = _vectors(model, graph, split.node_type)
            candidates = _candidates(model, graph, split.target_type, target.table)
            return evaluate_pairs(split, task, inner_products(sources, candidates), fold)
        sources, targets = (_vectors(model, graph, name) for name in (split.node_type, split.target_type))
        return evaluate_link_embeddings(graph, split, task, sources, targets, fold)
    if isinstance(task, NextTaskConfig) and isinstance(split, NextSplit):
        return _evaluate_next(model, graph, split, task, fold)
    if model.classes:
        live = LiveRows.of_graph(graph, split.node_type)
        _, probabilities = model.classify_indices(np.arange(len(live), dtype=np.int64))
        return evaluate_class_probabilities(split, live.spread(probabilities), fold)
    target = model.manifest.targets[split.node_type]
    if not isinstance(task, RecommendTaskConfig) or target.score == "cosine":
        names: tuple[str, ...] = (split.node_type,)
        form = model.artifact.preprocess
        if isinstance(task, ClassifyTaskConfig) and task.neighbors and isinstance(form, LookupForm):
            names = tuple(form.tables)
        embeddings = {name: _vectors(model, graph, name) for name in names}
        return evaluate_embeddings(graph, split, task, embeddings, fold)
    candidates = _candidates(model, graph, model.target_type(split.node_type), target.table)
    live = LiveRows.of_graph(graph, split.node_type)

    def score(queries: NDArray[np.int64]) -> NDArray[np.float32]:
        vectors = model.encode_indices(live.rows(queries), split.node_type)
        return np.asarray(vectors @ candidates.T, np.float32)

    return evaluate_scores(graph, split, task, score, fold)


def _evaluate_next(
    model: DeployedEncoder,
    graph: Graph,
    split: NextSplit,
    task: NextTaskConfig,
    fold: Literal["validation", "test"],
) -> Metrics:
    """Rank items for held-out events: by their histories as requests send them, or by stored vectors."""
    import numpy as np

    from graphbox.deploy import UnseenNode
    from graphbox.graph.live_rows import LiveRows
    from graphbox.train.sequences.evaluation import rank_events, scores_of

    events, items = split.tested(fold), split.target_type
    if model.encodes_unseen:
        histories, (relation,) = split.histories(events), model.unseen_reader.relations
        live = LiveRows.of_graph(graph, items)
        there = live.nodes(live.rows(histories.values)) == histories.values
        ids = np.full(len(there), None, object)
        ids[there] = model.ids(live.rows(histories.values[there]), items)
        pieces = np.split(ids, histories.offsets[1:-1])
        nodes = [
            UnseenNode(neighbors={relation: [each for each in piece if each is not None]}) for piece in pieces
        ]
        vectors = model.encode_unseen(nodes)
    else:
        vectors = _vectors(model, graph, split.node_type)[split.nodes_of(events)]
    candidates = _candidates(model, graph, items, model.manifest.targets[split.node_type].table)
    return rank_events(graph, split, task, scores_of(vectors, events, candidates), fold)


def _vectors(model: DeployedEncoder, graph: Graph, node_type: str) -> NDArray[np.float32]:
    """Return what the model encodes each node as, zeros of removed ones: float32 [nodes, dim]."""
    import numpy as np

    from graphbox.graph.live_rows import LiveRows

    live = LiveRows.of_graph(graph, node_type)
    return live.spread(model.encode_indices(np.arange(len(live), dtype=np.int64), node_type))


def _candidates(model: DeployedEncoder, graph: Graph, node_type: str, table: str) -> NDArray[np.float32]:
    """Return the vectors that queries are ranked against, zeros of removed nodes: float32 [nodes, dim]."""
    import numpy as np

    from graphbox.graph.live_rows import LiveRows

    live = LiveRows.of_graph(graph, node_type)
    return live.spread(model.artifact.table(table).rows(np.arange(len(live), dtype=np.int64)))


STAGE = Stage(
    "evaluate",
    _run,
    wanted=lambda config: bool(config.models),
    section="models",
    last_work="keeping the metrics measured so far",
    reads=evaluation_settings,
    needs=("train",),
    discard=Measured.discard,
)
