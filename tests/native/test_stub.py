"""The type stubs of the native modules are those their bindings generate."""

from pathlib import Path
from types import ModuleType

import pytest

import graphbox
from graphbox import _core, _http2


@pytest.mark.parametrize("module", [_core, _http2])
def test_stub_is_current(module: ModuleType) -> None:
    from nanobind.stubgen import StubGen  # type: ignore[import-untyped]

    generator = StubGen(module)
    generator.put(module)
    name = module.__name__.rpartition(".")[2]
    stub = Path(graphbox.__file__).with_name(f"{name}.pyi")
    assert stub.read_text() == generator.get(), (
        f"run: python -m nanobind.stubgen -m graphbox.{name} -o graphbox/{name}.pyi"
    )
