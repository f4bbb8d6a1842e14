"""A process of a training with its tables on a device: the CPU, where Triton's interpreter runs kernels."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any
from unittest import mock

from triton.runtime.interpreter import GridExecutor

from graphbox.train import worker


def main() -> int:
    """Do the job as :mod:`graphbox.train.worker` does."""
    run, turn = GridExecutor.__call__, threading.Lock()

    def in_turn(*arguments: Any, **named: Any) -> Any:
        with turn:  # the interpreter runs one kernel at a time, and loaders sample in threads of their own
            return run(*arguments, **named)

    with (
        mock.patch.object(GridExecutor, "__call__", in_turn),
        mock.patch("graphbox.train.memory.has_kernels", return_value=True),
    ):
        return worker.main()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
