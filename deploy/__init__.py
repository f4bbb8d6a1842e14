"""The hardware-adapter layer: find what this machine can run models on, compile a model for it, run it."""

from __future__ import annotations

if __name__ != "graphbox.deploy":
    raise ImportError("import this package as `graphbox.deploy`, not as `deploy`: two copies of it would not share state")
