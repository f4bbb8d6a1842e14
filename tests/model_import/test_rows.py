"""Tables of rows of other programs: every format gives the same model; errors name the place."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from graphbox.artifact import Artifact
from graphbox.deploy import open_encoder
from graphbox.errors import DataError, GraphboxError, NotFoundError, UnsupportedError, UsageError
from graphbox.model_import import EmbeddingOptions, add_model, format_of

ROWS = np.random.default_rng(3).standard_normal((50, 16)).astype(np.float32)
NAMES = [f"word{number}" for number in range(len(ROWS))]
KEYS = list(range(9_905_123_492, 9_905_123_492 + len(ROWS)))


def _added(path: Path, file_format: str | None = None, **options: Any) -> Artifact:
    folder = path.parent / "models" / "m"
    version = 1 + len(list(folder.glob("[0-9]*")))
    embedding = EmbeddingOptions(**options)
    return add_model(
        path, format_of(path, file_format), folder / str(version), "m", version, embedding=embedding
    )


def _lines(ids: list[Any], rows: npt.NDArray[Any] = ROWS, separator: str = " ") -> str:
    texts = (" ".join(map(str, row)) for row in rows)
    return "".join(f"{name}{separator}{text}\n" for name, text in zip(ids, texts, strict=True))


def _npy(folder: Path) -> Path:
    np.save(folder / "rows.npy", ROWS)
    return folder / "rows.npy"


def _npz(folder: Path) -> Path:
    np.savez(folder / "rows.npz", vectors=ROWS, other=ROWS[0])
    return folder / "rows.npz"


def _compressed(folder: Path) -> Path:
    np.savez_compressed(folder / "rows.npz", vectors=ROWS)
    return folder / "rows.npz"


def _safetensors(folder: Path) -> Path:
    save_file({"vectors": ROWS, "bias": ROWS[0]}, folder / "rows.safetensors", metadata={"format": "np"})
    return folder / "rows.safetensors"


def _parquet(folder: Path, vectors: Any) -> Path:
    pq.write_table(pa.table({"id": NAMES, "vector": vectors}), folder / "rows.parquet", row_group_size=7)
    return folder / "rows.parquet"


def _fixed_lists(folder: Path) -> Path:
    return _parquet(folder, pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 16))


def _lists(folder: Path) -> Path:
    return _parquet(folder, pa.array(ROWS.tolist(), pa.list_(pa.float32())))


def _columns(folder: Path) -> Path:
    columns = {f"d{axis}": ROWS[:, axis] for axis in range(16)}
    pq.write_table(pa.table({"name": NAMES, **columns}), folder / "rows.parquet")
    return folder / "rows.parquet"


def _word2vec(folder: Path) -> Path:
    # word2vec's own program ends each line with a space.
    text = f"{len(ROWS)} 16\n" + _lines(NAMES).replace("\n", " \n")
    (folder / "rows.vec").write_text(text)
    return folder / "rows.vec"


def _glove(folder: Path) -> Path:
    with gzip.open(folder / "rows.txt.gz", "wt") as stream:
        stream.write(_lines(NAMES))
    return folder / "rows.txt.gz"


def _zstandard(folder: Path) -> Path:
    with pa.CompressedOutputStream(str(folder / "rows.txt.zst"), "zstd") as stream:
        stream.write(_lines(NAMES).encode())
    return folder / "rows.txt.zst"


def _binary(folder: Path, ending: bytes = b"\n") -> Path:
    rows = (f"{name} ".encode() + row.tobytes() + ending for name, row in zip(NAMES, ROWS, strict=True))
    (folder / "rows.bin").write_bytes(f"{len(ROWS)} 16\n".encode() + b"".join(rows))
    return folder / "rows.bin"


def _parts(folder: Path) -> Path:
    (folder / "embedding").mkdir()
    for part in range(5):
        chosen = slice(10 * part, 10 * part + 10)
        text = _lines(KEYS[chosen], ROWS[chosen], separator="\t")
        (folder / "embedding" / f"part-{part:05}").write_text(text)
    return folder / "embedding"


FILES: dict[str, tuple[Callable[[Path], Path], list[Any]]] = {
    "npy": (_npy, list(range(50))),
    "npz": (_npz, list(range(50))),
    "compressed npz": (_compressed, list(range(50))),
    "safetensors": (_safetensors, list(range(50))),
    "parquet, lists of a fixed size": (_fixed_lists, NAMES),
    "parquet, lists": (_lists, NAMES),
    "parquet, a column a dimension": (_columns, NAMES),
    "word2vec": (_word2vec, NAMES),
    "glove": (_glove, NAMES),
    "glove, zstandard": (_zstandard, NAMES),
    "word2vec binary": (_binary, NAMES),
    "word2vec binary without line ends": (lambda folder: _binary(folder, b""), NAMES),
    "pglbox": (_parts, KEYS),
}


@pytest.mark.parametrize("name", FILES)
def test_rows_and_ids_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    make, ids = FILES[name]
    artifact = _added(make(tmp_path))
    with open_encoder(artifact.path) as model:
        assert list(model.id_index()) == ids
        np.testing.assert_array_equal(model.encode(ids), ROWS)
        index, score = model.neighbors([ids[7]], 3)
        lengths = np.linalg.norm(ROWS, axis=1)
        cosine = ROWS @ ROWS[7] / (lengths * lengths[7])
        assert index[0].tolist() == np.argsort(-cosine)[1:4].tolist()
        assert score[0][0] == pytest.approx(np.sort(cosine)[-2], abs=1e-5)


def test_rows_in_many_blocks_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbox.model_import.row_blocks._BLOCK_BYTES", 8 * 16 * 7)
    monkeypatch.setattr("graphbox.model_import.text_files._READ_BYTES", 100)
    for number, (make, _) in enumerate(FILES.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        stored = np.load(_added(make(folder)).path / "tables" / "node" / "rows.npy")
        np.testing.assert_array_equal(stored, ROWS)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    rows = np.zeros((400_000, 64), np.float32)
    np.save(tmp_path / "rows.npy", rows)
    file_bytes = rows.nbytes
    del rows
    tracemalloc.start()
    try:
        artifact = _added(tmp_path / "rows.npy")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert artifact.manifest.tables["node"].rows == 400_000
    assert peak_bytes < file_bytes / 4


def test_float16_is_kept_and_wider_numbers_become_float32(tmp_path: Path) -> None:
    for dtype, codec in ((np.float16, "float16"), (">f4", "float32"), (np.float64, "float32")):
        np.save(tmp_path / "rows.npy", ROWS.astype(dtype))
        artifact = _added(tmp_path / "rows.npy")
        assert artifact.manifest.tables["node"].codec == codec
        np.testing.assert_array_equal(
            artifact.table("node").rows([3]), ROWS[3:4].astype(dtype).astype(np.float32)
        )


def test_bfloat16_of_safetensors_becomes_float32(tmp_path: Path) -> None:
    codes = (ROWS.view(np.uint32) >> 16).astype("<u2")
    spec = {"e": {"dtype": "BF16", "shape": [50, 16], "data_offsets": [0, codes.nbytes]}}
    header = json.dumps(spec).encode()
    content = struct.pack("<Q", len(header)) + header + codes.tobytes()
    (tmp_path / "rows.safetensors").write_bytes(content)
    rows = _added(tmp_path / "rows.safetensors").table("node").rows(np.arange(50))
    np.testing.assert_array_equal(rows, (ROWS.view(np.uint32) & 0xFFFF0000).view(np.float32))


def test_ids_of_a_file_and_of_the_archive(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_bytes("".join(f"{name}\r\n" for name in NAMES).encode())
    assert list(_added(_npy(tmp_path), ids=tmp_path / "ids.txt").ids("node")) == NAMES
    assert list(_added(_fixed_lists(tmp_path), ids=tmp_path / "ids.txt").ids("node")) == NAMES
    np.savez(tmp_path / "rows.npz", vectors=ROWS, ids=np.array(KEYS))
    assert list(_added(tmp_path / "rows.npz").ids("node")) == KEYS


def test_ids_are_integers_only_if_each_is_printed_so(tmp_path: Path) -> None:
    for ids in ([1, -2, 3], ["1", "02", "3"], ["1", str(1 << 63), "3"], ["1", "", "3"][::2]):
        (tmp_path / "rows.vec").write_text(_lines(list(ids), ROWS[: len(ids)]))
        found = list(_added(tmp_path / "rows.vec").ids("node"))
        is_integer = all(type(each) is int for each in ids) or list(ids) == ["1", "3"]
        assert found == [int(each) if is_integer else str(each) for each in ids]
    table = pa.table({"id": pa.array([1, (1 << 64) - 1], pa.uint64()), "vector": ROWS[:2].tolist()})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert list(_added(tmp_path / "rows.parquet").ids("node")) == ["1", str((1 << 64) - 1)]


def test_words_with_spaces_as_some_of_glove_have(tmp_path: Path) -> None:
    names = [". . .", "at name@domain.com", "caf\u00e9"]
    (tmp_path / "rows.txt").write_text(_lines(names, ROWS[:3]))
    assert list(_added(tmp_path / "rows.txt").ids("node")) == names


def test_the_score_and_the_node_type_are_those_asked_for(tmp_path: Path) -> None:
    artifact = _added(_npy(tmp_path), score="inner_product", node_type="\u8bcd")
    assert artifact.manifest.targets["\u8bcd"].score == "inner_product"
    with open_encoder(artifact.path) as model:
        index, _ = model.neighbors([7], 2)
        assert index[0].tolist() == [n for n in np.argsort(-(ROWS @ ROWS[7])).tolist() if n != 7][:2]


def _text(content: str, name: str = "rows.txt") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return write


def _bytes(content: bytes, name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def _array(array: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        np.save(folder / "rows.npy", array, allow_pickle=True)
        return folder / "rows.npy"

    return write


def _cut(make: Callable[[Path], Path], count: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = make(folder)
        path.write_bytes(path.read_bytes()[:-count])
        return path

    return write


def _table(**columns: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        pq.write_table(pa.table(columns), folder / "rows.parquet")
        return folder / "rows.parquet"

    return write


def _tensors(header: Any) -> Callable[[Path], Path]:
    text = json.dumps(header).encode()
    return _bytes(struct.pack("<Q", len(text)) + text + bytes(64), "rows.safetensors")


_NAN = ROWS.copy()
_NAN[17, 3] = np.nan
_FEW = [[1.0, 2.0], [3.0, 4.0]]
REFUSED: dict[str, tuple[Callable[[Path], Path], type[GraphboxError], str, str]] = {
    "not finite": (_array(_NAN), DataError, "received nan", "rows.npy, row 17"),
    "too large": (_array(np.full((2, 2), 1e300)), DataError, "received 1e.300", "rows.npy, row 0"),
    "integers": (_array(np.ones((2, 2), int)), DataError, "received int64", "rows.npy"),
    "one dimension": (_array(ROWS[0]), DataError, r"received \[16\]", "rows.npy"),
    "objects": (_array(np.array([[{}]], object)), DataError, "received object", "rows.npy"),
    "Fortran order": (_array(np.asfortranarray(ROWS)), DataError, "Fortran order", "rows.npy"),
    "no rows": (_array(ROWS[:0]), DataError, "at least one row", "rows.npy"),
    "cut array": (_cut(_npy, 1), DataError, "the data ends", "rows.npy"),
    "no array": (_bytes(b"x", "rows.npy"), DataError, "array of NumPy", "rows.npy"),
    "no archive": (_bytes(b"x", "rows.npz"), DataError, "npz archive", "rows.npz"),
    "cut archive": (_cut(_npz, 900), DataError, "npz archive", "rows.npz"),
    "no numbers": (_text("a b c\n"), DataError, "a number in column 2, received 'b'", "rows.txt:1"),
    "a number is none": (_text("a 1 2\nb 1 x\n"), DataError, "column 3, received 'x'", "rows.txt:2"),
    "words between numbers": (_text("a 1 x 2\n"), DataError, "column 3, received 'x'", "rows.txt:1"),
    "too few": (_text("a 1 2\n\nb 1\n"), DataError, "an id and 2 numbers, received 2", "rows.txt:3"),
    "too many": (_text("a 1 2\nb 1 2 3\n"), DataError, "received 4 fields", "rows.txt:2"),
    "too many after a tab": (_text("a\t1 2\nb\t1 2 3\n"), DataError, "received 4 fields", "rows.txt:2"),
    "id alone": (_text("a\n"), DataError, "from 1 to 65536 numbers", "rows.txt:1"),
    "rows missing": (_text("3 2\na 1 2\nb 1 2\n"), DataError, "expected 3 rows", "rows.txt"),
    "same id": (_text("a 1\nb 1\na 1\n"), DataError, "1 duplicates", "rows.txt"),
    "other bytes": (_bytes(b"\xff 1 2\n", "rows.txt"), DataError, "id in UTF-8", "rows.txt:1"),
    "infinite text": (_text("a 1 2\nb 1e99 2\n"), DataError, "received inf", "rows.txt, row 1, id `b`"),
    "cut gzip": (_cut(_glove, 20), DataError, "a whole file", "rows.txt.gz"),
    "cut zstandard": (_cut(_zstandard, 20), DataError, "a whole file", "rows.txt.zst"),
    "cut binary": (_cut(_binary, 3), DataError, "64 bytes of numbers", "rows.bin, row 49"),
    "cut binary at a word": (_cut(_binary, 68), DataError, "a word and a space", "rows.bin, row 49"),
    "no binary": (_bytes(b"nothing\n", "rows.bin"), DataError, "two integers", "rows.bin:1"),
    "no table": (_bytes(b"x", "rows.parquet"), DataError, "Parquet file", "rows.parquet"),
    "null": (_table(id=["a", None], v=_FEW), DataError, "received null", "column `id`, row 1"),
    "null list": (_table(id=["a", "b"], v=[[1.0], None]), DataError, "received null", "column `v`, row 1"),
    "null number": (_table(id=["a", "b"], v=[[1.0], [None]]), DataError, "null", "column `v`, row 1"),
    "lists differ": (_table(id=["a", "b"], v=[[1.0], [1.0, 2.0]]), DataError, "lists of 1", "row 1"),
    "no ids": (_table(v=_FEW), UsageError, "expected a column `id`", "rows.parquet"),
    "no vectors": (_table(id=["a"]), UsageError, "column of lists", "rows.parquet"),
    "two lists": (_table(id=["a", "b"], v=_FEW, w=_FEW), UsageError, "one column of lists", "rows.parquet"),
    "no header": (_bytes(b"x" * 100, "rows.safetensors"), DataError, "safetensors file", "rows.safetensors"),
    "list as header": (_tensors([]), DataError, "header of a safetensors", "rows.safetensors"),
    "offsets beyond": (
        _tensors({"e": {"dtype": "F32", "shape": [9, 9], "data_offsets": [0, 324]}}),
        DataError,
        "bytes, the file has",
        "tensor `e`",
    ),
    "offsets that differ": (
        _tensors({"e": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 12]}}),
        DataError,
        "other offsets",
        "tensor `e`",
    ),
    "int8": (
        _tensors({"e": {"dtype": "I8", "shape": [2, 2], "data_offsets": [0, 4]}}),
        DataError,
        "received I8",
        "tensor `e`",
    ),
    "pickle": (_bytes(pickle.dumps(1), "rows.pkl"), UnsupportedError, "received a pickle", "rows.pkl"),
    "torch": (_bytes(b"PK\x03\x04", "rows.pt"), UnsupportedError, "received a pickle", "rows.pt"),
    "torch as .bin": (_bytes(b"PK\x03\x04", "rows.bin"), UnsupportedError, "a pickle", "rows.bin"),
    "other name": (_bytes(b"x", "rows.xyz"), UsageError, "expected a file called", "rows.xyz"),
    "no file": (lambda folder: folder / "none.npy", NotFoundError, "found none", "none.npy"),
    "empty folder": (lambda folder: folder, NotFoundError, "part files", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    make, error, message, where = REFUSED[name]
    with pytest.raises(error, match=message) as caught:
        _added(make(tmp_path))
    assert caught.value.where is not None
    assert where in caught.value.where
    assert not list(tmp_path.glob("models/m/*"))


def test_the_hint_of_a_duplicate_names_both_rows(tmp_path: Path) -> None:
    path = _text("a 1\nb 1\na 1\n")(tmp_path)
    with pytest.raises(DataError) as caught:
        _added(path)
    assert caught.value.hint == "`a` is the id of row 0 and of row 2"


def test_wrong_ids_are_refused_with_their_line(tmp_path: Path) -> None:
    path, ids = _npy(tmp_path), tmp_path / "ids.txt"
    wrong: list[tuple[bytes, str, str]] = [
        (b"a\n\nb\n", "received an empty one", "ids.txt:2"),
        (b"a\n\xff\n", "an id in UTF-8", "ids.txt:2"),
        (b"a\nb\n", "an id for each of 50 rows, received 2", "--ids"),
    ]
    for content, message, where in wrong:
        ids.write_bytes(content)
        with pytest.raises(DataError, match=message) as caught:
            _added(path, ids=ids)
        assert where in str(caught.value.where)
    with pytest.raises(NotFoundError, match="cannot read the ids"):
        _added(path, ids=tmp_path / "none.txt")


def test_options_that_a_format_has_no_use_for_are_refused(tmp_path: Path) -> None:
    npy, text = _npy(tmp_path), _text("a 1\n")(tmp_path)
    given: list[tuple[Path, dict[str, Any], str]] = [
        (npy, {"tensor": "x"}, "--tensor"),
        (npy, {"id_column": "x"}, "--id-column"),
        (text, {"column": "x"}, "--column"),
        (text, {"ids": tmp_path / "ids"}, "--ids"),
        (_fixed_lists(tmp_path), {"ids": tmp_path / "ids", "id_column": "id"}, "--ids"),
    ]
    for path, options, where in given:
        with pytest.raises(UsageError) as caught:
            _added(path, **options)
        assert caught.value.where == where


def test_names_of_tensors_and_columns_are_checked(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", users=ROWS, items=ROWS[:5])
    path = tmp_path / "rows.npz"
    with pytest.raises(UsageError, match=r"has 2: `items` \[5, 16\], `users` \[50, 16\]"):
        _added(path)
    with pytest.raises(UsageError, match="received `item`") as caught:
        _added(path, tensor="item")
    assert caught.value.hint == "did you mean `items`?"
    assert _added(path, tensor="items").manifest.tables["node"].rows == 5
    table = _table(id=["a", "b"], name=["c", "d"], v=_FEW, w=_FEW)(tmp_path)
    with pytest.raises(UsageError, match="received `nam`"):
        _added(table, id_column="nam", column="v")
    with pytest.raises(UsageError, match="received `x`"):
        _added(table, column="x")
    assert list(_added(table, id_column="name", column="w").ids("node")) == ["c", "d"]


def test_a_format_can_be_given(tmp_path: Path) -> None:
    path = _text(_lines(NAMES), "rows")(tmp_path)
    assert list(_added(path, "word2vec").ids("node")) == NAMES
    with pytest.raises(UsageError, match="expected one of the formats") as caught:
        format_of(path, "word2vek")
    assert caught.value.hint == "did you mean `word2vec`?"
    with pytest.raises(UsageError, match="received a folder"):
        format_of(tmp_path, "npy")
