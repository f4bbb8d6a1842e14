"""Memory of trainings of click models."""

from __future__ import annotations

from math import prod

import numpy as np

from graphbox.config import ClickModelSection, ClickTaskConfig
from graphbox.train.plan.accesses import DegreeModel, table_rows
from graphbox.train.plan.footprint import MEGABYTE, Demand, Footprint, TableRows
from graphbox.train.plan.placement import DataPart

_HELD_ROWS = 1 << 18


class ClickFootprint(Footprint[ClickModelSection]):
    """A row of the table for each value of a feature, and a batch; a window of the log is held."""

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        model, (node_type, _) = self.model, self.ends
        known, rows = self.counts.values.get(node_type, {}), self.counts.nodes.get(node_type, 0)
        values, features = self._values()
        combined = sum(min(rows, prod(known.get(name, 32) for name in cross)) for cross in model.combinations)
        by_value = 20.0 + 15.0 * model.dim
        batch = 66.0 * model.batch_size * model.dim
        table = by_value * values + 110.0 * combined - self.bytes_on_disk(2 * values, model.dim)
        # Of two windows of the log, one of which is read ahead with its copies; and of a batch's attention.
        events = model.events * (30.0 * min(rows, _HELD_ROWS) + 10.0 * model.batch_size * model.event_floats)
        # Of each further network the parameters, with gradients and moments, and a batch's layers.
        network = 16.0 * features * model.dim * model.hidden[0] + 20.0 * model.batch_size * sum(model.hidden)
        networks = (model.num_networks - 1) * network
        return Demand(92 * MEGABYTE + batch + events + networks + table, 0.0, table)

    def table_rows(self) -> list[TableRows]:
        """See :meth:`Footprint.table_rows`: a value has a row when it comes."""
        values, features = self._values()
        batch_rows = self.model.batch_size * (max(1, features) + self.model.events)
        return [TableRows(values, self.model.dim, "adagrad", batch_rows, are_certain=False)]

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        fields = max(1, sum(map(len, self.counts.values.values())))
        events = 10.0 * self.model.events * self.model.event_floats
        networks = 10.0 * (self.model.num_networks - 1) * sum(self.model.hidden)
        return self.device_bytes_of(
            self.model.batch_size * (16.5 * self.model.dim * fields + events + networks)
        )

    def parts(self, degrees: DegreeModel) -> list[DataPart]:  # noqa: ARG002
        """See :meth:`Footprint.parts`."""
        values, features = self._values()
        accesses = self.counts.nodes.get(self.ends[0], 0) * max(1, features) / max(values, 1)
        known_by = "not known: all values alike"
        of_values, accesses_of_value = np.array([values]), np.array([accesses])
        dim = self.model.dim
        return [table_rows("rows of values", dim, "adagrad", of_values, accesses_of_value, known_by)]

    def _values(self) -> tuple[int, int]:
        """Return the number of values of all features that are read, and of these features, labels too."""
        known = self.counts.values.get(self.ends[0], {})
        read = set(known) if self.model.features is None else set(self.model.features) & set(known)
        labels = self.task.labels if isinstance(self.task, ClickTaskConfig) else ()
        return sum(known[name] for name in read - set(labels)), len(read)
