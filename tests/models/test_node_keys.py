"""Numbering of the nodes of several types."""

from __future__ import annotations

from graphbox.models import NodeKeys


def test_keys_number_all_types_without_overlap() -> None:
    keys = NodeKeys({"item": 3, "empty": 0, "tag": 2})
    assert keys.keys("item").tolist() == [0, 1, 2]
    assert keys.keys("empty").tolist() == []
    assert keys.keys("tag").tolist() == [3, 4]
    assert keys.start("tag") == 3
    assert keys.total == 5
