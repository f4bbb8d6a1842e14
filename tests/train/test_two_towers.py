"""Two towers: towers and loss as plain torch computes them, log-Q as counted, and nodes without a row."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import RecommendTaskConfig, TwoTowerConfig
from graphbox.errors import UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.train import GraphView, fit, load_trained, make_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.network.two_towers import TwoTowerTrainer

USERS, ITEMS, TASTES = 150, 90, 3
NEW = 5
"""Each fifth user and each fifth item has no edge of the training part."""

TASK = RecommendTaskConfig.model_validate(
    {
        "kind": "recommend",
        "node_type": "user",
        "target_type": "item",
        "relations": ["liked"],
        "split": {"kind": "given", "feature": "part"},
        "k": 10,
    },
    strict=False,
)


def likes() -> list[tuple[int, int, str]]:
    """Return who likes what, and in which part: tastes decide, which features tell."""
    generator = np.random.default_rng(0)
    found = []
    for user in range(USERS):
        for item in range(ITEMS):
            if generator.random() < (0.5 if user % TASTES == item % TASTES else 0.02):
                is_new = user % NEW == 0 or item % NEW == 0
                part = "test" if is_new else ("validation" if generator.random() < 0.1 else "train")
                found.append((user, item, part))
    return found


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    generator, edges = np.random.default_rng(1), likes()
    user = {
        "id": [f"u{each}" for each in range(USERS)],
        "city": [f"city-{each % TASTES}" for each in range(USERS)],
        "age": generator.normal(40.0, 9.0, USERS),
    }
    vectors = generator.normal(0.0, 0.3, (ITEMS, 4)).astype(np.float32)
    vectors[:, :TASTES] += np.eye(TASTES, dtype=np.float32)[np.arange(ITEMS) % TASTES]
    item = {
        "id": [f"i{each}" for each in range(ITEMS)],
        "picture": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4),
        "words": [[f"word-{each % TASTES}", f"word-{3 + each % 4}"][: each % 3] for each in range(ITEMS)],
    }
    liked = {
        "source": [f"u{user}" for user, _, _ in edges],
        "target": [f"i{item}" for _, item, _ in edges],
        "part": [part for _, _, part in edges],
    }
    source = GraphSource(
        "market",
        {
            "user": NodeSource(pa.table(user), features={"city": "categorical", "age": "number"}),
            "item": NodeSource(pa.table(item), features={"picture": "vector", "words": "slots"}),
        },
        (
            EdgeSource(
                ("user", "liked", "item"),
                pa.table(liked),
                features={"part": "categorical"},
                reverse="liked_by",
            ),
        ),
    )
    folder = tmp_path_factory.mktemp("market")
    import_graph(source, folder / "graph")
    return Graph.open(folder / "graph")


def trainer_of(graph: Graph, threads: int = 1, **settings: Any) -> TwoTowerTrainer:
    split = make_split(graph, TASK, 3)
    config = TwoTowerConfig(kind="two_tower", task="t", **{"dim": 8, "batch_size": 64, **settings})
    made = make_trainer(config, Assignment("towers", GraphView(graph, split), split, TASK, 3, threads))
    assert isinstance(made, TwoTowerTrainer)
    return made


def tower(
    trainer: TwoTowerTrainer, node_type: str, nodes: NDArray[np.int64], scale: Tensor | float
) -> Tensor:
    """Return the vectors of nodes, by plain torch from the graph's features and the tower's parameters."""
    values = dict(trainer.network.named_parameters())
    inputs = f"inputs.{node_type}."
    view = trainer._view
    vectors = values[f"{inputs}bias"].expand(len(nodes), -1)
    if node_type in trainer.tables():
        vectors = vectors + torch.from_numpy(trainer.tables()[node_type].pull(nodes))
    if node_type == "user":
        age = np.log1p(np.asarray(view.feature("user", "age"), np.float64))
        scaled = torch.from_numpy(((age - age.mean()) / age.std()).astype(np.float32))[nodes]
        codes = torch.from_numpy(np.asarray(view.feature("user", "city")).astype(np.int64))[nodes] + 1
        vectors = vectors + functional.embedding(codes, values[f"{inputs}features.categories.0.weight"])
        vectors = vectors + scaled[:, None] @ values[f"{inputs}features.numbers.weight"].T
    else:
        picture = torch.from_numpy(np.array(view.feature("item", "picture")))[nodes]
        vectors = vectors + picture @ values[f"{inputs}vectors.weight"].T
        offsets, slots = view.slot_lists("item", "words")
        known, weight = np.unique(slots), values[f"{inputs}slots.0"]
        words = [weight[np.searchsorted(known, slots[offsets[each] : offsets[each + 1]])] for each in nodes]
        vectors = vectors + torch.stack(
            [each.mean(dim=0) if len(each) else weight.new_zeros(weight.shape[1]) for each in words]
        )
    vectors = functional.relu(vectors)
    for layer in range(trainer._config.layers):
        name = f"layers.{layer}.own.{node_type}."
        vectors = functional.relu(vectors @ values[f"{name}weight"].T + values[f"{name}bias"])
    side = "source" if node_type == "user" else "target"
    vectors = vectors @ values[f"head.{side}.weight"].T + values[f"head.{side}.bias"]
    return scale * functional.normalize(vectors, dim=1)


def loss_by_hand(trainer: TwoTowerTrainer, epoch: int, batch: int) -> Tensor:
    """Return the loss of a batch, link by link: a softmax over the batch's items, each once."""
    arrays = trainer.batch_arrays(epoch, batch)
    links, candidates = arrays["links"], arrays["candidates"]
    known = {(user, item) for user, item, part in likes() if part == "train"}
    row_of = [int(each[1:]) for each in trainer._view.arrow_ids("user").to_pylist()]
    item_of = [int(each[1:]) for each in trainer._view.arrow_ids("item").to_pylist()]
    every = trainer._links.edges
    drawn = trainer._candidates.log_probability.exp().numpy().astype(np.float64)
    frequency = np.bincount(every[:, 1], minlength=ITEMS)
    absent = np.array(
        [math.comb(len(every) - each, len(links)) / math.comb(len(every), len(links)) for each in frequency]
    )
    log_q = torch.from_numpy(np.log((1.0 - absent * (1.0 - drawn))[candidates]).astype(np.float32))
    log_scale = dict(trainer.network.named_parameters())["head.log_scale"]
    users, items = (
        tower(trainer, "user", links[:, 0], log_scale.exp()),
        tower(trainer, "item", candidates, 1.0),
    )
    losses = []
    for link, (user, item) in enumerate(links.tolist()):
        # Its own answer, and what is no other answer of the user: no accidental hit is a negative.
        chosen = [
            place
            for place, each in enumerate(candidates.tolist())
            if each == item or (row_of[user], item_of[each]) not in known
        ]
        logits = items[chosen] @ users[link] - log_q[chosen]
        wanted = [candidates[place] for place in chosen].index(item)
        losses.append(functional.cross_entropy(logits[None], torch.tensor([wanted])))
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"negatives": 20, "negative_exponent": 0.5},
        {"layers": 2, "embeddings": ("user",)},
        {"embeddings": ()},
    ],
    ids=["in_batch", "mixed", "deep", "features"],
)
def test_towers_and_loss_are_those_of_plain_torch(market: Graph, settings: Any) -> None:
    trainer = trainer_of(market, row_dropout=0.0, **settings)
    batches = trainer.begin_epoch(0)
    for batch in (0, batches - 1):  # the last one is smaller
        trainer.network.train()
        expected = loss_by_hand(trainer, 0, batch)
        names, parameters = zip(*trainer.network.named_parameters(), strict=True)
        wanted = torch.autograd.grad(expected, parameters)
        found, count = trainer.loss(trainer.draw(0, batch), 0, batch)
        received = torch.autograd.grad(found, parameters, allow_unused=True)
        assert count == len(trainer.batch_arrays(0, batch)["links"])
        np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-4)
        for name, mine, theirs in zip(names, received, wanted, strict=True):
            assert mine is not None, name
            np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-5, err_msg=name)
    trainer.close()


