"""OpenVINO: Intel's runtime, on the CPU and on Intel's GPUs and NPUs.

Its package brings another one that sends telemetry, and makes a folder in the user's home as soon as it is
imported. OpenVINO works without it, so it is kept from being imported.

On processors with bfloat16 its default for float32 models is bfloat16 (an error of 1e-3 instead of 1e-7), so
float32 is asked for, and the precision is read back from what was compiled.
"""

from __future__ import annotations

import functools
import io
import mmap
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graphbox.artifact import TensorSpec, inspect_onnx
from graphbox.deploy.adapters.processor import processor_features
from graphbox.deploy.adapters.results import written
from graphbox.deploy.adapters.trial import TRIAL_MODEL, trial_failure
from graphbox.deploy.protocol import API_VERSION, Device, Effective, Feeds, Options, Package, Support
from graphbox.errors import BackendMissingError, FormatError, InvalidRequestError, UnsupportedError

_COMPILED = "model.blob"
_TELEMETRY = "openvino_telemetry"
_THREADS = "INFERENCE_NUM_THREADS"
_STREAMS = "NUM_STREAMS"
_SUPPORTED = "SUPPORTED_PROPERTIES"
_PRECISION_OF = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}

_PROVEN: set[str] = set()
"""Devices that a model ran on in this process; devices are asked for each time that a model is opened."""


class OpenVinoProgram:
    """A compiled model; ``run`` is thread-safe: the model has one stream, so calls wait for each other.

    After an inference that failed the plugin keeps what it computed last: the next one with inputs of the
    same shapes returns it, without an error. So the model is imported anew before the next call.
    """

    def __init__(self, package: Package) -> None:
        openvino = _openvino()
        folder = package.folder
        assert folder is not None  # noqa: S101 - this adapter builds ahead
        core, plugin = _core(), _plugin(package.device)
        with (folder / _COMPILED).open("rb") as file:
            # Mapped as long as it may be needed: a package that no process opened for days is removed.
            blob = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with _refusals():
            settings = _settings(core, plugin, package.options)
            self._import: Any = functools.partial(_imported, core, plugin, blob, settings)
            self._compiled: Any = self._import()
        self._request: Any = self._compiled.create_infer_request()
        self._lock = threading.Lock()
        summary = inspect_onnx(package.model, "the model")
        self.inputs: Sequence[TensorSpec] = summary.input_tensors
        self.outputs: Sequence[TensorSpec] = summary.output_tensors
        self.effective = self._found(package, summary.precision, openvino.__version__)

    def _found(self, package: Package, wanted: str, version: str) -> Effective:
        computed = self._compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        precision = _PRECISION_OF.get(computed, computed)
        return {
            "provider": f"{_plugin(package.device)} plugin",
            "device": package.device.name,
            # Integer products are in the model itself, and what is not one is in `precision`.
            "precision": wanted if precision == "float32" and wanted != "float64" else precision,
            "threads": _threads(self._compiled),
            "fallback_nodes": [],  # the model is compiled for one plugin, not for HETERO
            "runtime": f"openvino {version}",
        }

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model; see `graphbox.deploy.protocol.Program.run`."""
        arrays = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        with self._lock, _refusals(InvalidRequestError):
            if self._request is None:
                self._compiled = self._import()
                self._request = self._compiled.create_infer_request()
            request, self._request = self._request, None
            values = request.infer(arrays)
            self._request = request
            found = {}
            for port, tensor in zip(self._compiled.outputs, self.outputs, strict=True):
                # A copy: the request keeps its arrays for the next call.
                found[tensor.name] = written(values[port].copy(), tensor.name, out)
            return found

    def close(self) -> None:
        """Drop the model."""
        with self._lock:
            self._request = self._compiled = self._import = None


class OpenVino:
    """Adapter for OpenVINO's plugins; a package is the model as the plugin exports it."""

    name = "openvino"
    api = API_VERSION
    builds_ahead = True

    def probe(self) -> list[Device]:
        """Return the devices of the plugins; a model of one node ran on each, once in this process."""
        try:
            openvino = _openvino()
        except BackendMissingError as error:
            return [Device("cpu", "cpu", "OpenVINO", available=False, reason=error.message)]
        core = _core()
        return [_probed(core, name, openvino.__version__) for name in core.available_devices]

    def supports(self, model: bytes, device: Device) -> Support:
        """Return whether the plugin compiles the model."""
        try:
            _compiled(model, device, Options())
        except (UnsupportedError, FormatError) as error:
            return Support(supported=False, reason=error.message)
        return Support(supported=True)

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:
        """Write the compiled model; see `graphbox.deploy.protocol.Adapter.build`."""
        compiled = _compiled(model, device, options).export_model()
        (folder / _COMPILED).write_bytes(compiled.getvalue())

    def load(self, package: Package) -> OpenVinoProgram:
        """Return the model that was compiled; see `graphbox.deploy.protocol.Adapter.load`."""
        return OpenVinoProgram(package)


