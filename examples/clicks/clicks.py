"""A click model over embedding tables: training that goes on after a kill, serving deltas, forgetting.

    python examples/clicks/clicks.py adult.csv.gz run

The rows are those of UCI's "Adult" (Becker and Kohavi, 1996; CC BY 4.0), or any CSV with its columns;
`income` stands for the click. It shows what can be done with tables; a click model alone needs no code but a
run file, as in `examples/adult`.

Run it again, also after kill -9, and it goes on after the last finished pass.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.csv
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from graphbox.metrics import click_report
from graphbox.table import (
    BagSlot,
    EmbeddingTable,
    ServingTable,
    TableEmbeddingBagCollection,
    hashed_keys,
)

SLOTS = [
    *("age", "workclass", "education", "marital-status", "occupation", "relationship", "race", "gender"),
    *("capital-gain", "capital-loss", "hours-per-week", "native-country"),
]
CROSSED = ["age", "education", "occupation", "hours-per-week"]
PASSES, BATCH, MEMORY_BYTES = 2, 512, 14 << 20
Batch = tuple[dict[str, torch.Tensor], torch.Tensor]


def read(file: Path) -> Batch:
    """Return the keys of each slot, int64 [rows, 1], and labels, float32 [rows]."""
    columns = {name: list(map(str, each)) for name, each in pyarrow.csv.read_csv(file).to_pydict().items()}
    crosses = ["|".join(values) for values in zip(*(columns[name] for name in CROSSED), strict=True)]
    texts = {name: columns[name] for name in SLOTS} | {"cross": crosses}
    keys = {name: torch.from_numpy(hashed_keys(each))[:, None] for name, each in texts.items()}
    return keys, torch.tensor([float(label == ">50K") for label in columns["income"]])


def parts(batch: Batch, places: torch.Tensor) -> Iterator[Batch]:
    """Yield batches of the rows at ``places``."""
    keys, labels = batch
    for start in range(0, len(places), BATCH):
        some = places[start : start + BATCH]
        yield {name: each[some] for name, each in keys.items()}, labels[some]


def main(file: Path, run: Path) -> None:
    """Train for the passes that are left, then test, serve and forget."""
    run.mkdir(exist_ok=True)
    rows = read(file)
    train, test = torch.arange(len(rows[1])).tensor_split([len(rows[1]) * 2 // 3])

    # Rows of single values stay in memory, saved as a base and deltas; those of crossed values may go to SSD.
    torch.manual_seed(0)
    done = len(list(run.glob("dense-*.pt")))  # the last file of a pass: what it goes with is there
    if done:
        values = EmbeddingTable.load(run / "base", deltas=[run / f"delta-{i}" for i in range(1, done + 1)])
    else:
        values = EmbeddingTable(dim=16)
        values.save_base(run / "base")
    # Made or opened. Most combinations are rare: rows of zeros say nothing until they have learned.
    crosses = EmbeddingTable(dim=128, lr=0.002, init_scale=0, path=run / "crosses", memory_bytes=MEMORY_BYTES)
    slots = TableEmbeddingBagCollection(
        {name: BagSlot(values, salt=name) for name in SLOTS} | {"cross": BagSlot(crosses)}, concatenate=True
    )
    dense = torch.nn.Sequential(torch.nn.Linear(slots.dim, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    if done:
        dense.load_state_dict(torch.load(run / f"dense-{done}.pt", weights_only=True))
    optimizer = torch.optim.Adam(dense.parameters())
    print(f"{done} passes are done: {values}, {crosses}")

    for number in range(done + 1, PASSES + 1):
        order = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(number))]
        crosses.prefetch(rows[0]["cross"][order[: 16 * BATCH]]).wait(timeout_s=600)
        for keys, labels in parts(rows, order):
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(dense(slots(keys)).squeeze(1), labels)
            torch.autograd.backward(loss)  # rows learn here,
            optimizer.step()  # and the dense part here
        crosses.flush()
        values.save_delta(run / f"delta-{number}")
        torch.save(dense.state_dict(), run / "dense.partial")
        (run / "dense.partial").replace(run / f"dense-{number}.pt")
        print(f"pass {number} is saved: {len(values)} values; crosses: {crosses.statistics()}", flush=True)

    slots.eval()
    with torch.no_grad():
        logits = torch.cat([dense(slots(keys)).squeeze(1) for keys, _ in parts(rows, test)])
    report = click_report(rows[1][test].bool().numpy(), logits.sigmoid().numpy())
    print(f"auc {report['auc']:.4f}, log loss {report['log_loss']:.4f}")
    serve_and_forget(values, crosses, run)
    crosses.close()


def serve_and_forget(values: EmbeddingTable, crosses: EmbeddingTable, run: Path) -> None:
    """Hand values to a server, let it forget one while it runs, and look what is left of it."""
    # A server has values alone, and takes up what changed while it is asked.
    values.save_base(run / "serving", serving="float16")
    served = ServingTable.open(run / "serving", unknown="zeros")
    forgotten = values.keys()[:1]
    values.erase(forgotten)
    values.save_delta(run / "serving-1", serving="int8")
    served.apply(run / "serving-1")
    print(f"key {forgotten[0]} is served: {served.contains(forgotten)[0]}")

    # The next delta for training lacks it, too. Checkpoints from before have it until they are deleted, and
    # on SSD the segments until they are rewritten.
    crosses.erase(crosses.keys()[:1])
    print(f"{crosses.purge()} segments with a crossed value are rewritten")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
