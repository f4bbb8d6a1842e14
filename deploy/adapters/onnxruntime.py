"""ONNX Runtime: on the CPU, and on GPUs by its CUDA and TensorRT execution providers.

One distribution owns the folder ``onnxruntime``: ``onnxruntime`` has the CPU alone, ``onnxruntime-gpu`` CUDA
and TensorRT, too. That one lists its providers as available on machines without a GPU, and a session that
cannot have one runs on the CPU without a word. So a device is there when a model was run on it, and a session
is refused when ONNX Runtime would run a part of it elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graphbox.artifact import TensorSpec, inspect_onnx
from graphbox.deploy.adapters.processor import processor_name
from graphbox.deploy.adapters.trial import TRIAL_MODEL, trial_failure
from graphbox.deploy.onnx_runtime import load_onnxruntime, onnxruntime_owners
from graphbox.deploy.protocol import API_VERSION, Device, Effective, Feeds, Options, Package, Support
from graphbox.errors import FormatError, InvalidRequestError, UnsupportedError

_PACKAGE = "onnxruntime"
_DATATYPE_OF = {
    "tensor(bool)": "BOOL",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
}


@dataclass(frozen=True)
class _Provider:
    """An execution provider and the device it is for.

    Attributes:
        name: what ONNX Runtime calls it.
        device: name of its device.
        kind: of the device.
        description: of the device; the processor's name for the CPU.
        settings: so that float32 is computed as float32.
    """

    name: str
    device: str
    kind: Literal["cpu", "gpu"]
    description: str
    settings: Mapping[str, str] = field(default_factory=dict)


_PROVIDERS = (
    _Provider("CPUExecutionProvider", "cpu", "cpu", ""),
    _Provider(
        "CUDAExecutionProvider", "cuda:0", "gpu", "NVIDIA GPU by CUDA", {"device_id": "0", "use_tf32": "0"}
    ),
    _Provider("TensorrtExecutionProvider", "tensorrt:0", "gpu", "NVIDIA GPU by TensorRT", {"device_id": "0"}),
)
_PROVIDER_OF = {provider.device: provider for provider in _PROVIDERS}


class OnnxRuntimeProgram:
    """A session; ``run`` is thread-safe."""

    def __init__(self, model: bytes, device: Device, options: Options) -> None:
        provider = _PROVIDER_OF[device.name]
        self._session: Any = _session(model, provider, options)
        # `InferenceSession.run` checks the feeds again, a fifth of a small model's time, and where a provider
        # fails it falls back to the CPU.
        self._run: Any = getattr(self._session, "_sess", self._session).run
        native = load_onnxruntime().capi.onnxruntime_pybind11_state
        self._refusals = (native.Fail, native.InvalidArgument, native.RuntimeException, RuntimeError)
        self.inputs: Sequence[TensorSpec] = [_tensor(value) for value in self._session.get_inputs()]
        self.outputs: Sequence[TensorSpec] = [_tensor(value) for value in self._session.get_outputs()]
        self._output_names = [tensor.name for tensor in self.outputs]
        self.effective: Effective = {
            "provider": self._session.get_providers()[0],
            "device": device.name,
            "precision": inspect_onnx(model, "the model").precision,
            "threads": self._session.get_session_options().intra_op_num_threads,
            "fallback_nodes": [],  # a session with such nodes is refused
            "runtime": _runtime(),
        }

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model; see `graphbox.deploy.protocol.Program.run`."""
        names = self._output_names
        try:
            if out is None:
                return dict(zip(names, self._run(names, feeds, None), strict=True))
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
        self._session = self._run = None


class OnnxRuntime:
    """Adapter for the execution providers of ONNX Runtime; a session is made when a model is loaded."""

    name = "onnxruntime"
    api = API_VERSION
    builds_ahead = False

    def probe(self) -> list[Device]:
        """Return the CPU and the GPU by each provider, after running a model of one node on it."""
        return [_probed(provider) for provider in _PROVIDERS]

    def supports(self, model: bytes, device: Device) -> Support:
        """Return whether a session of the model can be made."""
        try:
            OnnxRuntimeProgram(model, device, Options()).close()
        except (UnsupportedError, FormatError) as error:
            return Support(supported=False, reason=error.message)
        return Support(supported=True)

    def build(self, model: bytes, device: Device, options: Options, folder: Any) -> None:
        """Write nothing; see `graphbox.deploy.protocol.Adapter.build`."""

    def load(self, package: Package) -> OnnxRuntimeProgram:
        """Return a session; see `graphbox.deploy.protocol.Adapter.load`."""
        return OnnxRuntimeProgram(package.model, package.device, package.options)


def _session(model: bytes, provider: _Provider, options: Options) -> Any:
    """Return a session in which the provider runs every node.

    Raises:
        UnsupportedError: there is none.
    """
    onnxruntime = load_onnxruntime()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    # Errors are raised; the copy on stderr is switched off.
    settings.log_severity_level = 4
    # Idle workers that spin steal the time of the process that serves.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if provider.kind != "cpu":
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        session = onnxruntime.InferenceSession(
            model, settings, providers=[(provider.name, dict(provider.settings))]
        )
    except Exception as error:
        raise UnsupportedError(f"ONNX Runtime cannot load the model: {error}") from error
    if session.get_providers()[0] != provider.name:
        raise UnsupportedError(
            f"expected {provider.name} to run the model, ONNX Runtime made a session for "
            f"{session.get_providers()[0]}",
            hint="the libraries of CUDA and cuDNN that this onnxruntime-gpu was built for have to be there",
        )
    return session


def _probed(provider: _Provider) -> Device:
    try:
        reason = _tried(provider)
    except Exception as error:  # noqa: BLE001 - a probe never raises: every fault is the reason
        reason = f"{type(error).__name__}: {error}"
    details = {"runtime": _runtime()} if reason is None else {}
    description = provider.description or processor_name()
    return Device(provider.device, provider.kind, description, reason is None, reason, details)


def _tried(provider: _Provider) -> str | None:
    """Return why a model cannot be run with a provider; None: it was."""
    available = load_onnxruntime().get_available_providers()
    if provider.name not in available:
        owners = " and ".join(onnxruntime_owners())
        return (
            f"{owners} has no {provider.name}; the distribution `onnxruntime-gpu`, in the place of "
            "`onnxruntime`, has"
        )
    device = Device(provider.device, provider.kind, provider.description, available=True)
    try:
        return trial_failure(OnnxRuntimeProgram(TRIAL_MODEL, device, Options()))
    except UnsupportedError as error:
        return error.message


def _tensor(value: Any) -> TensorSpec:
    datatype: Any = _DATATYPE_OF.get(value.type)
    if datatype is None:
        raise UnsupportedError(f"expected tensors of type {sorted(_DATATYPE_OF)}, received {value.type}")
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    return TensorSpec(name=value.name, datatype=datatype, shape=shape)


@functools.cache
def _runtime() -> str:
    """Return name and version, and what installed it where that is another distribution, or several."""
    version = f"{_PACKAGE} {load_onnxruntime().__version__}"
    owners = onnxruntime_owners()
    return version if owners == [_PACKAGE] else f"{version} of {' and '.join(owners)}"


adapter = OnnxRuntime()