def _openvino() -> Any:
    modules: dict[str, Any] = sys.modules
    modules.setdefault(_TELEMETRY, None)  # None: importing it raises ImportError
    try:
        return import_module("openvino")
    except ImportError as error:
        raise BackendMissingError(
            f"expected the package `openvino`, which is not there ({error})",
            hint="`pip install 'graphbox[openvino]'`",
        ) from error


@functools.cache
def _core() -> Any:
    """Return the core of this process, with its plugins loaded, made by a thread that ends.

    The plugin for CPUs gives the thread that loads it an alternate stack for signals, which is too small for
    Python's handlers on processors with AMX: SIGTERM would crash the process.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_loaded_core).result()


def _loaded_core() -> Any:
    core = _openvino().Core()
    for plugin in core.available_devices:
        with suppress(RuntimeError):  # `_probed` meets it again, and says so
            core.get_property(plugin, "FULL_DEVICE_NAME")
    return core


def _probed(core: Any, plugin: str, version: str) -> Device:
    kinds: dict[str, Literal["cpu", "gpu", "npu", "other"]] = {"CPU": "cpu", "GPU": "gpu", "NPU": "npu"}
    kind = kinds.get(plugin.partition(".")[0], "other")
    name = plugin.lower()
    try:
        description = str(core.get_property(plugin, "FULL_DEVICE_NAME"))
        details = {
            "runtime": f"openvino {version}",
            "capabilities": " ".join(core.get_property(plugin, "OPTIMIZATION_CAPABILITIES")),
            "processor": processor_features(),
        }
        device = Device(name, kind, description, available=True, details=details)
        reason = _tried(device)
    except Exception as error:  # noqa: BLE001 - a probe never raises: every fault is the reason
        return Device(name, kind, plugin, available=False, reason=f"{type(error).__name__}: {error}")
    return device if reason is None else replace(device, available=False, reason=reason)


def _tried(device: Device) -> str | None:
    """Return why a model cannot be built and run on a device; None: it was, in this process."""
    if device.name in _PROVEN:
        return None
    with tempfile.TemporaryDirectory() as folder:
        adapter.build(TRIAL_MODEL, device, Options(), Path(folder))
        reason = trial_failure(adapter.load(Package(TRIAL_MODEL, device, Options(), Path(folder))))
    if reason is None:
        _PROVEN.add(device.name)
    return reason


def _plugin(device: Device) -> str:
    return device.name.upper()


def _settings(core: Any, plugin: str, options: Options) -> dict[str, Any]:
    """Return the settings that the plugin knows: those of threads, for one, are of the CPU alone."""
    known = core.get_property(plugin, _SUPPORTED)
    wanted = {
        "INFERENCE_PRECISION_HINT": "f32",
        _THREADS: options.threads,
        _STREAMS: 1,
        "PERFORMANCE_HINT": "LATENCY",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # else products with int8 weights are computed in int8
    }
    return {key: value for key, value in wanted.items() if key in known}


def _imported(core: Any, plugin: str, mapped: mmap.mmap, settings: dict[str, Any]) -> Any:
    """Return a model that was compiled ahead, so that an inference that fails raises an error.

    The CPU plugin runs the inferences of one stream of one thread in a queue that drops their errors and
    keeps the one that failed: the caller would get the answer before, and the next inference of any model in
    the process would run the failed one again, even after its model was freed. Without streams one thread is
    used, too, and it is the caller's.
    """
    blob = mapped[:]
    if settings.get(_THREADS) == 1:
        return core.import_model(blob, plugin, {**settings, _STREAMS: 0})
    compiled = core.import_model(blob, plugin, settings)
    if _THREADS in settings and _threads(compiled) == 1:  # of several that were asked for
        return core.import_model(blob, plugin, {**settings, _STREAMS: 0})
    return compiled


def _threads(compiled: Any) -> int:
    """Return the threads of one inference; 0: the plugin has none to count."""
    if _THREADS not in compiled.get_property(_SUPPORTED):
        return 0
    return int(compiled.get_property(_THREADS)) or 1  # 0: there are no streams, and the caller's is used


def _compiled(model: bytes, device: Device, options: Options) -> Any:
    core, plugin = _core(), _plugin(device)
    _refuse_steps_of_rows(model)
    with _refusals():
        return core.compile_model(
            core.read_model(io.BytesIO(model)), plugin, _settings(core, plugin, options)
        )


def _refuse_steps_of_rows(model: bytes) -> None:
    """Refuse a quantization whose steps are computed for each row: 2026.4 returns another number of rows."""
    summary = inspect_onnx(model, "the model")
    for node in summary.nodes:
        if node.operator == "QuantizeLinear" and summary.constants.get(node.inputs[1]) is None:
            raise UnsupportedError(
                f"OpenVINO computes {node.operator} wrongly where each row has a step of its own",
                where=f"node of `{node.outputs[0]}`",
            )


@contextmanager
def _refusals(kind: type[UnsupportedError | InvalidRequestError] = UnsupportedError) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise kind(f"OpenVINO refused it: {' '.join(str(error).split())[:600]}") from error


adapter = OpenVino()
