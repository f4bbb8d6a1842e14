"""Numbers as people read them."""

from __future__ import annotations

import pytest

from graphbox.words import counted_bytes


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1024, "1,024 bytes (1.0 KiB)"),
        (1_572_864, "1,572,864 bytes (1.5 MiB)"),
        (3 << 30, "3,221,225,472 bytes (3.0 GiB)"),
        (5 << 41, "10,995,116,277,760 bytes (10.0 TiB)"),
    ],
)
def test_bytes_have_the_unit_of_budgets_beside_them(size_bytes: int, text: str) -> None:
    assert counted_bytes(size_bytes) == text
