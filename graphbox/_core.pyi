"""Native core of graphbox: neighbour sampling, walks, embedding tables."""

from collections.abc import Sequence
from typing import Annotated, Final

import numpy
from numpy.typing import NDArray


def crc32c(bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], before: int = 0) -> int:
    """
    CRC-32C (Castagnoli) of uint8[n], going on from that of the bytes before them.
    """

def exchange_paths(first: str, second: str) -> bool:
    """
    Let two files or folders take each other's place in one step; False where the file system cannot.
    """

class ArrayFileWriter:
    """Writes a .npy file as a stream of rows."""

    def __init__(self, path: str, dtype: str, row_shape: Sequence[int] = []) -> None: ...

    def append(self, rows: Annotated[NDArray, dict(order='C', device='cpu', writable=False)]) -> None:
        """Add an array of rows, of the writer's type, behind what there is."""

    def finish(self) -> tuple:
        """
        Write the header, have the file on disk, and return its shape and the CRC-32C of its data.
        """

def take_strings(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], name: str) -> tuple:
    """The strings at these indices: their offsets and text."""

def build_ids_index(values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, valid: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, threads: int) -> tuple:
    """
    The hash index of ids; how many of them occur again; and the first such, with the row it repeats.
    """

def find_ids(index: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, asked_values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], asked_text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, valid: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, threads: int, name: str) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """The number of each asked id by the index of ids, -1 where it is none."""

class NodeIds:
    """The ids of one node type while a graph is built."""

    def __init__(self, kind: str, scratch: str, memory_bytes: int, threads: int) -> None: ...

    def add(self, values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> None:
        """Number the rows of a node table: int64[n], or offsets and text."""

    def close(self) -> None:
        """All ids are there."""

    def find(self, values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, valid: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
        """The number of each id, -1 where it is none."""

    def take(self, index: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple:
        """
        The ids at these numbers: int64[n], or the offsets of strings, and their text.
        """

    def write(self, paths: Sequence[str]) -> dict:
        """
        Write the ids and their index; returns type, shape and CRC-32C of each array.
        """

    @property
    def num_nodes(self) -> int: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def num_repeated(self) -> int: ...

    @property
    def first_repeated(self) -> tuple[int, int] | None: ...

    @property
    def num_isolated(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...

class EdgeBuilder:
    """The edges of one edge type while a graph is built."""

    def __init__(self, sources: NodeIds, targets: NodeIds, discover_sources: bool, discover_targets: bool, columns: Sequence[tuple[str, Sequence[int]]], keep_duplicates: bool, scratch: str, memory_bytes: int, threads: int) -> None: ...

    def add(self, source_values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], source_text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, target_values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], target_text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, valid: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, columns: Sequence[Annotated[NDArray, dict(order='C', device='cpu', writable=False)]]) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')] | None:
        """
        Add edges; returns the rows that are left out, int64, or None when that is not known yet.
        """

    def keep(self, most_bytes: int) -> int:
        """
        Keep the edges in memory until finish() if they take at most so much, else move them to the disk; returns what is kept.
        """

    def finish(self, indptr: str, indices: str, columns: Sequence[str], by_source: Sequence[str], recode: Sequence[tuple[int, Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]]]) -> dict:
        """
        Write the edges to these paths; by source as well where there are three for it.
        """

def held_bytes() -> int:
    """Bytes of the buffers that wait to be used again."""

def release_buffers() -> None:
    """Give the buffers that wait to be used again back to the system."""

def random_read_seconds(memory_bytes: int, reads: int, read_bytes: int) -> tuple[float, float]:
    """
    Wall and CPU seconds that reads of read_bytes at random places of memory_bytes take one thread.
    """

def random_copy_seconds(memory_bytes: int, copies: int, copy_bytes: int, target_bytes: int) -> tuple[float, float]:
    """
    The same for copies of copy_bytes from random places to memory of target_bytes, in order.
    """

def philox(counters: Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', device='cpu', writable=False)], key: int) -> Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C')]:
    """Philox4x32-10 blocks: uint32[n, 4] counters to uint32[n, 4] words."""

