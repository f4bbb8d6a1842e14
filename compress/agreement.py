"""Agreement with the original model: the quality of a compressed model where no task measures it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.deploy import DeployedEncoder, DeployedModel
from graphbox.errors import UsageError

__all__ = ["METRIC", "Agreement"]

METRIC = "agreement"
"""Name of the metric: 1 means equal answers."""

_QUERIES = 1_000
_NEAREST = 20
_CALLS = 8
_BATCH = 32


class Agreement:
    """Measures how far the answers of a model agree with those of the original.

    Of embeddings that rank nodes it is the share of the 20 nearest nodes in common, over up to 1,000 queries;
    of other models 1 minus the relative root mean square difference of the ONNX part's outputs, at least 0.

    Args:
        original: the model to agree with; it stays open as long as this is used.

    Raises:
        UsageError: the model has no queries to ask.
    """

    def __init__(self, original: DeployedModel) -> None:
        if not original.num_queries:
            raise UsageError(
                "expected a model with a query to compare answers to, received one without",
                where=str(original.artifact.path),
            )
        self._original = original
        self._queries = _queries(original)
        self._expected = self._answers(original)

    def __call__(self, model: DeployedModel, _part: str) -> Mapping[str, float]:
        """Return the agreement, and the number of queries that were compared."""
        return {METRIC: self._agreement(self._answers(model)), "queries": float(self._queries.size)}

    def _answers(self, model: DeployedModel) -> Any:
        if isinstance(model, DeployedEncoder) and model.manifest.targets:
            found, _ = model.neighbors_of_indices(self._queries.ravel(), self._nearest(model))
            return found
        call = model.calls("program", self._queries, 1)
        return [_outputs(call(number)) for number in range(len(self._queries))]

    def _nearest(self, model: DeployedEncoder) -> int:
        candidates = len(model.id_index(model.target_type()))
        return min(_NEAREST, max(1, candidates - 1))

    def _agreement(self, received: Any) -> float:
        if isinstance(self._expected, np.ndarray):
            shared = [
                len(np.intersect1d(a, b)) / len(a) for a, b in zip(self._expected, received, strict=True)
            ]
            return float(np.mean(shared))
        difference = total = 0.0
        for expected, found in zip(self._expected, received, strict=True):
            for name, values in expected.items():
                difference += float(np.square(found[name] - values).sum())
                total += float(np.square(values).sum())
        relative = float(np.sqrt(difference / total)) if total else float(difference > 0)
        return max(0.0, 1.0 - relative) if np.isfinite(relative) else 0.0


def _queries(model: DeployedModel) -> npt.NDArray[np.int64]:
    """Return queries int64 [calls, batch], the same for a model in any process."""
    rng = np.random.default_rng(0)
    if isinstance(model, DeployedEncoder) and model.manifest.targets:
        count = min(_QUERIES, model.num_queries)
        return np.sort(rng.choice(model.num_queries, count, replace=False))[None].astype(np.int64)
    return rng.integers(0, model.num_queries, (_CALLS, _BATCH))


def _outputs(answer: Any) -> dict[str, npt.NDArray[np.float64]]:
    return {name: np.asarray(values, np.float64) for name, values in answer.items()}
