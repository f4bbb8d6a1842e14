"""Sections `distil`: the teachers of a model, and how it learns from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from graphbox.config.section import Name, PositiveFloat, PositiveInt, Section


class _TeachersSection(Section):
    """Teachers of a model."""

    teachers: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Models of the same task that come before it in the run file: for classes those that classify nodes
    themselves, for rankings `lightgcn` and `matrix_factorization`. The probabilities of several are
    averaged."""
    temperature: PositiveFloat = 1.0
    """Logits of teachers and model are divided by it: the higher, the more unlikely classes or candidates
    count."""


class DistillationSection(_TeachersSection):
    """Teachers of a model that classifies.

    It learns what they say of all nodes, not only the classes that are known.
    """

    label_weight: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of the loss that is of the known classes of the training part."""


class RankingDistillationSection(_TeachersSection):
    """Teachers of a model that ranks: it learns which candidates they rank first."""

    k: PositiveInt = 100
    """Candidates of a query that the model learns the teachers' probabilities of: those ranked first, without
    the query's known answers. All others count together."""
    answer_weight: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of the loss that is of the known answers."""
