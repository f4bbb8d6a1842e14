"""Settings that the data chooses: facts, suggestions, trials, the search, and what survives a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from graphbox.config import (
    Candidate,
    ClassifyTaskConfig,
    DataFacts,
    DeepWalkConfig,
    GraphNetworkConfig,
    Interval,
    ModelSection,
    SASRecConfig,
    TaskConfig,
    model_kinds,
)
from graphbox.errors import FormatError, InterruptedRunError, UsageError
from graphbox.graph import Graph
from graphbox.train import NextSplit, fit, load_outcome, make_split
from graphbox.train.choosing import choose
from graphbox.train.choosing.choose import Measured, settle, settled_earlier
from graphbox.train.choosing.facts import facts_of
from graphbox.train.choosing.proposals import propose
from graphbox.train.choosing.pruning import MedianRule
from graphbox.train.choosing.trials import SettingsTrial, SettingsTrialLog
from graphbox.train.fit import load_settled
from graphbox.train.tasks import FOLDS, LinkSplit, RecommendSplit
from tests.train.shop import build_shop
from tests.train.visits import graph_of, some_visits, task_of

FACTS = DataFacts(100, 300, 300, features=True, labels=30, validation=60, classes=3)
NETWORK = GraphNetworkConfig(kind="gnn", task="topic")


def cost_of(settings: dict[str, Any]) -> float:
    """Return a cost with one minimum, at a dropout of 0.3 and a weight decay of 0.001."""
    decay = np.log10(settings.get("weight_decay", 5e-4)) + 3.0
    return float((settings.get("dropout", 0.5) - 0.3) ** 2 + 0.1 * decay**2)


class Bench:
    """Trains nothing: measures settings by a function, and leaves a file as a training leaves checkpoints."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self._dies_at = dies_at

    def __call__(
        self, section: ModelSection, place: Path, is_over: Callable[[], bool], rule: MedianRule | None
    ) -> Measured:
        assert isinstance(section, GraphNetworkConfig)
        assert section.auto == ()
        assert section.tune is None
        self.asked.append(section.model_dump(mode="json"))
        place.mkdir(exist_ok=True)
        (place / "state").write_text(str(section.dropout))
        if len(self.asked) - 1 == self._dies_at:
            raise InterruptedRunError("stopped on request")
        if section.layer == "gat":
            raise UsageError("no such layer here")
        cost = cost_of({"dropout": section.dropout, "weight_decay": section.weight_decay})
        return Measured("accuracy", 1.0 - cost, cost, 3, 2)


def found(folder: Path, bench: Bench, config: GraphNetworkConfig = NETWORK, facts: DataFacts = FACTS) -> Any:
    return settle(config, facts, folder, bench, seed=0, compares=facts.validation > 0)


class TestSettle:
    def test_the_best_suggestion_wins_and_keeps_what_it_trained(self, tmp_path: Path) -> None:
        settled = found(tmp_path, Bench())
        costs = [trial["cost"] for trial in settled.trials]
        assert len(costs) == len(NETWORK.suggestions(FACTS)) > 1
        assert settled.settings == settled.trials[int(np.argmin(costs))]["settings"]
        assert settled.trained == f"trial-{int(np.argmin(costs))}"
        assert [each.name for each in tmp_path.glob("trial-*")] == [settled.trained]
        assert NETWORK.settled(settled.settings).auto == ()

    def test_what_was_settled_is_not_tried_again(self, tmp_path: Path) -> None:
        first = found(tmp_path, Bench())
        again = Bench()
        assert found(tmp_path, again) == first
        assert again.asked == []

    def test_a_setting_of_the_run_file_stays(self, tmp_path: Path) -> None:
        config = GraphNetworkConfig(kind="gnn", task="topic", layers=3, dropout=0.25)
        bench = Bench()
        settled = found(tmp_path, bench, config)
        assert {(each["layers"], each["dropout"]) for each in bench.asked} == {(3, 0.25)}
        assert not {"layers", "dropout"} & set(settled.settings)

    def test_without_a_validation_part_the_first_suggestion_is_taken(self, tmp_path: Path) -> None:
        facts = DataFacts(100, 300, 300, features=True, labels=30, classes=3, homophily=0.2)
        bench = Bench()
        settled = found(tmp_path, bench, facts=facts)
        assert bench.asked == []
        assert settled.settings == NETWORK.suggestions(facts)[0].settings
        assert NETWORK.settled(settled.settings).layer == "sage"

    def test_stopped_in_a_trial_it_continues_there(self, tmp_path: Path) -> None:
        whole = found(tmp_path / "whole", Bench())
        folder = tmp_path / "stopped"
        with pytest.raises(InterruptedRunError):
            found(folder, Bench(dies_at=1))
        assert (folder / "trial-1" / "state").exists()  # to resume from
        rest = Bench()
        settled = found(folder, rest)
        assert len(rest.asked) == len(whole.trials) - 1
        assert settled.settings == whole.settings

    def test_all_refused_raises_the_first_reason(self, tmp_path: Path) -> None:
        def refuse(*_: Any) -> Measured:
            raise UsageError("expected words, received none", where="features")

        with pytest.raises(UsageError, match="expected words") as caught:
            found(tmp_path, refuse)  # type: ignore[arg-type]
        assert caught.value.where == "features"


