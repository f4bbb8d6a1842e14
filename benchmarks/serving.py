"""Requests per second of the infer route, beside a plain FastAPI handler and the bounds of this machine.

    python benchmarks/serving.py [--quick] [--json] [--artifact PATH]

Each system answers the same requests for the same model. ``limit`` rows are bounds: ``limit encode``
runs the model in a loop without HTTP, ``limit uvicorn`` answers with fixed bytes of the same size.
Needs the load generator wrk (apt-get install wrk).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DIM, FAN_OUT, NODES = 64, 10, 20_000
HEADER = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Case:
    """One kind of request."""

    encoding: str
    batch: int
    connections: int

    @property
    def name(self) -> str:
        """Equal names mean the same work."""
        return f"serving/encoder/{self.encoding}/batch{self.batch}/c{self.connections}"

    def request(self, ids: list[str]) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers of a request for ``ids``."""
        entry: dict[str, Any] = {"name": "id", "datatype": "BYTES", "shape": [len(ids)]}
        if self.encoding == "json":
            return json.dumps({"inputs": [entry | {"data": ids}]}).encode(), {
                "Content-Type": "application/json"
            }
        raw = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in ids)
        entry["parameters"] = {"binary_data_size": len(raw)}
        message = {"inputs": [entry], "parameters": {"binary_data_output": True}}
        header = json.dumps(message).encode()
        return header + raw, {"Content-Type": "application/octet-stream", HEADER: str(len(header))}


def write_artifact(path: Path) -> Path:
    """Write an encoder of one layer over random rows."""
    from onnx import TensorProto, helper

    from graphbox.artifact import (
        ArtifactWriter,
        LayerSpec,
        PaddedBlockForm,
        RelationGroup,
        RowsSpec,
        TargetSpec,
        TensorSpec,
    )

    specs = [
        TensorSpec(name="rows", datatype="FP32", shape=(-1, DIM)),
        TensorSpec(name="own", datatype="INT64", shape=(-1,)),
        TensorSpec(name="neighbors", datatype="INT64", shape=(-1, 1, -1)),
        TensorSpec(name="weights", datatype="FP32", shape=(-1, 1, -1)),
    ]
    output = TensorSpec(name="embedding", datatype="FP32", shape=(-1, DIM))
    random = np.random.default_rng(0)
    dense = random.standard_normal((2 * DIM, DIM), np.float32) / np.sqrt(2 * DIM)

    def info(spec: TensorSpec) -> Any:
        kind = TensorProto.FLOAT if spec.datatype == "FP32" else TensorProto.INT64
        return helper.make_tensor_value_info(
            spec.name,
            kind,
            [f"{spec.name}_{axis}" if size < 0 else size for axis, size in enumerate(spec.shape)],
        )

    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["rows", "own"], ["self"]),
            helper.make_node("Gather", ["rows", "neighbors"], ["gathered"]),
            helper.make_node("Unsqueeze", ["weights", "two"], ["wide"]),
            helper.make_node("MatMul", ["wide", "gathered"], ["product"]),
            helper.make_node("Squeeze", ["product", "axes"], ["mean"]),
            helper.make_node("Concat", ["self", "mean"], ["both"], axis=1),
            helper.make_node("MatMul", ["both", "dense"], ["embedding"]),
        ],
        "encoder",
        [info(spec) for spec in specs],
        [info(output)],
        [
            helper.make_tensor("two", TensorProto.INT64, [1], [2]),
            helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2]),
            helper.make_tensor("dense", TensorProto.FLOAT, [2 * DIM, DIM], dense.astype(np.float32).ravel()),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    group = RelationGroup(
        edge_types=(("package", "depends", "package"),),
        counts="neighbors/depends_counts.npy",
        neighbors="neighbors/depends.npy",
        neighbors_input="neighbors",
        weights_input="weights",
    )
    with ArtifactWriter(path) as writer:
        writer.add_ids("package", [f"package-{index}" for index in range(NODES)])
        writer.add_table("package", "package", random.standard_normal((NODES, DIM), np.float32))
        writer.add_array("neighbors/depends.npy", random.integers(0, NODES, NODES * FAN_OUT, np.int32))
        writer.add_array("neighbors/depends_counts.npy", np.full((NODES, 1), FAN_OUT, np.uint16))
        writer.set_onnx(
            model.SerializeToString(), opset=20, precision="float32", inputs=specs, outputs=[output]
        )
        writer.set_preprocess(
            PaddedBlockForm(
                node_type="package",
                rows={"package": RowsSpec(input="rows", tables=("package",))},
                layers=(LayerSpec(groups=(group,), self_inputs={"package": "own"}),),
            )
        )
        targets = {"package": TargetSpec(table="package", score="inner_product")}
        writer.commit(name="encoder", version=1, kind="encoder", task="bench", dim=DIM, targets=targets)
    return path


