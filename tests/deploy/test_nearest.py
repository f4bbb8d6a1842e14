"""Nearest nodes by an index, beside exact ranking: filters, storage, recall, bad queries."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.deploy.nearest.background import Background
from graphbox.deploy.nearest.graph_index import GraphIndex
from graphbox.deploy.nearest.recall import found_rows
from graphbox.deploy.nearest.row_filter import ALL_ROWS, RowFilter
from graphbox.deploy.nearest.rows import EXACT_ROWS, NearestRows, tuned
from graphbox.errors import BackendMissingError, InvalidRequestError
from graphbox.package_folder import packages_folder
from tests.deploy.nearest_models import (
    DIM,
    ITEMS,
    LINKED,
    USERS,
    clustered,
    wait_for_index,
    wait_for_queries,
    write_items,
)

K = 20
NONE = np.empty(0, np.int64)


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_items(tmp_path_factory.mktemp("models") / "shop" / "1").path


@pytest.fixture(scope="module")
def indexed(version: Path) -> Iterator[DeployedEncoder]:
    with open_encoder(version, "onnxruntime", nearest="index") as model:
        for query_type in ("item", "user"):
            assert wait_for_index(model, query_type) == "index"
        yield model


@pytest.fixture(scope="module")
def exact(version: Path) -> Iterator[DeployedEncoder]:
    with open_encoder(version, "onnxruntime") as model:
        yield model


def recall(found: list[Any], truth: list[Any]) -> float:
    pairs = list(zip(found, truth, strict=True))
    assert [len(each[0]) for each, _ in pairs] == [len(each[0]) for _, each in pairs]
    hits = sum(found_rows(each[1], best[1]) for each, best in pairs)
    return hits / sum(len(best[1]) for _, best in pairs)


def test_an_index_finds_what_exact_ranking_finds(indexed: DeployedEncoder, exact: DeployedEncoder) -> None:
    vectors = clustered(500, 9)
    found, truth = (model.nearest.nearest(vectors, K, "user") for model in (indexed, exact))
    assert recall(found, truth) >= 0.99
    for index, score in found[:50]:
        assert index.dtype == np.int64
        assert score.dtype == np.float32
        assert (np.diff(score) <= 0).all()
        assert len(set(index.tolist())) == K
    users = np.arange(USERS)
    by_index, by_rank = (model.neighbors_of_indices(users, K, node_type="user") for model in (indexed, exact))
    assert recall(list(zip(*by_index, strict=True)), list(zip(*by_rank, strict=True))) >= 0.99


def test_a_node_is_not_its_own_neighbor(indexed: DeployedEncoder) -> None:
    items = np.arange(0, ITEMS, 40)
    index, _ = indexed.neighbors_of_indices(items, K)
    assert not (index == items[:, None]).any()
    with_self, _ = indexed.neighbors_of_indices(items, 1, exclude_self=False)
    assert (with_self[:, 0] == items).mean() >= 0.99


@pytest.mark.parametrize("allowed", [1, 5, 300, 4_000, ITEMS - 10])
def test_an_allow_list_gives_k_rows_of_it(
    indexed: DeployedEncoder, exact: DeployedEncoder, allowed: int
) -> None:
    random = np.random.default_rng(allowed)
    vectors = clustered(60, 9)
    rows = random.choice(ITEMS, allowed, replace=False)
    filters = [RowFilter.of(rows, NONE) for _ in vectors]
    found, truth = (model.nearest.nearest(vectors, K, "user", filters) for model in (indexed, exact))
    assert recall(found, truth) >= 0.98
    for index, _ in found:
        assert len(index) == min(K, allowed)
        assert np.isin(index, rows).all()


@pytest.mark.parametrize("denied", [1, 50, 3_000, ITEMS - 5, ITEMS])
def test_a_deny_list_of_the_nearest_rows(
    indexed: DeployedEncoder, exact: DeployedEncoder, denied: int
) -> None:
    vectors = clustered(20, 9)
    filters = [RowFilter.of(None, index) for index, _ in exact.nearest.nearest(vectors, denied, "user")]
    found, truth = (model.nearest.nearest(vectors, K, "user", filters) for model in (indexed, exact))
    for (index, _), each in zip(found, filters, strict=True):
        assert len(index) == min(K, ITEMS - denied)
        assert not np.isin(index, each.denied).any()
    if denied < ITEMS:
        assert recall(found, truth) >= 0.98


def test_filters_of_different_queries_do_not_mix(indexed: DeployedEncoder, exact: DeployedEncoder) -> None:
    random = np.random.default_rng(5)
    vectors = clustered(150, 9)
    filters = []
    for number in range(len(vectors)):
        rows = random.choice(ITEMS, int(random.integers(1, 4_000)), replace=False)
        filters.append([ALL_ROWS, RowFilter.of(rows, NONE), RowFilter.of(None, rows)][number % 3])
    found, truth = (model.nearest.nearest(vectors, K, "user", filters) for model in (indexed, exact))
    assert recall(found, truth) >= 0.98
    for number, (index, _) in enumerate(found):
        allowed = filters[number].allowed
        assert allowed is None or np.isin(index, allowed).all()
        assert not np.isin(index, filters[number].denied).any()


def test_exact_filters_against_a_plain_sort(exact: DeployedEncoder, version: Path) -> None:
    rows = clustered(ITEMS, 1).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    random = np.random.default_rng(6)
    for query in clustered(10, 9):
        scores = rows @ query.astype(np.float64)
        allowed, denied = random.choice(ITEMS, 500), random.choice(ITEMS, 5_000)
        for each in (RowFilter.of(allowed, denied), RowFilter.of(None, denied), RowFilter.of(allowed, NONE)):
            passing = np.arange(ITEMS) if each.allowed is None else each.allowed
            passing = np.setdiff1d(passing, each.denied)
            expected = passing[np.argsort(-scores[passing], kind="stable")][:K]
            ((index, _),) = exact.nearest.nearest(query[None], K, "user", [each])
            assert index.tolist() == expected.tolist()
            assert each.rows_left(ITEMS) == len(passing)


def test_known_links_are_left_out(indexed: DeployedEncoder) -> None:
    links = indexed.artifact.links
    for user in range(0, USERS, 17):
        linked = links.linked_to("user", user, "item")
        assert len(linked) == LINKED
        each = indexed.nearest.row_filter("user", user, linked=False)
        vector = indexed.encode_indices(np.array([user]), "user")
        ((index, _),) = indexed.nearest.nearest(vector, K, "user", [each])
        assert len(index) == K
        assert not np.isin(index, linked).any()
    assert links.linked_to("item", int(linked[0]), "user").size


@pytest.mark.parametrize("score", ["inner_product", "cosine"])
@pytest.mark.parametrize("codec", ["float32", "int8"])
def test_every_score_and_codec(tmp_path: Path, score: Any, codec: str) -> None:
    path = write_items(tmp_path / "other" / "1", score=score, codec=codec).path
    vectors = clustered(200, 9)
    with (
        open_encoder(path, "onnxruntime", nearest="index") as model,
        open_encoder(path, "onnxruntime") as exact,
    ):
        wait_for_index(model, "user")
        found, truth = (each.nearest.nearest(vectors, K, "user") for each in (model, exact))
        assert recall(found, truth) >= 0.99


def test_more_neighbors_than_rows(tmp_path: Path) -> None:
    vectors = clustered(3, 9)
    for items in (1, 3):
        path = write_items(tmp_path / f"of-{items}" / "1", items=items).path
        with open_encoder(path, "onnxruntime", nearest="index") as model:
            assert wait_for_index(model, "user") == "exact"
            found = model.nearest.nearest(vectors, 10, "user")
            assert [len(index) for index, _ in found] == [items] * 3
            assert model.nearest.nearest(vectors[:0], 10, "user") == []


def test_all_rows_are_asked_for(indexed: DeployedEncoder) -> None:
    ((index, _),) = indexed.nearest.nearest(clustered(1, 9), 2 * ITEMS, "user")
    assert sorted(index.tolist()) == list(range(ITEMS))


def test_a_zero_vector_scores_0_and_takes_the_first_rows(indexed: DeployedEncoder) -> None:
    vectors = clustered(3, 9)
    vectors[1] = 0
    for filters in (None, [RowFilter.of(None, np.array([2])) for _ in vectors]):
        found = indexed.nearest.nearest(vectors, 5, "user", filters)
        assert found[1][0].tolist() == ([0, 1, 2, 3, 4] if filters is None else [0, 1, 3, 4, 5])
        assert not found[1][1].any()
        assert found[0][1].all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(indexed: DeployedEncoder, bad: float) -> None:
    vectors = clustered(3, 9)
    vectors[2, 4] = bad
    with pytest.raises(InvalidRequestError, match="expected finite numbers") as error:
        indexed.nearest.nearest(vectors, K, "user")
    assert error.value.where == "vector 2"


@pytest.mark.parametrize("shape", [(2, DIM - 1), (2, 0), (DIM,)])
def test_vectors_of_another_shape_are_refused(indexed: DeployedEncoder, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError, match=rf"expected vectors \[n, {DIM}\]"):
        indexed.nearest.nearest(np.ones(shape, np.float32), K, "user")
    with pytest.raises(InvalidRequestError, match="k of at least 1"):
        indexed.nearest.nearest(clustered(1, 9), 0, "user")


def test_threads_get_the_answers_of_their_queries(indexed: DeployedEncoder) -> None:
    vectors = clustered(400, 9)
    alone = indexed.nearest.nearest(vectors, K, "user")
    wrong: list[int] = []

    def ask(first: int) -> None:
        for number in range(first, len(vectors), 8):
            ((index, _),) = indexed.nearest.nearest(vectors[number : number + 1], K, "user")
            if index.tolist() != alone[number][0].tolist():
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def index_files() -> dict[Path, int]:
    return {path: path.stat().st_ino for path in packages_folder().glob("*/rows.faiss")}


def test_an_index_is_built_once_and_a_damaged_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBOX_PACKAGES", str(tmp_path / "packages"))
    path = write_items(tmp_path / "shop" / "1").path
    vectors = clustered(50, 9)
    answers, files = [], []
    for _ in range(2):
        with open_encoder(path, "onnxruntime", nearest="index") as model:
            assert wait_for_index(model, "user") == "index"
            answers.append([index.tolist() for index, _ in model.nearest.nearest(vectors, K, "user")])
        files.append(index_files())
    assert answers[0] == answers[1]
    assert files[0] == files[1]
    assert not list(packages_folder().glob(".*"))
    assert not list(path.rglob("*.faiss"))
    (file,) = files[0]
    file.chmod(0o600)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    with open_encoder(path, "onnxruntime", nearest="index") as model:
        assert wait_for_index(model, "user") == "index"
        assert [index.tolist() for index, _ in model.nearest.nearest(vectors, K, "user")] == answers[0]
    assert index_files() != files[0]


def test_two_processes_build_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBOX_PACKAGES", str(tmp_path / "packages"))
    path = write_items(tmp_path / "shop" / "1").path
    builds: list[Path] = []
    build = GraphIndex.build

    def counted(table: Any, score: Any, target: Path, is_wanted: Any, threads: Any = None) -> None:
        builds.append(target)
        build(table, score, target, is_wanted, threads)

    monkeypatch.setattr(GraphIndex, "build", counted)
    # Locks of two descriptors exclude each other, within a process as between two.
    with (
        open_encoder(path, "onnxruntime", nearest="index") as one,
        open_encoder(path, "onnxruntime", nearest="index") as other,
    ):
        for model in (one, other):
            model.nearest.ranking("user")
        assert [wait_for_index(model, "user") for model in (one, other)] == ["index", "index"]
    assert len(builds) == 1


def test_a_model_closes_while_its_index_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBOX_PACKAGES", str(tmp_path / "packages"))
    path = write_items(tmp_path / "large" / "1", items=EXACT_ROWS + 1).path
    with open_encoder(path, "onnxruntime", nearest="auto") as model:
        model.nearest.ranking("user")
        assert model.effective["nearest"] == {"user": "building"}
        assert len(model.nearest.nearest(clustered(2, 9), K, "user")) == 2
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert not index_files()
    assert not list(packages_folder().glob(".*"))
    assert not [each for each in threading.enumerate() if each.name == "graphbox-nearest"]


def test_few_rows_have_no_index(version: Path) -> None:
    with open_encoder(version, "onnxruntime", nearest="auto") as model:
        assert wait_for_index(model, "user") == "exact"


def test_without_faiss(
    version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(BackendMissingError, match="faiss-cpu") as error:
        open_encoder(version, "onnxruntime", nearest="index")
    assert "graphbox[ann]" in str(error.value.hint)
    path = write_items(tmp_path / "large" / "1", items=EXACT_ROWS + 1).path
    with open_encoder(path, "onnxruntime", nearest="auto") as model:
        assert wait_for_index(model, "user") == "exact"
        assert len(model.nearest.nearest(clustered(1, 9), K, "user")[0][0]) == K
    assert "graphbox[ann]" in caplog.text


def test_sampled_queries_are_ranked_exactly_too(version: Path) -> None:
    with open_encoder(version, "onnxruntime", nearest="index") as model:
        assert wait_for_index(model, "user") == "index"
        vectors = clustered(1, 9)
        for number in range(1_001):
            filters = [RowFilter.of(None, np.array([3]))] if number % 2 else None
            model.nearest.nearest(vectors, K, "user", filters)
            if not number:
                assert wait_for_queries(model.nearest.recall, 1)[:2] == (1, K)
        queries, wanted, found = wait_for_queries(model.nearest.recall, 2)
        assert (queries, wanted) == (2, 2 * K)
        assert 0.95 * wanted <= found <= wanted


def test_rows_with_equal_scores_are_all_right() -> None:
    exact = np.array([3, 2, 2], np.float32)
    assert found_rows(np.array([3, 2, 2], np.float32), exact) == 3
    assert found_rows(np.array([3, 1.9, 2], np.float32), exact) == 2
    assert found_rows(np.array([], np.float32), exact) == 0
    assert found_rows(np.array([1], np.float32), exact[:0]) == 0


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1, 1e6, -1, -1e-6])
def test_recall_does_not_depend_on_the_scale_of_scores(scale: float) -> None:
    exact = np.array([4, 3, 3] if scale > 0 else [2, 3, 3], np.float32) * np.float32(scale)
    equal, worse = np.float32(3 * (1 - 1e-6) * scale), np.float32(3 * scale - 1e-2 * abs(scale))
    assert found_rows(np.array([exact[0], equal, worse]), exact) == 2
    assert found_rows(np.full(3, worse), exact) == 0
    assert found_rows(np.zeros(3, np.float32), np.zeros(3, np.float32)) == 3


def test_an_index_without_sample_queries_is_not_used(
    indexed: DeployedEncoder, version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = indexed.nearest.ranking("user")
    assert isinstance(rows, NearestRows)
    using = rows.tuned
    assert using is not None
    with open_encoder(version, "onnxruntime") as model:
        exact = model.nearest.ranking("user")
        assert tuned(using.index, exact, clustered(0, 9)) is None  # type: ignore[arg-type]
    with open_encoder(version, "onnxruntime", nearest="index") as model:
        nothing = np.full((USERS, DIM), np.nan, np.float32)
        monkeypatch.setattr(model.nearest, "_encode", lambda indices, _: nothing[indices])
        assert wait_for_index(model, "user") == "exact"


def test_work_runs_where_its_priority_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: int) -> None:
        raise PermissionError("no priorities here")

    monkeypatch.setattr(os, "setpriority", refused)
    background, ran = Background(), threading.Event()
    assert background.start(ran.set)
    background.close()
    assert ran.is_set()
    assert not background.is_busy
