"""Smaller and faster models: quantization of the ONNX part and of embedding rows, with a report and a gate."""

from __future__ import annotations

if __name__ != "graphbox.compress":
    raise ImportError("import this package as `graphbox.compress`, not as `compress`: two copies of it would not share state")
