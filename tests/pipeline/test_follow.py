"""Chunks from a folder into the graph: once each, in their order, and nothing in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphbox.config import load_config
from graphbox.errors import ConflictError, DataError, InterruptedRunError, UsageError
from graphbox.graph import Graph
from graphbox.graph.chunks import stream_of
from graphbox.pipeline.follow import FolderFeed
from graphbox.train.stream import Chunk
from graphbox.workspace import Workspace
from tests.train.purchases import RUN_FILE, purchases, text_of, write_day

BUYS = ("user", "buys", "item")


class Shop:
    """A stream of purchases, and what was said of it."""

    def __init__(self, folder: Path, run_file: str = RUN_FILE) -> None:
        self.folder, self.stream = folder, folder / "in"
        self.stream.mkdir()
        (folder / "run.yaml").write_text(run_file)
        self.workspace = Workspace(folder / "workspace")
        self.notes: list[str] = []
        self.waited: list[str] = []
        self.stopped = False

    def feed(self, *overrides: str, source: str = "shop-1") -> FolderFeed:
        given = [f"stream.folder={json.dumps(str(self.stream))}", "stream.poll_seconds=0.01"]
        if not any("until_idle" in override for override in overrides):
            given.append("stream.until_idle_seconds=0")
        config = load_config(self.folder / "run.yaml", [*given, *overrides])
        feed = FolderFeed(config, self.workspace, source, stop=lambda: self.stopped, note=self.notes.append)
        feed.begin()
        return feed

    def all(self, feed: FolderFeed, first: int = 0) -> list[Chunk]:
        chunks: list[Chunk] = []
        while feed.wait(first + len(chunks), self.waited.append):
            chunks.append(feed.chunk(first + len(chunks)))
        return chunks

    @property
    def graph(self) -> Graph:
        return Graph.open(self.workspace.graph_path("shop"))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.workspace.close()


def bought(chunk: Chunk) -> list[tuple[str, str, int]]:
    edges = chunk.edges[BUYS]
    assert edges.timestamp is not None
    users, items = chunk.view.ids("user")[edges.source], chunk.view.ids("item")[edges.target]
    return list(zip(users.tolist(), items.tolist(), edges.timestamp.tolist(), strict=True))


def of_day(day: int, rows: int = 80) -> list[tuple[str, str, int]]:
    columns = (column.tolist() for column in purchases(day, rows))
    return sorted(((f"u{u}", f"i{i}", t) for u, i, t in zip(*columns, strict=True)), key=lambda row: row[2])


def test_chunks_are_what_came_in_the_order_of_time(shop: Shop) -> None:
    for day in range(3):
        write_day(shop.stream, day)
    chunks = shop.all(shop.feed())
    assert [(chunk.number, chunk.name) for chunk in chunks] == [
        (0, "20261101"),
        (1, "20261102"),
        (2, "20261103"),
    ]
    for day, chunk in enumerate(chunks):
        assert sorted(bought(chunk)) == sorted(of_day(day))
        assert [row[2] for row in bought(chunk)] == [row[2] for row in of_day(day)]
        assert chunk.before().csc(BUYS).num_edges == 80 * day
        assert chunk.view.csc(BUYS).num_edges == 80 * (day + 1)
        assert chunk.rows == 80
    new = [
        sorted(chunk.view.ids("user")[chunk.nodes["user"]].tolist())
        for chunk in chunks
        if "user" in chunk.nodes
    ]
    assert (
        len({name for names in new for name in names}) == sum(map(len, new)) == shop.graph.num_nodes("user")
    )


def test_another_attempt_gets_the_last_chunk_again_or_the_next(shop: Shop) -> None:
    for day in range(2):
        write_day(shop.stream, day)
    first = shop.all(shop.feed())
    feed = shop.feed()
    assert feed.wait(1, shop.waited.append)
    again = feed.chunk(1)
    assert bought(again) == bought(first[1])
    write_day(shop.stream, 2)
    assert [chunk.name for chunk in shop.all(shop.feed(), 2)] == ["20261103"]
    for number in (0, 5):
        with pytest.raises(ConflictError, match="expected a graph with"):
            shop.feed().wait(number, shop.waited.append)


def test_it_waits_for_the_marker_and_says_so(shop: Shop) -> None:
    place = write_day(shop.stream, 0, marker=None)
    write_day(shop.stream, 1)
    feed = shop.feed("stream.until_idle_seconds=600")

    def tell(what: str) -> None:
        shop.waited.append(what)
        if len(shop.waited) == 3:
            (place / "donefile").touch()

    assert feed.wait(0, tell)
    assert feed.chunk(0).name == "20261101"
    assert len(shop.waited) == 3
    assert shop.waited[0].startswith("a marker in it (_SUCCESS, ")
    assert "chunk 20261101 (20261102, which comes after it, is there)" in shop.waited[0]


def test_stopped_while_it_waits(shop: Shop) -> None:
    feed = shop.feed("stream.until_idle_seconds=600")

    def tell(_: str) -> None:
        shop.stopped = True

    with pytest.raises(InterruptedRunError, match=r"stopped on request while waiting for a chunk in "):
        feed.wait(0, tell)


def test_one_file_per_chunk_needs_no_more_than_the_table(shop: Shop) -> None:
    for day in range(3):
        (shop.stream / f"sales-{day}.csv").write_text(text_of(day))
    chunks = shop.all(shop.feed())
    assert [chunk.name for chunk in chunks] == ["sales-0.csv", "sales-1.csv"]
    assert shop.notes[-1].startswith(
        "no more chunks: ends instead of waiting for a later file, or its marker"
    )
    (shop.stream / "sales-2.csv.done").touch()
    feed = shop.feed()
    assert [chunk.name for chunk in shop.all(feed, 2)] == ["sales-2.csv"]


def test_part_files_of_any_name_where_there_is_one_table(shop: Shop) -> None:
    place = shop.stream / "20261101" / "04"
    place.mkdir(parents=True)
    lines = text_of(0).splitlines(keepends=True)
    (place / "part-0.csv").write_text("".join(lines[:40]))
    (place / "part-1.csv").write_text(lines[0] + "".join(lines[40:]))
    (place / "done").touch()
    [chunk] = shop.all(shop.feed())
    assert sorted(bought(chunk)) == sorted(of_day(0))


@pytest.mark.parametrize("policy", ["refuse", "skip"])
def test_a_late_chunk(shop: Shop, policy: str) -> None:
    write_day(shop.stream, 0)
    write_day(shop.stream, 2)
    feed = shop.feed(f"stream.irregular={policy}")
    shop.all(feed)
    place = write_day(shop.stream, 1)
    write_day(shop.stream, 3)
    if policy == "refuse":
        with pytest.raises(DataError, match=r"no chunk before `20261103`, .* received `20261102`") as caught:
            shop.all(feed, 2)
        assert "stream.irregular=skip" in str(caught.value)
        place.rename(shop.stream / "20261105")
        assert [chunk.name for chunk in shop.all(feed, 2)] == ["20261104", "20261105"]
    else:
        assert [chunk.name for chunk in shop.all(feed, 2)] == ["20261104"]
        assert sum("20261102" in note for note in shop.notes) == 1


def test_a_chunk_before_all_that_were_learnt(shop: Shop) -> None:
    write_day(shop.stream, 1)
    feed = shop.feed()
    shop.all(feed)
    write_day(shop.stream, 0)
    with pytest.raises(DataError, match=r"no chunk before `20261102`, .* received `20261101`"):
        shop.all(feed, 1)
    assert shop.all(shop.feed("stream.irregular=skip"), 1) == []
    assert sum("20261101" in note for note in shop.notes) == 1


@pytest.mark.parametrize("policy", ["refuse", "skip"])
def test_a_chunk_that_changed_after_it_was_learnt(shop: Shop, policy: str) -> None:
    for day in range(2):
        write_day(shop.stream, day)
    shop.all(shop.feed())
    file = shop.stream / "20261101" / "purchases.csv"
    text = file.read_text()
    file.write_text(text)  # written again, with the same content
    assert shop.all(shop.feed(), 2) == []
    file.write_text(text + "u1,i1,5\n")
    write_day(shop.stream, 2)
    feed = shop.feed(f"stream.irregular={policy}")
    if policy == "refuse":
        with pytest.raises(DataError, match="`20261101` as it was learnt, its files have changed"):
            shop.all(feed, 2)
        assert shop.graph.num_edges(BUYS) == 160
    else:
        assert [chunk.name for chunk in shop.all(feed, 2)] == ["20261103"]
        assert any("20261101" in note for note in shop.notes)


def test_chunks_that_are_gone_from_the_folder_do_no_harm(shop: Shop) -> None:
    for day in range(2):
        write_day(shop.stream, day)
    shop.all(shop.feed())
    for path in list(shop.stream.rglob("*"))[::-1]:
        path.unlink() if path.is_file() else path.rmdir()
    write_day(shop.stream, 2)
    assert [chunk.name for chunk in shop.all(shop.feed(), 2)] == ["20261103"]


@pytest.mark.parametrize(("keep", "left"), [("keep_chunks=2", [3, 4]), ("keep_days=3", [2, 3, 4])])
def test_old_edges_expire(shop: Shop, keep: str, left: list[int]) -> None:
    for day in range(5):
        write_day(shop.stream, day)
    chunks = shop.all(shop.feed(f"stream.{keep}"))
    assert shop.graph.num_edges(BUYS) == 80 * len(left)
    timestamps = shop.graph.csc(BUYS).timestamp
    assert timestamps is not None
    assert sorted(timestamps.tolist()) == sorted(row[2] for day in left for row in of_day(day))
    assert chunks[-1].before().csc(BUYS).num_edges == 80 * (len(left) - 1)


def test_days_are_kept_by_dates(shop: Shop) -> None:
    (shop.stream / "batch-1.csv").write_text(text_of(0))
    (shop.stream / "batch-2.csv").write_text(text_of(1))
    with pytest.raises(UsageError, match=r"expected dates in the names of chunks, .* received `batch-1.csv`"):
        shop.all(shop.feed("stream.keep_days=3"))


def test_an_empty_hour_is_a_chunk_and_foreign_files_are_refused(tmp_path: Path) -> None:
    two = RUN_FILE.replace("{id_type: string}, item", "{path: users.csv}, item")
    shop = Shop(tmp_path, two)
    place = write_day(shop.stream, 0)
    (place / "users.csv").write_text("id\n" + "".join(f"u{number}\n" for number in range(48)))
    (shop.stream / "20261102").mkdir()
    (shop.stream / "20261102" / "_SUCCESS").touch()
    write_day(shop.stream, 2)
    feed = shop.feed()
    assert [chunk.rows for chunk in shop.all(feed)] == [80, 0, 80]
    wrong = shop.stream / "20261104"
    wrong.mkdir()
    (wrong / "sales.csv").write_text(text_of(3))
    (wrong / "done").touch()
    with pytest.raises(
        DataError, match=r"one of users.csv \(graph.nodes.user\), purchases.csv .* `sales.csv`"
    ):
        shop.all(feed, 3)
    shop.workspace.close()


def test_edges_before_the_table_of_their_nodes_are_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path, RUN_FILE.replace("{id_type: string}, item", "{path: users.csv}, item"))
    write_day(shop.stream, 0)
    with pytest.raises(DataError, match="table of the node type `user` with or before its first edges"):
        shop.all(shop.feed())
    shop.workspace.close()


def test_tables_that_are_there_before_are_chunk_0(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    (tmp_path / "purchases.csv").write_text(text_of(9))
    write_day(shop.stream, 0)
    chunks = shop.all(shop.feed("stream.keep_chunks=1"))
    assert [(chunk.name, chunk.rows) for chunk in chunks] == [("start", 80), ("20261101", 80)]
    write_day(shop.stream, 1)
    assert [chunk.name for chunk in shop.all(shop.feed("stream.keep_chunks=1"), 2)] == ["20261102"]
    assert shop.graph.num_edges(BUYS) == 160  # what was there before stays
    shop.workspace.close()


def test_a_graph_holds_one_stream(shop: Shop) -> None:
    write_day(shop.stream, 0)
    shop.all(shop.feed())
    with pytest.raises(
        ConflictError, match=r"with that of shop-2, received one with that of shop-1"
    ) as caught:
        shop.feed(source="shop-2")
    assert "graphbox graphs rm shop" in str(caught.value)


def test_a_malformed_chunk_changes_nothing(shop: Shop) -> None:
    write_day(shop.stream, 0)
    place = write_day(shop.stream, 1)
    (place / "purchases.csv").write_text("user,item\nu1,i1\n")
    feed = shop.feed()
    with pytest.raises((DataError, UsageError), match="time"):
        shop.all(feed)
    held = stream_of(shop.workspace.graph_path("shop"))
    assert held is not None
    assert [chunk.name for chunk in held.chunks] == ["20261101"]
    (place / "purchases.csv").write_text(text_of(1))
    assert [chunk.name for chunk in shop.all(feed, 1)] == ["20261102"]
