"""The operations of the KServe protocol besides inference, for every transport."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from http import HTTPStatus
from typing import Any, Literal

from graphbox.deploy.signature import WHOLE
from graphbox.errors import InvalidRequestError
from graphbox.server.inference import check_model_name, split_name
from graphbox.server.kserve import schema
from graphbox.server.problem import RefusedError
from graphbox.server.services import Services
from graphbox.server.telemetry import ModelStatistics

__all__ = ["Management"]


class Management:
    """Health, metadata, statistics and the repository of a server; answers are the protocol's JSON.

    Methods that name a model raise what `Inference.enter` does.
    """

    def __init__(self, services: Services) -> None:
        self._has_shared_memory = services.shared_memory is not None
        self._has_tokens = services.token_rule is not None
        self._repository = services.repository
        self._inference = services.inference
        self._executor = services.executor
        self._public_text = services.public_text

    def server_metadata(self) -> dict[str, Any]:
        """Return name, version and extensions of the server."""
        return schema.server_metadata(has_shared_memory=self._has_shared_memory)

    def is_ready(self) -> bool:
        """Return whether every model that should be served answers."""
        return self._repository.readiness().ready

    async def check_ready(self, name: str, version: str | None) -> None:
        """Return when a model version is open."""
        (await self._inference.enter(name, version, split=False)).leave()

    async def metadata(self, name: str, version: str | None) -> dict[str, Any]:
        """Return the tensors of a model, and the versions that can be asked for."""
        lease = await self._inference.enter(name, version, split=False)
        try:
            versions = (
                [lease.version_number] if version is not None else self._repository.versions(lease.model_name)
            )
            return schema.model_metadata(name, versions, lease.signature)
        finally:
            lease.leave()

    async def configuration(self, name: str, version: str | None) -> dict[str, Any]:
        """Return the configuration of a model in Triton's words."""
        lease = await self._inference.enter(name, version, split=False)
        try:
            return schema.model_configuration(name, lease.signature, lease.limits.max_rows)
        finally:
            lease.leave()

    async def model_statistics(self, name: str, version: str | None) -> dict[str, Any]:
        """Return the statistics of one model version, open or not."""
        slot, suffix = await self._inference.find(name, version)
        return schema.model_statistics([(name, slot.version_text, slot.statistics[suffix])])

    def all_statistics(self) -> dict[str, Any]:
        """Return the statistics of every model that was asked something."""
        return schema.model_statistics(self.statistics())

    def statistics(self) -> Iterator[tuple[str, str, ModelStatistics]]:
        """Yield name, version and statistics of every model that was asked something."""
        for slot in self._repository.slots():
            for suffix, statistics in slot.statistics.items():
                if suffix == WHOLE or statistics.used:
                    yield slot.name + suffix, slot.version_text, statistics

    async def index(self, *, ready_only: bool) -> list[dict[str, str]]:
        """Return name, version and state of the models that answer for their names."""
        known = await self._executor.run(self._repository.known)
        return [
            {
                "name": model.name + suffix,
                "version": str(model.version),
                "state": model.state,
                "reason": self._public_text(model.reason),
            }
            for model in known
            for suffix in model.suffixes
            if model.current and (model.state == "READY" or not ready_only)
        ]

    async def change(self, name: str, verb: Literal["load", "unload"], parameters: Collection[str]) -> None:
        """Load or unload a model.

        Args:
            name: of the model.
            verb: what to do.
            parameters: names of the parameters of the request.

        Raises:
            InvalidRequestError: a parameter would bring a file or a setting, or the name is that of a part.
            RefusedError: 403, the server has no token.
            NotFoundError: there is no such model.
            GraphboxError: it cannot be opened.
        """
        check_model_name(name)
        base, suffix = split_name(name)
        if suffix and self._repository.has(base) and not self._repository.has(name):
            raise InvalidRequestError(
                f"expected a model of the repository: `{name}` is a part of `{base}`, "
                "loaded and unloaded with it",
                hint=f"POST /v2/repository/models/{base}/{verb}",
            )
        if set(parameters) - {"unload_dependents"}:
            raise InvalidRequestError(
                "expected no model files or settings: models come from the workspace, never from a request",
                where="parameters",
            )
        if not self._has_tokens:
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                "token_required",
                f"{verb} is refused on a server without a token",
                hint="start it with --token or --token-file; "
                "a version that is promoted is served without a request",
            )
        act = self._repository.load if verb == "load" else self._repository.unload
        await self._executor.run(lambda: act(name))
