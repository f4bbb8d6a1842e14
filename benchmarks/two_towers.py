"""Two towers on MovieLens-100k beside those of torch-rechub and a plain PyTorch loop, on the same links.

    pip install --target /tmp/peers --no-deps recbole torch-rechub
    python -m benchmarks.two_towers --peers /tmp/peers --seeds 0 1 --json

recbole carries the ratings as its example. A link is a rating. A tenth of the users and a tenth of the movies
are new: no model sees a rating of theirs. Of the other ratings 80 % are learnt from, 10 % choose the epoch
(and, of peers, settings), 10 % are tested. Towers read the user's id, age, gender and occupation, and the
movie's id, genres and year; new ones are known by their features alone.

Recall@20 is measured three times, the mean over users of the share of their links among the best 20:

known      known users, their tested links, among known movies without those they learnt or were validated on
new users  all their links to known movies, among these
new movies all links of known users to new movies, among new movies

torch-rechub's YoutubeSBC is the same paper's model: its in-batch softmax with log-Q, here by the frequencies
of the training part. The plain loop is the shortest code of the paper in PyTorch: embeddings side by side, an
MLP, all answers of a batch as negatives, log-Q by frequencies.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from graphbox import __version__
from graphbox.config import load_config
from graphbox.graph import Graph
from graphbox.pipeline import run, run_pipeline
from graphbox.pipeline.run_data import RunData
from graphbox.train import Assignment, GraphView, load_trained
from graphbox.train.assignment import make_trainer
from graphbox.workspace import Workspace

_DIM, _BATCH, _RECHUB_BATCH, _K = 64, 1024, 128, 20
_PARTS = ("train", "validation", "test")
_PLAIN_SETTINGS = ((0.1, 0.003), (0.1, 0.01), (0.2, 0.01))
_RECHUB_SETTINGS = ((0.1, 0.003),)
"""Temperatures and learning rates (Adam)."""
_PLAIN_EPOCHS, _RECHUB_EPOCHS = (50, 10), (8, 2)
"""Most epochs, and how many without a better one end a training: an epoch of torch-rechub takes long."""
Float = NDArray[np.float32]
Int = NDArray[np.int64]


class Ratings(NamedTuple):
    """The ratings and what is known of users and movies.

    Attributes:
        users, movies: columns by name; the first is `id`.
        links: by part int64 [n, 2], rows of users and movies; of the parts, `new_user` and `new_movie`.
        new_users, new_movies: which are new, bool.
    """

    users: dict[str, list[Any]]
    movies: dict[str, list[Any]]
    links: dict[str, Int]
    new_users: NDArray[np.bool_]
    new_movies: NDArray[np.bool_]


def read_ratings(folder: Path, seed: int) -> Ratings:
    """Return the ratings, divided with a seed."""
    users: dict[str, list[Any]] = {"id": [], "age": [], "gender": [], "occupation": []}
    for row in _cells(folder / "ml-100k.user"):
        for name, cell in zip(users, row[:4], strict=True):
            users[name].append(float(cell) if name == "age" else cell)
    movies: dict[str, list[Any]] = {"id": [], "year": [], "genres": []}
    for row in _cells(folder / "ml-100k.item"):
        movies["id"].append(row[0])
        movies["year"].append(float(row[2]) if row[2].isdigit() else None)
        movies["genres"].append(row[3].split(" "))
    places = [{each: place for place, each in enumerate(table["id"])} for table in (users, movies)]
    links = np.array(
        [[places[0][row[0]], places[1][row[1]]] for row in _cells(folder / "ml-100k.inter")], np.int64
    )
    generator = np.random.default_rng(seed)
    new_users, new_movies = (generator.random(len(each["id"])) < 0.1 for each in (users, movies))
    is_new_user, is_new_movie = new_users[links[:, 0]], new_movies[links[:, 1]]
    known = links[~is_new_user & ~is_new_movie]
    part = np.searchsorted([0.8, 0.9], generator.random(len(known)), side="right")
    found = {name: known[part == number] for number, name in enumerate(_PARTS)}
    found["new_user"] = links[is_new_user & ~is_new_movie]
    found["new_movie"] = links[is_new_movie & ~is_new_user]
    return Ratings(users, movies, found, new_users, new_movies)


def _cells(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8") as lines:
        return list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


def recall(scores: Float, links: Int, candidates: NDArray[np.bool_], known: Sequence[Int] = ()) -> float:
    """Return the recall@20 of links, the mean over users.

    Args:
        scores: float32 [users, movies].
        links: int64 [n, 2], what is to be found.
        candidates: bool [movies], which are ranked.
        known: links that are not ranked.
    """
    ranked = np.where(candidates[None], scores, -np.inf)
    for each in known:
        ranked[each[:, 0], each[:, 1]] = -np.inf
    wanted = np.zeros(scores.shape, bool)
    wanted[links[:, 0], links[:, 1]] = True
    users = np.flatnonzero(wanted.any(axis=1))
    best = np.argsort(-ranked[users], axis=1, kind="stable")[:, :_K]
    hits = np.take_along_axis(wanted[users], best, axis=1).sum(axis=1)
    return float((hits / wanted[users].sum(axis=1)).mean())


def figures(scores: Float, ratings: Ratings) -> dict[str, float]:
    """Return the three figures of the scores of all users and movies."""
    links, known_movies = ratings.links, ~ratings.new_movies
    learnt = (links["train"], links["validation"])
    return {
        "known": recall(scores, links["test"], known_movies, learnt),
        "new users": recall(scores, links["new_user"], known_movies),
        "new movies": recall(scores, links["new_movie"], ratings.new_movies),
    }


def run_file(seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the run file of graphbox's model."""
    return {
        "version": 1,
        "name": "movielens",
        "seed": seed,
        "threads": 1,
        "graph": {
            "name": "movielens",
            "nodes": {
                "user": {
                    "path": "users.parquet",
                    "features": {"age": "number", "gender": "categorical", "occupation": "categorical"},
                },
                "movie": {"path": "movies.parquet", "features": {"year": "number", "genres": "slots"}},
            },
            "edges": [
                {
                    "type": ["user", "rated", "movie"],
                    "path": "ratings.parquet",
                    "features": {"part": "categorical"},
                }
            ],
        },
        "tasks": {
            "watch": {
                "kind": "recommend",
                "node_type": "user",
                "target_type": "movie",
                "relations": ["rated"],
                "split": {"kind": "given", "feature": "part"},
                "baselines": [],
            }
        },
        "models": {"towers": {"kind": "two_tower", "task": "watch", **settings}},
    }


