"""Memory of skip-gram trainings on walks and edges, in the host and in a GPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from math import ceil
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from graphbox.config import DeepWalkConfig, LineConfig, Metapath2VecConfig
from graphbox.graph.tiered_graph import DEFAULT_PASS_BYTES
from graphbox.skip_gram.group_size import GroupSize, batches_of_group, batches_side_by_side, group_bytes
from graphbox.skip_gram.row_bytes import (
    ROOM_FOR_ROWS,
    RowRoom,
    device_row_bytes,
    position_bytes,
    rows_without_room,
)
from graphbox.skip_gram.tile_shapes import MOST_VALUES, tile_shape
from graphbox.train.plan.accesses import DegreeModel
from graphbox.train.plan.footprint import MEGABYTE, Demand, Footprint, TableRows
from graphbox.train.plan.placement import DataPart

_NUMBER_BYTES = 8
"""Of a walker's start, its second node or its path; of what negatives, or subsampling, know of a key."""
_PLACES = 32
"""Visits that a program of skip-gram's kernels has."""

WalkT = TypeVar("WalkT", DeepWalkConfig, Metapath2VecConfig, LineConfig)


class WalkFootprint(Footprint[WalkT]):
    """Rows that one loop learns where they are, and the walkers of an epoch."""

    @property
    def keys(self) -> int:
        """Number of rows of a table."""
        return sum(self.counts.nodes.values())

    @property
    def tables(self) -> list[int]:
        """Number of tables of each training of the model, one after the other."""
        return [2]

    @property
    def numbers_of_walker(self) -> int:
        """Numbers that a GPU keeps for each walker."""
        return 1

    @property
    def numbers_of_key(self) -> int:
        """Numbers that a GPU keeps for each row, to draw negatives and to subsample."""
        return 1

    @property
    def visits(self) -> int:
        """Nodes of a walk."""
        return 2

    @abstractmethod
    def walkers(self) -> tuple[int, int]:
        """Return the most walkers of an epoch, and their number of batches."""

    def batch_walkers(self) -> int:
        """Return the walkers of a batch."""
        return self.model.batch_size

    def lists_bytes(self, in_memory: float) -> float:
        """Return the host bytes of the lists that walks follow, and of making them.

        Args:
            in_memory: those of lists in memory; lists on disk take the budgets of topology and passes.
        """
        if self.memory.topology is None:
            return in_memory
        return min(in_memory, float(self.memory.topology + (self.memory.passes or DEFAULT_PASS_BYTES)))

    def device_bytes(self) -> int:
        """See :meth:`Footprint.device_bytes`."""
        return self.device_bytes_of(self.batches_bytes() / 4.0)

    def table_rows(self) -> list[TableRows]:
        """See :meth:`Footprint.table_rows`."""
        met = float(self.batch_walkers() * self.visits + self.model.negatives)  # a batch shares its negatives
        dim = self.model.dim // len(self.tables)
        # Nodes without edges have no place in the index, and how many there are is not known.
        table = TableRows(self.keys, dim, "rowwise_adagrad", min(met, self.keys), are_certain=False)
        return [table] * sum(self.tables)

    def row_rooms(self, device_bytes: int | None = None) -> list[RowRoom]:
        """Return the room for rows of each training of the model, one after the other.

        Args:
            device_bytes: budget of rows in the GPU's memory; None: there is room for all.
        """
        tables = self.tables
        shares = [each / sum(tables) for each in tables]
        dim, in_host = self.model.dim // len(tables), self.memory.tables
        return [
            RowRoom(self.keys, each, dim, _part(device_bytes, share), _part(in_host, share))
            for each, share in zip(tables, shares, strict=True)
        ]

    def pinned_row_budget(self) -> int | None:
        """See :meth:`Footprint.pinned_row_budget`: what the budget of tables leaves."""
        if self.memory.tables is None:
            return None
        return max(0, self.memory.tables - sum(each.least_table_bytes for each in self.row_rooms()))

    def row_problem(self, device_bytes: int) -> tuple[str, str] | None:
        """See :meth:`Footprint.row_problem`."""
        rooms = self.row_rooms(device_bytes)
        dim = rooms[0].dim
        if dim > MOST_VALUES:
            return (
                f"expected rows of at most {MOST_VALUES} values on a GPU, received dim {dim}",
                "lower dim, or train on the CPU with `device: cpu`",
            )
        for room in rooms:
            if room.lacking_bytes:
                return rows_without_room(room), ROOM_FOR_ROWS
        return None

    def pinned_row_bytes(self, device_bytes: int) -> int:
        """See :meth:`Footprint.pinned_row_bytes`: those beside the tables, within a budget of tables."""
        found = 0
        for room in self.row_rooms(device_bytes):
            pinned, budget = room.pinned_bytes, room.host_budget_bytes
            if budget is not None:  # the tables have what it leaves
                held = 4 * room.tables * room.num_keys * room.dim
                pinned = min(pinned, max(0, budget - held))
            found += pinned
        return found

    def batches_bytes(self) -> int:
        """Return the GPU bytes of walkers, negatives and groups of batches."""
        size, (walkers, _) = self.group_size(), self.walkers()
        numbers = self.numbers_of_walker * walkers + self.numbers_of_key * self.keys
        rooms = self.row_rooms()
        dim, side = rooms[0].dim, batches_side_by_side(size, lock_free=self.model.lock_free)
        of_group = group_bytes(size, dim, tile_shape(min(dim, MOST_VALUES)), side)
        return len(rooms) * (_NUMBER_BYTES * numbers + of_group)

    def group_size(self) -> GroupSize:
        """Return the size of groups of batches where walks start at all nodes that they may start at."""
        walkers, batches = self.walkers()
        group, batch_walkers = batches_of_group(walkers, batches), min(walkers, self.batch_walkers())
        walkers = min(walkers, group * batch_walkers)
        return GroupSize(group, self.visits, self.model.negatives, walkers, batch_walkers)

    def rows(
        self, degrees: DegreeModel, met: Mapping[str, NDArray[np.float64]], window: int
    ) -> list[DataPart]:
        """Return the rows of nodes, as centres and as contexts together: they are in the same memory.

        Args:
            degrees: the graph.
            met: float64 [classes] by node type, visits of a node in an epoch; nodes of other types have rows
                that are never read.
            window: most steps between centre and context.
        """
        rooms = self.row_rooms()
        tables, dim = sum(each.tables for each in rooms), rooms[0].dim
        known = sum(position_bytes(each.num_keys) for each in rooms)
        # A visit reads its rows, those within reach for a part of a batch; an update reads and writes them.
        visit_bytes = (3.0 + (_PLACES + 2 * window) / _PLACES) * 4 * dim * tables
        parts = []
        for name in self.counts.nodes:
            classes = degrees.classes(name)
            size = np.full(len(classes.nodes), float(tables * device_row_bytes(dim) + known))
            accesses = met.get(name, np.zeros(len(classes.nodes)))
            rows = f"rows of {name}"
            parts.append(
                DataPart(
                    rows, "tables", classes.nodes, size, accesses, visit_bytes, 4 * dim, classes.known_by
                )
            )
        return parts

    def lists_and_rows(
        self, degrees: DegreeModel, types: list[str], starts: int, length: int, window: int
    ) -> list[DataPart]:
        """Return the lists that walks of some length read, and the rows.

        Args:
            degrees: the graph.
            types: node types that walks meet.
            starts: walks of an epoch.
            length: steps of a walk.
            window: see :meth:`rows`.
        """
        visits = float(starts * length)
        total = sum(float(degrees.classes(name).nodes @ degrees.classes(name).degree) for name in types)
        met, parts = {}, []
        for name in types:
            classes = degrees.classes(name)
            share = float(classes.nodes @ classes.degree) / total if total else 1 / len(types)
            met[name] = classes.met(visits * share)
            parts.append(degrees.lists(name, met[name], 1))
        return parts + self.rows(degrees, met, window)


