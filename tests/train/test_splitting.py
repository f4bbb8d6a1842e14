"""Splits by time, of the last of each query, and given by the data, between nodes of two types."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from graphbox.config import ClassifyTaskConfig, GivenSplitConfig, RecommendTaskConfig
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.train import (
    ClassifySplit,
    GraphView,
    RecommendSplit,
    evaluate_baselines,
    load_split,
    make_split,
    save_split,
)
from graphbox.train.recommendation.queries import in_degree, known_answers, ranking_queries
from graphbox.train.splitting.parts import latest_parts
from graphbox.train.tasks import FOLDS, Fold
from tests.train.shop import ITEMS, USERS, build_shop

Pairs = set[tuple[int, int]]
SEEN: tuple[Fold, ...] = ("train", "test")
SPLITS: dict[str, dict[str, Any]] = {
    "random": {"kind": "random"},
    "time": {"kind": "time"},
    "leave_last_out": {"kind": "leave_last_out"},
    "given_column": {"kind": "given", "feature": "part", "ignored": ("unused",)},
    "given_relation": {"kind": "given", "test_relations": ("bought_later",)},
}


def task_of(name: str, **settings: Any) -> RecommendTaskConfig:
    return RecommendTaskConfig.model_validate(
        {
            "kind": "recommend",
            "node_type": "user",
            "target_type": "item",
            "relations": ("bought",),
            "split": SPLITS[name],
            "k": 10,
            **settings,
        }
    )


def split_of(graph: Graph, name: str, **settings: Any) -> RecommendSplit:
    split = make_split(graph, task_of(name, **settings), 3)
    assert isinstance(split, RecommendSplit)
    return split


def pairs_of(edges: Any) -> Pairs:
    return {(int(query), int(target)) for query, target in edges}


def first_times(graph: Graph) -> dict[tuple[int, int], int]:
    """Return when each pair of ``bought`` was first bought."""
    csc = graph.csc(("user", "bought", "item"))
    assert csc.timestamp is not None
    first: dict[tuple[int, int], int] = {}
    for user, item, time in zip(*(part.tolist() for part in (*csc.coo(), csc.timestamp)), strict=True):
        first[user, item] = min(time, first.get((user, item), time))
    return first


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_shop(tmp_path_factory.mktemp("shop"))


@pytest.mark.parametrize("name", list(SPLITS))
class TestEveryKind:
    def test_folds_are_apart(self, shop: Graph, name: str) -> None:
        split = split_of(shop, name)
        folds = [pairs_of(split.edges(fold)) for fold in FOLDS]
        assert all(folds)
        assert not folds[0] & folds[1]
        assert not folds[0] & folds[2]
        assert not folds[1] & folds[2]

    @pytest.mark.parametrize("reversed_again", [False, True])
    def test_no_edge_of_any_type_gives_an_answer_away(
        self, shop: Graph, name: str, reversed_again: bool
    ) -> None:
        split = split_of(shop, name)
        for fold in SEEN:
            unseen = pairs_of(split.test)
            if fold == "train":
                unseen |= pairs_of(split.validation)
            view = GraphView(shop, split, fold)
            view = view.with_reverse_edges() if reversed_again else view
            seen: Pairs = set()
            for edge_type in view.edge_types:
                source, target = view.csc(edge_type).coo()
                ends = (source, target) if edge_type[0] == "user" else (target, source)
                seen |= pairs_of(zip(*ends, strict=True))
            assert not seen & unseen
            if name != "given_relation":
                assert pairs_of(split.known(fold)) <= seen

    def test_known_answers_are_masked_and_counted(self, shop: Graph, name: str) -> None:
        split = split_of(shop, name)
        view = GraphView(shop, split, "test")
        known = pairs_of(split.train) | pairs_of(split.validation)
        assert pairs_of(np.argwhere(known_answers(view, split).toarray())) == known
        degree = np.bincount([item for _, item in known], minlength=ITEMS)
        np.testing.assert_array_equal(in_degree(view, split), degree)
        linked = set(known)
        if name != "given_relation":
            source, target = shop.csc(("user", "bought_later", "item")).coo()
            seen = ~np.isin(split.pair_keys(source, target), split.hidden_pairs("test"))
            linked |= pairs_of(zip(source[seen], target[seen], strict=True))
        queries = ranking_queries(view, split, "test")
        for number, query in enumerate(queries.queries.tolist()):
            masked = queries.masked[queries.masked_indptr[number] : queries.masked_indptr[number + 1]]
            assert set(masked.tolist()) == {item for user, item in linked if user == query}

    def test_order_of_the_rows_does_not_matter(self, tmp_path: Path, shop: Graph, name: str) -> None:
        split, other = split_of(shop, name), split_of(build_shop(tmp_path, shuffled=True), name)
        for fold in FOLDS:
            if name == "given_column":  # which of two edges of a pair comes first does not matter either
                assert pairs_of(split.edges(fold)) == pairs_of(other.edges(fold))
            np.testing.assert_array_equal(split.edges(fold), other.edges(fold))

    def test_comes_back_from_disk(self, tmp_path: Path, shop: Graph, name: str) -> None:
        split = split_of(shop, name)
        save_split(split, tmp_path / "split.npz")
        again = load_split(tmp_path / "split.npz")
        assert vars(again).keys() == vars(split).keys()
        for key, value in vars(split).items():
            np.testing.assert_array_equal(getattr(again, key), value)


@pytest.mark.parametrize("relations", [("bought",), ("bought", "bought_later")])
def test_links_sorted_on_disk_are_those_in_memory(
    shop: Graph, relations: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of("random", relations=relations)
    expected = make_split(shop, task, 3)
    monkeypatch.setattr("graphbox.train.splitting.at_random._BLOCK_LINKS", 50)
    monkeypatch.setattr("graphbox.train.splitting.at_random._SORT_BYTES", 6_000)
    found = make_split(shop, task, 3, tmp_path)
    for name, value in vars(expected).items():
        np.testing.assert_array_equal(getattr(found, name), value)
    assert not list(tmp_path.iterdir()), "files are removed as soon as they are mapped"


@pytest.mark.parametrize("fold", ["validation", "test"])
def test_edges_to_find_are_told_apart_by_relation(
    graph: Graph, recommend_split: RecommendSplit, recommend_task: RecommendTaskConfig, fold: Fold
) -> None:
    found = recommend_split.edges_by_relation(fold)
    assert list(found) == ["likes", "fits"]
    for relation, inside in found.items():
        csc = graph.csc(("item", relation, "item"))
        source, target = csc.coo()
        clause = np.asarray(graph.edge_feature(("item", relation, "item"), "clause"))[
            csc.ids_at(np.arange(csc.num_edges))
        ]
        alternatives = Counter(zip(source.tolist(), clause.tolist(), strict=True))
        single = [alternatives[key] == 1 for key in zip(source.tolist(), clause.tolist(), strict=True)]
        pairs = pairs_of(np.stack([source, target], axis=1)[single])
        expected = [tuple(edge) in pairs for edge in recommend_split.edges(fold).tolist()]
        assert inside.tolist() == expected
        assert 0 < inside.sum() < len(inside)
    assert recommend_task.k == 10
    report = evaluate_baselines(graph, recommend_split, recommend_task, fold)["popular"]
    for relation, inside in found.items():
        assert report[f"positives_{relation}"] == inside.sum()
        assert 0 <= report[f"recall@10_{relation}"] <= 1


@pytest.mark.parametrize("seed", range(6))
def test_of_equal_times_none_is_in_two_parts(seed: int) -> None:
    task = task_of("time", test_fraction=0.3, validation_fraction=0.25)
    time = np.random.default_rng(seed).integers(0, 8, 40)
    ascending = np.sort(time).tolist()
    first_tested = ascending[int(0.7 * len(ascending))]
    before = [each for each in ascending if each < first_tested]
    first_validated = before[int(0.75 * len(before))]
    expected = [2 if each >= first_tested else int(each >= first_validated) for each in time.tolist()]
    assert latest_parts(time, task).tolist() == expected


def test_equal_times_at_the_end_are_tested_all() -> None:
    task = task_of("time", test_fraction=0.1, validation_fraction=0.25)
    time = np.array([9, 1, 9, 2, 9, 3, 9, 4])
    assert latest_parts(time, task).tolist() == [2, 0, 2, 0, 2, 0, 2, 1]


def test_by_time_what_is_tested_is_later(shop: Graph) -> None:
    split, first = split_of(shop, "time"), first_times(shop)
    train, validation, test = ([first[pair] for pair in pairs_of(split.edges(fold))] for fold in FOLDS)
    assert max(train) < min(validation)
    assert max(validation) < min(test)
    assert len(test) == pytest.approx(0.2 * len(first), rel=0.1)
    assert len(validation) == pytest.approx(0.08 * len(first), rel=0.2)


def test_last_of_each_is_the_last(shop: Graph) -> None:
    split, first = split_of(shop, "leave_last_out"), first_times(shop)
    tested = dict(pairs_of(split.test))
    for user in range(USERS):
        times = sorted(time for (buyer, _), time in first.items() if buyer == user)
        assert (user in tested) == (len(times) >= 3)
        if user in tested:
            assert first[user, tested[user]] == times[-1]


def test_the_column_decides(shop: Graph) -> None:
    split = split_of(shop, "given_column")
    csc = shop.csc(("user", "bought", "item"))
    names = shop.edge_features(("user", "bought", "item"))["part"].categories
    assert names is not None
    code = shop.edge_feature(("user", "bought", "item"), "part")[csc.ids_at(np.arange(csc.num_edges))]
    expected: dict[tuple[int, int], str] = {}
    rank = ["train", "valid", "test", "unused"]
    for user, item, part in zip(*(each.tolist() for each in (*csc.coo(), code)), strict=True):
        before = expected.get((user, item), "unused")
        expected[user, item] = min(names[part], before, key=rank.index)
    for fold, part in zip(FOLDS, rank[:3], strict=True):
        assert pairs_of(split.edges(fold)) == {pair for pair, its in expected.items() if its == part}
    assert len(split.ignored_pairs) == sum(its == "unused" for its in expected.values())


def test_what_is_in_no_part_is_not_known_where_it_may_not_be_held_out(shop: Graph) -> None:
    free, bound = (
        split_of(shop, "given_column"),
        split_of(shop, "given_column", exclude_relations=("bought_later",)),
    )
    later = np.stack(shop.csc(("user", "bought_later", "item")).coo(), axis=1)
    linked = np.intersect1d(free.ignored_pairs, free.pair_keys(later[:, 0], later[:, 1]))
    assert len(linked)
    np.testing.assert_array_equal(bound.ignored_pairs, free.ignored_pairs)
    train = bound.pair_keys(bound.train[:, 0], bound.train[:, 1])
    assert not np.isin(linked, train).any()


def test_a_table_of_its_own_is_the_test_part(shop: Graph) -> None:
    split = split_of(shop, "given_relation")
    later = pairs_of(zip(*shop.csc(("user", "bought_later", "item")).coo(), strict=True))
    bought = set(first_times(shop))
    assert pairs_of(split.test) == later - bought
    assert split.repeated == len(later & bought)
    assert pairs_of(split.train) | pairs_of(split.validation) == bought
    view = GraphView(shop, split, "test")
    assert view.edge_types == [("user", "bought", "item"), ("item", "bought_by", "user")]
    with pytest.raises(UsageError, match="not held out"):
        view.csc(("user", "bought_later", "item"))


class TestClassify:
    def task(self, **split: Any) -> ClassifyTaskConfig:
        return ClassifyTaskConfig.model_validate(
            {
                "kind": "classify",
                "node_type": "user",
                "label": "taste",
                "split": {"kind": "given", "feature": "part", **split},
            }
        )

    def test_the_column_decides(self, shop: Graph) -> None:
        split = make_split(shop, self.task(ignored=("none",)), 0)
        assert isinstance(split, ClassifySplit)
        users = np.arange(USERS)
        np.testing.assert_array_equal(split.nodes("test"), users[users % 5 == 0])
        rest = users[(users % 5 != 0) & (users % 7 != 0)]
        np.testing.assert_array_equal(split.nodes("train", "validation"), rest)
        assert len(split.nodes("validation"))

    def test_who_is_tested_is_not_read(self, shop: Graph) -> None:
        view = GraphView(shop, make_split(shop, self.task(ignored=("none",)), 0))
        assert not view.features("user")
        with pytest.raises(UsageError, match="is tested on"):
            view.feature("user", "part")

    def test_value_without_a_part_is_refused(self, shop: Graph) -> None:
        with pytest.raises(DataError, match=r"in `part`, received `none`") as caught:
            make_split(shop, self.task(), 0)
        assert "ignored" in str(caught.value)
        with pytest.raises(DataError, match="received `test`"):
            make_split(shop, self.task(ignored=("none",), test=("tests",)), 0)


class TestRefused:
    def test_times_that_are_not_there(self, shop: Graph) -> None:
        task = task_of("time").model_copy(update={"relations": ("bought_later",)})
        with pytest.raises(UsageError, match="timestamp for a split of kind time"):
            make_split(shop, task, 0)

    def test_feature_that_is_none(self, shop: Graph) -> None:
        task = task_of("given_column", split={"kind": "given", "feature": "parts"})
        with pytest.raises(UsageError, match="received `parts`"):
            make_split(shop, task, 0)

    @pytest.mark.parametrize(
        ("split", "settings", "message"),
        [
            ({"kind": "given"}, {}, "either `feature` or `test_relations`"),
            ({"kind": "given", "feature": "a", "test_relations": ("b",)}, {}, "received both"),
            (
                {"kind": "given", "feature": "a", "validation_relations": ("b",)},
                {},
                "go with `test_relations`",
            ),
            ({"kind": "time"}, {"group": ("user", "lives_in", "house")}, "`group` has no meaning"),
            ({"kind": "given", "feature": "a"}, {"test_fraction": 0.1}, "`test_fraction` has no meaning"),
        ],
    )
    def test_settings_that_do_not_go_together(
        self, split: dict[str, Any], settings: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValidationError, match=message):
            task_of("random", split=split, **settings)

    def test_relations_hold_out_no_nodes(self) -> None:
        with pytest.raises(ValidationError, match="holds out nodes"):
            ClassifyTaskConfig(
                kind="classify",
                node_type="user",
                label="taste",
                split=GivenSplitConfig(kind="given", test_relations=("later",)),
            )
