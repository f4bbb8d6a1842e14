"""The processes that train one model together, of which each has a part of every batch; or one alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor, nn

from graphbox.config import MemoryConfig, ModelConfig, TaskConfig
from graphbox.config.processes import refusal_of_processes
from graphbox.errors import BackendMissingError, UsageError
from graphbox.table import EmbeddingTable, ProcessGroup, ShardedTable, Table
from graphbox.table.distributed import FILES_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from graphbox.table import DeviceTable


class TrainingProcesses:
    """Communication between the processes of a training.

    Each process trains on its part of every batch: the loss of a part is its share of that of the batch, so
    that gradients, and losses, are added up. All processes make the same decisions: those that depend on time
    or on people are rank 0's. With one process nothing is done and nothing changes.

    Args:
        group: the processes; None: this one alone.
    """

    def __init__(self, group: ProcessGroup | None = None) -> None:
        self._group = group

    @property
    def size(self) -> int:
        """Number of processes."""
        return 1 if self._group is None else self._group.size

    @property
    def rank(self) -> int:
        """The number of this one, from 0."""
        return 0 if self._group is None else self._group.rank

    @property
    def is_first(self) -> bool:
        """Whether this one writes what is written once, and talks to people."""
        return self.rank == 0

    def slice_of(self, count: int) -> slice:
        """Return the part of ``count`` things in order that is this process's: all of them alone."""
        return self.slices_of(count)[self.rank]

    def slices_of(self, count: int) -> list[slice]:
        """Return the parts of ``count`` things in order that the processes have, by their ranks."""
        return [slice(0, count)] if self._group is None else self._group.slices_of(count)

    def seeds(self) -> tuple[int, ...]:
        """Return numbers that make draws of this process unlike those of others; none alone."""
        return () if self._group is None else (self.size, self.rank + 1)

    def share(self, mean: Tensor, count: int, whole: int) -> Tensor:
        """Return the share that a part of a batch has in its mean loss.

        Args:
            mean: the mean loss of the part; no finite number, but a gradient of zeros, for a part of nothing.
            count: how many things it is the mean of; of nothing the share is nothing, also alone.
            whole: how many things the batch has in all processes.
        """
        if not count:
            return torch.nan_to_num(mean) * 0.0
        return mean if self._group is None else mean * (count / whole)

    def gather_slices(self, name: str, rows: Tensor, count: int) -> Tensor:
        """Return ``count`` rows, of which each process gives its :meth:`slice_of` them; with gradients.

        For what the parts of a batch share, like the negatives of all its queries: each process makes a slice
        of it, and its gradients are those of all. See :meth:`ProcessGroup.gather_slices`.
        """
        return rows if self._group is None else self._group.gather_slices(name, rows, count)

    def sum(self, name: str, value: float) -> float:
        """Return the sum of the values of all processes."""
        if self._group is None:
            return value
        return float(self._group.add(name, torch.tensor(value, dtype=torch.float64)))

    def first_with(self, name: str, *, is_so: bool) -> int | None:
        """Return the lowest rank of the processes in which something is so; None: it is in none."""
        if self._group is None:
            return 0 if is_so else None
        found = np.flatnonzero(self._group.gather(name, np.array([int(is_so)]))[:, 0])
        return int(found[0]) if len(found) else None

    def gather_rows(self, name: str, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the rows of all processes, those of rank 0 first: [sum of counts, ...].

        Args:
            name: what messages call it.
            rows: [n, ...] of this process.
            counts: how many rows each process has, by its rank; the same numbers in all.
        """
        return rows if self._group is None else self._group.gather_rows(name, rows, counts)

    def mean(self, name: str, values: Mapping[str, float], count: int) -> dict[str, float]:
        """Return the means over the things of all processes, in all of them.

        Args:
            name: what messages call it.
            values: the means over ``count`` things of this process, by the names that all have alike; those
                over nothing do not count.
            count: how many they are the means of.
        """
        if self._group is None:
            return dict(values)
        weighted = [value * count if count else 0.0 for value in values.values()]
        sums = self._group.add(name, torch.tensor([*weighted, count], dtype=torch.float64)).tolist()
        return {each: total / sums[-1] for each, total in zip(values, sums, strict=False)}

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give each parameter the sum of its gradients; none where no process has one."""
        if self._group is None:
            return
        learning = [each for each in parameters if each.requires_grad]
        if not learning:
            return
        sizes = [each.numel() for each in learning]
        flat = learning[0].new_zeros(sum(sizes) + len(learning), dtype=torch.float32)
        parts = torch.split(flat[: sum(sizes)], sizes)
        has_gradient = flat[sum(sizes) :]
        for number, (parameter, part) in enumerate(zip(learning, parts, strict=True)):
            if parameter.grad is not None:
                part.copy_(parameter.grad.reshape(-1))
                has_gradient[number] = 1.0
        self._group.add("gradients of parameters", flat)
        for parameter, part, has in zip(learning, parts, has_gradient.tolist(), strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.dtype) if has else None

    def decide(self, *decisions: bool) -> tuple[bool, ...]:
        """Return the decisions of rank 0."""
        if self._group is None:
            return decisions
        flags = torch.tensor([int(each) for each in decisions])
        return tuple(bool(each) for each in self._group.broadcast("decisions", flags).tolist())

    def agree(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the figures of rank 0, by the names that all processes have alike."""
        if self._group is None:
            return dict(values)
        numbers = torch.tensor(list(values.values()), dtype=torch.float64)
        agreed = self._group.broadcast("figures", numbers).tolist()
        return dict(zip(values, agreed, strict=True))

    def barrier(self, name: str) -> None:
        """Wait until all processes are here, of which some may be writing files."""
        if self._group is not None:
            self._group.barrier(name, timeout_seconds=FILES_TIMEOUT_SECONDS)

    def failing(self) -> AbstractContextManager[None]:
        """Let the others fail too if the block does."""
        return nullcontext() if self._group is None else self._group.failing()

    def table(self, table: EmbeddingTable | DeviceTable, name: str) -> Table:
        """Return the table of which ``table`` has the rows of this process; gradients are added up.

        Args:
            table: the rows; of one in several processes, they are on devices in all, or in none.
            name: what messages call it.
        """
        if self._group is None:
            return table
        return ShardedTable(table, self._group, name=name, average_gradients=False)

    @property
    def shard(self) -> tuple[int, int]:
        """Shard of keys of this process, as :meth:`EmbeddingTable.load` takes it."""
        return self.rank, self.size

    def close(self) -> None:
        """Leave the others; this process is alone then."""
        if self._group is not None:
            self._group.close()
            torch.distributed.destroy_process_group()


ALONE: Final = TrainingProcesses()


def check_processes(
    processes: int, config: ModelConfig, task: TaskConfig | None, model: str, memory: MemoryConfig
) -> None:
    """Refuse several processes for what only one can train.

    Args:
        processes: how many are asked for.
        config: the model's section.
        task: the section of its task.
        model: its name.
        memory: the budgets.

    Raises:
        UsageError: they have nothing to divide, or would not learn what one learns.
    """
    if processes == 1:
        return
    refusal = refusal_of_processes(model, type(config), None if task is None else task.kind, dict(config))
    if refusal is not None:
        message, hint = refusal
        raise UsageError(message, where="processes", hint=hint)
    if memory.tables is not None:
        raise UsageError(
            "expected tables in memory, whose rows the processes divide among them, received a budget",
            where="memory.tables",
            hint="leave the budget out, or `processes`",
        )


def check_gpus(processes: int, device: torch.device) -> None:
    """Check that there is a GPU for each process, if they compute on GPUs.

    Raises:
        UsageError: a GPU was named that is not the first.
        BackendMissingError: there are too few.
    """
    if device.type != "cuda":
        return
    if device.index not in (None, 0):
        raise UsageError(
            f"expected `device: cuda` for several processes, which take GPUs from 0 on, received {device}",
            where="device",
            hint="CUDA_VISIBLE_DEVICES chooses the GPUs that there are",
        )
    there = torch.cuda.device_count()
    if there < processes:
        raise BackendMissingError(
            f"expected a GPU for each of {processes} processes, found {there}",
            where="processes",
            hint=f"`processes: {there}`, or `device: cpu`",
        )
