"""Every kind of layer against its paper's formula, node by node, on a small random graph of two types.

References read the layer's parameters by name and go over each node's edges in plain NumPy. The graph has
parallel edges, an edge from a node to itself, nodes at which nothing arrives, and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.artifact.edge_features import CATEGORY_DIM
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.models.edge_inputs import EdgeSizes
from graphbox.models.graph_layers import Edges, GraphLayer
from graphbox.models.layer_kinds import LAYER_KINDS, LayerShape, make_layer

DIM, HEADS = 4, 2
NODES = {"user": 5, "item": 7}
BOTH: tuple[EdgeType, ...] = (
    ("user", "likes", "item"),
    ("item", "liked_by", "user"),
    ("item", "near", "item"),
    ("item", "after", "item"),
)
ONE: tuple[EdgeType, ...] = (("item", "near", "item"),)
WITHIN: tuple[EdgeType, ...] = BOTH[2:]

Array = NDArray[np.float64]
Around = list[tuple[int, float]]


class Case:
    """A layer with random parameters, vectors, and edges; ``weighted`` as the run file has it."""

    def __init__(
        self,
        name: str,
        relations: Sequence[EdgeType],
        *,
        weighted: bool = False,
        options: Mapping[str, Any] | None = None,
        edge_sizes: Mapping[EdgeType, EdgeSizes] | None = None,
        seed: int = 0,
    ) -> None:
        generator = np.random.default_rng([seed, len(relations)])
        self.edge_sizes = edge_sizes or {}
        self.relations = relations
        types = [each for each in NODES if any(each in (one[0], one[2]) for one in relations)]
        kind = LAYER_KINDS[name]
        torch.manual_seed(seed)
        shape = LayerShape(DIM, relations, types, options or {}, weighted, self.edge_sizes)
        self.layer: GraphLayer = make_layer(name, kind, shape).eval()
        with torch.no_grad():  # what starts as 0 or 1 would hide mistakes
            for parameter in self.layer.parameters():
                parameter.copy_(torch.randn(parameter.shape) * 0.7)
        self.parameters = {key: value.double().numpy() for key, value in self.layer.state_dict().items()}
        self.vectors: dict[str, Array] = {each: generator.normal(size=(NODES[each], DIM)) for each in types}
        self.first: dict[str, Array] = {each: generator.normal(size=(NODES[each], DIM)) for each in types}
        self.edges: dict[EdgeType, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        self.has_weights = weighted or kind.normalized
        for source, relation, target in relations:
            rows = generator.integers(0, NODES[source], 14)
            columns = generator.integers(1, NODES[target], 14)  # at node 0 nothing arrives
            rows[1], columns[1] = rows[0], columns[0]
            if source == target:
                rows[2] = columns[2]
            weight = generator.uniform(0.2, 2.0, 14) if self.has_weights else np.ones(14)
            self.edges[source, relation, target] = np.stack([rows, columns]), weight
        self.columns: dict[EdgeType, Array] = {
            relation: np.concatenate(
                [
                    *(generator.integers(0, size, (14, 1)) for size in sizes.categories),
                    generator.normal(size=(14, sizes.numbers)),
                ],
                axis=1,
            )
            for relation, sizes in self.edge_sizes.items()
        }

    def found(self) -> dict[str, NDArray[np.float32]]:
        """Return what the layer computes."""
        edges = {
            relation: Edges(
                torch.from_numpy(index),
                torch.from_numpy(weight).float() if self.has_weights else None,
                torch.from_numpy(self.columns[relation]).float() if relation in self.columns else None,
            )
            for relation, (index, weight) in self.edges.items()
        }
        vectors, first = (
            {name: torch.from_numpy(each).float() for name, each in given.items()}
            for given in (self.vectors, self.first)
        )
        with torch.no_grad():
            return {name: each.numpy() for name, each in self.layer(vectors, edges, first).items()}

    def of(self, relation: EdgeType, name: str) -> Any:
        """Return a parameter of a relation's convolution."""
        return self.parameters[f"convolutions.{edge_type_text(relation)}.{name}"]

    def around(self, relation: EdgeType, node: int) -> Around:
        """Return source and weight of each edge that arrives at a node."""
        (rows, columns), weight = self.edges[relation]
        return [(int(rows[e]), float(weight[e])) for e in np.flatnonzero(columns == node)]

    def by_relation(self, message: Callable[[EdgeType, int], Array], own: bool = False) -> dict[str, Array]:
        """Return the sum of what arrives by each relation, and of the node's own vector mapped."""
        result = {}
        for name, vectors in self.vectors.items():
            arriving = [relation for relation in self.relations if relation[2] == name]
            rows = [
                np.sum([message(relation, node) for relation in arriving], axis=0)
                if arriving
                else vectors[node]
                for node in range(len(vectors))
            ]
            result[name] = np.array(rows)
            if own and f"own.{name}.weight" in self.parameters:
                mapped = vectors @ self.parameters[f"own.{name}.weight"].T
                result[name] += mapped + self.parameters[f"own.{name}.bias"]
        return result


