"""Latency of requests, end to end: what a client on this machine waits for.

Each version gets a server in a process of its own. Requests go over a connection of the loopback address, one
after the other: the parsing of HTTP, admission, routing, lookup of ids, execution, search of neighbours and
encoding of the answer are all measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt

from graphbox.deploy import (
    DeployedClick,
    DeployedEncoder,
    DeployedKnowledgeGraph,
    DeployedModel,
    DeployedTensors,
    open_model,
)
from graphbox.deploy.bench import MIN_REPEATS, QUERY_POOL, WARM_UP_CALLS, BatchLatency, check_bench
from graphbox.deploy.signature import WHOLE
from graphbox.errors import GraphboxError, UsageError
from graphbox.server.load.local_server import local_server
from graphbox.server.load.messages import Address, Message, encode, exchange, read_json
from graphbox.server.load.plan import LoadPlan, LoadReport, Protocol
from graphbox.server.load.run import run_load
from graphbox.server.routes import API_PREFIX
from graphbox.server.settings import Settings

__all__ = ["RequestLatency", "bench_requests"]

_NEIGHBORS = 10
_MAX_BODY_BYTES = 1 << 31
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class RequestLatency:
    """Latencies of one kind of request to one version.

    Attributes:
        operation: ``neighbors`` or ``answers``, the REST request for the 10 best of one id; ``infer``, the
            KServe v2 request, in JSON; of bare tensors as binary data.
        latency: the figures; ``batch`` are the rows of one request.
        effective: what ran the model, as the server reports it: adapter, device, precision, threads, ...
    """

    operation: str
    latency: BatchLatency
    effective: Mapping[str, Any]


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
        follow=False,
        max_rows=max(Settings.max_rows, *batch_sizes),
        max_body_bytes=_MAX_BODY_BYTES,
        max_json_bytes=Settings.max_body_bytes,
    )
    with ExitStack() as stack:
        servers = {name: _Server(path, settings, stack) for name, path in versions.items()}
        found: dict[str, list[RequestLatency]] = {name: [] for name in servers}
        for rest, batch in [(True, 1), *((False, batch) for batch in batch_sizes)]:
            asked = {}
            for name, server in servers.items():
                request = server.rest_requests(seed) if rest else server.infer_requests(batch, seed)
                if request is not None:
                    asked[name] = request
            samples: dict[str, list[LoadReport]] = {name: [] for name in asked}
            for name, (_, pool) in asked.items():
                servers[name].warm_up(pool)
            for _ in range(repeats):
                for name, (_, pool) in asked.items():
                    samples[name].append(servers[name].timed(pool, seconds / repeats))
            for name, (operation, _) in asked.items():
                latency = _summary(batch, samples[name])
                found[name].append(RequestLatency(operation, latency, servers[name].effective))
    return found


class _Server:
    """A server of one version, and the requests it is asked; it stops with ``stack``."""

    def __init__(self, path: Path, settings: Settings, stack: ExitStack) -> None:
        self._model: DeployedModel = stack.enter_context(
            open_model(path, target=settings.target, threads=settings.threads)
        )
        self._port = stack.enter_context(local_server(replace(settings, models=(path,))))
        self._address = Address("127.0.0.1", self._port, False, self._model.manifest.name)
        (listed,) = read_json(self._address, f"{API_PREFIX}/models")
        self.effective: Mapping[str, Any] = listed["versions"][0]["running"]

    def warm_up(self, pool: Sequence[bytes]) -> None:
        """Send a few requests.

        Raises:
            GraphboxError: an answer is an error.
        """
        for number in range(WARM_UP_CALLS):
            status, answer = exchange(self._address, pool[number % len(pool)])
            if status != 200:
                raise GraphboxError(
                    f"expected an answer to measure, received status {status}: "
                    f"{answer.decode(errors='replace')[:500]}",
                    where=self._address.model,
                )

    def timed(self, pool: Sequence[bytes], seconds: float) -> LoadReport:
        """Send requests one after the other, at least one.

        Raises:
            GraphboxError: an answer is an error.
        """
        report = run_load(
            LoadPlan(
                host=self._address.host,
                port=self._port,
                requests=tuple(pool),
                connections=1,
                seconds=seconds,
                warm_up_s=0.0,
                timeout_s=_TIMEOUT_S,
            )
        )
        if report.failed or report.refused:
            raise GraphboxError(
                f"expected answers to measure, received {report.refused} refusals and {report.tally.errors}",
                where=self._address.model,
            )
        return report

    def rest_requests(self, seed: int) -> tuple[str, list[bytes]] | None:
        """Return the REST request that the model is asked, each of one id; None where it has no such."""
        model = self._model
        if isinstance(model, DeployedKnowledgeGraph):
            relation = model.relations[0]
            ids = _ids(model, model.end_types(relation)[0], 1, seed)
            ask: Callable[[Any], dict[str, Any]] = lambda head: {"relation": relation, "head": head}  # noqa: E731
            operation = "answers"
        elif isinstance(model, DeployedEncoder):
            query_type = next((name for name in model.query_types if name in model.manifest.targets), None)
            if query_type is None:
                return None
            ids = _ids(model, query_type, 1, seed)
            ask = lambda each: {"id": each, "type": query_type}  # noqa: E731
            operation = "neighbors"
        else:
            return None
        path = f"{API_PREFIX}/models/{quote(self._address.model)}/{operation}"
        end = f" HTTP/1.1\r\nHost: {self._address.authority}\r\n\r\n"
        queries = [urlencode({**ask(each), "k": _NEIGHBORS}) for (each,) in ids]
        return operation, [f"GET {path}?{query}{end}".encode() for query in queries]

    def infer_requests(self, batch: int, seed: int) -> tuple[str, list[bytes]]:
        """Return KServe requests of ``batch`` rows each: of bare tensors as binary data, else in JSON."""
        model = self._model
        protocol: Protocol = "json"
        if isinstance(model, DeployedTensors):
            datatypes = {tensor.name: tensor.datatype for tensor in model.inputs}
            messages: Iterator[Message] = iter([Message(model.batch_feeds(batch), datatypes)])
            protocol = "binary"
        elif isinstance(model, DeployedClick):
            messages = _example_rows(model, batch, seed)
        else:
            messages = _id_messages(model, batch, seed)
        return "infer", [encode(message, self._address, protocol) for message in messages]


def _example_rows(model: DeployedModel, batch: int, seed: int) -> Iterator[Message]:
    """Yield requests of random rows of the example request."""
    datatypes, columns = {}, {}
    for given in model.artifact.example_inputs():
        datatypes[given["name"]] = given["datatype"]
        columns[given["name"]] = np.array(given["data"], object).reshape(given["shape"])
    for rows in _pool(len(next(iter(columns.values()))), batch, seed):
        yield Message({name: values[rows] for name, values in columns.items()}, datatypes)


def _id_messages(model: DeployedModel, batch: int, seed: int) -> Iterator[Message]:
    """Yield requests of random known ids."""
    specs = list(model.signature(WHOLE).inputs.values())
    datatypes = {spec.name: spec.datatype for spec in specs[:1]}
    further: dict[str, npt.NDArray[Any]] = {}
    if isinstance(model, DeployedKnowledgeGraph):
        relation = model.relations[0]
        node_type, answer_type = model.end_types(relation)
        # With those known already, each question has this many answers.
        candidates = len(model.artifact.table(model.form.entities[answer_type]))
        parameters: dict[str, Any] = {"k": min(_NEIGHBORS, candidates), "known": True}
        further = {specs[1].name: np.array([relation] * batch, object)}
        datatypes[specs[1].name] = specs[1].datatype
    elif isinstance(model, DeployedEncoder):
        node_type = model.query_types[0]
        parameters = {"node_type": node_type}
    else:
        raise UsageError(f"expected a model that takes ids, received one of kind {model.manifest.kind}")
    for ids in _ids(model, node_type, batch, seed):
        given = np.array(ids if specs[0].datatype == "INT64" else [str(each) for each in ids], object)
        yield Message({specs[0].name: given, **further}, datatypes, parameters)


def _ids(model: DeployedModel, node_type: str, batch: int, seed: int) -> list[list[Any]]:
    ids = model.artifact.ids(node_type)
    return [ids.take(rows) for rows in _pool(len(ids), batch, seed)]


def _pool(count: int, batch: int, seed: int) -> npt.NDArray[np.int64]:
    """Return queries of ``batch`` rows each: int64 [queries, batch], in [0, ``count``)."""
    if not count:
        raise UsageError("expected a model with at least one query to measure it, received none")
    return np.random.default_rng(seed).integers(0, count, (QUERY_POOL, batch))


def _summary(batch: int, repeats: Sequence[LoadReport]) -> BatchLatency:
    histograms = [report.tally.latency for report in repeats]
    medians = [each.percentile_ms(50) for each in histograms]
    return BatchLatency(
        batch=batch,
        p50_ms=median(medians),
        p50_min_ms=min(medians),
        p50_max_ms=max(medians),
        p99_ms=median(each.percentile_ms(99) for each in histograms),
        rows_per_s=median(batch * report.goodput for report in repeats),
        calls=sum(report.accepted for report in repeats),
        repeats=len(repeats),
    )
