"""Checks that this installation can serve gRPC without loading what serves it: the parent of workers asks."""

from __future__ import annotations

from graphbox.errors import BackendMissingError

__all__ = ["check_available"]


def check_available() -> None:
    """Raise if this installation has no gRPC.

    Raises:
        BackendMissingError: it was built without libnghttp2, or does not find it.
    """
    try:
        from graphbox import _http2  # noqa: F401
    except ImportError as error:
        raise BackendMissingError(
            f"this installation of graphbox cannot serve gRPC: {error}",
            where="grpc_port",
            hint="install libnghttp2 (Debian: libnghttp2-dev) and build graphbox again",
        ) from error
