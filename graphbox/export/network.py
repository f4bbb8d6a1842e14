"""Exports graph networks as encoders: layers as ONNX over padded neighbour tables, their inputs as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from graphbox.artifact import (
    Artifact,
    ArtifactWriter,
    EdgeFeature,
    GroupEdges,
    LayerSpec,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TargetSpec,
)
from graphbox.artifact.manifest import Score
from graphbox.artifact.preprocess import UnseenInputs
from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.export.bounded_edges import bounded_edges, vectors_over
from graphbox.export.onnx import ExportedOnnx, TensorInput, export_onnx
from graphbox.export.padded_block import (
    RelationBlock,
    counts_file,
    degrees,
    edges_file,
    group_edges,
    neighbors_file,
    weights_file,
    write_block,
)
from graphbox.export.parity import ParityBounds, ParityReport, check_parity, node_cases
from graphbox.export.unseen import write_unseen_inputs
from graphbox.export.version import ExportResult, Float, Metrics, NewVersion, add_rows, free_name
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType
from graphbox.models.edge_inputs import TIMESTAMP
from graphbox.models.features import LearntFeature
from graphbox.models.graph_layers import Edges
from graphbox.models.graph_network import GraphNetwork
from graphbox.models.link_scorer import LinkScorer
from graphbox.models.padded_network import (
    PaddedLayerPlan,
    PaddedNetwork,
    group_columns,
    padded_layer_plans,
)

_BOUNDS = ParityBounds()
_TARGET = "target"


@dataclass(frozen=True, eq=False)
class NetworkSource:
    """A trained graph network with everything that encoding needs.

    Attributes:
        network: in evaluation mode, on the CPU.
        edges: all edges of each relation, by node indices, with weights as the layers read them.
        inputs: by node type float32 [nodes, dim], what goes into the first layer.
        source_scales: by relation float32 [sources], what the weights of edges have of the degree of their
            sources; none where degrees do not normalize.
        features: what is known of the features of the queries' type, by name, in the order they are read in.
        edge_features: likewise of edges, by relation.
        latest: by relation whose age edges are read by, the moment from which it is counted.
        node_type: of the queries.
        embeddings: float32 [nodes, dim], what training made of the nodes of that type.
        probabilities: float32 [nodes, classes], likewise, of a network that classifies; or None.
        classes: their names.
        has_several: whether a node can have several of them.
        encodes_targets: of a network of links, whether the queries are its targets.
        target_type: node type of what queries are ranked against.
        target: float32 [nodes of that type, dim].
        score: of the ranking.
    """

    network: GraphNetwork
    edges: Mapping[EdgeType, Edges]
    inputs: Mapping[str, Float]
    source_scales: Mapping[EdgeType, Float]
    features: Mapping[str, LearntFeature]
    edge_features: Mapping[EdgeType, Mapping[str, LearntFeature]]
    latest: Mapping[EdgeType, int]
    node_type: str
    embeddings: Float
    probabilities: Float | None
    classes: tuple[str, ...]
    target_type: str
    target: Float
    score: Score
    has_several: bool = False
    encodes_targets: bool = False

    def with_most_neighbors(self, most: int, seed: int) -> NetworkSource:
        """Return the source with at most so many neighbours of a node in a relation.

        Embeddings and probabilities are what torch makes of the nodes then. Of a network of links the vectors
        of targets stay those of training.

        Args:
            most: neighbours, drawn without replacement.
            seed: of the draw.
        """
        edges = bounded_edges(self.edges, most, seed, normalized=bool(self.source_scales))
        vectors = vectors_over(self.network, edges, self.inputs, self.node_type)
        head = self.network.head
        with torch.no_grad():
            if isinstance(head, LinkScorer):
                return replace(self, edges=edges, embeddings=head.sources(vectors).numpy())
            logits = head(vectors)
            made = vectors.numpy()
            shares = torch.sigmoid(logits) if self.has_several else torch.softmax(logits, dim=1)
            probabilities = shares.numpy()
        return replace(self, edges=edges, embeddings=made, probabilities=probabilities, target=made)


def export_network(
    source: NetworkSource,
    ids: Mapping[str, pa.Array],
    version: NewVersion,
    bounds: ParityBounds = _BOUNDS,
    *,
    network: Callable[[Path], None] | None = None,
    measure: Callable[[DeployedEncoder], Mapping[str, float]] | None = None,
) -> ExportResult:
    """Write a graph network: its layers as ONNX, what enters them as tables, neighbours as lists.

    Before it is moved into place, the artifact is served and compared with the embeddings of the source, made
    by torch, on real nodes: single ones, batches, an empty batch, nodes without neighbours and with the most.

    Args:
        source: the trained network.
        ids: original ids of every node type of the network; null of removed nodes, which are left out.
        version: to be written.
        bounds: of the comparison.
        network: writes the network into a folder, for graphs as they are later.
        measure: returns the metrics of the version's task as it is served; None: they are those of training.

    Raises:
        UsageError: the layer, or an option of it, has no padded-block form.
        DoesNotFitError: a node has too many neighbours for padded tables; nothing is written then.
        GateError: the exported model differs more than allowed; nothing is written then.
        ConflictError: the destination exists.
    """
    plans = padded_layer_plans(source.network, list(source.edges), source.node_type)
    live = {name: LiveRows.of_ids(each) for name, each in ids.items()}
    groups = dict.fromkeys(group for plan in plans for group in plan.groups)
    blocks = {
        group: group_edges(group, source.edges, live[group[0][0]], live[group[0][2]]) for group in groups
    }
    row_types = _row_types(plans)
    exported = _to_onnx(source, plans, row_types)
    reports: list[ParityReport] = []

    def prove(artifact: Artifact) -> Metrics | None:
        arriving = [block for group, block in blocks.items() if group[0][2] == source.node_type]
        cases = node_cases(degrees(arriving, len(live[source.node_type])), bounds.rows)
        with open_encoder(artifact.path, verify=False) as model:
            reports.append(
                check_parity(_served(model, source), _trained(source, live[source.node_type]), cases, bounds)
            )
            return None if measure is None or version.task is None else {version.task: measure(model)}

    with ArtifactWriter(version.folder) as writer:
        # Ids come with tables: types of which only neighbours are read have their rows here as well.
        ends = [end for group in groups for end in (group[0][0], group[0][2])]
        stored = dict.fromkeys([source.node_type, *row_types, *ends])
        tables = add_rows(writer, {name: ids[name] for name in stored}, source.inputs)
        if source.target_type not in stored:
            writer.add_ids(source.target_type, live[source.target_type].select_ids(ids[source.target_type]))
        target_table = free_name(_TARGET, tables.values())
        writer.add_table(target_table, source.target_type, live[source.target_type].select(source.target))
        for number, (group, block) in enumerate(blocks.items()):
            write_block(writer, number, block)
            if source.source_scales:
                scales = [live[group[0][0]].select(source.source_scales[each]) for each in group]
                writer.add_array(_scales_file(number), np.stack(scales, axis=1))
        exported.write(writer)
        unseen = write_unseen_inputs(writer, source.network, source.node_type, source.features)
        writer.set_preprocess(_preprocess(source, plans, blocks, tables, unseen))
        if network is not None:
            writer.set_network(network)
        targets = {source.node_type: TargetSpec(table=target_table, score=source.score)}
        artifact = version.commit(writer, "encoder", source.embeddings.shape[1], targets, prove)
    return ExportResult(artifact, reports[0])


def _served(model: DeployedEncoder, source: NetworkSource) -> Callable[[npt.NDArray[np.int64]], Float]:
    """Return a function of rows that gives the outputs of the artifact as it is served, side by side."""
    if source.probabilities is None:
        return model.encode_indices
    return lambda rows: np.concatenate([*model.classify_indices(rows)], axis=1)


def _trained(source: NetworkSource, live: LiveRows) -> Callable[[npt.NDArray[np.int64]], Float]:
    """Return a function of rows that gives what training made of them, likewise."""
    made = [each for each in (source.embeddings, source.probabilities) if each is not None]
    return lambda rows: np.concatenate([each[live.nodes(rows)] for each in made], axis=1)


def _to_onnx(
    source: NetworkSource, plans: Sequence[PaddedLayerPlan], row_types: Sequence[str]
) -> ExportedOnnx:
    weighted = _is_weighted(source)
    module = PaddedNetwork(
        source.network,
        plans,
        row_types,
        source.node_type,
        weighted=weighted,
        has_several=source.has_several,
        encodes_targets=source.encodes_targets,
    )
    # Sizes that are not 0 or 1, which the exporter would take for fixed, and no two alike.
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        return sizes.setdefault(name, len(sizes) + 2)

    rows = [
        TensorInput(name, torch.zeros(size(name), source.network.shape.dim), {0: name})
        for name in map(_rows_input, range(len(row_types)))
    ]
    own, neighbors, weights, features = [], [], [], []
    edge_sizes = source.network.shape.edge_sizes
    for number, plan in enumerate(plans):
        is_last = number == len(plans) - 1
        types = list(dict.fromkeys([*plan.own, *(group[0][2] for group in plan.groups)]))
        batch = {name: "batch" if is_last else f"nodes_{number}_{place}" for place, name in enumerate(types)}
        for place, name in enumerate(plan.own):
            zeros = torch.zeros(size(batch[name]), dtype=torch.int64)
            own.append(TensorInput(_own_input(number, place), zeros, {0: batch[name]}))
        for place, group in enumerate(plan.groups):
            targets, slots = batch[group[0][2]], f"slots_{number}_{place}"
            shape, dynamic = (size(targets), len(group), size(slots)), {0: targets, 2: slots}
            zeros = torch.zeros(shape, dtype=torch.int64)
            neighbors.append(TensorInput(_neighbors_input(number, place), zeros, dynamic))
            weights.append(TensorInput(_weights_input(number, place), torch.zeros(shape), dynamic))
            if columns := group_columns(edge_sizes, group):
                zeros = torch.zeros(*shape, columns)
                features.append(TensorInput(_edges_input(number, place), zeros, dynamic))
    outputs = ("embedding",) if source.probabilities is None else ("embedding", "probability")
    inputs = [rows, own, neighbors, weights if weighted else [], features]
    return export_onnx(module.eval(), inputs, outputs=outputs)


def _preprocess(
    source: NetworkSource,
    plans: Sequence[PaddedLayerPlan],
    blocks: Mapping[tuple[EdgeType, ...], RelationBlock],
    tables: Mapping[str, str],
    unseen: UnseenInputs,
) -> PaddedBlockForm:
    numbers = {group: number for number, group in enumerate(blocks)}
    weighted = _is_weighted(source)
    layers = []
    for number, plan in enumerate(plans):
        groups = tuple(
            RelationGroup(
                edge_types=group,
                counts=counts_file(numbers[group]),
                neighbors=neighbors_file(numbers[group]),
                normalization="table" if weighted else "none",
                weights=weights_file(numbers[group]) if weighted else None,
                neighbors_input=_neighbors_input(number, place),
                weights_input=_weights_input(number, place) if weighted else None,
                source_scales=_scales_file(numbers[group]) if source.source_scales else None,
                self_loops=bool(source.source_scales) and group[0][0] == group[0][2],
                edges=_group_edges(source, group, numbers[group], _edges_input(number, place)),
            )
            for place, group in enumerate(plan.groups)
        )
        own = {name: _own_input(number, place) for place, name in enumerate(plan.own)}
        layers.append(LayerSpec(groups=groups, self_inputs=own))
    rows = {
        name: RowsSpec(input=_rows_input(place), tables=(tables[name],))
        for place, name in enumerate(_row_types(plans))
    }
    return PaddedBlockForm(
        node_type=source.node_type,
        rows=rows,
        layers=tuple(layers),
        classes=source.classes,
        has_several_classes=source.has_several,
        unseen=unseen,
    )


def _group_edges(
    source: NetworkSource, group: tuple[EdgeType, ...], block: int, name: str
) -> GroupEdges | None:
    """Return how the features of a group's edges are read; None: they have none."""
    if not group_columns(source.network.shape.edge_sizes, group):
        return None
    features = tuple(
        tuple(
            EdgeFeature.model_validate(
                {
                    "name": feature,
                    "kind": learnt.kind,
                    "dim": learnt.dim or None,
                    "categories": learnt.categories,
                    "mean": learnt.mean,
                    "deviation": learnt.deviation,
                    "latest": source.latest[relation] if feature == TIMESTAMP else None,
                }
            )
            for feature, learnt in source.edge_features.get(relation, {}).items()
        )
        for relation in group
    )
    return GroupEdges(features=features, values=edges_file(block), input=name)


def _row_types(plans: Sequence[PaddedLayerPlan]) -> list[str]:
    """Return the node types whose rows the first layer reads."""
    return list(dict.fromkeys([*plans[0].own, *(group[0][0] for group in plans[0].groups)]))


def _is_weighted(source: NetworkSource) -> bool:
    """Return whether layers read weights of edges; where those of one relation have any, all have."""
    return any(each.weight is not None for each in source.edges.values())


def _scales_file(block: int) -> str:
    return f"neighbors/{block}.scales.npy"


def _rows_input(place: int) -> str:
    return f"rows_{place}"


def _own_input(layer: int, place: int) -> str:
    return f"own_{layer}_{place}"


def _neighbors_input(layer: int, place: int) -> str:
    return f"neighbors_{layer}_{place}"


def _edges_input(layer: int, place: int) -> str:
    return f"edges_{layer}_{place}"


def _weights_input(layer: int, place: int) -> str:
    return f"weights_{layer}_{place}"
