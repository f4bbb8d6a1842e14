"""Servers beside graphbox in the serving benchmark, for `python -m benchmarks.serving_peers`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import cast

import httptools
import numpy as np
import uvloop

_ANSWER_BYTES = 200


def serve_fastapi(model: Path, port: int) -> None:
    """Serve an ONNX file with a typed FastAPI handler, the way tutorials do."""
    import onnxruntime
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.read_bytes(), options, providers=["CPUExecutionProvider"])
    app = FastAPI()

    class Tensor(BaseModel):
        name: str
        datatype: str
        shape: list[int]
        data: list[float]

    class Request(BaseModel):
        inputs: list[Tensor]

    class Answer(BaseModel):
        model_name: str
        model_version: str
        outputs: list[Tensor]

    def infer(request: Request) -> Answer:
        given = request.inputs[0]
        (values,) = session.run(None, {given.name: np.array(given.data, np.float32).reshape(given.shape)})
        output = Tensor(
            name="output", datatype="FP32", shape=list(values.shape), data=values.ravel().tolist()
        )
        return Answer(model_name="mlp", model_version="1", outputs=[output])

    infer.__annotations__ = {"request": Request, "return": Answer}
    app.post("/v2/models/mlp/infer")(infer)
    uvicorn.run(app, port=port, log_config=None, access_log=False)


class _FixedAnswer(asyncio.Protocol):
    """Parses requests and answers each with the same bytes."""

    _ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % _ANSWER_BYTES + b"x" * _ANSWER_BYTES

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        cast("asyncio.Transport", self._transport).write(self._ANSWER)


def serve_fixed(port: int) -> None:
    """Read requests and answer fixed bytes: the bound of HTTP in one Python process."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_FixedAnswer, "127.0.0.1", port)
        await server.serve_forever()

    uvloop.run(serve())


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=("fastapi", "fixed"))
    parser.add_argument("port", type=int)
    parser.add_argument("--model", type=Path, help="ONNX file")
    options = parser.parse_args()
    if options.peer == "fixed":
        serve_fixed(options.port)
    else:
        serve_fastapi(options.model, options.port)


if __name__ == "__main__":
    main()
