"""Shared memory, log settings and trace settings of the KServe protocol, for every transport."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from graphbox.errors import InvalidRequestError, NotFoundError
from graphbox.server.problem import RefusedError
from graphbox.server.services import Services

__all__ = ["Extensions"]

_REGISTRATION_FIELDS = frozenset({"byte_size", "key", "offset"})


class Extensions:
    """The extensions of a server; answers are the protocol's JSON."""

    def __init__(self, services: Services) -> None:
        self._shared_memory = services.shared_memory
        self._logs = services.log_settings
        self._traces = services.trace_settings
        self._inference = services.inference
        self._has_tokens = services.token_rule is not None

    # Shared memory

    def regions(self, name: str) -> list[dict[str, Any]]:
        """Return a region of system shared memory; all of them where the name is empty.

        Raises:
            NotFoundError: there is no such region.
        """
        if self._shared_memory is not None:
            return self._shared_memory.status(name)
        if name:
            raise NotFoundError(
                "no shared memory region is registered: this server does not offer shared memory"
            )
        return []

    def register(self, name: str, message: Mapping[str, Any]) -> None:
        """Register a region of system shared memory.

        Args:
            name: of the region.
            message: ``key``, ``byte_size`` and, where it is not 0, ``offset``.

        Raises:
            InvalidRequestError: the server offers no shared memory, a field is wrong, or there is no such
                memory.
            ConflictError: the name is taken, or there are too many regions.
        """
        if self._shared_memory is None:
            raise InvalidRequestError(
                "shared memory is not offered by this server",
                hint="send tensors in the body, or start the server with --shared-memory",
            )
        key, size, offset = message.get("key"), message.get("byte_size"), message.get("offset", 0)
        if not message.keys() <= _REGISTRATION_FIELDS or not isinstance(key, str):
            raise InvalidRequestError("expected the fields key (a string), byte_size and offset")
        if type(size) is not int or type(offset) is not int:
            raise InvalidRequestError("expected byte_size and offset as integers")
        self._shared_memory.register(name, key, offset, size)

    def unregister(self, name: str) -> None:
        """Forget a region, or all of them where the name is empty."""
        if self._shared_memory is not None:
            self._shared_memory.unregister(name)

    def gpu_regions(self, name: str) -> list[dict[str, Any]]:
        """Return no regions of the memory of GPUs.

        Raises:
            NotFoundError: one is named.
        """
        if name:
            raise NotFoundError("no region of GPU memory is registered: this server does not offer them")
        return []

    def register_gpu(self) -> None:
        """Refuse to register memory of a GPU.

        Raises:
            InvalidRequestError: always.
        """
        raise InvalidRequestError(
            "shared memory of GPUs is not offered: tensors are in the memory of the processor",
            hint="use system shared memory, or send tensors in the body",
        )

    # Settings

    def log_settings(self) -> dict[str, Any]:
        """Return the log settings."""
        return self._logs.current()

    def change_log_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change log settings and return all of them.

        Raises:
            RefusedError: 403, the server has no token.
            InvalidRequestError: a setting is unknown or of another type.
            UnsupportedError: a request cannot change it.
        """
        self._require_token("a change of the log settings")
        return self._logs.change(settings)

    async def trace_settings(self, model: str) -> dict[str, Any]:
        """Return the trace settings of a model; of all models where the name is empty.

        Raises:
            NotFoundError: there is no such model.
        """
        if model:
            await self._inference.find(model, None)
        return self._traces.current(model)

    async def change_trace_settings(self, model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change trace settings of a model, or of all models where the name is empty; return all of them.

        Raises:
            RefusedError: 403, the server has no token.
            NotFoundError: there is no such model.
            InvalidRequestError: a setting is unknown or of another type.
            UnsupportedError: a request cannot change it.
        """
        self._require_token("a change of the trace settings")
        if model:
            await self._inference.find(model, None)
        return self._traces.change(model, settings)

    def _require_token(self, what: str) -> None:
        if not self._has_tokens:
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                "token_required",
                f"{what} is refused on a server without a token",
                hint="start it with --token",
            )
