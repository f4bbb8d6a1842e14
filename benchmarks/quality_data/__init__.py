"""The data sets of the quality benchmark: each module here that has a ``DATA_SET`` is one."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.quality_data.protocol import DataSet

__all__ = ["data_sets"]


def data_sets() -> dict[str, DataSet]:
    """Return the data sets by name, in the order of the names."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    found: list[DataSet] = [module.DATA_SET for module in modules if hasattr(module, "DATA_SET")]
    return {data.name: data for data in sorted(found, key=lambda data: data.name)}
