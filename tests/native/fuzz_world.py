"""Objects that the arguments of fuzzed calls refer to: one small graph, so that they fit together."""

from __future__ import annotations

import random
from collections.abc import Mapping, MutableSequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


class World:
    """A small graph, files and what belongs to them, and the objects made so far.

    Args:
        generator: of all choices.
        folder: where files are.
        objects: of each class, made by calls.
        largest: number to ask for: memory, rows and the like.
    """

    def __init__(
        self,
        generator: random.Random,
        folder: Path,
        objects: Mapping[str, MutableSequence[Any]],
        largest: int,
    ) -> None:
        self.largest = largest
        self.random = generator
        self.folder = folder
        self.objects = objects
        self.tiered: list[Any] = []  # tables that were to be given a folder
        self.num_nodes = generator.choice([1, 2, 7, 40, 300])
        self.index_dtype = generator.choice(["int32", "int64"])
        numbers = np.random.default_rng(generator.getrandbits(32))
        self.numbers = numbers
        degrees = numbers.integers(0, generator.choice([1, 4, 90]), self.num_nodes)
        self.indptr = np.append(0, np.cumsum(degrees)).astype(np.int64)
        self.num_edges = int(self.indptr[-1])
        self.indices = np.concatenate(
            [np.zeros(0), *(np.sort(numbers.integers(0, self.num_nodes, degree)) for degree in degrees)]
        ).astype(self.index_dtype)
        self.weights = numbers.exponential(1, self.num_edges).astype(np.float32) + np.float32(1e-6)
        self.timestamps = numbers.integers(-5, 50, self.num_edges)
        touched = np.flatnonzero(numbers.random(self.num_nodes) < 0.2)
        self.touched = touched
        self.new_indptr = np.append(0, np.cumsum(numbers.integers(0, 6, len(touched)))).astype(np.int64)
        self.new_edges = int(self.new_indptr[-1])

    def nodes(self, count: int | None = None) -> Array:
        """Return node indices."""
        size = self.random.choice([0, 1, 3, 40, 700]) if count is None else count
        return self.numbers.integers(0, self.num_nodes, size)

    def object(self, name: str) -> Any:
        """Return one of the class, or None where none was made."""
        made = self.objects[name]
        return self.random.choice(made) if made else None

    def maybe(self, value: Any) -> Any:
        """Return the value or None."""
        return value if self.random.random() < 0.5 else None

    def rows(self) -> tuple[Any, ...]:
        """Return an adjacency as tuples hold it."""
        return (self.indptr, self.indices, "edges", self.maybe(self.object("Overlay")))

    def file(self) -> tuple[str, int]:
        """Return a file of 64 KiB with rising int64, its path and size."""
        path = self.folder / "numbers"
        if not path.exists():
            path.write_bytes(np.minimum(np.arange(8192, dtype=np.int64), 500).tobytes())
        return str(path), 65536

    def text(self) -> Array:
        """Return the bytes of a little table."""
        lines = self.random.choice(
            [b'id,name\n1,a\n2,"b\nc"\n', b"", b"\n\n,", b'"', b"1\t2\r\n3\t4", b"x" * 999]
        )
        return np.frombuffer(lines, np.uint8)

    def strings(self) -> tuple[Array, Array]:
        """Return offsets and text of some strings."""
        words = [b"12", b"-7", b"", b"1e400", b"true", "ü".encode(), b"9" * 30, b"nan"]
        chosen = [self.random.choice(words) for _ in range(self.random.choice([0, 1, 5, 60]))]
        offsets = np.append(0, np.cumsum([len(word) for word in chosen])).astype(np.int64)
        return offsets, np.frombuffer(b"".join(chosen), np.uint8)
