"""Training rate of a model of sequences beside a plain PyTorch loop of the same model.

    python -m benchmarks.train_sequences --beauty FOLDER [--kind gru4rec] --json

The peer is what tutorials write: windows padded at the end to ``window`` events, one tensor of rows in a
`torch.nn.Embedding`, `torch.nn.functional.scaled_dot_product_attention` (`sasrec`) or `torch.nn.GRU`
(`gru4rec`), Adam for everything, the loss over the events that are there. Both have the same sizes, batches
of as many histories, the same candidates and the same loss, whose value is compared on equal rows and
parameters before anything is timed. Rates are events a second, padding not counted, of some batches in
turns; the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.plain_networks import plain_sequence_network
from benchmarks.quality_data.beauty import DATA_SET, events_of_sequences
from graphbox import __version__
from graphbox.config import GRU4RecConfig, SASRecConfig, load_config
from graphbox.pipeline import run_pipeline
from graphbox.pipeline.run_data import RunData
from graphbox.train import GraphView, NextSplit
from graphbox.train.assignment import Assignment
from graphbox.train.sequences.trainer import SequenceTrainer
from graphbox.workspace import Workspace

_ROUNDS, _BATCHES = 5, 8
_CONFIGS: dict[str, SASRecConfig | GRU4RecConfig] = {
    "sasrec": SASRecConfig(kind="sasrec", task="next"),
    "gru4rec": GRU4RecConfig(kind="gru4rec", task="next"),
}
"""Models with their defaults, by kind."""


@dataclass(frozen=True)
class PaddedBatch:
    """A batch of windows, padded to one length.

    Attributes:
        items: int64 [windows, window].
        targets: int64 [windows, window], -1 for padding.
        candidates: int64 [candidates], ascending.
    """

    items: Tensor
    targets: Tensor
    candidates: Tensor


class PlainLoop:
    """The same model, trained as a tutorial would.

    Args:
        trainer: whose parameters and rows it starts from, and whose batches it learns.
        config: of the model.
    """

    def __init__(self, trainer: SequenceTrainer, config: SASRecConfig | GRU4RecConfig) -> None:
        self._trainer, self._config = trainer, config
        self.network = plain_sequence_network(config)
        self.network.load_state_dict(trainer.network.state_dict())
        rows = trainer.item_rows().clone()
        self.rows = nn.Embedding(rows.shape[0], rows.shape[1], _weight=rows)
        self._optimizer = torch.optim.Adam(
            [
                {"params": self.network.parameters(), "lr": config.learning_rate},
                {"params": self.rows.parameters(), "lr": config.table_learning_rate},
            ]
        )

    def padded(self, epoch: int, batch: int) -> PaddedBatch:
        """Return a batch of the trainer as one block of the window's length."""
        part = self._trainer.draw(epoch, batch)
        events, window = part.windows.events, self._config.window
        row, place = events.cells()
        items = np.zeros((row.max() + 1, window), np.int64)
        targets = np.full_like(items, -1)
        items[row, place] = events.items[events.events]
        targets[row, place] = part.windows.targets
        return PaddedBatch(*map(torch.from_numpy, (items, targets, part.candidates)))

    def loss(self, batch: PaddedBatch) -> Tensor:
        """Return the mean cross-entropy of what follows each event, against the drawn candidates."""
        made = self.network(self.rows(batch.items)).view(-1, self._config.dim)
        there = batch.targets.view(-1) >= 0
        vectors, targets = made[there], batch.targets.view(-1)[there]
        logits = vectors @ self.rows(batch.candidates).T
        correction = self._trainer.log_probability(batch.candidates.numpy())
        if correction is not None:
            logits = logits - correction
        logits = logits.masked_fill(targets[:, None] == batch.candidates[None], -torch.inf)
        positive = (vectors * self.rows(targets)).sum(dim=1)
        return functional.cross_entropy(
            torch.cat([positive[:, None], logits], dim=1), torch.zeros(len(targets), dtype=torch.int64)
        )

    def train(self, batch: PaddedBatch) -> int:
        """Take a step; return how many events were predicted."""
        self.network.train()
        self._optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return int((batch.targets >= 0).sum())


