"""Serving: REST, the KServe v2 protocol, and the web page.

Names are loaded on first use, so that importing the package costs nothing; neither it nor what it
loads needs torch or the native core.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if __name__ != "graphbox.server":
    raise ImportError(
        "import this package as `graphbox.server`, not as `server`: two copies of it would not share state"
    )

if TYPE_CHECKING:
    from graphbox.server.app import create_app as create_app
    from graphbox.server.settings import Settings as Settings
    from graphbox.server.start import serve as serve

_MODULE_OF = {
    "Settings": "graphbox.server.settings",
    "create_app": "graphbox.server.app",
    "serve": "graphbox.server.start",
}

__all__ = ["Settings", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'graphbox.server' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
