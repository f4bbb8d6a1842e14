"""Resolution of the import paths of a run file."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from graphbox.errors import UsageError


def import_by_path(path: str, where: str) -> Callable[..., Any]:
    """Return what ``package.module:name`` names.

    Args:
        path: the import path.
        where: what names it, for the error.

    Raises:
        UsageError: it is no import path, there is no such module, or that has no such name.
    """
    module_name, _, name = path.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(f"expected an import path, package.module:name, received `{path}`", where=where)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that is there, but lacks an import of its own, has another cause.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"there is no module `{error.name}` to import `{path}` from",
            where=where,
            hint="install its package, or add its folder to PYTHONPATH",
        ) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise UsageError(
            f"expected a class or function `{name}` in {module_name}, received "
            f"{'none' if found is None else type(found).__name__}",
            where=where,
            hint="an import path is written package.module:name",
        )
    result: Callable[..., Any] = found
    return result
