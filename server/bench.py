"""Latency of requests, end to end: what a client waits for, without the network.

Each version gets the application of a server, in this process. Its requests take the way of those of clients
once the HTTP of their connection is parsed: admission, routing, reading of the body, lookup of ids,
execution on a thread where the server uses one, search of neighbours, encoding of the answer. Sockets, the
parsing of HTTP and the access log are left out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt
import orjson

from graphbox.artifact import TensorSpec
from graphbox.deploy import DeployedClick, DeployedEncoder, DeployedKnowledgeGraph, DeployedTensors
from graphbox.deploy.bench import MIN_REPEATS, QUERY_POOL, WARM_UP_CALLS, BatchLatency, check_bench, summarize
from graphbox.deploy.signature import WHOLE
from graphbox.errors import GraphboxError, UsageError
from graphbox.server.app import create_app_of
from graphbox.server.asgi import Message, Scope
from graphbox.server.gateway import Gateway
from graphbox.server.kserve.tensors import DATATYPES
from graphbox.server.repository import Repository
from graphbox.server.routes import API_PREFIX
from graphbox.server.settings import Settings
from graphbox.server.slot import ServedModel

__all__ = ["RequestLatency", "bench_requests"]

_NEIGHBORS = 10
_MAX_BODY_BYTES = 1 << 31


@dataclass(frozen=True)
class RequestLatency:
    """Latencies of one kind of request to one version.

    Attributes:
        operation: ``neighbors`` or ``answers``, the REST request for the 10 best of one id; ``infer``, the
            KServe v2 request, in JSON; of bare tensors as binary data.
        latency: the figures; ``batch`` are the rows of one request.
        effective: what ran the model: the adapter, and the program's `Effective`.
    """

    operation: str
    latency: BatchLatency
    effective: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    query: str = ""
    body: bytes = b""
    json_bytes: int | None = None  # of a body with binary data


def bench_requests(
    versions: Mapping[str, Path],
    batch_sizes: Sequence[int] = (1, 32, 256),
    seconds: float = 1.0,
    repeats: int = MIN_REPEATS,
    target: str = "auto",
    threads: int = 1,
    seed: int = 0,
) -> dict[str, list[RequestLatency]]:
    """Measure requests to several model versions, their repeats alternating.

    Args:
        versions: folders of versions of one kind, by any name.
        batch_sizes: rows of one `infer` request. The REST requests have one id.
        seconds: of timed requests for each version, kind and batch size, over all repeats.
        repeats: at least 5.
        target: adapter to run on.
        threads: of one execution.
        seed: of the ids.

    Returns:
        For each version the REST request first, where its models have one, then `infer` by batch size.

    Raises:
        UsageError: there is nothing to measure.
        GraphboxError: a version cannot be opened, or its server answers with an error.
    """
    check_bench(batch_sizes, repeats, seconds)
    settings = Settings(
        target=target,
        threads=threads,
        max_rows=max(Settings.max_rows, *batch_sizes),
        max_body_bytes=_MAX_BODY_BYTES,
        max_json_bytes=Settings.max_body_bytes,
    )

    async def measure() -> dict[str, list[RequestLatency]]:
        async with AsyncExitStack() as stack:
            servers = {
                name: await stack.enter_async_context(_server(path, settings))
                for name, path in versions.items()
            }
            return await _measure(servers, batch_sizes, seconds, repeats, seed)

    # A thread of its own: the caller may have an event loop, as a notebook has.
    with _without_access_log(), ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(measure())).result()


class _Server:
    """The application of a server of one version, asked in this process."""

    def __init__(self, app: Gateway, served: ServedModel) -> None:
        self._app = app
        self.served = served

    async def send(self, request: _Request) -> None:
        """Send a request and wait for the last byte of the answer.

        Raises:
            GraphboxError: the answer is an error.
        """
        status, body = 0, bytearray()
        unread = [request.body]

        async def receive() -> Message:
            if not unread:
                await asyncio.Event().wait()  # the client stays
            return {"type": "http.request", "body": unread.pop(), "more_body": False}

        async def collect(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                body.extend(message.get("body", b""))

        await self._app(_scope(request), receive, collect)
        if status != 200:
            raise GraphboxError(
                f"expected an answer to measure, received status {status}: "
                f"{body.decode(errors='replace')[:500]}",
                where=f"{request.method} {request.path}",
            )


@asynccontextmanager
async def _server(path: Path, settings: Settings) -> AsyncIterator[_Server]:
    repository = Repository(None, [path], settings.target, settings.threads)
    app = create_app_of(settings, None, repository)
    (name,) = repository.names()
    try:
        slot = repository.slot(name)
        served = slot.enter()
        try:
            yield _Server(app, served)
        finally:
            slot.leave()
    finally:
        app.services.executor.close()
        repository.close()


async def _measure(
    servers: Mapping[str, _Server], batch_sizes: Sequence[int], seconds: float, repeats: int, seed: int
) -> dict[str, list[RequestLatency]]:
    found: dict[str, list[RequestLatency]] = {name: [] for name in servers}
    for rest, batch in [(True, 1), *((False, batch) for batch in batch_sizes)]:
        asked = {}
        for name, server in servers.items():
            request = (_rest_requests if rest else _infer_requests)(server.served, batch, seed)
            if request is not None:
                asked[name] = request
        samples: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in asked}
        for name, (_, pool) in asked.items():
            for number in range(WARM_UP_CALLS):
                await servers[name].send(pool[number % len(pool)])
        for _ in range(repeats):
            for name, (_, pool) in asked.items():
                samples[name].append(await _timed(servers[name], pool, seconds / repeats))
        for name, (operation, _) in asked.items():
            effective = dict(servers[name].served.model.effective)
            found[name].append(RequestLatency(operation, summarize(batch, samples[name]), effective))
    return found


async def _timed(server: _Server, pool: Sequence[_Request], seconds: float) -> npt.NDArray[np.int64]:
    """Return the duration of each request in nanoseconds, for as many as fit into the time."""
    durations: list[int] = []
    stop = time.perf_counter_ns() + int(seconds * 1e9)
    start = time.perf_counter_ns()
    while not durations or start < stop:
        await server.send(pool[len(durations) % len(pool)])
        end = time.perf_counter_ns()
        durations.append(end - start)
        start = end
    return np.array(durations)


def _rest_requests(served: ServedModel, batch: int, seed: int) -> tuple[str, list[_Request]] | None:
    """Return the REST request that the model is asked, each of one id; None where it has no such."""
    prefix = f"{API_PREFIX}/models/{quote(served.name)}"
    model = served.model
    if isinstance(model, DeployedKnowledgeGraph):
        relation = model.relations[0]
        ids = _ids(served, model.end_types(relation)[0], batch, seed)
        ask: Callable[[Any], dict[str, Any]] = lambda head: {"relation": relation, "head": head}  # noqa: E731
        operation = "answers"
    elif isinstance(model, DeployedEncoder):
        query_type = next((name for name in model.query_types if name in model.manifest.targets), None)
        if query_type is None:
            return None
        ids = _ids(served, query_type, batch, seed)
        ask = lambda each: {"id": each, "type": query_type}  # noqa: E731
        operation = "neighbors"
    else:
        return None
    pool = [
        _Request("GET", f"{prefix}/{operation}", urlencode({**ask(each), "k": _NEIGHBORS})) for (each,) in ids
    ]
    return operation, pool


def _infer_requests(served: ServedModel, batch: int, seed: int) -> tuple[str, list[_Request]]:
    """Return KServe requests of ``batch`` rows each: of bare tensors as binary data, else in JSON."""
    path = f"/v2/models/{quote(served.name)}/infer"
    if isinstance(served.model, DeployedTensors):
        return "infer", [_binary_request(path, served.model.batch_feeds(batch), served.model.inputs)]
    bodies = [orjson.dumps(message) for message in _infer_messages(served, batch, seed)]
    return "infer", [_Request("POST", path, body=body) for body in bodies]


def _binary_request(
    path: str, feeds: Mapping[str, npt.NDArray[Any]], inputs: Sequence[TensorSpec]
) -> _Request:
    """Return a request whose tensors, and those of its answer, are binary data."""
    message = {
        "inputs": [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(feeds[tensor.name].shape),
                "parameters": {"binary_data_size": feeds[tensor.name].nbytes},
            }
            for tensor in inputs
        ],
        "parameters": {"binary_data_output": True},
    }
    header = orjson.dumps(message)
    little = (
        feeds[tensor.name].astype(DATATYPES[tensor.datatype].newbyteorder("<"), copy=False).tobytes()
        for tensor in inputs
    )
    return _Request("POST", path, body=b"".join((header, *little)), json_bytes=len(header))


def _infer_messages(served: ServedModel, batch: int, seed: int) -> Iterator[dict[str, Any]]:
    model = served.model
    if isinstance(model, DeployedClick):
        examples = [
            (given, np.array(given["data"], object).reshape(given["shape"]))
            for given in served.artifact.example_inputs()
        ]
        for rows in _pool(len(examples[0][1]), batch, seed):
            yield {
                "inputs": [
                    {**given, "shape": [batch, *data.shape[1:]], "data": data[rows].ravel().tolist()}
                    for given, data in examples
                ]
            }
        return
    specs = list(served.model.signature(WHOLE).inputs.values())
    parameters: dict[str, Any] = {}
    further = []
    if isinstance(model, DeployedKnowledgeGraph):
        relation = model.relations[0]
        node_type, answer_type = model.end_types(relation)
        # With those known already, each question has this many answers.
        candidates = len(served.artifact.table(model.form.entities[answer_type]))
        parameters = {"k": min(_NEIGHBORS, candidates), "known": True}
        further = [_tensor(specs[1].name, specs[1].datatype, [relation] * batch)]
    else:
        node_type = served.query_types[0]
        parameters = {"node_type": node_type}
    for ids in _ids(served, node_type, batch, seed):
        given = ids if specs[0].datatype == "INT64" else [str(each) for each in ids]
        yield {
            "inputs": [_tensor(specs[0].name, specs[0].datatype, given), *further],
            "parameters": parameters,
        }


def _tensor(name: str, datatype: str, data: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [len(data)], "data": data}


def _ids(served: ServedModel, node_type: str, batch: int, seed: int) -> list[list[Any]]:
    ids = served.artifact.ids(node_type)
    return [ids.take(rows) for rows in _pool(len(ids), batch, seed)]


def _pool(count: int, batch: int, seed: int) -> npt.NDArray[np.int64]:
    """Return queries of ``batch`` rows each: int64 [queries, batch], in [0, ``count``)."""
    if not count:
        raise UsageError("expected a model with at least one query to measure it, received none")
    return np.random.default_rng(seed).integers(0, count, (QUERY_POOL, batch))


def _scope(request: _Request) -> Scope:
    headers = [(b"host", b"127.0.0.1"), (b"accept", b"*/*")]
    if request.body:
        kind = b"application/json" if request.json_bytes is None else b"application/octet-stream"
        headers += [(b"content-type", kind), (b"content-length", str(len(request.body)).encode())]
    if request.json_bytes is not None:
        headers.append((b"inference-header-content-length", str(request.json_bytes).encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": request.method,
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": request.query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
        "state": {},
    }


@contextmanager
def _without_access_log() -> Iterator[None]:
    """Keep the measured requests out of the log of a run."""
    logger = logging.getLogger("graphbox.server.access")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
