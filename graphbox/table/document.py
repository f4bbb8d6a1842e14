"""JSON documents that say what they are, and hold a digest of themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from graphbox.errors import FormatError

RESTORE: Final = "restore the checkpoint from a copy, or load another one"


def digest_of(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document without its digest, with sorted keys and without blanks."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def document_text(document: Mapping[str, Any]) -> str:
    """Return the text of a document, its digest in it."""
    return json.dumps({**document, "digest": digest_of(document)}, indent=1, allow_nan=False) + "\n"


def read_document(path: Path, document_format: str, version: int) -> dict[str, Any]:
    """Return what :func:`document_text` wrote to a file, but the digest.

    Raises:
        FileNotFoundError: there is no file.
        NotADirectoryError: its folder is a file.
        FormatError: it cannot be read, is damaged, of another format or version.
    """
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot read the file: {error}", where=str(path), hint=RESTORE) from None
    if not isinstance(document, dict) or document.get("format") != document_format:
        raise FormatError(
            f"expected a {document_format}, received something else", where=str(path), hint=RESTORE
        )
    if document.get("version") != version:
        raise FormatError(
            f"expected version {version} of {document_format}, received {document.get('version')!r}",
            where=str(path),
            hint="use the version of graphbox that wrote it",
        )
    digest = document.pop("digest", None)
    if digest != digest_of(document):
        raise FormatError("the file is damaged: it is not as it was written", where=str(path), hint=RESTORE)
    return document
