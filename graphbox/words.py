"""Numbers with their nouns, as people read them."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number and what is counted: ``1 node``, ``1,234 nodes``.

    Args:
        number: how many.
        noun: one of them.
        plural: several of them, where that is not the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def byte_size(size: float | None) -> str:
    """Return a number of bytes in decimal units: ``3.4 MB``; nothing for None."""
    if size is None:
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.0f} TB" if size >= 100 else f"{size:.1f} TB"


def counted_bytes(size_bytes: int) -> str:
    """Return a number of bytes, and what that is in the unit in which budgets are given.

    ``900 bytes``, ``1,572,864 bytes (1.5 MiB)``, ``-1 bytes`` of what cannot be.
    """
    text = f"{size_bytes:,} bytes"
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= size:
            return f"{text} ({size_bytes / size:.1f} {unit})"
    return text
