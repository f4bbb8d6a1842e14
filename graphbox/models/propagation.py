"""Closed forms over the neighbours of nodes: propagated features (SGC), and propagated labels."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def normalized_adjacency(links: sp.csr_array, *, self_loops: bool) -> sp.csr_array:
    """Return D^-1/2 A D^-1/2, float32 [n, n], with D the row sums of A; rows without links stay zero.

    Args:
        links: symmetric 0/1 [n, n].
        self_loops: let A be ``links`` with a link of each node to itself.
    """
    whole = links
    if self_loops:
        whole = sp.csr_array(links + sp.eye_array(links.shape[0], dtype=np.float32, format="csr"))
        whole.data[:] = 1.0
    degree = np.asarray(whole.sum(axis=1)).ravel()
    scale = np.where(degree > 0, np.maximum(degree, 1.0) ** -0.5, 0.0).astype(np.float32)
    return sp.csr_array(sp.diags_array(scale) @ whole @ sp.diags_array(scale)).astype(np.float32)


def propagated_features(links: sp.csr_array, features: sp.csr_array, steps: int = 2) -> sp.csr_array:
    """Return the features of simplified graph convolution: S^steps X, float32 [n, columns].

    S is the normalized adjacency with self-loops (Wu et al., "Simplifying graph convolutional networks",
    ICML 2019).

    Args:
        links: symmetric 0/1 [n, n].
        features: float32 [n, columns].
        steps: how often features are averaged over neighbours.
    """
    smooth = normalized_adjacency(links, self_loops=True)
    for _ in range(steps):
        features = sp.csr_array(smooth @ features)
    return features


def propagated_labels(
    links: sp.csr_array, labels: NDArray[np.float32], *, spread: float = 0.9, steps: int = 50
) -> NDArray[np.float32]:
    """Return what label propagation makes of known labels: float32 [n, classes].

    Iterates F = spread S F + (1 - spread) Y from F = Y, with S the normalized adjacency without self-loops
    (Zhou et al., "Learning with local and global consistency", NIPS 2003; cf. Zhu and Ghahramani, 2002).

    Args:
        links: symmetric 0/1 [n, n].
        labels: Y, float32 [n, classes]: the known classes of nodes, zeros of the others.
        spread: weight of what neighbours say, below 1.
        steps: number of iterations; after 50 the rest is ``spread``^50 of it, half a percent by default.
    """
    smooth = normalized_adjacency(links, self_loops=False) * np.float32(spread)
    own = (np.float32(1.0 - spread)) * labels
    found = labels
    for _ in range(steps):
        found = smooth @ found
        found += own
    return np.asarray(found, dtype=np.float32)
