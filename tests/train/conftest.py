"""A small graph with structure to learn, made anew from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from graphbox.config import (
    ClassifyTaskConfig,
    GraphNetworkConfig,
    Metapath2VecConfig,
    RecommendTaskConfig,
    SageConfig,
    SkipGramSection,
)
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.train import ClassifySplit, RecommendSplit, make_split

ITEMS, GROUPS, TOPICS, TAGS = 360, 200, 6, 18


def write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def build_graph(folder: Path, seed: int = 0, order: NDArray[np.int64] | None = None) -> Graph:
    """Return a graph of items in topics; items of one topic are joined more often.

    Args:
        folder: where files go.
        seed: of the content.
        order: int64 [ITEMS], order of the item table's rows; the content is the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    topic = generator.integers(0, TOPICS, ITEMS)
    group = np.concatenate([np.arange(GROUPS), generator.integers(0, GROUPS, ITEMS - GROUPS)])
    names = np.array([f"item-{number}" for number in range(ITEMS)])
    size: list[float | None] = generator.lognormal(5, 2, ITEMS).tolist()
    size[3] = None
    order = np.arange(ITEMS) if order is None else order
    write(
        folder / "item.parquet",
        id=names[order],
        topic=[f"topic-{topic[number]}" for number in order],
        size=pa.array([size[number] for number in order], pa.float64()),
        kept=(generator.random(ITEMS) < 0.3)[order],
    )
    write(folder / "group.parquet", id=[f"group-{number}" for number in range(GROUPS)])
    write(folder / "tag.parquet", id=[f"tag-{number}" for number in range(TAGS)])
    write(
        folder / "part_of.parquet",
        source=names[order],
        target=[f"group-{group[number]}" for number in order],
    )
    tags = topic * (TAGS // TOPICS) + generator.integers(0, TAGS // TOPICS, ITEMS)
    write(folder / "tagged.parquet", source=names, target=[f"tag-{number}" for number in tags])
    edges = []
    for relation, count in (("needs", 1200), ("likes", 1500), ("fits", 900)):
        start = generator.integers(0, ITEMS, count)
        near = [generator.choice(np.flatnonzero(topic == topic[one])[:8]) for one in start]
        target = np.where(generator.random(count) < 0.85, near, generator.integers(0, ITEMS, count))
        apart = start != target
        pairs = np.unique(np.stack([start, target], axis=1)[apart], axis=0)
        clause = generator.integers(0, 12, len(pairs))
        write(
            folder / f"{relation}.parquet",
            source=names[pairs[:, 0]],
            target=names[pairs[:, 1]],
            clause=clause,
        )
        edges.append(
            EdgeSource(
                ("item", relation, "item"),
                folder / f"{relation}.parquet",
                features={"clause": "integer"},
                reverse=f"{relation}_back",
            )
        )
    source = GraphSource(
        "small",
        {
            "item": NodeSource(
                folder / "item.parquet",
                features={"topic": "categorical", "size": "number", "kept": "boolean"},
            ),
            "group": NodeSource(folder / "group.parquet"),
            "tag": NodeSource(folder / "tag.parquet"),
        },
        (
            *edges,
            EdgeSource(("item", "part_of", "group"), folder / "part_of.parquet", reverse="has"),
            EdgeSource(("item", "tagged", "tag"), folder / "tagged.parquet", reverse="tags"),
        ),
    )
    import_graph(source, folder / "graph")
    return Graph.open(folder / "graph")


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_graph(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def classify_task() -> ClassifyTaskConfig:
    return ClassifyTaskConfig(
        kind="classify", node_type="item", label="topic", group=("item", "part_of", "group")
    )


@pytest.fixture(scope="session")
def recommend_task() -> RecommendTaskConfig:
    return RecommendTaskConfig(
        kind="recommend",
        node_type="item",
        relations=("likes", "fits"),
        group=("item", "part_of", "group"),
        exclude_relations=("needs",),
        alternative="clause",
        category="topic",
        k=10,
    )


@pytest.fixture(scope="session")
def classify_split(graph: Graph, classify_task: ClassifyTaskConfig) -> ClassifySplit:
    split = make_split(graph, classify_task, 0)
    assert isinstance(split, ClassifySplit)
    return split


@pytest.fixture(scope="session")
def recommend_split(graph: Graph, recommend_task: RecommendTaskConfig) -> RecommendSplit:
    split = make_split(graph, recommend_task, 0)
    assert isinstance(split, RecommendSplit)
    return split


@pytest.fixture(scope="session")
def sage_config() -> SageConfig:
    return SageConfig(
        kind="sage",
        task="companion",
        dim=16,
        features=("topic", "size", "kept"),
        epochs=3,
        batch_size=64,
        candidates=128,
        validate_every=2,
        average_after=0.5,
    )


@pytest.fixture(scope="session")
def network_config() -> GraphNetworkConfig:
    return GraphNetworkConfig(
        kind="gnn",
        task="topic",
        dim=16,
        layers=2,
        num_neighbors=(4, 4),
        features={"item": ("size", "kept")},
        embeddings=("item", "tag", "group"),
        batch_size=64,
        epochs=3,
        patience=None,
        average_decay=0.5,
        schedule="cosine",
        warmup=0.2,
        clip_norm=1.0,
    )


@pytest.fixture(scope="session")
def pretrained_config(sage_config: SageConfig, skip_gram_config: Metapath2VecConfig) -> SageConfig:
    settings = skip_gram_config.model_dump(
        exclude={"kind", "task", "start_from", "auto", "tune", "dim", "epochs"}
    )
    return sage_config.model_copy(update={"pretrain": SkipGramSection(**settings, epochs=1)})


@pytest.fixture(scope="session")
def skip_gram_config() -> Metapath2VecConfig:
    return Metapath2VecConfig(
        kind="metapath2vec",
        task="topic",
        dim=16,
        metapaths=(
            (("item", "needs", "item"), ("item", "needs_back", "item")),
            (("item", "tagged", "tag"), ("tag", "tags", "item")),
        ),
        walks_per_node=24,
        epochs=2,
        batch_size=64,
        negatives=32,
    )