class TestSearch:
    CONFIG = GraphNetworkConfig(kind="gnn", task="topic", tune="0.6s")  # type: ignore[arg-type]

    def test_it_finds_better_settings_than_are_suggested(self, tmp_path: Path) -> None:
        settled = found(tmp_path, Bench(), self.CONFIG)
        suggested = [each["cost"] for each in settled.trials if each["source"] == "suggested"]
        searched = [each for each in settled.trials if each["source"] == "search"]
        assert len(searched) > 5
        assert min(each["cost"] for each in searched if each["cost"] is not None) < min(suggested)
        assert settled.settings["epochs"] == suggestion(self.CONFIG)["epochs"]  # as suggested
        assert len({json.dumps(each["settings"], sort_keys=True) for each in settled.trials}) == len(
            settled.trials
        )

    def test_a_pruned_trial_never_wins(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rules: list[MedianRule | None] = []
        clock = SimpleNamespace(monotonic=lambda: float(len(rules)))  # a trial takes a second
        monkeypatch.setattr(choose, "time", clock)
        bench = Bench()

        def train(section: ModelSection, place: Path, is_over: Any, rule: MedianRule | None) -> Measured:
            rules.append(rule)
            found = bench(section, place, is_over, rule)
            curve = ((0.5, found.cost),)
            if rule is not None and rule.exceeded([(share, 9.0) for share in (0.3, 0.4, 0.5)]) is not None:
                return Measured("accuracy", 5.0, -5.0, 1, 1, 6.0, curve)  # the best figure of all
            return replace(found, curve=curve)

        config = self.CONFIG.model_copy(update={"tune": 20.0})
        settled = settle(config, FACTS, tmp_path, train, seed=0, compares=True)
        states = [each["state"] for each in settled.trials]
        suggested = sum(each["source"] == "suggested" for each in settled.trials)
        assert [each is None for each in rules] == [number < suggested for number in range(len(rules))]
        ended = [state for state in states if state in {"measured", "pruned"}]
        assert ended == ["measured"] * 3 + ["pruned"] * (len(ended) - 3)  # from the fourth on, all do worse
        assert len(ended) > 5
        won = next(each for each in settled.trials if each["settings"] == settled.settings)
        assert won["cost"] == min(each["cost"] for each in settled.trials if each["state"] == "measured")
        assert settled.why.startswith(f"best accuracy of 3, {len(ended) - 3} more pruned: ")
        assert [each.name for each in tmp_path.glob("trial-*")] == [settled.trained]
        assert settled.trained == f"trial-{settled.trials.index(won)}"

    def test_proposals_learn_from_pruned_trials(self) -> None:
        space = {"dropout": Interval(0.0, 0.8)}
        poor = [
            SettingsTrial({"dropout": dropout}, "search", "", "pruned", "a", 0.1, -0.1, 4, 4, 1.0, 0.5)
            for dropout in np.linspace(0.41, 0.8, 20).round(3).tolist()
        ]
        good = [
            SettingsTrial({"dropout": dropout}, "search", "", "measured", "a", dropout, -dropout)
            for dropout in np.linspace(0.0, 0.4, 8).round(3).tolist()
        ]
        # The figure of those that were trained to the end grows up to where the others were pruned.
        for seed in range(5):
            found = propose(space, [*good, *poor], {"dropout": 0.5}, seed)
            alone = propose(space, good, {"dropout": 0.5}, seed)
            assert found == propose(space, [*good, *poor], {"dropout": 0.5}, seed)
            assert found is not None
            assert alone is not None
            assert found["dropout"] < 0.5 <= alone["dropout"]

    def test_proposals_are_a_function_of_seed_and_trials(self) -> None:
        space = {"dropout": Interval(0.0, 0.8), "weight_decay": Interval(1e-5, 0.1, logarithmic=True)}
        defaults = {"dropout": 0.5, "weight_decay": 5e-4}

        def searched(count: int, seed: int, before: int = 0) -> list[SettingsTrial]:
            trials: list[SettingsTrial] = [] if not before else searched(before, seed)
            while len(trials) < count:
                settings = propose(space, trials, defaults, seed)
                assert settings is not None
                assert 0.0 <= settings["dropout"] <= 0.8
                cost = cost_of(settings)
                trials.append(SettingsTrial(settings, "search", "", "measured", "a", -cost, cost))
            return trials

        whole = searched(25, 3)
        assert searched(25, 3, before=9) == whole
        assert searched(25, 4) != whole
        best = min(trial.cost or 0.0 for trial in whole)
        random = np.random.default_rng(0)
        guessed = [
            min(
                cost_of({"dropout": 0.8 * random.random(), "weight_decay": 10 ** (-5 + 4 * random.random())})
                for _ in range(8)
            )
            for _ in range(100)
        ]
        assert best < np.median(guessed)

    def test_a_small_space_runs_out(self) -> None:
        space = {"layers": (1, 2)}
        trials = [
            SettingsTrial({"layers": value}, "search", "", "measured", "a", 0.5, 0.5) for value in (1, 2)
        ]
        assert propose(space, trials, {"layers": 2}, 0) is None


def suggestion(config: GraphNetworkConfig) -> dict[str, Any]:
    return dict(config.suggestions(FACTS)[0].settings)


class TestLog:
    TRIAL = SettingsTrial({"dropout": 0.5}, "suggested", "it may suit", "measured", "accuracy", 0.5, -0.5)

    def test_a_line_that_was_cut_off_is_dropped(self, tmp_path: Path) -> None:
        path = tmp_path / "trials.jsonl"
        log = SettingsTrialLog(path)
        log.add(self.TRIAL)
        with path.open("ab") as stream:
            stream.write(b'{"settings":{"dropout":')
        again = SettingsTrialLog(path)
        assert list(again) == [self.TRIAL]
        other = SettingsTrial({"dropout": 0.1}, "search", "", "stopped", seconds=2.0)
        curve = ((0.1, -0.3), (0.2, -0.6))
        pruned = SettingsTrial(
            {"dropout": 0.2}, "search", "", "pruned", "accuracy", 0.6, -0.6, 4, 4, 1.0, 0.7, curve
        )
        again.add(other)
        again.add(pruned)
        assert list(SettingsTrialLog(path)) == [self.TRIAL, other, pruned]
        assert SettingsTrialLog(path).measured == [self.TRIAL]
        assert SettingsTrialLog(path).best == self.TRIAL
        assert SettingsTrialLog(path).seconds == 3.0

    def test_another_line_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "trials.jsonl"
        path.write_text('{"recipe": 1}\n')
        with pytest.raises(FormatError, match="a line for each trial"):
            SettingsTrialLog(path)


def test_a_damaged_choice_is_refused_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "chosen.json").write_text('{"settings": {}, "wh')
    with pytest.raises(FormatError, match="a damaged file") as caught:
        settled_earlier(tmp_path)
    assert caught.value.where == str(tmp_path / "chosen.json")
    (tmp_path / "chosen.json").write_text('{"other": 1}')
    with pytest.raises(FormatError, match="a damaged file"):
        settled_earlier(tmp_path)


