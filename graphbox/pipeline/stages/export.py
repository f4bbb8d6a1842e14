"""Stage `export`: trained models become artifacts, compared with the trained model before they count."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from graphbox.config import ExportConfig, RunConfig, result_settings
from graphbox.errors import UsageError
from graphbox.pipeline.artifacts import measured_by, new_version, register
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.pipeline.stages.evaluate import evaluate_deployed
from graphbox.pipeline.stages.import_graph import open_graph
from graphbox.pipeline.stages.split import load_splits

if TYPE_CHECKING:
    from graphbox.export import ExportResult, NewVersion, ParityBounds
    from graphbox.graph import Graph
    from graphbox.train import TrainedModel
    from graphbox.train.tasks import Split


def _run(context: StageContext) -> StageResult:
    config = context.config
    graph = open_graph(context)
    splits = load_splits(context)
    versions: dict[str, int] = {}
    report: dict[str, Any] = {}
    for number, (name, export) in enumerate(config.export.items()):
        context.progress.step(name, number, len(config.export), "artifacts")
        context.stop.check()
        version, folder = new_version(context, "export", name)
        task = config.models[export.model].task
        split = None if task is None else splits[task]
        result = _export(context, graph, split, name, export, version, str(folder))
        measured = measured_by(context, result.artifact.manifest.task)
        record = register(context.workspace, result.artifact, run_id=context.run_id, measured=measured)
        versions[name] = version
        parity = result.parity.as_dict() if result.parity is not None else {}
        about = {"model": export.model, "version": version, "size_bytes": record.size_bytes}
        report[name] = {**about, "kind": record.kind, "precision": record.precision, **parity}
    summary = ", ".join(f"{name} version {version}" for name, version in versions.items())
    return StageResult(summary, {"versions": versions}, {"export": report})


def _export(
    context: StageContext,
    graph: Graph,
    split: Split | None,
    name: str,
    export: ExportConfig,
    version: int,
    folder: str,
) -> ExportResult:
    from graphbox.artifact import Lineage
    from graphbox.export import NewVersion, ParityBounds
    from graphbox.train import evaluate_trained, load_trained

    trained = load_trained(context.run_path, export.model)
    metrics = {}
    if trained.task is not None and split is not None:
        metrics[trained.task] = context.output("evaluate", "metrics")[trained.task][export.model]
        if trained.link_scores is not None:
            # Said of events as they went by, by a model that learnt on. What is served are its vectors.
            task, served = context.config.tasks[trained.task], replace(trained, link_scores=None)
            metrics[trained.task] = evaluate_trained(graph, split, task, served)
    lineage = Lineage(
        run=context.run_id, graph=context.config.graph.name, steps=(f"train {export.model}", "export")
    )
    new = NewVersion(folder, name, version, trained.task, metrics, lineage)
    bounds = ParityBounds(export.parity_rows, export.max_absolute_error, export.max_relative_error)
    if trained.click is not None:
        table = context.config.graph.nodes.get(trained.node_type)  # None: a stored graph, taken as it is
        separator = None if table is None else table.list_separator
        return _export_click(graph, split, trained, new, bounds, separator)
    if trained.triples is not None:
        return _export_triples(graph, split, trained, new, bounds)
    forms = context.config.models[export.model].EXPORT_FORMS
    if (export.form or forms[0]) == "encoder" and trained.network is not None:
        return _export_network(context, graph, split, trained, export, new, bounds)
    if (export.form or forms[0]) == "encoder" and trained.sequence is not None:
        return _export_sequence(graph, split, trained, new, bounds)
    return _export_vectors(graph, split, trained, export, new, bounds)


def _export_vectors(
    graph: Graph,
    split: Split | None,
    trained: TrainedModel,
    export: ExportConfig,
    new: NewVersion,
    bounds: ParityBounds,
) -> ExportResult:
    from graphbox.export import EmbeddingSource, export_embedding, export_encoder
    from graphbox.train.network.network_files import save_network

    candidates = None
    if trained.target is not None and trained.target_type is not None:
        candidates = (trained.target_type, trained.target)
    node_types = {*trained.embeddings, *(() if candidates is None else candidates[:1])}
    new = _with_links(graph, split, node_types, new)
    if trained.encoder is None:
        ids = {node_type: graph.arrow_ids(node_type) for node_type in node_types}
        source = EmbeddingSource(
            trained.node_type,
            ids,
            trained.embeddings,
            candidates=candidates,
            unknown_ids=export.unknown_ids,
        )
        network = trained.network
        # Only a run file names code: a layer of one's own stays with its run.
        if network is None or ":" in network.config.layer:
            return export_embedding(source, new)
        return export_embedding(source, new, network=partial(save_network, network))
    ids = {node_type: graph.arrow_ids(node_type) for node_type in trained.encoder.inputs}
    return export_encoder(trained.encoder, ids, new, bounds)


def _export_network(
    context: StageContext,
    graph: Graph,
    split: Split | None,
    trained: TrainedModel,
    export: ExportConfig,
    new: NewVersion,
    bounds: ParityBounds,
) -> ExportResult:
    from graphbox.export import NetworkSource, export_network
    from graphbox.train import GraphView
    from graphbox.train.network.network_files import save_network
    from graphbox.train.network.trained_network import ClassHead

    network = trained.inductive_network()
    if ":" in network.config.layer:
        raise UsageError(
            f"expected a layer that graphbox has, received the import path `{network.config.layer}`",
            where=f"export.{new.name}.form",
            hint="a layer of your own is exported as stored vectors: leave `form` out",
        )
    parts = network.parts(GraphView(graph, split, "test"))
    target_type = trained.target_type or trained.node_type
    target = trained.embeddings[target_type] if trained.target is None else trained.target
    node_type, embeddings = trained.node_type, trained.embeddings[trained.node_type]
    encodes_targets = export.tower == "candidate"
    if encodes_targets:  # whose task is none of the run's: what the model was measured on are queries
        node_type, embeddings, new = target_type, target, replace(new, task=None, metrics={})
    head, logits = network.head, trained.logits
    has_several = isinstance(head, ClassHead) and head.has_several
    probabilities = None
    if isinstance(head, ClassHead) and logits is not None:
        probabilities = head.probabilities(logits)
    source = NetworkSource(
        network=parts.network,
        edges=parts.edges,
        inputs=parts.inputs,
        source_scales=parts.source_scales,
        features=network.learnt[node_type],
        edge_features=parts.edge_features,
        latest=parts.latest,
        node_type=node_type,
        embeddings=embeddings,
        probabilities=probabilities,
        classes=network.classes,
        target_type=target_type,
        target=target,
        score="cosine" if trained.target is None or encodes_targets else "inner_product",
        has_several=has_several,
        encodes_targets=encodes_targets,
    )
    node_types = {node_type, target_type}
    ids = {name: graph.arrow_ids(name) for name in {*parts.inputs, *node_types}}
    new = _with_links(graph, split, node_types, new)
    if export.max_neighbors is None:
        return export_network(source, ids, new, bounds, network=partial(save_network, network))
    bounded = source.with_most_neighbors(export.max_neighbors, context.config.seed)
    measure = None
    if trained.task is not None and split is not None:
        task = context.config.tasks[trained.task]
        measure = partial(evaluate_deployed, graph=graph, split=split, task=task, fold="test")
    return export_network(bounded, ids, new, bounds, network=partial(save_network, network), measure=measure)


def _export_sequence(
    graph: Graph, split: Split | None, trained: TrainedModel, new: NewVersion, bounds: ParityBounds
) -> ExportResult:
    import numpy as np

    from graphbox.export import SequenceSource, export_sequence
    from graphbox.train import NextSplit

    encoder, target, target_type = trained.sequence, trained.target, trained.target_type
    if encoder is None or target is None or target_type is None or not isinstance(split, NextSplit):
        raise UsageError(f"expected a model of a task of kind next, received `{trained.name}`")
    known = split.known("test")
    source = SequenceSource(
        network=encoder.network,
        window=encoder.config.window,
        node_type=trained.node_type,
        target_type=target_type,
        offsets=known.offsets,
        items=known.values,
        rows=np.asarray(target),
        vectors=trained.embeddings[trained.node_type],
    )
    node_types = {trained.node_type, target_type}
    ids = {name: graph.arrow_ids(name) for name in node_types}
    return export_sequence(source, ids, _with_links(graph, split, node_types, new), bounds)


def _with_links(graph: Graph, split: Split | None, node_types: set[str], new: NewVersion) -> NewVersion:
    """Return the version with the links among nodes of some types, those that the model lacked held out."""
    from graphbox.export import links_of
    from graphbox.train import GraphView, LinkSplit

    negatives = split.negative_edge_types() if isinstance(split, LinkSplit) else ()
    # What the finished model was given: everything but the test part.
    links = links_of(graph, GraphView(graph, split, "test"), node_types, negatives=negatives)
    return replace(new, links=links)


def _export_click(
    graph: Graph,
    split: Split | None,
    trained: TrainedModel,
    new: NewVersion,
    bounds: ParityBounds,
    list_separator: str | None,
) -> ExportResult:
    from graphbox.export import export_click
    from graphbox.train import ClickSplit, GraphView
    from graphbox.train.click.rows import LogRows

    if trained.click is None or not isinstance(split, ClickSplit):
        raise UsageError(f"expected a model of a task of kind click, received `{trained.name}`")
    view = GraphView(graph, split, "test")
    log = LogRows(view, split.node_type, trained.click.fields, split.is_in("test"), split.all_labels())
    columns = log.some_columns(bounds.rows)
    return export_click(
        trained.click, columns, new, bounds, node_type=trained.node_type, list_separator=list_separator
    )


def _export_triples(
    graph: Graph, split: Split | None, trained: TrainedModel, new: NewVersion, bounds: ParityBounds
) -> ExportResult:
    import numpy as np

    from graphbox.export import TriplesSource, export_knowledge_graph, links_of_triples
    from graphbox.graph.live_rows import LiveRows
    from graphbox.train import CompleteSplit

    triples = trained.triples
    if triples is None or not isinstance(split, CompleteSplit):
        raise UsageError(f"expected a model of a task of kind complete, received `{trained.name}`")
    dim = trained.embeddings[trained.node_type].shape[1]
    to_tails, to_heads = triples.directed(dim)
    ends = {name: triples.end_types(number) for number, name in enumerate(triples.relations)}
    source = TriplesSource(
        ids={node_type: graph.arrow_ids(node_type) for node_type in trained.embeddings},
        entities=trained.embeddings,
        ends=ends,
        to_tails=to_tails,
        to_heads=to_heads,
        score=triples.score(dim),
        compares_numbers=triples.distance == "sum",
        scores=lambda relation, nodes, heads: trained.score_triples(
            nodes, np.full(len(nodes), triples.relation(relation)), to_heads=heads
        ),
    )
    live = {node_type: LiveRows.of_graph(graph, node_type) for node_type in trained.embeddings}
    links = links_of_triples(np.concatenate([split.train, split.validation]), split.test, ends, live)
    return export_knowledge_graph(source, replace(new, links=links), bounds)


def _reads(config: RunConfig) -> dict[str, Any]:
    """Return the settings that the artifacts depend on."""
    exports = result_settings(config)["export"].items()
    return {
        "export": {
            name: {key: value for key, value in export.items() if key != "promote"}
            for name, export in exports
        }
    }


STAGE = Stage(
    "export",
    _run,
    wanted=lambda config: bool(config.export),
    reads=_reads,
    needs=("train", "evaluate"),
)
