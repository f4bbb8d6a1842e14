"""One of the processes of a training: reads its job from standard input, and reports on standard output.

The first line of input is the job, further ones ask to stop; the end of the input is the end of the process
that started this one, and of this one. Output is a line of JSON for each thing: progress, figures, and the
error it ends with.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import torch
from pydantic import TypeAdapter

from graphbox.config import ModelConfig, TaskConfig
from graphbox.errors import GraphboxError
from graphbox.graph import Graph
from graphbox.table import ProcessGroup
from graphbox.train.fit import fit_in_process
from graphbox.train.launch import OPTIONS
from graphbox.train.loop import TrainProgress
from graphbox.train.processes import TrainingProcesses
from graphbox.train.tasks import load_split


class _Report:
    """Standard output, of which nothing else writes a line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, kind: str, content: Mapping[str, Any]) -> None:
        with self._lock:
            self._stream.write(json.dumps({kind: content}).encode() + b"\n")
            self._stream.flush()

    def progress(self, at: TrainProgress) -> None:
        self.say("progress", asdict(at))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Pass figures on, as a tracker."""
        self.say("figures", {"step": step, "values": dict(values)})

    def error(self, error: GraphboxError) -> None:
        said = {"message": error.message, "where": error.where, "hint": error.hint}
        self.say("error", {"kind": type(error).__name__, **said})


def main() -> int:
    """Do the job; return the exit code."""
    report = _Report(os.fdopen(os.dup(sys.stdout.fileno()), "wb"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print
    job = json.loads(sys.stdin.readline())
    stopping = threading.Event()
    threading.Thread(target=_listen, args=(stopping,), daemon=True).start()
    try:
        _train(job, report, stopping)
    except GraphboxError as error:
        report.error(error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - whatever it is, the process that started this one is told
        traceback.print_exc()
        report.error(
            GraphboxError(
                f"{type(error).__name__}: {error}",
                where=f"rank {job['rank']} of {job['size']}",
                hint="standard error has where it was raised",
            )
        )
        return 1
    return 0


def _listen(stopping: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "stop":
            stopping.set()
    os._exit(1)  # nobody is there any more


def _train(job: Mapping[str, Any], report: _Report, stopping: threading.Event) -> None:
    device = torch.device(job["options"]["device"])
    if device.type == "cuda":
        device = torch.device("cuda", job["rank"])
        torch.cuda.set_device(device)
    timeout = float(job["timeout_seconds"])
    store = torch.distributed.FileStore(job["store"], job["size"])  # type: ignore[attr-defined]
    store.set_timeout(timedelta(seconds=timeout))
    torch.distributed.init_process_group("gloo", store=store, rank=job["rank"], world_size=job["size"])
    with ProcessGroup(device, timeout_seconds=timeout) as group:
        graph = Graph.open(job["graph"], version=job["version"])
        options = replace(OPTIONS.validate_python(job["options"]), device=str(device))
        fit_in_process(
            graph,
            None if job["split"] is None else load_split(Path(job["split"])),
            _read(ModelConfig, job["config"]),
            None if job["task"] is None else _read(TaskConfig, job["task"]),
            options,
            (report,),
            report.progress,
            stopping.is_set,
            TrainingProcesses(group),
        )


def _read(kind: Any, document: Any) -> Any:
    return TypeAdapter(kind).validate_json(json.dumps(document))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Not by way of the interpreter's end: threads of a group that failed may still wait for the others.
    os._exit(code)