class TestFacts:
    def test_counts_and_homophily_are_those_of_a_plain_loop(
        self, graph: Graph, classify_task: ClassifyTaskConfig
    ) -> None:
        split = make_split(graph, classify_task, 0)
        facts = facts_of(graph, split)
        own = [each for each in graph.edge_types if not graph.is_reverse(each)]
        pairs, edges, same, known = set(), 0, 0, 0
        train = set(split.nodes("train").tolist())  # type: ignore[attr-defined]
        labels = split.labels  # type: ignore[attr-defined]
        for edge_type in own:
            for source, target in zip(*(each.tolist() for each in graph.csc(edge_type).coo()), strict=True):
                edges += 1
                ends = ((edge_type[0], source), (edge_type[2], target))
                if ends[0] != ends[1]:
                    pairs.add(frozenset(ends))
                if edge_type[0] == edge_type[2] == "item" and source != target and {source, target} <= train:
                    known += 1
                    same += labels[source] == labels[target]
        assert (facts.edges, facts.pairs) == (edges, len(pairs))
        assert facts.labels == len(train)
        assert facts.homophily is not None
        assert facts.homophily == pytest.approx(same / known)

    def test_no_label_that_is_held_out_is_read(self, graph: Graph, classify_task: ClassifyTaskConfig) -> None:
        split = make_split(graph, classify_task, 0)
        other = split.labels.copy()  # type: ignore[attr-defined]
        held_out = split.nodes("validation", "test")  # type: ignore[attr-defined]
        other[held_out] = (other[held_out] + 1) % 3
        changed = type(split)(**{**vars(split), "labels": other})
        assert facts_of(graph, changed) == facts_of(graph, split)

    @pytest.mark.parametrize("kind", ["predict_links", "recommend"])
    def test_of_links_any_node_may_have_features(self, kind: str, tmp_path: Path) -> None:
        shop = build_shop(tmp_path)
        task: TaskConfig = TypeAdapter(TaskConfig).validate_python(
            {"kind": kind, "node_type": "user", "target_type": "item", "relations": ("bought",)}
        )
        split = make_split(shop, task, 0)
        assert isinstance(split, LinkSplit | RecommendSplit)
        facts = facts_of(shop, split)
        assert (facts.links, facts.labels) == (len(split.known("validation")), 0)
        assert facts.features  # of users; items have none


