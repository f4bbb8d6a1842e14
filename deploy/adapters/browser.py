"""Pages that run a model in a browser, by ONNX Runtime Web in WebAssembly.

`Browser.bundle` writes a folder that any file server can send: a page, the model, its rows as they are
stored and the original ids. `Browser.load` runs an ONNX model in the same runtime, in the headless Chromium
that ``GRAPHBOX_CHROMIUM`` names. The page is built from ``web/bundle`` and lies in ``browser_page``.
"""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from graphbox.artifact import (
    Artifact,
    FieldsForm,
    LookupForm,
    OnnxSummary,
    PaddedBlockForm,
    TableSpec,
    TensorsForm,
    TensorSpec,
    TriplesForm,
    inspect_onnx,
)
from graphbox.artifact.rows import CODES_FILE, ROWS_FILE, SCALE_BIAS_FILE
from graphbox.deploy.adapters import onnxruntime
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
from graphbox.deploy.tensors import example_arrays
from graphbox.errors import BackendMissingError, FormatError, InvalidRequestError, UnsupportedError

__all__ = ["Browser", "BrowserProgram", "adapter"]

_FORMAT, _FORMAT_VERSION = "graphbox-browser-bundle", 1
_DESCRIPTION_FILE, _PAGE_FILE, _RUNTIME_FILE = "bundle.json", "index.html", "runtime.json"
_RUNNER_FILE, _RUNNER_PREFIX = "runner.html", "runner-"
_ASSETS, _WASM_SUFFIX = "assets", ".wasm"
_COPIED_SUFFIXES = (".npy", ".onnx")
_DEVICE = "wasm"
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # as JavaScript writes them
_WRONG = frozenset({"TopK"})
"""Operators in which ONNX Runtime Web 1.30 divides by the number of rows; 0 is a trap in WebAssembly."""
_VARIABLE = "GRAPHBOX_CHROMIUM"
# A browser keeps a file in one array, of which the smallest limit is that of 32-bit systems.
_MOST_FILE_BYTES = (1 << 31) - 1


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
            UnsupportedError: a page answers no such kind of model, or a file is too large for a browser.
        """
        manifest, form = artifact.manifest, artifact.preprocess
        if isinstance(form, FieldsForm | TriplesForm):
            raise UnsupportedError(
                "expected a model of kind embedding, encoder or tensors, for which there is a page, received "
                f"one of kind {manifest.kind}",
                where=str(artifact.path),
            )
        bundle = _Bundle(manifest.name, manifest.version, manifest.digest, form)
        copied = bundle.add_tables(artifact, form)
        if manifest.onnx is not None:
            _checked(artifact.onnx_bytes())
            bundle.onnx = (manifest.onnx.path, manifest.onnx.inputs, manifest.onnx.outputs)
            copied.append(manifest.onnx.path)
        if isinstance(form, TensorsForm):
            bundle.example = example_arrays(artifact)
        for name in copied:
            _refuse_too_large(name, manifest.files[name].bytes)
            if not name.endswith(
                _COPIED_SUFFIXES
            ):  # a server would send a model's .html as a page of its own
                raise FormatError(
                    f"expected files named {' or '.join(_COPIED_SUFFIXES)} to copy, received {name}",
                    where=str(artifact.path),
                )
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(artifact.path / name, folder / name)
        copied += bundle.write_ids(artifact, folder)
        self._page.copy(folder, with_runtime=manifest.onnx is not None)
        bundle.write(folder, copied)

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


class _Bundle:
    """The content of ``bundle.json``, as ``web/bundle/description.ts`` reads it."""

    def __init__(self, name: str, version: int, digest: str, form: BaseModel) -> None:
        self._content: dict[str, Any] = {
            "format": _FORMAT,
            "format_version": _FORMAT_VERSION,
            "name": name,
            "version": version,
            "digest": digest,
            "form": form.model_dump(mode="json", exclude={"unseen"}),
            "ids": {},
            "tables": {},
            "targets": {},
        }
        self.onnx: tuple[str, Iterable[TensorSpec], Iterable[TensorSpec]] | None = None
        self.example: dict[str, npt.NDArray[Any]] = {}

    def add_tables(self, artifact: Artifact, form: LookupForm | PaddedBlockForm | TensorsForm) -> list[str]:
        """Describe the tables that a model reads or ranks; return the paths of its arrays."""
        if isinstance(form, TensorsForm):
            return []
        manifest = artifact.manifest
        targets = {name: manifest.targets[name] for name in form.query_types if name in manifest.targets}
        names = {target.table for target in targets.values()}
        if isinstance(form, PaddedBlockForm):
            names.update(name for rows in form.rows.values() for name in rows.tables)
            groups = [group for layer in form.layers for group in layer.groups]
            arrays = [path for group in groups for path in (group.counts, group.neighbors, group.weights)]
        else:
            names.update(form.tables.values())
            arrays = []
        for name in sorted(names):
            table = _described(name, manifest.tables[name])
            self._content["tables"][name] = table
            arrays += [table["values"], table["factors"]]
        self._content["targets"] = {name: target.model_dump() for name, target in targets.items()}
        shown = [manifest.tables[target.table].node_type for target in targets.values()]
        for number, node_type in enumerate(dict.fromkeys((*form.query_types, *shown))):
            kind = artifact.ids(node_type).kind
            self._content["ids"][node_type] = {"path": f"ids/{number}.json", "kind": kind}
        return list(dict.fromkeys(path for path in arrays if path is not None))

    def write_ids(self, artifact: Artifact, folder: Path) -> list[str]:
        """Write the original ids as JSON lists of strings; return their paths."""
        for node_type, spec in self._content["ids"].items():
            file = folder / spec["path"]
            file.parent.mkdir(exist_ok=True)
            texts = list(map(str, artifact.ids(node_type)))
            file.write_text(json.dumps(texts, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
            _refuse_too_large(spec["path"], file.stat().st_size)
        return [spec["path"] for spec in self._content["ids"].values()]

    def write(self, folder: Path, files: list[str]) -> None:
        """Write ``bundle.json`` with the sizes of ``files``."""
        onnx = None
        if self.onnx is not None:
            path, inputs, outputs = self.onnx
            onnx = {
                "path": path,
                "inputs": [tensor.model_dump() for tensor in inputs],
                "outputs": [tensor.model_dump() for tensor in outputs],
            }
        sizes = {name: (folder / name).stat().st_size for name in files}
        example = [_written(name, array) for name, array in self.example.items()]
        content = self._content | {"onnx": onnx, "example": example, "files": sizes}
        (folder / _DESCRIPTION_FILE).write_text(json.dumps(content, indent=2), encoding="utf-8")


def _described(name: str, spec: TableSpec) -> dict[str, Any]:
    """Return what the page reads of a table: its sizes, and the paths of its arrays."""
    is_codes = spec.codec == "int8_rowwise"
    return {
        **spec.model_dump(mode="json", exclude={"ids"}),
        "values": f"tables/{name}/{CODES_FILE if is_codes else ROWS_FILE}",
        "factors": f"tables/{name}/{SCALE_BIAS_FILE}" if is_codes else None,
    }


def _refuse_too_large(name: str, size_bytes: int) -> None:
    if size_bytes > _MOST_FILE_BYTES:
        raise UnsupportedError(
            f"expected files of at most {_MOST_FILE_BYTES} bytes, which a browser can hold, received "
            f"{size_bytes}",
            where=name,
            hint="compress the model first: int8 rows take a quarter",
        )


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


def _written(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an input as JSON; what JavaScript's JSON cannot hold is text: 64-bit integers, NaN, infinity."""
    data = array.reshape(-1).tolist()
    if array.dtype.kind in "iu" and array.itemsize == 8:
        data = list(map(str, data))
    elif array.dtype.kind == "f":
        data = [value if math.isfinite(value) else _NOT_FINITE[str(value)] for value in data]
    return {"name": name, "shape": list(array.shape), "data": data}


adapter = Browser()
