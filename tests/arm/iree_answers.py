"""Run a model that IREE compiled on another machine.

    iree_answers.py RESULTS.npz MODEL.onnx FOLDER FEEDS.npz

FOLDER holds ``model.vmfb``, as the adapter for IREE writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from graphbox.deploy.adapters.iree import adapter
from graphbox.deploy.protocol import Device, Options, Package


def main() -> None:
    results, model, folder, feeds = map(Path, sys.argv[1:])
    device = Device("cpu", "cpu", "emulated", available=True)
    program = adapter.load(Package(model.read_bytes(), device, Options(), folder))
    with np.load(feeds) as stored:
        answers = program.run(dict(stored))
    program.close()
    np.savez(results, **answers)  # type: ignore[arg-type]  # NumPy's stub takes the option for an array


if __name__ == "__main__":
    main()