class TestLinks:
    def settled(self, *, features: bool, validation: int = 500, **given: Any) -> list[tuple[str, bool]]:
        """Return layer and `residual` of each suggestion; of the defaults where nothing is suggested."""
        config = GraphNetworkConfig(kind="gnn", task="links", **given)
        facts = DataFacts(100, 300, 300, features=features, links=200, validation=validation)
        found: list[tuple[str, bool]] = []
        for each in config.suggestions(facts) or (Candidate({}, ""),):
            chosen = {name: value for name, value in each.settings.items() if name in (config.auto or ())}
            section = config.settled(chosen)
            assert isinstance(section, GraphNetworkConfig)
            found.append((section.layer, section.residual))
        return list(dict.fromkeys(found))

    def test_rows_alone_are_summed(self) -> None:
        assert self.settled(features=False) == [("lightgcn", False), ("lightgcn", True)]
        assert self.settled(features=False, residual=True) == [("lightgcn", True)]

    def test_without_a_validation_part_nothing_is_compared(self) -> None:
        assert self.settled(features=False, validation=0) == [("lightgcn", False)]

    def test_features_go_through_convolutions(self) -> None:
        assert self.settled(features=True) == [("sage", False)]

    def test_a_layer_of_the_run_file_stays(self) -> None:
        assert self.settled(features=False, layer="sage") == [("sage", False)]
        assert self.settled(features=False, num_neighbors=(5, 5)) == [("sage", False)]


class TestWalks:
    CONFIG = DeepWalkConfig(kind="deepwalk")

    def epochs(self, nodes: int, pairs: int) -> int:
        (found,) = self.CONFIG.suggestions(DataFacts(nodes, pairs, pairs))
        return int(found.settings["epochs"])

    def test_dense_and_small_graphs_get_more_passes(self) -> None:
        assert self.epochs(2_405, 12_761) == 4
        assert self.epochs(10_312, 333_983) == 17
        assert self.epochs(300, 1_000) == 32
        assert self.epochs(1_000_000, 50_000_000) == 4  # beyond minutes

    def test_a_number_of_the_run_file_stays(self) -> None:
        config = DeepWalkConfig(kind="deepwalk", epochs=2)
        assert config.auto == ()
        (found,) = config.suggestions(DataFacts(300, 1_000, 1_000))
        assert config.settled(found.settings).epochs == 2


