"""Memory of trainings that rank candidates: LightGCN, matrix factorization, two-tower GraphSAGE."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from graphbox.config import LightGCNConfig, MatrixFactorizationConfig, SageConfig
from graphbox.train.plan.accesses import KNOWN_BYTES, DegreeClasses, DegreeModel
from graphbox.train.plan.footprint import (
    MEGABYTE,
    VECTOR_COPIES,
    Demand,
    Footprint,
    TableRows,
    ranking_numbers,
)
from graphbox.train.plan.placement import DataPart
from graphbox.train.walks.footprint import MetapathFootprint

_INFERENCE_NODES = 8192
_EDGE_NUMBERS = 8.0
"""Ends, position and place of an edge while it is sampled."""
_FEATURE_BYTES = 8
"""Most bytes of a feature of a node where towers read it: a code, or half of that a number."""

RankedT = TypeVar("RankedT", LightGCNConfig, MatrixFactorizationConfig)


class _RankedFootprint(Footprint[RankedT]):
    """A model with a row for each query and candidate."""

    @cached_property
    def queries(self) -> int:
        return self.counts.nodes.get(self.ends[0], 0)

    @cached_property
    def candidates(self) -> int:
        return self.counts.nodes.get(self.ends[1], 0)

    @cached_property
    def nodes(self) -> int:
        return sum(self.counts.nodes.get(name, 0) for name in set(self.ends))

    @cached_property
    def edges(self) -> int:
        return sum(count for each, count in self.counts.edges.items() if (each[0], each[2]) == self.ends)

    def batch_answers(self) -> float:
        """Return the answers of a batch of queries."""
        return min(self.model.batch_size, self.queries) * self.edges / max(self.queries, 1)

    def measuring_bytes(self) -> float:
        """Return the bytes of scores; nothing is measured before the end if the validation part is learnt."""
        is_measured = not self.model.sees_validation or self.model.validate_first
        return self.scores_bytes() if is_measured else 0.0

    def batch_listed(self) -> int:
        """Return the candidates that teachers list for the queries of a batch."""
        return min(self.model.batch_size, self.queries) * self._list_length()

    def lists_bytes(self) -> float:
        """Return the bytes of the teachers' lists: an index and a probability for each candidate."""
        return 8.0 * self._list_length() * self.queries

    def _list_length(self) -> int:
        section = self.model.distil
        return 0 if section is None else min(section.k, self.candidates)

    @abstractmethod
    def read(self, name: str, classes: DegreeClasses, batches: int) -> NDArray[np.float64]:
        """Return how often an epoch of some batches reads the row of a node of each class."""

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`."""
        batches = math.ceil(degrees.classes(self.ends[0]).count / self.model.batch_size)
        return [
            degrees.rows(
                f"rows of {name}",
                name,
                self.model.dim,
                "adam",
                self.read(name, degrees.classes(name), batches),
            )
            for name in dict.fromkeys(self.ends)
        ]


class LightGCNFootprint(_RankedFootprint[LightGCNConfig]):
    """Each batch smooths the rows of all nodes over all edges."""

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        dim = self.model.dim
        rows = 48.0 * dim * self.nodes + 7.4 * dim * self.batch_answers()
        fixed = 165 * MEGABYTE + self.measuring_bytes() + self.lists_bytes()
        return Demand(fixed + rows + 12.0 * dim * self.batch_listed(), 220.0 * self.edges)

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        kept = 10.0 * sum(self.counts.edges.values())
        vectors = self.model.dim * (self.queries + self.candidates)
        return self.device_bytes_of(
            kept
            + max(
                12.0 * vectors + VECTOR_COPIES / 2.0 * self.model.dim * self.batch_listed(),
                6.0 * vectors + ranking_numbers(self.candidates),
            )
        )

    def read(self, name: str, classes: DegreeClasses, batches: int) -> NDArray[np.float64]:  # noqa: ARG002
        """See :meth:`_RankedFootprint.read`."""
        return np.full(len(classes.nodes), float(batches))


class MatrixFactorizationFootprint(_RankedFootprint[MatrixFactorizationConfig]):
    """Each batch has the rows of its queries, their answers and the candidates drawn."""

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        dim = self.model.dim
        batch = 25.0 * dim * (self.batch_answers() + self.batch_listed())
        on_disk = self.bytes_on_disk(3 * self.nodes, dim)
        return Demand(
            120 * MEGABYTE
            + batch
            + self.measuring_bytes()
            + self.lists_bytes()
            + 20.0 * dim * self.nodes
            - on_disk,
            250.0 * self.edges,
            12.0 * dim * self.nodes - on_disk,
        )

    def table_rows(self) -> list[TableRows]:
        """See :meth:`Footprint.table_rows`."""
        model, (queries, candidates) = self.model, self.ends
        of_candidates = self.batch_answers() + self.batch_listed() + model.candidates
        if queries == candidates:
            return [TableRows(self.nodes, model.dim, "adam", model.batch_size + of_candidates)]
        return [
            TableRows(self.queries, model.dim, "adam", model.batch_size),
            TableRows(self.candidates, model.dim, "adam", of_candidates),
        ]

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        model, edges = self.model, sum(self.counts.edges.values())
        drawn = model.batch_size * (1 + edges / max(self.queries, 1)) + model.candidates
        drawn += self.batch_listed()
        of_batch = VECTOR_COPIES * model.dim * drawn + 4.0 * model.batch_size * model.candidates
        of_ranks = 3.0 * model.dim * (self.queries + self.candidates) + ranking_numbers(self.candidates)
        return self.device_bytes_of(max(of_batch, of_ranks))

    def read(self, name: str, classes: DegreeClasses, batches: int) -> NDArray[np.float64]:
        """See :meth:`_RankedFootprint.read`."""
        drawn = self.model.candidates * batches if name == self.ends[1] else 0.0
        return classes.met(float(classes.nodes @ classes.degree), drawn, batches)


class SageFootprint(Footprint[SageConfig]):
    """Two towers over sampled neighbours, and walks where the rows are pretrained: one after the other."""

    @cached_property
    def walks(self) -> MetapathFootprint | None:
        """Footprint of the pretraining."""
        pretraining = self.model.pretraining()
        return None if pretraining is None else MetapathFootprint(pretraining, self.counts, self.run)

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        nodes, dim = sum(self.counts.nodes.values()), self.model.dim
        edges = sum(count for each, count in self.counts.edges.items() if (each[0], each[2]) == self.ends)
        rows = 38.5 * dim * nodes - self.bytes_on_disk(nodes, dim)
        return Demand(130 * MEGABYTE + self.scores_bytes() + rows, 164.0 * edges)

    def table_rows(self) -> list[TableRows]:
        """See :meth:`Footprint.table_rows`."""
        model, asked = self.model, self.ends[0]
        seeds = 2 * (model.batch_size + model.candidates)
        found = []
        for name in dict.fromkeys([asked, *self._sources()]):
            drawn = seeds * model.num_neighbors * self._sources().count(name)
            rows = self.counts.nodes.get(name, 0)
            batch_rows = drawn + (seeds if name == asked else 0)
            found.append(TableRows(rows, model.dim, "rowwise_adagrad", min(batch_rows, rows)))
        return found

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        of_walks = 0 if self.walks is None else self.walks.batches_bytes()
        return self.device_bytes_of(max(self._tower_numbers(), of_walks / 4.0))

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`."""
        model, (asked, _), sources = self.model, self.ends, self._sources()
        seeds = degrees.classes(asked)
        batches = math.ceil(seeds.count / model.batch_size)
        expanded = seeds.met(float(model.candidates * batches), float(seeds.count), batches)
        parts = [degrees.lists(asked, expanded, model.num_neighbors * len(sources), len(sources))]
        if model.features:
            parts.append(self._features(seeds, expanded))
        for name in dict.fromkeys([asked, *sources]):
            classes = degrees.classes(name)
            drawn = (model.batch_size + model.candidates) * model.num_neighbors * batches
            read = classes.met(drawn, float(seeds.count) if name == asked else 0.0, batches)
            parts.append(degrees.rows(f"rows of {name}", name, model.dim, "rowwise_adagrad", read))
        if self.walks is not None:
            walked = self.walks.parts(degrees)
            parts += [replace(each, name=f"{each.name} on walks") for each in walked]
        return parts

    def pinned_row_budget(self) -> int | None:
        """See :meth:`Footprint.pinned_row_budget`."""
        return super().pinned_row_budget() if self.walks is None else self.walks.pinned_row_budget()

    def pinned_row_bytes(self, device_bytes: int) -> int:
        """See :meth:`Footprint.pinned_row_bytes`."""
        return 0 if self.walks is None else self.walks.pinned_row_bytes(device_bytes)

    def row_problem(self, device_bytes: int) -> tuple[str, str] | None:
        """See :meth:`Footprint.row_problem`."""
        return None if self.walks is None else self.walks.row_problem(device_bytes)

    def _features(self, seeds: DegreeClasses, expanded: NDArray[np.float64]) -> DataPart:
        width = _FEATURE_BYTES * len(self.model.features)
        size = np.full(len(seeds.nodes), float(width + KNOWN_BYTES))
        name = f"features of {self.ends[0]}"
        return DataPart(name, "features", seeds.nodes, size, expanded, width, width, seeds.known_by)

    def _sources(self) -> list[str]:
        """Return the source type of each relation that the towers aggregate, reverse ones too."""
        if self.model.relations:
            return [each[0] for each in self.model.relations]
        edges: Mapping[tuple[str, str, str], int] = self.counts.edges
        arriving = [each[0] for each in edges if each[2] == self.ends[0]]
        return arriving + [each[2] for each in edges if each[0] == self.ends[0]]

    def _tower_numbers(self) -> float:
        """Return the numbers of a batch or, where all nodes are encoded, of these; and of an average."""
        model, asked, sources = self.model, self.ends[0], self._sources()
        nodes = sum(self.counts.nodes.get(name, 0) for name in {asked, *sources})
        candidates = self.counts.nodes.get(asked, 0)
        seeds = 2.0 * (model.batch_size + model.candidates)  # positives of queries are candidates, too
        edges = seeds * len(sources) * model.num_neighbors
        of_batch = (
            VECTOR_COPIES * model.dim * (seeds + edges)
            + _EDGE_NUMBERS * edges
            + 4.0 * model.batch_size * model.candidates
        )
        of_block = _INFERENCE_NODES * len(sources) * (model.num_neighbors * _EDGE_NUMBERS + 2.0 * model.dim)
        of_all = 2.0 * model.dim * (nodes + candidates)
        kept = model.dim * nodes * (1.0 + (model.pretrain is not None))
        return kept + max(of_batch, of_all + max(of_block, ranking_numbers(candidates)))
