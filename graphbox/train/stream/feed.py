"""Where chunks come from: the face between the loop and what commits new data to a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from graphbox.graph import Graph
from graphbox.train.stream.chunk import Chunk

WaitCallback: TypeAlias = Callable[[str], None]
"""Called again and again while something is waited for, with what that is."""


class ChunkFeed(Protocol):
    """Gives the chunks of a stream one after the other."""

    def graph(self) -> Graph:
        """Return the graph after the chunk that was committed last."""

    def wait(self, number: int, waiting: WaitCallback) -> bool:
        """Wait until a chunk is there: that which was committed last, or the one after it.

        Returns:
            Whether it is; else no more will come in this attempt.

        Raises:
            ConflictError: the graph holds fewer or more chunks than have been learnt.
            InterruptedRunError: someone asked to stop.
        """

    def chunk(self, number: int) -> Chunk:
        """Return a chunk that was waited for, committed to the graph."""
