"""Tables with a budget: rows on SSD train the same model, bit for bit, for each family that has tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from graphbox.config import ClickTaskConfig, CompleteTaskConfig, MemoryConfig, RecommendTaskConfig, model_kind
from graphbox.errors import InterruptedRunError
from graphbox.graph import Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.table import EmbeddingTable
from graphbox.train import fit, make_split
from graphbox.train.batches_ahead import BatchesAhead
from graphbox.train.trained import TrainedModel

NODES, EDGES, DIM = 3000, 6000, 256
LINKS = ("node", "to", "node")
RECOMMEND = RecommendTaskConfig(kind="recommend", node_type="node", relations=("to",))
COMPLETE = CompleteTaskConfig(kind="complete")
CLICK = ClickTaskConfig(kind="click", node_type="row", label="clicked")
TABLE_BYTES = 12 << 20
"""Ten MiB are buffers: of the rows, each at least 1 KiB, some two thirds find room beside them."""

WALKS: dict[str, Any] = {"walk_length": 4, "window": 2, "epochs": 2, "batch_size": 16, "negatives": 32}
KNOWS: dict[str, Any] = {"task": "t", "epochs": 2, "validate_every": 1, "batch_size": 256, "candidates": 64}
RANKS: dict[str, Any] = {"task": "t", "epochs": 1, "batch_size": 256, "candidates": 64}


@dataclass(frozen=True)
class Case:
    """A section of a model, how many tables it has, and its task."""

    section: dict[str, Any]
    tables: int = 2
    task: Any = None

    @property
    def memory(self) -> MemoryConfig:
        return MemoryConfig(tables=self.tables * TABLE_BYTES)


CASES = {
    "deepwalk": Case({**WALKS, "walks_per_node": 1}),
    "node2vec": Case({**WALKS, "walks_per_node": 1, "p": 0.5}),
    "metapath2vec": Case({**WALKS, "metapaths": [[LINKS]]}),
    "line": Case({"epochs": 1, "batch_size": 512, "dim": 2 * DIM, "negatives": 32}, tables=3),
    "sage": Case({**RANKS, "num_neighbors": 4}, tables=1, task=RECOMMEND),
    "matrix_factorization": Case({**RANKS, "dim": 64}, tables=1, task=RECOMMEND),
    "complex": Case(KNOWS, task=COMPLETE),
    "rotate": Case({**KNOWS, "loss": "self_adversarial"}, task=COMPLETE),
    "deepfm": Case({"task": "t", "epochs": 1, "hidden": [8], "batch_size": 256}, tables=1, task=CLICK),
    "wide_and_deep": Case(
        {"task": "t", "epochs": 1, "hidden": [8], "batch_size": 256, "crosses": [["user", "item"]]},
        task=CLICK,
    ),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    generator = np.random.default_rng(0)
    source, target = generator.integers(0, NODES, (2, EDGES))
    folder = tmp_path_factory.mktemp("log") / "graph"
    features: Any = {"clicked": "boolean", "user": "categorical", "item": "categorical"}
    log = {
        "clicked": generator.random(4000) < 0.5,
        "user": [f"u{each}" for each in generator.integers(0, NODES, 4000)],
        "item": [f"i{each}" for each in generator.integers(0, 50, 4000)],
    }
    import_graph(
        GraphSource("log", {"row": NodeSource(pa.table(log), id=None, features=features)}, ()), folder
    )
    return {
        "links": Graph.from_coo(source, target, num_nodes=NODES),
        "log": Graph.open(folder),
    }


def train(case: Case, kind: str, graphs: dict[str, Graph], folder: Path, **options: Any) -> Any:
    """Return the numbers that the model ends with."""
    graph = graphs["log" if case.task is CLICK else "links"]
    config: Any = model_kind(kind).section.model_validate_json(
        json.dumps({"dim": DIM, **case.section, "kind": kind})
    )
    split = None if case.task is None else make_split(graph, case.task, 0)
    trained = fit(
        graph,
        split,
        name="m",
        config=config,
        task=case.task,
        run_folder=folder,
        **{"seed": 1, "threads": 1, **options},
    )
    return numbers_of(trained, graph)


def numbers_of(trained: TrainedModel, graph: Graph) -> NDArray[Any]:
    if trained.click is not None:
        rows = np.arange(500)
        users = pa.array([f"u{each}" for each in rows])
        return trained.click.predict(pa.table({"user": users, "item": ["i3"] * len(rows)}))
    return next(iter(trained.embeddings.values()))


@pytest.mark.parametrize("kind", CASES)
def test_rows_on_ssd_end_with_the_same_bits(
    kind: str, graphs: dict[str, Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[kind]
    expected = train(case, kind, graphs, tmp_path / "memory")
    evicted: list[int] = []
    close = EmbeddingTable.close

    def counted(self: EmbeddingTable) -> None:
        if self.path is not None:
            evicted.append(self.tier_statistics().evicted_rows)
        close(self)

    monkeypatch.setattr(EmbeddingTable, "close", counted)
    found = train(case, kind, graphs, tmp_path / "ssd", memory=case.memory, threads=2)
    np.testing.assert_array_equal(found, expected)
    assert sum(evicted) > 0, "all rows found room in memory"
    assert not list((tmp_path / "ssd" / "tables" / "m").glob("*"))


@pytest.mark.parametrize("kind", ["deepwalk", "sage", "matrix_factorization", "wide_and_deep"])
def test_interrupted_it_goes_on(kind: str, graphs: dict[str, Graph], tmp_path: Path) -> None:
    case = CASES[kind]
    expected = train(case, kind, graphs, tmp_path / "memory")
    left = iter([False, True])
    with pytest.raises(InterruptedRunError):
        train(case, kind, graphs, tmp_path, memory=case.memory, stop=lambda: next(left))
    found = train(case, kind, graphs, tmp_path, memory=case.memory, resume=True)
    np.testing.assert_array_equal(found, expected)


def test_batches_are_made_ahead_only_for_rows_on_ssd(tmp_path: Path) -> None:
    made: list[tuple[int, int]] = []

    def make(epoch: int, batch: int) -> tuple[int, int]:
        made.append((epoch, batch))
        return epoch, batch

    def keys(batch: tuple[int, int]) -> dict[str, NDArray[np.int64]]:
        return {"rows": np.array([batch[1]])}

    plain: Callable[..., Any] = BatchesAhead(make, keys, {"rows": EmbeddingTable(4)}).take
    assert plain(0, 3, 10) == (0, 3)
    assert made == [(0, 3)]
    with EmbeddingTable(4, path=tmp_path / "rows", memory_bytes=TABLE_BYTES) as table:
        ahead = BatchesAhead(make, keys, {"rows": table})
        found = [ahead.take(1, batch, 50) for batch in (*range(50), *range(7, 12))]
        found += [ahead.take(2, 49, 50)]
        ahead.close()
    assert found == [*((1, batch) for batch in (*range(50), *range(7, 12))), (2, 49)]
    assert len(made) > len(found) - 50
