"""Writes a trained model of a knowledge graph as an artifact: score as ONNX, rows beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from torch import Tensor, nn, zeros

from graphbox.artifact import Artifact, ArtifactWriter, TriplesForm
from graphbox.deploy import open_knowledge_graph
from graphbox.export.onnx import ExportedOnnx, TensorInput, export_onnx
from graphbox.export.parity import ParityBounds, ParityReport, check_parity
from graphbox.export.version import ExportResult, Float, NewVersion, add_rows, free_name
from graphbox.graph.live_rows import LiveRows
from graphbox.models.knowledge_graph import TripleScore

Int64 = npt.NDArray[np.int64]

_BOUNDS = ParityBounds()
_TO_TAILS, _TO_HEADS = "relations_to_tails", "relations_to_heads"
_ROWS, _RELATIONS, _CANDIDATES = "rows", "relations", "candidates"
_MOST_SCORES = 1 << 22
_PARITY_BATCH = 32
_EXAMPLES = 2


@dataclass(frozen=True, eq=False)
class TriplesSource:
    """A trained model of a knowledge graph, ready to be written.

    Attributes:
        ids: original ids of entities, by node type; null of removed nodes, which are left out.
        entities: float32 [nodes, dim], by node type.
        ends: by relation the node types of its heads and its tails, in the order of the rows.
        to_tails: float32 [relations, relation dim], by which tails are asked for.
        to_heads: the same for heads.
        score: compares queries, which it makes of rows, with candidates.
        compares_numbers: whether it does so number by number, not by a product.
        scores: returns the trained model's scores of all candidates, float32 [n, candidates], for the name of
            a relation, nodes int64 [n], and whether heads are asked for.
    """

    ids: Mapping[str, pa.Array]
    entities: Mapping[str, Float]
    ends: Mapping[str, tuple[str, str]]
    to_tails: Float
    to_heads: Float
    score: TripleScore
    compares_numbers: bool
    scores: Callable[[str, Int64, bool], Float]


class _Questions(NamedTuple):
    relation: str
    rows: Int64
    to_heads: bool


def export_knowledge_graph(
    source: TriplesSource,
    version: NewVersion,
    bounds: ParityBounds = _BOUNDS,
) -> ExportResult:
    """Write a model of a knowledge graph.

    Before it is moved into place, the artifact is served and compared with the trained model: the scores of
    all candidates, in both directions of relations, in batches and alone. Where scores are large,
    errors are told as shares of the largest.

    Args:
        source: the trained model.
        version: to be written; its links are what is known, of each relation by its name.
        bounds: of the comparison; fewer questions are compared where there are many candidates.

    Raises:
        GateError: when the exported model differs more than allowed; nothing is written then.
        ConflictError: when the destination exists.
    """
    exported = _to_onnx(source)
    reports: list[ParityReport] = []
    live = {name: LiveRows.of_ids(source.ids[name]) for name in source.entities}

    def scores(asked: _Questions) -> Float:
        ends = source.ends[asked.relation]
        asked_type, candidate_type = ends[asked.to_heads], ends[not asked.to_heads]
        found = source.scores(asked.relation, live[asked_type].nodes(asked.rows), asked.to_heads)
        return live[candidate_type].select(found.T).T

    def prove(artifact: Artifact) -> None:
        with open_knowledge_graph(artifact.path, verify=False) as model:
            cases = _parity_cases(source.ends, live, bounds.rows)
            unit = _unit(scores, cases)
            reports.append(
                check_parity(
                    lambda asked: model.scores(asked.relation, asked.rows, to_heads=asked.to_heads) / unit,
                    lambda asked: scores(asked) / unit,
                    cases,
                    bounds,
                    size=lambda asked: len(asked.rows),
                )
            )

    with ArtifactWriter(version.folder) as writer:
        ids_of_entities = {name: source.ids[name] for name in source.entities}
        tables = add_rows(writer, ids_of_entities, source.entities, taken=(_TO_TAILS, _TO_HEADS))
        relation_type = free_name("relation", source.entities)
        writer.add_ids(relation_type, list(source.ends))
        writer.add_table(_TO_TAILS, relation_type, source.to_tails)
        writer.add_table(_TO_HEADS, relation_type, source.to_heads)
        exported.write(writer)
        first, (head_type, _) = next(iter(source.ends.items()))
        writer.set_preprocess(
            TriplesForm(
                node_type=head_type,
                entities=tables,
                relation_type=relation_type,
                to_tails=_TO_TAILS,
                to_heads=_TO_HEADS,
                ends=dict(source.ends),
                rows_input=_ROWS,
                relations_input=_RELATIONS,
                candidates_input=_CANDIDATES,
                compares_numbers=source.compares_numbers,
            )
        )
        are_integers = all(pa.types.is_int64(source.ids[each].type) for each in tables)
        ids = [
            value if are_integers else str(value)
            for value in live[head_type].select_ids(source.ids[head_type])[:_EXAMPLES].to_pylist()
        ]
        shape = [len(ids)]
        writer.set_example(
            [
                {"name": "id", "datatype": "INT64" if are_integers else "BYTES", "shape": shape, "data": ids},
                {"name": "relation", "datatype": "BYTES", "shape": shape, "data": [first] * len(ids)},
            ]
        )
        artifact = version.commit(writer, "knowledge_graph", source.score.dim, check=prove)
    return ExportResult(artifact, reports[0])


class _Scores(nn.Module):
    """A score of rows, without the blocks that keep it small in training."""

    def __init__(self, score: TripleScore, compares_numbers: bool) -> None:
        super().__init__()
        self.score = score
        self._compares_numbers = compares_numbers

    def forward(self, rows: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """Return the scores of candidates, float32 [n, m]."""
        queries = self.score.tail_queries(rows, relations)
        if not self._compares_numbers:
            result: Tensor = self.score(queries, candidates)
            return result
        return -self.score.sizes(queries[:, None] - candidates[None]).sum(dim=2)


def _to_onnx(source: TriplesSource) -> ExportedOnnx:
    score = source.score
    # Sizes that are not 0 or 1, which the exporter would take for fixed, and no two alike.
    return export_onnx(
        _Scores(score, source.compares_numbers).eval(),
        [
            TensorInput(_ROWS, zeros(3, score.dim), {0: "questions"}),
            TensorInput(_RELATIONS, zeros(3, score.relation_dim), {0: "questions"}),
            TensorInput(_CANDIDATES, zeros(5, score.dim), {0: "candidates"}),
        ],
        outputs=("score",),
    )


def _parity_cases(
    ends: Mapping[str, tuple[str, str]], live: Mapping[str, LiveRows], rows: int
) -> dict[str, list[_Questions]]:
    most = max(len(each) for each in live.values())
    count = max(2, min(rows, _MOST_SCORES // max(1, most)))
    # Both directions of some relations, evenly spread.
    names = list(ends)
    chosen = [
        names[place] for place in np.unique(np.linspace(0, len(names) - 1, max(1, count // 8)).astype(int))
    ]
    each = max(1, count // (2 * len(chosen)))
    cases: dict[str, list[_Questions]] = {"batches": [], "one entity": []}
    for relation in chosen:
        for to_heads in (False, True):
            nodes = len(live[ends[relation][to_heads]])
            spread = np.unique(np.linspace(0, max(nodes - 1, 0), min(each, nodes)).astype(np.int64))
            for start in range(0, len(spread), _PARITY_BATCH):
                cases["batches"].append(_Questions(relation, spread[start : start + _PARITY_BATCH], to_heads))
            if relation == chosen[0]:
                cases["one entity"].append(_Questions(relation, spread[:1], to_heads))
    return cases


def _unit(scores: Callable[[_Questions], Float], cases: Mapping[str, list[_Questions]]) -> np.float32:
    """Return the largest score of one batch of each direction, at least 1."""
    largest = [np.abs(scores(asked)).max(initial=0) for asked in cases["one entity"]]
    return np.float32(max(1.0, *largest))
