"""Resolution of paths, folders, globs and URLs to files and formats, and errors when none fits."""

from __future__ import annotations

import builtins
import io
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.errors import BackendMissingError, DataError, NotFoundError, UsageError
from graphbox.graph.source import FORMATS, TableFormat, add_format, open_table
from graphbox.graph.source.text import TextTable
from tests.graph.source.reading import read


@pytest.fixture
def memory() -> Iterator[Any]:
    file_system = fsspec.filesystem("memory")
    yield file_system
    file_system.store.clear()
    file_system.pseudo_dirs[:] = [""]


def write_parts(folder: Path) -> list[int]:
    """Write ids over several parts; return them in the order of the parts' names."""
    folder.mkdir(exist_ok=True)
    (folder / "part-00001.csv").write_text("x,id\n,3\nwrong\n,4\n")
    (folder / "part-00000.csv").write_text("id,x\n1,\n2,\n")
    (folder / "part-00002.csv.gz").write_bytes(pa.compress(b"id,x\n5,\n", "gzip", asbytes=True))
    (folder / "_SUCCESS").write_text("")
    (folder / ".part-00000.csv.crc").write_bytes(b"\xff")
    (folder / "notes.doc").write_text("not a part")
    return [1, 2, 3, 4, 5]


@pytest.mark.parametrize("pattern", ["", "part-*", "*.csv*"])
def test_part_files_are_one_table_in_the_order_of_their_names(tmp_path: Path, pattern: str) -> None:
    ids = write_parts(tmp_path / "edges")
    table = open_table(str(tmp_path / "edges" / pattern))
    for batch_bytes in (1, 1000):
        result = read(table, ["id"], batch_bytes)
        assert result.columns == {"id": [str(number) for number in ids]}
        assert result.read_bytes == table.size_bytes
        assert [line.place for line in result.malformed] == [f"{tmp_path}/edges/part-00001.csv:3"]
    assert table.where(0, "id") == f"{tmp_path}/edges/part-00000.csv:2, column `id`"
    assert table.where(3, "id") == f"{tmp_path}/edges/part-00001.csv:4, column `id`"
    assert table.where(4, "id") == f"{tmp_path}/edges/part-00002.csv.gz:2, column `id`"


def test_parts_of_a_named_format_may_be_called_anything(tmp_path: Path) -> None:
    (tmp_path / "000000_0").write_text("1,2\n")
    (tmp_path / "000001_0").write_text("3,4\n")
    table = open_table(tmp_path, format="csv", has_header=False, names=["source", "target"])
    assert read(table, ["target"]).columns == {"target": ["2", "4"]}


