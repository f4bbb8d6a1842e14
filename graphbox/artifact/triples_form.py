"""Feeds of a model of a knowledge graph, from queries."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from graphbox.artifact.manifest import Name, Record


class TriplesForm(Record):
    """Scores of tails for a head and a relation, and of heads for a tail and a relation.

    Attributes:
        node_type: of heads of the first relation.
        entities: the table of rows, by node type.
        relation_type: what the ids of the relations' tables are called.
        to_tails: the table of relations' rows by which tails are asked for.
        to_heads: the same for heads.
        ends: by relation the node types of its heads and of its tails.
        rows_input: ONNX input ``FP32 [n, dim]``: rows of the entities that are asked about.
        relations_input: ONNX input ``FP32 [n, relation dim]``.
        candidates_input: ONNX input ``FP32 [m, dim]``: rows of what may be the answer.
        compares_numbers: whether a score takes a number for each query, candidate and number of a row, so
            that few candidates fit into memory at once.
    """

    form: Literal["triples"] = "triples"
    node_type: str
    entities: dict[str, Name] = Field(min_length=1)
    relation_type: str
    to_tails: Name
    to_heads: Name
    ends: dict[str, tuple[str, str]] = Field(min_length=1)
    rows_input: str
    relations_input: str
    candidates_input: str
    compares_numbers: bool

    @property
    def onnx_inputs(self) -> set[str]:
        """Names of the ONNX inputs that are fed."""
        return {self.rows_input, self.relations_input, self.candidates_input}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if not {name for ends in self.ends.values() for name in ends} <= set(self.entities):
            raise ValueError("relations end at node types that have no table")
        if self.node_type not in self.entities or self.relation_type in self.entities:
            raise ValueError("`node_type` is one of `entities`, and `relation_type` is none of them")
        return self
