"""Writes how a node that was never seen enters a graph network: what each of its features adds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphbox.artifact import ArtifactWriter
from graphbox.artifact.preprocess import NodeFeature, UnseenInputs
from graphbox.models.features import LearntFeature
from graphbox.models.graph_inputs import POSITION, NodeInputs
from graphbox.models.graph_network import GraphNetwork

_BIAS = "unseen/bias.npy"


def write_unseen_inputs(
    writer: ArtifactWriter, network: GraphNetwork, node_type: str, features: Mapping[str, LearntFeature]
) -> UnseenInputs:
    """Write the bias of a node type's inputs and the weights of its features; return what describes them.

    Args:
        writer: of the version.
        network: the trained network.
        node_type: of the nodes.
        features: what is known of each feature, in the order in which the network reads them.
    """
    module = network.input_module(node_type)
    writer.add_array(_BIAS, _array(module.bias))
    weights = _weights(module, features)
    listed = []
    for number, (name, learnt) in enumerate(features.items()):
        path = f"unseen/{number}.npy"
        writer.add_array(path, weights[name])
        values = None
        if learnt.slots is not None:
            values = f"unseen/{number}.values.npy"
            writer.add_array(values, learnt.slots)
        listed.append(
            NodeFeature(
                name=name,
                kind=learnt.kind,
                dim=learnt.dim or None,
                weights=path,
                categories=learnt.categories,
                mean=learnt.mean,
                deviation=learnt.deviation,
                values=values,
            )
        )
    if module.positions is not None:
        path = "unseen/position.npy"
        weights_of_position = _array(module.positions.weight.T)
        writer.add_array(path, weights_of_position)
        listed.append(NodeFeature(name=POSITION, kind="vector", dim=len(weights_of_position), weights=path))
    return UnseenInputs(bias=_BIAS, features=tuple(listed), relu=network.shape.kind.starts_active)


def _weights(module: NodeInputs, features: Mapping[str, LearntFeature]) -> dict[str, npt.NDArray[np.float32]]:
    """Return the weights of each feature, float32 [k, dim]; those of a kind are in the order of features."""
    known = module.features
    categories = [] if known is None else [each.weight for each in known.categories.children()]
    tables = iter(_array(each) for each in categories if isinstance(each, Tensor))
    numbers = iter([] if known is None or known.numbers is None else _array(known.numbers.weight).T)
    vectors = None if module.vectors is None else _array(module.vectors.weight).T
    slots = iter(module.slots)
    found: dict[str, npt.NDArray[np.float32]] = {}
    width = 0
    for name, learnt in features.items():
        if learnt.kind == "categorical":
            found[name] = next(tables)
        elif learnt.kind == "slots":
            # One row at least, which stands for nothing where no value is known.
            found[name] = _array(next(slots))[: 0 if learnt.slots is None else len(learnt.slots)]
        elif learnt.kind == "vector" and vectors is not None:
            found[name] = vectors[width : width + learnt.dim]
            width += learnt.dim
        else:
            found[name] = next(numbers)[None]
    return found


def _array(values: Tensor) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(values.detach().cpu().numpy())
