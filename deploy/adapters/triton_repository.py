"""Model repositories for Triton Inference Server.

Devices are Triton's backends: ``onnxruntime``, and ``python`` for servers without it. Building needs no
server. Loading opens a model that a Triton already serves, ``GRAPHBOX_TRITON=http://HOST:PORT``; nothing is
started or uploaded.

Format: triton-inference-server/server, docs/user_guide/model_repository.md and model_configuration.md.
"""

from __future__ import annotations

import hashlib
import os
import string
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import orjson
from pydantic import TypeAdapter, ValidationError

from graphbox.artifact import OnnxSummary, TensorSpec, inspect_onnx
from graphbox.deploy.adapters import onnxruntime
from graphbox.deploy.adapters.kserve import (
    PROBE_TIMEOUT_S,
    KServeProgram,
    KServeServer,
    digest_of,
)
from graphbox.deploy.protocol import API_VERSION, Device, Options, Package, Support
from graphbox.deploy.signature import DIGEST_PROPERTY, PRECISION_PROPERTY, THREADS_PROPERTY
from graphbox.errors import FormatError, GraphboxError, UnsupportedError

_VARIABLE = "GRAPHBOX_TRITON"
_TEMPLATE = Path(__file__).with_name("triton_model.py")
_ONNX_RUNTIME, _PYTHON = "onnxruntime", "python"
_BACKENDS = {
    _ONNX_RUNTIME: ("files for Triton's ONNX Runtime backend", 'platform: "onnxruntime_onnx"'),
    _PYTHON: ("files for Triton's Python backend with ONNX Runtime", 'backend: "python"'),
}
_PLAIN = frozenset(string.ascii_letters + string.digits + string.punctuation + " ") - {'"', "\\"}
_INDEX = TypeAdapter(list[dict[str, str]])


class TritonRepository:
    """Adapter that writes ``config.pbtxt`` and the folder ``1`` of a model for Triton."""

    name = "triton_repository"
    api = API_VERSION
    builds_ahead = True

    def probe(self) -> list[Device]:
        """Return a device for each backend, available because building always works.

        ``reason`` is why the model cannot be run from here, if so.
        """
        reason = _why_not()
        # Packages contain a copy of this file.
        details = {"model.py": hashlib.sha256(_TEMPLATE.read_bytes()).hexdigest()}
        return [
            Device(name, "other", description, True, reason, details if name == _PYTHON else {})
            for name, (description, _) in _BACKENDS.items()
        ]

    def supports(self, model: bytes, device: Device) -> Support:  # noqa: ARG002 - both run ONNX Runtime
        """Return whether ONNX Runtime, which both backends use, loads the model."""
        try:
            _checked(model)
        except (UnsupportedError, FormatError) as error:
            return Support(supported=False, reason=error.message)
        return Support(supported=True)

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:
        """Write the folder of a model; see `graphbox.deploy.protocol.Adapter.build`."""
        summary = _checked(model)
        version = folder / "1"
        version.mkdir()
        (version / "model.onnx").write_bytes(model)
        if device.name == _PYTHON:
            (version / "model.py").write_bytes(_TEMPLATE.read_bytes())
        parameters = {
            DIGEST_PROPERTY: digest_of(model),
            PRECISION_PROPERTY: summary.precision,
            THREADS_PROPERTY: str(options.threads),
            "inter_op_thread_count": "1",
        }
        text = _configuration(_BACKENDS[device.name][1], summary, parameters)
        (folder / "config.pbtxt").write_text(text, encoding="ascii")

    def load(self, package: Package) -> KServeProgram:
        """Open the server's model that was built as this package was.

        Raises:
            UnsupportedError: no server is configured, or it has no such model.
            GraphboxError: the server cannot be reached, or refuses.
        """
        url = os.environ.get(_VARIABLE, "").strip()
        if not url:
            raise UnsupportedError(
                f"expected {_VARIABLE} to name a server: `{self.name}` builds files and runs none itself",
                hint=f"set {_VARIABLE}=http://HOST:PORT to a Triton that serves what "
                "`graphbox targets build` wrote",
            )
        server = KServeServer(url)
        try:
            return KServeProgram(server, _served(server, package), package)
        except BaseException:
            server.close()
            raise