def philox_key(stream: int, seed: int, epoch: int, batch: int) -> int:
    """The 64-bit Philox key of (stream, seed, epoch, batch)."""

def permutation(size: int, seed: int, epoch: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """A random order of 0 ... size - 1 as int64[size]."""

class Overlay:
    """
    New lists of some rows of an adjacency: rows[i] has indices[indptr[i]:indptr[i + 1]].
    """

    def __init__(self, rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], indices: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], edge_ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], num_rows: int) -> None: ...

    @property
    def indices(self) -> Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """The neighbours in the new lists, as they were given."""

class AliasTables:
    """
    For each edge what weighted sampling needs: 8 bytes. The arrays must not be written to.
    """

    def __init__(self, indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], name: str, threads: int) -> None: ...

    @property
    def bytes(self) -> int: ...

    @property
    def entries(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', writable=False)]:
        """Threshold and alias of each edge: uint32[edges, 2], read only."""

class TimeOrder:
    """The edges of each node by time: 12 bytes for each edge."""

    def __init__(self, indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], timestamps: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], name: str, threads: int) -> None: ...

    @property
    def bytes(self) -> int: ...

    @property
    def times(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', writable=False)]:
        """
        The times of all edges, those of each node in order: int64[edges], read only.
        """

    @property
    def shifts(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', writable=False)]:
        """
        From the place of each edge in the order to its position: int32[edges], read only.
        """

class WeightSums:
    """
    Sums of the weights of each node's edges by time: 8 bytes for each edge.
    """

    def __init__(self, order: TimeOrder, indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], name: str, threads: int) -> None: ...

    @property
    def bytes(self) -> int: ...

    @property
    def sums(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', writable=False)]:
        """
        The sum of a node's weights up to and with each edge, by time: float64[edges], read only.
        """

class RelationIndex:
    """
    The lists of all nodes of a type in several relations that are not empty: 8 bytes for
    each node, 16 for each list, refused where that is more than the indptr take.
    """

    def __init__(self, indptrs: Sequence[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]], num_edges: Sequence[int], names: Sequence[str], threads: int) -> None: ...

    @property
    def bytes(self) -> int: ...

class Relation:
    """An edge type to sample: arrays, node type numbers, neighbours per hop."""

    def __init__(self, indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], indices: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], source_type: int, target_type: int, num_neighbors: Sequence[int], name: str, overlay: Overlay | None = None, weights: AliasTables | None = None, overlay_weights: AliasTables | None = None) -> None: ...

    def sample_until(self, base: TimeOrder, overlay: TimeOrder | None, weight_sums: WeightSums | None = None, overlay_weight_sums: WeightSums | None = None) -> None:
        """
        Sample only edges that are not later than the time of their tree, by their weights where these are given.
        """

    def give_weight(self, base: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], overlay: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Give the weight of each sampled edge: of those of the base and of those of the overlay.
        """

    def give_timestamp(self, base: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], overlay: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Give the timestamp of each sampled edge: of those of the base and of those of the overlay.
        """

def sample_neighbors(relations: Sequence[Relation], num_nodes: Sequence[int], seeds: Sequence[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]], hops: int, replace: bool, seed: int, epoch: int, batch: int, threads: int, disjoint: bool = False, tree_times: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, take_last: bool = False, excluded: Sequence[tuple[int, Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], bool]] = [], indexed: Sequence[tuple[RelationIndex, Sequence[int]]] = []) -> tuple[list[tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], list[int], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')] | None]], list[tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], list[int], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')] | None, Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')] | None]]]:
    """
    Sample in-neighbours hop by hop.

    Returns (nodes, nodes per hop, trees, None unless disjoint) for each node type and (rows, cols, edge ids, edges per hop, weights,
    timestamps) for each relation, the last two None unless the relation gives them.
    -1 in num_nodes means unknown, for types that are only sources.
    """

class WalkStep:
    """
    Where walkers can go at one step: arrays, name for messages, alias tables or orders by time.
    """

    def __init__(self, indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], indices: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], name: str, overlay: Overlay | None = None, weights: AliasTables | None = None, overlay_weights: AliasTables | None = None, times: TimeOrder | None = None, overlay_times: TimeOrder | None = None) -> None: ...

