"""Models as KServe clients see them: a whole model, and its bare ONNX part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, TensorSpec
from graphbox.deploy import (
    DeployedClick,
    DeployedEncoder,
    DeployedKnowledgeGraph,
    DeployedModel,
    DeployedTensors,
)
from graphbox.deploy.adapters.kserve import DIGEST_PROPERTY, PRECISION_PROPERTY, THREADS_PROPERTY
from graphbox.errors import InvalidRequestError, NotFoundError
from graphbox.server.executor import CostEstimate
from graphbox.server.kserve.tensors import Tensor

__all__ = [
    "ONNX_SUFFIX",
    "AnswerEndpoint",
    "ClickEndpoint",
    "EncoderEndpoint",
    "Endpoint",
    "OnnxEndpoint",
    "endpoint_of",
]

ONNX_SUFFIX = ".onnx"
"""Suffix of the name of a model's bare ONNX part."""

MAX_ID_BYTES = 1024
"""Longest id, in UTF-8, that is looked up."""

_NODE_TYPE = "node_type"
_MAX_ANSWERS = 1 << 20


class Endpoint(Protocol):
    """A model of the KServe protocol.

    Attributes:
        platform: name of the runtime.
        inputs: by name.
        outputs: by name.
        parameters: names of the request parameters it reads.
        properties: parameters of its configuration, for clients that compare programs.
        cost: estimate from its executions.
    """

    platform: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    parameters: frozenset[str]
    properties: Mapping[str, str]
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