@pytest.mark.parametrize("negatives", [0, 6])
def test_log_q_is_how_often_batches_have_an_item(market: Graph, negatives: int) -> None:
    trainer = trainer_of(market, negatives=negatives, negative_exponent=0.5)
    counted, batches = np.zeros(ITEMS), 0
    for epoch in range(150):
        for batch in range(trainer.begin_epoch(epoch) - 1):  # those of 64 links
            arrays = trainer.batch_arrays(epoch, batch)
            assert set(arrays["links"][:, 1]) <= set(arrays["candidates"])
            counted[arrays["candidates"]] += 1
            batches += 1
    probability = trainer.log_probability(64).exp().numpy()
    deviation = np.sqrt(probability * (1 - probability) / batches)
    assert (np.abs(counted / batches - probability) <= 5 * deviation + 1e-6).all()
    new = probability[
        np.array([int(each[1:]) % NEW == 0 for each in trainer._view.arrow_ids("item").to_pylist()])
    ]
    assert (new > 0).all() == bool(negatives)


def trained_on(market: Graph, folder: Path, threads: int = 1, **settings: Any) -> tuple[Any, Any]:
    """Return the vectors of users and items."""
    split = make_split(market, TASK, 3)
    options = {"dim": 16, "epochs": 12, "batch_size": 128, **settings}
    config = TwoTowerConfig(kind="two_tower", task="t", **options)
    fit(market, split, name="towers", config=config, task=TASK, run_folder=folder, seed=1, threads=threads)
    trained = load_trained(folder, "towers")
    return trained.embeddings["user"], trained.target


