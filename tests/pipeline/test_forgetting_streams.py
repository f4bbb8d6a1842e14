"""A stream goes on after nodes of it were forgotten, and what it published has nothing of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.byte_search import ByteSearch
from graphbox.graph import Graph
from graphbox.pipeline import run_pipeline
from graphbox.pipeline.forgetting import forget
from graphbox.table import EmbeddingTable, PublishedTables
from graphbox.train.stream.walks import InterleavedKeys
from graphbox.workspace import Workspace
from tests.train.purchases import RUN_FILE, write_day

WALKS = "rows: {kind: deepwalk, dim: 8, epochs: 1, edge_types: [[user, buys, item]]}"
FORGOTTEN = ["u1", "u2"]


@pytest.fixture(params=["matrix_factorization", "deepwalk"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the run file of a stream, two days of purchases, and a workspace that learnt them."""
    lines = RUN_FILE.splitlines()
    if request.param == "deepwalk":
        lines = [f"  {WALKS}" if line.startswith("  rows:") else line for line in lines]
    (tmp_path / "in").mkdir()
    (tmp_path / "shop.yaml").write_text("\n".join(lines) + f"\nstream: {{folder: {tmp_path / 'in'}}}\n")
    for day in range(2):
        write_day(tmp_path / "in", day)
    follow(tmp_path)
    return tmp_path


def follow(folder: Path) -> None:
    from graphbox.config import load_config

    with Workspace(folder / "workspace") as workspace:
        config = load_config(folder / "shop.yaml", ["stream.until_idle_seconds=0"])
        run_pipeline(config, workspace)


def keys(graph: Graph, table: str) -> dict[str, int]:
    """Return the key of each user's row in a table of either model."""
    users = [str(each) for each in graph.arrow_ids("user").drop_null()]
    index = graph.index("user", users)
    if table == "targets":
        return {}
    interleaved = InterleavedKeys({"item": 0, "user": 0}).of("user", index)
    return dict(zip(users, index if table == "queries" else interleaved, strict=True))


def rows_of(folder: Path) -> dict[str, dict[str, bytes]]:
    """Return the bytes of each user's row by table of the last checkpoint."""
    graph = Graph.open(folder / "workspace" / "graphs" / "shop")
    (run,) = (folder / "workspace" / "runs").iterdir()
    last = max((run / "checkpoints" / "rows").iterdir())
    found = {}
    for path in last.glob("*.table"):
        table = EmbeddingTable.load(path)
        known = keys(graph, path.stem)
        rows = {user: table.pull(np.array([key]), create=False)[0] for user, key in known.items()}
        found[path.stem] = {user: row.tobytes() for user, row in rows.items() if row.any()}
    return found


def test_a_stream_goes_on_without_the_forgotten(shop: Path) -> None:
    before = rows_of(shop)
    traces = {
        rows[user]: f"{name} {user}" for name, rows in before.items() for user in FORGOTTEN if user in rows
    }
    assert len(traces) >= len(FORGOTTEN)
    search = ByteSearch(traces)
    (run,) = (shop / "workspace" / "runs").iterdir()
    assert {path.partition("/")[0] for path in search.below(run)} >= {"checkpoints", "serving"}
    with Workspace(shop / "workspace") as workspace:
        forget(workspace, "shop", {"user": FORGOTTEN})
    assert search.below(shop / "workspace") == {}
    after = rows_of(shop)
    assert {name: {*rows} for name, rows in after.items()} == {
        name: {*rows} - {*FORGOTTEN} for name, rows in before.items()
    }
    for name, rows in after.items():
        assert rows == {user: before[name][user] for user in rows}
    published = PublishedTables.open(run / "serving")
    assert published.number == 1
    for name, rows in after.items():
        known = keys(Graph.open(shop / "workspace" / "graphs" / "shop"), name)
        for user in rows:
            served = published[name].pull(np.array([known[user]]))
            np.testing.assert_allclose(served[0], np.frombuffer(rows[user], np.float32), rtol=1e-6)
    for day in (2, 3):
        write_day(shop / "in", day)
    follow(shop)
    assert published.update()
    assert (published.number, published.name) == (3, "20261104")
    assert len(list((shop / "workspace" / "runs").iterdir())) == 1