class WalkPlan:
    """Plan of walks: the steps of each path, cycled, and the rule of choice."""

    def __init__(self, paths: Sequence[Sequence[WalkStep]], length: int, p: float = 1.0, q: float = 1.0, restart_probability: float = 0.0, most_parallel: int = 1, strictly_later: bool = False, time_window: int | None = None, linear: bool = False) -> None: ...

class Walkers:
    """Where walkers start; where they go first, along which path, from when."""

    def __init__(self, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], second: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, path_of: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, times: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, first_position: int = 0) -> None: ...

def random_walks(plan: WalkPlan, walkers: Walkers, key: tuple[int, int, int], threads: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C')]:
    """
    Walk, with draws of (seed, epoch, batch): int64[n, length + 1], -1 after a dead end.
    """

def most_parallel_edges(step: WalkStep, threads: int) -> int:
    """
    The most edges from one node to another; an error where a list does not ascend.
    """

def skip_gram_pairs(walks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], arguments: tuple[int, Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, bool, Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None], key: tuple[int, int, int], threads: int) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]]:
    """
    All (centre, context) pairs, two int64[pairs]. Arguments are the window, offsets of columns
    [paths, width] or None, whether windows are drawn, and shares to keep or None.
    """

def walk_pairs(plan: WalkPlan, walkers: Walkers, arguments: tuple[int, Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, bool, Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None], key: tuple[int, int, int], threads: int) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]]:
    """The pairs of random_walks(), which are held only meanwhile."""

def ppr_neighbors(round: Sequence[WalkStep], nodes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], walks_rounds_neighbors: tuple[int, int, int], restart_probability: float, key: tuple[int, int, int], threads: int) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C')]]:
    """
    The nodes that walks from each node visit most, -1 where there are no more, and how often: two int64[n, neighbours].
    """

class WalkerDraws:
    """
    The draws of the walkers of batches: those of number i are offsets[i] to offsets[i + 1] - 1.
    """

    def __init__(self, key: tuple[int, int, int], offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], first_position: int = 0) -> None: ...

def walk_any_edges(draws: WalkerDraws, step: int, numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], threads: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """
    The position of the edge that each walker takes at a step, int64[n], -1 for none; bounds are int64[n, 2].
    """

def walk_weighted_edges(draws: WalkerDraws, step: int, numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: AliasTables, threads: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """
    The same in proportion to weights, of the rows of alias tables: positions in these.
    """

def walk_next_nodes(draws: WalkerDraws, step: int, numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], indptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], indices: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], weights: AliasTables | None, num_nodes: int, places: tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]], p_q_parallel: tuple[float, float, int], name: str, threads: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """
    The nodes that walkers which look back step to, int64[n], -1 for none. Places are the row of the node that
    each is at, the node before (-1: none) and its row.
    """

class AliasTable:
    """Draws items with probabilities proportional to their weights."""

    def __init__(self, weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    @staticmethod
    def uniform(num_items: int) -> AliasTable:
        """Items that are equally likely; needs no memory."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Memory of the table in bytes."""

    @property
    def entries(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', writable=False)]:
        """
        Threshold and alias of each item: uint32[items, 2], read only; empty where items are equally likely.
        """

    def sample(self, out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], seed: int, epoch: int, batch: int, threads: int) -> None:
        """Fill the int64 array `out` with drawn items."""

    def sample_for(self, weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, known_positives: tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], str, Overlay | None] | None, queries: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], num_negatives: int, exclude_query: bool, allow_exhausted: bool, seed: int, epoch: int, batch: int, threads: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C')]:
        """
        Items that are none of each query's known positives: int64[queries, num_negatives]. `weights` are those
        of the table. `known_positives` is (indptr, indices, name, overlay or None), ascending.
        """

def row_degrees(rows: tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], str, Overlay | None], threads: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """
    The number of edges of each row of (indptr, indices, name, overlay or None).
    """

