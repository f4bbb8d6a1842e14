"""A PGLBox YAML file's values, each read as what it has to be, with the line of every mistake."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphbox.config.problem import Problem
from graphbox.config.source import Source, describe_value, read_source
from graphbox.errors import ConfigError

# PGLBox reads YAML 1.1, in which these words are booleans too.
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass
class Settings:
    """The keys of one file, read on demand; what is wrong is collected.

    Attributes:
        source: the parsed file.
        problems: the mistakes met so far.
    """

    source: Source
    problems: list[Problem] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The file."""
        return self.source.path

    @property
    def names(self) -> list[str]:
        """The keys of the file, in its order."""
        return list(self.source.data)

    def value(self, name: str) -> Any:
        """Return a key's plain value, None when it is absent or empty."""
        return self.source.data.get(name)

    def line(self, name: str) -> int | None:
        """Return the line of a key."""
        return self.source.line((name,))

    def wrong(self, name: str, message: str, hint: str | None = None) -> None:
        """Note a mistake at a key; at the file when it is absent."""
        self.problems.append(Problem(key=(name,), message=message, hint=hint, line=self.line(name)))

    def text(self, name: str) -> str:
        """Return a text, "" when there is none."""
        value = self.value(name)
        if value is None:
            return ""
        if isinstance(value, str):
            return value.strip()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        self._expected(name, "text")
        return ""

    def integer(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        """Return an integer of at least ``least``, ``default`` when there is none."""
        number = self.number(name)
        if number is None:
            return default
        if not number.is_integer() or number < least:
            self._expected(name, f"an integer of at least {least}")
            return default
        return int(number)

    def number(self, name: str) -> float | None:
        """Return a finite number, None when there is none; texts like ``1e-6`` are numbers too."""
        value = self.value(name)
        if value is None:
            return None
        try:
            number = math.nan if isinstance(value, bool | list | dict) else float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
        self._expected(name, "a number")
        return None

    def flag(self, name: str) -> bool:
        """Return a boolean, False when there is none."""
        value = self.value(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in _FLAGS:
            return _FLAGS[value.strip().lower()]
        if isinstance(value, int) and value in {0, 1}:
            return bool(value)
        self._expected(name, "True or False")
        return False

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; numbers in it are taken as texts, and one value as a list of one."""
        value = self.value(name)
        if value is None or value == "":
            return []
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, bool | list | dict) or item is None for item in items):
            self._expected(name, "a list of names")
            return []
        return [str(item).strip() for item in items]

    def _expected(self, name: str, what: str) -> None:
        self.wrong(name, f"expected {what}, received {describe_value(self.value(name))}")


def read_settings(path: Path) -> Settings:
    """Read a PGLBox YAML file.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is not UTF-8, not YAML, or not a mapping.
    """
    source = read_source(path, what="PGLBox YAML file", hint="it starts with `graph_data_local_path: ...`")
    if any(isinstance(value, dict) for name, value in source.data.items() if name in {"graph", "models"}):
        raise ConfigError(
            "expected a PGLBox YAML file, received a run file of graphbox",
            where=str(path),
            hint="it needs no conversion: `graphbox check` and `graphbox run` take it as it is",
        )
    return Settings(source, list(source.problems))
