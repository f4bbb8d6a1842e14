"""Memory of trainings of knowledge-graph embeddings."""

from __future__ import annotations

import math

import numpy as np

from graphbox.config import KnowledgeGraphSection
from graphbox.train.plan.accesses import DegreeModel
from graphbox.train.plan.footprint import (
    MEGABYTE,
    VECTOR_COPIES,
    Demand,
    Footprint,
    TableRows,
    ranking_numbers,
)
from graphbox.train.plan.placement import DataPart

_FILTERED_BLOCK_BYTES = 64 << 20
_MAPPED_BYTES = 32 << 20
"""The system's allocator returns freed blocks of this size and more at once; it keeps smaller ones."""


class BilinearFootprint(Footprint[KnowledgeGraphSection]):
    """Rows of entities, queries in both directions, and the scores of a batch."""

    @property
    def nodes(self) -> int:
        """Number of entities."""
        return sum(self.counts.nodes.values())

    def score_bytes(self) -> float:
        """Return the host bytes of the scores of a batch."""
        model = self.model
        drawn = self.nodes if model.loss == "softmax" else model.candidates + 1.3 * model.batch_size
        return 20.0 * model.batch_size * drawn

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        dim, nodes = self.model.dim, self.nodes
        fixed = 48 * MEGABYTE + self.score_bytes()
        return Demand(fixed + 54.0 * dim * nodes, 285.0 * self.edges_of(()), 8.0 * dim * nodes)

    def table_rows(self) -> list[TableRows]:
        """See :meth:`Footprint.table_rows`."""
        model = self.model
        drawn = self.nodes if model.loss == "softmax" else model.candidates + 2 * model.batch_size
        relations = 2 * len(self.counts.edges)
        return [
            TableRows(self.nodes, model.dim, "adagrad", drawn),
            TableRows(relations, model.dim, "adagrad", relations),
        ]

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        model = self.model
        drawn = self.nodes if model.loss == "softmax" else model.candidates + model.batch_size
        of_scores = 5.0 * model.batch_size * drawn
        of_batch = of_scores + VECTOR_COPIES * model.dim * (drawn + model.batch_size)
        candidates = max(self.counts.nodes.values(), default=0)
        return self.device_bytes_of(max(of_batch, model.dim * self.nodes + ranking_numbers(candidates)))

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`."""
        model, edges = self.model, sum(self.counts.edges.values())
        batches = math.ceil(2 * edges / model.batch_size)
        parts = []
        for name in degrees.types(()):
            classes = degrees.classes(name)
            if model.loss == "softmax":  # each batch has all of them
                read = np.full(len(classes.nodes), float(batches))
            else:
                read = classes.met(2.0 * edges, float(model.candidates * batches), batches)
            parts.append(degrees.rows(f"rows of {name}", name, model.dim, "adagrad", read))
        return parts


class TranslationFootprint(BilinearFootprint):
    """The same, whose distances are computed block by block."""

    def score_bytes(self) -> float:
        """See :meth:`BilinearFootprint.score_bytes`: with the blocks of distances of filtered ranks."""
        block_bytes = min(512.0 * self.nodes, _FILTERED_BLOCK_BYTES)
        kept = 14.0 if block_bytes < _MAPPED_BYTES else 2.0
        return super().score_bytes() + 40 * MEGABYTE + kept * block_bytes
