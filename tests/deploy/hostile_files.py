"""Hostile files of other programs, as `graphbox models add` reads them: rows in every format, and ONNX."""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from graphbox.model_import import add_model, format_of
from tests.deploy import hostile_onnx
from tests.deploy.hostile_onnx import damaged
from tests.deploy.hostile_versions import PARTS, Outside, changed_value
from tests.model_import.onnx_files import linear_with_external_data
from tests.model_import.test_rows import FILES

__all__ = ["exercise_file", "make_file_case"]

_Change: TypeAlias = Callable[[Path, random.Random], None]
_TOKENS: Final = (
    *(b"nan", b"inf", b"1e999", b"-", b"", b"\0", b"\xff\xfe", b"0x10", b"1_0", b"9" * 5000, b"a" * 100_000),
    *(
        b"\n",
        b" ",
        b"\t",
        b"\r\n",
        b"99999999999 16\n",
        b"2 4611686018427387904\n",
        b"-1 -1\n",
        b"\xe2\x80\xa8",
    ),
)
_BOMB_BYTES: Final = 512 << 20


def make_file_case(seed: int, path: Path, outside: Outside) -> str:
    """Make the hostile file of a seed in a new folder, and return what is wrong with it."""
    rng = random.Random(seed)
    path.mkdir()
    if rng.random() < 0.25:
        return _make_onnx(path, rng, outside)
    name = rng.choice(list(FILES))
    file = FILES[name][0](path)
    if file.is_dir():
        change = rng.choice((_damaged_file, _tokens, _links(outside)))
        change(rng.choice(sorted(file.iterdir())), rng)
    else:
        change = rng.choice((_damaged_file, *_CHANGES.get(file.suffix, (_tokens,))))
        change(file, rng)
    return f"{name}: {change.__name__.strip('_').replace('_', ' ')}"


def exercise_file(path: Path, target: str) -> None:
    """Make a model of the file in a folder, as the command does."""
    (file,) = (each for each in path.iterdir() if each.stem in {"rows", "rows.txt", "embedding", "model"})
    file_format = format_of(file)
    try:
        add_model(
            file,
            file_format,
            path / "added" / "1",
            "m",
            1,
            target=target if file_format == "onnx" else "auto",
        )
    finally:
        left = [each.name for each in (path / "added").glob("*") if each.name != "1"]
        if left:
            raise RuntimeError(f"left behind: {left}")


def _make_onnx(path: Path, rng: random.Random, outside: Outside) -> str:
    file = linear_with_external_data(path)
    if file.name != "model.onnx":
        file = file.rename(path / "model.onnx")
    name = rng.choice(list(hostile_onnx.MUTATIONS))
    try:
        file.write_bytes(hostile_onnx.MUTATIONS[name](file.read_bytes(), rng, outside.file))
    except Exception as error:  # noqa: BLE001 - what this model has no place for
        return f"ONNX: {name} (impossible: {type(error).__name__})"
    data = [each for each in path.iterdir() if each != file]
    if data and rng.random() < 0.3:
        data[0].unlink()
        data[0].symlink_to(rng.choice((outside.file, Path("/dev/zero"), Path("model.onnx"))))
    return f"ONNX: {name}"


def _damaged_file(file: Path, rng: random.Random) -> None:
    file.write_bytes(damaged(file.read_bytes(), rng))


def _tokens(file: Path, rng: random.Random) -> None:
    """Insert, or put in the place of a part, what is no number, no id or no line."""
    content = file.read_bytes()
    for _ in range(rng.choice((1, 1, 5))):
        place = rng.randrange(len(content) + 1)
        content = content[:place] + rng.choice(_TOKENS) + content[place + rng.choice((0, 0, 8)) :]
    file.write_bytes(content)


def _links(outside: Outside) -> _Change:
    def linked(file: Path, rng: random.Random) -> None:
        file.unlink()
        if rng.random() < 0.3:
            os.mkfifo(file)
        else:
            file.symlink_to(rng.choice((outside.folder, Path("/dev/zero"), file.parent)))

    return linked


def _gzip_bomb(file: Path, rng: random.Random) -> None:
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(rng.choice((b"", b"a 1 2\n", b"a ")))
        block = rng.choice((b"\0", b"1", b" ")) * (1 << 24)  # not a line each: many lines take their time
        for _ in range(_BOMB_BYTES // len(block)):
            stream.write(block)


def _lying_header(file: Path, rng: random.Random) -> None:
    PARTS["lying array"](file.parent, rng, None)  # type: ignore[arg-type]


def _zip(file: Path, rng: random.Random) -> None:
    """Write an archive that is a bomb, is encrypted, repeats a name or names files elsewhere."""
    rows = file.with_name("inner.npy")
    np.save(rows, np.ones((4, 3), np.float32))
    inner = rows.read_bytes()
    rows.unlink()
    with zipfile.ZipFile(file, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        match rng.randrange(6):
            case 0:
                archive.writestr("../outside.npy", inner)
                archive.writestr("/etc/passwd.npy", inner)
            case 1:
                for _ in range(2):
                    archive.writestr("rows.npy", inner)
            case 2:
                header = inner.replace(b"(4, 3)", b"(536870912, 1)")[: len(inner) - 48]
                with archive.open("rows.npy", "w", force_zip64=True) as stream:
                    stream.write(header)
                    for _ in range(_BOMB_BYTES >> 26):
                        stream.write(bytes(1 << 24))
            case 3:
                archive.writestr("rows.npy", inner)
                archive.writestr("ids.npy", inner.replace(b"'<f4'", b"'<U9999999'"))
            case 4:
                for number in range(20_000):
                    archive.writestr(f"{number}.npy", b"")
            case _:
                archive.writestr("rows.npy", inner)
    content = bytearray(file.read_bytes())
    central = content.find(b"PK\x01\x02")
    if rng.random() < 0.5 and central >= 0:  # flags, method, sizes or place
        at = central + rng.choice((8, 10, 20, 24, 28, 42))
        content[at : at + 2] = rng.choice((b"\x01\x00", b"\xff\xff", b"\x63\x00", b"\x0e\x00"))
        file.write_bytes(bytes(content))


def _tensors(file: Path, rng: random.Random) -> None:
    """Change the JSON before the tensors."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header: Any = json.loads(content[8 : 8 + length])
    for _ in range(rng.choice((1, 1, 3))):
        header = changed_value(header, rng)
    text = json.dumps(header).encode()
    if rng.random() < 0.2:
        text = b"[" * 100_000 + b"]" * 100_000
    size = rng.choice((len(text), len(text), len(text), 0, 1 << 62, (1 << 64) - 1))
    file.write_bytes(struct.pack("<Q", size) + text + content[8 + length :])


def _other_parquet(file: Path, rng: random.Random) -> None:
    PARTS["other Parquet"](file.parent, rng, None)  # type: ignore[arg-type]


def _huge(file: Path, rng: random.Random) -> None:
    os.truncate(file, rng.choice((1 << 32, 1 << 42)))


_CHANGES: Final[dict[str, tuple[_Change, ...]]] = {
    ".npy": (_lying_header, _lying_header, _huge),
    ".npz": (_zip, _zip, _huge),
    ".safetensors": (_tensors, _tensors, _huge),
    ".parquet": (_other_parquet, _other_parquet, _huge),
    ".vec": (_tokens, _tokens),
    ".bin": (_tokens, _tokens),
    ".gz": (_tokens, _gzip_bomb),
}
