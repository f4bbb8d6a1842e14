"""ONNX Runtime on the CPU."""

from __future__ import annotations

import contextlib
import functools
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import TensorSpec, inspect_onnx
from graphbox.deploy.onnx_runtime import load_onnxruntime
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.deploy.protocol import API_VERSION, Device, Effective, Feeds, Options, Support
from graphbox.errors import FormatError, InvalidRequestError, UnsupportedError

# They install the same folder `onnxruntime`; which one did is part of every bug report.
_OTHER_OWNERS = ("onnxruntime-gpu", "onnxruntime-openvino")
PROVIDER = "CPUExecutionProvider"
_DATATYPE_OF = {
    "tensor(bool)": "BOOL",
    "tensor(int8)": "INT8",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(uint8)": "UINT8",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
}
# Small enough to try the device with.
_PROBE_MODEL = write_onnx([Node("Neg", ["x"], ["y"])], {"x": (np.float32, ["n"])}, {"y": (np.float32, ["n"])})


class OnnxRuntimeCpuProgram:
    """A session on the CPU; ``run`` is thread-safe."""

    def __init__(self, model: bytes, device: Device, options: Options) -> None:
        onnxruntime = load_onnxruntime()
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        settings.inter_op_num_threads = 1
        # Errors are raised; the copy on stderr is switched off.
        settings.log_severity_level = 4
        # Idle workers that spin steal the time of the process that serves.
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session: Any = onnxruntime.InferenceSession(model, settings, providers=[PROVIDER])
        except Exception as error:
            raise UnsupportedError(f"ONNX Runtime cannot load the model: {error}") from error
        native = onnxruntime.capi.onnxruntime_pybind11_state
        self._refusals = (native.Fail, native.InvalidArgument, native.RuntimeException, RuntimeError)
        self.inputs = [_tensor(value) for value in self._session.get_inputs()]
        self.outputs = [_tensor(value) for value in self._session.get_outputs()]
        self.effective: Effective = {
            "provider": self._session.get_providers()[0],
            "device": device.name,
            "precision": inspect_onnx(model, "the model").precision,
            "threads": self._session.get_session_options().intra_op_num_threads,
            "fallback_nodes": [],
            "runtime": _runtime(),
        }

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model; see `graphbox.deploy.protocol.Program.run`."""
        names = [tensor.name for tensor in self.outputs]
        try:
            if out is None:
                return dict(zip(names, self._session.run(names, feeds), strict=True))
            return self._run_into(names, feeds, out)
        except self._refusals as error:
            raise InvalidRequestError(f"ONNX Runtime refused the feeds: {error}") from error

    def _run_into(self, names: list[str], feeds: Feeds, out: Feeds) -> dict[str, npt.NDArray[Any]]:
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name in names:
            if name in out:
                array = out[name]
                binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
            else:
                binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        results = binding.get_outputs()
        return {
            name: out[name] if name in out else value.numpy()
            for name, value in zip(names, results, strict=True)
        }

    def close(self) -> None:
        """Drop the session."""
        self._session = None


class OnnxRuntimeCpu:
    """Adapter for ONNX Runtime's CPU execution provider."""

    name = "onnxruntime_cpu"
    api = API_VERSION

    def probe(self) -> list[Device]:
        """Return the CPU, after running a model of one node on it."""
        reason = None
        try:
            program = OnnxRuntimeCpuProgram(_PROBE_MODEL, Device("cpu", "cpu", "", available=True), Options())
            answer = program.run({"x": np.array([1.5], np.float32)})["y"].tolist()
            if answer != [-1.5]:
                reason = f"it computed -(1.5) as {answer}"
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the reason it is not available
            reason = f"{type(error).__name__}: {error}"
        details = {"runtime": _runtime()} if reason is None else {}
        return [Device("cpu", "cpu", _processor(), reason is None, reason, details)]

    def supports(self, model: bytes, device: Device) -> Support:
        """Return whether a session of the model can be made."""
        try:
            OnnxRuntimeCpuProgram(model, device, Options()).close()
        except (UnsupportedError, FormatError) as error:
            return Support(supported=False, reason=error.message)
        return Support(supported=True)

    def compile(self, model: bytes, device: Device, options: Options) -> OnnxRuntimeCpuProgram:
        """Return a session; see `graphbox.deploy.protocol.Adapter.compile`."""
        return OnnxRuntimeCpuProgram(model, device, options)


def _tensor(value: Any) -> TensorSpec:
    datatype: Any = _DATATYPE_OF.get(value.type)
    if datatype is None:
        raise UnsupportedError(f"expected tensors of type {sorted(_DATATYPE_OF)}, received {value.type}")
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    return TensorSpec(name=value.name, datatype=datatype, shape=shape)


@functools.cache
def _runtime() -> str:
    """Return name and version, and other distributions than onnxruntime that installed its folder."""
    found = [f"onnxruntime {load_onnxruntime().__version__}"]
    for name in _OTHER_OWNERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return " with ".join(found)


@functools.cache
def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(models), platform.machine())


adapter = OnnxRuntimeCpu()
