"""A model of a knowledge graph ready to answer: an entity and a relation in, the likeliest others out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, TriplesForm
from graphbox.artifact.ids import Id
from graphbox.deploy.cancellation import check_cancelled
from graphbox.deploy.fastest import Choice
from graphbox.deploy.model import DeployedModel, Operation
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.deploy.protocol import Feeds
from graphbox.deploy.signature import (
    WHOLE,
    Outputs,
    Parameters,
    Signature,
    by_name,
    decoded_texts,
    node_indices,
)
from graphbox.errors import InvalidRequestError, NotFoundError, did_you_mean

__all__ = ["BEST_MODEL", "Answers", "DeployedKnowledgeGraph"]

Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]

# TopK gives ties to the lower index.
BEST_MODEL: Final = write_onnx(
    [Node("TopK", ["scores", "k"], ["score", "index"])],
    {"scores": (np.float32, ["n", "m"]), "k": (np.int64, [1])},
    {"score": (np.float32, ["n", "best"]), "index": (np.int64, ["n", "best"])},
)
_MAX_SCORES_BYTES = 64 << 20
_BLOCK_ROWS = 65_536
_MAX_NUMBERS = 1 << 22
_MAX_K = 1000
_MAX_ANSWERS = 1 << 20
"""Most answers of one call of the signature."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The likeliest answers to one question, best first.

    Attributes:
        node_type: of the answers.
        index: int64 [k], their node indices; fewer than asked for where there are no more.
        score: float32 [k].
        known: bool [k], which of them the artifact's links have already.
    """

    node_type: str
    index: Int64
    score: Float32
    known: npt.NDArray[np.bool_]


class DeployedKnowledgeGraph(DeployedModel):
    """The likeliest tails of heads, and heads of tails.

    Args:
        artifact: the model version.
        form: its preprocess.
        main: its ONNX part.
        best: `BEST_MODEL`.
    """

    OPERATIONS = ("answer", "program")

    def __init__(self, artifact: Artifact, form: TriplesForm, main: Choice, best: Choice) -> None:
        super().__init__(artifact, main, best)
        self.form = form
        self._best = best.program
        self._use_rows()

    def _use_rows(self) -> None:
        artifact, form = self.artifact, self.form
        self._tables = {name: artifact.table(table) for name, table in form.entities.items()}
        self._relation_rows = {False: artifact.table(form.to_tails), True: artifact.table(form.to_heads)}
        self._relations = artifact.ids(form.relation_type)

    def _form_signatures(self) -> dict[str, Signature]:
        """Return the signature of questions: entities and relations in, the likeliest others out.

        Inputs are ids, BYTES or INT64 [n], and names of relations, BYTES [n]; outputs are ids of the same
        type and scores FP32, both [n, k]. Parameters: ``k``, 10 by default; ``asked``: ``tail``, the default,
        of heads, or ``head`` of tails; ``known``: whether what the data has already is among the answers, by
        default not.
        """
        return {
            WHOLE: Signature(
                platform="graphbox",
                inputs=by_name(self.manifest.inputs),
                outputs=by_name(self.manifest.outputs),
                answer=self._answer_tensors,
                work=lambda inputs: len(next(iter(inputs.values()))),
                parameters=frozenset({"asked", "k", "known"}),
                joinable=self._has_independent_rows,
            )
        }

    def _answer_tensors(self, inputs: Feeds, parameters: Parameters) -> Outputs:
        k, to_heads, with_known = _asked(parameters)
        ids_input, relations_input = (tensor.name for tensor in self.manifest.inputs)
        ids, relations = inputs[ids_input], decoded_texts(inputs[relations_input], relations_input)
        if len(ids) != len(relations):
            raise InvalidRequestError(
                f"expected a relation for each of {len(ids)} ids, received {len(relations)}",
                where=f"input `{relations_input}`",
            )
        if len(ids) * k > _MAX_ANSWERS:
            raise InvalidRequestError(
                f"expected at most {_MAX_ANSWERS} answers in one request, received {len(ids)} questions "
                f"with k = {k}",
                hint="send fewer questions in one request",
            )
        answer, score = self.manifest.outputs
        are_integers = answer.datatype == "INT64"
        answers = np.empty((len(ids), k), np.int64 if are_integers else np.object_)
        scores = np.empty((len(ids), k), np.float32)
        places_of: dict[str, list[int]] = {}
        for place, relation in enumerate(relations):
            places_of.setdefault(relation, []).append(place)
        for relation, places in places_of.items():
            asked = self.artifact.ids(self.end_types(relation)[to_heads])
            nodes = node_indices(ids[places], asked, ids_input)
            found = self.answer_indices(relation, nodes, k, to_heads=to_heads, with_known=with_known)
            for place, each in zip(places, found, strict=True):
                if len(each.index) < k:
                    raise InvalidRequestError(
                        f"expected k of at most {len(each.index)}, the number of answers to question "
                        f"{place}, received {k}",
                        where="parameters.k",
                    )
                named = self.artifact.ids(each.node_type).take(each.index)
                answers[place] = named if are_integers else [str(name).encode() for name in named]
                scores[place] = each.score
        return {answer.name: answers, score.name: scores}

    @property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations."""
        return tuple(self.form.ends)

    def end_types(self, relation: str) -> tuple[str, str]:
        """Return the node types of a relation's heads and tails.

        Raises:
            NotFoundError: there is no such relation.
        """
        if relation not in self.form.ends:
            raise NotFoundError(
                f"expected one of the {len(self.form.ends)} relations of the model, "
                f"received `{relation[:64]}`",
                hint=did_you_mean(relation, self.form.ends)
                or f"there are: {', '.join(list(self.form.ends)[:20])}",
            )
        return self.form.ends[relation]

    def answer(
        self, relation: str, ids: Sequence[Id], k: int, *, to_heads: bool = False, with_known: bool = False
    ) -> list[Answers]:
        """Return the ``k`` likeliest tails of heads, or heads of tails.

        Args:
            relation: its name.
            ids: original ids of the heads; of the tails with ``to_heads``.
            k: at least 1.
            to_heads: whether heads are asked for.
            with_known: whether what the artifact's links have already is among the answers.

        Raises:
            NotFoundError: there is no such relation, or no such entity.
            InvalidRequestError: ``k`` is less than 1.
        """
        asked = self.end_types(relation)[to_heads]
        nodes = self.artifact.ids(asked).index(ids)
        return self.answer_indices(relation, nodes, k, to_heads=to_heads, with_known=with_known)

    def answer_indices(
        self, relation: str, nodes: Int64, k: int, *, to_heads: bool = False, with_known: bool = False
    ) -> list[Answers]:
        """Return the same as `answer` for node indices, int64 [n]."""
        if k < 1:
            raise InvalidRequestError(f"expected k of at least 1, received {k}")
        answer_type = self.end_types(relation)[not to_heads]
        count = len(self._tables[answer_type])
        at_once = max(1, _MAX_SCORES_BYTES // max(1, 4 * count))
        wanted = np.array([min(k, count)], np.int64)
        found: list[Answers] = []
        for start in range(0, len(nodes), at_once):
            check_cancelled()
            part = nodes[start : start + at_once]
            scores = self.scores(relation, part, to_heads=to_heads)
            known = [self._known(relation, int(node), to_heads) for node in part]
            if not with_known:
                for row, answers in zip(scores, known, strict=True):
                    row[answers] = -np.inf
            best = self._best.run_built({"scores": scores, "k": wanted})
            for index, score, answers in zip(best["index"], best["score"], known, strict=True):
                kept = np.isfinite(score)
                found.append(Answers(answer_type, index[kept], score[kept], np.isin(index[kept], answers)))
        return found

    def scores(self, relation: str, nodes: Int64, *, to_heads: bool = False) -> Float32:
        """Return the scores of all tails for heads, or of all heads for tails: float32 [n, candidates].

        Args:
            relation: its name.
            nodes: int64 [n], node indices of the heads; of the tails with ``to_heads``.
            to_heads: whether heads are asked for.
        """
        ends = self.end_types(relation)
        asked, answer = ends[to_heads], ends[not to_heads]
        number = self._relations.find(relation)
        form, table = self.form, self._tables[answer]
        feeds = {
            form.rows_input: self._tables[asked].rows(nodes),
            form.relations_input: self._relation_rows[to_heads].rows(np.full(len(nodes), number, np.int64)),
        }
        scores = np.empty((len(nodes), len(table)), np.float32)
        step = _BLOCK_ROWS
        if form.compares_numbers:
            step = max(1, _MAX_NUMBERS // max(1, len(nodes) * table.dim))
        for start in range(0, len(table), step):
            block = np.asarray(table.block(start, start + step))
            check_cancelled()
            shape = (len(nodes), len(block))
            (part,) = self._run_built({**feeds, form.candidates_input: block}, shape)
            scores[:, start : start + step] = part
        return scores

    def warm_up(self) -> None:
        """Do now what the first request would wait for: read the ids, the rows and the links, run once."""
        relation, (head_type, _) = next(iter(self.form.ends.items()))
        ids = self.artifact.ids(head_type)
        if len(ids):
            self.answer(relation, [ids[0]], 1)

    @property
    def num_queries(self) -> int:
        """Number of entities at the heads of the first relation."""
        return len(self.artifact.ids(self.form.node_type))

    def calls(self, operation: Operation, pool: Int64, k: int) -> Callable[[int], object]:
        """Return a function that answers the i-th of a pool of heads; see `DeployedModel.calls`."""
        relation = next(iter(self.form.ends))
        if operation == "answer":
            return lambda number: self.answer_indices(relation, pool[number % len(pool)], k)
        feeds = [self.program_feeds(nodes) for nodes in pool]
        return lambda number: self.run(feeds[number % len(feeds)])

    def program_feeds(self, queries: Int64) -> Feeds:
        """Return the feeds of heads of the first relation; see `DeployedModel.program_feeds`."""
        form = self.form
        head_type, tail_type = next(iter(form.ends.values()))
        return {
            form.rows_input: self._tables[head_type].rows(queries),
            form.relations_input: self._relation_rows[False].rows(np.zeros(len(queries), np.int64)),
            form.candidates_input: np.asarray(self._tables[tail_type].block(0, 1024)),
        }

    def _known(self, relation: str, node: int, to_heads: bool) -> Int64:
        head_type, tail_type = self.form.ends[relation]
        return self.artifact.links.ends_of((head_type, relation, tail_type), node, to_sources=to_heads)


def _asked(parameters: Parameters) -> tuple[int, bool, bool]:
    """Return ``k``, whether heads are asked for, and whether known answers are among the answers."""
    k = parameters.get("k", 10)
    if type(k) is not int or not 1 <= k <= _MAX_K:
        raise InvalidRequestError(
            f"expected an integer between 1 and {_MAX_K}, received {k!r:.64}", where="parameters.k"
        )
    asked = parameters.get("asked", "tail")
    if asked not in ("head", "tail"):
        raise InvalidRequestError(f"expected head or tail, received {asked!r:.64}", where="parameters.asked")
    known = parameters.get("known", False)
    if not isinstance(known, bool):
        raise InvalidRequestError(f"expected true or false, received {known!r:.64}", where="parameters.known")
    return k, asked == "head", known
