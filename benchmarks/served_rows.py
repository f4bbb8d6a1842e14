"""Rows of served tables: lookups of each encoding beside torch's and NumPy's, ranking, and resident memory.

python benchmarks/served_rows.py [--quick] [--json]
python benchmarks/served_rows.py --lookups [--quick] [--json]

Lookups of random rows run in turns on one thread, into memory that is reused where the system can do that,
with each instruction set that the core has for this processor. `--lookups`: these alone.
torch's ops are its row-wise int8 and int4 lookups (FBGEMM), as bags of one row. Resident memory is that of a
process that opened a model of such rows, embedded and ranked 1,000 queries, above one with two rows.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.measure import Rate, arguments, show_in_turns
from graphbox import _core
from graphbox.artifact import Artifact, ArtifactWriter
from graphbox.artifact.manifest import TargetSpec
from graphbox.artifact.preprocess import LookupForm
from graphbox.deploy import open_encoder
from graphbox.row_codecs import ClusteredCodec, ResidualCodec, RowCodec, TieredCodec, row_codec
from graphbox.rows import StoredRows

DIM = 64
LOOKUP_ROWS = 2_000_000
RANKED_ROWS = 1_000_000
ROWS_PER_CALL = 65_536
CALLS = 16
QUERIES = 1_000
ENCODINGS = {
    "float32": "",
    "float16": "",
    "int8": "rowwise",
    "int4": "rotated",
    "int3": "rotated",
    "int2": "rotated",
}
RESIDUAL_BOOKS = 16
SMALLEST_RESIDUAL = 256
BLOCK_ROWS = 65_536


def main() -> None:
    """Run all cases."""
    if sys.argv[1:2] == ["--resident"]:
        print(resident(Path(sys.argv[2]), Path(sys.argv[3])))
        return
    lookups_alone = "--lookups" in sys.argv
    if lookups_alone:
        sys.argv.remove("--lookups")
    options = arguments("rows of served tables")
    torch.set_num_threads(1)
    values = random_rows(20_000 if options.quick else LOOKUP_ROWS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        systems = lookups(values, place, 1 if options.quick else CALLS)
        show_in_turns(f"lookup-{len(values)}-rows-{DIM}d", "rows/s", systems, as_json=options.json)
        if lookups_alone:
            return
        values = values[: 2_000 if options.quick else RANKED_ROWS]
        codecs = codecs_of(len(values))
        for encoding, codec in codecs.items():
            write_model(place / encoding / "1", values, codec)
        write_model(place / "none" / "1", values[:2], codecs["float32"])
        systems = rankings(place, codecs, options.quick)
        show_in_turns(f"neighbors-{len(values)}-rows-{DIM}d", "queries/s", systems, as_json=options.json)
        show_resident(place, codecs, len(values), as_json=options.json)


def random_rows(count: int) -> npt.NDArray[np.float32]:
    """Return normally distributed rows, made in blocks."""
    rng = np.random.default_rng(0)
    values = np.empty((count, DIM), np.float32)
    for start in range(0, count, BLOCK_ROWS):
        part = values[start : start + BLOCK_ROWS]
        part[...] = rng.standard_normal(part.shape, np.float32)
    return values


def codecs_of(rows: int) -> dict[str, RowCodec]:
    """Return the codecs by the names that the cases have; tiers are those of random popularity."""
    found: dict[str, RowCodec] = {
        encoding: row_codec(encoding if encoding.startswith("float") else f"{encoding}_{kind}")
        for encoding, kind in ENCODINGS.items()
    }
    popularity = np.random.default_rng(4).random(rows)
    found["tiered"] = TieredCodec(found["int4"], found["int2"], popularity)
    found["clustered"] = ClusteredCodec(found["int4"])
    found["clustered tiers"] = ClusteredCodec(found["tiered"])
    found["pruned"] = TieredCodec(found["int4"], row_codec("clustered(mean)"), popularity)
    if rows >= SMALLEST_RESIDUAL and importlib.util.find_spec("faiss") is not None:
        found["residual"] = ResidualCodec(RESIDUAL_BOOKS, beam=1)
    return found


def lookups(values: npt.NDArray[np.float32], place: Path, calls: int) -> dict[str, Rate]:
    """Return what looks up random rows, by system; those of graphbox as a model version has them."""
    rng = np.random.default_rng(1)
    out = np.zeros((ROWS_PER_CALL, DIM), np.float32)
    packed = torch.ops.quantized.embedding_bag_byte_prepack(torch.from_numpy(values))
    packed_4_bits = torch.ops.quantized.embedding_bag_4bit_prepack(torch.from_numpy(values))
    bags = torch.arange(ROWS_PER_CALL)

    def timed(look_up: Callable[[npt.NDArray[np.int64]], object]) -> Rate:
        def run() -> float:
            index = rng.integers(0, len(values), (calls, ROWS_PER_CALL))
            started = time.perf_counter()
            for each in index:
                look_up(each)
            return calls * ROWS_PER_CALL / (time.perf_counter() - started)

        return run

    def torch_rows(index: npt.NDArray[np.int64]) -> torch.Tensor:
        rows: torch.Tensor = torch.ops.quantized.embedding_bag_byte_rowwise_offsets(
            packed, torch.from_numpy(index), bags, False, 0, False, None, None, False
        )
        return rows

    def torch_rows_of_4_bits(index: npt.NDArray[np.int64]) -> torch.Tensor:
        rows: torch.Tensor = torch.ops.quantized.embedding_bag_4bit_rowwise_offsets(
            packed_4_bits, torch.from_numpy(index), bags, False, 0, False, None, None, False
        )
        return rows

    def rows_of(
        table: StoredRows,
        reused: npt.NDArray[np.float32] | None,
        default_row: npt.NDArray[np.float32] | None = None,
    ) -> Rate:
        return timed(lambda index: table.rows(index, reused, default_row))

    systems: dict[str, Rate] = {}
    for encoding, codec in codecs_of(len(values)).items():
        folder = place / f"{encoding.replace(' ', '-')}-looked-up" / "1"
        write_model(folder, values, codec)
        table = Artifact.open(folder, verify=False).table("rows")
        systems[f"graphbox {encoding} out="] = rows_of(table, out)
        for instruction_set in _core.instruction_sets()[:-1]:
            systems[f"graphbox {encoding} out= {instruction_set}"] = with_set(
                instruction_set, rows_of(table, out)
            )
        systems[f"graphbox {encoding} out= default_row="] = rows_of(table, out, np.zeros(DIM, np.float32))
        systems[f"graphbox {encoding}"] = rows_of(table, None)
    systems[f"torch {torch.__version__} int8 row-wise"] = timed(torch_rows)
    systems[f"torch {torch.__version__} int4 row-wise"] = timed(torch_rows_of_4_bits)
    systems[f"numpy {np.__version__} float32 take(out=)"] = timed(
        lambda index: np.take(values, index, axis=0, out=out, mode="clip")
    )
    return systems


def with_set(instruction_set: str, run: Rate) -> Rate:
    """Return what runs with an instruction set, and goes back to the best one."""

    def chosen() -> float:
        _core.use_instruction_set(instruction_set)
        try:
            return run()
        finally:
            _core.use_instruction_set(_core.instruction_sets()[-1])

    return chosen


def write_model(path: Path, values: npt.NDArray[np.float32], codec: RowCodec) -> None:
    """Write a model version of kind ``embedding`` that ranks its own rows by cosine."""
    with ArtifactWriter(path) as writer:
        writer.add_ids("node", range(len(values)))
        writer.add_table("rows", "node", values, codec)
        writer.set_preprocess(LookupForm(node_type="node", tables={"node": "rows"}))
        writer.commit(
            name=path.parent.name,
            version=1,
            kind="embedding",
            task=None,
            dim=DIM,
            targets={"node": TargetSpec(table="rows", score="cosine")},
        )


def rankings(place: Path, encodings: Iterable[str], quick: bool) -> dict[str, Rate]:
    """Return what finds the ten nearest rows of one query after the other, by encoding."""
    calls = 2 if quick else 20

    def timed(encoding: str) -> Rate:
        model = open_encoder(place / encoding / "1", "onnxruntime")
        pool = np.random.default_rng(2).integers(0, model.num_queries, (calls, 1))

        def run() -> float:
            started = time.perf_counter()
            for query in pool:
                model.neighbors_of_indices(query, 10)
            return calls / (time.perf_counter() - started)

        return run

    return {f"graphbox {encoding}": timed(encoding) for encoding in encodings}


def show_resident(place: Path, encodings: Iterable[str], rows: int, *, as_json: bool) -> None:
    """Print the resident memory of each encoding, and its share of float32's."""
    first = 0
    for encoding in encodings:
        command = [sys.executable, __file__, "--resident", str(place / "none" / "1")]
        done = subprocess.run(
            [*command, str(place / encoding / "1")], check=True, capture_output=True, text=True, timeout=1200
        )
        resident_bytes = int(done.stdout)
        first = first or resident_bytes
        line = {
            "case": f"resident-{rows}-rows-{DIM}d",
            "system": f"graphbox {encoding}",
            "resident_bytes": resident_bytes,
            "of_float32": round(resident_bytes / first, 3),
        }
        print(json.dumps(line) if as_json else "  ".join(map(str, line.values())), flush=True)


def resident(small: Path, large: Path) -> int:
    """Return the bytes that a model of many rows adds to a process after 1,000 queries."""
    with open_encoder(small, "onnxruntime") as model:
        model.neighbors_of_indices(np.zeros(1, np.int64), 1)
    before = _resident_bytes()
    with open_encoder(large, "onnxruntime") as model:
        pool = np.random.default_rng(3).integers(0, model.num_queries, QUERIES)
        for start in range(0, QUERIES, 10):
            model.encode_indices(pool[start : start + 10])
            model.neighbors_of_indices(pool[start : start + 10], 10)
        return _resident_bytes() - before


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("expected a line VmRSS in /proc/self/status, received none")


if __name__ == "__main__":
    main()
