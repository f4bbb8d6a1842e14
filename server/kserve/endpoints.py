"""What a served model looks like to a KServe client: the model itself, and its bare ONNX part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from graphbox.artifact import Artifact, TensorSpec
from graphbox.deploy import DeployedModel
from graphbox.errors import InvalidRequestError, NotFoundError
from graphbox.server.kserve.executor import CostEstimate
from graphbox.server.kserve.tensors import Tensor

__all__ = ["ONNX_SUFFIX", "Endpoint", "ModelEndpoint", "OnnxEndpoint"]

ONNX_SUFFIX = ".onnx"
"""What the name of a model's bare ONNX part ends with."""

_NODE_TYPE = "node_type"


class Endpoint(Protocol):
    """A model of the KServe protocol.

    Attributes:
        platform: what runs it.
        inputs: by name.
        outputs: by name.
        cost: what its executions took.
    """

    platform: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    cost: CostEstimate

    def work(self, inputs: Mapping[str, Tensor]) -> int:
        """Return a number that the time to answer grows with."""
        ...

    def run(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the outputs by name.

        Raises:
            InvalidRequestError: the inputs are well-formed but mean nothing to the model.
        """
        ...


class ModelEndpoint:
    """Original ids in, embeddings out: lookup and ONNX part in one.

    The input ``id`` is BYTES or INT64 [-1], as the ids of the graph are; the output ``embedding`` is
    FP32 [-1, dim], in the order of the ids. The request parameter ``node_type`` says what the ids
    name where the model knows several node types.
    """

    platform = "graphbox"

    def __init__(self, artifact: Artifact, model: DeployedModel) -> None:
        self._model = model
        self._query_types = artifact.preprocess.query_types
        self._dim = artifact.manifest.dim
        self.inputs = _by_name(artifact.manifest.inputs)
        self.outputs = _by_name(artifact.manifest.outputs)
        self.cost = CostEstimate()
        (self._input,) = self.inputs
        (self._output,) = self.outputs

    def work(self, inputs: Mapping[str, Tensor]) -> int:
        """Return the number of ids."""
        return len(inputs[self._input])

    def run(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the embeddings; see `Endpoint.run`."""
        node_type = parameters.get(_NODE_TYPE)
        if node_type is not None and node_type not in self._query_types:
            raise InvalidRequestError(
                f"expected one of the node types {', '.join(self._query_types)}, received {node_type!r}",
                where=f"parameters.{_NODE_TYPE}",
            )
        tensor = inputs[self._input]
        if not len(tensor):
            return {self._output: np.empty((0, self._dim), dtype=np.float32)}
        try:
            return {self._output: self._model.encode(_original_ids(tensor), node_type)}
        except NotFoundError as error:
            # 404 would say that the model is not there.
            raise InvalidRequestError(
                error.message, where=f"input `{self._input}`", hint=error.hint
            ) from error


class OnnxEndpoint:
    """The ONNX part alone, with the inputs and outputs it has."""

    platform = "onnxruntime_onnx"

    def __init__(self, artifact: Artifact, model: DeployedModel) -> None:
        onnx = artifact.manifest.onnx
        if onnx is None:
            raise NotFoundError(
                f"the model `{artifact.manifest.name}` has no ONNX part: its embeddings are rows"
            )
        self._model = model
        self.inputs = _by_name(onnx.inputs)
        self.outputs = _by_name(onnx.outputs)
        self.cost = CostEstimate()

    def work(self, inputs: Mapping[str, Tensor]) -> int:
        """Return the number of elements."""
        return sum(tensor.size for tensor in inputs.values())

    def run(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the outputs of the ONNX part; see `Endpoint.run`."""
        return self._model.run(inputs)


def _by_name(specs: Sequence[TensorSpec]) -> dict[str, TensorSpec]:
    return {spec.name: spec for spec in specs}


def _original_ids(tensor: Tensor) -> list[str] | list[int]:
    if tensor.dtype != np.object_:
        numbers: list[int] = tensor.tolist()
        return numbers
    try:
        return [element.decode() for element in tensor]
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"expected ids in UTF-8, received other bytes: {error}") from error
