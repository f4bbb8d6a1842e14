"""The methods of shared memory, log settings and trace settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from graphbox.errors import InvalidRequestError
from graphbox.server.grpc import inference_messages as messages
from graphbox.server.kserve.extensions import Extensions
from graphbox.server.services import Services

__all__ = ["Answer", "extension_methods"]

Answer = Callable[[Any], Awaitable[Message]]


def extension_methods(services: Services) -> dict[str, tuple[Callable[[bytes], Message], Answer]]:
    """Return the class of requests, and what answers them, by the name of each method."""
    methods = _ExtensionMethods(Extensions(services))
    return {
        "SystemSharedMemoryStatus": (
            messages.SystemSharedMemoryStatusRequest.FromString,
            methods.regions,
        ),
        "SystemSharedMemoryRegister": (
            messages.SystemSharedMemoryRegisterRequest.FromString,
            methods.register,
        ),
        "SystemSharedMemoryUnregister": (
            messages.SystemSharedMemoryUnregisterRequest.FromString,
            methods.unregister,
        ),
        "CudaSharedMemoryStatus": (
            messages.CudaSharedMemoryStatusRequest.FromString,
            methods.gpu_regions,
        ),
        "CudaSharedMemoryRegister": (
            messages.CudaSharedMemoryRegisterRequest.FromString,
            methods.register_gpu,
        ),
        "CudaSharedMemoryUnregister": (
            messages.CudaSharedMemoryUnregisterRequest.FromString,
            methods.unregister_gpu,
        ),
        "TraceSetting": (messages.TraceSettingRequest.FromString, methods.trace),
        "LogSettings": (messages.LogSettingsRequest.FromString, methods.log),
    }


class _ExtensionMethods:
    def __init__(self, extensions: Extensions) -> None:
        self._extensions = extensions

    async def regions(self, request: messages.SystemSharedMemoryStatusRequest) -> Message:
        found = {region["name"]: region for region in self._extensions.regions(request.name)}
        return ParseDict({"regions": found}, messages.SystemSharedMemoryStatusResponse())

    async def register(self, request: messages.SystemSharedMemoryRegisterRequest) -> Message:
        fields = {"key": request.key, "offset": request.offset, "byte_size": request.byte_size}
        self._extensions.register(request.name, fields)
        return messages.SystemSharedMemoryRegisterResponse()

    async def unregister(self, request: messages.SystemSharedMemoryUnregisterRequest) -> Message:
        self._extensions.unregister(request.name)
        return messages.SystemSharedMemoryUnregisterResponse()

    async def gpu_regions(self, request: messages.CudaSharedMemoryStatusRequest) -> Message:
        self._extensions.gpu_regions(request.name)
        return messages.CudaSharedMemoryStatusResponse()

    async def register_gpu(self, _request: messages.CudaSharedMemoryRegisterRequest) -> Message:
        self._extensions.register_gpu()
        return messages.CudaSharedMemoryRegisterResponse()

    async def unregister_gpu(self, _request: messages.CudaSharedMemoryUnregisterRequest) -> Message:
        return messages.CudaSharedMemoryUnregisterResponse()

    async def trace(self, request: messages.TraceSettingRequest) -> Message:
        if not request.settings:
            found = await self._extensions.trace_settings(request.model_name)
        else:
            # A setting without a value is removed.
            settings = {name: [*setting.value] or None for name, setting in request.settings.items()}
            found = await self._extensions.change_trace_settings(request.model_name, settings)
        values = {
            name: {"value": value if isinstance(value, list) else [value]} for name, value in found.items()
        }
        return ParseDict({"settings": values}, messages.TraceSettingResponse())

    async def log(self, request: messages.LogSettingsRequest) -> Message:
        if not request.settings:
            found = self._extensions.log_settings()
        else:
            settings = {name: _value(name, setting) for name, setting in request.settings.items()}
            found = self._extensions.change_log_settings(settings)
        response = messages.LogSettingsResponse()
        for name, value in found.items():
            setting = response.settings[name]
            if isinstance(value, bool):
                setting.bool_param = value
            elif isinstance(value, int):
                setting.uint32_param = value
            else:
                setting.string_param = value
        return response


def _value(name: str, setting: messages.LogSettingsRequest.SettingValue) -> object:
    kind = setting.WhichOneof("parameter_choice")
    if kind is None:
        raise InvalidRequestError("expected a value of the setting, received none", where=name)
    return getattr(setting, kind)