class DeepWalkFootprint(WalkFootprint[DeepWalkConfig]):
    """Walks from each node over all edge types, or some."""

    @property
    def numbers_of_key(self) -> int:
        """See :attr:`WalkFootprint.numbers_of_key`."""
        return 2 if self.model.subsample else 1

    @property
    def visits(self) -> int:
        """See :attr:`WalkFootprint.visits`."""
        return self.model.walk_length + 1

    def walkers(self) -> tuple[int, int]:
        """See :meth:`WalkFootprint.walkers`."""
        model = self.model
        walkers = (self.nodes_of(model.edge_types) or self.keys) * model.walks_per_node
        return walkers, ceil(walkers / model.batch_size)

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        model = self.model
        by_node = 15.0 * model.walks_per_node + 19.2 * model.dim
        nodes_bytes = 40 * MEGABYTE + by_node * self.keys - self.bytes_on_disk(2 * self.keys, model.dim)
        return Demand(nodes_bytes, self.lists_bytes(77.0 * self.edges_of(model.edge_types)))

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`."""
        model = self.model
        types = degrees.types(model.edge_types)
        starts = sum(degrees.classes(name).count for name in types) * model.walks_per_node
        return self.lists_and_rows(degrees, types, starts, model.walk_length, model.window)


class MetapathFootprint(WalkFootprint[Metapath2VecConfig]):
    """Walks along metapaths, from each node where one begins."""

    @property
    def numbers_of_key(self) -> int:
        """See :attr:`WalkFootprint.numbers_of_key`."""
        return 2 if self.model.subsample else 1

    @property
    def visits(self) -> int:
        """See :attr:`WalkFootprint.visits`."""
        return self.model.walk_length + 1

    @property
    def numbers_of_walker(self) -> int:
        """See :attr:`WalkFootprint.numbers_of_walker`."""
        return 2 if len(self.model.metapaths) > 1 else 1

    def walkers(self) -> tuple[int, int]:
        """See :meth:`WalkFootprint.walkers`."""
        model = self.model
        starts = [self.counts.nodes.get(path[0][0], 0) * model.walks_per_node for path in model.metapaths]
        return sum(starts), max(ceil(each / model.batch_size) for each in starts)

    def batch_walkers(self) -> int:
        """See :meth:`WalkFootprint.batch_walkers`."""
        return self.model.batch_size * len(self.model.metapaths)

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        model = self.model
        by_node = 240.0 + 25.0 * model.walks_per_node * len(model.metapaths) + 19.0 * model.dim
        steps = [step for path in model.metapaths for step in path]
        nodes_bytes = 34 * MEGABYTE + by_node * self.keys - self.bytes_on_disk(2 * self.keys, model.dim)
        return Demand(nodes_bytes, self.lists_bytes(16.0 * self.edges_of(steps)))

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`."""
        model = self.model
        types = degrees.types([step for path in model.metapaths for step in path])
        starts = sum(degrees.classes(path[0][0]).count for path in model.metapaths) * model.walks_per_node
        return self.lists_and_rows(degrees, types, starts, model.walk_length, model.window)


class LineFootprint(WalkFootprint[LineConfig]):
    """Edges as walks of one step, for each order a training of its own."""

    @property
    def tables(self) -> list[int]:
        """See :attr:`WalkFootprint.tables`."""
        return [2 if order == 2 else 1 for order in self.model.orders]

    @property
    def numbers_of_walker(self) -> int:
        """See :attr:`WalkFootprint.numbers_of_walker`."""
        return 2

    def walkers(self) -> tuple[int, int]:
        """See :meth:`WalkFootprint.walkers`."""
        walkers = sum(self.counts.edges.get(each, 0) for each in self.model.edge_types or self.counts.edges)
        return walkers, ceil(walkers / self.model.batch_size)

    def demand(self) -> Demand:
        """See :meth:`Footprint.demand`."""
        model = self.model
        batch = 27.0 * model.batch_size * model.dim
        rows = 19.0 * model.dim * self.keys - self.bytes_on_disk(2 * self.keys, model.dim)
        return Demand(20 * MEGABYTE + batch + rows, 107.0 * self.edges_of(model.edge_types))

    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """See :meth:`Footprint.parts`."""
        types = degrees.types(self.model.edge_types)
        return self.rows(degrees, {name: degrees.classes(name).degree for name in types}, 1)


def _part(budget: int | None, share: float) -> int | None:
    return None if budget is None else int(budget * share)
