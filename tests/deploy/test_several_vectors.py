"""Nearest rows of queries with several vectors, beside plain maxima: codecs, indexes, filters, updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from graphbox.artifact import Artifact, ArtifactWriter, TargetSpec
from graphbox.artifact.manifest import Score
from graphbox.artifact.preprocess import LookupForm
from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.deploy.nearest import rows as rows_module
from graphbox.deploy.nearest.exact import ExactRanking
from graphbox.deploy.nearest.graph_index import unit_rows
from graphbox.deploy.nearest.recall import found_rows
from graphbox.deploy.nearest.row_filter import ALL_ROWS, RowFilter
from graphbox.deploy.nearest.several_vectors import SeveralVectors
from graphbox.deploy.row_updates import update_rows
from graphbox.errors import FormatError, InvalidRequestError
from graphbox.row_codecs import row_codec
from tests.deploy.nearest_models import DIM, clustered, wait_for_index, wait_for_queries
from tests.deploy.test_row_updates import updated, workspace_with

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
VECTORS, USERS, K = 4, 60, 20
NONE = np.empty(0, np.int64)


def write_model(
    path: Path,
    items: int,
    codec: str = "float32",
    score: Score = "max_inner_product",
    dim: int = VECTORS * DIM,
) -> Artifact:
    """Write a model whose users have several vectors each, near other items."""
    users = np.resize(clustered(USERS * VECTORS, 2), (USERS, dim))
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", [f"item-{number:05d}" for number in range(items)])
        writer.add_ids("user", range(USERS))
        writer.add_table("items", "item", unit_rows(clustered(items, 1)), row_codec(codec))
        writer.add_table("users", "user", users)
        writer.set_preprocess(LookupForm(node_type="user", tables={"user": "users"}))
        return writer.commit(
            name="shop",
            version=1,
            kind="embedding",
            task=None,
            dim=dim,
            targets={"user": TargetSpec(table="items", score=score)},
        )


@pytest.fixture(scope="module", params=[("float32", 2_000), ("int8_rowwise", 2_000), ("float32", 3)])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeployedEncoder]:
    codec, items = request.param
    path = tmp_path_factory.mktemp("models") / "shop" / "1"
    write_model(path, items, codec)
    with open_encoder(path, "onnxruntime") as opened:
        yield opened


def scores_of(model: DeployedEncoder, queries: Floats) -> Floats:
    """Return the largest product of each row with a vector of each query, float32 [n, rows]."""
    table = model.artifact.table("items")
    rows = table.block(0, len(table)).astype(np.float64)
    products = queries.astype(np.float64).reshape(len(queries), -1, DIM) @ rows.T
    return np.asarray(products.max(axis=1), np.float32)


def assert_best(
    found: tuple[NDArray[np.int64], Floats], scores: Floats, allowed: NDArray[np.int64], k: int = K
) -> None:
    index, score = found
    expected = allowed[np.argsort(-scores[allowed], kind="stable")[:k]]
    assert index.tolist() == expected.tolist()
    np.testing.assert_allclose(score, scores[expected], rtol=1e-4, atol=1e-4)


def test_the_best_rows_are_those_of_a_plain_maximum(model: DeployedEncoder) -> None:
    count = len(model.artifact.table("items"))
    users = np.arange(USERS)
    vectors = model.encode_indices(users, "user")
    assert vectors.shape == (USERS, VECTORS * DIM) == (USERS, model.nearest.dim("user"))
    scores, k = scores_of(model, vectors), min(K, count)
    index, score = model.neighbors_of_indices(users, k)
    for number in range(USERS):
        assert_best((index[number], score[number]), scores[number], np.arange(count))
    for number, each in enumerate(model.nearest.nearest(vectors, K, "user")):
        assert_best(each, scores[number], np.arange(count))
    assert model.nearest.nearest(vectors[:0], K, "user") == []


def test_filters_are_those_of_the_query(model: DeployedEncoder) -> None:
    count, random = len(model.artifact.table("items")), np.random.default_rng(3)
    order = random.permutation(count)
    filters = [
        ALL_ROWS,
        RowFilter.of(None, order[: count // 2]),
        RowFilter.of(order[: count // 3], order[:2]),
        RowFilter.of(NONE, NONE),
        RowFilter.of(None, order),
    ]
    vectors = model.encode_indices(np.arange(len(filters)), "user")
    found = model.nearest.nearest(vectors, K, "user", filters)
    for number, each in enumerate(filters):
        allowed = np.arange(count) if each.allowed is None else each.allowed
        assert_best(found[number], scores_of(model, vectors)[number], np.setdiff1d(allowed, each.denied))


def test_equal_scores_go_to_the_lower_row_and_rows_come_once(model: DeployedEncoder) -> None:
    count = len(model.artifact.table("items"))
    none = np.zeros((1, VECTORS * DIM), np.float32)
    ((index, score),) = model.nearest.nearest(none, K, "user")
    assert index.tolist() == list(range(min(K, count)))
    assert not score.any()
    same = np.tile(clustered(1, 5), (1, VECTORS))
    ((index, _),) = model.nearest.nearest(same, K, "user")
    assert len(set(index.tolist())) == min(K, count)
    assert_best((index, scores_of(model, same)[0][index]), scores_of(model, same)[0], np.arange(count))


def test_a_query_itself_is_left_out(model: DeployedEncoder) -> None:
    ranking, count = model.nearest.ranking("user"), len(model.artifact.table("items"))
    assert isinstance(ranking, SeveralVectors)
    vectors = model.encode_indices(np.arange(8), "user")
    best, _ = ranking.top(vectors, 1)
    index, _ = ranking.top(vectors, min(K, count - 1), best[:, 0])
    for each, left_out, scores in zip(index, best, scores_of(model, vectors), strict=True):
        assert_best((each, scores[each]), scores, np.setdiff1d(np.arange(count), left_out))


def test_vectors_of_requests_have_the_length_of_all(model: DeployedEncoder) -> None:
    vectors = model.encode_indices(np.arange(3), "user")
    signature = model.signatures[".nearest_vectors"]
    assert signature.inputs["vector"].shape == (-1, VECTORS * DIM)
    answer = signature.infer({"vector": vectors}, {"k": 2})
    index, score = model.neighbors_of_indices(np.arange(3), 2)
    named = [[each.decode() for each in row] for row in answer["neighbor"].tolist()]
    assert named == [[f"item-{each:05d}" for each in row] for row in index.tolist()]
    np.testing.assert_array_equal(answer["score"], score)
    with pytest.raises(InvalidRequestError, match=rf"expected vectors \[n, {VECTORS * DIM}\]"):
        model.nearest.nearest(vectors[:, :DIM], 2, "user")


def test_an_index_finds_what_exact_ranking_finds(tmp_path: Path) -> None:
    path = write_model(tmp_path / "shop" / "1", 12_000).path
    vectors = clustered(VECTORS * 100, 9).reshape(100, VECTORS * DIM)
    filters = [RowFilter.of(None, np.arange(each)) for each in range(100)]
    with open_encoder(path, "onnxruntime", nearest="index") as indexed, open_encoder(path) as exact:
        assert wait_for_index(indexed, "user") == "index"
        for given in (None, filters):
            found, truth = (each.nearest.nearest(vectors, K, "user", given) for each in (indexed, exact))
            hits = sum(found_rows(each[1], best[1]) for each, best in zip(found, truth, strict=True))
            assert hits >= 0.99 * 100 * K


def test_each_vector_of_queries_is_sampled_for_the_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "shop" / "1", 12_000).path
    sampled: list[Floats] = []
    exactly = ExactRanking.top

    def noted(ranking: ExactRanking, queries: Floats, k: int, exclude: None) -> tuple[Ints, Floats]:
        sampled.append(queries)
        return exactly(ranking, queries, k, exclude)

    with open_encoder(path, "onnxruntime", nearest="index") as model:
        assert wait_for_index(model, "user") == "index"
        monkeypatch.setattr(rows_module, "_SAMPLED_EVERY", 1)
        monkeypatch.setattr(ExactRanking, "top", noted)
        vectors = clustered(VECTORS, 9)
        for number in range(1, VECTORS + 1):
            model.nearest.nearest(vectors.reshape(1, -1), K, "user")
            assert wait_for_queries(model.nearest.recall, number)[:2] == (number, number * K)
    np.testing.assert_array_equal(np.concatenate(sampled), vectors)


def test_changed_rows_are_ranked(tmp_path: Path) -> None:
    workspace = workspace_with(tmp_path, "shop", lambda path: write_model(path, 2_000))
    random = np.random.default_rng(1)
    chosen = random.choice(2_000, 700, replace=False)
    ids = [f"item-{each:05d}" for each in chosen] + ["new-1"]
    with open_encoder(workspace.model("shop").path, "onnxruntime") as model:
        update_rows(workspace, "shop", ids, 1.5 * clustered(len(ids), 5), table="items")
        view: DeployedEncoder = updated(workspace, "shop", model)
        assert len(view.artifact.table("items")) == 2_001
        vectors = view.encode_indices(np.arange(10), "user")
        for number, found in enumerate(view.nearest.nearest(vectors, K, "user")):
            assert_best(found, scores_of(view, vectors)[number], np.arange(2_001))


@pytest.mark.parametrize(
    ("score", "dim", "expected"),
    [
        ("inner_product", 2 * DIM, f"length {2 * DIM}"),
        ("max_inner_product", 2 * DIM - 1, f"a length that divides {2 * DIM - 1}"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(tmp_path: Path, score: Score, dim: int, expected: str) -> None:
    with pytest.raises(FormatError, match=f"expected target rows of {expected}, received {DIM}"):
        write_model(tmp_path / "1", 9, score=score, dim=dim)