def _why_not() -> str | None:
    """Return why models cannot be run; None: a server is ready."""
    url = os.environ.get(_VARIABLE, "").strip()
    if not url:
        return f"builds files; {_VARIABLE} names no server to run them"
    try:
        server = KServeServer(url, PROBE_TIMEOUT_S)
        try:
            server.check_ready()
        finally:
            server.close()
    except GraphboxError as error:
        return f"builds files; no server runs them: {error.message}"
    return None


def _checked(model: bytes) -> OnnxSummary:
    """Inspect a model and check that ONNX Runtime and Triton can load it.

    Raises:
        UnsupportedError: one of them cannot.
        FormatError: the model is damaged.
    """
    summary = inspect_onnx(model, "the model")
    for tensor in (*summary.input_tensors, *summary.output_tensors):
        if not tensor.shape:
            raise UnsupportedError(
                f"expected tensors with dimensions, which Triton needs, `{tensor.name}` has none"
            )
    processor = Device("cpu", "cpu", "", available=True)
    onnxruntime.adapter.load(Package(model, processor, Options())).close()
    return summary


def _configuration(runtime: str, summary: OnnxSummary, parameters: Mapping[str, str]) -> str:
    """Return ``config.pbtxt``.

    ``max_batch_size`` is 0, so shapes are those of the ONNX file. Otherwise Triton could concatenate requests
    along the first dimension, and positions into a request's rows would point to another request's rows.
    The name is omitted: Triton uses the folder's name.
    """
    lines = [runtime, "max_batch_size: 0"]
    lines += [f"{role} [\n{_tensors(tensors)}\n]" for role, tensors in _roles(summary)]
    lines.append("instance_group [ { kind: KIND_CPU count: 1 } ]")
    lines += [
        f"parameters {{ key: {_quoted(key)} value {{ string_value: {_quoted(value)} }} }}"
        for key, value in parameters.items()
    ]
    return "\n".join(lines) + "\n"


def _roles(summary: OnnxSummary) -> Sequence[tuple[str, Sequence[TensorSpec]]]:
    return ("input", summary.input_tensors), ("output", summary.output_tensors)


def _tensors(tensors: Sequence[TensorSpec]) -> str:
    return ",\n".join(
        f"  {{ name: {_quoted(tensor.name)} data_type: TYPE_{tensor.datatype} dims: {list(tensor.shape)} }}"
        for tensor in tensors
    )


def _quoted(text: str) -> str:
    """Quote a string for protobuf's text format; other than plain characters become octal bytes."""
    escaped = (
        character if character in _PLAIN else "".join(f"\\{byte:03o}" for byte in character.encode())
        for character in text
    )
    return f'"{"".join(escaped)}"'


def _served(server: KServeServer, package: Package) -> str:
    """Find the server's model of a package by digest, backend and threads; return its path.

    Raises:
        UnsupportedError: there is none.
    """
    path = "/v2/repository/index"
    response = server.request("POST", path, orjson.dumps({"ready": True}))
    if response.status != HTTPStatus.OK:
        raise server.refusal(path, response)
    try:
        index = _INDEX.validate_json(response.body)
        models = [
            f"/v2/models/{quote(model['name'], safe='')}/versions/{quote(model['version'])}"
            for model in index
        ]
    except (ValidationError, KeyError) as error:
        raise UnsupportedError(
            "expected a list of models, received another answer", where=server.url + path
        ) from error
    for model in models:
        found = server.configuration(model)
        if (found.property(DIGEST_PROPERTY), found.backend, found.threads) == (
            digest_of(package.model),
            package.device.name,
            package.options.threads,
        ):
            return model
    raise UnsupportedError(
        f"expected a ready model with the ONNX file {digest_of(package.model)[:12]}, backend "
        f"{package.device.name} and {package.options.threads} threads, the server has {len(models)} others",
        where=server.url,
        hint="`graphbox targets build` writes it; load it there",
    )


adapter = TritonRepository()
