"""Array files as streams: one header, a digest of the data, files of native code, room on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from graphbox._core import crc32c
from graphbox.errors import DoesNotFitError, FormatError, UsageError
from graphbox.graph.array_file import HEADER_BYTES, array_header
from graphbox.graph.format import FolderWriter, check_digests, open_snapshot, read_manifest

EMPTY = {"name": "x", "node_types": [], "edge_types": []}


@pytest.mark.parametrize("shape", [(0,), (7,), (5, 3), (0, 4), (2, 3, 2)])
@pytest.mark.parametrize("dtype", ["<f4", "<i4", "<i8", "|b1", "|u1"])
def test_what_is_written_in_blocks_is_one_array(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    values = (np.random.default_rng(1).integers(0, 2, shape) * 3).astype(dtype)
    with FolderWriter(tmp_path / "x") as writer:
        array = writer.open_array("some/values", dtype, shape[1:])
        for start in range(0, len(values), 2):
            array.append(values[start : start + 2])
        assert array.num_rows == len(values)
        name = array.close()
        assert writer.add("whole", values) == "base-000001/whole.npy"
        writer.commit(EMPTY)
    snapshot = open_snapshot(tmp_path / "x")
    check_digests(snapshot)
    files = read_manifest(tmp_path / "x")["files"]
    assert files[name] == files["base-000001/whole.npy"]
    assert files[name]["crc32c"] == f"{crc32c(values.reshape(-1).view(np.uint8)):08x}"
    loaded = np.load(tmp_path / "x" / name, allow_pickle=False)
    assert (loaded.dtype, loaded.shape) == (values.dtype, values.shape)
    assert (loaded == values).all()
    assert (snapshot.arrays[name] == values).all()
    assert (tmp_path / "x" / name).read_bytes()[:HEADER_BYTES] == array_header(values.dtype, shape)


def test_rows_of_another_type_or_shape_are_refused(tmp_path: Path) -> None:
    with FolderWriter(tmp_path / "x") as writer:
        array = writer.open_array("values", np.float32, (2,))
        for wrong in (np.zeros((3, 2)), np.zeros((3, 3), np.float32), np.zeros(2, np.float32)):
            with pytest.raises(UsageError, match=r"expected rows <f4 \[2\], received"):
                array.append(wrong)
        with pytest.raises(UsageError, match=r"expected one of <f4, .*, received '<f8'"):
            writer.open_array("doubles", np.float64)
    assert not (tmp_path / "x").exists()


def test_a_file_of_native_code_is_taken_when_it_is_what_it_says(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.int64)
    digest = crc32c(values.view(np.uint8))
    with FolderWriter(tmp_path / "x") as writer:
        writer.path_of("a/b").write_bytes(array_header(values.dtype, (6,)) + values.tobytes())
        name = writer.adopt("a/b", "<i8", (6,), digest)
        with pytest.raises(FormatError, match=r"expected the header of a \.npy array <i8 \[5\]"):
            writer.adopt("a/b", "<i8", (5,), digest)
        writer.adopt("a/b", "<i8", (6,), digest)
        writer.commit(EMPTY)
    assert open_snapshot(tmp_path / "x").arrays[name].tolist() == values.tolist()


def test_temporary_files_go_with_their_writer(tmp_path: Path) -> None:
    with FolderWriter(tmp_path / "x") as writer:
        (writer.scratch / "run").write_text("1")
        assert writer.scratch.parent == tmp_path / "x"
        writer.commit(EMPTY)
    assert sorted(entry.name for entry in (tmp_path / "x").iterdir()) == ["base-000001", "manifest.json"]
    (tmp_path / "x" / "scratch").mkdir()
    (tmp_path / "x" / "scratch" / "left").write_text("by a dead writer")
    with FolderWriter(tmp_path / "x"):
        assert not (tmp_path / "x" / "scratch").exists()


def test_room_is_reserved_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with FolderWriter(tmp_path / "x") as writer:
        writer.reserve(1_000_000)
        with pytest.raises(DoesNotFitError, match=r"1,000,001 bytes or more .*: 1,000,000 bytes are free"):
            writer.reserve(1_000_001)
