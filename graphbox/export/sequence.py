"""Exports models of sequences as encoders of histories: the network as ONNX, items as rows, events as lists.

A history is a list of neighbours in the order of time, so that the form is that of graph networks, padded
blocks, and a history that is sent in a request is that of a node which the model was never given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor, nn

from graphbox.artifact import (
    Artifact,
    ArtifactWriter,
    LayerSpec,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TargetSpec,
)
from graphbox.artifact.manifest import Score
from graphbox.artifact.preprocess import UnseenInputs
from graphbox.deploy import open_encoder
from graphbox.export.onnx import ExportedOnnx, TensorInput, export_onnx
from graphbox.export.padded_block import RelationBlock, counts_file, neighbors_file, write_block
from graphbox.export.parity import ParityBounds, ParityReport, check_parity, node_cases
from graphbox.export.version import ExportResult, Float, NewVersion, add_rows
from graphbox.graph.live_rows import LiveRows
from graphbox.models.sequence_blocks import SequenceNetwork

HISTORY = "history"
"""Relation of the items of a history to its node."""

_BOUNDS = ParityBounds()
_ROWS, _HISTORIES, _NO_ROW = "rows", "histories", "unseen/none.npy"


@dataclass(frozen=True, eq=False)
class SequenceSource:
    """A trained model of sequences with everything that encoding needs.

    Attributes:
        network: in evaluation mode, on the CPU.
        window: most events that it reads.
        node_type: of the nodes whose events are in order.
        target_type: of the items.
        offsets: int64 [nodes + 1], where the known events of each node are in ``items``.
        items: int64 [events], items by node index, in the order of time.
        rows: float32 [items, dim], of the items; they are read and ranked.
        vectors: float32 [nodes, network.vectors * dim], what training made of each node's events.
    """

    network: SequenceNetwork
    window: int
    node_type: str
    target_type: str
    offsets: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    rows: Float
    vectors: Float


class PaddedHistories(nn.Module):
    """The vectors of each history, by its last event, of padded lists.

    Args:
        network: the trained network.
    """

    def __init__(self, network: SequenceNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, rows: Tensor, histories: Tensor) -> Tensor:
        """Return vectors: float32 [B, vectors * dim]; zeros where a history is empty.

        Args:
            rows: float32 [U, dim], those of items after a row of zeros.
            histories: int64 [B, 1, F], positions in ``rows``, 0 after the last event.
        """
        index = histories[:, 0]
        count, slots = index.shape
        made = self.network(rows.index_select(0, index.reshape(-1)), [(count, slots)])
        length = (index > 0).sum(dim=1)
        last = torch.arange(count, device=index.device) * slots + (length - 1).clamp(min=0)
        vectors: Tensor = made.index_select(0, last) * (length > 0).to(made.dtype).unsqueeze(1)
        return vectors


def export_sequence(
    source: SequenceSource,
    ids: Mapping[str, pa.Array],
    version: NewVersion,
    bounds: ParityBounds = _BOUNDS,
) -> ExportResult:
    """Write a model of sequences: its network as ONNX, rows of items as a table, the last events as lists.

    Before it is moved into place, the artifact is served and compared with the vectors of the source, on real
    nodes: single ones, batches, an empty batch, nodes without events and with the most.

    Args:
        source: the trained model.
        ids: original ids of nodes and items by type; null of removed ones, which are left out.
        version: to be written.
        bounds: of the comparison.

    Raises:
        GateError: the exported model differs more than allowed; nothing is written then.
        ConflictError: the destination exists.
    """
    live = {name: LiveRows.of_ids(each) for name, each in ids.items()}
    block = _last_events(source, live)
    exported = _to_onnx(source)
    reports: list[ParityReport] = []

    def prove(artifact: Artifact) -> None:
        cases = node_cases(block.counts[:, 0].astype(np.int64), bounds.rows)
        with open_encoder(artifact.path, verify=False) as model:
            trained = _trained(source, live[source.node_type])
            reports.append(check_parity(model.encode_indices, trained, cases, bounds))

    with ArtifactWriter(version.folder) as writer:
        # Ids come with tables: that of nodes has one number for each, which nothing reads.
        rows = {source.node_type: np.zeros((len(ids[source.node_type]), 1), np.float32)}
        rows[source.target_type] = source.rows
        table = add_rows(writer, {name: ids[name] for name in rows}, rows)[source.target_type]
        write_block(writer, 0, block)
        exported.write(writer)
        writer.add_array(_NO_ROW, np.zeros(source.rows.shape[1], np.float32))
        writer.set_preprocess(_preprocess(source, block, table))
        score: Score = "inner_product" if source.network.vectors == 1 else "max_inner_product"
        targets = {source.node_type: TargetSpec(table=table, score=score)}
        artifact = version.commit(writer, "encoder", source.vectors.shape[1], targets, prove)
    return ExportResult(artifact, reports[0])


def _last_events(source: SequenceSource, live: Mapping[str, LiveRows]) -> RelationBlock:
    """Return the last events of each live node as rows of the artifact; removed items are left out."""
    items, nodes = live[source.target_type], live[source.node_type]
    node = np.repeat(np.arange(len(source.offsets) - 1), np.diff(source.offsets))
    item_row, node_row = items.rows(source.items), nodes.rows(node)
    is_live = (items.nodes(item_row) == source.items) & (nodes.nodes(node_row) == node)
    item_row, node_row = item_row[is_live], node_row[is_live]
    counts = np.bincount(node_row, minlength=len(nodes))
    from_last = np.repeat(np.cumsum(counts), counts) - np.arange(len(node_row))
    is_read = from_last <= source.window
    edge_type = (source.target_type, HISTORY, source.node_type)
    kept = np.minimum(counts, source.window).astype(np.uint16)[:, None]
    return RelationBlock((edge_type,), kept, item_row[is_read].astype(np.int32))


def _to_onnx(source: SequenceSource) -> ExportedOnnx:
    # Sizes that are not 0 or 1, which the exporter would take for fixed, and no two alike.
    batch, slots, rows = 3, 4, 11
    return export_onnx(
        PaddedHistories(source.network).eval(),
        [
            TensorInput(_ROWS, torch.zeros(rows, source.rows.shape[1]), {0: "items"}),
            TensorInput(
                _HISTORIES,
                torch.zeros(batch, 1, slots, dtype=torch.int64),
                {0: "batch", 2: "slots"},
            ),
        ],
    )


def _preprocess(source: SequenceSource, block: RelationBlock, table: str) -> PaddedBlockForm:
    group = RelationGroup(
        edge_types=block.edge_types,
        counts=counts_file(0),
        neighbors=neighbors_file(0),
        normalization="none",
        neighbors_input=_HISTORIES,
        window=source.window,
    )
    return PaddedBlockForm(
        node_type=source.node_type,
        rows={source.target_type: RowsSpec(input=_ROWS, tables=(table,))},
        layers=(LayerSpec(groups=(group,)),),
        unseen=UnseenInputs(bias=_NO_ROW, features=()),
    )


def _trained(source: SequenceSource, live: LiveRows) -> Callable[[npt.NDArray[np.int64]], Float]:
    """Return a function of rows that gives what training made of them."""
    return lambda rows: np.asarray(source.vectors[live.nodes(rows)])
