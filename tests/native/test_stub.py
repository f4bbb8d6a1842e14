"""The type stub of the native core is the one its bindings generate."""

from pathlib import Path

import graphbox
from graphbox import _core


def test_stub_is_current() -> None:
    from nanobind.stubgen import StubGen  # type: ignore[import-untyped]

    generator = StubGen(_core)
    generator.put(_core)
    stub = Path(graphbox.__file__).with_name("_core.pyi")
    assert stub.read_text() == generator.get(), (
        "run: python -m nanobind.stubgen -m graphbox._core -o graphbox/_core.pyi"
    )
