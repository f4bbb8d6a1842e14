"""R-MAT graphs (Chakrabarti, Zhan, Faloutsos, SDM 2004) with the quadrants of Graph500, relabelled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Rmat:
    """An undirected graph as compressed rows, which are its CSC and its CSR."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]

    @property
    def num_nodes(self) -> int:
        """Number of nodes, about half of them isolated."""
        return len(self.indptr) - 1

    def connected(self) -> npt.NDArray[np.int64]:
        """Return the nodes that have edges."""
        return np.flatnonzero(np.diff(self.indptr))


def rmat(scale: int, edge_factor: int = 8, seed: int = 0) -> Rmat:
    """Return a graph of 2^scale nodes, about 2 * edge_factor * 2^scale edges, no loops, no duplicates."""
    rng = np.random.default_rng(seed)
    edges = edge_factor << scale
    source, target = np.zeros(edges, dtype=np.int64), np.zeros(edges, dtype=np.int64)
    for _ in range(scale):
        draw = rng.random(edges, dtype=np.float32)
        source = source * 2 + (draw >= 0.76)
        target = target * 2 + (((draw >= 0.57) & (draw < 0.76)) | (draw >= 0.95))
    label = rng.permutation(1 << scale)
    source, target = label[source], label[target]
    keys = np.concatenate([source << scale | target, target << scale | source])
    keys = keys[keys >> scale != keys & ((1 << scale) - 1)]
    keys.sort()
    keys = keys[np.append(True, keys[1:] != keys[:-1])]  # np.unique hashes: a hundred times as slow
    degree = np.bincount(keys >> scale, minlength=1 << scale)
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    return Rmat(indptr, (keys & ((1 << scale) - 1)).astype(np.int32))
