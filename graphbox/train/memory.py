"""Where a training keeps its graph and its tables: in memory, or on disk under budgets."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from graphbox.config import HbmConfig, MemoryConfig, ModelConfig, budget_refusal
from graphbox.errors import DoesNotFitError, UnsupportedError, UsageError
from graphbox.graph.schema import EdgeType
from graphbox.graph.tiered_graph import DEFAULT_PASS_BYTES, TieredGraph
from graphbox.memory import release_free_pages
from graphbox.sample import DeviceGraph
from graphbox.sample.adjacency import GraphLike
from graphbox.sample.device_arrays import DeviceArrays, RowBlocks
from graphbox.table import EmbeddingTable, Table
from graphbox.table.arguments import Optimizer
from graphbox.table.host_table import host_table
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.transfer import CPU
from graphbox.train.view import GraphView
from graphbox.words import counted, counted_bytes

if TYPE_CHECKING:
    from graphbox.table import DeviceTable

Key = TypeVar("Key", bound=Hashable)

MOST_NEIGHBORS_ON_DEVICE = 512
"""Of a node at a hop, without replacement; see :func:`graphbox.sample.sample_neighbors`."""


@dataclass(frozen=True)
class TrainingMemory:
    """Budgets of a training, and the folder of what does not fit.

    Attributes:
        config: the section `memory` of the run file: what is asked for.
        folder: where rows of tables go that find no room; None: there are no budgets of tables.
        processes: which divide rows and budgets among them.
        device: where the model computes.
        decided_hbm: budgets of its memory that placement decided; None: those asked for.
    """

    config: MemoryConfig = field(default_factory=MemoryConfig)
    folder: Path | None = None
    processes: TrainingProcesses = ALONE
    device: torch.device = CPU
    decided_hbm: HbmConfig | None = None
    _sizes: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _on_device: dict[str, DeviceTable] = field(default_factory=dict, init=False, repr=False)
    _new_folders: list[Path] = field(default_factory=list, init=False, repr=False)
    _released_at: list[float] = field(default_factory=lambda: [-math.inf], init=False, repr=False)
    _why_below: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    @property
    def hbm(self) -> HbmConfig:
        """Budgets in the GPU's memory: those that placement decided, else those asked for."""
        return self.config.hbm if self.decided_hbm is None else self.decided_hbm

    @property
    def pass_bytes(self) -> int:
        """Memory for what is sampled or walked ahead of batches from disk."""
        return self.config.passes or DEFAULT_PASS_BYTES

    @property
    def graph_on_disk(self) -> bool:
        """Whether batches are sampled from disk."""
        return self.config.topology is not None or self.config.features is not None

    @contextmanager
    def folder_for(self, name: str) -> Iterator[Path | None]:
        """Give a folder for arrays over all nodes while the block runs; None: they are kept in memory.

        Arrays that are mapped from its files can be used after the block, though the files are gone.

        Args:
            name: what the arrays are.
        """
        if not self.graph_on_disk or self.folder is None:
            yield None
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{name}-", dir=self.folder) as folder:
            yield Path(folder)

    def release_free_pages(self, interval_s: float = 0.0) -> None:
        """Return free pages of the heap to the system under budgets, which bound what the process has.

        Without budgets the heap keeps them: the next batch takes them again.

        Args:
            interval_s: do nothing where the last time is less than so many seconds ago.
        """
        config, now = self.config, time.monotonic()
        if config.topology is None and config.features is None and config.tables is None:
            return
        if now - self._released_at[0] >= interval_s:
            release_free_pages()
            self._released_at[0] = time.monotonic()

    def features_on_device(self, arrays: Mapping[Key, RowBlocks]) -> DeviceArrays[Key] | None:
        """Return features where kernels of the device read them, within their budget; None: it has none."""
        if not has_kernels(self.device):
            return None
        return DeviceArrays(arrays, self.device, hbm_bytes=self.hbm.features, misses="read")

    def sampled_on_device(
        self, graph: GraphLike | TieredGraph, num_neighbors: Sequence[int]
    ) -> DeviceGraph | None:
        """Return a graph whose neighbours are sampled where the model computes; None: on the CPU.

        Args:
            graph: what is sampled, in memory or in tiers.
            num_neighbors: how many neighbours at each hop.
        """
        if self.why_on_cpu(num_neighbors, in_tiers=isinstance(graph, TieredGraph)) is not None:
            return None
        return DeviceGraph(graph, self.device, hbm_bytes=self.hbm.topology)

    def sampling_place(self, num_neighbors: Sequence[int], *, in_tiers: bool = False) -> str:
        """Return where neighbours are sampled, in words, and why on the CPU; see :meth:`why_on_cpu`."""
        reason = self.why_on_cpu(num_neighbors, in_tiers=in_tiers)
        return str(self.device) if reason is None else f"cpu: {reason}"

    def why_on_cpu(self, num_neighbors: Sequence[int], *, in_tiers: bool = False) -> str | None:
        """Return why neighbours are sampled on the CPU, in words; None: they are not.

        Args:
            num_neighbors: how many neighbours at each hop.
            in_tiers: batches are made in passes over a graph in tiers.
        """
        if not has_kernels(self.device):
            return "the model computes there"
        if self.config.topology is not None and not in_tiers:
            return "the graph is on disk"
        if self.config.tables is not None and not in_tiers:
            return "rows of tables are on disk, and read ahead of batches"
        if max(num_neighbors, default=0) > MOST_NEIGHBORS_ON_DEVICE:
            return f"more than {MOST_NEIGHBORS_ON_DEVICE} neighbours of a node are asked for"
        return None

    def on_disk(self, view: GraphView, edge_types: Collection[EdgeType]) -> GraphView:
        """Return a view whose edge types can be read from files: itself, or what it shows written anew.

        Args:
            view: the graph as training sees it.
            edge_types: what is to be read.
        """
        return (
            view if view.is_on_disk(edge_types) else view.on_disk(self.new_folder("edges"), self.pass_bytes)
        )

    def new_folder(self, name: str) -> Path:
        """Return a new folder, on the disk of what does not fit; :meth:`remove_folders` removes it."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        self._new_folders.append(Path(mkdtemp(prefix=f"{name}-", dir=self.folder)))
        return self._new_folders[-1]

    def remove_folders(self) -> None:
        """Remove the folders of :meth:`new_folder` that are still there: the training is over."""
        for folder in self._new_folders:
            shutil.rmtree(folder, ignore_errors=True)  # most went with what was in them
        self._new_folders.clear()

    def tiered(self, view: GraphView, *, topology_share: float = 1.0) -> TieredGraph:
        """Return a graph for sampling from disk; a budget that is not given is the size of all there is.

        Args:
            view: a graph that is in files, see :meth:`on_disk`.
            topology_share: the part of the budget of edges that it has.

        Raises:
            UsageError: the graph is not the one on disk.
            DoesNotFitError: the budget of edges is less than what changes of the graph take.
        """
        config = self.config
        return view.tiered(
            topology_bytes=self.topology_bytes(topology_share),
            feature_bytes=_EVERYTHING if config.features is None else config.features // self.processes.size,
            pass_bytes=None if config.passes is None else config.passes // self.processes.size,
        )

    def topology_bytes(self, share: float = 1.0) -> int:
        """Return a part of this process's budget of edges; what all edges take where there is none."""
        if self.config.topology is None:
            return _EVERYTHING
        return int(self.config.topology * share) // self.processes.size

    def new_tables(
        self,
        rows: Mapping[str, int],
        dim: int,
        optimizer: Optimizer,
        lr: float,
        *,
        seeds: Mapping[str, int],
        **options: Any,
    ) -> dict[str, Table]:
        """Return a table for each name, on SSD where tables have a budget, which they share by their rows.

        Args:
            rows: how many rows each will have, by name.
            dim: length of a row.
            optimizer: see :class:`graphbox.table.EmbeddingTable`.
            lr: learning rate.
            seeds: seed of each.
            **options: more arguments of :class:`graphbox.table.EmbeddingTable`.

        Raises:
            DoesNotFitError: the budget has no room for the index of all keys.
        """
        shares = self.shares(rows)
        return {
            name: self.new_table(
                name, dim, optimizer, lr, share=shares[name], rows=count, seed=seeds[name], **options
            )
            for name, count in rows.items()
        }

    def shares(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """Return which part of the budget of tables each has: what buffers take, and the rest by size."""
        total = max(1, sum(sizes.values()))
        budget = max(1, self.config.tables or 0)
        buffers = min(TABLE_BUFFER_BYTES / budget, 1 / max(1, len(sizes)))
        rest = 1 - buffers * len(sizes)
        return {name: buffers + rest * size / total for name, size in sizes.items()}

    def new_table(
        self,
        name: str,
        dim: int,
        optimizer: Optimizer,
        lr: float,
        *,
        share: float = 1.0,
        rows: int = 0,
        **options: Any,
    ) -> Table:
        """Return a table, on SSD where tables have a budget.

        Args:
            name: of the table, unique in the model.
            dim: length of a row.
            optimizer: see :class:`graphbox.table.EmbeddingTable`.
            lr: learning rate.
            share: the part of the budget it has.
            rows: how many it will have, as far as that is known.
            **options: more arguments of :class:`graphbox.table.EmbeddingTable`.

        Raises:
            DoesNotFitError: the budget has no room for the index of all keys.
        """
        self._sizes[name] = max(1, rows) * dim
        if self.config.tables is None or self.folder is None:
            return self.processes.table(EmbeddingTable(dim, optimizer, lr, **options), name)
        budget = int(self.config.tables * share)
        try:
            table = EmbeddingTable(
                dim, optimizer, lr, path=self.folder / name, memory_bytes=budget, **options
            )
            table.reserve(rows)  # an index that grows is there twice, and leaves less to rows
        except DoesNotFitError as error:
            raise DoesNotFitError(
                f"expected a budget with room for the table `{name}` of {counted(rows, 'row')}, received "
                f"{counted_bytes(budget)}, its part of {counted_bytes(self.config.tables)}: {error.message}",
                where="memory.tables",
                hint="give it more, or leave it out",
            ) from error
        return table

    def near(self, tables: Mapping[str, Table]) -> dict[str, Table]:
        """Return tables for modules: on a GPU with their rows there, which share its budget by their sizes.

        What was returned before for tables of these names is given up. Of a table in several processes each
        has its rows on its own GPU, all of them or none.

        Args:
            tables: what keeps the rows, by name; the size counts of those that :meth:`new_table` made.
        """
        self.release(tables)
        if not has_kernels(self.device):
            return dict(tables)
        known = {name: self._sizes.get(name, 1) for name in tables}
        room, total = self._table_room(), sum(known.values())
        found: dict[str, Table] = {}
        for name, table in tables.items():
            budget = None if room is None else room * known[name] // total
            found[name] = self._near(name, table, budget)
        return found

    def kept(self, tables: Mapping[str, Table]) -> dict[str, Table]:
        """Return what keeps the rows of tables of modules: of one that :meth:`near` made, the table below."""
        if not has_kernels(self.device):
            return dict(tables)
        from graphbox.table import DeviceTable

        return {
            name: table.local if isinstance(table, DeviceTable) else table for name, table in tables.items()
        }

    def release(self, names: Iterable[str] | None = None) -> None:
        """Write rows that are on a GPU back to tables of these names, or to all, and give its memory up."""
        for name in list(self._on_device) if names is None else [*names]:
            table = self._on_device.pop(name, None)
            if table is not None:
                table.close()

    def table_places(self) -> dict[str, str]:
        """Return where the rows of tables are computed with, and why: empty where nothing is on a GPU."""
        if not has_kernels(self.device):
            return {}
        places = dict.fromkeys([str(self.device)] if self._on_device else [])
        places |= dict.fromkeys(f"{name} on the cpu: {why}" for name, why in self._why_below.items())
        return {"tables": ", ".join(places)} if places else {}

    def _table_room(self) -> int | None:
        if self.hbm.tables is not None or self.device.type != "cuda":
            return self.hbm.tables
        torch.cuda.empty_cache()  # what PyTorch holds for later counts as free
        free, _ = torch.cuda.mem_get_info(self.device)
        return int(_SHARE_OF_FREE * free)

    def _near(self, name: str, table: Table, budget: int | None) -> Table:
        from graphbox.table import DeviceTable

        self._why_below.pop(name, None)
        near: DeviceTable | None = None
        try:
            near = DeviceTable(host_table(table, "rows on a GPU"), self.device, hbm_bytes=budget)
        except (UnsupportedError, DoesNotFitError) as error:
            self._why_below[name] = error.message
        if table.is_collective:
            refusing = self.processes.first_with(f"rows of {name} on GPUs", is_so=near is None)
            if near is not None and refusing is not None:
                near.close()
                near, self._why_below[name] = None, f"the GPU of rank {refusing} cannot have its rows"
        if near is None:
            return table
        self._on_device[name] = near
        return self.processes.table(near, name) if table.is_collective else near

    def clear(self) -> None:
        """Remove rows that an earlier training left: its checkpoints have them."""
        if self.folder is not None and self.folder.exists():
            shutil.rmtree(self.folder)


def has_kernels(device: torch.device) -> bool:
    """Return whether samplers and tables have kernels on a device."""
    return device.type == "cuda"


_EVERYTHING = 1 << 50

_SHARE_OF_FREE = 0.6
"""Of the memory that a GPU has free, for tables that no budget was found for; the rest is for batches."""

TABLE_BUFFER_BYTES = 12 << 20
"""Approximate memory of a table with rows on SSD, beside rows and index."""


def discard_table(table: Table) -> None:
    """Close a table that another one took the place of, and remove its files."""
    path = table.path
    if path is not None:
        host_table(table, "rows on SSD").close()
        shutil.rmtree(path)


def check_memory(config: ModelConfig, memory: TrainingMemory, model: str) -> None:
    """Refuse budgets that a kind of model has no use for, rather than exceed them.

    Raises:
        UsageError: there are such.
    """
    for budget in ("topology", "features", "tables"):
        if getattr(memory.config, budget) is None:
            continue
        refusal = budget_refusal(type(config), config.kind, budget, model, config.model_dump())
        if refusal is not None:
            raise UsageError(refusal[0], where=f"memory.{budget}", hint=refusal[1])