def numbers(graph: Graph, node_type: str) -> NDArray[np.int64]:
    return np.array([int(each[1:]) for each in graph.arrow_ids(node_type).to_pylist()])


@pytest.mark.parametrize("embeddings", [None, ()], ids=["ids", "features"])
def test_new_users_and_items_are_ranked_by_their_features(
    market: Graph, embeddings: Any, tmp_path: Path
) -> None:
    users, items = trained_on(market, tmp_path, embeddings=embeddings)
    scores = users @ items.T
    is_right = numbers(market, "user")[:, None] % TASTES == numbers(market, "item")[None] % TASTES
    new_user, new_item = numbers(market, "user") % NEW == 0, numbers(market, "item") % NEW == 0

    def precision(rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> float:
        """Return the share of items of the user's taste among the best five; a third by chance."""
        some, right = scores[rows][:, columns], is_right[rows][:, columns]
        best = np.argsort(-some, axis=1)[:, :5]
        return float(np.take_along_axis(right, best, axis=1).mean())

    assert precision(new_user, ~new_item) > 0.85
    assert precision(~new_user, new_item) > 0.75
    assert precision(new_user, new_item) > 0.75


def test_equal_seeds_train_the_same_bits_and_threads_change_rounding_alone(
    market: Graph, tmp_path: Path
) -> None:
    first, again, *others = (
        trained_on(market, tmp_path / str(number), threads, epochs=2, negatives=16)
        for number, threads in enumerate((1, 1, 2, 4))
    )
    for mine, theirs in zip(first, again, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for vectors in others:  # torch adds up in another order
        for mine, theirs in zip(first, vectors, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def test_any_number_of_threads_draws_the_same_batches(market: Graph) -> None:
    trainers = [trainer_of(market, threads, negatives=16) for threads in (1, 2, 4)]
    for epoch in range(2):
        assert len({trainer.begin_epoch(epoch) for trainer in trainers}) == 1
        for batch in range(3):
            first, *others = (trainer.batch_arrays(epoch, batch) for trainer in trainers)
            for arrays in others:
                for name, array in first.items():
                    np.testing.assert_array_equal(array, arrays[name])


def test_a_tower_without_inputs_is_refused(market: Graph) -> None:
    with pytest.raises(UsageError, match="features or rows of ids for the tower of `item`, received neither"):
        trainer_of(market, features={"user": ("age",)}, embeddings=("user",))
