"""Training rates of DIN and MMoE beside a plain PyTorch loop of the same model, on rows of clicks.

    pip install --target /tmp/peers --no-deps recbole
    python -m benchmarks.train_clicks --kind din --peers /tmp/peers --json
    python -m benchmarks.train_clicks --kind mmoe --root FOLDER --json

`din` learns MovieLens-100k as in `click_histories`, `mmoe` the census rows of adult.csv.gz in FOLDER as in
`click_labels`, each with the sizes there.

The peer is what a tutorial writes: all columns encoded before the training as tensors of codes, histories
padded to the window, a shuffled index for each epoch, one `torch.nn.Embedding` for all fields, Adagrad for
its rows and Adam for the network. It runs with dense gradients of the rows and with sparse ones. Both have
the same sizes, as many rows in a batch and the same loss, whose value is compared on equal rows and
parameters before anything is timed. A round is an epoch of each system in turns: graphbox's reads the log,
shuffles it and makes keys of its values meanwhile. Seconds are CPU time of the process. The ratio is the
median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import click_histories, click_labels
from benchmarks.plain_networks import PLAIN_CLICKS
from graphbox import __version__
from graphbox.config import ClickModelSection, load_config
from graphbox.models.click_fields import FieldBatch
from graphbox.pipeline import run_pipeline
from graphbox.pipeline.run_data import RunData
from graphbox.table import TableEmbedding
from graphbox.train import Assignment, GraphView
from graphbox.train.click.trainer import ClickTrainer
from graphbox.workspace import Workspace

_ROUNDS = 5
_CASES = {"din": "MovieLens-100k, din, window {window}", "mmoe": "Adult, mmoe"}


@dataclass(frozen=True)
class PlainRows:
    """Encoded rows, each field of one code or, of a number, of the two knots that it lies between.

    Attributes:
        codes: int64 [rows, codes], rows of the embedding, those of a field side by side; 0 is nothing.
        shares: float32 [rows, fields with two codes, 2], the weights of the two.
        numbers: float32 [rows, numbers].
        labels: float32 [rows, labels].
    """

    codes: Tensor
    shares: Tensor
    numbers: Tensor
    labels: Tensor

    def take(self, index: Tensor) -> PlainRows:
        """Return some of the rows."""
        return PlainRows(self.codes[index], self.shares[index], self.numbers[index], self.labels[index])


class Encoder:
    """Codes of the keys of rows.

    Args:
        batches: all of an epoch.
    """

    def __init__(self, batches: list[tuple[FieldBatch, Tensor]]) -> None:
        self.keys = np.unique(np.concatenate([fields.keys.numpy() for fields, _ in batches]))

    def encode(self, fields: FieldBatch, labels: Tensor) -> PlainRows:
        """Return a batch as the plain loop reads it."""
        rows = len(fields)
        starts, lengths = fields.offsets[:-1].numpy(), np.diff(fields.offsets.numpy())
        bags = lengths.reshape(-1, rows)
        is_pair = bags.max(axis=1) == 2
        if not (np.diff(is_pair.astype(int)) >= 0).all() or not (bags[is_pair] == 2).all():
            raise SystemExit("expected fields of one value, then those of two knots")
        found = 1 + np.searchsorted(self.keys, fields.keys.numpy())
        at = starts.reshape(-1, rows)
        single = np.where(bags[~is_pair] > 0, found[np.minimum(at[~is_pair], len(found) - 1)], 0)
        both = (at[is_pair][:, None] + np.arange(2)[None, :, None]).transpose(2, 0, 1)
        codes = np.concatenate([single.T, found[both].reshape(rows, -1)], axis=1)
        shares = fields.weights.numpy()[both]
        return PlainRows(torch.from_numpy(codes), torch.from_numpy(shares), fields.numbers, labels)


class PlainLoop:
    """The same model, trained as a tutorial would.

    Args:
        trainer: whose parameters and rows it starts from.
        config: of the model.
        encoder: gives the codes.
        rows: what is learnt.
        sparse: whether gradients of the embedding are sparse.
    """

    def __init__(
        self,
        trainer: ClickTrainer,
        config: ClickModelSection,
        encoder: Encoder,
        rows: PlainRows,
        *,
        sparse: bool,
    ) -> None:
        self._config, self._rows = config, rows
        self.network = PLAIN_CLICKS[config.kind](trainer.network.shape, **config.network_arguments)
        self.network.load_state_dict(dict(trainer.network.named_parameters()))
        with torch.no_grad():
            values = TableEmbedding(trainer.tables()["fields"])(torch.from_numpy(encoder.keys))
        weight = torch.cat([torch.zeros(1, values.shape[1]), values])
        count, dim = weight.shape
        self._embedding = nn.Embedding(count, dim, padding_idx=0, _weight=weight, sparse=sparse)
        self._optimizers = [
            torch.optim.Adam(self.network.parameters(), lr=config.learning_rate),
            torch.optim.Adagrad(self._embedding.parameters(), lr=config.table_learning_rate),
        ]

    def loss(self, batch: PlainRows) -> Tensor:
        """Return the binary cross-entropy of the labels, and the squares of the vectors."""
        found = self._embedding(batch.codes)
        pairs = batch.shares.shape[1]
        if pairs:
            single, both = found[:, : -2 * pairs], found[:, -2 * pairs :]
            mixed = (both.view(len(found), pairs, 2, -1) * batch.shares.unsqueeze(3)).sum(dim=2)
            found = torch.cat([single, mixed], dim=1)
        logits = self.network(found, batch.numbers)
        loss = functional.binary_cross_entropy_with_logits(logits, batch.labels, reduction="sum")
        squares = self.network.decayed(found).square().sum()
        return (loss + self._config.row_decay * squares) / len(found)

    def train_epoch(self) -> int:
        """Learn all rows once; return how many they are."""
        self.network.train()
        for index in torch.split(torch.randperm(len(self._rows.labels)), self._config.batch_size):
            for optimizer in self._optimizers:
                optimizer.zero_grad()
            self.loss(self._rows.take(index)).backward()  # type: ignore[no-untyped-call]
            for optimizer in self._optimizers:
                optimizer.step()
        return len(self._rows.labels)


def case_of(asked: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rows of a kind, and the run file of its model alone."""
    if asked.kind == "din":
        folder = asked.peers / "recbole" / "dataset_example" / "ml-100k"
        rows, found = (
            click_histories.read_rows(folder, asked.window),
            click_histories.run_file(asked.seed, asked.window),
        )
    else:
        rows = click_labels.read_rows(asked.root / "adult.csv.gz")
        found = click_labels.run_file(rows, asked.seed)
    model = found["models"][asked.kind]
    if asked.kind == "mmoe":  # fields of two knots come last, as the plain loop reads them
        kinds = found["graph"]["nodes"]["person"]["features"]
        model["features"] = sorted(model["features"], key=lambda name: kinds[name] == "number")
    task = model["task"]
    return rows, {**found, "models": {asked.kind: model}, "tasks": {task: found["tasks"][task]}}


