"""Starting from an earlier run: rows by original id, weights by name, for every kind of model."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter

from graphbox import _core
from graphbox.config import MemoryConfig, ModelConfig, TaskConfig, model_kinds
from graphbox.errors import FormatError, NotFoundError, UsageError
from graphbox.graph import Graph
from graphbox.table import EmbeddingTable
from graphbox.table.host_table import host_table
from graphbox.train import GraphView, TrainedModel, fit, load_outcome, make_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.checkpoint import CheckpointStore
from graphbox.train.memory import TrainingMemory
from graphbox.train.model_description import ModelDescription
from graphbox.train.trainer import Trainer
from graphbox.train.warm_start import WarmStart, start_from
from tests.train.market import build_market
from tests.train.pretended_gpu import pretended_gpu

USERS, ITEMS = range(60), range(40)
LATER_USERS = [*range(66, 59, -1), *(number for number in range(59, -1, -1) if number != 7)]
LATER_ITEMS = [*range(43, -1, -1)]

TASKS: dict[str, dict[str, Any]] = {
    "buys": {
        "kind": "recommend",
        "node_type": "user",
        "target_type": "item",
        "relations": ["bought"],
        "k": 5,
    },
    "fits": {"kind": "recommend", "node_type": "item", "relations": ["fits"], "k": 5},
    "taste": {"kind": "classify", "node_type": "user", "label": "taste"},
    "follows": {
        "kind": "predict_links",
        "node_type": "user",
        "relations": ["follows"],
        "split": {"kind": "time"},
        "validation_fraction": 0.2,
    },
    "following": {"kind": "next", "node_type": "user", "relations": ["follows"], "k": 5},
    "knows": {
        "kind": "complete",
        "relations": [["user", "knows", "item"]],
        "relation_feature": "relation",
    },
    "click": {"kind": "click", "node_type": "user", "label": "clicked"},
}

WALK = {"dim": 8, "epochs": 1}
ROWS = {"dim": 8, "epochs": 2, "batch_size": 16, "candidates": 16}
TRIPLES = {"task": "knows", "dim": 8, "epochs": 2, "batch_size": 32}
CLICK = {"task": "click", "dim": 4, "hidden": [8], "epochs": 2, "batch_size": 16}
NETWORK = {
    "dim": 8,
    "epochs": 2,
    "batch_size": 16,
    "num_neighbors": [3, 3],
    "embeddings": ["user", "item"],
    "features": {"user": ["city", "age"]},
    "average_decay": 0.5,
}

MODELS: dict[str, dict[str, Any]] = {
    "deepwalk": {"kind": "deepwalk", **WALK},
    "node2vec": {"kind": "node2vec", "q": 0.5, **WALK},
    "line": {"kind": "line", **WALK},
    "metapath2vec": {
        "kind": "metapath2vec",
        "metapaths": [[["user", "bought", "item"], ["item", "bought_by", "user"]]],
        **WALK,
    },
    "lightgcn": {"kind": "lightgcn", "task": "buys", **ROWS},
    "matrix_factorization": {"kind": "matrix_factorization", "task": "buys", **ROWS},
    "sage": {
        "kind": "sage",
        "task": "fits",
        "features": ["size"],
        "average_after": 0.4,
        **ROWS,
        "epochs": 4,
    },
    "pinsage": {
        "kind": "pinsage",
        "task": "buys",
        "dim": 8,
        "epochs": 2,
        "batch_size": 16,
        "negatives": 16,
        "features": {"user": ["city", "age"]},
    },
    "two_tower": {"kind": "two_tower", "task": "buys", "dim": 8, "epochs": 2, "batch_size": 16},
    "gnn": {"kind": "gnn", "task": "taste", **NETWORK},
    "mlp": {"kind": "mlp", "task": "taste", "dim": 8, "epochs": 2, "batch_size": 16, "embeddings": ["user"]},
    "gnn of links": {"kind": "gnn", "task": "buys", **NETWORK},
    "module": {
        "kind": "module",
        "task": "taste",
        "model": "tests.train.own_modules:Classifier",
        "epochs": 2,
        "batch_size": 16,
        "num_neighbors": [3, 3],
        "features": {},
    },
    "distmult": {"kind": "distmult", **TRIPLES},
    "complex": {"kind": "complex", **TRIPLES},
    "transe": {"kind": "transe", **TRIPLES},
    "rotate": {"kind": "rotate", **TRIPLES},
    "temporal": {"kind": "temporal", "task": "follows", "dim": 8, "row_dim": 4, "epochs": 1},
    "sasrec": {"kind": "sasrec", "task": "following", **ROWS},
    "gru4rec": {"kind": "gru4rec", "task": "following", **ROWS},
    "comirec": {"kind": "comirec", "task": "following", **ROWS},
    "deepfm": {"kind": "deepfm", **CLICK},
    "dcn": {"kind": "dcn", **CLICK},
    "wide_and_deep": {"kind": "wide_and_deep", "crosses": [["city", "taste"]], **CLICK},
    "din": {"kind": "din", "interests": [{"history": "visited", "target": "city"}], "window": 2, **CLICK},
    "mmoe": {"kind": "mmoe", "experts": 2, "tower": [4], **CLICK},
}


def section(name: str, **settings: Any) -> Any:
    return TypeAdapter(ModelConfig).validate_json(json.dumps({**MODELS[name], **settings}))


def task_of(config: Any) -> Any:
    task = TASKS[config.task] if config.task else None
    return None if task is None else TypeAdapter(TaskConfig).validate_json(json.dumps(task))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_market(tmp_path_factory.mktemp("before") / "graph", USERS, ITEMS)


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """The graph of the next day: in another order, without a user, with new ones, a new city and relation."""
    return build_market(
        tmp_path_factory.mktemp("after") / "graph",
        LATER_USERS,
        LATER_ITEMS,
        cities=5,
        relations=("likes", "near", "hides"),
    )


@dataclass
class Earlier:
    """Earlier trainings, each made when it is first asked for."""

    graph: Graph
    folder: Path

    def of(self, name: str, **settings: Any) -> Path:
        """Return the checkpoints of a model."""
        text = json.dumps(settings, sort_keys=True)
        run = self.folder / f"{name}-{abs(hash(text))}"
        if not run.exists():
            train(self.graph, section(name, **settings), run)
        return run / "checkpoints" / "model"


def train(graph: Graph, config: Any, run: Path, **options: Any) -> TrainedModel:
    task = task_of(config)
    split = None if task is None else make_split(graph, task, 3)
    settings: dict[str, Any] = {"seed": 3, "threads": 1, **options}
    return fit(graph, split, name="model", config=config, task=task, run_folder=run, **settings)


@pytest.fixture(scope="module")
def earlier(before: Graph, tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    return Earlier(before, tmp_path_factory.mktemp("runs"))


def trainer_of(graph: Graph, config: Any, seed: int = 3) -> tuple[Trainer, ModelDescription]:
    task = task_of(config)
    split = None if task is None else make_split(graph, task, seed)
    view = GraphView(graph, split)
    trainer = make_trainer(config, Assignment("model", view, split, task, seed, 1))
    return trainer, ModelDescription.of_trainer(trainer, config, task, seed, view)


def started(graph: Graph, config: Any, folder: Path, seed: int = 3) -> tuple[Trainer, WarmStart]:
    trainer, description = trainer_of(graph, config, seed)
    start = start_from(folder, trainer, description, model="model", memory=TrainingMemory(), threads=1)
    return trainer, start


def records(table: EmbeddingTable, keys: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return whole rows with their optimizer state, and which keys have one."""
    found = np.zeros((len(keys), _core.table_record_bytes(table._current)), np.uint8)
    return found, _core.table_read_records(table._current, keys, found, 1)


