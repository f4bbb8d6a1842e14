"""Widths by layer: an MLP with one share of the neurons of each hidden layer, and with shares by layer.

The MLP has the hidden layers 512-256-128-64 on UCI Adult as `benchmarks.compress_dense` reads it, trained for
two epochs. For each share and both ways: neurons, weights, and the relative error of the outputs on 2,048
rows that nothing was fitted to, without and with fine-tuning.

    python -m benchmarks.compress_widths --root FOLDER_WITH_ADULT_CSV_GZ
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from benchmarks.compress_dense import Clicks, Floats, adult, layers
from graphbox.compress.dense import (
    Calibration,
    Queries,
    fine_tune,
    layers_of,
    measure_hidden_layers,
    output_error,
    prune_neurons,
)
from graphbox.export.onnx import TensorInput, export_onnx

SHARES = (0.75, 0.5, 0.25, 0.125, 0.0625)
HIDDEN = (512, 256, 128, 64)
ROWS_TO_FIT = 4096
HELD_OUT = 2048


def trained(path: Path, epochs: int) -> tuple[bytes, Floats]:
    """Return the part after the embeddings, and its inputs in random order."""
    codes, numbers, labels, sizes = adult(path)
    model = Clicks(sizes)
    width = model.dense[0].in_features
    assert isinstance(width, int)  # noqa: S101 - for the type checker
    model.dense = layers(width, *HIDDEN, 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-6)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(labels)), 256):
            loss = nn.functional.binary_cross_entropy_with_logits(
                model(codes[batch], numbers[batch]), labels[batch]
            )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    with torch.no_grad():
        rows = model.inputs(codes, numbers)[torch.randperm(len(labels))].contiguous()
    example = TensorInput("x", rows[:4], {0: "n"})
    return export_onnx(model.dense, [example], outputs=("y",)).model, rows.numpy()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder with adult.csv.gz")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, rows = trained(options.root / "adult.csv.gz", options.epochs)
    held_out, learned = rows[:HELD_OUT], rows[HELD_OUT:]
    queries = Queries(len(learned), lambda numbers: {"x": learned[numbers]})
    feeds = Calibration.of_random(queries, max_rows=ROWS_TO_FIT)
    compared = Calibration.of_feeds([{"x": held_out}], max_rows=HELD_OUT)
    measured = measure_hidden_layers(model, feeds)
    print("| share | neurons | weights | error | after fine-tuning |")
    for share in SHARES:
        for keep in (share, measured.shares(share)):
            pruned = prune_neurons(model, feeds, keep)
            tuned = fine_tune(model, pruned.model, queries).model
            errors = [output_error(model, each, compared).rms_relative for each in (pruned.model, tuned)]
            neurons = "-".join(f"{after}" for _, after in pruned.report.neurons.values())
            weights = sum(each.rows * each.columns for each in layers_of(pruned.model))
            print(f"| {share:g} | {neurons} | {weights:,} | {errors[0]:.4f} | {errors[1]:.4f} |", flush=True)


if __name__ == "__main__":
    main()