def test_parts_of_different_kinds(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    np.savez(tmp_path / "b.npz", id=np.array([3]))
    assert read(open_table(tmp_path), ["id"]).columns == {"id": [1, 2, 3]}
    (tmp_path / "c.csv").write_text("id\n4\n")
    with pytest.raises(UsageError, match="text, others are not"):
        open_table(tmp_path)


def test_folders_in_a_folder_are_named_by_a_pattern(tmp_path: Path, memory: Any) -> None:
    for day in ("day=1", "day=2"):
        (tmp_path / day).mkdir()
        (tmp_path / day / "part.csv").write_text(f"id\n{day}\n")
        memory.pipe(f"/edges/{day}/part.csv", f"id\n{day}\n".encode())
    (tmp_path / "_temporary").mkdir()
    for folder in (str(tmp_path), "memory://edges"):
        with pytest.raises(DataError, match="the folder `day=1` in it and 1 more") as caught:
            open_table(folder)
        assert caught.value.where == folder
        for pattern in ("*/*.csv", "**/*.csv"):
            assert read(open_table(f"{folder}/{pattern}"), ["id"]).columns == {"id": ["day=1", "day=2"]}


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text("id\n7\n")
    assert read(open_table(tmp_path / "a[1].csv"), ["id"]).columns == {"id": ["7"]}


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("id\n")
    with pytest.raises(NotFoundError) as caught:
        open_table(tmp_path / "edge.csv")
    assert caught.value.hint == "did you mean `edges.csv`?"
    with pytest.raises(NotFoundError) as caught:
        open_table(tmp_path / "no" / "edge.csv")
    assert caught.value.hint == f"there is no folder {tmp_path / 'no'} either"
    with pytest.raises(NotFoundError, match="received an empty text"):
        open_table("")
    (tmp_path / "empty").mkdir()
    for nothing in (tmp_path / "empty", tmp_path / "*.parquet"):
        with pytest.raises(NotFoundError, match="at least one file"):
            open_table(nothing)


def test_formats_by_suffix_and_by_name(tmp_path: Path) -> None:
    path = tmp_path / "edges.data"
    path.write_text("id\n1\n")
    with pytest.raises(UsageError, match=r"ending tells its format, received `edges.data`"):
        open_table(path)
    with pytest.raises(UsageError, match="received `cvs`") as caught:
        open_table(path, format="cvs")
    assert caught.value.hint == "did you mean `csv`?"
    assert read(open_table(path, format="csv"), ["id"]).columns == {"id": ["1"]}
    with pytest.raises(DataError, match="expected a Parquet file"):
        open_table(path, format="parquet").column_names()
    with pytest.raises(UsageError, match="files of the format parquet name them"):
        open_table(path, format="parquet", has_header=False, names=["a"])


def test_a_further_format_is_one_class_and_one_line(tmp_path: Path) -> None:
    class PipeTable(TextTable):
        delimiter = "|"
        quote = ""

    add_format(TableFormat("pipe", (".pipe",), PipeTable))
    try:
        (tmp_path / "t.pipe").write_text('a|b\n"1|2\n')
        assert read(open_table(tmp_path / "t.pipe"), ["a"]).columns == {"a": ['"1']}
    finally:
        del FORMATS["pipe"]


def test_urls(memory: Any, tmp_path: Path) -> None:
    memory.pipe("/edges/part-1.csv", b"id\n3\n")
    memory.pipe("/edges/part-0.csv.gz", pa.compress(b"id\n1\n2\n", "gzip", asbytes=True))
    memory.pipe("/edges/_SUCCESS", b"")
    for url in ("memory://edges", "memory://edges/*.csv*"):
        table = open_table(url)
        assert read(table, ["id"], 1).columns == {"id": ["1", "2", "3"]}
        assert read(table, ["id"]).read_bytes == table.size_bytes
    assert open_table("memory://edges/part-1.csv").name == "memory://edges/part-1.csv"
    written = pa.table({"id": range(100), "x": ["a"] * 100})
    pq.write_table(written, tmp_path / "t.parquet")
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), written.schema) as writer:
        writer.write_table(written)
    np.savez(tmp_path / "t.npz", id=np.arange(100))
    for name in ("t.parquet", "t.arrow", "t.npz"):
        memory.pipe("/" + name, (tmp_path / name).read_bytes())
        assert read(open_table("memory://" + name), ["id"]).columns == {"id": list(range(100))}
    assert read(open_table(f"file://{tmp_path}/t.parquet"), ["id"]).num_rows == 100
    with pytest.raises(NotFoundError) as caught:
        open_table("memory://nothing.csv")
    assert caught.value.where == "memory://nothing.csv"


def test_credentials_are_not_shown(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    del memory
    url = "memory://user:pass%40word@host/edges.csv?token=verysecret"
    with pytest.raises(NotFoundError) as missing:
        open_table(url)
    assert missing.value.where == "memory://host/edges.csv"

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(f"cannot open {url} as user with pass@word")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(DataError) as refused:
        open_table(url)
    shown = str(refused.value) + str(refused.value.__cause__)
    assert "memory://host/edges.csv" in shown
    assert not any(secret in shown for secret in ("verysecret", "pass%40word", "pass@word"))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.arrow", "t.npy"])
def test_a_connection_that_breaks_is_an_error_without_credentials(
    memory: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    secret = "token=very" + "secret"  # split, as a traceback shows lines of this file too
    memory.pipe(f"/host/{name}?{secret}", b"")

    class BrokenFile(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            del size
            raise RuntimeError(f"GET https://host/t?{secret} was reset")

    monkeypatch.setattr(type(memory), "open", lambda *_, **__: BrokenFile(bytes(200)))
    with pytest.raises(DataError) as caught:
        read(open_table(f"memory://host/{name}?{secret}"), ["id"])
    assert "was reset" in caught.value.message
    assert caught.value.where == f"memory://host/{name}"
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_fsspec(name: str, *rest: Any, **others: Any) -> Any:
        if name == "fsspec":
            raise ImportError(name)
        return real_import(name, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", without_fsspec)
    with pytest.raises(BackendMissingError, match="`fsspec`") as caught:
        open_table("s3://bucket/edges.csv")
    assert "graphbox[remote]" in (caught.value.hint or "")
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"(?i)protocol") as unknown:
        open_table("nosuchprotocol://bucket/edges.csv")
    assert unknown.value.where == "nosuchprotocol://bucket/edges.csv"
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(BackendMissingError, match="the package `s3fs`") as backend:
        open_table("s3://bucket/edges.csv")
    assert backend.value.hint == "pip install s3fs"


def test_the_guide_names_every_format_and_suffix() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "input-tables.md").read_text(encoding="utf-8")
    table = guide.partition("| format | suffixes")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    described = {name.strip(" `"): tuple(suffixes.replace("`", "").split()) for name, suffixes in rows}
    assert described == {name: table_format.suffixes for name, table_format in FORMATS.items()}
