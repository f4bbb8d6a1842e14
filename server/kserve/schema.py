"""The JSON of the KServe protocol besides inference: metadata, configuration, statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import graphbox
from graphbox.artifact import TensorSpec
from graphbox.deploy.signature import Signature
from graphbox.server.telemetry import ModelStatistics

__all__ = ["model_configuration", "model_metadata", "model_statistics", "server_metadata"]

_EXTENSIONS = [
    "classification",
    "model_repository",
    "schedule_policy",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
]


def server_metadata(*, has_shared_memory: bool) -> dict[str, Any]:
    """Return name, version and extensions of the server.

    Args:
        has_shared_memory: whether clients may send tensors in shared memory.
    """
    further = ["system_shared_memory"] if has_shared_memory else []
    return {"name": "graphbox", "version": graphbox.__version__, "extensions": [*_EXTENSIONS, *further]}


def model_metadata(name: str, versions: Sequence[int], signature: Signature) -> dict[str, Any]:
    """Return the inputs and outputs of a model, and the versions that can be asked for."""
    return {
        "name": name,
        "versions": [str(version) for version in versions],
        "platform": signature.platform,
        "inputs": [_tensor(spec) for spec in signature.inputs.values()],
        "outputs": [_tensor(spec) for spec in signature.outputs.values()],
    }


def model_configuration(name: str, signature: Signature, max_rows: int) -> dict[str, Any]:
    """Return the configuration of a model in Triton's words.

    ``max_batch_size`` is 0: shapes are whole, the first size is the batch.
    """
    return {
        "name": name,
        "platform": signature.platform,
        "backend": signature.platform,
        "max_batch_size": 0,
        "input": [
            _configured(spec) | ({"optional": True} if spec.name in signature.defaults else {})
            for spec in signature.inputs.values()
        ],
        "output": [_configured(spec) for spec in signature.outputs.values()],
        "parameters": {
            name: {"string_value": value}
            for name, value in {"max_rows": str(max_rows), **signature.properties}.items()
        },
    }


def model_statistics(entries: Iterable[tuple[str, str, ModelStatistics]]) -> dict[str, Any]:
    """Return the statistics of model versions."""
    return {
        "model_stats": [
            {"name": name, "version": version, **statistics.as_json()}
            for name, version, statistics in entries
        ]
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _configured(spec: TensorSpec) -> dict[str, Any]:
    kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(spec.shape)}