class TestSequences:
    def size(self, histories: int, **given: Any) -> int:
        config = SASRecConfig(kind="sasrec", task="next", **given)
        (found,) = config.suggestions(DataFacts(1_000, 50_000, 50_000, histories=histories))
        settings = {name: each for name, each in found.settings.items() if name in (config.auto or ())}
        settled = config.settled(settings)
        assert isinstance(settled, SASRecConfig)
        return settled.batch_size

    def test_small_logs_get_small_batches(self) -> None:
        assert [self.size(histories) for histories in (5, 943, 6_400, 22_363)] == [32, 32, 200, 512]
        assert self.size(943, batch_size=128) == 128

    def test_histories_are_those_with_something_to_learn(self, tmp_path: Path) -> None:
        graph = graph_of(tmp_path, some_visits())
        split = make_split(graph, task_of(), 0)
        assert isinstance(split, NextSplit)
        learnt = [
            np.count_nonzero(split.fold[start:end] == FOLDS.index("train"))
            for start, end in pairwise(split.offsets)
        ]
        facts = facts_of(graph, split)
        assert facts.histories == sum(count >= 2 for count in learnt) > 0
        assert facts.histories < graph.num_nodes("visitor")
        assert facts.validation == len(split.validation)


class TestSections:
    @pytest.mark.parametrize("kind", sorted(model_kinds()))
    def test_settings_of_all_kinds_are_keys_of_their_sections(self, kind: str) -> None:
        section = model_kinds()[kind].section
        for name in (*section.CHOSEN, *section.SPACE):
            assert name in section.model_fields
        values = {
            name: each.low if isinstance(each, Interval) else each[0] for name, each in section.SPACE.items()
        }
        given: dict[str, Any] = {
            "kind": kind,
            "task": "t",
            "metapaths": [[["a", "b", "c"]]],
            "model": "m:C",
            "tune": "1min",
        }
        if kind == "din":
            given["interests"] = [{"history": "seen", "target": "item"}]
        given = {key: value for key, value in given.items() if key in section.model_fields}
        if not section.SPACE:
            with pytest.raises(ValueError, match="settings to search"):
                section.model_validate_json(json.dumps(given))
            return
        made = section.model_validate_json(json.dumps(given))
        assert made.tune == 60.0
        assert set(made.auto or ()) == {*section.CHOSEN, *section.SPACE}
        settled = made.settled(values)
        assert {name: getattr(settled, name) for name in values} == values
        assert section.model_validate_json(made.model_dump_json()) == made  # what was left out is kept

    def test_a_layer_of_the_run_file_is_not_compared(self) -> None:
        assert GraphNetworkConfig(kind="gnn", task="topic", layer="gcn").auto == ()
        assert GraphNetworkConfig(kind="gnn", task="topic", num_neighbors=(4, 4)).auto == ()

    def test_auto_names_settings_that_can_be_chosen(self) -> None:
        with pytest.raises(ValueError, match="received `batch_size`"):
            GraphNetworkConfig(kind="gnn", task="topic", auto=("batch_size",))