def serve_graphbox(artifact: Path, port: int) -> None:
    """Serve with graphbox."""
    from graphbox.server import Settings, serve

    serve(Settings(models=(artifact,), port=port))


def serve_fastapi(artifact: Path, port: int) -> None:
    """Serve the same model with a typed FastAPI handler, the way tutorials do."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from graphbox.deploy import open_encoder

    model = open_encoder(artifact)
    app = FastAPI()

    class Tensor(BaseModel):
        name: str
        datatype: str
        shape: list[int]
        data: list[Any]

    class Request(BaseModel):
        inputs: list[Tensor]

    class Answer(BaseModel):
        model_name: str
        model_version: str
        outputs: list[Tensor]

    def infer(request: Request) -> Answer:
        vectors = model.encode(request.inputs[0].data)
        output = Tensor(
            name="embedding", datatype="FP32", shape=list(vectors.shape), data=vectors.ravel().tolist()
        )
        return Answer(model_name="encoder", model_version="1", outputs=[output])

    infer.__annotations__ = {"request": Request, "return": Answer}
    app.post("/v2/models/{name}/infer")(infer)
    uvicorn.run(app, port=port, log_config=None, access_log=False)


def serve_fixed(artifact: Path, port: int) -> None:  # noqa: ARG001 - all servers are started alike
    """Read the body and answer as many bytes as a real answer has: what uvicorn can do at best."""
    import uvicorn

    size = int(os.environ["GRAPHBOX_BENCH_ANSWER_BYTES"])
    body, headers = b"x" * size, [(b"content-length", str(size).encode())]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(app, port=port, log_config=None, access_log=False, lifespan="off")


SERVERS = {"graphbox": serve_graphbox, "fastapi": serve_fastapi, "limit uvicorn": serve_fixed}


@contextmanager
def running(system: str, artifact: Path, answer_bytes: int) -> Iterator[tuple[int, int]]:
    """Run a server; give its port and process id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", system, "--artifact", str(artifact), "--port", str(port)],
        env={**os.environ, "GRAPHBOX_BENCH_ANSWER_BYTES": str(answer_bytes), "OMP_NUM_THREADS": "1"},
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"{system} did not start") from None
                time.sleep(0.05)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask_once(port: int, body: bytes, headers: dict[str, str]) -> bytes:
    """Ask once and return the answer; raises when it is no 200."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/models/encoder/infer", body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - a server started here
        content: bytes = answer.read()
    return content


def load(port: int, case: Case, body: bytes, headers: dict[str, str], seconds: float) -> dict[str, float]:
    """Run wrk and return requests per second and latencies."""
    script = ["wrk.method = 'POST'"]
    script += [f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}" for name, value in headers.items()]
    script.append("wrk.body = '" + "".join(f"\\x{byte:02x}" for byte in body) + "'")
    script.append(
        "done = function(summary, latency, requests)\n"
        "  io.stderr:write(string.format('%d %d %d %d %d\\n', summary.requests, summary.duration,\n"
        "    latency:percentile(50), latency:percentile(99), summary.errors.status + summary.errors.read\n"
        "    + summary.errors.write + summary.errors.connect + summary.errors.timeout))\nend"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write("\n".join(script))
        file.flush()
        command = ["wrk", "-t1", f"-c{case.connections}", f"-d{seconds}s", "-s", file.name]
        url = f"http://127.0.0.1:{port}/v2/models/encoder/infer"
        ended = subprocess.run([*command, url], capture_output=True, text=True, check=True, timeout=120)
    requests, microseconds, p50, p99, errors = map(int, re.findall(r"\d+", ended.stderr)[-5:])
    if errors:
        raise RuntimeError(f"{errors} of {requests} requests failed")
    return {"rate": requests / microseconds * 1e6, "p50_ms": p50 / 1e3, "p99_ms": p99 / 1e3}


def measure_server(system: str, case: Case, artifact: Path, ids: list[str], quick: bool) -> dict[str, Any]:
    """Measure one server at one case."""
    body, headers = case.request(ids)
    answer_bytes = 4 * DIM * case.batch + 200 if case.encoding == "binary" else 12 * DIM * case.batch
    seconds, repeats = (1, 2) if quick else (2, 5)
    with running(system, artifact, answer_bytes) as (port, pid):
        ask_once(port, body, headers)
        load(port, case, body, headers, 1)
        before = cpu_seconds(pid)
        runs = [load(port, case, body, headers, seconds) for _ in range(repeats)]
        used = cpu_seconds(pid) - before
    answered = sum(run["rate"] for run in runs) * seconds
    middle = sorted(runs, key=lambda run: run["rate"])[len(runs) // 2]
    rates = [run["rate"] for run in runs]
    return summary(rates) | {
        "p50_ms": middle["p50_ms"],
        "p99_ms": middle["p99_ms"],
        "per_cpu_s": round(answered / used) if used else None,
    }


def measure_encode(artifact: Path, ids: list[str], quick: bool) -> dict[str, Any]:
    """Measure the model alone: the bound no server passes."""
    from graphbox.deploy import open_encoder

    rates = []
    with open_encoder(artifact) as model:
        model.encode(ids)
        for _ in range(2 if quick else 5):
            count, started = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - started) < 0.5:
                model.encode(ids)
                count += 1
            rates.append(count / elapsed)
    return summary(rates)


def summary(rates: list[float]) -> dict[str, Any]:
    """Return the fields every benchmark prints."""
    return {
        "threads": 1,
        "rate": round(statistics.median(rates), 1),
        "unit": "requests/s",
        "min": round(min(rates), 1),
        "max": round(max(rates), 1),
        "repeats": len(rates),
    }


def main() -> None:
    """Measure, or be one of the servers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter repeats")
    parser.add_argument("--json", action="store_true", help="print JSON lines (the only form there is)")
    parser.add_argument(
        "--artifact", type=Path, help="folder of a model version; a random encoder by default"
    )
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        SERVERS[options.serve](options.artifact, options.port)
        return
    if shutil.which("wrk") is None:
        parser.exit(5, "the load generator wrk is missing: apt-get install wrk\n")
    cases = [
        Case("json", 1, 1),
        Case("json", 1, 16),
        Case("binary", 1, 16),
        Case("json", 32, 16),
        Case("binary", 32, 16),
    ]
    with tempfile.TemporaryDirectory() as folder:
        artifact = options.artifact or write_artifact(Path(folder) / "encoder")
        known = [f"package-{index * 617 % NODES}" for index in range(32)]
        for case in cases:
            ids = known[: case.batch]
            print(
                json.dumps(
                    {
                        "case": case.name,
                        "system": "limit encode",
                        **measure_encode(artifact, ids, options.quick),
                    }
                ),
                flush=True,
            )
            for system in SERVERS:
                if system == "fastapi" and case.encoding == "binary":
                    continue  # it knows JSON only
                measured = measure_server(system, case, artifact, ids, options.quick)
                print(json.dumps({"case": case.name, "system": system, **measured}), flush=True)


if __name__ == "__main__":
    main()
