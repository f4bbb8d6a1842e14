"""A trained model of a knowledge graph: the rows of its relations, and scores of candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config.models.knowledge_graph import KnowledgeGraphSection, TranslationSection
from graphbox.errors import UsageError, did_you_mean
from graphbox.models.bilinear import ComplEx, DistMult
from graphbox.models.knowledge_graph import TripleScore
from graphbox.models.translation import Distance, RotatE, TransE
from graphbox.train.transfer import tensor_on

_CHUNK_ROWS = 65_536
"""Candidates that are compared at once."""


@dataclass(frozen=True, eq=False)
class TripleRows:
    """Relation rows and settings of a trained model that completes triples.

    Attributes:
        kind: kind of the model: ``distmult``, ``complex``, ``transe`` or ``rotate``.
        distance: of ``transe`` and ``rotate``; None for the others.
        reciprocal: whether relations have a second row, after all first ones, by which heads are found.
        relations: names of the relations.
        node_types: types of entities.
        relation_ends: int64 [relations, 2], places in ``node_types`` of the types of heads and of tails.
        rows: float32 [relations, relation_dim], or twice as many.
    """

    kind: str
    distance: Distance | None
    reciprocal: bool
    relations: tuple[str, ...]
    node_types: tuple[str, ...]
    relation_ends: NDArray[np.int64]
    rows: NDArray[np.float32]

    def row_names(self) -> list[str]:
        """Return a name for each row."""
        backwards = [f"{name} (backwards)" for name in self.relations] if self.reciprocal else []
        return [*self.relations, *backwards]

    def directed(self, dim: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the rows by which tails are asked for, and those by which heads are, as if they were tails.

        Args:
            dim: length of an entity's row.
        """
        count = len(self.relations)
        if self.reciprocal:
            return self.rows[:count], self.rows[count:]
        backwards = self.score(dim).backwards(torch.from_numpy(np.array(self.rows)))
        return self.rows, backwards.numpy()

    def score(self, dim: int) -> TripleScore:
        """Return the score of entities with rows of length ``dim``."""
        return make_score(self.kind, dim, self.distance)

    def relation(self, name: str) -> int:
        """Return the number of a relation.

        Raises:
            UsageError: there is none of that name.
        """
        if name not in self.relations:
            raise UsageError(
                f"there is no relation `{name}`", where="relation", hint=did_you_mean(name, self.relations)
            )
        return self.relations.index(name)

    def end_types(self, relation: int) -> tuple[str, str]:
        """Return the node types of a relation's heads and tails."""
        head, tail = self.relation_ends[relation]
        return self.node_types[head], self.node_types[tail]

    def scores(
        self,
        embeddings: Mapping[str, NDArray[np.float32]],
        nodes: NDArray[np.int64],
        relations: NDArray[np.int64],
        *,
        to_heads: bool = False,
    ) -> NDArray[np.float32]:
        """Return the scores of all tails for heads, or of all heads for tails: float32 [n, candidates].

        Args:
            embeddings: float32 [nodes, dim] by node type; may be memory-mapped.
            nodes: int64 [n], the heads; the tails with ``to_heads``.
            relations: int64 [n], all with the same types of heads and tails.
            to_heads: whether heads are asked for.

        Raises:
            UsageError: relations of several pairs of types.
        """
        asked, candidates = self.asked_and_candidates(relations, to_heads=to_heads)
        rows = torch.from_numpy(np.array(embeddings[asked][nodes], dtype=np.float32))
        score = self.score(rows.shape[1])
        relation_rows = torch.from_numpy(self.rows[self.rows_asked(relations, to_heads=to_heads)])
        queries = self.queries(score, rows, relation_rows, to_heads=to_heads)
        vectors = embeddings[candidates]
        result = np.empty((len(nodes), len(vectors)), dtype=np.float32)
        for start in range(0, len(vectors), _CHUNK_ROWS):
            # Copied: torch takes only memory that may be written.
            chunk = torch.from_numpy(np.array(vectors[start : start + _CHUNK_ROWS], dtype=np.float32))
            result[:, start : start + len(chunk)] = score(queries, chunk).numpy()
        return result

    def asked_and_candidates(self, relations: NDArray[np.int64], *, to_heads: bool) -> tuple[str, str]:
        """Return the node types of the entities asked about, and of candidates.

        Args:
            relations: int64 [n].
            to_heads: whether heads are asked for.

        Raises:
            UsageError: relations of several pairs of types.
        """
        ends = np.unique(self.relation_ends[relations], axis=0)
        if len(ends) != 1:
            raise UsageError(f"expected relations of one pair of node types, received {len(ends)} pairs")
        head, tail = (self.node_types[end] for end in ends[0])
        return (tail, head) if to_heads else (head, tail)

    def rows_asked(self, relations: NDArray[np.int64], *, to_heads: bool) -> NDArray[np.int64]:
        """Return which rows relations are asked by: int64 [n]."""
        return relations + len(self.relations) * (to_heads and self.reciprocal)

    def queries(self, score: TripleScore, rows: Tensor, relation_rows: Tensor, *, to_heads: bool) -> Tensor:
        """Return what is compared with candidates: float32 [n, dim].

        Args:
            score: the score.
            rows: float32 [n, dim], of the entities asked about.
            relation_rows: float32 [n, relation_dim], those of :meth:`rows_asked`.
            to_heads: whether heads are asked for.
        """
        if to_heads and not self.reciprocal:
            return score.head_queries(rows, relation_rows)
        return score.tail_queries(rows, relation_rows)


class DeviceTriples:
    """Rows of entities and relations on a device, whose scores are ranked there.

    Args:
        triples: what completes triples.
        embeddings: float32 [nodes, dim] by node type, the rows of entities.
        device: where they are brought.
    """

    def __init__(
        self, triples: TripleRows, embeddings: Mapping[str, NDArray[np.float32]], device: torch.device
    ) -> None:
        self._triples = triples
        self._entities = {name: tensor_on(rows, device) for name, rows in embeddings.items()}
        self._relations = tensor_on(triples.rows, device)
        self._device = device

    @torch.no_grad()
    def __call__(
        self, nodes: NDArray[np.int64], relations: NDArray[np.int64], *, to_heads: bool = False
    ) -> Tensor:
        """Return the scores of all candidates, float32 [n, candidates]; see :meth:`TripleRows.scores`."""
        triples = self._triples
        asked, candidates = triples.asked_and_candidates(relations, to_heads=to_heads)
        rows = self._entities[asked][tensor_on(nodes, self._device)]
        place = tensor_on(triples.rows_asked(relations, to_heads=to_heads), self._device)
        score = triples.score(rows.shape[1])
        queries = triples.queries(score, rows, self._relations[place], to_heads=to_heads)
        scores: Tensor = score(queries, self._entities[candidates])
        return scores


def make_score(kind: str, dim: int, distance: Distance | None = None, margin: float = 0.0) -> TripleScore:
    """Return the score of a kind of model.

    Args:
        kind: ``distmult``, ``complex``, ``transe`` or ``rotate``.
        dim: length of an entity's row.
        distance: of ``transe`` and ``rotate``.
        margin: of the same.
    """
    if distance is None:
        return {"distmult": DistMult, "complex": ComplEx}[kind](dim)
    return {"transe": TransE, "rotate": RotatE}[kind](dim, distance, margin)


def score_of(section: KnowledgeGraphSection, kind: str) -> TripleScore:
    """Return the score of a model's section."""
    if isinstance(section, TranslationSection):
        return make_score(kind, section.dim, section.distance, section.margin)
    return make_score(kind, section.dim)
