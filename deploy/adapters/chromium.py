"""A headless Chromium that runs programs in a page, driven over a pair of pipes.

Protocol: Chrome DevTools Protocol, https://chromedevtools.github.io/devtools-protocol, domains Target, Fetch,
Page and Runtime; messages end with a zero byte. Chromium opens no port, ends when its pipes close, and gets
every file of the page through the pipes: it has no network.
"""

from __future__ import annotations

import atexit
import base64
import itertools
import json
import mimetypes
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from importlib.resources.abc import Traversable
from typing import Any
from urllib.parse import urlsplit

from graphbox.errors import GraphboxError, TimeLimitError

__all__ = ["Chromium", "PageError"]

_ORIGIN = "https://page.invalid"  # a name that no resolver knows (RFC 2606)
_TIMEOUT_S = 60.0
_READ_BYTES = 1 << 20
_OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
# Chromium reads descriptor 3 and writes 4. `subprocess` cannot renumber descriptors, so a Python process does
# and becomes Chromium. It copies them first: those given may be 3 and 4 themselves, the other way round.
_LAUNCHER = """
import fcntl, os, sys
given = [int(number) for number in sys.argv[1:3]]
copies = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10) for number in given]
for number in given:
    os.close(number)
for number, copy in zip((3, 4), copies):
    os.dup2(copy, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class PageError(Exception):
    """A function of the page threw an error; the message is its text."""


class Chromium:
    """One page in a browser of its own. Safe to use from several threads: calls wait for each other.

    Args:
        executable: of Chromium or Chrome.
        folder: the page's files.
        page: which of them to open.

    Attributes:
        executable: as given.
        version: product and version of the browser.

    Raises:
        GraphboxError: it does not start, or ends.
        TimeLimitError: it does not answer.
    """

    def __init__(self, executable: str, folder: Traversable, page: str) -> None:
        self.executable = executable
        self._folder = folder
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._received = bytearray()
        self._session: str | None = None
        self._profile = tempfile.mkdtemp(prefix="graphbox-chromium-")
        atexit.register(self.close)
        child_reads, self._write = os.pipe()
        self._read, child_writes = os.pipe()
        # Its sandbox does not work for root, who runs tests in containers.
        sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(child_reads), str(child_writes)]
        self._process = subprocess.Popen(
            [*launcher, executable, *_OPTIONS, *sandbox, f"--user-data-dir={self._profile}"],
            pass_fds=(child_reads, child_writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(child_reads)
        os.close(child_writes)
        try:
            with self._lock:
                self.version: str = self._send("Browser.getVersion")["product"]
                self._open(page)
        except BaseException:
            self.close()
            raise

    @property
    def is_running(self) -> bool:
        """True until the browser is closed or ends."""
        return self._write >= 0 and self._process.poll() is None

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of the page; return what it resolves to.

        Args:
            function: its name in the page.
            arguments: written as JSON.

        Raises:
            PageError: it threw.
        """
        return self._evaluate(f"{function}({','.join(map(json.dumps, arguments))})")

    def close(self) -> None:
        """End the browser and remove its profile; a second call does nothing."""
        atexit.unregister(self.close)
        for descriptor in (self._write, self._read):
            if descriptor >= 0:
                os.close(descriptor)
        self._write = self._read = -1
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def _open(self, page: str) -> None:
        """Open the page in a tab, and wait until its scripts have run."""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._send("Fetch.enable")
        self._send("Page.navigate", url=f"{_ORIGIN}/{page}")
        deadline = time.monotonic() + _TIMEOUT_S
        while (
            self._send("Runtime.evaluate", expression="document.readyState")["result"]["value"] != "complete"
        ):
            if time.monotonic() > deadline:
                raise TimeLimitError(f"expected Chromium to load a page within {_TIMEOUT_S:g} s")
            time.sleep(0.01)

    def _evaluate(self, expression: str) -> Any:
        with self._lock:
            answer = self._send(
                "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
            )
        if "exceptionDetails" in answer:
            thrown = answer["exceptionDetails"]
            text = thrown.get("exception", {}).get("description") or thrown["text"]
            raise PageError(text.split("\n    at ")[0][:600])
        return answer["result"].get("value")

    def _send(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and return its result; files that the page asks for meanwhile are sent, too."""
        number = self._post(method, parameters)
        while True:
            message = self._next_message()
            if message.get("method") == "Fetch.requestPaused":
                self._answer_request(message["params"])
            elif message.get("id") == number:
                if "error" in message:
                    raise GraphboxError(f"Chromium refused {method}: {message['error']['message'][:600]}")
                result: dict[str, Any] = message["result"]
                return result

    def _post(self, method: str, parameters: dict[str, Any]) -> int:
        number = next(self._numbers)
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        remaining = memoryview(json.dumps(command).encode() + b"\0")
        if not self.is_running:
            raise self._ended()
        try:
            while remaining:
                remaining = remaining[os.write(self._write, remaining) :]
        except OSError as error:
            raise self._ended() from error
        return number

    def _next_message(self) -> dict[str, Any]:
        while (end := self._received.find(b"\0")) < 0:
            if self._read < 0 or not select.select([self._read], [], [], _TIMEOUT_S)[0]:
                raise TimeLimitError(f"expected an answer of Chromium within {_TIMEOUT_S:g} s, received none")
            part = os.read(self._read, _READ_BYTES)
            if not part:
                raise self._ended()
            self._received += part
        message: dict[str, Any] = json.loads(bytes(self._received[:end]))
        del self._received[: end + 1]
        return message

    def _answer_request(self, asked: dict[str, Any]) -> None:
        """Send a file of the page; refuse every other address."""
        path = urlsplit(asked["request"]["url"]).path.lstrip("/")
        content = None
        if asked["request"]["url"].startswith(f"{_ORIGIN}/") and ".." not in path:
            with suppress(OSError):
                content = self._folder.joinpath(*path.split("/")).read_bytes()
        if content is None:
            self._post(
                "Fetch.failRequest", {"requestId": asked["requestId"], "errorReason": "AddressUnreachable"}
            )
            return
        kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        self._post(
            "Fetch.fulfillRequest",
            {
                "requestId": asked["requestId"],
                "responseCode": 200,
                "responseHeaders": [{"name": "content-type", "value": kind}],
                "body": base64.b64encode(content).decode(),
            },
        )

    def _ended(self) -> GraphboxError:
        return GraphboxError(
            "Chromium ended while it was used",
            hint="the next program starts another one; see its memory limits",
        )
