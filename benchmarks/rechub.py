"""Training of a model of torch-rechub on rows of a log, alike for all models that are compared with ours."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARTS", "Part", "fit", "part_rows"]

PARTS = ("train", "validation", "test")
"""Parts of the rows: to learn from, to choose the epoch by, to test on."""

Part = tuple[dict[str, NDArray[Any]], NDArray[Any]]
"""Inputs by name, and labels, of the rows of a part."""


def part_rows(
    inputs: Mapping[str, NDArray[Any]], labels: NDArray[Any], parts: NDArray[np.str_]
) -> dict[str, Part]:
    """Return the rows of each part.

    Args:
        inputs: by name, [rows, ...].
        labels: [rows, ...].
        parts: [rows], names of :data:`PARTS`.
    """
    return {
        part: ({name: each[parts == part] for name, each in inputs.items()}, labels[parts == part])
        for part in PARTS
    }


def fit(
    trainer: str, model: Any, arguments: Sequence[Any], rows: Mapping[str, Part], weight_decay: float
) -> tuple[Any, Sequence[Any]]:
    """Train a model, at most 20 epochs, until three in a row were no better; return trainer and loaders.

    Args:
        trainer: name of a class of ``torch_rechub.trainers``.
        model: what it trains.
        arguments: of the class, after the model.
        rows: of each part.
        weight_decay: of Adam.
    """
    loaders: Sequence[Any] = (
        import_module("torch_rechub.utils.data")
        .DataGenerator(*rows["train"])
        .generate_dataloader(
            x_val=rows["validation"][0],
            y_val=rows["validation"][1],
            x_test=rows["test"][0],
            y_test=rows["test"][1],
            batch_size=512,
        )
    )
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        made = getattr(import_module("torch_rechub.trainers"), trainer)(
            model,
            *arguments,
            optimizer_params={"lr": 1e-3, "weight_decay": weight_decay},
            n_epoch=20,
            earlystop_patience=3,
            model_path=folder,
        )
        made.fit(loaders[0], loaders[1])
    return made, loaders