def count_remaining(known_positives: tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], str, Overlay | None], num_items: int, exclude_query: bool, threads: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """
    Number of items that are no known positives of each row of (indptr, indices, name, overlay or None).
    """

class Store:
    """
    Arrays in files larger than memory: what is wanted often is kept in memory.
    """

    def __init__(self, files: Sequence[tuple[str, int]], rows: tuple[int, int, int] | None, budget_bytes: int, backend: str, depth: int, direct: bool) -> None:
        """
        Files as (path, bytes). rows: (offset, row bytes, rows) of the only file, which is then kept by row.
        """

    def read_rows(self, array: tuple[int, int, int, int], index: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], whole_pass: bool, threads: int, places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None:
        """
        Entries of the array (file, offset, entry bytes, entries) into uint8[n * entry bytes], or into the places[n] among as many entries as out has room for.
        """

    def read_bounds(self, offsets: tuple[int, int, int, int], items: int, index: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], whole_pass: bool, threads: int) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]]:
        """
        Where lists begin and end, int64[n, 2], and where each begins in what read_items gives, int64[n + 1].
        """

    def read_items(self, array: tuple[int, int, int, int], index: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], limit: int, bounds: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], whole_pass: bool, threads: int) -> None:
        """The items of lists, one list after the other, into uint8[...]."""

    def stats(self) -> dict:
        """Counts since it was opened, and the bytes it holds now."""

    @property
    def backend(self) -> str:
        """Backend that reads the file."""

    @property
    def cache(self) -> str:
        """Kind of cache: resident (all), sieve (units used often), none."""

    @property
    def budget_bytes(self) -> int: ...