def write_run(ratings: Ratings, seed: int, settings: dict[str, Any], folder: Path) -> None:
    """Write the tables of graphbox's model and its run file, run.yaml."""
    pq.write_table(pa.table(ratings.users), folder / "users.parquet")
    pq.write_table(pa.table(ratings.movies), folder / "movies.parquet")
    links = [(name, ratings.links[name]) for name in _PARTS]
    columns = {
        "source": [ratings.users["id"][user] for _, each in links for user in each[:, 0]],
        "target": [ratings.movies["id"][movie] for _, each in links for movie in each[:, 1]],
        "part": [name for name, each in links for _ in each],
    }
    pq.write_table(pa.table(columns), folder / "ratings.parquet")
    (folder / "run.yaml").write_text(json.dumps(run_file(seed, settings)))


def graphbox_scores(ratings: Ratings, seed: int, settings: dict[str, Any]) -> tuple[Float, float]:
    """Return the scores of all users and movies, and the links learnt in a second of the training."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_run(ratings, seed, settings, folder)
        workspace = Workspace(folder / "workspace")
        report = run(folder / "run.yaml", (), workspace)
        trained = load_trained(report.path, "towers")
        graph = Graph.open(workspace.root / "graphs" / "movielens")
        users, movies = graph.index("user", ratings.users["id"]), graph.index("movie", ratings.movies["id"])
        assert trained.target is not None  # noqa: S101 - of two towers
        scores = trained.embeddings["user"][users] @ trained.target[movies].T
        points = [json.loads(line)["values"] for line in (report.path / "metrics.jsonl").open()]
        rates = [value for each in points for name, value in each.items() if name.endswith("samples_per_s")]
        return np.asarray(scores, np.float32), statistics.median(rates)


# ------------------------------------------------------------------------------------- peers


class Columns(NamedTuple):
    """Inputs of the towers of PyTorch, of users or movies.

    Attributes:
        codes: int64 [n, fields], codes of the id and of categories; 0 of what the training part lacks.
        sizes: number of codes of each field.
        numbers: float32 [n], standardized.
        genres: int64 [n, most], codes of the genres, 0 for none; of users [n, 0].
    """

    codes: Tensor
    sizes: list[int]
    numbers: Tensor
    genres: Tensor


def user_columns(ratings: Ratings) -> Columns:
    """Return what is read of users."""
    users, known = ratings.users, ~ratings.new_users
    fields = [
        _codes([each if is_known else None for each, is_known in zip(users["id"], known, strict=True)]),
        _codes(users["gender"]),
        _codes(users["occupation"]),
    ]
    return _columns(fields, users["age"], torch.zeros(len(known), 0, dtype=torch.int64))


def movie_columns(ratings: Ratings) -> Columns:
    """Return what is read of movies."""
    movies, known = ratings.movies, ~ratings.new_movies
    ids = _codes([each if is_known else None for each, is_known in zip(movies["id"], known, strict=True)])
    number = {
        name: code for code, name in enumerate(sorted({g for each in movies["genres"] for g in each}), 1)
    }
    genres = torch.zeros(len(known), max(map(len, movies["genres"])), dtype=torch.int64)
    for row, each in enumerate(movies["genres"]):
        genres[row, : len(each)] = torch.tensor([number[name] for name in each])
    return _columns([ids], movies["year"], genres)


def _codes(values: Sequence[str | None]) -> list[int]:
    number = {
        each: code for code, each in enumerate(sorted({each for each in values if each is not None}), 1)
    }
    return [0 if each is None else number[each] for each in values]


def _columns(fields: list[list[int]], numbers: list[float | None], genres: Tensor) -> Columns:
    values = torch.tensor([math.nan if each is None else each for each in numbers])
    known = values[~values.isnan()]
    scaled = ((values - known.mean()) / known.std()).nan_to_num(0.0)
    codes = torch.tensor(fields).T.contiguous()
    return Columns(codes, [max(each) + 1 for each in fields], scaled, genres)


def _codes_of(genres: Tensor) -> int:
    return int(genres.max()) + 1 if genres.numel() else 1


class PlainTower(nn.Module):
    """Embeddings of all fields side by side, and an MLP; vectors have length 1."""

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.columns = columns
        self.fields = nn.ModuleList(nn.Embedding(size, _DIM, padding_idx=0) for size in columns.sizes)
        self.genres = nn.Embedding(_codes_of(columns.genres), _DIM, padding_idx=0)
        width = _DIM * (len(columns.sizes) + bool(columns.genres.shape[1])) + 1
        self.layers = nn.Sequential(nn.Linear(width, _DIM), nn.ReLU(), nn.Linear(_DIM, _DIM))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the vectors of users or movies: float32 [n, dim]."""
        codes, genres = self.columns.codes[rows], self.columns.genres[rows]
        parts = [field(codes[:, place]) for place, field in enumerate(self.fields)]
        parts.append(self.columns.numbers[rows][:, None])
        if genres.shape[1]:
            parts.append(self.genres(genres).sum(dim=1) / (genres > 0).sum(dim=1, keepdim=True).clamp(min=1))
        return functional.normalize(self.layers(torch.cat(parts, dim=1)), dim=1)


