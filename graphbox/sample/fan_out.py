"""One stream of passes for several readers, each at its own pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def fan_out(items: Iterable[Item], readers: int) -> list[Iterator[Item]]:
    """Return iterators that each give all items; an item is released when the last of them has given it.

    Unlike :func:`itertools.tee`, whose blocks hold 57 items until all of these have been given.

    Args:
        items: read by the iterator that is ahead of the others, when it needs one.
        readers: how many iterators.
    """
    source = iter(items)
    waiting: list[deque[Item]] = [deque() for _ in range(readers)]
    return [_given(source, own, waiting) for own in waiting]


def _given(source: Iterator[Item], own: deque[Item], waiting: list[deque[Item]]) -> Iterator[Item]:
    while True:
        if not own:
            try:
                item = next(source)
            except StopIteration:
                return
            for each in waiting:
                each.append(item)
            del item
        yield own.popleft()