def check(case: Case, expected: Mapping[str, Array]) -> None:
    found = case.found()
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        np.testing.assert_allclose(found[name], each, rtol=1e-4, atol=1e-5, err_msg=name)


def softmax(values: Array) -> Array:
    shifted = np.exp(values - values.max())
    result: Array = shifted / shifted.sum()
    return result


def leaky(values: Array) -> Array:
    return np.where(values > 0, values, 0.2 * values)


GRAPHS = pytest.mark.parametrize("relations", [BOTH, ONE], ids=["two types", "one relation"])


@GRAPHS
@pytest.mark.parametrize("aggr", ["mean", "max", "pool"])
def test_sage(relations: Sequence[EdgeType], aggr: str) -> None:
    case = Case("sage", relations, options={} if aggr == "mean" else {"aggr": aggr})

    def message(relation: EdgeType, node: int) -> Array:
        given = [case.vectors[relation[0]][source] for source, _ in case.around(relation, node)]
        if aggr == "pool":
            weight, bias = case.of(relation, "lin.weight"), case.of(relation, "lin.bias")
            given = [np.maximum(weight @ each + bias, 0) for each in given]
        gathered = np.zeros(DIM)
        if given:
            gathered = np.mean(given, axis=0) if aggr == "mean" else np.max(given, axis=0)
        own = case.of(relation, "lin_r.weight") @ case.vectors[relation[2]][node]
        arrived: Array = case.of(relation, "lin_l.weight") @ gathered + case.of(relation, "lin_l.bias") + own
        return arrived

    check(case, case.by_relation(message))


@GRAPHS
def test_gcn(relations: Sequence[EdgeType]) -> None:
    case = Case("gcn", relations)

    def message(relation: EdgeType, node: int) -> Array:
        weight = case.of(relation, "linear.weight")
        arrived = np.zeros(DIM)
        for source, share in case.around(relation, node):
            arrived += share * (weight @ case.vectors[relation[0]][source])
        arrived += case.of(relation, "bias")
        return arrived

    check(case, case.by_relation(message, own=True))


@GRAPHS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["gat", "gatv2"])
def test_attention(relations: Sequence[EdgeType], weighted: bool, name: str) -> None:
    case = Case(name, relations, weighted=weighted, options={"heads": HEADS})
    alone = len(relations) == 1  # then each node attends to itself as well

    def message(relation: EdgeType, node: int) -> Array:
        given, target = case.vectors[relation[0]], case.vectors[relation[2]][node]
        around = case.around(relation, node)
        if alone:
            around = [(source, weight) for source, weight in around if source != node]
            around.append((node, float(np.mean([weight for _, weight in around])) if around else 0.0))
        edge = case.of(relation, "lin_edge.weight")[:, 0] if weighted else np.zeros(DIM)
        result: Array = case.of(relation, "bias").copy()
        if name == "gat":
            maps = ("lin.weight", "lin.weight") if relation[0] == relation[2] else _GAT_MAPS
            mapped = [case.of(relation, maps[0]) @ given[source] for source, _ in around]
            towards = case.of(relation, maps[1]) @ target
        else:
            mapped = [
                case.of(relation, "lin_l.weight") @ given[source] + case.of(relation, "lin_l.bias")
                for source, _ in around
            ]
            towards = case.of(relation, "lin_r.weight") @ target + case.of(relation, "lin_r.bias")
        for head in range(HEADS):
            part = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
            logits = []
            for each, (_, weight) in zip(mapped, around, strict=True):
                if name == "gat":
                    total = case.of(relation, "att_src")[0, head] @ each[part]
                    total += case.of(relation, "att_dst")[0, head] @ towards[part]
                    if weighted:
                        total += case.of(relation, "att_edge")[0, head] @ (edge * weight)[part]
                    logits.append(float(leaky(total)))
                else:
                    joined = leaky((each + towards + edge * weight)[part])
                    logits.append(float(case.of(relation, "att")[0, head] @ joined))
            if logits:
                shares = softmax(np.array(logits))
                result[part] += np.sum(
                    [s * each[part] for s, each in zip(shares, mapped, strict=True)], axis=0
                )
        return result

    check(case, case.by_relation(message, own=True))


