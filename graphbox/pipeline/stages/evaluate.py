"""Stage `evaluate`: models and baselines on the test part of their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from graphbox.artifact import LookupForm
from graphbox.config import ClassifyTaskConfig, ClickTaskConfig, PredictLinksTaskConfig, RecommendTaskConfig
from graphbox.errors import UsageError
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.pipeline.stages.import_graph import open_graph
from graphbox.pipeline.stages.split import load_splits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphbox.config import TaskConfig
    from graphbox.deploy import DeployedEncoder, DeployedKnowledgeGraph, DeployedModel
    from graphbox.graph import Graph
    from graphbox.train.tasks import Split

__all__ = ["STAGE", "evaluate_deployed"]

Metrics = dict[str, float]


def _run(context: StageContext) -> StageResult:
    from graphbox.train import evaluate_baselines, evaluate_trained, load_trained

    config = context.config
    graph = open_graph(context)
    splits = load_splits(context)
    metrics: dict[str, dict[str, Metrics]] = {task: {} for task in config.tasks}
    baselines: dict[str, Any] = {}
    parts = len(config.tasks) + len(config.models)
    for number, (name, task) in enumerate(config.tasks.items()):
        context.progress.step(f"baselines of {name}", number, parts)
        context.stop.check()
        baselines[name] = evaluate_baselines(graph, splits[name], task)
    for number, (name, model) in enumerate(config.models.items(), start=len(config.tasks)):
        context.progress.step(f"model {name}", number, parts)
        context.stop.check()
        if model.task is None:
            continue
        task, split = config.tasks[model.task], splits[model.task]
        trained = load_trained(context.run_path, name)
        metrics[model.task][name] = evaluate_trained(graph, split, task, trained)
    report = {"metrics": metrics, "baselines": baselines}
    return StageResult(", ".join(_best(context, metrics)), {"metrics": metrics}, report)


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
            graph, split, task, fields, lambda rows: model.predict_rows(rows).probability, fold
        )
    if isinstance(model, DeployedKnowledgeGraph) and isinstance(split, CompleteSplit):
        num_nodes = {node_type: graph.num_nodes(node_type) for node_type in split.node_types}
        return rank_triples(split, fold, num_nodes, partial(_scores_of_triples, model, split.relations))
    raise UsageError(
        f"a model of kind {model.manifest.kind} does no task of kind {task.kind}",
        where=str(model.artifact.path),
    )


def _scores_of_triples(
    model: DeployedKnowledgeGraph,
    names: Sequence[str],
    nodes: NDArray[np.int64],
    relations: NDArray[np.int64],
    *,
    to_heads: bool,
) -> NDArray[np.float32]:
    """Return the scores of all candidates: float32 [n, candidates]."""
    import numpy as np

    parts = {
        number: model.scores(names[number], nodes[relations == number], to_heads=to_heads)
        for number in np.unique(relations).tolist()
    }
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

    from graphbox.train import LinkSplit, evaluate_embeddings, evaluate_link_embeddings, evaluate_scores
    from graphbox.train.links.evaluation import evaluate_pairs, inner_products

    if isinstance(task, PredictLinksTaskConfig) and isinstance(split, LinkSplit):
        target = model.manifest.targets[split.node_type]
        if target.score == "inner_product":
            # Vectors that were trained to be multiplied: those of targets are in a table of their own.
            sources = model.encode_indices(
                np.arange(graph.num_nodes(split.node_type), dtype=np.int64), split.node_type
            )
            count = graph.num_nodes(split.target_type)
            candidates = model.artifact.table(target.table).rows(np.arange(count, dtype=np.int64))
            return evaluate_pairs(split, task, inner_products(sources, candidates), fold)
        sources, targets = (
            model.encode_indices(np.arange(graph.num_nodes(name), dtype=np.int64), name)
            for name in (split.node_type, split.target_type)
        )
        return evaluate_link_embeddings(split, task, sources, targets, fold)
    target = model.manifest.targets[split.node_type]
    if not isinstance(task, RecommendTaskConfig) or target.score == "cosine":
        names: tuple[str, ...] = (split.node_type,)
        form = model.artifact.preprocess
        if isinstance(task, ClassifyTaskConfig) and task.neighbors and isinstance(form, LookupForm):
            names = tuple(form.tables)
        embeddings = {
            name: model.encode_indices(np.arange(graph.num_nodes(name), dtype=np.int64), name)
            for name in names
        }
        return evaluate_embeddings(graph, split, task, embeddings, fold)
    count = graph.num_nodes(model.target_type(split.node_type))
    candidates = model.artifact.table(target.table).rows(np.arange(count, dtype=np.int64))
    return evaluate_scores(
        graph,
        split,
        task,
        lambda queries: np.asarray(model.encode_indices(queries, split.node_type) @ candidates.T, np.float32),
        fold,
    )


STAGE = Stage("evaluate", _run, wanted=lambda config: bool(config.models), section="models")
