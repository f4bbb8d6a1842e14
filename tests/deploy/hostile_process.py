"""Opens hostile model versions, or files, one after another and writes lines of JSON: ``python -m``.

It runs as a process of its own, which `tests.deploy.hostile_cases` watches, so that a crash has a seed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.deploy import DeployedEncoder, DeployedModel, open_model
from graphbox.deploy.signature import WHOLE
from graphbox.errors import GraphboxError
from graphbox.server.kserve.tensors import decode_json
from tests.deploy.hostile_files import exercise_file, make_file_case
from tests.deploy.hostile_versions import CANARY, Outside, make_bases, make_case

_IN_ACCESS, _IN_OPEN, _IN_ISDIR = 0x1, 0x20, 0x4000_0000
_EVENT = struct.Struct("iIII")
_ROOT = Path(__file__).resolve().parents[2]
_MAY_OPEN = ("/proc/", "/sys/", "/dev/", "/usr/", "/lib", sys.prefix, sys.base_prefix, str(_ROOT))


class _Reads:
    """Files opened outside of the version: by Python, and by anything else of this process."""

    def __init__(self, outside: Outside, allowed: tuple[str, ...]) -> None:
        self._allowed = (*_MAY_OPEN, *allowed)
        self._opened: list[str] = []
        self._is_on = False
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._library.inotify_init1(os.O_NONBLOCK)
        for path in (outside.file, outside.folder):
            watch = self._library.inotify_add_watch(self._descriptor, bytes(path), _IN_ACCESS | _IN_OPEN)
            if watch < 0:
                raise OSError(ctypes.get_errno(), f"cannot watch {path}")
        sys.addaudithook(self._hear)

    def start(self) -> None:
        self._events()
        self._opened.clear()
        self._is_on = True

    def stop(self) -> list[str]:
        """Return what was opened since `start`."""
        self._is_on = False
        return [*self._opened, *(["a file outside, natively"] if self._events() else [])]

    def are_repeated(self, exercise: Callable[[], object]) -> bool:
        """Return whether each of further calls opens something, so that no other process does."""
        for _ in range(3):
            self.start()
            with contextlib.suppress(Exception):
                exercise()
            if not self.stop():
                return False
        return True

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_on and event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.normpath(Path.cwd() / os.fsdecode(arguments[0]))
            if not path.startswith(self._allowed):
                self._opened.append(path)

    def _events(self) -> list[int]:
        """Return the masks of what happened to the files."""
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return []
        masks, position = [], 0
        while position < len(data):
            _, mask, _, length = _EVENT.unpack_from(data, position)
            position += _EVENT.size + length
            masks.append(mask)
        return [mask for mask in masks if not mask & _IN_ISDIR]


def exercise(path: Path, target: str) -> str:
    """Open a version, ask it what it is for, and return what happened."""
    try:
        with open_model(path, target) as model:
            arrays = _answers(model)
            for array in arrays:
                if array.dtype.kind == "f" and np.isclose(array, CANARY).any():
                    return "finding: an answer has numbers of a file outside"
    except GraphboxError as error:
        return type(error).__name__
    return "answered"


def _answers(model: DeployedModel) -> list[npt.NDArray[Any]]:
    artifact = model.artifact
    model.warm_up()
    artifact.example_ids()
    len(artifact.links)
    for name in artifact.manifest.tables:
        artifact.table(name)
        artifact.ids(artifact.manifest.tables[name].node_type)
    pool = np.arange(min(2, model.num_queries), dtype=np.int64)[None]
    operations = [each for each in model.OPERATIONS if each != "program" or model.inputs]
    outcomes: list[Any] = [model.calls(operation, pool, 1)(0) for operation in operations]
    examples = _examples(model)
    if examples is not None:
        outcomes.append(model.infer(examples, {"k": 1} if "k" in model.signature(WHOLE).parameters else {}))
    if isinstance(model, DeployedEncoder) and model.encodes_unseen:
        outcomes.append(model.encode_unseen([model.unseen_example()]))
    if isinstance(model, DeployedEncoder) and artifact.default_row(model.query_types[0]) is not None:
        outcomes.append(model.encode_known([-1]))
    return list(_arrays(outcomes))


def _examples(model: DeployedModel) -> dict[str, npt.NDArray[Any]] | None:
    """Return the example request as tensors; None where it is none."""
    inputs = model.signature(WHOLE).inputs
    given = {each.get("name"): each for each in model.artifact.example_inputs() if isinstance(each, dict)}
    if given.keys() != inputs.keys():
        return None
    try:
        return {
            name: decode_json(given[name]["data"], spec.datatype, given[name]["shape"], name)
            for name, spec in inputs.items()
        }
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError):
        return None


def _arrays(outcome: Any) -> Iterator[npt.NDArray[Any]]:
    """Yield the arrays of an answer, whatever its form."""
    if isinstance(outcome, np.ndarray):
        yield outcome
    elif isinstance(outcome, list | tuple):
        for part in outcome:
            yield from _arrays(part)
    else:
        parts = outcome if isinstance(outcome, dict) else vars(outcome)
        for part in parts.values():
            if isinstance(part, np.ndarray):
                yield part


class _Cases:
    """Makes and runs the cases of a kind.

    Args:
        kind: ``versions`` of models, or ``files`` that models are made of.
        scratch: an empty folder.
        target: on which models are opened.
    """

    def __init__(self, kind: str, scratch: Path, target: str) -> None:
        temporary = scratch / "temporary"  # where adapters build
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        self._path, self._moved = scratch / "1", scratch / "moved"
        self._outside = Outside(scratch)
        self._are_files, self._target = kind == "files", target
        self._bases = [] if self._are_files else make_bases(scratch)
        for base in self._bases:
            if (outcome := exercise(base, target)) != "answered":  # imports what each form needs, too
                raise SystemExit(f"{base}: expected an answer of a sound version, received {outcome}")
        own = (self._path, self._moved, temporary, os.environ["GRAPHBOX_PACKAGES"])
        self._reads = _Reads(self._outside, tuple(map(str, own)))

    def make(self, seed: int) -> str:
        """Make a case in the place of the last one, and return what is wrong with it."""
        for each in (self._path, self._moved):
            _removed(each)
        if self._are_files:
            return make_file_case(seed, self._path, self._outside)
        return make_case(seed, self._bases, self._path, self._outside)

    def run(self) -> dict[str, Any]:
        """Run the case, and return what came of it."""
        Path("/proc/self/clear_refs").write_text("5")
        before, began = _resident_bytes("VmRSS"), time.monotonic()
        self._reads.start()
        try:
            outcome = self._exercise()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            outcome = f"finding: {type(error).__name__}: {error}"[:400]
            traceback.print_exc()
        opened, seconds = self._reads.stop(), round(time.monotonic() - began, 3)
        grown_bytes = _resident_bytes("VmHWM") - before
        if opened and self._reads.are_repeated(self._exercise):
            outcome = f"finding: opened {opened[:3]}"
        return {"outcome": outcome, "seconds": seconds, "grown_bytes": grown_bytes}

    def _exercise(self) -> str:
        if not self._are_files:
            return exercise(self._path, self._target)
        try:
            exercise_file(self._path, self._target)
        except GraphboxError as error:
            return type(error).__name__
        return "answered"


def main() -> None:
    """Run the cases of some seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", choices=("versions", "files"), default="versions")
    parser.add_argument("--target", default="onnxruntime")
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    asked = parser.parse_args()
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what runtimes print is no report
    warnings.simplefilter("ignore")
    cases = _Cases(asked.kind, asked.folder, asked.target)
    for seed in range(asked.first, asked.first + asked.count):
        lines.write(json.dumps({"seed": seed, "case": cases.make(seed)}) + "\n")
        lines.write(json.dumps(cases.run()) + "\n")


def _removed(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _resident_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise ValueError(name)


if __name__ == "__main__":
    main()
