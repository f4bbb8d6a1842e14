"""Serving: REST, the KServe v2 protocol, and the web page."""

from __future__ import annotations

if __name__ != "graphbox.server":
    raise ImportError("import this package as `graphbox.server`, not as `server`: two copies of it would not share state")
