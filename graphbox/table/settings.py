"""The settings of a table as JSON keeps them, in checkpoints and in the folder of a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphbox.errors import ConflictError, FormatError, UsageError
from graphbox.table.arguments import is_used
from graphbox.table.document import RESTORE
from graphbox.table.manifest import MANIFEST
from graphbox.table.policy import TablePolicies

if TYPE_CHECKING:
    from graphbox.table.table import EmbeddingTable

POLICY_STATE: Final = "policy_state"
"""Key in a checkpoint's settings of the file with the state of its policies."""


def table_settings(table: EmbeddingTable) -> dict[str, Any]:
    """Return the arguments that make a table like this one, as JSON keeps them."""
    optimizer = table._current.optimizer
    lowest, highest = optimizer.bounds
    return {
        "dim": table._current.dim,
        "dtype": table._current.dtype,
        "optimizer": optimizer.name,
        "lr": table._current.lr,
        "eps": optimizer.eps,
        "init_scale": table._current.init_scale,
        "initial_accumulator": optimizer.initial_accumulator,
        "betas": list(optimizer.betas),
        "beta": optimizer.beta,
        "l1": optimizer.l1,
        "l2": optimizer.l2,
        "weight_decay": optimizer.weight_decay,
        "decoupled_weight_decay": optimizer.decoupled_weight_decay,
        "bounds": [_finite_or_none(lowest), _finite_or_none(highest)],
        "clip_norm": _finite_or_none(optimizer.clip_norm),
        "clip_value": _finite_or_none(optimizer.clip_value),
        "mean_gradient": optimizer.mean_gradient,
        "nonfinite": "skip" if table._current.skip_nonfinite else "refuse",
        "seed": table._current.seed,
        "policies": table.policies.to_document(),
    }


def table_arguments(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the arguments that :func:`table_settings` kept.

    Raises:
        FormatError: they are not those of a table.
    """
    try:
        lowest, highest = settings["bounds"]
        policies = TablePolicies.from_document(settings["policies"])
    except (KeyError, TypeError, ValueError, UsageError):
        raise FormatError(
            "the manifest names no settings of a table", where=str(folder / MANIFEST), hint=RESTORE
        ) from None
    bounds = (-math.inf if lowest is None else lowest, math.inf if highest is None else highest)
    unused = {name for name in settings if not is_used(name, settings.get("optimizer", ""))}
    arguments = {
        name: value for name, value in settings.items() if name not in ("policies", POLICY_STATE, *unused)
    }
    return {**arguments, "bounds": bounds, **policies.arguments()}


def check_same_settings(given: Mapping[str, Any], kept: Mapping[str, Any], path: Path) -> None:
    """Check that arguments describe the table that a folder holds; the learning rate may differ.

    Raises:
        ConflictError: they describe another one.
    """
    theirs = {**json.loads(json.dumps(kept, default=float)), "lr": given["lr"]}
    ours = json.loads(json.dumps(given, default=float))
    differences = [
        f"{name} {_shown(theirs.get(name))}, given {_shown(ours.get(name))}"
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name) != ours.get(name)
    ]
    if differences:
        raise ConflictError(
            f"the table in the folder was made with other arguments: {'; '.join(differences)}",
            where=str(path),
            hint="EmbeddingTable.open(path) opens it as it is; for a new table choose another folder, or "
            "remove this one",
        )


def _shown(value: object) -> str:
    """Return a setting as people write it: native numbers are of float32."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return f"({', '.join(map(_shown, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_shown(each)}' for name, each in value.items())}}}"
    return repr(value)


def _finite_or_none(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None
