"""What holds for all tests: examples of hypothesis take as long as they take, kernels run on the CPU."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are imported; `make test-gpu` says 0

settings.register_profile("graphbox", deadline=None)
settings.load_profile("graphbox")