class TestFit:
    def fit(self, graph: Graph, task: ClassifyTaskConfig, folder: Path, **options: Any) -> Any:
        config = GraphNetworkConfig(
            kind="gnn", task="topic", dim=8, layers=2, epochs=4, features={"item": ("size", "kept")}
        )
        task = task.model_copy(update={"validation_fraction": 0.5})
        split = make_split(graph, task, 0)
        settings = {"config": config, "seed": 3, "threads": 1, "name": "net", **options}
        return fit(graph, split, task=task, run_folder=folder, **settings)

    def test_the_winner_is_not_trained_again(
        self, graph: Graph, classify_task: ClassifyTaskConfig, tmp_path: Path
    ) -> None:
        seen: list[str] = []
        trained = self.fit(graph, classify_task, tmp_path, progress=lambda at: seen.append(at.model))
        settled = load_settled(tmp_path, "net")
        assert settled is not None
        assert {each.partition(", ")[0] for each in seen} == {"net"}
        assert {each.partition(", ")[2] for each in seen} == {"trial 0", "trial 1"}
        assert [trial["epochs"] for trial in settled.trials] == [4, 4]
        best = max(settled.trials, key=lambda each: each["value"])
        assert settled.settings == best["settings"]
        assert load_outcome(tmp_path, "net").best_value == best["value"]
        points = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert max(each["values"].get("validation_accuracy", 0.0) for each in points) == best["value"]
        # The same settings by hand give the same model.
        config = trained.network.config
        assert config.auto == ()
        by_hand = self.fit(graph, classify_task, tmp_path / "by_hand", config=config)
        np.testing.assert_array_equal(by_hand.logits, trained.logits)

    def test_killed_in_any_trial_it_ends_the_same(
        self, graph: Graph, classify_task: ClassifyTaskConfig, tmp_path: Path
    ) -> None:
        whole = self.fit(graph, classify_task, tmp_path / "whole")
        folder = tmp_path / "killed"
        for entered in (1, 2):  # in the first trial, then in the second one
            code = _SCRIPT.format(graph=graph.path, folder=folder, entered=entered)
            ended = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False)
            assert ended.returncode == -signal.SIGKILL
            assert load_settled(folder, "net") is None
        resumed = self.fit(graph, classify_task, folder, resume=True)
        np.testing.assert_array_equal(resumed.logits, whole.logits)
        before, after = (load_settled(each, "net") for each in (tmp_path / "whole", folder))
        assert before is not None
        assert after is not None
        assert before.settings == after.settings
        assert [each["value"] for each in before.trials] == [each["value"] for each in after.trials]
        assert (
            asdict(load_outcome(folder, "net"))["best_value"]
            == load_outcome(tmp_path / "whole", "net").best_value
        )

    def test_a_search_needs_a_task(self, graph: Graph, tmp_path: Path) -> None:
        config = DeepWalkConfig(kind="deepwalk", tune=60.0)
        with pytest.raises(UsageError, match="expected a task") as caught:
            fit(graph, None, name="walk", config=config, task=None, run_folder=tmp_path, seed=0)
        assert caught.value.where == "models.walk.tune"

    def test_a_search_of_walks_is_measured_on_the_validation_part(
        self, graph: Graph, classify_task: ClassifyTaskConfig, tmp_path: Path
    ) -> None:
        config = DeepWalkConfig(
            kind="deepwalk", task="topic", dim=8, walks_per_node=2, walk_length=8, tune=12.0
        )
        self.fit(graph, classify_task, tmp_path, config=config)
        settled = load_settled(tmp_path, "net")
        assert settled is not None
        assert settled.metric == classify_task.deciding_metric
        measured = [each for each in settled.trials if each["state"] == "measured"]
        assert {each["source"] for each in measured} == {"suggested", "search"}
        assert max(each["value"] for each in measured) == next(
            each["value"] for each in measured if each["settings"] == settled.settings
        )


_SCRIPT = """
import os, signal
from pathlib import Path
from graphbox.config import ClassifyTaskConfig, GraphNetworkConfig
from graphbox.graph import Graph
from graphbox.train import fit, make_split
from graphbox.train.network.classify import GraphNetworkTrainer
left = {entered}
measured = GraphNetworkTrainer.measured
def last(self):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return measured(self)
GraphNetworkTrainer.measured = last
graph = Graph.open("{graph}")
task = ClassifyTaskConfig(
    kind="classify", node_type="item", label="topic", group=("item", "part_of", "group"),
    validation_fraction=0.5,
)
config = GraphNetworkConfig(
    kind="gnn", task="topic", dim=8, layers=2, epochs=4, features={{"item": ("size", "kept")}}
)
fit(
    graph, make_split(graph, task, 0), name="net", config=config, task=task, run_folder=Path("{folder}"),
    seed=3, threads=1, resume=True, checkpoint_interval_s=0.0,
)
"""
