"""Hostile model versions: whole folders in which one part, or several, is not what it should be."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.artifact.manifest import MANIFEST_FILE, read_manifest
from graphbox.errors import GraphboxError
from tests.deploy import hostile_onnx
from tests.deploy.form_models import WRITERS, write_numbers
from tests.deploy.hostile_onnx import damaged

__all__ = ["CANARY", "PARTS", "Outside", "changed_value", "make_bases", "make_case", "sign"]

CANARY: Final = 12345.678
"""Each number of the files outside of the version: in an answer it was read from there."""

_Part: TypeAlias = Callable[[Path, random.Random, "Outside"], None]
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**400, 1e308, -0.0, "", "\0", "a" * 10_000, "\ud800"),
    *("../outside.bin", "/etc/passwd", "model.onnx", [], {}, [[]], [None], {"": 0}, {"a": {"b": []}}),
)
_DEEP: Final = 100_000
_HUGE_FILES_BYTES: Final = (1 << 32, 1 << 42)
_LARGEST_SIGNED_BYTES: Final = 1 << 30


class Outside:
    """Files beside the version, which nothing may read.

    Attributes:
        file: numbers, as bytes.
        folder: with a file of each name that a version has at its top.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "outside.bin"
        self.folder = folder / "outside"
        self.file.write_bytes(np.full(1024, CANARY, np.float32).tobytes())
        self.folder.mkdir()
        for name in ("model.onnx", "rows.npy", "item.parquet", "preprocess.json", MANIFEST_FILE):
            shutil.copyfile(self.file, self.folder / name)


def make_bases(folder: Path) -> list[Path]:
    """Write a sound version of each form, and one with a default row."""
    paths = [folder / "base_default_row"]
    write_numbers(paths[0], "mean")
    for form, write in WRITERS.items():
        path = folder / f"base_{form.__name__}"
        write(path)
        paths.append(path)
    return paths


def make_case(seed: int, bases: list[Path], path: Path, outside: Outside) -> str:
    """Make the hostile version of a seed in a new folder, and return what is wrong with it."""
    rng = random.Random(seed)
    base = rng.choice(bases)
    shutil.copytree(base, path)
    names = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        if rng.random() < 0.6 and (path / "model.onnx").is_file():
            names.append(_mutate_onnx(path, rng, outside))
        else:
            name = rng.choice(list(PARTS))
            names.append(name)
            PARTS[name](path, rng, outside)
    if rng.random() < 0.95:
        names.append("signed")
        sign(path)
    return f"{base.name}: {', '.join(names)}"


def _mutate_onnx(path: Path, rng: random.Random, outside: Outside) -> str:
    name = rng.choice(list(hostile_onnx.MUTATIONS))
    file = path / "model.onnx"
    if not _is_small(file):
        return f"{name} (impossible)"
    try:
        content = hostile_onnx.MUTATIONS[name](file.read_bytes(), rng, outside.file)
    except Exception as error:  # noqa: BLE001 - a second change to what is no model any more
        return f"{name} (impossible: {type(error).__name__})"
    file.write_bytes(content)
    return name