def trainer_of(
    rows: dict[str, Any], run_file: dict[str, Any], scratch: Path
) -> tuple[ClickTrainer, ClickModelSection]:
    """Import the rows, split them, and return graphbox's trainer and the model's section."""
    pq.write_table(pa.table(rows), scratch / "rows.parquet")
    (scratch / "run.yaml").write_text(json.dumps(run_file))
    workspace = Workspace(scratch / "workspace")
    report = run_pipeline(load_config(scratch / "run.yaml"), workspace, until="split")
    data = RunData.open(workspace, report.run)
    (kind, config), *_ = data.config.models.items()
    if not isinstance(config, ClickModelSection):
        raise TypeError(f"expected a model of clicks, received one of kind {config.kind}")
    split, task = data.split(config.task), data.config.tasks[config.task]
    view = GraphView(data.graph, split, "train")
    assignment = Assignment(kind, view, split, task, data.config.seed, torch.get_num_threads())
    return ClickTrainer(config, assignment), config


def difference(trainer: ClickTrainer, plain: PlainLoop, rows: PlainRows) -> float:
    """Return how far apart the losses of the first batch are, relative to them, without dropout.

    Args:
        trainer: which has begun its first epoch.
        plain: with the same parameters and rows.
        rows: of that batch.
    """
    trainer.network.train()
    drawn = trainer.draw(0, 0)
    trainer.network.fetch(drawn[0])  # which makes rows of new values: without one they count as nothing
    with torch.no_grad():
        trainer.network.eval()
        plain.network.eval()
        found = float(trainer.loss(drawn, 0, 0)[0]), float(plain.loss(rows))
    return abs(found[0] - found[1]) / found[1]


