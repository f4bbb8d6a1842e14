"""Formats of files that become model versions, and how a file's format is found."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from graphbox.errors import NotFoundError, UnsupportedError, UsageError, did_you_mean

__all__ = ["FORMATS", "FileFormat", "format_of"]

FileFormat = Literal["onnx", "npy", "npz", "parquet", "safetensors", "word2vec", "word2vec_binary", "pglbox"]
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)

_OF_SUFFIX: dict[str, FileFormat] = {
    ".onnx": "onnx",
    ".npy": "npy",
    ".npz": "npz",
    ".parquet": "parquet",
    ".safetensors": "safetensors",
    ".txt": "word2vec",
    ".vec": "word2vec",
    ".w2v": "word2vec",
    ".glove": "word2vec",
    ".bin": "word2vec_binary",
}
_PICKLES = frozenset({".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"})
# Saved by torch: a zip archive with a pickle, or a pickle of protocol 2 and above.
_PICKLE_MAGIC = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def format_of(path: Path, given: str | None = None) -> FileFormat:
    """Return the format of a file or folder: as given, else by its name.

    Args:
        path: has to exist; a folder is one of PGLBox's part files.
        given: one of `FORMATS`.

    Raises:
        NotFoundError: there is no such file.
        UsageError: the format is not known.
        UnsupportedError: the file is a pickle, which can run any code when it is read.
    """
    if not path.exists():
        raise NotFoundError("expected a file or a folder, found none", where=str(path))
    if given is not None and given not in FORMATS:
        raise UsageError(
            f"expected one of the formats {', '.join(FORMATS)}, received `{given}`",
            where="--format",
            hint=did_you_mean(given, FORMATS),
        )
    suffix = path.with_suffix("").suffix if path.suffix in {".gz", ".zst"} else path.suffix
    if path.is_file() and _is_pickle(path, suffix):
        raise UnsupportedError(
            "expected numbers without code, received a pickle, which runs code when it is read",
            where=str(path),
            hint="where it was made: numpy.save('rows.npy', torch.load(FILE, weights_only=True)[NAME].float()"
            ".numpy()), then `graphbox models add NAME rows.npy`",
        )
    for name in FORMATS:
        if name == given:
            return _checked(path, name)
    if path.is_dir() or path.name.startswith("part-"):
        return "pglbox"
    if suffix not in _OF_SUFFIX:
        raise UsageError(
            f"expected a file called *{', *'.join(_OF_SUFFIX)}, or a folder of part files, received "
            f"`{path.name}`",
            where=str(path),
            hint=f"say what it is: --format {'|'.join(FORMATS)}",
        )
    return _OF_SUFFIX[suffix]


def _checked(path: Path, name: FileFormat) -> FileFormat:
    if path.is_dir() and name != "pglbox":
        raise UsageError(f"expected a file of the format {name}, received a folder", where=str(path))
    return name


def _is_pickle(path: Path, suffix: str) -> bool:
    if suffix in _PICKLES:
        return True
    if suffix != ".bin":
        return False
    with path.open("rb") as stream:
        return stream.read(4).startswith(_PICKLE_MAGIC)