def sign(path: Path) -> None:
    """Give the manifest the sizes and digests of the files as they are, and its own digest."""
    file = path / MANIFEST_FILE
    if not _is_small(file):
        return
    try:
        content = json.loads(file.read_bytes())
        for name, record in content["files"].items():
            part = path / name
            if _is_small(part):
                found = part.read_bytes()
                record.update(bytes=len(found), sha256=hashlib.sha256(found).hexdigest())
            elif part.suffix in {".json", ".onnx"} and part.exists():
                record.update(bytes=part.lstat().st_size)
        content["digest"] = ""
        file.write_text(json.dumps(content))
        try:
            read_manifest(file.read_bytes(), file)
        except GraphboxError as error:  # names the digest of the content, where that is all that is wrong
            content["digest"] = str(error).partition("the content has ")[2][:64]
            file.write_text(json.dumps(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
        return  # there is no manifest any more that could be signed


# ------------------------------------------------------------------------------------------- parts


def _any_file(path: Path, rng: random.Random, suffix: str = "") -> Path | None:
    files = sorted(each for each in path.rglob(f"*{suffix}") if _is_small(each))
    return rng.choice(files) if files else None


def _is_small(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and file.stat().st_size < _LARGEST_SIGNED_BYTES


def _damaged_file(path: Path, rng: random.Random, outside: Outside) -> None:
    file = _any_file(path, rng)
    if file:
        file.write_bytes(damaged(file.read_bytes(), rng))


def _link_to_file(path: Path, rng: random.Random, outside: Outside) -> None:
    file = _any_file(path, rng)
    if file:
        file.unlink()
        file.symlink_to(rng.choice((outside.file, Path("../outside.bin"), file, Path("/dev/zero"))))


def _link_to_folder(path: Path, rng: random.Random, outside: Outside) -> None:
    folders = sorted(each for each in path.iterdir() if each.is_dir() and not each.is_symlink())
    if folders:
        chosen = rng.choice(folders)
        shutil.rmtree(chosen)
        chosen.symlink_to(outside.folder)


def _link_to_version(path: Path, rng: random.Random, outside: Outside) -> None:
    """Let the version itself be a link: it is what was named, so its files may be read."""
    moved = path.with_name("moved")
    if not path.is_symlink():
        path.rename(moved)
        path.symlink_to(rng.choice((moved, Path("moved"))))


def _no_plain_file(path: Path, rng: random.Random, outside: Outside) -> None:
    file = _any_file(path, rng)
    if file:
        file.unlink()
        if rng.random() < 0.5:
            os.mkfifo(file)
        else:
            file.mkdir()


def _huge_file(path: Path, rng: random.Random, outside: Outside) -> None:
    """Make a file huge that is read as a whole, signed or not, or another one, which its size tells."""
    file = path / rng.choice((MANIFEST_FILE, "preprocess.json", "example_request.json", "model.onnx"))
    chosen = file if rng.random() < 0.5 else _any_file(path, rng)
    if chosen and _is_small(chosen):
        os.truncate(chosen, rng.choice(_HUGE_FILES_BYTES))


def _changed_json(name: str) -> _Part:
    def change(path: Path, rng: random.Random, outside: Outside) -> None:
        file = path / name
        try:
            document = json.loads(file.read_bytes()) if _is_small(file) else None
        except (ValueError, RecursionError):
            document = None
        if document is None:
            return
        match rng.randrange(8):
            case 0:
                file.write_text("[" * _DEEP + "]" * _DEEP)
            case 1:
                text = json.dumps(changed_value(document, rng))
                file.write_text(text.replace('"', rng.choice(("'", '\\"', '"\\u0000')), 1))
            case 2:
                deep = "[" * _DEEP + "]" * _DEEP
                file.write_text(json.dumps(_with_value(document, rng, "PLACE")).replace('"PLACE"', deep))
            case 3:
                number = rng.choice(("NaN", "1e999", "-Infinity", "9" * 5000))
                file.write_text(json.dumps(_with_value(document, rng, "PLACE")).replace('"PLACE"', number))
            case _:
                for _ in range(rng.choice((1, 1, 2, 4))):
                    document = changed_value(document, rng)
                file.write_text(json.dumps(document))

    return change


def changed_value(document: Any, rng: random.Random) -> Any:
    """Return a document of JSON in which something is wrong."""
    return _with_value(document, rng, rng.choice(_VALUES))


def _with_value(document: Any, rng: random.Random, value: Any) -> Any:
    """Return a document in which one value, key or element is another one, is missing or is new."""
    if isinstance(document, dict) and document and rng.random() < 0.9:
        key = rng.choice(list(document))
        change = rng.randrange(12)
        if change == 0:
            return {name: each for name, each in document.items() if name != key}
        added = rng.choice(("", "x", "../x", "\0"))
        return document | ({added: value} if change == 1 else {key: _with_value(document[key], rng, value)})
    if isinstance(document, list) and document and rng.random() < 0.9:
        place = rng.randrange(len(document))
        before, element, after = document[:place], document[place], document[place + 1 :]
        middle = rng.choice(([], [element] * 1000, *[[_with_value(element, rng, value)]] * 10))
        return [*before, *middle, *after]
    if isinstance(document, int) and not isinstance(document, bool) and rng.random() < 0.5:
        return document + rng.choice((-1, 1, 1000))
    return value


def _lying_array(path: Path, rng: random.Random, outside: Outside) -> None:
    """Write another header before the numbers of an array."""
    file = _any_file(path, rng, ".npy")
    if file is None:
        return
    content = file.read_bytes()
    size = struct.unpack("<H", content[8:10])[0] if len(content) > 10 else 0
    header, body = content[10 : 10 + size].decode("latin-1"), content[10 + size :]
    shape = header[header.find("(") : header.find(")") + 1] or "()"
    sizes = rng.choice(
        (
            *("(2147483648, 3)", "(4611686018427387904,)", "(-1, 3)", "(-1,)", "()", "(True, 3)", "(3.0,)"),
            *("(0, 9223372036854775807)", "(9223372036854775808, 0)", "(9223372036854775807, 0)", "5"),
            *("(" + "1," * 70 + ")", "(" * 300 + ")" * 300, "(" * 5000 + ")" * 5000, "(1e99,)", "(-5, -3)"),
        )
    )
    kinds = ("|O", "<U1000000", "<f8", ">f4", "|V0", "<M8[s]", "<f4,<f4", "|S0", "<i4", "x", "<f16", "|b1")
    match rng.randrange(4):
        case 0:
            header = header.replace(shape, sizes)
        case 1:
            start = header.find("'descr': ") + 9
            header = header[:start] + repr(rng.choice(kinds)) + header[header.find(",", start) :]
        case 2:
            header = header.replace("False", rng.choice(("True", "1", "None", "__import__('os')")))
        case _:
            header = rng.choice(
                ("", "{}", "{" * 3000, "0", "{'shape': (1,)}", "\xff\xfe", header + "x" * 60000)
            )
    size = rng.choice((len(header), len(header), len(header), 0, 65535))
    magic = content[:6] + bytes([rng.choice((1, 1, 1, 1, 2, 3, 9)), 0])
    length = struct.pack("<H", min(size, 65535))
    file.write_bytes(magic + length + header.encode("latin-1", "replace") + body)


def _other_numbers(path: Path, rng: random.Random, outside: Outside) -> None:
    """Keep an array's header and give it other numbers: positions out of range, NaN."""
    file = _any_file(path, rng, ".npy")
    if file is None:
        return
    try:
        array = np.load(file)
    except (ValueError, EOFError, OSError):
        return
    size = array.nbytes
    file.write_bytes(file.read_bytes()[: -size or None] + rng.choice((b"\xff", b"\x7f", b"\x00")) * size)


def _small_table(file: Path | None) -> pa.Table | None:
    """Return the table of a file; None where there is none, or a long one."""
    try:
        if file is None or pq.read_metadata(file).num_rows > 100_000:
            return None
        return pq.read_table(file)
    except (pa.ArrowException, OSError):
        return None


def _repeated_parquet(path: Path, rng: random.Random, outside: Outside) -> None:
    """Write the first row of a Parquet file 30 million times, in few bytes."""
    file = _any_file(path, rng, ".parquet")
    table = _small_table(file) if rng.random() < 0.2 else None  # it takes seconds
    if file is None or table is None or not table.num_rows or table.slice(0, 1).nbytes > 200:
        return
    million = table.take(pa.array(np.zeros(1_000_000, np.int64)))
    with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:
        for _ in range(30):
            writer.write_table(million)


def _other_parquet(path: Path, rng: random.Random, outside: Outside) -> None:
    """Write other columns, types or rows into a Parquet file."""
    file = _any_file(path, rng, ".parquet")
    table = _small_table(file)
    if file is None or table is None:
        return
    name = rng.choice(table.column_names) if table.column_names else "id"
    count = table.num_rows
    columns = (
        pa.nulls(count),
        pa.array([None] * count, pa.int64()),
        pa.array([[1]] * count),
        pa.array([{"a": 1}] * count),
        pa.array([b"\xff"] * count, pa.binary()),
        pa.array([-1] * count, pa.int64()),
        pa.array([2**62] * count, pa.int64()),
        pa.array([1000] * count, pa.int64()),
        pa.array([float("nan")] * count),
        pa.array(["\0" * 1000] * count),
        pa.array(["a"] * count).dictionary_encode(),
        pa.array([1.5] * count, pa.float16()) if count else pa.nulls(0),
        pa.array([0] * count, pa.timestamp("us", "Nowhere/Land")),
    )
    match rng.randrange(6):
        case 0:
            table = table.slice(0, rng.randrange(count + 1))
        case 1:
            table = pa.concat_tables([table] * rng.choice((2, 100)))
        case 2:
            table = table.rename_columns([rng.choice(("", "id", "x", "\0")) for _ in table.column_names])
        case _:
            table = table.set_column(table.column_names.index(name), name, rng.choice(columns))
    pq.write_table(table, file, compression=rng.choice(("zstd", "none", "snappy")))


PARTS: Final[dict[str, _Part]] = {
    "damaged file": _damaged_file,
    "link to a file": _link_to_file,
    "link to a folder": _link_to_folder,
    "link to the version": _link_to_version,
    "no plain file": _no_plain_file,
    "huge file": _huge_file,
    "manifest": _changed_json(MANIFEST_FILE),
    "preprocess": _changed_json("preprocess.json"),
    "example request": _changed_json("example_request.json"),
    "lying array": _lying_array,
    "other numbers": _other_numbers,
    "other Parquet": _other_parquet,
    "repeated Parquet": _repeated_parquet,
}