class Peer(NamedTuple):
    """A model of a peer.

    Attributes:
        learn: trains an epoch.
        vectors: returns the vectors of all users and of all movies, of length 1.
    """

    learn: Callable[[], None]
    vectors: Callable[[], tuple[Tensor, Tensor]]


def plain_peer(ratings: Ratings, temperature: float, learning_rate: float, seed: int) -> Peer:
    """Return the plain loop: in-batch softmax, log-Q by frequencies, a movie's own repeats left out."""
    torch.manual_seed(seed)
    towers = nn.ModuleList([PlainTower(user_columns(ratings)), PlainTower(movie_columns(ratings))])
    optimizer = torch.optim.Adam(towers.parameters(), lr=learning_rate)
    links = torch.from_numpy(ratings.links["train"])
    log_q = (torch.bincount(links[:, 1], minlength=len(ratings.new_movies)) / len(links)).log()
    own = torch.arange(_BATCH)

    def learn() -> None:
        for batch in torch.split(links[torch.randperm(len(links))], _BATCH):
            users, movies = (tower(rows) for tower, rows in zip(towers, batch.T, strict=True))
            logits = users @ movies.T / temperature - log_q[batch[:, 1]]
            repeated = batch[:, 1][:, None] == batch[:, 1][None]
            repeated.fill_diagonal_(False)
            loss = functional.cross_entropy(logits.masked_fill(repeated, -math.inf), own[: len(batch)])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def vectors() -> tuple[Tensor, Tensor]:
        counts = len(ratings.new_users), len(ratings.new_movies)
        users, movies = (tower(torch.arange(count)) for tower, count in zip(towers, counts, strict=True))
        return users, movies

    return Peer(learn, vectors)


