"""Open exported models, and answer the same queries of each with all that it can be asked.

    model_answers.py RESULTS.npz TARGET MODEL_FOLDER...

Run by two machines; `test_models.py` compares the arrays.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.deploy import open_model

BATCH_SIZES = (1, 7)
K = 5


def arrays_of(name: str, answer: object) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the arrays of an answer, each with a name."""
    if isinstance(answer, np.ndarray):
        yield name, answer
    elif isinstance(answer, Mapping):
        for key, value in answer.items():
            yield from arrays_of(f"{name}, {key}", value)
    elif isinstance(answer, tuple | list):
        for place, value in enumerate(answer):
            yield from arrays_of(f"{name}, {place}", value)
    elif dataclasses.is_dataclass(answer):
        for each in dataclasses.fields(answer):
            yield from arrays_of(f"{name}, {each.name}", getattr(answer, each.name))


def main() -> None:
    results, target, *folders = sys.argv[1:]
    arrays: dict[str, npt.NDArray[Any]] = {}
    for folder in map(Path, folders):
        with open_model(folder, target) as model:
            operations = [each for each in model.OPERATIONS if each != "program" or model.inputs]
            for operation in operations:
                for batch in BATCH_SIZES:
                    pool = (np.arange(3 * batch).reshape(3, batch) * 5) % model.num_queries
                    answer = model.calls(operation, pool, K)
                    name = f"{folder.parent.name}: {operation} of {batch}"
                    for number in range(len(pool)):
                        arrays |= arrays_of(f"{name}, {number}", answer(number))
    np.savez(results, **arrays)  # type: ignore[arg-type]  # NumPy's stub takes the option for an array


if __name__ == "__main__":
    main()
