"""The embedding table in NumPy: all keys that may ever come are known, and all rows are updated at once.

The same as :mod:`tests.table.reference`, which it is compared with, and fast enough for a million operations.
Keys are told by their places in the list of all keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.table import ShowClickScore
from graphbox.table.arguments import Optimizer
from tests.table.reference import INITIALIZATION_STREAM, REFERENCES, SETTINGS

Float64Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def initial_rows(keys: npt.NDArray[np.int64], dim: int, seed: int) -> Float64Array:
    """Return the values that rows of keys start with."""
    blocks = -(-dim // 4)
    counters = np.zeros((len(keys), blocks, 4), dtype=np.uint32)
    positions = keys.view(np.uint64)[:, None]
    counters[:, :, 0] = np.arange(blocks)
    counters[:, :, 2] = positions & np.uint64(0xFFFFFFFF)
    counters[:, :, 3] = positions >> np.uint64(32)
    words = _core.philox(counters.reshape(-1, 4), _core.philox_key(INITIALIZATION_STREAM, seed, 0, 0))
    unit = (words.reshape(len(keys), -1)[:, :dim] >> 8).astype(np.float32) * np.float32(2.0**-23)
    return ((unit - np.float32(1)) * np.float32(SETTINGS["init_scale"])).astype(np.float64)


class VectorTable:
    """A table with the settings of :data:`tests.table.reference.SETTINGS`.

    Args:
        keys: all that may come, each once.
        dim: values of a row.
        optimizer: its name.
        seed: of the initial values.
    """

    def __init__(self, keys: npt.NDArray[np.int64], dim: int, optimizer: Optimizer, seed: int) -> None:
        self.all_keys, self.dim = keys, dim
        self.initial = initial_rows(keys, dim, seed)
        self.values = self.initial.copy()
        self.present = np.zeros(len(keys), bool)
        self._step = REFERENCES[optimizer]
        wide, one = (len(keys), dim), (len(keys), 1)
        second = one if optimizer.startswith("rowwise") else wide
        shapes = {
            "sgd": {},
            "adagrad": {"sum": wide},
            "rowwise_adagrad": {"sum": one},
            "adam": {"steps": one, "first": wide, "second": second},
            "rowwise_adam": {"steps": one, "first": wide, "second": second},
            "ftrl": {"n": wide, "z": wide},
        }[optimizer]
        self._state = {name: np.zeros(shape) for name, shape in shapes.items()}

    def __len__(self) -> int:
        return int(np.count_nonzero(self.present))

    def keys(self) -> npt.NDArray[np.int64]:
        """Return the keys that have rows, sorted."""
        return np.sort(self.all_keys[self.present])

    def pull(self, places: Places, create: bool = True) -> Float64Array:
        if create:
            self._make(places)
        return np.where(self.present[places, None], self.values[places], self.initial[places])

    def push(self, places: Places, grads: npt.NDArray[np.float32]) -> None:
        self._make(places)
        self._learn(places, grads)

    def erase(self, places: Places) -> int:
        present = np.unique(places[self.present[places]])
        self.present[present] = False
        return len(present)

    def _make(self, places: Places) -> None:
        new = np.unique(places[~self.present[places]])
        if len(new):
            self.present[new] = True
            self.values[new] = self.initial[new]
            for name, state in self._state.items():
                state[new] = SETTINGS["initial_accumulator"] if name in ("sum", "n") else 0.0
            if "z" in self._state:
                self._state["z"][new] = self._initial_z(self.initial[new])

    def _initial_z(self, values: Float64Array) -> Float64Array:
        """Return the z of FTRL whose value is the initial one."""
        lr, beta, l1, l2 = SETTINGS["lr"], 1.0, SETTINGS["l1"], SETTINGS["l2"]
        factor = (beta + np.sqrt(SETTINGS["initial_accumulator"])) / lr + l2
        z: Float64Array = -values * factor - np.sign(values) * l1
        return z

    def _learn(self, places: Places, grads: npt.NDArray[np.float32]) -> None:
        """Update rows that are there."""
        rows, which = np.unique(places, return_inverse=True)
        if len(rows) == len(places):
            sums = np.empty((len(rows), self.dim))
            sums[which] = grads
        else:
            sums = np.zeros((len(rows), self.dim))
            np.add.at(sums, which, grads)
        state: dict[str, Any] = {name: each[rows] for name, each in self._state.items()}
        self.values[rows] = self._step(self.values[rows], state, sums)
        for name, each in state.items():
            self._state[name][rows] = each


class VectorPolicies(VectorTable):
    """A table that admits keys when they come often, and drops what is unseen or of low score."""

    def __init__(
        self,
        keys: npt.NDArray[np.int64],
        dim: int,
        optimizer: Optimizer,
        seed: int,
        admitted_at: int,
        unseen_passes: int,
        score: ShowClickScore,
        *,
        forgets: bool,
    ) -> None:
        super().__init__(keys, dim, optimizer, seed)
        self._admitted_at, self._unseen_passes, self._score = admitted_at, unseen_passes, score
        self._forgets = forgets
        self.passes = 0
        self._pulls = np.zeros(len(keys), np.int64)
        self._seen = np.zeros(len(keys), np.int64)
        self._shows = np.zeros(len(keys), np.float32)
        self._clicks = np.zeros(len(keys), np.float32)

    def pull(self, places: Places, create: bool = True) -> Float64Array:
        if create:
            np.add.at(self._pulls, places[~self.present[places]], 1)
            self._admit(places)
        return super().pull(places, create=False)

    def push(self, places: Places, grads: npt.NDArray[np.float32]) -> None:
        self.learn(places, grads, np.ones(len(places), np.float32), np.zeros(len(places), np.float32))

    def learn(
        self,
        places: Places,
        grads: npt.NDArray[np.float32],
        shows: npt.NDArray[np.float32],
        clicks: npt.NDArray[np.float32],
    ) -> None:
        if not self._forgets:
            self._admit(places)  # a sketch remembers those that had a row
        known = self.present[places]
        rows = places[known]
        self._learn(rows, grads[known])
        self._seen[rows] = self.passes
        np.add.at(self._shows, rows, shows[known])
        np.add.at(self._clicks, rows, clicks[known])

    def end_pass(self) -> None:
        self.passes += 1
        self._shows *= np.float32(self._score.decay)
        self._clicks *= np.float32(self._score.decay)

    def shrink(self) -> tuple[int, int]:
        """Return how many rows were dropped since they were unseen, and how many for their score."""
        unseen = self.present & (self.passes - self._seen > self._unseen_passes)
        score = (self._shows - self._clicks) * self._score.nonclick_weight
        low = (
            self.present
            & ~unseen
            & (score + self._clicks * self._score.click_weight < self._score.drop_below)
        )
        self.erase(np.flatnonzero(unseen | low))
        return int(np.count_nonzero(unseen)), int(np.count_nonzero(low))

    def erase(self, places: Places) -> int:
        if self._forgets:
            self._pulls[places] = 0
        return super().erase(places)

    def counters(self, places: Places) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], Places]:
        """Return shows, clicks and the passes since a push saw the rows."""
        there = self.present[places]
        unseen = np.where(there, self.passes - self._seen[places], 0)
        return self._shows[places] * there, self._clicks[places] * there, unseen

    def _admit(self, places: Places) -> None:
        without = np.unique(places[~self.present[places]])
        admitted = without[self._pulls[without] >= self._admitted_at]
        self._make(admitted)
        if self._forgets:
            self._pulls[admitted] = 0
        self._seen[admitted] = self.passes
        self._shows[admitted] = self._clicks[admitted] = 0
