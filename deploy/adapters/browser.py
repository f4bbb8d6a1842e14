"""Pages that run a model in a browser, by ONNX Runtime Web in WebAssembly.

`Browser.bundle` writes a folder that any file server can send: a page, the model, its rows as they are
stored and the original ids. `Browser.load` runs an ONNX model in the same runtime, in the headless Chromium
that ``GRAPHBOX_CHROMIUM`` names. The page is built from ``web/bundle`` and lies in ``browser_page``.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import threading
from collections.abc import Sequence
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, OnnxSummary, TensorSpec, inspect_onnx
from graphbox.deploy.adapters import onnxruntime
from graphbox.deploy.adapters.browser_bundle import write_bundle
from graphbox.deploy.adapters.chromium import Chromium, PageError
from graphbox.deploy.adapters.results import written
from graphbox.deploy.protocol import (
    API_VERSION,
    DTYPE_OF,
    Device,
    Effective,
    Feeds,
    Options,
    Package,
    Support,
)
from graphbox.errors import BackendMissingError, FormatError, InvalidRequestError, UnsupportedError

__all__ = ["Browser", "BrowserProgram", "adapter"]

_PAGE_FILE, _RUNTIME_FILE = "index.html", "runtime.json"
_RUNNER_FILE, _RUNNER_PREFIX = "runner.html", "runner-"
_ASSETS, _WASM_SUFFIX = "assets", ".wasm"
_DEVICE = "wasm"
_WRONG = frozenset({"TopK"})
"""Operators in which ONNX Runtime Web 1.30 divides by the number of rows; 0 is a trap in WebAssembly."""
_VARIABLE = "GRAPHBOX_CHROMIUM"


class Browser:
    """Adapter that writes static pages; see the module."""

    name = "browser"
    api = API_VERSION
    builds_ahead = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chromium: Chromium | None = None

    def probe(self) -> list[Device]:
        """Return the one device, available where the page was built.

        ``reason`` is why models cannot be run from here, if so.
        """
        try:
            page = self._page
        except BackendMissingError as error:
            description = "a page with ONNX Runtime Web"
            return [Device(_DEVICE, "other", description, available=False, reason=error.message)]
        description = f"a page with ONNX Runtime Web {page.runtime}, one thread"
        return [Device(_DEVICE, "other", description, True, _why_not(), {"onnxruntime_web": page.runtime})]

    def supports(self, model: bytes, device: Device) -> Support:  # noqa: ARG002 - there is one
        """Return whether ONNX Runtime loads the model here; that of the page may be of another version."""
        try:
            summary = _checked(model)
        except (UnsupportedError, FormatError) as error:
            return Support(supported=False, reason=error.message)
        reason = _refused(summary)
        return Support(supported=reason is None, reason=reason)

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:
        """Write nothing: ONNX Runtime Web compiles when it loads, and `bundle` writes what is delivered."""

    def bundle(self, artifact: Artifact, device: Device, options: Options, folder: Path) -> None:  # noqa: ARG002
        """Write a page for a model version; see `graphbox.deploy.protocol.VersionBundler`.

        Raises:
            UnsupportedError: ONNX Runtime cannot load the model, or a file is too large for a browser.
            FormatError: the model is damaged.
        """
        onnx = artifact.manifest.onnx
        if onnx is not None:
            _checked(artifact.onnx_bytes())
        write_bundle(artifact, folder)
        self._page.copy(folder, with_runtime=onnx is not None)

    def load(self, package: Package) -> BrowserProgram:
        """Open a model in the browser that ``GRAPHBOX_CHROMIUM`` names; one browser runs all programs.

        Raises:
            UnsupportedError: none is named, or ONNX Runtime Web cannot run the model.
            GraphboxError: the browser does not start.
        """
        reason = _why_not()
        if reason is not None:
            raise UnsupportedError(
                f"expected a browser to run models in: `{self.name}` {reason}",
                hint=f"set {_VARIABLE} to the executable of Chromium; `graphbox targets build` needs none",
            )
        executable = os.environ[_VARIABLE].strip()
        with self._lock:
            chromium = self._chromium
            if chromium is None or chromium.executable != executable or not chromium.is_running:
                if chromium is not None:
                    chromium.close()
                chromium = self._chromium = Chromium(executable, self._page.folder, _RUNNER_FILE)
        return BrowserProgram(chromium, package, self._page.runtime)

    @cached_property
    def _page(self) -> _Page:
        return _Page(resources.files("graphbox.deploy") / "browser_page")


class BrowserProgram:
    """A model in a page of a browser."""

    def __init__(self, chromium: Chromium, package: Package, runtime: str) -> None:
        summary = inspect_onnx(package.model, "the model")
        if (reason := _refused(summary)) is not None:
            raise UnsupportedError(reason)
        self.inputs: Sequence[TensorSpec] = summary.input_tensors
        self.outputs: Sequence[TensorSpec] = summary.output_tensors
        self._chromium = chromium
        try:
            self._number = chromium.call("graphbox.open", base64.b64encode(package.model).decode())
        except PageError as error:
            raise UnsupportedError(f"ONNX Runtime Web refused the model: {error}") from error
        self.effective: Effective = {
            "provider": "wasm",
            "device": package.device.name,
            "precision": summary.precision,
            "threads": 1,
            "fallback_nodes": [],
            "runtime": f"onnxruntime-web {runtime} in {chromium.version}",
        }

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs by name; see `graphbox.deploy.protocol.Program.run`."""
        coded = {name: _coded(array) for name, array in feeds.items()}
        try:
            found = self._chromium.call("graphbox.run", self._number, coded)
        except PageError as error:
            raise InvalidRequestError(f"ONNX Runtime Web refused the feeds: {error}") from error
        given = {}
        for tensor in self.outputs:
            _, text, shape = found[tensor.name]
            array = np.frombuffer(base64.b64decode(text), DTYPE_OF[tensor.datatype]).reshape(shape)
            given[tensor.name] = written(array.copy(), tensor.name, out)
        return given

    def close(self) -> None:
        """Free the memory in the browser; a second call does nothing."""
        number, self._number = self._number, None
        if number is not None and self._chromium.is_running:
            self._chromium.call("graphbox.close", number)