def test_every_kind_is_here() -> None:
    able = {name for name, kind in model_kinds().items() if kind.section.WARM_STARTS}
    assert able == {settings["kind"] for settings in MODELS.values()}


@pytest.mark.parametrize("name", MODELS)
def test_rows_and_weights_are_those_of_the_earlier_model(
    before: Graph, after: Graph, earlier: Earlier, name: str
) -> None:
    folder = earlier.of(name)
    config = section(name)
    fresh, _ = trainer_of(after, config)
    initial = {name: value.clone() for name, value in fresh.dense().items()}
    trainer, start = started(after, config, folder)
    saved = CheckpointStore(folder, None).load_final(1)
    assert saved is not None
    old, _ = trainer_of(before, config)
    old_keys, new_keys = old.row_keys(), trainer.row_keys()
    assert old_keys is not None
    assert new_keys is not None
    taken: dict[str, set[str]] = {}
    for table_name, any_table in trainer.tables().items():
        table, source = (host_table(each, "reading") for each in (any_table, saved.tables[table_name]))
        values = trainer.starting_rows(table_name, source, saved.dense)
        for node_type, ids in id_lists(after, new_keys[table_name].first):
            known = [one for one in ids if one in set(before.ids(node_type).tolist())]
            ours = new_keys[table_name].of(node_type, after.index(node_type, known))
            theirs = old_keys[table_name].of(node_type, before.index(node_type, known))
            expected, had = records(source, theirs)
            found, has = records(table, ours)
            np.testing.assert_array_equal(has, had)
            if values is not None:
                expected[:, : 4 * table.dim] = values[theirs].view(np.uint8)
            np.testing.assert_array_equal(found[has], expected[had])
            new = [one for one in ids if one not in set(known)]
            places = new_keys[table_name].of(node_type, after.index(node_type, new))
            assert not table.contains(places).any(), "new nodes have their initial rows"
            np.testing.assert_array_equal(
                table.pull(places, create=False), fresh.tables()[table_name].pull(places, create=False)
            )
            taken.setdefault(node_type, set()).update(np.array(known)[had].tolist())
        if not new_keys[table_name].are_values:
            live = sum(after.num_nodes(each) for each in new_keys[table_name].first)
            assert len(table) <= live + len(new_keys[table_name].names)
    for node_type, counts in start.nodes.items():
        there = set(after.ids(node_type).tolist())
        assert counts.nodes == len(there)
        assert counts.taken_over == len(taken[node_type]) > 0
        assert counts.new == len(there - set(before.ids(node_type).tolist())) > 0
    dense = trainer.dense()
    assert start.weights == sum(each.startswith("model.") for each in dense)
    changed = [each for each in initial if not torch.equal(initial[each], dense[each])]
    assert bool(start.weights) == bool(changed)
    assert not [each for each in dense if each.startswith("optimizer.")]
    trainer.close()


