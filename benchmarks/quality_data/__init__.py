"""The data sets of the quality benchmark: those that the modules here define."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.quality_data.protocol import DataSet

__all__ = ["data_sets"]


def data_sets() -> dict[str, DataSet]:
    """Return the data sets by name, in the order of the names."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, DataSet)]
    return {data.name: data for data in sorted(found, key=lambda data: data.name)}