class TraceCache:
    """
    Choice of the rows to keep in slots where the accesses to come are known.
    """

    def __init__(self, num_rows: int, slots: int) -> None: ...

    def begin_pass(self, batches: Sequence[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> list[int]:
        """
        Begin a pass over the rows that each batch wants; returns where its windows begin, and the end.
        """

    def plan(self, batches: Sequence[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> tuple[bool, Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]]:
        """
        Plan the next window, with these batches: whether it has slots, the rows to read, the slots to read them
        into, and the slot of each row that the batches want.
        """

    def release(self) -> None:
        """The oldest planned window is no longer in use."""

    @property
    def hits(self) -> int: ...

    @property
    def misses(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    slot_bytes: Final[int] = ...
    """(arg: object, /) -> int"""

def gather_rows(table: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], row_bytes: int, rows: int, index: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], threads: int) -> None:
    """Rows of the table uint8[rows * row bytes] into uint8[n * row bytes]."""

def pooled_bytes(bytes: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C')]:
    """
    uint8[bytes], not initialised, of memory that is used again when Python drops it.
    """

def instruction_sets() -> list[str]:
    """
    Names of the instruction sets that rows are decoded with on this processor, lowest first.
    """

def use_instruction_set(name: str) -> None:
    """
    Decode rows with one of instruction_sets() from now on, in all threads; until then it is the last.
    """

class StoredRows:
    """Rows of a served table, decoded to float32 as they are read."""

    @staticmethod
    def of_float32(values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> StoredRows:
        """float32[n, dim]."""

    @staticmethod
    def of_float16(halves: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> StoredRows:
        """Bits of float16[n, dim]."""

    @staticmethod
    def of_int8(codes: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], scale_bias: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> StoredRows:
        """
        Codes uint8[n, dim]; scale and bias of each row, bits of float16[n, 2].
        """

    @staticmethod
    def of_rotated(bits: int, packed: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> StoredRows:
        """
        Scale, bias and codes of 2, 3 or 4 bits, uint8[n, bytes of a row]; signs int8[dim].
        """

    @staticmethod
    def of_same(row: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: int) -> StoredRows:
        """So many times the same row, float32[dim]."""

    @staticmethod
    def of_tiers(is_hot: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], hot: StoredRows, cold: StoredRows) -> StoredRows:
        """
        A bit of uint8[(n + 7) / 8] for each row, set for the rows of `hot`; the others are those of `cold`.
        """

    @staticmethod
    def of_clusters(clusters: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], centroids: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], rest: StoredRows) -> StoredRows:
        """
        Sums of a centroid and a row of `rest`: clusters uint8[n], centroids float32[k, dim].
        """

    @staticmethod
    def of_codebooks(codes: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], codebooks: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)]) -> StoredRows:
        """
        Sums of one row from each codebook: codes uint8[n, m], codebooks float32[m, 256, dim].
        """

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def dim(self) -> int:
        """Length of a row."""

    @property
    def nbytes(self) -> int:
        """Bytes of the stored rows, and of what was built to find them."""

    def take(self, index: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu')], default_row: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> int:
        """
        Rows into float32[n, dim]; an index of -1 gives `default_row`, float32[dim], where there is one.
        Returns -1, or the position of the first index outside: nothing is read then.
        """

    def block(self, start: int, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
        """The rows from `start` on into out."""

    def sums(self, index: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> int:
        """
        Weighted sums of the rows of bags into float32[bags, dim]; an index of -1 adds nothing. Returns as take().
        """

    def best(self, queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, index: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')], scores: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
        """
        The rows of the largest products with each query, divided by the rows' lengths, into int64[n, k] and
        float32[n, k], largest first; ties go to the lower row.
        """

class OptimizerConfig:
    """Optimizer of rows and its settings."""

    def __init__(self, name: str, *, lr: float, eps: float, initial_accumulator: float, betas: tuple[float, float], beta: float, l1: float, l2: float, weight_decay: float, decoupled_weight_decay: bool, bounds: tuple[float, float], clip_norm: float, clip_value: float, mean_gradient: bool) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def lr(self) -> float: ...

    @property
    def eps(self) -> float: ...

    @property
    def initial_accumulator(self) -> float: ...

    @property
    def betas(self) -> tuple[float, float]: ...

    @property
    def beta(self) -> float: ...

    @property
    def l1(self) -> float: ...

    @property
    def l2(self) -> float: ...

    @property
    def weight_decay(self) -> float: ...

    @property
    def decoupled_weight_decay(self) -> bool: ...

    @property
    def bounds(self) -> tuple[float, float]: ...

    @property
    def clip_norm(self) -> float: ...

    @property
    def clip_value(self) -> float: ...

    @property
    def mean_gradient(self) -> bool: ...

class PolicyConfig:
    """Admission and eviction policies of a table."""

    def __init__(self, *, admission: str = 'all', admission_count: int = 1, admission_probability: float = 1.0, sketch_bytes: int = 0, halve_after: int = 0, expiry_passes: int | None = None, expiry_seconds: int | None = None, has_score: bool = False, nonclick_weight: float = 0.0, click_weight: float = 0.0, decay: float = 1.0, drop_below: float = 0.0, eviction: str = 'none') -> None: ...

class PolicyEvents:
    """
    Counts of rows that the policies of a table admitted, refused and dropped.
    """

    @property
    def admitted_keys(self) -> int: ...

    @property
    def refused_pulls(self) -> int: ...

    @property
    def dropped_gradients(self) -> int: ...

    @property
    def evicted_rows(self) -> int: ...

    @property
    def dropped_rows(self) -> int: ...

class ShrinkCounts:
    """Rows that shrinking a table dropped, by reason."""

    @property
    def examined(self) -> int: ...

    @property
    def unseen_passes(self) -> int: ...

    @property
    def unseen_seconds(self) -> int: ...

    @property
    def low_score(self) -> int: ...

    @property
    def freed_bytes(self) -> int: ...

class CheckpointPart:
    """A file of a checkpoint."""

    def __init__(self, name: str, rows: int, live_rows: int, bytes: int, crc32c: int, erased: bool, live: bytes) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> int:
        """In the file, or erased keys."""

    @property
    def live_rows(self) -> int:
        """So many of them count."""

    @property
    def stored_bytes(self) -> int:
        """Of the file."""

    @property
    def crc32c(self) -> int:
        """Of the checksums of the records, or of erased keys."""

    @property
    def erased(self) -> bool: ...

    @property
    def live(self) -> bytes:
        """A bit for each row, where not all count."""

class WrittenCheckpoint:
    """Checkpoint of a table as it was at one moment."""

    @property
    def parts(self) -> list[CheckpointPart]: ...

    @property
    def policy_state(self) -> bytes: ...

    @property
    def lr(self) -> float: ...

    @property
    def changes(self) -> int: ...

    @property
    def copied_files(self) -> int:
        """Segments that could not be linked there."""

class PartRecords:
    """Layout of the records of a checkpoint."""

class PulledRows:
    """Where the rows of some keys are."""

    def __len__(self) -> int: ...

    @staticmethod
    def joined(parts: Sequence[PulledRows]) -> PulledRows:
        """Those of several pulls of one table, one after another."""

class Table:
    """Rows for any int64 keys, with optimizer state, in memory."""

    def __init__(self, dim: int, *, dtype: str, optimizer: OptimizerConfig, init_scale: float, seed: int, memory_bytes: int, skip_nonfinite: bool, policies: PolicyConfig) -> None: ...

    def set_time(self, seconds: int) -> None:
        """Seconds since 1970, of whatever comes next."""

    def end_pass(self) -> None: ...

    @property
    def passes(self) -> int:
        """Passes that have ended."""

    def shrink(self, threads: int) -> ShrinkCounts:
        """Drop rows that are expired or of low score."""

    def policy_events(self) -> PolicyEvents: ...

    def counters(self, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int) -> tuple:
        """
        Whether keys have rows; shows, clicks, scores, passes unseen, second last seen of each.
        """

    def take_state(self, is_whole: bool) -> bytes | None:
        """
        State of the policies besides the counters of rows: all of it, or the changes since it was last taken; None: none.
        """

    def confirm_state(self) -> None:
        """Confirm that the state last taken is durable."""

    def restore_state(self) -> None:
        """Mark the state last taken as lost: it is taken again."""

    def add_policy_state(self, state: bytes, shard: tuple[int, int]) -> None:
        """Add what the policies of a table knew whose rows are in this one."""

    def pull(self, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], create: bool, threads: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')]:
        """Rows of the keys, float32[n, dim]."""

    def pull_into(self, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], create: bool, threads: int) -> None:
        """The same into an array of the caller."""

    def pull_rows(self, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], create: bool, threads: int) -> PulledRows:
        """Pull into an array of the caller, and return where the rows are."""

    def push_rows(self, rows: PulledRows, grads: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], threads: int, shows: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, clicks: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None:
        """Push to rows that were pulled from this table."""

    def push(self, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], grads: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], threads: int, shows: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, clicks: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None:
        """Apply gradients, float32[n, dim], those of equal keys summed."""

    def assign(self, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], threads: int) -> None:
        """
        Give the keys these values, float32[n, dim], and a row if they have none.
        """

    def contains(self, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int) -> Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C')]:
        """Whether each key has a row, bool[n]."""

    def erase(self, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
        """Forget keys; returns how many there were."""

    def keys(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
        """All keys, int64[len]."""

    def scan(self, begin: int, count: int) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')], int]:
        """
        The next rows from a number on: keys, values and the number to go on from.
        """

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""

    @property
    def dim(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @property
    def optimizer(self) -> OptimizerConfig: ...

    @property
    def init_scale(self) -> float: ...

    @property
    def seed(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...

    @memory_bytes.setter
    def memory_bytes(self, arg: int, /) -> None: ...

    @property
    def skip_nonfinite(self) -> bool: ...

    @property
    def skipped_gradients(self) -> int:
        """Gradients left out because they were not finite."""

    @property
    def lr(self) -> float: ...

    @lr.setter
    def lr(self, arg: float, /) -> None: ...

    def track_changes(self, chain: int) -> None:
        """Follow what changes from now on."""

    def confirm_changes(self, chain: int) -> None:
        """The changes that a checkpoint took are safe."""

    def restore_changes(self, chain: int) -> None:
        """
        The checkpoint did not become whole: the next one is to have its changes too.
        """

    def reserve(self, rows: int) -> None:
        """Make room for that many more rows."""

    def least_memory_bytes(self, keys: int, batch_rows: int) -> int:
        """
        The least budget of a table with rows on SSD, of so many keys and rows of a batch.
        """

    def write_checkpoint(self, folder: str, contents: int, chain: int, is_delta: bool, threads: int) -> WrittenCheckpoint:
        """Write the rows, all of one moment, to segments in a folder."""

    def load_checkpoint(self, folder: str, parts: Sequence[CheckpointPart], is_delta: bool, shard: tuple[int, int], threads: int) -> None:
        """Put the rows of a checkpoint's parts, or of a shard, into the table."""

    def part_records(self, contents: int) -> PartRecords:
        """Return the layout of the records of this table's checkpoints."""

    def apply_values(self, folder: str, parts: Sequence[CheckpointPart], records: PartRecords, threads: int) -> None:
        """
        Verify a checkpoint's parts, then set rows to their values and forget the keys they erase.
        """

    def pull_bags(self, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, divisors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], create: bool, threads: int) -> PulledRows:
        """Sums of rows into an array of the caller; returns where the rows are."""

    def push_bags(self, rows: PulledRows, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, weights: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, divisors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, grads: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], threads: int) -> None:
        """Push gradients of sums, or of the rows themselves."""

    @property
    def changes(self) -> int:
        """Number of times that values of rows changed or rows lost their keys."""

SUMMED_TOGETHER: int = 256

def shard_of(keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], shards: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """The shard that each key belongs to, int64[n]."""

def table_record_bytes(table: Table) -> int:
    """Bytes of a row's values and all of its state."""

def table_admit(table: Table, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], is_pull: bool, threads: int) -> None:
    """Give keys rows as a pull or a push of them does."""

def table_read_records(table: Table, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], records: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')], threads: int) -> Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C')]:
    """
    Copy whole rows into an array of the caller, uint8[n, record bytes], those of keys without one as new rows would be; returns which have one, bool[n].
    """

