"""Memory of trainings of temporal models."""

from __future__ import annotations

from graphbox.config import TemporalConfig
from graphbox.train.plan.accesses import DegreeModel
from graphbox.train.plan.footprint import MEGABYTE, Demand, Footprint
from graphbox.train.plan.placement import DataPart

_VECTORS_PER_CALL = 4096


class TemporalFootprint(Footprint[TemporalConfig]):
    """Latest events of all nodes, their vectors, and those that are computed at once."""

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        model = self.model
        nodes = self.nodes_of(model.relations)
        if self.task is not None:
            nodes = sum(self.counts.nodes.get(name, 0) for name in set(self.ends))
        by_node = 62.0 * model.recent + 16.0 * model.dim + 40.0 * model.row_dim
        pairs = max(_VECTORS_PER_CALL, model.batch_size * (1 + model.negatives))
        of_pairs = 8.7 * pairs * model.recent * model.dim
        return Demand(100 * MEGABYTE + of_pairs + by_node * nodes, 150.0 * self.edges_of(model.relations))

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        model = self.model
        pairs = model.batch_size * (1 + model.negatives)
        return self.device_bytes_of(2.2 * pairs * model.recent * model.dim)

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`."""
        model = self.model
        if not model.row_dim:
            return []
        types = degrees.types(model.relations) if self.task is None else list(dict.fromkeys(self.ends))
        pairs = sum(self.counts.edges.values()) * (1 + model.negatives)
        met = float(pairs * (model.recent + 1))
        return [
            degrees.rows(
                f"rows of {name}", name, model.row_dim, "rowwise_adagrad", degrees.classes(name).met(met)
            )
            for name in types
        ]
