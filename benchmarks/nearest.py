"""Nearest rows of a served table: exact ranking, the index as it is served, and faiss alone, in turns.

python -m benchmarks.nearest [--quick] [--json]

One thread asks one query after the other for the 20 nearest of 100,000 x 64 float32 rows of length 1.
`graphbox` is `DeployedEncoder.nearest` with its index, `exact` the same without one, `faiss` a search of an
index of the same settings with the same width; none with a protocol. ``clustered`` rows are 2,000 centres in
16 dimensions with noise in all 64, ``random`` ones are uniform on the sphere, the hardest case for an index.
Recall is that of 1,000 queries, which are no rows, against exact ranking. ``allow`` and ``deny`` are lists of
each query: of ``allow`` any rows, of ``deny`` those nearest to the query.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Rate, arguments, rate_of, show_in_turns
from graphbox.artifact import ArtifactWriter, TargetSpec
from graphbox.artifact.preprocess import LookupForm
from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.deploy.nearest.graph_index import BUILD_SETTINGS, faiss_library
from graphbox.deploy.nearest.recall import found_rows
from graphbox.deploy.nearest.row_filter import RowFilter
from graphbox.deploy.nearest.rows import NearestRows, Tuned
from graphbox.package_folder import keep_packages_in

Float32 = npt.NDArray[np.float32]
Filters = Sequence[RowFilter] | None

DIM = 64
K = 20
CENTRES, INTRINSIC = 2_000, 16
ALLOWED_SHARES = (0.001, 0.01, 0.1, 0.3, 0.6)
DENIED = (10, 100, 1_000)
LONGEST_BUILD_S = 600.0


def main() -> None:
    """Run all cases."""
    options = arguments("nearest rows of served tables")
    rows, queries = (10_000, 100) if options.quick else (100_000, 1_000)
    with tempfile.TemporaryDirectory() as folder:
        keep_packages_in(Path(folder))
        for kind, draw in (("clustered", clustered), ("random", uniform)):
            vectors, wanted = draw(rows, queries)
            path = Path(folder) / kind / "1"
            write_model(path, vectors)
            with open_encoder(path, nearest="index") as model, open_encoder(path) as exact:
                measure_table(f"{kind}-{rows}", model, exact, vectors, wanted, as_json=options.json)


def measure_table(
    case: str,
    model: DeployedEncoder,
    exact: DeployedEncoder,
    rows: Float32,
    queries: Float32,
    *,
    as_json: bool,
) -> None:
    """Measure one table: whole, with allow-lists and with deny-lists."""
    tuned, ready_s = wait_for_index(model)
    found = {"width": tuned.width, "recall_of_sample": round(tuned.recall, 4)} if tuned else {"width": None}
    show(
        {"case": f"{case}-ready", "system": "graphbox", "seconds": round(ready_s, 1), **found},
        as_json=as_json,
    )
    bare: dict[str, Callable[[Float32], Any]] = {}
    if tuned:
        bare = {f"faiss width {tuned.width}": bare_search(rows, tuned.width)}
    else:
        bare = {f"faiss width {width}": bare_search(rows, width) for width in (64, 512)}
    compare(f"{case}-top{K}", model, exact, queries, None, bare, as_json=as_json)
    if tuned is None:
        return
    random = np.random.default_rng(1)
    part = queries[:200]
    for share in ALLOWED_SHARES:
        allowed = np.sort(random.choice(len(rows), int(share * len(rows)), replace=False))
        filters = [RowFilter.of(allowed, allowed[:0]) for _ in part]
        compare(f"{case}-allow-{len(allowed)}", model, exact, part, filters, {}, as_json=as_json)
    for count in DENIED:
        nearest = exact.nearest.nearest(part, count, "item")
        filters = [RowFilter.of(None, index) for index, _ in nearest]
        compare(f"{case}-deny-{count}", model, exact, part, filters, {}, as_json=as_json)


def compare(
    case: str,
    model: DeployedEncoder,
    exact: DeployedEncoder,
    queries: Float32,
    filters: Filters,
    bare: Mapping[str, Callable[[Float32], Float32]],
    *,
    as_json: bool,
) -> None:
    """Print the recall of each system, and the rates of all in turns."""
    truth = [score for _, score in asked(exact, queries, filters)]
    answers = {"graphbox": [score for _, score in asked(model, queries, filters)]}
    answers |= {name: [search(query[None]) for query in queries] for name, search in bare.items()}
    for system, scores in answers.items():
        found = sum(found_rows(score, best) for score, best in zip(scores, truth, strict=True))
        recall = found / sum(map(len, truth))
        show({"case": f"{case}-recall", "system": system, "recall": round(recall, 4)}, as_json=as_json)
    few = queries[: max(1, len(queries) // 10)]
    systems: dict[str, Rate] = {
        "graphbox": rate_of(lambda: len(asked(model, queries, filters))),
        "exact": rate_of(lambda: len(asked(exact, few, filters and filters[: len(few)]))),
    }
    for name, search in bare.items():
        systems[name] = rate_of(partial(searched, search, queries))
    show_in_turns(case, "queries/s", systems, as_json=as_json)


def asked(model: DeployedEncoder, queries: Float32, filters: Filters) -> list[tuple[Any, Float32]]:
    """Ask for one query after the other."""
    return [
        model.nearest.nearest(queries[row : row + 1], K, "item", filters and [filters[row]])[0]
        for row in range(len(queries))
    ]


def searched(search: Callable[[Float32], Float32], queries: Float32) -> int:
    """Search for one query after the other; return their number."""
    return len([search(query[None]) for query in queries])


def bare_search(rows: Float32, width: int) -> Callable[[Float32], Float32]:
    """Return the search of an index that faiss builds and keeps in memory."""
    faiss = faiss_library()
    index = faiss.IndexHNSWFlat(DIM, BUILD_SETTINGS["links"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BUILD_SETTINGS["build_width"]
    index.add(rows)
    index.hnsw.efSearch = width

    def search(query: Float32) -> Float32:
        scores: Float32 = index.search(query, K)[0][0]
        return scores

    return search


def wait_for_index(model: DeployedEncoder) -> tuple[Tuned | None, float]:
    """Return the tuned index of a model's rows, None where exact ranking is as fast, and the time it took."""
    began = time.monotonic()
    rows = cast("NearestRows", model.nearest.ranking("item"))
    while model.nearest.states["item"] == "building":
        if time.monotonic() - began > LONGEST_BUILD_S:
            raise TimeoutError(f"the index was not ready after {LONGEST_BUILD_S:g} s")
        time.sleep(0.05)
    return rows.tuned, time.monotonic() - began


