"""Models in another server (graphbox, Triton, KServe), to measure latency where a model will run.

Servers are configured by the environment only, never by a model file:
``GRAPHBOX_REMOTE="NAME=http://HOST:PORT/v2/models/MODEL[/versions/N],..."``.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
from dataclasses import dataclass
from pathlib import Path

from graphbox.deploy.adapters.kserve import PROBE_TIMEOUT_S, KServeProgram, KServeServer
from graphbox.deploy.protocol import API_VERSION, Device, Options, Package, Support
from graphbox.errors import FormatError, GraphboxError, UnsupportedError

_VARIABLE = "GRAPHBOX_REMOTE"
_FORM = "NAME=http://HOST:PORT/v2/models/MODEL[/versions/N]"
_ENTRY = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]{0,63})=(?P<server>https?://[\[\]A-Za-z0-9_.:%/~-]+?)"
    r"(?P<path>/v2/models/[A-Za-z0-9_.:%~+-]+(?:/versions/[0-9]+)?)/?"
)
_MAX_PROBES = 16


@dataclass(frozen=True)
class _Entry:
    """Model in a server.

    Attributes:
        name: of the device.
        server: its URL up to ``/v2``.
        path: of the model, from ``/v2`` on.
    """

    name: str
    server: str
    path: str

    def probed(self) -> Device:
        """Return the device after checking that the model is ready."""
        description = f"{self.server}{self.path}"
        try:
            server = KServeServer(self.server, PROBE_TIMEOUT_S)
            try:
                server.check_ready(self.path)
                details = {"runtime": server.runtime()}
            finally:
                server.close()
        except GraphboxError as error:
            return Device(self.name, "other", description, available=False, reason=error.message)
        return Device(self.name, "other", description, available=True, details=details)


class Remote:
    """Adapter for models in other servers; nothing is compiled here."""

    name = "remote"
    api = API_VERSION
    builds_ahead = False

    def probe(self) -> list[Device]:
        """Return the configured models, each checked in its server."""
        found = _entries()
        with concurrent.futures.ThreadPoolExecutor(_MAX_PROBES) as pool:
            return list(pool.map(lambda each: each if isinstance(each, Device) else each.probed(), found))

    def supports(self, model: bytes, device: Device) -> Support:
        """Return whether the server's model has the same tensors and digest."""
        try:
            self.load(Package(model, device, Options())).close()
        except (UnsupportedError, FormatError) as error:
            return Support(supported=False, reason=error.message)
        return Support(supported=True)

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:
        """Write nothing; see `graphbox.deploy.protocol.Adapter.build`."""

    def load(self, package: Package) -> KServeProgram:
        """Open the model in the server; see `graphbox.deploy.protocol.Adapter.load`."""
        entry = next((e for e in _entries() if isinstance(e, _Entry) and e.name == package.device.name), None)
        if entry is None:
            raise UnsupportedError(f"expected {_VARIABLE} to name `{package.device.name}`, it no longer does")
        server = KServeServer(entry.server)
        try:
            return KServeProgram(server, entry.path, package)
        except BaseException:
            server.close()
            raise


def _entries() -> list[_Entry | Device]:
    """Parse the environment variable; a malformed entry becomes an unavailable device."""
    texts = [text.strip() for text in os.environ.get(_VARIABLE, "").split(",") if text.strip()]
    if not texts:
        return [_absent("server", f"{_VARIABLE} names none: {_FORM},...")]
    found: dict[str, _Entry | Device] = {}
    for number, text in enumerate(texts):
        match = _ENTRY.fullmatch(text)
        name = match["name"] if match else f"entry-{number + 1}"
        if match is None:
            received = "a password" if "@" in text else f"{text!r:.200}"
            found[name] = _absent(name, f"expected {_FORM} in {_VARIABLE}, received {received}")
        elif name in found:
            found[name] = _absent(name, f"expected each name once in {_VARIABLE}, received `{name}` twice")
        else:
            found[name] = _Entry(name, match["server"], match["path"])
    return list(found.values())


def _absent(name: str, reason: str) -> Device:
    return Device(name, "other", "a server of the KServe protocol v2", available=False, reason=reason)


adapter = Remote()
