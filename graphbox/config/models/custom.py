"""Models of one's own: their trainer is named by an import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from graphbox.config.models.section import ModelSection

__all__ = ["CustomConfig"]


class CustomConfig(ModelSection):
    """A model whose trainer is the user's own code; the run file names it, data never does."""

    kind: Literal["custom"]
    """Kind of model."""
    trainer: str
    """Import path (`package.module:name`) of a function or class that is called with this section and a
    `graphbox.train.Assignment`, and returns a `graphbox.train.Trainer`."""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """What the trainer wants to know, as it names it."""

    @classmethod
    def import_paths(cls, values: Mapping[str, Any]) -> dict[str, str]:
        """See :meth:`ModelSection.import_paths`."""
        path = values.get("trainer")
        return {"trainer": path} if isinstance(path, str) else {}