def table_write_records(table: Table, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], records: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], threads: int) -> int:
    """
    Replace whole rows of different keys by those in uint8[n, record bytes]; returns how many had one.
    """

class StopFlag:
    """Tells a running prefetch to stop."""

    def __init__(self) -> None: ...

    def set(self) -> None: ...

def table_attach_tier(table: Table, folder: str, settings: str, folder_lock: int) -> None:
    """Let rows that find no room in memory go to segments there."""

def table_detach_tier(table: Table) -> None:
    """Let go of the folder; the table is of no use then."""

def table_restore_segment(table: Table, sequence: int, live: bytes | None) -> None:
    """
    Take the rows of a segment in the folder whose bits are set, or with None all, over earlier ones.
    """

def table_opened(table: Table) -> int:
    """
    Remove segments that were not restored; returns how many files that were.
    """

def table_flush(table: Table) -> list:
    """
    Write all changed rows; returns what the catalogue must say: sequence, whether it is of erased keys, rows, and live bits unless they are as last time.
    """

def table_flushed(table: Table) -> None:
    """The catalogue says what table_flush() returned."""

def table_prefetch(table: Table, keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int, stop: StopFlag) -> tuple[int, int]:
    """
    Read rows on SSD into memory; returns how many are there, and how many were read.
    """