class EncoderEndpoint:
    """Original ids in, embeddings out: lookup and ONNX part in one.

    The input ``id`` is BYTES or INT64 [-1], as the ids of the graph are; the output ``embedding`` is
    FP32 [-1, dim], in the order of the ids. Of an encoder that classifies nodes ``probability``, FP32
    [-1, classes], is another. The request parameter ``node_type`` says what the ids
    name where the model knows several node types.
    """

    platform = "graphbox"
    parameters = frozenset({_NODE_TYPE})
    properties: Mapping[str, str] = MappingProxyType({})

    def __init__(self, artifact: Artifact, model: DeployedEncoder) -> None:
        self._model = model
        self._query_types = model.query_types
        self.inputs = _by_name(artifact.manifest.inputs)
        self.outputs = _by_name(artifact.manifest.outputs)
        self.cost = CostEstimate()
        (self._input,) = self.inputs

    def work(self, inputs: Mapping[str, Tensor]) -> int:
        """Return the number of ids."""
        return len(inputs[self._input])

    def run(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the embeddings, and probabilities of classes; see `Endpoint.run`."""
        node_type = parameters.get(_NODE_TYPE)
        if node_type is not None and node_type not in self._query_types:
            raise InvalidRequestError(
                f"expected one of the node types {', '.join(self._query_types)}, received {node_type!r:.64}",
                where=f"parameters.{_NODE_TYPE}",
            )
        tensor = inputs[self._input]
        if not len(tensor):
            return {name: np.empty((0, spec.shape[1]), np.float32) for name, spec in self.outputs.items()}
        try:
            ids = _original_ids(tensor)
            if self._model.classes:
                found = self._model.classify_indices(self._model.index(ids, node_type))
                return dict(zip(self.outputs, found, strict=True))
            return dict(zip(self.outputs, [self._model.encode(ids, node_type)], strict=True))
        except NotFoundError as error:
            # 404 would say that the model does not exist.
            raise InvalidRequestError(
                error.message, where=f"input `{self._input}`", hint=error.hint
            ) from error


class ClickEndpoint:
    """Columns of rows in, probabilities out.

    There is an input for each column: FP32 [-1] of numbers (NaN where one is missing), INT64 [-1] of whole
    ones, BOOL [-1], BYTES [-1] of categories (empty where one is missing) and of slots (values separated by
    ``|``), FP32 [-1, dim] of vectors. The output ``probability`` is FP32 [-1].
    """

    platform = "graphbox"
    parameters = frozenset[str]()
    properties: Mapping[str, str] = MappingProxyType({})

    def __init__(self, artifact: Artifact, model: DeployedClick) -> None:
        self._model = model
        self.inputs = _by_name(artifact.manifest.inputs)
        self.outputs = _by_name(artifact.manifest.outputs)
        self.cost = CostEstimate()
        (self._output,) = self.outputs

    def work(self, inputs: Mapping[str, Tensor]) -> int:
        """Return the number of rows."""
        return len(next(iter(inputs.values())))

    def run(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the probabilities; see `Endpoint.run`."""
        return {self._output: self._model.predict_tensors(inputs).probability}


class AnswerEndpoint:
    """Entities and relations in, the likeliest others out.

    Inputs are ``id``, BYTES or INT64 [-1], and ``relation``, BYTES [-1]; outputs ``answer``, of the type of
    ``id``, and ``score``, FP32, both [-1, k]. Request parameters: ``k``, 10 by default; ``asked``: ``tail``,
    the default, of heads, or ``head`` of tails; ``known``: whether what the data has already is among the
    answers, by default not.
    """

    platform = "graphbox"
    parameters = frozenset({"asked", "k", "known"})
    properties: Mapping[str, str] = MappingProxyType({})

    def __init__(self, artifact: Artifact, model: DeployedKnowledgeGraph, most: int = 1000) -> None:
        self._artifact = artifact
        self._model = model
        self._most = most
        self.inputs = _by_name(artifact.manifest.inputs)
        self.outputs = _by_name(artifact.manifest.outputs)
        self.cost = CostEstimate()
        self._ids, self._relations = self.inputs
        self._answer, self._score = self.outputs
        self._are_integers = self.outputs[self._answer].datatype == "INT64"

    def work(self, inputs: Mapping[str, Tensor]) -> int:
        """Return the number of questions."""
        return len(inputs[self._ids])

    def run(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the answers; see `Endpoint.run`."""
        k, to_heads, with_known = self._asked(parameters)
        relations = _texts(inputs[self._relations], "relation names")
        ids = inputs[self._ids]
        if len(ids) != len(relations):
            raise InvalidRequestError(
                f"expected a relation for each of {len(ids)} ids, received {len(relations)}",
                where=f"input `{self._relations}`",
            )
        if len(ids) * k > _MAX_ANSWERS:
            raise InvalidRequestError(
                f"expected at most {_MAX_ANSWERS} answers in one request, received {len(ids)} questions "
                f"with k = {k}",
                hint="send fewer questions in one request",
            )
        answers = np.empty((len(ids), k), np.int64 if self._are_integers else np.object_)
        scores = np.empty((len(ids), k), np.float32)
        places_of: dict[str, list[int]] = {}
        for place, relation in enumerate(relations):
            places_of.setdefault(relation, []).append(place)
        for relation, places in places_of.items():
            nodes = self._nodes(relation, ids[places], to_heads)
            found = self._model.answer_indices(relation, nodes, k, to_heads=to_heads, with_known=with_known)
            for place, each in zip(places, found, strict=True):
                if len(each.index) < k:
                    raise InvalidRequestError(
                        f"expected k of at most {len(each.index)}, the number of answers to question "
                        f"{place}, received {k}",
                        where="parameters.k",
                    )
                named = self._artifact.ids(each.node_type).take(each.index)
                answers[place] = named if self._are_integers else [str(name).encode() for name in named]
                scores[place] = each.score
        return {self._answer: answers, self._score: scores}

    def _nodes(self, relation: str, ids: Tensor, to_heads: bool) -> npt.NDArray[np.int64]:
        try:
            asked = self._artifact.ids(self._model.end_types(relation)[to_heads])
            return asked.index([asked.from_text(str(each)) for each in _original_ids(ids)])
        except NotFoundError as error:
            # 404 would say that the model does not exist.
            raise InvalidRequestError(error.message, hint=error.hint) from error

    def _asked(self, parameters: Mapping[str, Any]) -> tuple[int, bool, bool]:
        k = parameters.get("k", 10)
        if type(k) is not int or not 1 <= k <= self._most:
            raise InvalidRequestError(
                f"expected an integer between 1 and {self._most}, received {k!r:.64}", where="parameters.k"
            )
        asked = parameters.get("asked", "tail")
        if asked not in ("head", "tail"):
            raise InvalidRequestError(
                f"expected head or tail, received {asked!r:.64}", where="parameters.asked"
            )
        known = parameters.get("known", False)
        if not isinstance(known, bool):
            raise InvalidRequestError(
                f"expected true or false, received {known!r:.64}", where="parameters.known"
            )
        return k, asked == "head", known


def endpoint_of(artifact: Artifact, model: DeployedModel) -> Endpoint:
    """Return a model as KServe clients see it."""
    match model:
        case DeployedClick():
            return ClickEndpoint(artifact, model)
        case DeployedKnowledgeGraph():
            return AnswerEndpoint(artifact, model)
        case DeployedEncoder():
            return EncoderEndpoint(artifact, model)
        case DeployedTensors():
            return OnnxEndpoint(artifact, model)
    raise TypeError(f"no endpoint for a {type(model).__name__}")


class OnnxEndpoint:
    """The ONNX part alone, with the inputs and outputs it has; of bare tensors the whole model."""

    platform = "onnxruntime_onnx"
    parameters = frozenset[str]()

    def __init__(self, artifact: Artifact, model: DeployedModel) -> None:
        onnx = artifact.manifest.onnx
        if onnx is None:
            raise NotFoundError(
                f"the model `{artifact.manifest.name}` has no ONNX part: its embeddings are rows"
            )
        self._model = model
        self.inputs = _by_name(onnx.inputs)
        self.outputs = _by_name(onnx.outputs)
        self.properties: Mapping[str, str] = {
            DIGEST_PROPERTY: artifact.manifest.files[onnx.path].sha256,
            PRECISION_PROPERTY: str(model.effective["precision"]),
            THREADS_PROPERTY: str(model.effective["threads"]),
        }
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
    longest = max(map(len, tensor), default=0)
    if longest > MAX_ID_BYTES:
        raise InvalidRequestError(f"expected ids of at most {MAX_ID_BYTES} bytes, received one of {longest}")
    return _texts(tensor, "ids")


def _texts(tensor: Tensor, what: str) -> list[str]:
    try:
        return [element.decode() for element in tensor]
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"expected {what} in UTF-8, received other bytes: {error}") from error