def rechub_peer(ratings: Ratings, temperature: float, learning_rate: float, seed: int) -> Peer:
    """Return torch-rechub's YoutubeSBC with its trainer.

    It divides the logarithm of a movie's weight by the temperature with the cosine, unlike the paper: the
    weight that it is given is the frequency to the power of the temperature, which makes it the paper's.
    """
    features = import_module("torch_rechub.basic.features")
    matching = import_module("torch_rechub.models.matching")
    trainers = import_module("torch_rechub.trainers")
    torch.manual_seed(seed)
    columns = user_columns(ratings), movie_columns(ratings)
    names = (("user", "gender", "occupation", "age"), ("movie", "year"))
    inputs: list[dict[str, Tensor]] = []
    listed: list[list[Any]] = []
    for side, of_side in zip(columns, names, strict=True):
        sparse = of_side[:-1]
        inputs.append({name: side.codes[:, place] for place, name in enumerate(sparse)})
        inputs[-1][of_side[-1]] = side.numbers
        listed.append(
            [
                *(
                    features.SparseFeature(name, side.sizes[place], _DIM, padding_idx=0)
                    for place, name in enumerate(sparse)
                ),
                features.DenseFeature(of_side[-1]),
            ]
        )
    genres = columns[1].genres
    inputs[1]["genres"] = genres
    listed[1].append(
        features.SequenceFeature("genres", _codes_of(genres), _DIM, pooling="mean", padding_idx=0)
    )
    links = torch.from_numpy(ratings.links["train"])
    frequency = torch.bincount(links[:, 1], minlength=len(genres)) / len(links)
    inputs[1]["weight"] = frequency.clamp(min=1e-12) ** temperature
    towers = {"dims": [_DIM, _DIM], "activation": "relu", "dropout": 0.0}
    model = matching.YoutubeSBC(
        *listed,
        [features.DenseFeature("weight")],
        towers,
        towers,
        batch_size=_RECHUB_BATCH,
        n_neg=_RECHUB_BATCH - 1,
        temperature=temperature,
    )
    optimizer = {"lr": learning_rate, "weight_decay": 0.0}
    trainer = trainers.MatchTrainer(model, mode=2, optimizer_params=optimizer, model_path="")

    def batches() -> list[tuple[dict[str, Tensor], Tensor]]:
        found = []
        for batch in torch.split(links[torch.randperm(len(links))], _RECHUB_BATCH):
            if len(batch) == _RECHUB_BATCH:  # it takes no smaller one
                values = [
                    {name: each[rows] for name, each in side.items()}
                    for side, rows in zip(inputs, batch.T, strict=True)
                ]
                found.append((values[0] | values[1], torch.zeros(len(batch))))
        return found

    def learn() -> None:
        model.mode = None
        with contextlib.redirect_stderr(io.StringIO()):
            trainer.train_one_epoch(batches())

    def vectors() -> tuple[Tensor, Tensor]:
        model.eval()
        found = []
        for model.mode, values in zip(("user", "item"), inputs, strict=True):
            found.append(functional.normalize(model(values), dim=1))
        return found[0], found[1]

    return Peer(learn, vectors)


def peer_scores(
    make: Callable[[Ratings, float, float, int], Peer],
    settings: Sequence[tuple[float, float]],
    limits: tuple[int, int],
    ratings: Ratings,
    seed: int,
) -> tuple[Float, float]:
    """Return the scores of a peer at its best settings and epoch, and the links learnt in a second.

    Args:
        make: makes it, of ratings, a temperature, a learning rate and a seed.
        settings: temperatures and learning rates to choose from.
        limits: most epochs, and how many without a better one end a training.
        ratings: to learn from.
        seed: of parameters and the order of links.
    """
    links = ratings.links
    best, kept, rates = -1.0, np.zeros((0, 0), np.float32), []
    most, patience = limits
    for temperature, learning_rate in settings:
        peer, of_settings, since = make(ratings, temperature, learning_rate, seed), -1.0, 0
        for _ in range(most):
            start = time.perf_counter()
            peer.learn()
            rates.append(len(links["train"]) / (time.perf_counter() - start))
            with torch.no_grad():
                users, movies = peer.vectors()
            scores = (users @ movies.T).numpy()
            found = recall(scores, links["validation"], ~ratings.new_movies, (links["train"],))
            since = 0 if found > of_settings else since + 1
            of_settings = max(found, of_settings)
            if found > best:
                best, kept = found, scores
            if since == patience:
                break
    return kept, statistics.median(rates)