def _coded(array: npt.NDArray[Any]) -> tuple[str, str, list[int]]:
    """Return an array as the page reads it: type, bytes in base64, shape."""
    return array.dtype.name, base64.b64encode(array.tobytes()).decode(), list(array.shape)


def _why_not() -> str | None:
    """Return why models cannot be run; None: a browser is named."""
    executable = os.environ.get(_VARIABLE, "").strip()
    if not executable:
        return f"builds files; {_VARIABLE} names no browser to run them"
    if shutil.which(executable) is None:
        return f"builds files; {_VARIABLE} names a browser that is not there: {executable}"
    return None


class _Page:
    """The built page.

    Args:
        folder: where its files lie.

    Attributes:
        runtime: version of ONNX Runtime Web.

    Raises:
        BackendMissingError: it was not built.
    """

    def __init__(self, folder: Traversable) -> None:
        self.folder = folder
        try:
            self.runtime = str(json.loads((folder / _RUNTIME_FILE).read_bytes())["version"])
        except OSError as error:
            raise BackendMissingError(
                "the page of browser bundles is not built: `make web` in a clone of the repository builds it",
                hint="wheels contain it",
            ) from error

    def copy(self, folder: Path, *, with_runtime: bool) -> None:
        """Copy the files of a bundle; not those of `Browser.load`, and the runtime only where it is used."""
        (folder / _PAGE_FILE).write_bytes((self.folder / _PAGE_FILE).read_bytes())
        (folder / _ASSETS).mkdir(exist_ok=True)
        for file in (self.folder / _ASSETS).iterdir():
            is_used = with_runtime or not file.name.endswith(_WASM_SUFFIX)
            if is_used and not file.name.startswith(_RUNNER_PREFIX):
                (folder / _ASSETS / file.name).write_bytes(file.read_bytes())


def _refused(summary: OnnxSummary) -> str | None:
    """Return why a program is refused although the runtime loads it, or None."""
    wrong = sorted(summary.operators & _WRONG)
    return f"ONNX Runtime Web fails on batches of 0 rows with {', '.join(wrong)}" if wrong else None


def _checked(model: bytes) -> OnnxSummary:
    """Inspect a model and check that ONNX Runtime can load it.

    Raises:
        UnsupportedError: it cannot.
        FormatError: the model is damaged.
    """
    summary = inspect_onnx(model, "the model")
    processor = Device("cpu", "cpu", "", available=True)
    onnxruntime.adapter.load(Package(model, processor, Options())).close()
    return summary


adapter = Browser()