_GAT_MAPS = ("lin_src.weight", "lin_dst.weight")


@GRAPHS
@pytest.mark.parametrize("weighted", [False, True])
def test_transformer(relations: Sequence[EdgeType], weighted: bool) -> None:
    case = Case("transformer", relations, weighted=weighted, options={"heads": HEADS})

    def mapped(relation: EdgeType, name: str, vector: Array) -> Array:
        found: Array = case.of(relation, f"{name}.weight") @ vector + case.of(relation, f"{name}.bias")
        return found

    def message(relation: EdgeType, node: int) -> Array:
        given, target = case.vectors[relation[0]], case.vectors[relation[2]][node]
        around = case.around(relation, node)
        edge = case.of(relation, "lin_edge.weight")[:, 0] if weighted else np.zeros(DIM)
        keys = [mapped(relation, "lin_key", given[source]) + edge * weight for source, weight in around]
        values = [mapped(relation, "lin_value", given[source]) + edge * weight for source, weight in around]
        query, result = mapped(relation, "lin_query", target), mapped(relation, "lin_skip", target)
        for head in range(HEADS):
            part = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
            if keys:
                logits = [query[part] @ key[part] / math.sqrt(DIM // HEADS) for key in keys]
                shares = softmax(np.array(logits))
                result[part] += np.sum(
                    [s * each[part] for s, each in zip(shares, values, strict=True)], axis=0
                )
        return result

    check(case, case.by_relation(message))


@GRAPHS
def test_gin(relations: Sequence[EdgeType]) -> None:
    case = Case("gin", relations, options={"train_eps": True})

    def message(relation: EdgeType, node: int) -> Array:
        total = (1 + case.of(relation, "eps")[0]) * case.vectors[relation[2]][node]
        for source, _ in case.around(relation, node):
            total = total + case.vectors[relation[0]][source]
        hidden = np.maximum(case.of(relation, "nn.0.weight") @ total + case.of(relation, "nn.0.bias"), 0)
        arrived: Array = case.of(relation, "nn.2.weight") @ hidden + case.of(relation, "nn.2.bias")
        return arrived

    check(case, case.by_relation(message))


@GRAPHS
def test_gine(relations: Sequence[EdgeType]) -> None:
    """Relations with features of edges are GINE, others GIN."""
    sizes = {relations[0]: EdgeSizes((), 2), relations[-1]: EdgeSizes((3, 5), 1)}
    case = Case("gine", relations, edge_sizes=sizes)

    def of_edge(relation: EdgeType, edge: int) -> Array:
        codes, columns = len(sizes[relation].categories), case.columns[relation][edge]
        parts = [
            case.parameters[f"edge_inputs.{edge_type_text(relation)}.categories.{place}"][int(code)]
            for place, code in enumerate(columns[:codes])
        ]
        assert all(len(part) == CATEGORY_DIM for part in parts)
        read = np.concatenate([*parts, columns[codes:]])
        mapped: Array = case.of(relation, "lin.weight") @ read + case.of(relation, "lin.bias")
        return mapped

    def message(relation: EdgeType, node: int) -> Array:
        total = case.vectors[relation[2]][node]
        rows, columns = case.edges[relation][0]
        for edge in np.flatnonzero(columns == node):
            arrived = case.vectors[relation[0]][rows[edge]]
            if relation in sizes:
                arrived = np.maximum(arrived + of_edge(relation, int(edge)), 0)
            total = total + arrived
        hidden = np.maximum(case.of(relation, "nn.0.weight") @ total + case.of(relation, "nn.0.bias"), 0)
        result: Array = case.of(relation, "nn.2.weight") @ hidden + case.of(relation, "nn.2.bias")
        return result

    check(case, case.by_relation(message))


@pytest.mark.parametrize("relations", [WITHIN, ONE], ids=["two relations", "one relation"])
def test_gcn2(relations: Sequence[EdgeType]) -> None:
    case = Case("gcn2", relations, options={"alpha": 0.3, "theta": 0.5, "layer": 2})
    beta = math.log(0.5 / 2 + 1)

    def message(relation: EdgeType, node: int) -> Array:
        arrived = np.zeros(DIM)
        for source, share in case.around(relation, node):
            arrived += share * case.vectors[relation[0]][source]
        mixed = 0.7 * arrived + 0.3 * case.first[relation[2]][node]
        weight = case.parameters[f"convolutions.{list(relations).index(relation)}.weight1"]
        result: Array = (1 - beta) * mixed + beta * (mixed @ weight)
        return result

    check(case, case.by_relation(message))


@GRAPHS
@pytest.mark.parametrize(("name", "alpha"), [("appnp", 0.25), ("lightgcn", 0.0)])
def test_propagation(relations: Sequence[EdgeType], name: str, alpha: float) -> None:
    case = Case(name, relations, options={"alpha": alpha} if name == "appnp" else {})

    def message(relation: EdgeType, node: int) -> Array:
        arrived = np.zeros(DIM)
        for source, share in case.around(relation, node):
            arrived += share * case.vectors[relation[0]][source]
        return arrived

    sums = case.by_relation(message)
    check(case, {key: (1 - alpha) * each + alpha * case.first[key] for key, each in sums.items()})


@GRAPHS
def test_rgcn(relations: Sequence[EdgeType]) -> None:
    case = Case("rgcn", relations)
    weight, root = case.parameters["convolution.weight"], case.parameters["convolution.root"]
    expected = {}
    for name, vectors in case.vectors.items():
        rows = vectors @ root + case.parameters["convolution.bias"]
        for number, relation in enumerate(relations):
            for node in range(len(vectors)) if relation[2] == name else ():
                given = [case.vectors[relation[0]][source] for source, _ in case.around(relation, node)]
                if given:
                    rows[node] += np.mean(given, axis=0) @ weight[number]
        expected[name] = rows
    check(case, expected)


@GRAPHS
def test_hgt(relations: Sequence[EdgeType]) -> None:
    case = Case("hgt", relations, options={"heads": HEADS})
    size, parameters = DIM // HEADS, case.parameters

    def mapped(name: str, which: int) -> Any:
        """Return keys (0), queries (1) or values (2) of a type's nodes, by head."""
        weight = parameters[f"convolution.kqv_lin.lins.{name}.weight"][which * DIM : (which + 1) * DIM]
        bias = parameters[f"convolution.kqv_lin.lins.{name}.bias"][which * DIM : (which + 1) * DIM]
        return (case.vectors[name] @ weight.T + bias).reshape(-1, HEADS, size)

    expected = {}
    for name, vectors in case.vectors.items():
        rows = np.zeros((len(vectors), DIM))
        for node in range(len(vectors)):
            for head in range(HEADS):
                logits, values = [], []
                for number, relation in enumerate(relations):
                    place = head * len(relations) + number
                    for source, _ in case.around(relation, node) if relation[2] == name else ():
                        key = (
                            mapped(relation[0], 0)[source, head]
                            @ parameters["convolution.k_rel.weight"][place]
                        )
                        prior = parameters[f"convolution.p_rel.{edge_type_text(relation)}"][0, head]
                        logits.append(prior * (mapped(name, 1)[node, head] @ key) / math.sqrt(size))
                        value = mapped(relation[0], 2)[source, head]
                        values.append(value @ parameters["convolution.v_rel.weight"][place])
                if logits:
                    shares = softmax(np.array(logits))
                    rows[node, head * size : (head + 1) * size] = shares @ np.array(values)
        gelu = np.array([[0.5 * each * (1 + math.erf(each / math.sqrt(2))) for each in row] for row in rows])
        out = gelu @ parameters[f"convolution.out_lin.lins.{name}.weight"].T
        out += parameters[f"convolution.out_lin.lins.{name}.bias"]
        kept = 1 / (1 + math.exp(-parameters[f"convolution.skip.{name}"][0]))
        expected[name] = kept * out + (1 - kept) * vectors
    check(case, expected)


def test_every_kind_has_a_reference() -> None:
    attention = {"gat", "gatv2", "transformer", "hgt"}
    sums = {"sage", "gcn", "gin", "gine", "gcn2", "appnp", "lightgcn", "rgcn"}
    assert set(LAYER_KINDS) == attention | sums