def table_await_compaction(table: Table) -> None:
    """Wait until no segment is to be rewritten in the background."""

def table_purge(table: Table) -> int:
    """Rewrite segments that hold rows of erased keys; returns how many."""

def table_tier_figures(table: Table) -> dict:
    """Counts of rows in the tier and of its reads, writes and evictions."""

class KeyScan:
    """The keys that a table had at a moment, a part at a time."""

    def next(self, most: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
        """At most so many keys, int64[n]; none at the end."""

def table_key_scan(table: Table) -> KeyScan:
    """Begin to go through the keys there are now."""

def segment_keys(path: str) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """The keys of a segment, of rows or erased ones, int64[n]."""

def segment_header(path: str) -> tuple[int, bool, int, str, int]:
    """
    Sequence number, whether it is of erased keys, rows, settings and CRC-32C of a segment.
    """

class SkipGramTrainer:
    """
    Trains rows of two tables, or of one, on the pairs of walks and shared negatives.
    """

    def __init__(self, plan: WalkPlan, pairs: tuple[int, Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, bool, Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None], negatives: AliasTable, center: Table, context: Table, num_keys: int, num_negatives: int, negative_weight: float) -> None: ...

    def train(self, walkers: Walkers, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], key: tuple[int, int, int], negative_seed: int, lr: float, lock_free: bool, threads: int, walks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None) -> tuple[float, int]:
        """
        Train batches, those of walkers offsets[i] to offsets[i + 1], numbered from that of `key` on: returns the
        sum of the losses of all pairs, and their number. `walks` are those of the walkers, where they were made
        before.
        """

