"""Completion of knowledge graphs: splits, leaks, ranks, baselines, models that learn, and what is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graphbox.config import CompleteTaskConfig, GivenSplitConfig, RandomSplitConfig, model_kind
from graphbox.errors import DataError, DoesNotFitError, UsageError
from graphbox.graph import Graph
from graphbox.train import (
    CompleteSplit,
    GraphView,
    TrainedModel,
    evaluate_baselines,
    evaluate_trained,
    fit,
    likely_answers,
    load_split,
    load_trained,
    make_split,
    save_split,
)
from graphbox.train.assignment import Assignment
from graphbox.train.completion.baselines import popular_scores, rule_scores
from graphbox.train.completion.evaluation import rank_triples
from graphbox.train.completion.queries import DirectedQueries, answers_of
from graphbox.train.completion.trainer import CompletionTrainer
from tests.train.atlas import PLACES, Triple, build_atlas, facts, place, write_triples

KINDS = ("distmult", "complex", "transe", "rotate")
BY_COLUMN = GivenSplitConfig(kind="given", feature="part")
BY_TABLES = GivenSplitConfig(kind="given", validation_relations=("later",), test_relations=("last",))


def task_of(**settings: Any) -> CompleteTaskConfig:
    about: dict[str, Any] = {
        "kind": "complete",
        "relations": (("place", "links", "place"),),
        "relation_feature": "relation",
        "split": BY_COLUMN,
    }
    return CompleteTaskConfig(**{**about, **settings})


def config_of(kind: str, **settings: Any) -> Any:
    about = {"kind": kind, "task": "links", "dim": 16, "epochs": 3, "batch_size": 32, "candidates": 24}
    return model_kind(kind).section.model_validate({**about, **settings})


def split_of(graph: Graph, task: CompleteTaskConfig, seed: int = 0) -> CompleteSplit:
    split = make_split(graph, task, seed)
    assert isinstance(split, CompleteSplit)
    return split


def texts(graph: Graph, split: CompleteSplit, triples: NDArray[np.int64]) -> set[Triple]:
    ids = graph.ids("place")
    return {(str(ids[h]), split.relations[r], str(ids[t])) for h, r, t in triples.tolist()}


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_atlas(tmp_path_factory.mktemp("atlas"))


@pytest.fixture(scope="module")
def split(atlas: Graph) -> CompleteSplit:
    return split_of(atlas, task_of())


class TestSplit:
    @pytest.mark.parametrize(
        "task",
        [task_of(), task_of(relations=(("place", "known", "place"),), split=BY_TABLES)],
        ids=["column", "tables"],
    )
    def test_given_parts(self, atlas: Graph, task: CompleteTaskConfig) -> None:
        split = split_of(atlas, task)
        for fold, part in (("train", "train"), ("validation", "valid"), ("test", "test")):
            assert texts(atlas, split, split.triples(fold)) == set(facts()[part])  # type: ignore[arg-type]
        assert split.repeated == 0
        assert set(split.relations) == {"east", "west", "north", "northeast", "opposite"}

    def test_edge_types_are_relations(self, atlas: Graph) -> None:
        relations = (("place", "known", "place"), ("place", "lies_in", "country"))
        split = split_of(atlas, task_of(relations=relations, relation_feature=None, split=RANDOM))
        assert split.relations == ("known", "lies_in")
        assert split.node_types == ("place", "country")
        assert split.relation_ends.tolist() == [[0, 0], [0, 1]]

    def test_random_keeps_pairs_together(self, atlas: Graph) -> None:
        split = split_of(atlas, task_of(split=RANDOM, test_fraction=0.3))
        pairs = [
            {tuple(sorted(pair)) for pair in split.triples(fold)[:, ::2].tolist()}
            for fold in ("train", "validation", "test")
        ]
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert pairs[one].isdisjoint(pairs[other])
        total = sum(len(triples) for triples in facts().values())
        assert 0.15 * total < len(split.test) < 0.45 * total
        again = split_of(atlas, task_of(split=RANDOM, test_fraction=0.3), seed=1)
        assert not np.array_equal(split.test, again.test)

    def test_without_a_validation_part_one_is_cut(self, atlas: Graph) -> None:
        given = GivenSplitConfig(kind="given", test_relations=("last",))
        split = split_of(
            atlas, task_of(relations=(("place", "known", "place"),), split=given, validation_fraction=0.2)
        )
        assert texts(atlas, split, split.test) == set(facts()["test"])
        assert texts(atlas, split, split.known("test")) == set(facts()["train"])
        assert len(split.validation)

    def test_what_is_known_once_is_not_to_be_found(self, tmp_path: Path) -> None:
        def twice(triples: list[Triple]) -> list[Triple]:
            return [*triples, facts()["train"][0], facts()["train"][0]]

        build_atlas(tmp_path)
        write_triples(tmp_path / "last.parquet", twice(facts()["test"]))
        graph = rebuilt(tmp_path)
        split = split_of(graph, task_of(relations=(("place", "known", "place"),), split=BY_TABLES))
        assert texts(graph, split, split.test) == set(facts()["test"])
        assert split.repeated == 2

    def test_comes_back(self, split: CompleteSplit, tmp_path: Path) -> None:
        save_split(split, tmp_path / "links.npz")
        again = load_split(tmp_path / "links.npz")
        assert isinstance(again, CompleteSplit)
        for name, value in vars(split).items():
            np.testing.assert_array_equal(getattr(again, name), value)

    @pytest.mark.parametrize(
        ("settings", "error", "says"),
        [
            ({"relation_feature": "part_of"}, UsageError, "categorical edge feature that says the relation"),
            ({"relations": (("place", "linked_from", "place"),)}, UsageError, "triples to learn from"),
            ({"split": GivenSplitConfig(kind="given", test_relations=("lst",))}, UsageError, "no edge type"),
            (
                {"relations": (("place", "lies_in", "country"),), "split": BY_TABLES},
                UsageError,
                "expected one edge type from place to place",
            ),
            (
                {"split": GivenSplitConfig(kind="given", feature="part", test=("none",), ignored=("test",))},
                DataError,
                "received none in test",
            ),
        ],
    )
    def test_refusals(self, atlas: Graph, settings: Any, error: type[Exception], says: str) -> None:
        with pytest.raises(error, match=says):
            make_split(atlas, task_of(**settings), 0)


RANDOM = RandomSplitConfig(kind="random")


def rebuilt(folder: Path) -> Graph:
    """Import the tables of an atlas again, as they are now."""
    from graphbox.graph import EdgeSource, GraphSource, NodeSource
    from graphbox.graph.ingest import import_graph

    edges = tuple(
        EdgeSource(
            ("place", name, "place"),
            folder / f"{name}.parquet",
            features={"relation": "categorical"},
            keep_duplicates=True,
        )
        for name in ("known", "later", "last")
    )
    source = GraphSource("atlas", {"place": NodeSource(folder / "place.parquet")}, edges)
    import_graph(source, folder / "again")
    return Graph.open(folder / "again")


class TestLeaks:
    def test_the_view_has_no_held_out_edge(self, atlas: Graph, split: CompleteSplit) -> None:
        for fold, hidden in (("train", ("valid", "test")), ("test", ("test",))):
            view = GraphView(atlas, split, fold)  # type: ignore[arg-type]
            head, _ = view.csc(("place", "links", "place")).coo()
            parts = facts()
            kept = sum(len(triples) for part, triples in parts.items() if part not in hidden)
            assert len(head) == kept
            backwards = view.csc(("place", "linked_from", "place")).coo()
            assert len(backwards[0]) == kept

    def test_tables_of_held_out_triples_are_not_there(self, atlas: Graph) -> None:
        split = split_of(atlas, task_of(relations=(("place", "known", "place"),), split=BY_TABLES))
        view = GraphView(atlas, split, "test")
        assert {"later", "last"}.isdisjoint(edge_type[1] for edge_type in view.edge_types)

    @pytest.mark.parametrize("train_on", ["train", "train_and_validation"])
    def test_training_asks_known_triples_alone(
        self, atlas: Graph, split: CompleteSplit, train_on: str
    ) -> None:
        config = config_of("complex", train_on=train_on)
        view = GraphView(atlas, split, "test" if config.sees_validation else "train")
        queries = CompletionTrainer(config, Assignment("model", view, split, task_of(), 0, None)).queries
        row, answers = queries.of_queries(np.arange(len(queries.entities)))
        relation, entity = queries.relations[row], queries.entities[row]
        count = len(split.relations)
        found = {
            (int(e), int(r), int(a)) if r < count else (int(a), int(r) - count, int(e))
            for e, r, a in zip(entity, relation, answers, strict=True)
        }
        known = [split.train] + [split.validation] * config.sees_validation
        assert found == set(map(tuple, np.concatenate(known).tolist()))
        assert len(answers) == 2 * len(found)

    @pytest.mark.parametrize("train_on", ["train", "train_and_validation"])
    @pytest.mark.parametrize("kind", ["complex", "transe"])
    def test_held_out_triples_change_no_row(
        self, atlas: Graph, split: CompleteSplit, kind: str, train_on: str
    ) -> None:
        """The same triples to learn from, others held out: the rows that are learnt have the same bits."""
        held_out = ["test"] if train_on == "train_and_validation" else ["validation", "test"]
        others: dict[str, Any] = {name: split.triples(name)[:, [2, 1, 0]] for name in held_out}  # type: ignore[arg-type]
        config, found = config_of(kind, train_on=train_on), []
        for each in (split, replace(split, **others)):
            view = GraphView(atlas, each, "test" if config.sees_validation else "train")
            trainer = CompletionTrainer(config, Assignment("model", view, each, task_of(), 4, 1))
            for epoch in range(2):
                for batch in range(trainer.begin_epoch(epoch)):
                    trainer.train_batch(epoch, batch)
                trainer.end_epoch(epoch)
            found.append({name: table.pull(np.arange(60)) for name, table in trainer.tables().items()})
        for name, rows in found[0].items():
            np.testing.assert_array_equal(rows, found[1][name])

    def test_validation_is_filtered_without_test(self, split: CompleteSplit) -> None:
        true = set(map(tuple, split.true_in("validation").tolist()))
        assert true.isdisjoint(set(map(tuple, split.test.tolist())))


class TestRanks:
    @pytest.mark.parametrize("fold", ["validation", "test"])
    def test_equals_a_loop(self, split: CompleteSplit, fold: Any) -> None:
        generator = np.random.default_rng(3)
        table = generator.integers(0, 12, (2, len(split.relations), PLACES, PLACES)).astype(np.float32)

        def score(nodes: Any, relations: Any, *, to_heads: bool) -> Any:
            return table[int(to_heads), relations, nodes]

        true = set(map(tuple, split.true_in(fold).tolist()))
        ranks = {"tail": [], "head": []}  # type: dict[str, list[float]]
        for h, r, t in split.triples(fold).tolist():
            for name, asked, answer in (("tail", h, t), ("head", t, h)):
                row = table[int(name == "head"), r, asked]
                others = [
                    row[node]
                    for node in range(PLACES)
                    if node != answer and ((h, r, node) if name == "tail" else (node, r, t)) not in true
                ]
                above = sum(value > row[answer] for value in others)
                ties = sum(value == row[answer] for value in others)
                ranks[name].append(1 + above + ties / 2)
        report = rank_triples(split, fold, {"place": PLACES}, score, threads=2)
        both = np.array(ranks["tail"] + ranks["head"])
        assert report["mrr"] == pytest.approx(np.mean(1 / both))
        assert report["mrr_tail"] == pytest.approx(np.mean(1 / np.array(ranks["tail"])))
        assert report["hits@10_head"] == pytest.approx(np.mean(np.array(ranks["head"]) <= 10))
        assert report["queries"] == 2 * len(split.triples(fold))
        relations = split.triples(fold)[:, 1]
        for number in np.unique(relations):
            mine = np.concatenate([np.array(ranks[name])[relations == number] for name in ("tail", "head")])
            name = split.relations[number]
            assert report[f"mrr_relation_{name}"] == pytest.approx(np.mean(1 / mine))
            assert report[f"queries_relation_{name}"] == len(mine)

    def test_unseen_entities_are_kept_and_counted(self, tmp_path: Path) -> None:
        build_atlas(tmp_path)
        parts = facts()
        for name, part in (("known", "train"), ("later", "valid")):
            write_triples(tmp_path / f"{name}.parquet", [t for t in parts[part] if place(0, 0) not in t])
        write_triples(
            tmp_path / "last.parquet", [(place(0, 0), "northeast", place(1, 1)), *parts["test"][:5]]
        )
        graph = rebuilt(tmp_path)
        split = split_of(graph, task_of(relations=(("place", "known", "place"),), split=BY_TABLES))
        scores = popular_scores(split, "validation", {"place": PLACES})
        report = rank_triples(split, "test", {"place": PLACES}, scores)
        known = {node for triple in texts(graph, split, split.known("test")) for node in triple[::2]}
        unseen = sum(not {h, t} <= known for h, _, t in texts(graph, split, split.test))
        assert unseen >= 1
        assert report["queries_unseen"] == 2 * unseen
        assert report["queries"] == 2 * len(split.test)

    def test_answers_of_queries_that_are_not_known(self) -> None:
        known = DirectedQueries.of(np.array([[0, 0, 3], [0, 0, 5], [1, 1, 3]]), 2)
        indptr, answers = answers_of(known, np.array([0, 7, 3]), np.array([0, 0, 2]))
        assert indptr.tolist() == [0, 2, 2, 3]
        assert answers.tolist() == [3, 5, 0]


class TestBaselines:
    def test_popular_counts(self, split: CompleteSplit) -> None:
        score = popular_scores(split, "test", {"place": PLACES})
        relation = int(split.test[0, 1])
        known = split.known("test")
        expected = np.bincount(known[known[:, 1] == relation, 2], minlength=PLACES)
        row = score(np.array([3]), np.array([relation]), to_heads=False)[0]
        np.testing.assert_array_equal(row, expected)

    def test_rules_find_symmetric_and_inverse_relations(self, atlas: Graph, split: CompleteSplit) -> None:
        baselines = evaluate_baselines(atlas, split, task_of())
        assert baselines["rules"]["mrr_relation_west"] == 1.0
        assert baselines["rules"]["mrr_relation_opposite"] == 1.0
        assert baselines["popular"]["mrr"] < 0.3

    def test_confidence_is_the_share_that_holds(self, split: CompleteSplit) -> None:
        score = rule_scores(split, "validation", {"place": PLACES})
        east, west = split.relations.index("east"), split.relations.index("west")
        train = split.train
        reversed_east = {(t, h) for h, r, t in train.tolist() if r == east}
        wests = {(h, t) for h, r, t in train.tolist() if r == west}
        confidence = len(reversed_east & wests) / len(reversed_east)
        head, tail = next(iter(sorted(reversed_east - wests)))
        row = score(np.array([head]), np.array([west]), to_heads=False)[0]
        assert row[tail] == pytest.approx(confidence, abs=2e-3)
        assert int(row.argmax()) == tail

    def test_rules_equal_plain_counts(self, split: CompleteSplit) -> None:
        score = rule_scores(split, "validation", {"place": PLACES})
        by_pair: dict[tuple[int, int], set[int]] = {}
        for head, relation, tail in split.train.tolist():
            by_pair.setdefault((head, tail), set()).add(relation)
            by_pair.setdefault((tail, head), set()).add(relation + len(split.relations))
        for head, relation, _ in split.validation[::5].tolist():
            expected = np.zeros(PLACES)
            for (first, second), said in by_pair.items():
                for step in said - {relation} if first == head else ():
                    joined = [steps for steps in by_pair.values() if step in steps]
                    expected[second] += sum(relation in steps for steps in joined) / len(joined)
            found = score(np.array([head]), np.array([relation]), to_heads=False)[0]
            np.testing.assert_allclose(found, expected, atol=1.1e-3)  # but for popularity

    def test_as_many_relations_as_there_are_links(
        self, split: CompleteSplit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generator = np.random.default_rng(0)
        triples = np.column_stack(
            [generator.integers(0, 50, 3000), np.arange(3000) % 100_000 * 33, generator.integers(0, 50, 3000)]
        )
        many = replace(
            split,
            relations=tuple(f"r{number}" for number in range(100_000)),
            relation_ends=np.zeros((100_000, 2), dtype=np.int64),
            train=triples[:2000],
            validation=triples[2000:],
        )
        report = rank_triples(
            many, "validation", {"place": 50}, rule_scores(many, "validation", {"place": 50})
        )
        assert report["queries"] == 2000
        assert sum(name.startswith("queries_relation_") for name in report) == 1000
        monkeypatch.setattr("graphbox.train.completion.baselines._MOST_RULES", 10)
        with pytest.raises(DoesNotFitError, match="at most 10 pairs of relations") as raised:
            rule_scores(many, "validation", {"place": 50})
        assert "baselines: [popular]" in str(raised.value.hint)


def train_model(
    atlas: Graph, split: CompleteSplit, config: Any, folder: Path, **options: Any
) -> TrainedModel:
    settings: dict[str, Any] = {"name": "model", "run_folder": folder, "seed": 4, "threads": 1, **options}
    return fit(atlas, split, config=config, task=task_of(), **settings)


LEARNS = [
    ("complex", "softmax", {"regularization": 0.01, "epochs": 40}),
    ("complex", "sampled_softmax", {"regularization": 0.01, "epochs": 40}),
    ("rotate", "self_adversarial", {"epochs": 40}),
    ("transe", "sampled_softmax", {"epochs": 60}),
]


class TestLearns:
    @pytest.mark.parametrize(("kind", "loss", "settings"), LEARNS)
    def test_composition(
        self,
        atlas: Graph,
        split: CompleteSplit,
        tmp_path: Path,
        kind: str,
        loss: str,
        settings: dict[str, Any],
    ) -> None:
        config = config_of(kind, loss=loss, validate_every=20, **settings)
        report = evaluate_trained(atlas, split, task_of(), train_model(atlas, split, config, tmp_path))
        rules = evaluate_baselines(atlas, split, task_of())["rules"]
        assert report["mrr_relation_northeast"] > rules["mrr_relation_northeast"] + 0.2

    @pytest.mark.parametrize("kind", ["distmult", "complex", "rotate"])
    def test_symmetry(self, atlas: Graph, split: CompleteSplit, tmp_path: Path, kind: str) -> None:
        config = config_of(kind, epochs=40, validate_every=20)
        report = evaluate_trained(atlas, split, task_of(), train_model(atlas, split, config, tmp_path))
        assert report["mrr_relation_opposite"] > 0.6

    def test_several_node_types(self, atlas: Graph, tmp_path: Path) -> None:
        relations = (("place", "links", "place"), ("place", "lies_in", "country"))
        task = task_of(relations=relations, relation_feature=None, split=RANDOM)
        split = split_of(atlas, task)
        config = config_of("distmult", epochs=30, validate_every=10)
        trained = train_model(atlas, split, config, tmp_path)
        assert set(trained.embeddings) == {"place", "country"}
        report = evaluate_trained(atlas, split, task, trained)
        assert report["mrr_relation_lies_in"] > 0.3
        with pytest.raises(UsageError, match="one pair of node types"):
            trained.score_triples(np.array([0, 0]), np.array([0, 1]))


@pytest.fixture(scope="module")
def trained(atlas: Graph, split: CompleteSplit, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return train_model(atlas, split, config_of("complex"), tmp_path_factory.mktemp("trained"))


class TestLikelyAnswers:
    @pytest.mark.parametrize("asked", ["head", "tail"])
    def test_best_first_without_what_is_known(
        self, atlas: Graph, split: CompleteSplit, trained: TrainedModel, asked: str
    ) -> None:
        here = place(2, 2)
        question: dict[str, Any] = {asked: here, "k": PLACES}
        answers = likely_answers(atlas, split, trained, "east", **question)
        everything = likely_answers(atlas, split, trained, "east", **question, with_known=True)
        assert len(everything) == PLACES
        scores = [each.score for each in everything]
        assert scores == sorted(scores, reverse=True)
        neighbour = place(3, 2) if asked == "head" else place(1, 2)
        assert [each.id for each in everything if each.known] == [neighbour]
        assert answers == [each for each in everything if not each.known]
        number = np.array([split.relations.index("east")])
        node = atlas.index("place", [here])
        row = trained.score_triples(node, number, to_heads=asked == "tail")[0]
        assert answers[0].score == np.delete(row, atlas.index("place", [neighbour])).max()

    @pytest.mark.parametrize(
        ("question", "says"),
        [
            ({"relation": "eat", "head": place(0, 0)}, "there is no relation `eat`"),
            ({"relation": "east"}, "received neither"),
            ({"relation": "east", "head": "p0-0", "tail": "p0-1"}, "received both"),
            ({"relation": "east", "head": "p0-0", "k": 0}, "expected 1 or more"),
        ],
    )
    def test_refusals(
        self, atlas: Graph, split: CompleteSplit, trained: TrainedModel, question: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(UsageError, match=says):
            likely_answers(atlas, split, trained, **question)


class TestTraining:
    def test_candidates_are_as_likely_as_the_loss_takes_them_to_be(
        self, atlas: Graph, split: CompleteSplit
    ) -> None:
        trainer = CompletionTrainer(
            config_of("complex", batch_size=8, candidates=6),
            Assignment("model", GraphView(atlas, split), split, task_of(), 0, 1),
        )
        seen, batches = np.zeros(PLACES), 0
        for epoch in range(60):
            for batch in range(trainer.begin_epoch(epoch)):
                seen[trainer.batch_arrays(epoch, batch)["candidates"]] += 1
                batches += 1
        (expected,) = trainer._log_probability
        np.testing.assert_allclose(seen / batches, np.exp(expected), atol=0.04)

    def test_ends_in_its_best_state(self, atlas: Graph, split: CompleteSplit, tmp_path: Path) -> None:
        config = config_of("complex", epochs=12, validate_every=1, patience=2, learning_rate=0.5)
        trained = train_model(atlas, split, config, tmp_path)
        report = rank_triples(split, "validation", {"place": PLACES}, trained.score_triples)
        lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
        reached = [
            float(line.split('"validation_mrr": ')[1].split(",")[0].split("}")[0])
            for line in lines
            if "validation_mrr" in line
        ]
        assert report["mrr"] == pytest.approx(max(reached), abs=1e-6)

    def test_comes_back(self, atlas: Graph, split: CompleteSplit, tmp_path: Path) -> None:
        for kind in KINDS:
            trained = train_model(atlas, split, config_of(kind, reciprocal=kind == "rotate"), tmp_path)
            again = load_trained(tmp_path, "model")
            nodes, relations = np.arange(5), np.zeros(5, np.int64)
            for to_heads in (False, True):
                np.testing.assert_array_equal(
                    again.score_triples(nodes, relations, to_heads=to_heads),
                    trained.score_triples(nodes, relations, to_heads=to_heads),
                )
        ids = (tmp_path / "embeddings/model/relations/relations.ids.txt").read_text().splitlines()
        assert ids[: len(split.relations)] == list(split.relations)

    def test_a_model_without_relations_is_refused(
        self, atlas: Graph, split: CompleteSplit, tmp_path: Path
    ) -> None:
        vectors = {"place": np.ones((PLACES, 2), np.float32)}
        with pytest.raises(UsageError, match="scores triples"):
            evaluate_trained(
                atlas, split, task_of(), TrainedModel("rows", "embedding", "links", "place", vectors)
            )

    def test_a_task_of_another_kind_is_refused(self, atlas: Graph, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="expected a task of kind complete"):
            fit(
                atlas,
                None,
                name="model",
                config=config_of("complex"),
                task=None,
                run_folder=tmp_path,
                seed=0,
            )
