"""Arguments for fuzzing: sound ones that fit together, and what becomes of them when they are spoilt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphbox.errors import GraphboxError
from tests.native.fuzz_world import Array, World
from tests.native.signatures import ArrayType, OptionalType, PlainType, SequenceType, TupleType, Type

EXTREMES = (-(2**63), -(2**31), -2, -1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1)
DTYPES = ("int64", "int32", "float32", "float64", "uint8", "uint32", "bool")
BACKENDS = ("auto", "threads", "io_uring", "mmap")
ROWS = ("num_rows", "num_items")
LARGE_GRAPHS = range(2**24, 2**40)
"""So many rows a graph may have: what is asked for them is done, in hundreds of MiB and seconds a call."""
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl")


def _key(world: World) -> tuple[int, int, int]:
    return (world.random.getrandbits(64), world.random.getrandbits(32), world.random.getrandbits(64))


def _pair_arguments(world: World) -> tuple[Any, ...]:
    offsets = None
    if world.random.random() < 0.3:  # of columns of walks as long as plans of this file make them
        offsets = world.numbers.integers(0, 3, (1, world.random.choice([1, 2, 6, 41])))
    return (world.random.choice([1, 2, 5]), offsets, world.random.random() < 0.5, None)


def _relation(world: World) -> dict[str, Any]:
    tables = world.object("AliasTables")
    fetched = world.random.random() < 0.3  # as lists that are fetched for passes: nothing but new ones
    return {
        "indptr": world.indptr[:1] if fetched else world.indptr,
        "indices": world.indices[:0] if fetched else world.indices,
        "source_type": 0,
        "target_type": 0,
        "num_neighbors": [world.random.choice([-1, 0, 1, 3, 70]) for _ in range(2)],
        "overlay": world.object("Overlay") if fetched else world.maybe(world.object("Overlay")),
        "weights": None if fetched else world.maybe(tables),
        "overlay_weights": None if fetched else world.maybe(tables),
    }


def _weight_sums(world: World) -> dict[str, Any]:
    order = world.object("TimeOrder")
    if order is not None and world.random.random() < 0.5:  # one of the same edges, which others seldom are
        order = type(order)(world.indptr, world.timestamps, "edges", 1)
    return {"order": order, "indptr": world.indptr, "weights": world.weights}


def _batch(world: World, number: int) -> tuple[Any, ...]:
    nothing = world.nodes(0)
    excluded = [(0, world.nodes(5), world.nodes(5), nothing, nothing)] if world.random.random() < 0.3 else []
    return (0, number, [world.nodes()], None, excluded)


def _sample(world: World) -> dict[str, Any]:
    relations = [world.object("Relation") for _ in range(world.random.choice([0, 1, 1, 2]))]
    seeds = world.nodes()
    disjoint = world.random.random() < 0.4
    return {
        "relations": [relation for relation in relations if relation is not None],
        "num_nodes": [world.num_nodes],
        "seeds": [seeds],
        "hops": 2,
        "disjoint": disjoint,
        "tree_times": world.maybe(world.numbers.integers(0, 50, len(seeds))) if disjoint else None,
        "excluded": [(0, world.nodes(5), world.nodes(5), world.nodes(0), world.nodes(0), False)]
        if world.random.random() < 0.3
        else [],
        "replace": world.random.random() < 0.3,
        "indexed": [(world.object("RelationIndex"), [0, 1][: world.random.choice([1, 2])])]
        if world.random.random() < 0.3
        else [],
    }


def _relation_index(world: World) -> dict[str, Any]:
    few = np.minimum(world.indptr, world.indptr[len(world.indptr) // 4])  # most lists are empty
    count = world.random.choice([1, 2])
    return {"indptrs": [few] * count, "num_edges": [world.num_edges] * count, "names": ["edges"] * count}


def _walk_step(world: World) -> dict[str, Any]:
    return {
        "indptr": world.indptr,
        "indices": world.indices,
        "overlay": world.maybe(world.object("Overlay")),
        "weights": world.maybe(world.object("AliasTables")),
        "overlay_weights": None,
        "times": world.maybe(world.object("TimeOrder")),
        "overlay_times": None,
    }


def _walk_plan(world: World) -> dict[str, Any]:
    step = world.object("WalkStep")
    return {
        "paths": [] if step is None else [[step]],
        "length": world.random.choice([0, 1, 5, 40]),
        "p": world.random.choice([1.0, 0.25]),
        "q": world.random.choice([1.0, 4.0]),
        "restart_probability": world.random.choice([0.0, 0.0, 0.3]),
        "most_parallel": 1,
        "strictly_later": False,
        "time_window": None,
    }


def _walkers(world: World) -> dict[str, Any]:
    start = world.nodes()
    return {"start": start, "second": None, "path_of": None, "times": None, "first_position": 0}


def _trainer(world: World) -> dict[str, Any]:
    return {
        "plan": world.object("WalkPlan"),
        "pairs": _pair_arguments(world),
        "center": world.object("Table"),
        "context": world.object("Table"),
        "num_keys": world.num_nodes,
        "num_negatives": world.random.choice([1, 3, 70]),
        "negative_weight": 1.0,
    }


def _training(world: World) -> dict[str, Any]:
    from graphbox import _core  # the one that is fuzzed

    start = world.nodes()
    return {
        "walkers": _core.Walkers(start),
        "offsets": np.array([0, len(start) // 2, len(start)]),
        "lr": 0.1,
    }


def _segment(world: World) -> dict[str, Any]:
    """Return a part of a checkpoint that was written before."""
    return {"path": str(world.folder / "checkpoint" / "rows-00000.segment")}


def _negatives(world: World) -> dict[str, Any]:
    return {
        "weights": None,
        "known_positives": world.maybe(world.rows()),
        "queries": world.nodes(),
        "num_negatives": world.random.choice([1, 3, 70]),
        "allow_exhausted": True,
    }


def _parse(dtype: str) -> Callable[[World], dict[str, Any]]:
    def arguments(world: World) -> dict[str, Any]:
        offsets, text = world.strings()
        count = len(offsets) - 1
        return {
            "offsets": offsets,
            "text": text,
            "values": np.zeros(count, dtype),
            "wrong": np.zeros(count, np.uint8),
        }

    return arguments


def _gather(world: World) -> dict[str, Any]:
    row_bytes = world.random.choice([1, 8, 512, 4000])
    index = world.nodes()
    return {
        "table": np.zeros(world.num_nodes * row_bytes, np.uint8),
        "row_bytes": row_bytes,
        "rows": world.num_nodes,
        "index": index,
        "out": np.zeros(len(index) * row_bytes, np.uint8),
    }


def _read_rows(world: World) -> dict[str, Any]:
    index = world.numbers.integers(0, 8192, world.random.choice([0, 1, 300]))
    return {
        "array": (0, 0, 8, 8192),
        "index": index,
        "out": np.zeros(len(index) * 8, np.uint8),
        "places": None,
    }


def _read_items(world: World) -> dict[str, Any]:
    index = world.numbers.integers(0, 100, 7)
    bounds = np.stack([index * 3, index * 3 + 3], axis=1)
    return {
        "array": (0, 0, 8, 8192),
        "index": index,
        "limit": 100,
        "bounds": bounds,
        "starts": np.arange(8) * 3,
        "out": np.zeros(21 * 8, np.uint8),
    }


def _optimizer(world: World) -> dict[str, Any]:
    return {
        "name": world.random.choice(OPTIMIZERS),
        "lr": 0.1,
        "eps": 1e-8,
        "betas": (0.9, 0.999),
        "bounds": (-np.inf, np.inf),
        "clip_norm": world.random.choice([np.inf, 0.5]),
        "clip_value": world.random.choice([np.inf, 0.1]),
        **dict.fromkeys(("initial_accumulator", "beta", "l1", "l2", "weight_decay"), 0.0),
    }


def _dim_of(table: Any) -> int:
    return 1 if table is None else int(table.dim)


def _push(world: World) -> dict[str, Any]:
    dim = _dim_of(world.object("Table"))
    keys = world.nodes()[: _MOST_VALUES // dim]
    shape = (len(keys), dim)
    return {"keys": keys, "grads": np.ones(shape, np.float32), "out": np.ones(shape, np.float32)}


def _push_rows(world: World) -> dict[str, Any]:
    table, rows = world.object("Table"), world.object("PulledRows")
    dim = _dim_of(table)
    shape = (0 if rows is None else min(len(rows), _MOST_VALUES // dim), dim)
    return {"rows": rows, "grads": np.ones(shape, np.float32)}


def _bags(world: World) -> dict[str, Any]:
    """Return sums of the keys of a pull, or of new keys, and what their gradients are."""
    table, rows = world.object("Table"), world.object("PulledRows")
    dim = _dim_of(table)
    keys = world.nodes()
    count = len(keys) if rows is None or world.random.random() < 0.5 else len(rows)
    bags = world.random.choice([1, 3, 20])
    offsets = np.sort(world.numbers.integers(0, count + 1, bags + 1))
    offsets[[0, -1]] = 0, count
    return {
        "keys": keys,
        "rows": rows,
        "offsets": offsets,
        "weights": world.maybe(np.ones(count, np.float32)),
        "divisors": world.maybe(np.full(bags, 2, np.float32)),
        "out": np.zeros((bags, dim), np.float32),
        "grads": np.ones((bags, dim), np.float32),
    }


def _checksum(segment: bytes, rows: int) -> int:
    """Return what a manifest says of a segment: the checksum of its records' checksums, or of its keys."""
    from graphbox import _core  # the one that is fuzzed

    record_bytes = int.from_bytes(segment[32:40], "little")
    begin = -(-(4096 + 8 * rows) // 4096) * 4096 + record_bytes
    step = record_bytes + 4
    sums = [segment[begin + i * step : begin + i * step + 4] for i in range(rows)]
    words = b"".join(sums) if record_bytes else segment[4096 : 4096 + 8 * rows]
    return _core.crc32c(np.frombuffer(words, np.uint8))


def _checkpoint(world: World) -> dict[str, Any]:
    """Return a part of a checkpoint that was written before, spoilt at times."""
    folder = world.folder / "checkpoint"
    name = world.random.choice(["rows-00000.segment", "erased-00000.segment"])
    path = folder / name
    content = bytearray(path.read_bytes()) if path.exists() else bytearray()
    rows = int.from_bytes(content[24:32], "little") if world.random.random() < 0.9 else 3
    checksum, bytes_ = _checksum(bytes(content), rows), len(content)
    spoilt = world.folder / "spoilt"
    spoilt.mkdir(exist_ok=True)
    if content:
        for _ in range(world.random.choice([0, 1, 3])):
            content[world.random.randrange(len(content))] = world.random.getrandbits(8)
    (spoilt / name).write_bytes(
        content[: world.random.choice([len(content), world.random.randrange(len(content) + 1)])]
    )
    where = world.random.choice([folder, spoilt])
    parts = [_part(world, name, rows, bytes_, checksum)]
    return {
        "folder": str(where),
        "parts": parts if world.random.random() < 0.4 else [],
        "records": world.object("PartRecords"),
        "shard": world.random.choice([(0, 1), (1, 3)]),
        "threads": 2,
        "chain": 0,
    }


def _part(world: World, name: str, rows: int, bytes_: int, checksum: int) -> Any:
    from graphbox import _core  # the one that is fuzzed

    some = world.random.random() < 0.2
    live = world.random.randbytes(world.random.choice([(rows + 63) // 64 * 8, 3])) if some else b""
    live_rows = int.from_bytes(live, "little").bit_count() if some else rows
    return _core.CheckpointPart(name, rows, live_rows, bytes_, checksum, name.startswith("erased"), live)


def _written_checkpoint(world: World) -> dict[str, Any]:
    folder = world.folder / "checkpoint"
    folder.mkdir(exist_ok=True)
    is_delta = world.random.random() < 0.3
    return {
        "folder": str(folder),
        "contents": 0,
        "chain": world.random.choice([-1, 0, 1]),
        "is_delta": is_delta,
        "threads": 2,
    }


_OPEN_FILE = 2
"""Stand-in for the lock of a folder, which the core only keeps open."""


def _tier_folder(world: World) -> dict[str, Any]:
    folder = world.folder / f"tier-{world.random.getrandbits(64):x}"
    folder.mkdir()
    empty = [table for table in world.objects["Table"] if len(table) == 0]
    table = world.random.choice(empty) if empty else world.object("Table")
    if table is not None:
        world.tiered.append(table)
    return {"table": table, "folder": str(folder), "settings": "{}", "folder_lock": _OPEN_FILE}


def _tiered(world: World) -> dict[str, Any]:
    """Return a table that was given a folder, if one was."""
    tables = [table for table in world.tiered if _has_folder(table)]
    return {"table": world.random.choice(tables)} if tables else {}


def _has_folder(table: Any) -> bool:
    from graphbox import _core  # the one that is fuzzed

    try:
        _core.table_tier_figures(table)
    except GraphboxError:
        return False
    return True


_MOST_VALUES = 1 << 18
"""Of an array of rows, so that long rows leave memory for others."""

WIDE = 4096
"""Values of rows so long that a table with a folder takes few addresses: it does for all there could be."""

RECIPES: dict[str, Callable[[World], dict[str, Any]]] = {
    "ArrayFileWriter": lambda world: {
        "dtype": world.random.choice(["<i8", "<f4", "|u1"]),
        "row_shape": world.random.choice([[], [3]]),
    },
    "ArrayFileWriter.append": lambda world: {
        "rows": np.zeros(
            world.random.choice([(0,), (5,), (4, 3)]), world.random.choice(["<i8", "<f4", "|u1"])
        )
    },
    "AliasTable": lambda world: {"weights": world.numbers.exponential(1, world.num_nodes)},
    "AliasTable.sample": lambda world: {"out": world.nodes()},
    "AliasTable.sample_for": _negatives,
    "AliasTable.uniform": lambda world: {"num_items": world.num_nodes},
    "AliasTables": lambda world: {"indptr": world.indptr, "weights": world.weights},
    "NeighborPass": lambda world: {
        "relations": [(0, 0, [3, 2], "edges")],
        "num_nodes": [world.num_nodes],
        "batches": [_batch(world, 0), _batch(world, 1)],
        "hops": 2,
    },
    "NodeIds.write": lambda world: {
        "paths": [str(world.folder / f"written{number}") for number in range(world.random.choice([2, 3]))]
    },
    "NeighborPass.add": lambda world: {"relation": 0, "neighbors": world.indices[:7]},
    "NeighborPass.draw": lambda world: {"relation": 0, "bounds": world.indptr},
    "NeighborPass.draw_in": lambda world: {"relation": 0, "lists": world.object("Relation")},
    "OptimizerConfig": _optimizer,
    "Overlay": lambda world: {
        "rows": world.touched,
        "indptr": world.new_indptr,
        "indices": world.nodes(world.new_edges).astype(world.index_dtype),
        "edge_ids": np.arange(world.new_edges) + world.num_edges,
        "num_rows": world.num_nodes,
    },
    "Relation": _relation,
    "RelationIndex": _relation_index,
    "Relation.give_timestamp": lambda world: {"base": world.timestamps, "overlay": world.timestamps[:0]},
    "Relation.give_weight": lambda world: {"base": world.weights, "overlay": world.weights[:0]},
    "Relation.sample_until": lambda world: {"base": world.object("TimeOrder"), "overlay": None},
    "SkipGramTrainer": _trainer,
    "SkipGramTrainer.train": _training,
    "Store": lambda world: {
        "files": [world.file()],
        "rows": world.random.choice([None, (0, 8, 8192), (0, 512, 128)]),
        "budget_bytes": world.random.choice([0, 5000, 1 << 20]),
        "backend": world.random.choice(BACKENDS),
        "depth": 8,
    },
    "Store.read_bounds": lambda world: {"offsets": (0, 0, 8, 8192), "items": 501, "index": np.arange(40)},
    "Store.read_items": _read_items,
    "Store.read_rows": _read_rows,
    "Table": lambda world: {
        "dim": world.random.choice([1, 8, WIDE]),
        "dtype": world.random.choice(["float32", "float16"]),
        "optimizer": world.object("OptimizerConfig"),
        "init_scale": 0.1,
        "memory_bytes": world.random.choice([1 << 24, 1 << 27]),
    },
    "Table.apply_values": _checkpoint,
    "Table.load_checkpoint": _checkpoint,
    "Table.part_records": lambda world: {"contents": world.random.choice([0, 1, 2, 3])},
    "Table.pull_bags": _bags,
    "Table.pull_into": _push,
    "Table.pull_rows": _push,
    "table_attach_tier": _tier_folder,
    "table_flush": _tiered,
    "table_key_scan": _tiered,
    "table_flushed": _tiered,
    "table_opened": _tiered,
    "table_prefetch": _tiered,
    "table_purge": _tiered,
    "table_tier_figures": _tiered,
    "Table.push": _push,
    "Table.push_bags": _bags,
    "Table.push_rows": _push_rows,
    "Table.reserve": lambda world: {"rows": world.random.choice([0, 1000, 1 << 60])},
    "Table.write_checkpoint": _written_checkpoint,
    "TimeOrder": lambda world: {"indptr": world.indptr, "timestamps": world.timestamps},
    "TraceCache": lambda world: {"num_rows": world.num_nodes, "slots": world.random.choice([0, 1, 50])},
    "TraceCache.begin_pass": lambda world: {"batches": [np.unique(world.nodes()) for _ in range(3)]},
    "TraceCache.plan": lambda world: {"batches": [np.unique(world.nodes())]},
    "WeightSums": _weight_sums,
    "WalkPlan": _walk_plan,
    "WalkStep": _walk_step,
    "Walkers": _walkers,
    "count_remaining": lambda world: {"known_positives": world.rows(), "num_items": world.num_nodes},
    "gather_rows": _gather,
    "hash_strings": _parse("int64"),
    "parse_booleans": _parse("uint8"),
    "parse_integers": _parse("int64"),
    "parse_numbers": _parse("float32"),
    "permutation": lambda world: {"size": world.num_nodes},
    "philox": lambda world: {"counters": world.numbers.integers(0, 2**32, (5, 4)).astype(np.uint32)},
    "pooled_bytes": lambda world: {"bytes": world.num_nodes},
    "ppr_neighbors": lambda world: {
        "round": [] if world.object("WalkStep") is None else [world.object("WalkStep")],
        "nodes": world.nodes(),
        "walks_rounds_neighbors": (4, 3, 2),
        "restart_probability": 0.3,
    },
    "segment_header": _segment,
    "segment_keys": _segment,
    "row_degrees": lambda world: {"rows": world.rows()},
    "sample_neighbors": _sample,
    "skip_gram_pairs": lambda world: {"walks": world.nodes(42).reshape(6, 7)},
    "take_strings": lambda world: dict(zip(("offsets", "text"), world.strings(), strict=True)),
}
"""Sound arguments of functions, by name; those that are not named are made by their type."""


def sound(world: World, name: str, value: Type) -> Any:
    """Return an argument of a type that looks like what the name says."""
    by_name: dict[str, Callable[[], Any]] = {
        "threads": lambda: world.random.choice([1, 2, 3]),
        "seed": lambda: world.random.getrandbits(64),
        "epoch": lambda: world.random.getrandbits(32),
        "batch": lambda: world.random.getrandbits(10),
        "key": lambda: _key(world) if isinstance(value, TupleType) else world.random.getrandbits(64),
        "arguments": lambda: _pair_arguments(world),
        "memory_bytes": lambda: 1 << 24,
        "path": lambda: str(world.folder / "written"),
        "scratch": lambda: str(world.folder),
        "paths": lambda: [str(world.folder / f"written{number}") for number in range(4)],
        "kind": lambda: world.random.choice(["int64", "string"]),
        "dtype": lambda: world.random.choice(["int64", "float32"]),
        "delimiter": lambda: b",",
        "quote": lambda: b'"',
        "text": world.text if isinstance(value, ArrayType) else lambda: world.maybe(world.text()),
    }
    return by_name.get(name, lambda: by_type(world, value))()


def by_type(world: World, value: Type) -> Any:
    """Return an argument of a type, small."""
    if isinstance(value, OptionalType):
        return world.maybe(by_type(world, value.value))
    if isinstance(value, SequenceType):
        return [by_type(world, value.entry) for _ in range(world.random.choice([0, 1, 2, 5]))]
    if isinstance(value, TupleType):
        return tuple(by_type(world, entry) for entry in value.entries)
    if isinstance(value, ArrayType):
        shape = tuple(world.random.choice([0, 1, 4, 33]) for _ in range(value.dimensions or 1))
        drawn = world.numbers.integers(0, max(world.num_nodes, 2), shape)
        return drawn.astype(value.dtype or world.random.choice(DTYPES))
    assert isinstance(value, PlainType)
    plain: dict[str, Callable[[], Any]] = {
        "int": lambda: world.random.choice([0, 1, 2, 5, 64]),
        "float": lambda: world.random.choice([0.0, 0.5, 1.0, 3.0]),
        "bool": lambda: world.random.random() < 0.5,
        "str": lambda: world.random.choice(["", "name", "ü"]),
        "bytes": lambda: world.random.choice([b"", b",", b"ab"]),
    }
    return plain.get(value.name, lambda: world.object(value.name))()


def spoil(world: World, value: Any, name: str) -> Any:
    """Return something near the value that may be wrong."""
    if name in ("path", "paths", "scratch", "files"):  # files are written only where they may be
        return value
    if isinstance(value, np.ndarray):
        return _spoil_array(world, value)
    if isinstance(value, list | tuple):
        return _spoil_entries(world, value, name)
    return world.random.choice(_near(world, value, name))


def _near(world: World, value: Any, name: str) -> list[Any]:
    near: list[Any] = [None, 7, value]
    if isinstance(value, bool) or value is None:
        near = [True, False, None, 2, "x"]
    elif isinstance(value, int) and name == "threads":
        near = [-1, 0, 1, 4, 300, 2**31 - 1, 2**40]
    elif isinstance(value, int):
        near = [
            *(
                number
                for number in EXTREMES
                if number <= world.largest and not (name in ROWS and number in LARGE_GRAPHS)
            ),
            value + 1,
            value - 1,
            1.5,
            None,
            "3",
        ]
    elif isinstance(value, float):
        near = [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e-320, 1e308, None]
    elif isinstance(value, str | bytes):
        near = [value[:0], value * 2, value[::-1], 7]
    return near


def _spoil_entries(world: World, value: list[Any] | tuple[Any, ...], name: str) -> Any:
    entries = list(value)
    if entries and world.random.random() < 0.7:
        place = world.random.randrange(len(entries))
        entries[place] = spoil(world, entries[place], name)
    else:
        entries = world.random.choice([entries[:-1], entries + entries, []])
    return type(value)(entries)


def _spoil_array(world: World, array: Array) -> Any:
    # What a bound of memory would refuse must not be granted where there is none.
    extremes = [number for number in EXTREMES if number <= world.largest or number > 2**40]
    numbers: list[Any] = [*extremes, *[world.num_nodes, world.num_nodes - 1, world.num_edges, -1] * 2]
    if array.dtype.kind == "f":
        numbers = [np.nan, np.inf, -np.inf, -1, 0, 1e30, 1e-45]
    with np.errstate(all="ignore"):
        if world.random.random() < 0.6:
            changed = array.copy()
            if changed.size:
                number = np.array(world.random.choice(numbers)).astype(changed.dtype)
                changed.flat[world.random.randrange(changed.size)] = number
            return changed
        return world.random.choice(
            [
                array.astype(world.random.choice(DTYPES)),
                array[:-1].copy(),
                array[: len(array) // 2].copy(),
                np.concatenate([array, array]),
                array[:0].copy(),
                array[::-1].copy(),
                array[::2],
                array[None],
                array[:100].tolist(),
                None,
                world.numbers.permutation(array.copy()),
            ]
        )
