"""Memory of trainings of PinSAGE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from graphbox.train.plan.accesses import KNOWN_BYTES, DegreeModel
from graphbox.train.plan.footprint import MEGABYTE, VECTOR_COPIES, Demand, Footprint, ranking_numbers
from graphbox.train.plan.placement import DataPart

if TYPE_CHECKING:
    from graphbox.kinds.pinsage import PinSageConfig

_BATCH_BYTES, _VECTOR_BYTES, _EDGE_BYTES = 50.0, 26.0, 150.0
"""Bytes of a training at its peak: by number of a vector, of a batch and of all nodes; by edge."""


class PinSageFootprint(Footprint["PinSageConfig"]):
    """Neighbours and vectors of all nodes, and a batch with the neighbours of its neighbours."""

    model: PinSageConfig

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        model, nodes = self.model, self.nodes_of(self.model.edge_types)
        types = {end for each in model.edge_types or self.counts.edges for end in (each[0], each[2])}
        features = 2.0 * sum(self.counts.feature_bytes.get(name, 0) for name in types)
        rows = 8.0 * model.dim * nodes
        batch = _BATCH_BYTES * model.dim * self._met(nodes) + 16.0 * self._scores()
        kept = (_VECTOR_BYTES * model.dim + 8.0 * model.num_neighbors) * nodes
        on_disk = self.bytes_on_disk(nodes, model.dim)
        fixed = 105 * MEGABYTE + features + self.scores_bytes()
        return Demand(
            fixed + rows - on_disk + batch + kept,
            _EDGE_BYTES * self.edges_of(model.edge_types),
            rows - on_disk,
        )

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        model, nodes = self.model, self.nodes_of(self.model.edge_types)
        met = self._met(nodes)
        of_batch = VECTOR_COPIES * model.layers * model.dim * met + 3.0 * model.num_neighbors * met
        of_ranks = 4.0 * model.dim * nodes + ranking_numbers(self.counts.nodes.get(self.ends[1], 0))
        return self.device_bytes_of(max(of_batch + 4.0 * self._scores(), of_ranks))

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`: batches read rows and features of the nodes within reach."""
        model, types = self.model, degrees.types(self.model.edge_types)
        links = model.holdout_fraction * sum(
            count for each, count in self.counts.edges.items() if (each[0], each[2]) == self.ends
        )
        batches = max(1, math.ceil(links / model.batch_size))
        parts = []
        for name in types:
            classes = degrees.classes(name)
            read = classes.met(self._reached() * batches / len(types), most=batches)
            stored = self.counts.feature_bytes.get(name, 0) / max(classes.count, 1)
            if stored and (model.features is None or name in model.features):
                size = np.full(len(classes.nodes), stored + KNOWN_BYTES)
                width = max(1, round(stored))
                parts.append(
                    DataPart(
                        f"features of {name}",
                        "features",
                        classes.nodes,
                        size,
                        read,
                        width,
                        width,
                        classes.known_by,
                    )
                )
            if model.embeddings is None or name in model.embeddings:
                parts.append(degrees.rows(f"rows of {name}", name, model.dim, "rowwise_adagrad", read))
        return parts

    def _reached(self) -> float:
        """Return the nodes that a batch would meet if none were met twice."""
        model = self.model
        seeds = model.batch_size * (2 + model.hard_negatives) + model.negatives
        return float(seeds * sum(model.num_neighbors**hop for hop in range(model.layers + 1)))

    def _met(self, nodes: int) -> float:
        """Return how many of so many nodes a batch meets."""
        return nodes * -math.expm1(-self._reached() / max(nodes, 1))

    def _scores(self) -> float:
        """Return the scores of a batch: each link against its negatives."""
        model = self.model
        return float(model.batch_size * (model.negatives + model.hard_negatives * (1 + model.dim)))