def id_lists(graph: Graph, types: Any) -> list[tuple[str, list[Any]]]:
    return [(name, graph.ids(name).tolist()) for name in types]


@pytest.mark.parametrize("name", MODELS)
def test_a_training_goes_on_and_reports_it(after: Graph, earlier: Earlier, name: str, tmp_path: Path) -> None:
    folder = earlier.of(name)
    config = section(name, epochs=1)
    trained = train(after, config, tmp_path, start_from=folder)
    outcome = load_outcome(tmp_path, "model")
    assert outcome.started_from is not None
    assert outcome.started_from["run"] == folder.parent.parent.name
    assert outcome.started_from["model"] == "model"
    for vectors in trained.embeddings.values():
        assert np.isfinite(vectors).all()
    train(after, config, tmp_path, start_from=folder, resume=True)
    assert load_outcome(tmp_path, "model") == outcome, "a finished training starts from nothing again"


def test_it_is_nearer_to_the_earlier_model_than_a_training_anew(
    after: Graph, earlier: Earlier, tmp_path: Path
) -> None:
    settings = {"epochs": 30}
    folder = earlier.of("matrix_factorization", **settings)
    anew = train(after, section("matrix_factorization", epochs=1), tmp_path / "anew")
    on = train(after, section("matrix_factorization", epochs=1), tmp_path / "on", start_from=folder)
    task = task_of(section("matrix_factorization"))
    split = make_split(after, task, 3)
    from graphbox.train import evaluate_scores

    reached = [evaluate_scores(after, split, task, each.score)["recall@5"] for each in (anew, on)]
    assert reached[1] > reached[0] + 0.1


