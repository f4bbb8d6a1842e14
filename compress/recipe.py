"""Recipes: which method each part of a model is compressed by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

__all__ = ["UNCHANGED", "Recipe"]

UNCHANGED = "float32"
"""Method that leaves a part as it is."""

_LATER: Final = {"by_layer": False, "tuned": False, "max_neighbors": None}
"""Fields that recipes did not always have, with the value that stands for their absence: no part of a key."""


@dataclass(frozen=True)
class Recipe:
    """Methods for the parts of one model.

    Attributes:
        dense: method of the ONNX part; ``float32``: it stays as it is.
        tables: codec of each table; tables that are not named stay as they are.
        float_layers: products of the ONNX part that stay float32.
        kept_neurons: fraction of the hidden neurons that are kept.
        by_layer: whether layers differ in the fraction, with as many weights as with one for all; see
            `graphbox.compress.dense.widths`.
        tuned: whether the ONNX part is trained for what was done to it, see
            `graphbox.compress.dense.fine_tuning`.
        max_neighbors: most neighbours that are kept of a node in a relation; None: all of them.
        unchanged: tables that stay as they are, to be named; recipes that differ in nothing else are equal.
    """

    dense: str = UNCHANGED
    tables: Mapping[str, str] = field(default_factory=dict)
    float_layers: tuple[str, ...] = ()
    kept_neurons: float = 1.0
    by_layer: bool = False
    tuned: bool = False
    max_neighbors: int | None = None
    unchanged: tuple[str, ...] = field(default=(), compare=False)

    @property
    def key(self) -> str:
        """Digest of the recipe: equal recipes have equal keys, in any process."""
        left_out = {"unchanged", *(name for name, value in _LATER.items() if getattr(self, name) == value)}
        methods = {key: value for key, value in self.as_dict().items() if key not in left_out}
        text = json.dumps(methods, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def dense_part(self) -> Recipe:
        """The recipe of the ONNX part alone, before fine-tuning."""
        return Recipe(
            dense=self.dense,
            float_layers=self.float_layers,
            kept_neurons=self.kept_neurons,
            by_layer=self.by_layer,
        )

    @property
    def step(self) -> str:
        """Line for the lineage of a version that was written by the recipe."""
        return f"recipe {self.key}"

    def as_dict(self) -> dict[str, Any]:
        """Return the recipe as plain values."""
        return {
            "dense": self.dense,
            "tables": dict(self.tables),
            "float_layers": list(self.float_layers),
            "kept_neurons": self.kept_neurons,
            "by_layer": self.by_layer,
            "tuned": self.tuned,
            "max_neighbors": self.max_neighbors,
            "unchanged": list(self.unchanged),
        }

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the recipe of `as_dict`."""
        return cls(
            dense=values["dense"],
            tables=dict(values["tables"]),
            float_layers=tuple(values["float_layers"]),
            kept_neurons=values["kept_neurons"],
            by_layer=values.get("by_layer", False),
            tuned=values.get("tuned", False),
            max_neighbors=values.get("max_neighbors"),
            unchanged=tuple(values.get("unchanged", ())),
        )

    def __str__(self) -> str:
        parts = [f"dense {self.dense}", f"tables {self._tables_text() or 'as they are'}"]
        if self.float_layers:
            parts.append(f"float32: {', '.join(self.float_layers)}")
        if self.kept_neurons < 1:
            by_layer = " by layer" if self.by_layer else ""
            parts.append(f"{100 * self.kept_neurons:g} % of the neurons{by_layer}")
        if self.tuned:
            parts.append("fine-tuned")
        if self.max_neighbors is not None:
            parts.append(f"at most {self.max_neighbors} neighbours")
        return "; ".join(parts)

    def _tables_text(self) -> str:
        """Return the one codec of all tables, or the codec of each, those that stay as they are included."""
        codecs = set(self.tables.values())
        if len(codecs) == 1 and not self.unchanged:
            return codecs.pop()
        changed = [f"{name} {codec}" for name, codec in self.tables.items()]
        return ", ".join([*changed, *(f"{name} {UNCHANGED}" for name in self.unchanged)]) if changed else ""
