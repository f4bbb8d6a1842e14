"""Numbers with their nouns, as people read them."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number and what is counted: ``1 node``, ``1,234 nodes``.

    Args:
        number: how many.
        noun: one of them.
        plural: several of them, where that is not the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