def test_categories_are_matched_by_name(before: Graph, after: Graph, earlier: Earlier) -> None:
    folder = earlier.of("gnn")
    saved = CheckpointStore(folder, None).load_final(1)
    assert saved is not None
    weight = "inputs.user.features.categories.0.weight"
    trainer, _ = started(after, section("gnn"), folder)
    fresh, _ = trainer_of(after, section("gnn"))
    names, earlier_names = (
        list(each.weight_categories()[weight]) for each in (fresh, trainer_of(before, section("gnn"))[0])
    )
    found, old = trainer.dense()[f"model.{weight}"], saved.dense[f"average.{weight}"]
    assert len(names) == len(earlier_names) + 1
    for row, name in enumerate(names):
        expected = (
            old[earlier_names.index(name)] if name in earlier_names else fresh.dense()[f"model.{weight}"][row]
        )
        torch.testing.assert_close(found[row], expected, rtol=0, atol=0)


def test_pretrained_rows_are_taken_over_whole(after: Graph, earlier: Earlier) -> None:
    pretrain = {"metapaths": [[["item", "fits", "item"], ["item", "fits_back", "item"]]], "epochs": 1}
    folder = earlier.of("sage", pretrain=pretrain)
    config = section("sage", pretrain=pretrain, start_from="shop")
    trainer, start = started(after, config, folder)
    assert trainer.epochs == config.epochs, "nothing is learnt before"
    assert start.nodes["item"].taken_over == len(ITEMS)
    saved = CheckpointStore(folder, None).load_final(1)
    assert saved is not None
    expected = saved.dense["epoch_average.rows.item"] + saved.dense["base.item"]
    found = trainer.tables()["item"].pull(after.index("item", list(ITEMS)), create=False)
    np.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("name", ["deepwalk", "lightgcn", "distmult"])
def test_rows_on_ssd(after: Graph, earlier: Earlier, name: str, tmp_path: Path) -> None:
    folder = earlier.of(name)
    budget = MemoryConfig(tables=64 << 20)
    if "tables" not in type(section(name)).BUDGETS:
        budget = MemoryConfig()
    expected = train(after, section(name, epochs=1), tmp_path / "memory", start_from=folder)
    found = train(after, section(name, epochs=1), tmp_path / "ssd", start_from=folder, memory=budget)
    for node_type, vectors in expected.embeddings.items():
        np.testing.assert_array_equal(found.embeddings[node_type], vectors)
    assert not list((tmp_path / "ssd").glob("tables/*/*")), "the earlier rows are removed again"


