"""The dense methods by name; a new method is one module here and one line in `_MODULES`."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from graphbox.compress.dense.method import DenseMethod
from graphbox.errors import UsageError, did_you_mean

__all__ = ["dense_method", "dense_methods"]

_MODULES = ("int8_dynamic", "int8_static", "float16", "int8_weights", "int4_weights")


@cache
def dense_methods() -> tuple[DenseMethod, ...]:
    """Return all methods, in the order in which they are preferred where several are a default."""
    package = __name__.rpartition(".")[0]
    return tuple(import_module(f"{package}.{name}").METHOD for name in _MODULES)


def dense_method(name: str) -> DenseMethod:
    """Return a method by its name in manifests or in run files.

    Raises:
        UsageError: there is none of this name.
    """
    for method in dense_methods():
        if name in {method.name, method.user_name}:
            return method
    known = [method.user_name for method in dense_methods()]
    raise UsageError(
        f"expected a dense method among {', '.join(known)}, received `{name:.64}`",
        hint=did_you_mean(name, known),
    )
