"""Memory of trainings of sequences."""

from __future__ import annotations

from graphbox.config import SequenceSection
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


class SequenceFootprint(Footprint[SequenceSection]):
    """Each batch has the events of some windows, what follows each, and the candidates drawn."""

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        model, events = self.model, self._events()
        items = self.counts.nodes.get(self.ends[1], 0)
        nodes = self.counts.nodes.get(self.ends[0], 0)
        batch = self._batch_numbers()
        on_disk = self.bytes_on_disk(3 * items, model.dim)
        rows = 20.0 * model.dim * items - on_disk
        scores = self.scores_bytes() * (1.0 if model.vectors == 1 else 1.5)  # those for a second vector
        fixed = 130 * MEGABYTE + 4.0 * batch + scores
        return Demand(
            fixed + rows + 4.0 * model.dim * model.vectors * nodes + 40.0 * nodes,
            160.0 * events,
            12.0 * model.dim * items - on_disk,
        )

    def table_rows(self) -> list[TableRows]:
        """See :meth:`Footprint.table_rows`."""
        items = self.counts.nodes.get(self.ends[1], 0)
        return [TableRows(items, self.model.dim, "adam", min(items, self._batch_rows()))]

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        items, nodes = (self.counts.nodes.get(name, 0) for name in reversed(self.ends))
        of_ranks = 2.0 * self.model.dim * (items + nodes * self.model.vectors) + ranking_numbers(items)
        return self.device_bytes_of(max(self._batch_numbers(), of_ranks))

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`."""
        classes = degrees.classes(self.ends[1])
        batches = max(1, round(self._events() / max(1.0, self._batch_events())))
        drawn = float(self.model.candidates * batches)
        read = classes.met(float(classes.nodes @ classes.degree), drawn, batches)
        return [degrees.rows("rows of items", self.ends[1], self.model.dim, "adam", read)]

    def _events(self) -> int:
        relations = set(getattr(self.task, "relations", ()))
        return sum(
            count
            for each, count in self.counts.edges.items()
            if (each[0], each[2]) == self.ends and each[1] in relations
        )

    def _batch_events(self) -> float:
        """Return the events of a batch: of histories of the mean length, as far as a window reads."""
        nodes = max(1, self.counts.nodes.get(self.ends[0], 0))
        return self.model.batch_size * min(float(self.model.window), self._events() / nodes)

    def _batch_rows(self) -> float:
        return 2.0 * self._batch_events() + self._candidates()

    def _candidates(self) -> int:
        return min(self.model.candidates, self.counts.nodes.get(self.ends[1], 0))

    def _batch_numbers(self) -> float:
        """Return the numbers of a batch: rows, what layers keep of events, and logits with their gradient."""
        model, events = self.model, self._batch_events()
        logits = 2.0 * events * self._candidates()
        return VECTOR_COPIES * model.dim * self._batch_rows() + model.kept_numbers * events + logits
