"""Serves with the settings given as JSON; prints its addresses once requests are accepted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from graphbox.errors import GraphboxError
from graphbox.server import Settings, serve


def main() -> int:
    given = json.loads(sys.argv[1])
    if "workspace" in given:
        given["workspace"] = Path(given["workspace"])
    if "token_file" in given:
        given["token_file"] = Path(given["token_file"])
    for name in ("models", "allowed_hosts", "restrict"):
        if name in given:
            given[name] = tuple(Path(item) if name == "models" else item for item in given[name])
    try:
        serve(Settings(**given), on_start=lambda *addresses: print(*filter(None, addresses), flush=True))
    except GraphboxError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
