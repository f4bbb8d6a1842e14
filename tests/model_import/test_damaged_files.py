"""Files with changed bytes are refused by a typed error, or read; nothing else happens."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from graphbox.artifact import inspect_onnx
from graphbox.errors import GraphboxError
from graphbox.model_import import add_model, format_of
from graphbox.model_import.onnx_rewriting import self_contained_model, with_shapes
from tests.model_import.onnx_files import linear_with_external_data

ROWS = np.random.default_rng(4).standard_normal((20, 4)).astype(np.float32)
IDS = [f"w{number}" for number in range(len(ROWS))]
CASES = [pytest.param(60, id="few"), pytest.param(1000, id="many", marks=pytest.mark.stress)]


def _damaged(content: bytes, generator: random.Random) -> bytes:
    """Flip, insert or remove bytes, more often near the beginning, or cut the end off."""
    damaged = bytearray(content)
    for _ in range(generator.choice((1, 1, 2, 8))):
        place = generator.randrange(min(len(damaged), 400) if generator.random() < 0.6 else len(damaged))
        match generator.randrange(7):
            case 0 | 1 | 2 | 3:
                damaged[place] ^= 1 << generator.randrange(8)
            case 4:
                damaged[place:place] = generator.randbytes(generator.randrange(1, 9))
            case 5:
                del damaged[place : place + generator.randrange(1, 9)]
            case _:
                del damaged[place + 1 :]
        if not damaged:
            damaged = bytearray(b"\0")
    return bytes(damaged)


def _npy(path: Path) -> None:
    np.save(path, ROWS)


def _npz(path: Path) -> None:
    np.savez_compressed(path, vectors=ROWS, ids=np.arange(len(ROWS)))


def _safetensors(path: Path) -> None:
    save_file({"vectors": ROWS}, path)


def _parquet(path: Path) -> None:
    pq.write_table(pa.table({"id": IDS, "vector": ROWS.tolist()}), path)


def _text(path: Path) -> None:
    lines = [f"{name} " + " ".join(map(str, row)) for name, row in zip(IDS, ROWS, strict=True)]
    path.write_text("\n".join([f"{len(ROWS)} 4", *lines]))


def _binary(path: Path) -> None:
    rows = b"".join(f"{name} ".encode() + row.tobytes() for name, row in zip(IDS, ROWS, strict=True))
    path.write_bytes(f"{len(ROWS)} 4\n".encode() + rows)


WRITERS: dict[str, Callable[[Path], None]] = {
    "rows.npy": _npy,
    "rows.npz": _npz,
    "rows.safetensors": _safetensors,
    "rows.parquet": _parquet,
    "rows.txt": _text,
    "rows.bin": _binary,
}


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("name", WRITERS)
def test_damaged_rows_are_read_or_refused(name: str, cases: int, tmp_path: Path) -> None:
    path, models = tmp_path / name, tmp_path / "models"
    WRITERS[name](path)
    content, generator = path.read_bytes(), random.Random(name)
    refused = 0
    for _ in range(cases):
        path.write_bytes(_damaged(content, generator))
        shutil.rmtree(models, ignore_errors=True)
        try:
            add_model(path, format_of(path), models / "1", "m", 1)
        except GraphboxError:
            refused += 1
            assert not list(models.glob("*"))
    assert refused > cases // 10


@pytest.mark.parametrize("cases", CASES)
def test_damaged_models_are_rewritten_or_refused(cases: int, tmp_path: Path) -> None:
    path = linear_with_external_data(tmp_path)
    content, generator = path.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(10 * cases):
        path.write_bytes(_damaged(content, generator))
        try:
            model = self_contained_model(path)
            summary = inspect_onnx(model, "model.onnx")
            shapes = {name: (*sizes, "added") for name, sizes in summary.dimensions.items()}
            changed = inspect_onnx(with_shapes(model, summary, shapes, "model.onnx"), "model.onnx")
        except GraphboxError:
            refused += 1
        else:
            assert changed.dimensions == shapes
    assert refused > cases
