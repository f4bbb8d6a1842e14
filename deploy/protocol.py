"""The interface of adapters: six functions that bring a kind of hardware to graphbox.

An adapter is an object found through the entry-point group ``graphbox.adapters``, so another package can
add hardware without a change here. ``probe`` tells what is there, ``supports`` whether a model can run,
``build`` compiles it into files, ``load`` makes a program of them; ``Program.run`` and ``Program.close`` do
the rest. An adapter needs no checks of its own: models and feeds are checked before it sees them
(`graphbox.deploy.program`), what it built is kept and checked (`graphbox.deploy.packages`), and
``graphbox targets test NAME`` tells what it does right and wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, TensorSpec

__all__ = [
    "API_VERSION",
    "DTYPE_OF",
    "UNKNOWN_PRECISION",
    "Adapter",
    "Device",
    "Effective",
    "Feeds",
    "Options",
    "Package",
    "Program",
    "Support",
    "TensorSpec",
    "VersionBundler",
]

API_VERSION = 1
UNKNOWN_PRECISION = "unknown"
"""Precision of a program in another server that does not report its precision."""
Feeds = Mapping[str, npt.NDArray[Any]]

DTYPE_OF: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}


@dataclass(frozen=True)
class Device:
    """A device an adapter looked for.

    Attributes:
        name: unique within the adapter, e.g. ``cpu`` or ``gpu:0``.
        kind: what it is; ``other`` (a server, a folder of files) is used only when it is named, never by
            ``auto``.
        description: for people, e.g. the processor's name.
        available: whether a model was run on it by this process; for kind ``other``, whether it can be used.
        reason: why it is not available.
        details: versions of the runtime and its driver, capabilities of the device: all that a compiled
            model depends on, since a package is built again when one of them changes.
    """

    name: str
    kind: Literal["cpu", "gpu", "npu", "other"]
    description: str
    available: bool
    reason: str | None = None
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Support:
    """Whether a device can run a model; ``reason`` says why not, naming the nodes."""

    supported: bool
    reason: str | None = None


@dataclass(frozen=True)
class Options:
    """Request for a compiled model.

    Attributes:
        threads: that one call may use.
        allow_lower_precision: accept a program that computes in fewer bits than the model says.
    """

    threads: int = 1
    allow_lower_precision: bool = False


@dataclass(frozen=True, eq=False)
class Package:
    """A model that is ready to be loaded.

    Attributes:
        model: the ONNX file's content.
        device: where it is to run.
        options: what is asked for.
        folder: what `Adapter.build` wrote, complete and unchanged; None for adapters that compile when they
            load.
    """

    model: bytes
    device: Device
    options: Options
    folder: Path | None = None


class Effective(TypedDict):
    """Properties of a program as it runs, whatever was asked for.

    Attributes:
        provider: what the runtime calls the part of it that runs the model.
        device: name of the device.
        precision: of the matrix products: ``float32``, ``int8_dynamic``, ``bfloat16`` ...,
            `UNKNOWN_PRECISION` for a server that does not report it.
        threads: that one call uses; 0: a server does not report it.
        fallback_nodes: names of nodes that run elsewhere than on the device.
        runtime: name and version.
    """

    provider: str
    device: str
    precision: str
    threads: int
    fallback_nodes: list[str]
    runtime: str


@runtime_checkable
class Program(Protocol):
    """A model compiled for a device. ``run`` may be called from several threads at once."""

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    effective: Effective

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs by name, written into the arrays of ``out`` where it names them."""
        ...

    def close(self) -> None:
        """Free the model's memory; a second call does nothing."""
        ...


@runtime_checkable
class Adapter(Protocol):
    """A way to run models on a kind of hardware.

    Attributes:
        name: the entry point's name.
        api: `API_VERSION` this adapter was written for.
        builds_ahead: whether `build` writes files that `load` reads.
    """

    name: str
    api: int
    builds_ahead: bool

    def probe(self) -> list[Device]:
        """Return the devices looked for, each tried; never raises."""
        ...

    def supports(self, model: bytes, device: Device) -> Support:
        """Return whether the device can run every node of an ONNX model."""
        ...

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:
        """Compile a model into files; called only where `builds_ahead`.

        Args:
            model: an ONNX file's content, self-contained (checked).
            device: one that `probe` returned as available.
            options: what is asked for.
            folder: is there and empty; nothing is written elsewhere. Names of files and folders in it are
                plain.

        Raises:
            UnsupportedError: the device cannot run the model.
        """
        ...

    def load(self, package: Package) -> Program:
        """Return a model ready to run.

        Raises:
            UnsupportedError: the device cannot run it.
        """
        ...


@runtime_checkable
class VersionBundler(Protocol):
    """Optional part of an adapter whose files answer for a whole model version: rows and ids, too."""

    def bundle(self, artifact: Artifact, device: Device, options: Options, folder: Path) -> None:
        """Write files that answer for a model version without graphbox.

        Args:
            artifact: the model version, verified.
            device: one that `Adapter.probe` returned as available.
            options: what is asked for.
            folder: is there and empty; nothing is written elsewhere.

        Raises:
            UnsupportedError: the device cannot answer for such a model.
        """
        ...