@pytest.mark.parametrize("name", ["matrix_factorization", "gnn", "distmult", "deepfm"])
def test_two_processes(after: Graph, earlier: Earlier, name: str, tmp_path: Path) -> None:
    folder = earlier.of(name)
    train(after, section(name, epochs=1), tmp_path / "one", start_from=folder)
    train(after, section(name, epochs=1), tmp_path / "two", start_from=folder, processes=2)
    one, two = (load_outcome(tmp_path / each, "model").started_from for each in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("name", ["sage", "gnn", "complex", "deepfm", "temporal", "lightgcn"])
def test_on_a_gpu(
    after: Graph, earlier: Earlier, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = earlier.of(name)
    expected = train(after, section(name, epochs=1), tmp_path / "cpu", start_from=folder)
    monkeypatch.setattr("graphbox.train.memory.has_kernels", lambda device: False)  # no GPU runs them
    with pretended_gpu() as gpu:
        found = train(after, section(name, epochs=1), tmp_path / "gpu", start_from=folder, device=gpu)
    for node_type, vectors in expected.embeddings.items():
        np.testing.assert_array_equal(found.embeddings[node_type], vectors)
    one, other = (load_outcome(tmp_path / each, "model").started_from for each in ("cpu", "gpu"))
    assert one == other


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "settings", "message"),
        [
            ("deepwalk", {"dim": 16}, "expected rows of length 16 in the table `center`, received dim 8"),
            ("line", {"orders": [1]}, "expected a model with rows of order_1.center, received"),
            (
                "lightgcn",
                {"dim": 16},
                r"expected rows of length 1[56] in the table `queries`, received dim [78]",
            ),
            ("gnn", {"dim": 16}, "expected rows of length 16"),
            ("gnn", {"layers": 1, "num_neighbors": [3]}, "expected a model without the weight `layers"),
            ("gnn", {"features": {"user": ["age"]}}, r"with features of user age .number., received"),
            ("gnn", {"relations": [["user", "bought", "item"]]}, r"with relations .*received `model` of run"),
            (
                "module",
                {"model": "tests.train.own_modules:WrongShape"},
                "with model tests.train.own_modules:WrongShape",
            ),
            ("sage", {"features": []}, r"with features none, received `model` of run .* with size"),
            ("distmult", {"dim": 16}, "rows of length 16 in the table `entities`"),
            ("temporal", {"dim": 16}, r"expected the weight `.*` of shape 3x16, received 3x8"),
            ("deepfm", {"features": ["city"]}, r"with features city .categorical., received"),
            ("deepfm", {"hidden": [4]}, r"expected the weight `.*` of shape 4x"),
        ],
    )
    def test_other_settings(
        self, after: Graph, earlier: Earlier, name: str, settings: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(UsageError, match=message) as error:
            started(after, section(name, **settings), earlier.of(name))
        assert error.value.where == "models.model.start_from"
        assert error.value.hint

    def test_another_kind(self, after: Graph, earlier: Earlier) -> None:
        with pytest.raises(
            UsageError, match=r"expected a model of kind lightgcn, received .* of kind matrix_f"
        ):
            started(after, section("lightgcn"), earlier.of("matrix_factorization"))

    def test_a_model_that_has_seen_what_is_measured(self, after: Graph, earlier: Earlier) -> None:
        with pytest.raises(UsageError, match="which saw the whole graph"):
            started(after, section("deepwalk", task="taste"), earlier.of("deepwalk"))
        with pytest.raises(UsageError, match=r"with the same task, .* held out other data"):
            started(after, section("gnn", task="buys"), earlier.of("gnn"))
        with pytest.raises(UsageError, match=r"with the same seed, .* held out other data"):
            started(after, section("gnn"), earlier.of("gnn"), seed=4)
        with pytest.raises(UsageError, match=r"held out the validation part, received .* which learnt it"):
            started(after, section("lightgcn"), earlier.of("lightgcn", train_on="train_and_validation"))

    def test_no_finished_training(self, after: Graph, earlier: Earlier, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match="checkpoints of a finished training") as error:
            started(after, section("deepwalk"), tmp_path / "nothing")
        assert str(tmp_path) in str(error.value.hint)

    def test_damaged_ids(self, after: Graph, earlier: Earlier, tmp_path: Path) -> None:
        folder = tmp_path / "run" / "checkpoints" / "model"
        shutil.copytree(earlier.of("deepwalk"), folder)
        file = next((folder / "nodes").iterdir())
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(FormatError, match="unreadable file: it was changed or cut off"):
            started(after, section("deepwalk"), folder)
