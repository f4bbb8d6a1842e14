"""Other systems that train embeddings on a CPU: torch, torch behind a dictionary, FBGEMM; and keys."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Int64Array: TypeAlias = npt.NDArray[np.int64]
PeerOptimizer: TypeAlias = Literal["sgd", "adam"]

HAS_FBGEMM = importlib.util.find_spec("fbgemm_gpu") is not None
_FILL_ROWS = 1 << 16
_STRIDE = 2_654_435_761
"""A prime: no number of rows is a multiple of it, so steps of it reach each row once."""


def uniform_or_zipf(rows: int, zipf: float, count: int, seed: int) -> Int64Array:
    """Return ids below ``rows``: uniform (``zipf`` 0), or a power law's by the inverse of its integral."""
    drawn = np.random.default_rng(seed).random(count)
    if zipf == 0:
        return (drawn * rows).astype(np.int64)
    total = float(rows) ** (1 - zipf) - 1
    ids: Int64Array = np.power(total * drawn + 1, 1 / (1 - zipf)).astype(np.int64) - 1
    return np.minimum(ids, rows - 1)


def keys_of(ids: Int64Array) -> torch.Tensor:
    """Spread ids over all of int64, one to one (the finalizer of SplitMix64)."""
    mixed = ids.astype(np.uint64) + np.uint64(1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return torch.from_numpy((mixed ^ (mixed >> np.uint64(31))).view(np.int64))


def positions_of(ids: Int64Array, rows: int) -> Int64Array:
    """Return where tables without keys have the rows of ids: as scattered as ours, frequent ids too."""
    return (ids * _STRIDE + 12345) % rows


def scattered_ids(rows: int, first: int, last: int) -> Int64Array:
    """Return the ids that fill a table in an order that has nothing to do with how frequent they are."""
    return positions_of(np.arange(first, last), rows)


@dataclass(frozen=True)
class Workload:
    """Batches of the same ids for all systems: as keys, and as dense row numbers.

    Attributes:
        name: says what they are.
        rows: of the table.
        keys: of each batch.
        positions: dense row numbers of each batch.
        offsets: where each bag begins, and the last one ends; bags are of one key unless said.
        gradients: of the bags.
    """

    name: str
    rows: int
    keys: list[torch.Tensor]
    positions: list[torch.Tensor]
    offsets: torch.Tensor
    gradients: torch.Tensor

    @classmethod
    def draw(
        cls, rows: int, dim: int, zipf: float, batch_size: int, batches: int, bag_keys: int = 1
    ) -> Workload:
        """Draw batches; ``zipf`` 0 is uniform."""
        ids = [uniform_or_zipf(rows, zipf, batch_size, seed) for seed in range(batches)]
        return cls(
            f"{rows}x{dim}-{'uniform' if zipf == 0 else f'zipf-{zipf}'}-batch-{batch_size}",
            rows,
            [keys_of(batch) for batch in ids],
            [torch.from_numpy(positions_of(batch, rows)) for batch in ids],
            torch.arange(0, batch_size + 1, bag_keys),
            torch.full((batch_size // bag_keys, dim), 0.01),
        )

    @property
    def batch_size(self) -> int:
        """Keys of a batch."""
        return len(self.keys[0])


class Peer(Protocol):
    """A table of dense rows."""

    name: str
    slowness: int
    """Factor by which fewer batches are enough to measure it."""

    def lookup(self, workload: Workload, batch: int) -> None:
        """Look a batch up."""

    def train(self, workload: Workload, batch: int) -> None:
        """Look a batch up and apply its gradients."""


def random_rows(rows: int, dim: int) -> torch.Tensor:
    """Return rows that are in memory: an array of zeros is not, and is read from one page."""
    return torch.empty(rows, dim).uniform_(-0.1, 0.1)


class TorchDense:
    """``torch.nn.EmbeddingBag`` with sparse gradients: no keys, the rows are numbered by the caller."""

    def __init__(self, rows: int, dim: int, optimizer: PeerOptimizer = "sgd") -> None:
        self.name = f"torch {torch.__version__} {'SGD' if optimizer == 'sgd' else 'SparseAdam'}"
        self.slowness = 1 if optimizer == "sgd" else 4
        self._bag = torch.nn.EmbeddingBag(rows, dim, mode="sum", sparse=True, _weight=random_rows(rows, dim))
        parameters = list(self._bag.parameters())
        self._optimizer: torch.optim.Optimizer
        if optimizer == "sgd":
            self._optimizer = torch.optim.SGD(parameters, 0.01)
        else:
            self._optimizer = torch.optim.SparseAdam(parameters, 0.01)

    def rows_of(self, workload: Workload, batch: int) -> torch.Tensor:
        """Return the row numbers of a batch."""
        return workload.positions[batch]

    def lookup(self, workload: Workload, batch: int) -> None:
        """Look a batch up."""
        with torch.no_grad():
            self._bag(self.rows_of(workload, batch), workload.offsets[:-1])

    def train(self, workload: Workload, batch: int) -> None:
        """Look a batch up and apply its gradients."""
        self._optimizer.zero_grad()
        rows = self._bag(self.rows_of(workload, batch), workload.offsets[:-1])
        rows.backward(workload.gradients)
        self._optimizer.step()


class TorchDictionary(TorchDense):
    """The same behind a Python dictionary from keys to row numbers, which a growing table of keys needs."""

    def __init__(self, rows: int, dim: int) -> None:
        super().__init__(rows, dim)
        self.name = f"torch {torch.__version__} with a dictionary"
        self.slowness = 16
        self._numbers: dict[int, int] = {}
        for first in range(0, rows, _FILL_ROWS):
            ids = np.arange(first, min(first + _FILL_ROWS, rows))
            self._numbers.update(zip(keys_of(ids).tolist(), positions_of(ids, rows).tolist(), strict=True))

    def rows_of(self, workload: Workload, batch: int) -> torch.Tensor:
        """Return the row numbers of a batch."""
        found = map(self._numbers.__getitem__, workload.keys[batch].tolist())
        return torch.from_numpy(np.fromiter(found, np.int64, workload.batch_size))


class Fbgemm:
    """FBGEMM's fused embedding tables with exact row-wise Adagrad, on the CPU."""

    def __init__(self, rows: int, dim: int) -> None:
        self.name = f"fbgemm {importlib.metadata.version('fbgemm-gpu-cpu')}"
        self.slowness = 2
        common: Any = importlib.import_module("fbgemm_gpu.split_table_batched_embeddings_ops_common")
        training: Any = importlib.import_module("fbgemm_gpu.split_table_batched_embeddings_ops_training")
        configs: Any = importlib.import_module("fbgemm_gpu.split_embedding_configs")
        self._table = training.SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, dim, common.EmbeddingLocation.HOST, training.ComputeDevice.CPU)],
            optimizer=configs.EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=0.01,
            pooling_mode=common.PoolingMode.SUM,
        )
        self._table.init_embedding_weights_uniform(-0.1, 0.1)

    def _rows(self, workload: Workload, batch: int) -> torch.Tensor:
        rows: torch.Tensor = self._table(indices=workload.positions[batch], offsets=workload.offsets)
        return rows

    def lookup(self, workload: Workload, batch: int) -> None:
        """Look a batch up."""
        with torch.no_grad():
            self._rows(workload, batch)

    def train(self, workload: Workload, batch: int) -> None:
        """Look a batch up and apply its gradients."""
        torch.autograd.backward(self._rows(workload, batch), workload.gradients)
