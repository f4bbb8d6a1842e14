"""Base class of models of knowledge graphs: rows of entities and relations, and a score of triples."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from graphbox.table import TableEmbedding


class TripleScore(nn.Module, ABC):
    """Scores triples by the rows of head, relation and tail; higher is likelier.

    Head and relation become one vector, a query, which is compared with tails; tail and relation become one
    that is compared with heads, and gives the same scores. So many candidates cost one comparison each.

    Args:
        dim: length of an entity's row.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    @property
    def relation_dim(self) -> int:
        """Length of a relation's row."""
        return self.dim

    @abstractmethod
    def tail_queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Return what is compared with tails: float32 [n, dim].

        Args:
            heads: float32 [n, dim].
            relations: float32 [n, relation_dim].
        """

    @abstractmethod
    def backwards(self, relations: Tensor) -> Tensor:
        """Return the rows of relations from tails to heads: float32 [n, relation_dim].

        Args:
            relations: float32 [n, relation_dim].
        """

    def head_queries(self, tails: Tensor, relations: Tensor) -> Tensor:
        """Return what is compared with heads: float32 [n, dim].

        Args:
            tails: float32 [n, dim].
            relations: float32 [n, relation_dim].
        """
        return self.tail_queries(tails, self.backwards(relations))

    @abstractmethod
    def forward(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Return the score of every candidate for every query: float32 [n, m].

        Args:
            queries: float32 [n, dim].
            candidates: float32 [m, dim].
        """

    def sizes(self, rows: Tensor) -> Tensor:
        """Return the moduli of the numbers of rows, of entities or relations: float32 [n, numbers]."""
        return rows.abs()


class KnowledgeGraphModel(nn.Module):
    """Rows of entities and relations in tables, with a score.

    A relation is asked in two directions. With ``reciprocal`` the direction from tails to heads is a relation
    with a row of its own (Lacroix et al., ICML 2018; Kazemi and Poole, NeurIPS 2018).

    Args:
        entities: rows of entities, keyed by their number.
        relations: rows of relations, keyed by their number; reciprocal ones come after the others.
        score: the score.
        num_relations: number of relations.
        reciprocal: whether relations have a second row.
    """

    def __init__(
        self,
        entities: TableEmbedding,
        relations: TableEmbedding,
        score: TripleScore,
        num_relations: int,
        *,
        reciprocal: bool,
    ) -> None:
        super().__init__()
        self.entities, self.relations, self.score = entities, relations, score
        self._num_relations = num_relations
        self._reciprocal = reciprocal

    def forward(
        self, entities: Tensor, directed: Tensor, candidates: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return queries, the rows of entities and relations that they are of, and those of candidates.

        Each table is asked once.

        Args:
            entities: int64 [n], the entities that are asked about.
            directed: int64 [n], the relation; plus the number of relations where heads are asked for.
            candidates: int64 [m], entities.

        Returns:
            float32 [n, dim], [n, dim], [n, relation_dim] and [m, dim].
        """
        looked_up: Tensor = self.entities(torch.cat([entities, candidates]))
        rows, candidate_rows = torch.split(looked_up, [len(entities), len(candidates)])
        if self._reciprocal:
            relation_rows = self.relations(directed)
            queries = self.score.tail_queries(rows, relation_rows)
        else:
            relation_rows = self.relations(directed % self._num_relations)
            queries = directed_queries(self.score, rows, relation_rows, directed >= self._num_relations)
        return queries, rows, relation_rows, candidate_rows


def directed_queries(score: TripleScore, rows: Tensor, relation_rows: Tensor, to_heads: Tensor) -> Tensor:
    """Return queries of which some ask for heads: float32 [n, dim].

    Args:
        score: the score.
        rows: float32 [n, dim], of the entities asked about.
        relation_rows: float32 [n, relation_dim].
        to_heads: bool [n].
    """
    return torch.where(
        to_heads[:, None], score.head_queries(rows, relation_rows), score.tail_queries(rows, relation_rows)
    )