def trainer_of(
    folder: Path, scratch: Path, config: SASRecConfig | GRU4RecConfig, seed: int
) -> SequenceTrainer:
    """Import the events, split them, and return graphbox's trainer."""
    tables = scratch / "tables"
    tables.mkdir()
    events_of_sequences(folder, tables)
    run_file = Path(__file__).parents[1] / DATA_SET.run_file
    workspace = Workspace(scratch / "workspace")
    settings = [f"graph.root={json.dumps(str(tables))}"]
    report = run_pipeline(load_config(run_file, settings), workspace, until="split")
    data = RunData.open(workspace, report.run)
    split = data.split("next")
    if not isinstance(split, NextSplit):
        raise TypeError(f"expected a split of a task next, received {type(split).__name__}")
    view = GraphView(data.graph, split, "train")
    assignment = Assignment(
        config.kind, view, split, data.config.tasks["next"], seed, torch.get_num_threads()
    )
    return SequenceTrainer(config, assignment)


def difference(trainer: SequenceTrainer, plain: PlainLoop) -> float:
    """Return how far apart the losses of a batch are, relative to them, without dropout."""
    with torch.no_grad():
        trainer.network.eval()
        plain.network.eval()
        ours, _ = trainer.loss(trainer.draw(0, 0), 0, 0)
        theirs = plain.loss(plain.padded(0, 0))
    return abs(float(ours) - float(theirs)) / float(theirs)


def rates(trainer: SequenceTrainer, plain: PlainLoop, rounds: int, batches: int) -> NDArray[np.float64]:
    """Return events a second of both systems in turns: [rounds, 2]."""
    found = np.zeros((rounds, 2))
    number = 1
    for turn in range(rounds):
        numbers = range(number, number + batches)
        padded = [plain.padded(0, each) for each in numbers]  # which is not timed
        began = time.perf_counter()
        events = sum(trainer.train_batch(0, each)[1] for each in numbers)
        found[turn, 0] = events / (time.perf_counter() - began)
        began = time.perf_counter()
        events = sum(plain.train(each) for each in padded)
        found[turn, 1] = events / (time.perf_counter() - began)
        number = 1 + (number + batches - 1) % (rounds * batches)
    return found


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--beauty", type=Path, required=True, help="folder of sequences.txt.gz")
    parser.add_argument("--kind", choices=list(_CONFIGS), default="sasrec")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--batches", type=int, default=_BATCHES, help="of a round, of each system")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object per line, as always")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    config, case = _CONFIGS[asked.kind], f"beauty, {asked.kind}, defaults"
    with TemporaryDirectory() as scratch:
        trainer = trainer_of(asked.beauty, Path(scratch), config, asked.seed)
        trainer.begin_epoch(0)
        plain = PlainLoop(trainer, config)
        apart = difference(trainer, plain)
        if not apart < 1e-5:
            raise SystemExit(f"expected equal losses, received a relative difference of {apart:g}")
        rates(trainer, plain, 1, 1)  # warms up
        found = rates(trainer, plain, asked.rounds, asked.batches)
    for number, system in enumerate((f"graphbox {__version__}", f"PyTorch {torch.__version__}, padded")):
        of_system = found[:, number].tolist()
        line = {
            "case": case,
            "system": system,
            "threads": asked.threads,
            "unit": "events/s",
            "rate": round(statistics.median(of_system)),
            "min": round(min(of_system)),
            "max": round(max(of_system)),
            "repeats": asked.rounds,
        }
        print(json.dumps(line), flush=True)
    ratio = {
        "case": f"{case}: graphbox over PyTorch",
        "ratio": round(statistics.median((found[:, 0] / found[:, 1]).tolist()), 2),
        "relative_difference_of_losses": float(f"{apart:.2g}"),
    }
    print(json.dumps(ratio), flush=True)


if __name__ == "__main__":
    main()
