"""Rows of shards in processes of their own: pulls and pushes beside raw TCP and Ray objects, in turns.

    python -m benchmarks.cluster_rows --rounds 30
    pip install --target /tmp/ray ray && PYTHONPATH=/tmp/ray python -m benchmarks.cluster_rows --ray

Each system serves the same rows, Ray from actors, the others from the same processes. "tcp" is the least that
a socket needs: keys as bytes, rows received into one array. "graphbox" pulls by `ShardClient`, whose rows
stay where Arrow put them. A push sends float32 gradients and waits until they were applied. Prints JSON
lines: median and lower quartile in ms, CPU ms of both sides, median of the ratios to TCP in the same round.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graphbox.cluster import RemoteTable, ShardClient, ShardServer, TableShard
from graphbox.cluster.client import KeyedChange, KeyedRows
from graphbox.cluster.connection import ShardAddress
from graphbox.table import EmbeddingTable, shard_of
from graphbox.table.settings import table_settings

Works: TypeAlias = "dict[str, tuple[Callable[[], object], Sequence[int]]]"
"""Work of each system, and the processes that it runs in besides this one."""

DIM, ROWS = 64, 1_000_000
TICKS = os.sysconf("SC_CLK_TCK")


def settings() -> EmbeddingTable:
    """Return a table without rows that says what the shards' are."""
    return EmbeddingTable(DIM, "rowwise_adagrad", lr=0.05, threads=1)


def serve(number: int, shards: int, pipe: Any) -> None:
    """Be a shard: by Arrow Flight and by a socket."""
    shard = TableShard(number, shards)
    shard.make("rows", table_settings(settings()))
    table = shard.tables["rows"]
    table.threads = 1
    keys = np.arange(ROWS)
    table.pull(keys[shard_of(keys, shards) == number])
    listener = socket.create_server(("127.0.0.1", 0))
    server = ShardServer(shard)
    threading.Thread(target=_accept, args=(listener, table), daemon=True).start()
    pipe.send((server.location, listener.getsockname()[1], os.getpid()))
    pipe.recv()
    os._exit(0)


def _accept(listener: socket.socket, table: EmbeddingTable) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer, args=(connection, table), daemon=True).start()


def _answer(connection: socket.socket, table: EmbeddingTable) -> None:
    header = bytearray(9)
    buffer = np.empty((0, DIM), np.float32)
    while True:
        receive(connection, memoryview(header))
        is_push, count = struct.unpack("<?q", header)
        keys = np.empty(count, np.int64)
        receive(connection, bytes_of(keys))
        if count > len(buffer):
            buffer = np.empty((count, DIM), np.float32)
        if is_push:
            receive(connection, bytes_of(buffer[:count]))
            table.push(keys, buffer[:count])
            connection.sendall(b"1")
        else:
            table.pull(keys, out=buffer[:count])
            connection.sendall(bytes_of(buffer[:count]))


def bytes_of(array: np.ndarray) -> memoryview:
    """Return the memory of an array."""
    return array.data.cast("B")


def receive(connection: socket.socket, view: memoryview) -> None:
    """Fill a view."""
    at = 0
    while at < len(view):
        got = connection.recv_into(view[at:])
        if not got:
            raise EOFError
        at += got


class Sockets:
    """A client of all shards by TCP."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._connections = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        for each in self._connections:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pull(self, parts: Sequence[np.ndarray], outs: Sequence[np.ndarray]) -> None:
        """Have the rows of keys in arrays."""
        for connection, keys in zip(self._connections, parts, strict=True):
            connection.sendall(struct.pack("<?q", False, len(keys)))
            connection.sendall(bytes_of(keys))
        for connection, out in zip(self._connections, outs, strict=True):
            receive(connection, bytes_of(out))

    def push(self, parts: Sequence[np.ndarray], grads: Sequence[np.ndarray]) -> None:
        """Send gradients, and wait until they were applied."""
        for connection, keys, values in zip(self._connections, parts, grads, strict=True):
            connection.sendall(struct.pack("<?q", True, len(keys)))
            connection.sendall(bytes_of(keys))
            connection.sendall(bytes_of(values))
        for connection in self._connections:
            receive(connection, memoryview(bytearray(1)))


@contextmanager
def shard_processes(shards: int) -> Iterator[tuple[list[ShardAddress], list[int], list[int]]]:
    """Yield addresses, ports of sockets and process ids of shards."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number in range(shards):
        own, theirs = context.Pipe()
        process = context.Process(target=serve, args=(number, shards, theirs), daemon=True)
        process.start()
        pipes.append(own)
        processes.append(process)
    said = [each.recv() for each in pipes]
    try:
        yield (
            [ShardAddress(location, 1) for location, _, _ in said],
            [port for _, port, _ in said],
            [process for _, _, process in said],
        )
    finally:
        for pipe in pipes:
            pipe.send("end")
        for process in processes:
            process.join()


