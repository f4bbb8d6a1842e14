"""Quality and size of embedding tables in each row codec: iALS factors of Gowalla, ranked in full.

python -m benchmarks.row_codecs --root FOLDER [--users 6000] [--json]

FOLDER has gowalla/train.txt.gz and gowalla/test.txt.gz: a line for each user, the user and the items.
Factors of users and items are trained once (`graphbox.models.ials`, 64 numbers, 8 epochs), both tables
go through each codec, and the same sample of users is ranked. Changes are relative to float32 rows,
sizes have all that a codec stores. faiss' product quantization runs beside, where it is installed.
Losses below 0.3 % are noise.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphbox.models.ials import fit_ials
from graphbox.row_codecs import (
    ArrayRows,
    ResidualCodec,
    RowCodec,
    TableShape,
    TieredCodec,
    open_rows,
    row_codec,
)

Float32 = npt.NDArray[np.float32]
Encoder = Callable[[Float32, npt.NDArray[np.int64]], tuple[Float32, int]]
"""Of rows and their popularity: the decoded rows, and the bytes that they are stored in."""

DIM = 64
EPOCHS = 8
K = 20
USERS_TOGETHER = 500
PLAIN_CODECS = ("float16", "int8_rowwise", "int4_rotated", "int3_rotated", "int2_rotated")


@dataclass(frozen=True)
class Quality:
    """Means over the ranked users."""

    recall: float
    ndcg: float


@dataclass(frozen=True)
class Result:
    """One codec on both tables; changes are shares of what float32 rows reach."""

    case: str
    codec: str
    bytes_per_row: float
    ratio: float
    recall_at_20: float
    ndcg_at_20: float
    recall_change: float
    ndcg_change: float
    encode_s: float


def main() -> None:
    """Train factors, and print a line for each codec."""
    parser = argparse.ArgumentParser(description="quality of row codecs")
    parser.add_argument("--root", type=Path, required=True, help="folder with gowalla/")
    parser.add_argument("--users", type=int, default=6000, help="users to rank")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    options = parser.parse_args()
    train, test = (links_of(options.root / "gowalla" / f"{part}.txt.gz") for part in ("train", "test"))
    shape = tuple(np.maximum(train.shape, test.shape))
    train.resize(shape)
    test.resize(shape)
    tables = fit_ials(train, dim=DIM, epochs=EPOCHS)
    popularity = (np.diff(train.indptr), np.diff(sp.csr_array(train.T).indptr))
    users = np.flatnonzero(np.diff(test.indptr))
    users = np.sort(np.random.default_rng(0).choice(users, min(options.users, len(users)), replace=False))
    original = quality_of(tables, train, test, users)
    for name, encode in encoders().items():
        started = time.perf_counter()
        coded = [encode(rows, each) for rows, each in zip(tables, popularity, strict=True)]
        encode_s = time.perf_counter() - started
        found = quality_of((coded[0][0], coded[1][0]), train, test, users)
        rows, stored_bytes = sum(map(len, tables)), sum(nbytes for _, nbytes in coded)
        result = Result(
            case=f"gowalla-ials-{DIM}d-{len(users)}-users",
            codec=name,
            bytes_per_row=round(stored_bytes / rows, 2),
            ratio=round(4 * DIM * rows / stored_bytes, 2),
            recall_at_20=round(found.recall, 5),
            ndcg_at_20=round(found.ndcg, 5),
            recall_change=round(found.recall / original.recall - 1, 5),
            ndcg_change=round(found.ndcg / original.ndcg - 1, 5),
            encode_s=round(encode_s, 2),
        )
        print(json.dumps(asdict(result)) if options.json else "  ".join(map(str, asdict(result).values())))


def links_of(path: Path) -> sp.csr_array:
    """Return the links of a file, 1 float32 for each."""
    pairs = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            user, *items = map(int, line.split())
            pairs += [(user, item) for item in items]
    rows, columns = np.array(pairs).T
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)))


def encoders() -> dict[str, Encoder]:
    """Return the codecs by name."""

    def of_codec(make: Callable[[npt.NDArray[np.int64]], RowCodec]) -> Encoder:
        def encode(rows: Float32, popularity: npt.NDArray[np.int64]) -> tuple[Float32, int]:
            codec = make(popularity)
            arrays = codec.encode(ArrayRows(rows))
            stored = open_rows(codec, arrays, TableShape(*rows.shape))
            return stored.block(0, len(rows)), sum(array.nbytes for array in arrays.values())

        return encode

    def of_name(name: str) -> Encoder:
        return of_codec(lambda _: row_codec(name))

    def of_books(books: int) -> Encoder:
        return of_codec(lambda _: ResidualCodec(books))

    def of_tiers(hot: str, cold: str, hot_share: float) -> Encoder:
        return of_codec(
            lambda popularity: TieredCodec(row_codec(hot), row_codec(cold), popularity, hot_share)
        )

    found = {"float32": of_name("float32")} | {name: of_name(name) for name in PLAIN_CODECS}
    found["tiered 25 % int4, int2"] = of_tiers("int4_rotated", "int2_rotated", 0.25)
    found["tiered 50 % int4, int2"] = of_tiers("int4_rotated", "int2_rotated", 0.5)
    found["tiered 25 % int4, pruned"] = of_tiers("int4_rotated", "clustered(mean)", 0.25)
    found["tiered 50 % int4, pruned"] = of_tiers("int4_rotated", "clustered(mean)", 0.5)
    if importlib.util.find_spec("faiss") is not None:
        for books in (8, 16):
            found[f"residual({books})"] = of_books(books)
        for parts in (16, 32):
            found[f"faiss PQ {parts}"] = product_quantizer(parts)
    return found


def product_quantizer(parts: int) -> Encoder:
    """Return faiss' product quantization, trained on the rows; its codebooks are counted."""

    def encode(rows: Float32, _: npt.NDArray[np.int64]) -> tuple[Float32, int]:
        import faiss

        quantizer: Any = faiss.ProductQuantizer(DIM, parts, 8)
        quantizer.train(rows)
        codes = quantizer.compute_codes(rows)
        return quantizer.decode(codes), codes.nbytes + 4 * 256 * DIM

    return encode


def quality_of(
    tables: tuple[Float32, Float32], train: sp.csr_array, test: sp.csr_array, users: npt.NDArray[np.int64]
) -> Quality:
    """Rank all items that a user has no link to, for each of the users."""
    discounts = 1 / np.log2(np.arange(2, K + 2))
    recalls, gains = [], []
    for start in range(0, len(users), USERS_TOGETHER):
        part = users[start : start + USERS_TOGETHER]
        scores = tables[0][part] @ tables[1].T
        scores[train[part].nonzero()] = -np.inf
        best = np.argpartition(-scores, K, axis=1)[:, :K]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, 1)
        for user, items in zip(part, best, strict=True):
            wanted = test.indices[test.indptr[user] : test.indptr[user + 1]]
            hits = np.isin(items, wanted)
            recalls.append(hits.sum() / len(wanted))
            gains.append((hits * discounts).sum() / discounts[: len(wanted)].sum())
    return Quality(float(np.mean(recalls)), float(np.mean(gains)))


if __name__ == "__main__":
    main()
