"""Serving: time that routing adds to a request, with and without canaries, of one thread.

    python -m benchmarks.canary [--calls 20000] [--repeats 5]

Prints JSON lines: ``ns`` is the median over turns, case after case, of the time to enter and leave a version
of an open model: ``no canary`` (no model of the server has one), ``of another model``, ``no key`` (half of
the requests go to the canary), ``key`` (of the header), ``key in the body`` (its JSON is parsed once more).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from graphbox.artifact import ArtifactWriter, LookupForm, TargetSpec
from graphbox.server.executor import Executor
from graphbox.server.inference import Inference
from graphbox.server.kserve.codec import routing_key_in
from graphbox.server.repository import Repository
from graphbox.server.settings import Settings
from graphbox.workspace import Workspace

BODY = json.dumps(
    {
        "inputs": [{"name": "id", "datatype": "BYTES", "shape": [10], "data": ["item-1234"] * 10}],
        "parameters": {"routing_key": "user-1234"},
    }
).encode()


def main() -> None:
    """Print the time of each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspaces = {name: Path(folder, name) for name in ("none", "other", "split")}
        inferences = {name: _opened(path, name) for name, path in workspaces.items()}
        cases: dict[str, Callable[[], object]] = {
            "no canary": _asking(inferences["none"], lambda: None),
            "of another model": _asking(inferences["other"], lambda: None),
            "no key": _asking(inferences["split"], lambda: None),
            "key": _asking(inferences["split"], lambda: b"user-1234"),
            "key in the body": _asking(inferences["split"], lambda: routing_key_in(BODY, None, 1 << 20)),
        }
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(arguments.repeats):
            for name, ask in cases.items():
                begun = time.perf_counter_ns()
                for _ in range(arguments.calls):
                    ask()
                times[name].append((time.perf_counter_ns() - begun) / arguments.calls)
        for name, each in times.items():
            print(json.dumps({"case": name, "ns": round(statistics.median(each)), "min": round(min(each))}))


def _opened(path: Path, name: str) -> Inference:
    """Return the core of a server of two models, with a canary of one of them or of none."""
    workspace = Workspace(path)
    for model in ("asked", "other"):
        for _ in range(2):
            version, folder = workspace.new_model_path(model)
            with ArtifactWriter(folder) as writer:
                writer.add_ids("item", [f"item-{number}" for number in range(100)])
                writer.add_table("item", "item", np.ones((100, 16), np.float32))
                writer.set_preprocess(LookupForm(node_type="item", tables={"item": "item"}))
                targets = {"item": TargetSpec(table="item", score="cosine")}
                writer.commit(
                    name=model, version=version, kind="embedding", task=None, dim=16, targets=targets
                )
            workspace.add_model(model, version, kind="embedding", task=None, precision="float32", metrics={})
    if name != "none":
        workspace.set_canary("other" if name == "other" else "asked", 2, 50)
    repository = Repository(workspace)
    repository.preload()
    return Inference(repository, Executor(max_pending=4), Settings())


def _asking(inference: Inference, key: Callable[[], bytes | None]) -> Callable[[], None]:
    """Return what enters and leaves a version, as a transport does."""

    def ask() -> None:
        found = key() if inference.splits_requests else None
        lease = inference.enter_now("asked", None, found)
        if lease is None:
            raise RuntimeError("the model is not open")
        lease.leave()

    return ask


if __name__ == "__main__":
    main()
