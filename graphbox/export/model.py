"""Writes trained models as artifacts: an encoder with its ONNX part, or embeddings as tables alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from graphbox.artifact import (
    Artifact,
    ArtifactWriter,
    LayerSpec,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TargetSpec,
)
from graphbox.artifact.lookup_form import UnknownIds
from graphbox.artifact.manifest import Score
from graphbox.deploy import open_encoder
from graphbox.export.onnx import ExportedOnnx, TensorInput, export_onnx
from graphbox.export.padded_block import (
    PaddedBlockEncoder,
    RelationBlock,
    counts_file,
    degrees,
    group_relations,
    neighbors_file,
    write_block,
)
from graphbox.export.parity import ParityBounds, ParityReport, check_parity, node_cases
from graphbox.export.version import ExportResult, Float, NewVersion, add_rows, free_name
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType
from graphbox.models.sage import NeighborBlock, TwoTowerSAGE

_BOUNDS = ParityBounds()
_TARGET = "target"


class TrainedEncoder(Protocol):
    """A trained two-tower model with everything that encoding needs."""

    @property
    def model(self) -> TwoTowerSAGE:
        """The model, in evaluation mode."""
        ...

    @property
    def inputs(self) -> Mapping[str, Float]:
        """Input rows by node type, float32 [nodes, dim]: embedding row + features."""
        ...

    @property
    def neighbors(self) -> Mapping[EdgeType, npt.NDArray[np.int32]]:
        """By relation, int32 [nodes of the model's type, at most F], -1 = absent."""
        ...

    @property
    def target(self) -> Float:
        """The vectors that queries are ranked against, float32 [nodes of the model's type, dim]."""
        ...


@dataclass(frozen=True, eq=False)
class EmbeddingSource:
    """Trained embeddings of one or more node types, ready to be written.

    Attributes:
        node_type: of queries that name none.
        ids: original ids by node type, those of candidates too; null of removed nodes, which are left out.
        rows: by node type, float32 [nodes, dim].
        score: how neighbours are ranked.
        candidates: node type and rows, float32 [nodes, dim], of what queries of ``node_type`` are ranked
            against by the inner product; None: nodes of every type are ranked against their own type. Rows of
            ``node_type`` may be several times as long: several vectors of a query, one after the other.
        unknown_ids: answer for ids that have no row; see `LookupForm`.
    """

    node_type: str
    ids: Mapping[str, pa.Array]
    rows: Mapping[str, Float]
    score: Literal["inner_product", "cosine"] = "cosine"
    candidates: tuple[str, Float] | None = None
    unknown_ids: UnknownIds = "refuse"


def export_encoder(
    trained: TrainedEncoder,
    ids: Mapping[str, pa.Array],
    version: NewVersion,
    bounds: ParityBounds = _BOUNDS,
) -> ExportResult:
    """Write a two-tower model: its query tower as ONNX, its input rows and target vectors as tables.

    Before it is moved into place, the artifact is served and compared with the trained tower on real
    nodes: single ones, batches, an empty batch, nodes without neighbours, nodes with the most.

    Args:
        trained: the trained model.
        ids: original ids of every node type that has input rows; null of removed nodes, which are left out.
        version: to be written.
        bounds: of the comparison.

    Raises:
        GateError: when the exported model differs more than allowed; nothing is written then.
        ConflictError: when the destination exists.
    """
    node_type = trained.model.node_type
    live = {name: LiveRows.of_ids(each) for name, each in ids.items()}
    blocks = group_relations(trained.model.relations, _neighbor_rows(trained, live))
    sources = list(dict.fromkeys((node_type, *(block.source for block in blocks))))
    exported = _to_onnx(trained.model, blocks, sources)
    reports: list[ParityReport] = []

    def prove(artifact: Artifact) -> None:
        with open_encoder(artifact.path, verify=False) as model:
            cases = node_cases(degrees(blocks, len(live[node_type])), bounds.rows)
            encode = _encode_trained(trained)
            reports.append(
                check_parity(
                    model.encode_indices, lambda rows: encode(live[node_type].nodes(rows)), cases, bounds
                )
            )

    with ArtifactWriter(version.folder) as writer:
        tables = add_rows(writer, {name: ids[name] for name in sources}, trained.inputs)
        target_table = free_name(_TARGET, tables.values())
        writer.add_table(target_table, node_type, live[node_type].select(trained.target))
        for number, block in enumerate(blocks):
            write_block(writer, number, block)
        exported.write(writer)
        writer.set_preprocess(_preprocess(node_type, blocks, sources, tables))
        targets = {node_type: TargetSpec(table=target_table, score="inner_product")}
        artifact = version.commit(writer, "encoder", trained.target.shape[1], targets, prove)
    return ExportResult(artifact, reports[0])


def export_embedding(
    source: EmbeddingSource,
    version: NewVersion,
    *,
    network: Callable[[Path], None] | None = None,
) -> ExportResult:
    """Write embeddings as tables; neighbours of a node are nodes of its own type, or its candidates.

    Candidates of another type than the queries can be asked for as well, where they have embeddings of one
    length: what is near one are others.

    Args:
        source: the trained embeddings.
        version: to be written.
        network: writes the graph network that made the embeddings into a folder, for nodes that come later.

    Raises:
        ConflictError: when the destination exists.
    """
    dim = source.rows[source.node_type].shape[1]
    with ArtifactWriter(version.folder) as writer:
        tables = add_rows(writer, {name: source.ids[name] for name in source.rows}, source.rows)
        targets = {name: TargetSpec(table=table, score=source.score) for name, table in tables.items()}
        if source.candidates is not None:
            node_type, rows = source.candidates
            ranked = free_name(_TARGET, tables.values())
            live = LiveRows.of_ids(source.ids[node_type])
            if node_type not in tables:
                writer.add_ids(node_type, live.select_ids(source.ids[node_type]))
            writer.add_table(ranked, node_type, live.select(np.asarray(rows)))
            is_single = rows.shape[1] == dim
            if node_type not in tables and is_single:
                tables[node_type] = ranked
                targets[node_type] = TargetSpec(table=ranked, score="cosine")
            score: Score = "inner_product" if is_single else "max_inner_product"
            targets[source.node_type] = TargetSpec(table=ranked, score=score)
        writer.set_lookup(source.node_type, tables, source.unknown_ids)
        if network is not None:
            writer.set_network(network)
        artifact = version.commit(writer, "embedding", dim, targets)
    return ExportResult(artifact)


def _to_onnx(model: TwoTowerSAGE, blocks: Sequence[RelationBlock], sources: Sequence[str]) -> ExportedOnnx:
    encoder = PaddedBlockEncoder(model.query, model.relations, blocks, sources, model.node_type).eval()
    # Sizes that are not 0 or 1, which the exporter would take for fixed, and no two alike.
    batch, slots, rows = 3, 4, 11
    relations = [len(block.edge_types) for block in blocks]

    def inputs(name: Callable[[int], str], dtype: torch.dtype) -> list[TensorInput]:
        return [
            TensorInput(
                name(i), torch.zeros(batch, count, slots + i, dtype=dtype), {0: "batch", 2: f"slots_{i}"}
            )
            for i, count in enumerate(relations)
        ]

    return export_onnx(
        encoder,
        [
            [
                TensorInput(_rows_input(i), torch.zeros(rows + i, encoder.dim), {0: f"rows_{i}"})
                for i in range(len(sources))
            ],
            TensorInput("own", torch.zeros(batch, dtype=torch.int64), {0: "batch"}),
            inputs(_neighbors_input, torch.int64),
            inputs(_weights_input, torch.float32),
        ],
    )


def _preprocess(
    node_type: str, blocks: Sequence[RelationBlock], sources: Sequence[str], tables: Mapping[str, str]
) -> PaddedBlockForm:
    groups = tuple(
        RelationGroup(
            edge_types=block.edge_types,
            counts=counts_file(number),
            neighbors=neighbors_file(number),
            normalization="square_root",
            neighbors_input=_neighbors_input(number),
            weights_input=_weights_input(number),
        )
        for number, block in enumerate(blocks)
    )
    rows = {name: RowsSpec(input=_rows_input(i), tables=(tables[name],)) for i, name in enumerate(sources)}
    layer = LayerSpec(groups=groups, self_inputs={node_type: "own"})
    return PaddedBlockForm(node_type=node_type, rows=rows, layers=(layer,))


def _rows_input(source: int) -> str:
    return f"rows_{source}"


def _neighbors_input(block: int) -> str:
    return f"neighbors_{block}"


def _weights_input(block: int) -> str:
    return f"weights_{block}"


def _neighbor_rows(
    trained: TrainedEncoder, live: Mapping[str, LiveRows]
) -> dict[EdgeType, npt.NDArray[np.int32]]:
    """Return the neighbour tables of live nodes, with rows of the artifact in place of node indices."""
    return {
        (source, relation, target): live[source].rows(live[target].select(table))
        for (source, relation, target), table in trained.neighbors.items()
    }


def _encode_trained(trained: TrainedEncoder) -> Callable[[npt.NDArray[np.int64]], Float]:
    """Return the trained model's own computation, the one it was trained with, for node indices."""
    inputs = {
        name: torch.from_numpy(np.require(rows, requirements=["C", "W"]))
        for name, rows in trained.inputs.items()
    }

    def encode(indices: npt.NDArray[np.int64]) -> Float:
        around = {
            relation: _neighbor_block(trained.neighbors[relation][indices])
            for relation in trained.model.relations
        }
        with torch.no_grad():
            own = inputs[trained.model.node_type][torch.from_numpy(indices)]
            vectors = trained.model.query(own, trained.model.aggregate(inputs, around))
        result: Float = vectors.numpy()
        return result

    return encode


def _neighbor_block(table: npt.NDArray[np.int32]) -> NeighborBlock:
    present = table >= 0
    offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    return NeighborBlock(torch.from_numpy(table[present].astype(np.int64)), torch.from_numpy(offsets))