def write_model(path: Path, rows: Float32) -> None:
    """Write a model version of kind ``embedding`` that ranks its own rows by cosine."""
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", range(len(rows)))
        writer.add_table("rows", "item", rows)
        writer.set_preprocess(LookupForm(node_type="item", tables={"item": "rows"}))
        writer.commit(
            name=path.parent.name,
            version=1,
            kind="embedding",
            task=None,
            dim=DIM,
            targets={"item": TargetSpec(table="rows", score="cosine")},
        )


def clustered(rows: int, queries: int) -> tuple[Float32, Float32]:
    """Return rows and queries around the same centres, float32 [n, DIM] of length 1."""
    random = np.random.default_rng(0)
    basis = random.standard_normal((INTRINSIC, DIM))
    centres = random.standard_normal((CENTRES, INTRINSIC))
    count = rows + queries
    inner = centres[random.integers(CENTRES, size=count)] + 0.3 * random.standard_normal((count, INTRINSIC))
    drawn = unit(inner @ basis + 0.2 * random.standard_normal((count, DIM)))
    return drawn[:rows], drawn[rows:]


def uniform(rows: int, queries: int) -> tuple[Float32, Float32]:
    """Return rows and queries that are uniform on the sphere, float32 [n, DIM]."""
    drawn = unit(np.random.default_rng(0).standard_normal((rows + queries, DIM)))
    return drawn[:rows], drawn[rows:]


def unit(rows: npt.NDArray[np.float64]) -> Float32:
    """Return rows divided by their lengths, as float32."""
    scaled: Float32 = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def show(line: dict[str, Any], *, as_json: bool) -> None:
    """Print a line."""
    print(json.dumps(line) if as_json else "  ".join(map(str, line.values())), flush=True)


if __name__ == "__main__":
    main()
