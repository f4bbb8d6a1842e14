"""Row codecs in plain NumPy, one formula of the format's page after the other."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

CODECS: Final = (
    "float32",
    "float16",
    "int8_rowwise",
    "int4_rotated",
    "int3_rotated",
    "int2_rotated",
    "residual(3)",
    "tiered(int4_rotated,int2_rotated)",
    "tiered(float32,residual(2))",
    "clustered(int3_rotated)",
    "clustered(tiered(int4_rotated,int2_rotated))",
    "tiered(clustered(int4_rotated),residual(2))",
    "clustered(residual(2))",
    "mean",
    "tiered(int4_rotated,clustered(mean))",
    "clustered(tiered(int3_rotated,mean))",
    "clustered(tiered(clustered(int2_rotated),mean))",
)
DIMS: Final = (1, 2, 3, 5, 7, 63, 64, 65, 100, 128, 300)

Float32 = npt.NDArray[np.float32]


def random_arrays(codec: str, rows: int, dim: int, random: np.random.Generator) -> dict[str, Any]:
    """Return arrays of a table that any content is allowed in, with random content."""
    if codec in {"float32", "float16", "mean"}:
        plain = random.standard_normal((rows, dim), np.float32)
        return (
            {"mean.npy": plain.sum(0).astype("<f2")} if codec == "mean" else {"rows.npy": plain.astype(codec)}
        )
    factors = random.standard_normal((rows, 2)).astype(np.float16)
    if codec == "int8_rowwise":
        return {"codes.npy": random.integers(0, 256, (rows, dim), np.uint8), "scale_bias.npy": factors}
    if codec.startswith("residual"):
        books = int(codec[9:-1])
        return {
            "codes.npy": random.integers(0, 256, (rows, books), np.uint8),
            "codebooks.npy": random.standard_normal((books, 256, dim), np.float32),
        }
    if codec.startswith("clustered"):
        rest = random_arrays(codec.removeprefix("clustered(")[:-1], rows, dim, random)
        return {
            "clusters.npy": random.integers(0, 5, rows, np.uint8),
            "centroids.npy": random.standard_normal((5, dim)).astype(np.float16),
            **{f"rest.{name}": array for name, array in rest.items()},
        }
    if codec.startswith("tiered"):
        return _random_tiers(codec, rows, dim, random)
    bits = int(codec[3])
    codes = random.integers(0, 256, (rows, _code_bytes(bits, dim)), np.uint8)
    return {
        "packed.npy": np.concatenate([factors.view(np.uint8), codes], axis=1),
        "signs.npy": random.choice(np.array([-1, 1], np.int8), dim),
    }


def _random_tiers(codec: str, rows: int, dim: int, random: np.random.Generator) -> dict[str, Any]:
    is_hot = random.random(rows) < 0.3
    found: dict[str, Any] = {"is_hot.npy": np.packbits(is_hot, bitorder="little")}
    for prefix, own, members in zip(("hot.", "cold."), tiers_of(codec), (is_hot, ~is_hot), strict=True):
        arrays = random_arrays(own, int(members.sum()), dim, random)
        found |= {f"{prefix}{name}": array for name, array in arrays.items()}
    return found


def tiers_of(codec: str) -> tuple[str, str]:
    """Return the hot and the cold codec of a tiered one."""
    hot, cold = codec.removeprefix("tiered(")[:-1].split(",")
    return hot, cold


def decoded(codec: str, arrays: dict[str, Any], rows: int, dim: int) -> Float32:
    """Return the rows of a table, float32 [rows, dim], each operation rounded to float32."""
    if codec in {"float32", "float16", "mean"}:
        plain = arrays["rows.npy"] if "rows.npy" in arrays else np.tile(arrays["mean.npy"], (rows, 1))
        return np.asarray(plain, np.float32)
    if codec == "int8_rowwise":
        factors = arrays["scale_bias.npy"].astype(np.float32)
        return np.asarray(arrays["codes.npy"].astype(np.float32) * factors[:, :1] + factors[:, 1:])
    if codec.startswith("residual"):
        found = np.zeros((rows, dim), np.float32)
        for book, codes in zip(arrays["codebooks.npy"], arrays["codes.npy"].T, strict=True):
            found += book[codes]
        return found
    if codec.startswith("clustered"):
        rest = {name[5:]: array for name, array in arrays.items() if name.startswith("rest.")}
        left = decoded(codec.removeprefix("clustered(")[:-1], rest, rows, dim)
        centroids: Float32 = arrays["centroids.npy"].astype(np.float32)
        together: Float32 = left + centroids[arrays["clusters.npy"]]
        return together
    if codec.startswith("tiered"):
        is_hot = np.unpackbits(arrays["is_hot.npy"], count=rows, bitorder="little").astype(bool)
        found = np.empty((rows, dim), np.float32)
        tiers = zip(("hot.", "cold."), tiers_of(codec), (is_hot, ~is_hot), strict=True)
        for prefix, own, members in tiers:
            names = [name for name in arrays if name.startswith(prefix)]
            tier = {name.removeprefix(prefix): arrays[name] for name in names}
            found[members] = decoded(own, tier, int(members.sum()), dim)
        return found
    return _decoded_rotated(int(codec[3]), arrays["packed.npy"], arrays["signs.npy"])


def _decoded_rotated(bits: int, packed: Any, signs: Any) -> Float32:
    dim = len(signs)
    factors = packed[:, :4].copy().view(np.float16).astype(np.float32)
    codes = unpacked(bits, packed[:, 4:], dim)
    found = np.empty((len(packed), dim), np.float32)
    start = 0
    while start < dim:
        size = min(256, 1 << ((dim - start).bit_length() - 1))
        part, own = slice(start, start + size), signs[start : start + size].astype(np.float32)
        sums = (codes[:, part].astype(np.int64) @ hadamard(size)).astype(np.float32)
        found[:, part] = sums * factors[:, :1] * (np.float32(1 / np.sqrt(size)) * own)
        found[:, start] += factors[:, 1] * (np.float32(np.sqrt(size)) * own[0])
        start += size
    return found


def unpacked(bits: int, packed: Any, dim: int) -> Any:
    """Return the codes of rows, uint8 [n, dim]."""
    index = np.arange(dim)
    if bits == 4:
        return packed[:, index // 2] >> (4 * (index % 2)) & 15
    low = packed[:, index // 4] >> (2 * (index % 4)) & 3
    if bits == 2:
        return low
    high = packed[:, -(-dim // 4) :][:, index // 8] >> (index % 8) & 1
    return low | high << 2


def hadamard(size: int) -> Any:
    """Return the Walsh-Hadamard matrix, int64 [size, size]: -1 to the number of common bits."""
    index = np.arange(size)
    shared = index[:, None] & index
    parity = np.zeros_like(shared)
    while shared.any():
        parity ^= shared & 1
        shared >>= 1
    return 1 - 2 * parity


def _code_bytes(bits: int, dim: int) -> int:
    return -(-dim // 4) + -(-dim // 8) if bits == 3 else -(-dim * bits // 8)
