"""Compares an exported encoder, as it will be served, with the trained one it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from graphbox.errors import GateError

Query = TypeVar("Query")
Vectors = npt.NDArray[np.float32]

_BATCH = 256
_SINGLE_NODES = 16


@dataclass(frozen=True)
class ParityBounds:
    """Bounds on the difference between an exported model and the trained one.

    Attributes:
        rows: most real inputs to compare, evenly spread over all.
        absolute: largest error of an element allowed.
        relative: largest error of an element allowed, relative to the largest of its row.
    """

    rows: int = 1000
    absolute: float = 1e-4
    relative: float = 1e-3


@dataclass(frozen=True)
class ParityReport:
    """Differences between exported and trained model.

    Attributes:
        rows: real inputs compared, in all cases together.
        max_absolute_error: largest difference of an element.
        max_relative_error: largest difference of an element, relative to the largest of its row.
        bound_absolute: what was allowed.
        bound_relative: what was allowed.
        cases: largest absolute difference by case.
    """

    rows: int
    max_absolute_error: float
    max_relative_error: float
    bound_absolute: float
    bound_relative: float
    cases: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def check_parity(
    exported: Callable[[Query], Vectors],
    trained: Callable[[Query], Vectors],
    cases: Mapping[str, Sequence[Query]],
    bounds: ParityBounds,
    *,
    size: Callable[[Query], int] = len,  # type: ignore[assignment]  # of what has a length
) -> ParityReport:
    """Compare on every batch of every case.

    Args:
        exported: returns what the artifact gives as it is served, float32 [n, dim].
        trained: returns what the trained model gives, float32 [n, dim].
        cases: batches of queries by case.
        bounds: what is allowed.
        size: returns the number of queries of a batch.

    Raises:
        GateError: when an error is above its bound, or an output is not finite.
    """
    worst: dict[str, float] = {}
    relative = 0.0
    rows = 0
    for case, batches in cases.items():
        worst[case] = 0.0
        for batch in batches:
            received, expected = exported(batch), trained(batch)
            if received.shape != expected.shape or not np.isfinite(received).all():
                raise GateError(
                    f"expected finite outputs {list(expected.shape)}, received {list(received.shape)} "
                    f"with {int((~np.isfinite(received)).sum())} values that are not finite",
                    where=f"parity case `{case}`",
                )
            rows += size(batch)
            if not received.size:
                continue
            difference = np.abs(received - expected)
            worst[case] = max(worst[case], float(difference.max()))
            scale = np.maximum(np.abs(expected).max(axis=1), np.finfo(np.float32).tiny)
            relative = max(relative, float((difference.max(axis=1) / scale).max()))
    report = ParityReport(
        rows, max(worst.values(), default=0.0), relative, bounds.absolute, bounds.relative, worst
    )
    if report.max_absolute_error > bounds.absolute or relative > bounds.relative:
        raise GateError(
            f"expected the exported model within {bounds.absolute:g} absolute and {bounds.relative:g} "
            f"relative of the trained one, received {report.max_absolute_error:g} and {relative:g}",
            where=f"parity case `{max(worst, key=lambda case: worst[case])}`",
            hint="nothing was written; the export does not compute what was trained",
        )
    return report


def node_cases(degree: npt.NDArray[np.int64], rows: int) -> dict[str, list[npt.NDArray[np.int64]]]:
    """Return batches of nodes to compare, by case; a case without such nodes has no batch.

    Args:
        degree: int64 [nodes], how many neighbours each has.
        rows: most nodes, evenly spread over all.
    """
    nodes = len(degree)
    spread = np.unique(np.linspace(0, max(nodes - 1, 0), min(rows, nodes)).astype(np.int64))
    isolated = np.flatnonzero(degree == 0)[:_SINGLE_NODES]
    fullest = np.argsort(-degree, kind="stable")[:_SINGLE_NODES]
    batches = {
        "batches": [spread[start : start + _BATCH] for start in range(0, len(spread), _BATCH)],
        "one node": list(spread[:_SINGLE_NODES, None]),
        "empty batch": [spread[:0]],
        "nodes without neighbours": [isolated] if len(isolated) else [],
        "nodes with the most neighbours": [fullest] if len(fullest) else [],
        "the same node twice": [np.repeat(spread[:1], 2)] if len(spread) else [],
    }
    return {case: found for case, found in batches.items() if found}
