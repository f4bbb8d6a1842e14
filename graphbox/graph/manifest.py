"""The text of a graph's manifest (docs/formats/graph.md): JSON that holds a checksum of itself."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphbox.errors import FormatError

FORMAT = "graphbox-graph"
FORMAT_VERSION = 1

_CHECKSUM = "checksum"
_NO_CHECKSUM = f"sha256:{'0' * 64}"


def encode_manifest(body: Mapping[str, Any]) -> bytes:
    """Return the text of a manifest: its checksum is that of the text with zeros in the checksum's place."""
    lines = [
        f" {_json(key)}: {_in_lines(value)}"
        for key, value in sorted({**body, _CHECKSUM: _NO_CHECKSUM}.items())
    ]
    content = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
    return content.replace(_NO_CHECKSUM.encode(), _checksum(content).encode())


def _in_lines(value: Any) -> str:
    """Return JSON with a line for each entry of an array or object.

    Written so, and not by ``indent=``, for which the standard library has no native encoder: it would take
    most of the time of a small change.
    """
    if isinstance(value, list) and value:
        return "[\n  " + ",\n  ".join(map(_json, value)) + "\n ]"
    if isinstance(value, dict) and value:
        entries = (f"{_json(key)}: {_json(each)}" for key, each in sorted(value.items()))
        return "{\n  " + ",\n  ".join(entries) + "\n }"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _checksum(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def decode_manifest(content: bytes, path: Path) -> dict[str, Any]:
    """Return what the text of a manifest says, but its checksum.

    Args:
        content: the text.
        path: its file, for errors.

    Raises:
        FormatError: it is damaged, of another format, version or byte order.
    """
    hint = "import the graph again"
    try:
        body = json.loads(content)
    except ValueError as error:
        raise FormatError(
            f"expected JSON, received something else ({error})", where=str(path), hint=hint
        ) from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise FormatError(f"expected a manifest of format {FORMAT!r}, received another file", where=str(path))
    if body.get("format_version") != FORMAT_VERSION:
        raise FormatError(
            f"expected format version {FORMAT_VERSION}, received {body.get('format_version')!r}",
            where=str(path),
            hint="open it with the version of graphbox that wrote it, or import the graph again",
        )
    checksum = str(body.pop(_CHECKSUM, None))
    if _checksum(content.replace(checksum.encode(), _NO_CHECKSUM.encode())) != checksum:
        raise FormatError(
            f"expected the content that was written, received other bytes (checksum {checksum})",
            where=str(path),
            hint=hint,
        )
    if body.get("byte_order") != sys.byteorder:
        raise FormatError(
            f"expected byte order {sys.byteorder}, received {body.get('byte_order')}",
            where=str(path),
            hint=hint,
        )
    return body
