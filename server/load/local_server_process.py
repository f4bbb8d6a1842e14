"""Process of `graphbox.server.load.local_server`: serves until its standard input ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

from graphbox.errors import GraphboxError
from graphbox.server.readiness import Readiness
from graphbox.server.settings import Settings
from graphbox.server.start import serve


def _serve(line: str) -> int:
    """Serve with settings in JSON until stdin ends; print port and failures once models were opened."""
    given = json.loads(line)
    settings = Settings(**(given | {"models": tuple(Path(path) for path in given["models"]), "port": 0}))
    ports: list[int] = []

    def report(failed: str) -> None:
        sys.stdout.write(json.dumps({"port": ports[0] if ports else 0, "failed": failed}) + "\n")
        sys.stdout.flush()

    def on_start(url: str, _: str | None) -> None:
        ports.append(urlsplit(url).port or 0)
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()

    def on_preload(readiness: Readiness) -> None:
        report("; ".join(f"{name}: {reason}" for name, reason in readiness.failed.items()))

    try:
        serve(settings, on_start, on_preload)
    except GraphboxError as error:
        report(str(error))
        return error.exit_code
    return 0


def _stop_at_end_of_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(_serve(sys.stdin.readline()))
