"""Coming from PGLBox: its YAML files become run files; `graphbox convert-pglbox` is the command."""

from __future__ import annotations

from graphbox.pglbox.convert import Conversion, Outcome, convert
from graphbox.pglbox.keys import KEYS, Fate

__all__ = ["KEYS", "Conversion", "Fate", "Outcome", "convert"]