def ray_actors(shards: int) -> tuple[list[Any], Any]:
    """Return actors that serve the same rows as objects, and Ray."""
    import ray

    ray.init(num_cpus=shards, include_dashboard=False, object_store_memory=1 << 30, log_to_driver=False)

    class Shard:
        def __init__(self, number: int) -> None:
            os.nice(-os.nice(0))  # workers of Ray run at 15
            self._table = settings()
            keys = np.arange(ROWS)
            self._table.pull(keys[shard_of(keys, shards) == number])

        def pull(self, keys: np.ndarray) -> np.ndarray:
            rows: np.ndarray = self._table.pull(keys)
            return rows

        def push(self, keys: np.ndarray, grads: np.ndarray) -> None:
            self._table.push(keys, grads)

        def process(self) -> int:
            return os.getpid()

    actors = [ray.remote(Shard).remote(number) for number in range(shards)]
    return actors, ray


def cpu_ms(processes: Sequence[int]) -> float:
    """Return the CPU time of this process and of others."""
    total = time.process_time()
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total * 1e3


def measure(works: Works, rounds: int) -> list[dict[str, Any]]:
    """Do all works in turn; return times of each, and ratios to the first."""
    times: dict[str, list[float]] = {name: [] for name in works}
    spent = dict.fromkeys(works, 0.0)
    for number in range(-3, rounds):
        for name, (work, processes) in works.items():
            before, began = cpu_ms(processes), time.perf_counter()
            work()
            if number >= 0:
                times[name].append((time.perf_counter() - began) * 1e3)
                spent[name] += cpu_ms(processes) - before
    first = times[next(iter(works))]
    return [
        {
            "system": name,
            "ms": round(statistics.median(each), 3),
            "low": round(sorted(each)[len(each) // 4], 3),
            "cpu_ms": round(spent[name] / rounds, 2),
            "times_tcp": round(statistics.median(a / b for a, b in zip(each, first, strict=True)), 2),
        }
        for name, each in times.items()
    ]


def works_of(
    parts: list[np.ndarray], sockets: Sockets, client: ShardClient, processes: Sequence[int], ray: Any
) -> dict[str, Works]:
    """Return what is measured of a batch: pulls and pushes, by system."""
    keys = np.concatenate(parts)
    bounds = np.cumsum([0, *map(len, parts)])
    outs = [np.empty((len(each), DIM), np.float32) for each in parts]
    grads = np.full((len(keys), DIM), 1e-3, np.float32)
    grad_parts = [grads[first:last] for first, last in pairwise(bounds)]
    wanted = [KeyedRows("rows", keys, bounds)]
    change = KeyedChange(keys, bounds, grads, np.zeros((len(keys), 0), np.float32))

    def push() -> None:
        client.push("rows", change)
        client.settle()

    pulls: Works = {
        "tcp": (lambda: sockets.pull(parts, outs), processes),
        "graphbox": (lambda: client.pull(wanted), processes),
    }
    pushes: Works = {
        "tcp": (lambda: sockets.push(parts, grad_parts), processes),
        "graphbox": (push, processes),
    }
    if ray is not None:
        actors, module, theirs = ray
        pairs = list(zip(actors, parts, grad_parts, strict=True))
        pulls["ray"] = (lambda: module.get([each.pull.remote(own) for each, own, _ in pairs]), theirs)
        pushes["ray"] = (lambda: module.get([each.push.remote(own, g) for each, own, g in pairs]), theirs)
    return {"pull": pulls, "push": pushes}


def main() -> None:
    """Measure the sizes that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[128, 4096, 65_536])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--ray", action="store_true", help="measure Ray, too")
    asked = parser.parse_args()
    ray = None
    if asked.ray:
        actors, module = ray_actors(asked.shards)
        ray = (actors, module, module.get([each.process.remote() for each in actors]))
    rng = np.random.default_rng(0)
    with shard_processes(asked.shards) as (addresses, ports, processes):
        sockets = Sockets(ports)
        with ShardClient(lambda number: addresses[number], asked.shards, 0) as client:
            RemoteTable(client, "rows", settings())
            for count in asked.rows:
                keys = rng.choice(ROWS, count, replace=False)
                owners = shard_of(keys, asked.shards)
                parts = [keys[owners == number] for number in range(asked.shards)]
                for what, works in works_of(parts, sockets, client, processes, ray).items():
                    for line in measure(works, asked.rounds):
                        print(json.dumps({"what": what, "rows": count, **line}), flush=True)


if __name__ == "__main__":
    main()
