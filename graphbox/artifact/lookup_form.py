"""Stored embeddings, and the answer for ids that have none."""

from __future__ import annotations

from typing import Literal, Self, TypeAlias

from pydantic import Field, model_validator

from graphbox.artifact.manifest import Name, Record, RelativePath

UnknownIds: TypeAlias = Literal["refuse", "zero", "mean"]


class LookupForm(Record):
    """An embedding is a row of a table.

    Attributes:
        node_type: of queries that name none.
        tables: the table to read, by node type of the query.
        unknown_ids: answer for an id that the table lacks: an error (``refuse``), a row of zeros (``zero``)
            or the mean of the table's rows (``mean``): of the exported ones, of those of a
            compressed version after nodes were removed from it.
        defaults: that row, a ``float32 [dim]`` array, by node type of the query; empty with ``refuse``.
    """

    form: Literal["lookup"] = "lookup"
    node_type: str
    tables: dict[str, Name]
    unknown_ids: UnknownIds = "refuse"
    defaults: dict[str, RelativePath] = Field(default_factory=dict)

    @property
    def query_types(self) -> tuple[str, ...]:
        """The node types whose ids can be asked for."""
        return tuple(self.tables)

    @model_validator(mode="after")
    def _has_a_default_for_each_table(self) -> Self:
        expected = set() if self.unknown_ids == "refuse" else set(self.tables)
        if set(self.defaults) != expected:
            raise ValueError(
                f"expected defaults of the node types {sorted(expected)} with `unknown_ids` "
                f"{self.unknown_ids}, received {sorted(self.defaults)}"
            )
        return self
