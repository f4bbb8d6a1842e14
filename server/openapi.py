"""Prints the OpenAPI document: ``python -m graphbox.server.openapi``. Needs no workspace."""

from __future__ import annotations

import json
import sys
from typing import Any

from graphbox.server.app import build_api

__all__ = ["document"]


def document() -> dict[str, Any]:
    """Return the OpenAPI document of the REST interface."""
    return build_api().openapi()


def main() -> None:
    """Write the document to standard output, in a form that is the same each time."""
    json.dump(document(), sys.stdout, indent=2, sort_keys=True, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