def rates(trainer: ClickTrainer, plains: list[PlainLoop], rounds: int) -> NDArray[np.float64]:
    """Return rows per CPU second of all systems in turns, an epoch of each: [rounds, systems]."""

    def learn(epoch: int) -> int:
        return sum(trainer.train_batch(epoch, batch)[1] for batch in range(trainer.begin_epoch(epoch)))

    found = np.zeros((rounds, 1 + len(plains)))
    for turn in range(rounds):
        for place in range(found.shape[1]):
            began = time.process_time()
            count = plains[place - 1].train_epoch() if place else learn(turn)
            found[turn, place] = count / (time.process_time() - began)
    return found


def measure(rows: dict[str, Any], run_file: dict[str, Any], rounds: int) -> tuple[NDArray[np.float64], float]:
    """Return the rates of a model, see :func:`rates`, and the difference of the losses."""
    with TemporaryDirectory() as scratch:
        trainer, config = trainer_of(rows, run_file, Path(scratch))
        batches = [trainer.draw(0, number) for number in range(trainer.begin_epoch(0))]
        encoder = Encoder(batches)
        encoded = [encoder.encode(*batch) for batch in batches]
        every = PlainRows(
            *(torch.cat(parts) for parts in zip(*(vars(each).values() for each in encoded), strict=True))
        )
        plains = [PlainLoop(trainer, config, encoder, every, sparse=sparse) for sparse in (False, True)]
        trainer.begin_epoch(0)
        apart = difference(trainer, plains[0], encoded[0])
        if not apart < 1e-5:
            raise SystemExit(f"expected equal losses, received a relative difference of {apart:g}")
        try:
            rates(trainer, plains, 1)  # warms up
            return rates(trainer, plains, rounds), apart
        finally:
            trainer.close()


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=list(_CASES), required=True)
    parser.add_argument("--peers", type=Path, help="of din: where recbole is")
    parser.add_argument("--root", type=Path, help="of mmoe: folder of adult.csv.gz")
    parser.add_argument("--window", type=int, default=20, help="of din: events of a history")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object per line, as always")
    asked = parser.parse_args()
    needed = "--peers" if asked.kind == "din" else "--root"
    if getattr(asked, needed[2:]) is None:
        parser.error(f"{asked.kind} needs {needed}")
    torch.set_num_threads(asked.threads)
    found, apart = measure(*case_of(asked), asked.rounds)
    torch_version = f"PyTorch {torch.__version__}"
    systems = (f"graphbox {__version__}", f"{torch_version}, dense", f"{torch_version}, sparse")
    case = _CASES[asked.kind].format(window=asked.window)
    for system, of_system in zip(systems, found.T.tolist(), strict=True):
        line = {
            "case": case,
            "system": system,
            "threads": asked.threads,
            "unit": "rows per CPU second",
            "rate": round(statistics.median(of_system)),
            "min": round(min(of_system)),
            "max": round(max(of_system)),
            "repeats": asked.rounds,
        }
        print(json.dumps(line), flush=True)
    faster = 1 + int(np.argmax(np.median(found[:, 1:], axis=0)))
    ratio = {
        "case": f"{case}: graphbox over {systems[faster]}",
        "ratio": round(statistics.median((found[:, 0] / found[:, faster]).tolist()), 2),
        "relative_difference_of_losses": float(f"{apart:.2g}"),
    }
    print(json.dumps(ratio), flush=True)


if __name__ == "__main__":
    main()
