"""The machines that tests compare: this one, and 64-bit ARM under emulation."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tests.server.server_process import ServerProcess, wait_until

__all__ = ["FOLDER_VARIABLE", "Machine", "assert_close", "assert_same", "results_of"]

FOLDER_VARIABLE = "GRAPHBOX_ARM_FOLDER"
TIMEOUT_S = 240.0
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
ABSOLUTE, RELATIVE = 1e-5, 1e-3
"""Tolerances between floats of the two machines."""


@dataclass(frozen=True)
class Machine:
    """A Python with graphbox.

    Attributes:
        python: the program that starts it.
        folder: working directory, outside the checkout so that Python imports the installed graphbox.
        processes: servers that were started.
    """

    python: str
    folder: Path
    processes: list[ServerProcess] = field(default_factory=list)

    def run(self, *arguments: object) -> str:
        """Run Python with arguments; return its standard output."""
        done = subprocess.run(
            [self.python, *map(str, arguments)],
            cwd=self.folder,
            env=self._variables(),
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{self.python} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        return done.stdout

    def serve(self, models: Path) -> ServerProcess:
        """Start ``graphbox serve``; return when every model answers."""
        log = self.folder / "server.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [self.python, "-m", "graphbox", "serve", "--models", str(models), "--port", "0", "--json"],
                cwd=self.folder,
                env=self._variables(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline() if selector.select(TIMEOUT_S) else ""
        server = ServerProcess(process, json.loads(line)["url"] if line else "", log)
        self.processes.append(server)
        assert server.url, f"the server did not start:\n{log.read_text()}"
        wait_until(server.is_ready, TIMEOUT_S, "the server to be ready")
        return server

    def stop_servers(self) -> None:
        """Stop the servers that still run."""
        for server in self.processes:
            server.stop()
            assert server.process.stdout is not None
            server.process.stdout.close()

    def _variables(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "GRAPHBOX_PACKAGES": str(self.folder / "packages"),
        }


def results_of(machine: Machine, program: str, *arguments: object) -> Arrays:
    """Run a program beside this module that writes arrays; its first argument is the file to write."""
    path = machine.folder / f"{program}.npz"
    machine.run(Path(__file__).parent / f"{program}.py", path, *arguments)
    with np.load(path) as stored:
        return dict(stored)


def assert_same(emulated: Arrays, here: Arrays) -> None:
    """Check that arrays are the same bits."""
    assert emulated.keys() == here.keys()
    differing = [
        name
        for name, array in here.items()
        if (emulated[name].dtype, emulated[name].shape) != (array.dtype, array.shape)
        or emulated[name].tobytes() != array.tobytes()
    ]
    assert not differing


def assert_close(emulated: Arrays, here: Arrays) -> None:
    """Check that floats are close, and everything else is the same."""
    assert emulated.keys() == here.keys()
    for name, array in here.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(
                emulated[name], array, rtol=RELATIVE, atol=ABSOLUTE, strict=True, err_msg=name
            )
        else:
            np.testing.assert_array_equal(emulated[name], array, strict=True, err_msg=name)