def popularity_scores(ratings: Ratings, seed: int) -> tuple[Float, float]:
    """Return the number of links of each movie, those of new ones in a random order."""
    counts = np.bincount(ratings.links["train"][:, 1], minlength=len(ratings.new_movies))
    ties = np.random.default_rng(seed).random(len(counts)) / 2
    return np.tile((counts + ties).astype(np.float32), (len(ratings.new_users), 1)), math.nan


def rates_in_turns(ratings: Ratings, seed: int, settings: dict[str, Any], rounds: int) -> Float:
    """Return links per CPU second of graphbox and of the plain loop, an epoch of each in turns: [rounds, 2].

    Their networks are not the same: graphbox's has a learnt temperature and leaves rows out.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_run(ratings, seed, settings, folder)
        workspace = Workspace(folder / "workspace")
        report = run_pipeline(load_config(folder / "run.yaml"), workspace, until="split")
        data = RunData.open(workspace, report.run)
        config, split = data.config.models["towers"], data.split("watch")
        view = GraphView(data.graph, split, "train")
        trainer = make_trainer(config, Assignment("towers", view, split, data.config.tasks["watch"], seed, 1))
        plain = plain_peer(ratings, *_PLAIN_SETTINGS[0], seed)

        def learn(epoch: int) -> None:
            for batch in range(trainer.begin_epoch(epoch)):
                trainer.train_batch(epoch, batch)

        found = np.zeros((rounds + 1, 2), np.float32)  # of which the first warms up
        for turn, place in np.ndindex(found.shape):
            began = time.process_time()
            plain.learn() if place else learn(turn)
            found[turn, place] = len(ratings.links["train"]) / (time.process_time() - began)
        return found[1:]


def main() -> None:
    """Train all on the same links and print what they reach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="folder with recbole and torch-rechub")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON, of graphbox's models")
    parser.add_argument("--systems", nargs="+", help="which to train (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rates", type=int, metavar="ROUNDS", help="only compare rates with the plain loop")
    arguments = parser.parse_args()
    given = arguments.settings
    sys.path.append(str(arguments.peers))
    torch.set_num_threads(1)
    if arguments.rates:
        ratings = read_ratings(
            arguments.peers / "recbole" / "dataset_example" / "ml-100k", arguments.seeds[0]
        )
        found = rates_in_turns(ratings, arguments.seeds[0], given, arguments.rates)
        links_per_s = dict(
            zip(("graphbox", "plain loop"), np.median(found, axis=0).round().tolist(), strict=True)
        )
        ratio = round(float(np.median(found[:, 0] / found[:, 1])), 2)
        print(json.dumps({"links per CPU second": links_per_s, "ratio": ratio, "repeats": arguments.rates}))
        return
    systems: dict[str, Callable[[Ratings, int], tuple[Float, float]]] = {
        "popularity": popularity_scores,
        "graphbox": lambda ratings, seed: graphbox_scores(ratings, seed, given),
        "graphbox, features alone": lambda ratings, seed: graphbox_scores(
            ratings, seed, {"embeddings": [], **given}
        ),
        "plain loop": lambda ratings, seed: peer_scores(
            plain_peer, _PLAIN_SETTINGS, _PLAIN_EPOCHS, ratings, seed
        ),
        "torch-rechub YoutubeSBC": lambda ratings, seed: peer_scores(
            rechub_peer, _RECHUB_SETTINGS, _RECHUB_EPOCHS, ratings, seed
        ),
    }
    if arguments.systems:
        systems = {name: systems[name] for name in arguments.systems}
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    for seed in arguments.seeds:
        ratings = read_ratings(arguments.peers / "recbole" / "dataset_example" / "ml-100k", seed)
        for name, scores_of in systems.items():
            with contextlib.redirect_stdout(io.StringIO()):
                scores, rate = scores_of(ratings, seed)
            measured[name].append({**figures(scores, ratings), "links/s": rate})
            print(f"seed {seed}, {name}: {measured[name][-1]}", file=sys.stderr, flush=True)
    means = {
        name: {key: statistics.fmean(each[key] for each in found) for key in found[0]}
        for name, found in measured.items()
    }
    if arguments.json:
        document = {"graphbox": __version__, "torch": torch.__version__, "seeds": arguments.seeds}
        print(json.dumps({**document, "mean": means, "measured": measured}, indent=1))
        return
    for name, each in means.items():
        print(f"{name:26}", *(f"{key} {value:.3f}" for key, value in each.items()))


if __name__ == "__main__":
    main()