def parse_integers(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], plain: bool, values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], wrong: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> int:
    """
    Parse int64[n]; flags the cells that are none, and returns how many. `plain`: only as a number is printed.
    """

def parse_numbers(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], wrong: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> int:
    """Parse float64[n]; flags the cells that are none, and returns how many."""

def parse_booleans(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], wrong: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> int:
    """
    Parse uint8[n] out of true, false, 1, 0; flags the cells that are none, and returns how many.
    """

def hash_strings(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """XXH64 of each cell's bytes, into int64[n]."""

def split_text(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], delimiter: bytes, quote: bytes, cells: int, wanted: Sequence[int], examples: int) -> tuple:
    """
    Splits uint8[n], whole records of `cells` cells, into the wanted cells. Returns (rows, lines, columns as (offsets int64[rows + 1], bytes, validity bits or None, missing), jump_rows, jump_lines, malformed as (kind, line, cells, start), counts by kind); kinds: 0 number of cells, 1 encoding, 2 quote. Row jump_rows[i] starts on line jump_lines[i] (from 0), each row after it one line later up to the next.
    """

def whole_records(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], delimiter: bytes, quote: bytes) -> int:
    """
    Number of bytes at the start of uint8[n] that are whole records, given that more text follows.
    """

def read_text_header(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], delimiter: bytes, quote: bytes, last: bool) -> tuple | None:
    """
    The first record that is not blank: (cells, bytes up to the next, lines, malformed), or None when more text is needed.
    """

class NeighborPass:
    """
    Samples neighbours for a pass of batches, hop by hop, asking for what it needs to read.
    """

    def __init__(self, relations: Sequence[tuple[int, int, Sequence[int], str]], num_nodes: Sequence[int], batches: Sequence[tuple[int, int, Sequence[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, Sequence[tuple[int, Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]]]]], hops: int, replace: bool, disjoint: bool, take_last: bool, seed: int, threads: int) -> None:
        """
        Relations as (source type, target type, neighbours per hop, name); batches as (epoch, batch, the seeds of
        each node type, times of trees or None, edges to exclude as (relation, targets, sources, groups, group of
        each tree)).
        """

    def frontier(self, relation: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
        """The nodes to sample neighbours of, batch after batch."""

    def draw_in(self, relation: int, lists: Relation) -> None:
        """
        Choose edges of those nodes of the frontier that the overlay has lists of, whose edge ids are positions.
        """

    def draw(self, relation: int, bounds: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', writable=False)]:
        """
        Choose edges between the bounds int64[2 n] of each node of the frontier that is left; returns their
        positions.
        """

    def positions(self, relation: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', writable=False)]:
        """The positions of all edges that were chosen at this hop."""

    def add(self, relation: int, neighbors: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """The neighbour at each of the positions that were drawn."""

    def end_hop(self) -> None:
        """Number the neighbours: they are the next frontier."""

    def nodes(self, batch: int, type: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', writable=False)]:
        """The nodes of a batch."""

    def batch(self, batch: int) -> tuple[list[tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], list[int], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]]], list[tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], list[int]]]]:
        """
        (nodes, nodes per hop, trees) for each node type and (rows, cols, positions, edges per hop) for each relation.
        """

    def first_edges(self, hop: int, relation: int) -> list[int]:
        """Where the edges of each batch begin among those of a hop, and the end."""

    @property
    def bytes(self) -> int: ...
