"""Splits: what is held out, that it depends on ids and seed alone, and that it comes back from disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from graphbox.config import ClassifyTaskConfig, RecommendTaskConfig
from graphbox.errors import DataError, FormatError, UsageError
from graphbox.graph import Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.train import ClassifySplit, RecommendSplit, load_split, make_split, save_split
from graphbox.train.splitting import unit_hash
from graphbox.train.tasks import pair_keys
from tests.train.conftest import GROUPS, ITEMS, build_graph


def test_hash_is_the_documented_one() -> None:
    digest = hashlib.blake2b(
        b"group x", digest_size=8, key=(7).to_bytes(8, "little"), person=b"graphbox"
    ).digest()
    expected = int.from_bytes(digest, "little") / 2**64
    assert unit_hash(7, ["group x"])[0] == pytest.approx(expected, abs=1e-15)
    numbers = unit_hash(0, [str(number) for number in range(4000)])
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    assert abs(numbers.mean() - 0.5) < 0.02


def test_pair_keys_are_unordered_and_distinct() -> None:
    first, second = np.meshgrid(np.arange(40), np.arange(40))
    keys = pair_keys(first.ravel(), second.ravel()).reshape(40, 40)
    np.testing.assert_array_equal(keys, keys.T)
    assert len(np.unique(keys)) == 40 * 41 // 2


class TestClassify:
    def test_nodes_without_any_label_are_told_of(self, tmp_path: Path) -> None:
        table = pa.table({"id": ["a", "b"], "label": pa.array([None, None], pa.string())})
        nodes = NodeSource(table, id="id", features={"label": "categorical"})
        import_graph(GraphSource("g", {"node": nodes}, ()), tmp_path / "graph")
        task = ClassifyTaskConfig(kind="classify", node_type="node", label="label")
        with pytest.raises(DataError, match="with a `label` in each fold, received none") as caught:
            make_split(Graph.open(tmp_path / "graph"), task, 0)
        assert "no node has one at all" in str(caught.value)

    def test_groups_are_never_split(self, graph: Graph, classify_split: ClassifySplit) -> None:
        group = graph.csr(("item", "part_of", "group")).indices
        for number in range(GROUPS):
            assert len(np.unique(classify_split.fold[group == number])) <= 1

    def test_folds_have_about_their_share(self, classify_split: ClassifySplit) -> None:
        share = np.bincount(classify_split.fold, minlength=3) / ITEMS
        assert share == pytest.approx([0.72, 0.08, 0.2], abs=0.08)
        assert len(classify_split.nodes("train", "validation", "test")) == ITEMS

    def test_labels_are_the_feature(self, graph: Graph, classify_split: ClassifySplit) -> None:
        np.testing.assert_array_equal(classify_split.labels, graph.feature("item", "topic"))
        assert classify_split.classes == graph.features("item")["topic"].categories

    def test_another_seed_holds_out_others(
        self, graph: Graph, classify_task: ClassifyTaskConfig, classify_split: ClassifySplit
    ) -> None:
        again = make_split(graph, classify_task, 0)
        other = make_split(graph, classify_task, 1)
        assert isinstance(again, ClassifySplit)
        assert isinstance(other, ClassifySplit)
        np.testing.assert_array_equal(again.fold, classify_split.fold)
        assert again.digest == classify_split.digest != other.digest
        assert (other.fold != classify_split.fold).any()

    def test_order_of_the_rows_does_not_matter(
        self, tmp_path: Path, graph: Graph, classify_task: ClassifyTaskConfig, classify_split: ClassifySplit
    ) -> None:
        order = np.random.default_rng(9).permutation(ITEMS)
        shuffled = build_graph(tmp_path, order=order)
        split = make_split(shuffled, classify_task, 0)
        assert isinstance(split, ClassifySplit)
        place = graph.index("item", shuffled.ids("item"))
        np.testing.assert_array_equal(split.fold, classify_split.fold[place])

    def test_integer_labels_are_classes_and_negative_ones_unknown(self) -> None:
        values = np.array([7, -1, 3, 12] * 20)
        graph = Graph.from_coo([0], [1], num_nodes=80, node_features={"label": values})
        task = ClassifyTaskConfig(kind="classify", node_type="node", label="label")
        split = make_split(graph, task, seed=0)
        assert isinstance(split, ClassifySplit)
        assert split.classes == ("3", "7", "12")
        assert split.labels[:4].tolist() == [1, -1, 0, 2]
        assert (split.fold[values < 0] == -1).all()

    def test_label_that_is_no_category_is_refused(
        self, graph: Graph, classify_task: ClassifyTaskConfig
    ) -> None:
        with pytest.raises(
            UsageError, match=r"categorical or integer feature of item as label, received `size`"
        ):
            make_split(graph, classify_task.model_copy(update={"label": "size"}), 0)

    def test_node_in_two_groups_is_refused(self, graph: Graph, classify_task: ClassifyTaskConfig) -> None:
        task = classify_task.model_copy(update={"group": ("item", "needs", "item")})
        with pytest.raises(DataError, match="at most one group") as caught:
            make_split(graph, task, 0)
        assert "item item-" in str(caught.value)

    def test_empty_fold_is_said(self, graph: Graph, classify_task: ClassifyTaskConfig) -> None:
        with pytest.raises(DataError, match="received none in validation"):
            make_split(graph, classify_task.model_copy(update={"validation_fraction": 1e-9}), 0)


class TestRecommend:
    def test_only_what_may_be_tested_is_held_out(
        self, graph: Graph, recommend_task: RecommendTaskConfig, recommend_split: RecommendSplit
    ) -> None:
        split, group = recommend_split, recommend_split.group
        source, target = graph.csc(("item", "needs", "item")).coo()
        needs = set(zip(group[source].tolist(), group[target].tolist(), strict=True))
        single: dict[tuple[int, int], set[bool]] = {}
        for relation in recommend_task.relations:
            edge_type = ("item", relation, "item")
            source, target = graph.csc(edge_type).coo()
            clause = graph.edge_feature(edge_type, "clause")
            clauses = list(zip(source.tolist(), clause.tolist(), strict=True))
            for edge, key in zip(zip(source.tolist(), target.tolist(), strict=True), clauses, strict=True):
                single.setdefault(edge, set()).add(clauses.count(key) == 1)
        for fold in (split.validation, split.test):
            for query, answer in fold.tolist():
                first, second = int(group[query]), int(group[answer])
                assert first != second
                assert (first, second) not in needs
                assert (second, first) not in needs
                assert True in single[query, answer]

    def test_pairs_of_groups_lie_in_one_fold(self, recommend_split: RecommendSplit) -> None:
        split, group = recommend_split, recommend_split.group
        keys = {
            fold: set(pair_keys(group[edges[:, 0]], group[edges[:, 1]]).tolist())
            for fold, edges in (
                ("train", split.train),
                ("validation", split.validation),
                ("test", split.test),
            )
        }
        assert not keys["train"] & keys["test"]
        assert not keys["train"] & keys["validation"]
        assert not keys["validation"] & keys["test"]
        assert keys["test"] <= set(split.test_pairs.tolist())
        assert keys["validation"] <= set(split.validation_pairs.tolist())

    def test_every_edge_is_known_or_held_out(
        self, graph: Graph, recommend_task: RecommendTaskConfig, recommend_split: RecommendSplit
    ) -> None:
        split, group = recommend_split, recommend_split.group
        held = np.union1d(split.validation_pairs, split.test_pairs)
        train = {tuple(edge) for edge in split.train.tolist()}
        for relation in recommend_task.relations:
            source, target = graph.csc(("item", relation, "item")).coo()
            hidden = np.isin(pair_keys(group[source], group[target]), held)
            for edge, is_hidden in zip(
                zip(source.tolist(), target.tolist(), strict=True), hidden, strict=True
            ):
                assert (edge in train) != bool(is_hidden)

    def test_same_seed_same_split(
        self, graph: Graph, recommend_task: RecommendTaskConfig, recommend_split: RecommendSplit
    ) -> None:
        again, other = make_split(graph, recommend_task, 0), make_split(graph, recommend_task, 5)
        assert again.digest == recommend_split.digest != other.digest

    def test_order_of_the_rows_does_not_matter(
        self,
        tmp_path: Path,
        graph: Graph,
        recommend_task: RecommendTaskConfig,
        recommend_split: RecommendSplit,
    ) -> None:
        shuffled = build_graph(tmp_path, order=np.random.default_rng(4).permutation(ITEMS))
        split = make_split(shuffled, recommend_task, 0)
        assert isinstance(split, RecommendSplit)
        names, shuffled_names = graph.ids("item"), shuffled.ids("item")
        for mine, theirs in (
            (recommend_split.test, split.test),
            (recommend_split.validation, split.validation),
        ):
            assert sorted(names[mine].tolist()) == sorted(shuffled_names[theirs].tolist())

    def test_without_groups_each_node_is_its_own(
        self, graph: Graph, recommend_task: RecommendTaskConfig
    ) -> None:
        split = make_split(graph, recommend_task.model_copy(update={"group": None}), 0)
        assert isinstance(split, RecommendSplit)
        np.testing.assert_array_equal(split.group, np.arange(ITEMS))
        assert len(split.test)

    def test_nothing_to_hold_out_is_said(self, graph: Graph, recommend_task: RecommendTaskConfig) -> None:
        task = recommend_task.model_copy(update={"exclude_relations": ("needs", "likes", "fits")})
        with pytest.raises(DataError, match="received none in validation"):
            make_split(graph, task, 0)


class TestOnDisk:
    @pytest.mark.parametrize("kind", ["classify_split", "recommend_split"])
    def test_comes_back(self, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        split = request.getfixturevalue(kind)
        save_split(split, tmp_path / "split.npz")
        loaded = load_split(tmp_path / "split.npz")
        assert type(loaded) is type(split)
        for name, value in vars(split).items():
            np.testing.assert_array_equal(getattr(loaded, name), value)
        assert [path.name for path in tmp_path.iterdir()] == ["split.npz"]

    def test_damage_is_found(self, classify_split: ClassifySplit, tmp_path: Path) -> None:
        path = tmp_path / "split.npz"
        save_split(classify_split, path)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(FormatError, match="cannot be read") as caught:
            load_split(path)
        assert str(path) in str(caught.value)
        path.write_bytes(b"")
        with pytest.raises(FormatError):
            load_split(path)
        with pytest.raises(FileNotFoundError):
            load_split(tmp_path / "none.npz")
