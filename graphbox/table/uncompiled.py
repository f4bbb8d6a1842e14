"""Lookups that ``torch.compile`` leaves alone: imported when it meets one, as this takes torch a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from graphbox.table.module import TableModule


@torch.compiler.disable(reason="rows come from a table, outside of the graph")  # type: ignore[no-untyped-call,untyped-decorator]
def look_up(module: TableModule, arguments: tuple[Any, ...]) -> Any:
    """Return what the module's forward pass gives; the graph breaks here."""
    return module._rows_of(arguments)
