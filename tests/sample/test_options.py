"""Options of samplers and loaders: one list of them, each checked once, whoever takes it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import numpy as np
import pytest

from graphbox import Graph, LinkNeighborLoader, NeighborLoader
from graphbox.errors import UsageError
from graphbox.sample import (
    LoaderOptions,
    NeighborOptions,
    sample_heterogeneous,
    sample_neighbors,
)
from graphbox.sample.loader.options import LoaderKeywords
from graphbox.sample.options import NeighborKeywords

ENDS = np.random.default_rng(0).integers(0, 50, (2, 400))


def graph() -> Graph:
    return Graph.from_coo(ENDS[0], ENDS[1], num_nodes=50, weight=np.linspace(1, 9, 400))


def names(options: type) -> set[str]:
    return {each.name for each in fields(options)}


def test_keywords_are_the_fields_of_the_options() -> None:
    assert set(NeighborKeywords.__annotations__) == names(NeighborOptions)
    assert set(LoaderKeywords.__annotations__) == names(NeighborOptions) | names(LoaderOptions)
    assert not names(NeighborOptions) & names(LoaderOptions)
    hints = get_type_hints(NeighborKeywords)
    assert {name: hints[name] for name in names(NeighborOptions)} == get_type_hints(NeighborOptions)


@pytest.mark.parametrize(
    "options",
    [
        {"replace": True},
        {"weight_attr": "weight", "edge_attributes": ["weight"]},
        {"disjoint": True},
        {"seed": 5},
    ],
)
def test_loaders_sample_by_the_same_options(options: dict[str, Any]) -> None:
    (batch,) = NeighborLoader(graph(), [3, 2], batch_size=50, output="numpy", **options)
    sample = sample_neighbors(graph(), np.arange(50), [3, 2], **options)
    np.testing.assert_array_equal(batch.sample.edge_ids["node", "to", "node"], sample.edge_ids)
    by_default = sample_neighbors(graph(), np.arange(50), [3, 2])
    assert sample.edge_ids.tolist() != by_default.edge_ids.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_attr": "rating"}, "weight_attr: expected 'weight' or None, received 'rating'"),
        ({"temporal_strategy": "first"}, "temporal_strategy: expected uniform or last, received 'first'"),
        ({"edge_attributes": "weight"}, "edge_attributes: expected some of weight, timestamp in a sequence"),
        ({"edge_attributes": ["height"]}, "edge_attributes: expected some of weight, timestamp"),
        ({"seed": -1}, "seed: "),
        ({"replaced": True}, "replaced: (.|\n)*did you mean `replace`"),
    ],
)
def test_wrong_options_are_refused_alike(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sample_neighbors(graph(), [0], [1], **options)
    with pytest.raises(UsageError, match=message):
        sample_heterogeneous(graph(), {"node": [0]}, [1], **options)
    for loader in (NeighborLoader, LinkNeighborLoader):
        with pytest.raises(UsageError, match=message):
            loader(graph(), [1], **options)


def test_weights_count_where_there_are_some() -> None:
    """In each edge type that has weights; edges of the others are equally likely."""
    weighted, plain = graph().csc(), Graph.from_coo(ENDS[0], ENDS[1], num_nodes=50).csc()
    both = {("a", "w", "a"): weighted, ("a", "p", "a"): plain}
    seeds = {"a": np.arange(50)}
    sample = sample_heterogeneous(both, seeds, [3], weight_attr="weight")
    uniform = sample_heterogeneous(both, seeds, [3])
    assert sample.edge_ids["a", "w", "a"].tolist() != uniform.edge_ids["a", "w", "a"].tolist()
    np.testing.assert_array_equal(sample.edge_ids["a", "p", "a"], uniform.edge_ids["a", "p", "a"])
    with pytest.raises(UsageError, match="no sampled edges have a weight: a p a"):
        sample_heterogeneous({("a", "p", "a"): plain}, seeds, [3], weight_attr="weight")
