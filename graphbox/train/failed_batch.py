"""A batch that gave no finite loss, kept for a person to look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphbox.durable import write_atomically
from graphbox.train.trainer import Trainer


def save_failed_batch(folder: Path, trainer: Trainer, where: Mapping[str, Any]) -> Path:
    """Write ``batch.npz`` (what the batch is made of) and ``failure.json`` into a folder; return it.

    ``failure.json`` says where the batch was, and which arrays of the batch and which parameters hold numbers
    that are not finite.
    """
    arrays = trainer.batch_arrays(int(where["epoch"]), int(where["batch"]))
    with write_atomically(folder / "batch.npz") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]  # arrays by name
    spoilt = [name for name, value in trainer.dense().items() if not bool(torch.isfinite(value).all())]
    report = {
        **where,
        "arrays": {name: list(array.shape) for name, array in arrays.items()},
        "non_finite_arrays": [name for name, array in arrays.items() if not _finite(array)],
        "non_finite_parameters": spoilt,
    }
    with write_atomically(folder / "failure.json") as stream:
        stream.write(json.dumps(report, indent=1).encode())
    return folder


def _finite(array: NDArray[Any]) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
