"""YAML text as plain values, with the line of every key and item.

Only what a run file needs is accepted: mappings with string keys, sequences, and the scalars of
YAML 1.2 (string, integer, float, boolean, null), anchors and merge keys. Tags that would build other
objects are refused, and so are repeated keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from graphbox.config.problem import Problem, dotted
from graphbox.errors import ConfigError, NotFoundError

KeyPath = tuple[str | int, ...]

_PREFIX = "tag:yaml.org,2002:"
_MAX_BYTES = 4 * 2**20
_MAX_VALUES = 1_000_000


@dataclass
class Source:
    """A parsed YAML file, or plain values that a program made.

    Attributes:
        path: the file, as the user named it; ``config`` where there is none.
        data: plain dicts, lists and scalars.
        lines: line (from 1) of each key and item, by its path.
        text: the file's lines, for showing the one that is wrong.
        overridden: the text of the override that set a path.
        problems: mistakes found while parsing that do not stop it.
    """

    path: Path
    data: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    overridden: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, key: KeyPath) -> int | None:
        """Return the line of ``key``, or of its nearest ancestor that has one."""
        while key:
            if key in self.lines:
                return self.lines[key]
            key = key[:-1]
        return None


def read_source(path: Path, *, what: str = "run file", hint: str | None = None) -> Source:
    """Read and parse the YAML file at ``path``.

    Args:
        path: the file.
        what: what the file is, for messages.
        hint: how such a file starts, when it is no run file.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is not UTF-8, not YAML, or not a mapping.
    """
    text = _read_text(path, what)
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"the file has a character that YAML does not allow: {_character(error.character)}",
            where=f"{path}:{line}",
            hint="remove the character, or write it escaped in double quotes",
        ) from None
    except MarkedYAMLError as error:
        raise _syntax_error(path, text, error) from None
    except YAMLError as error:
        raise ConfigError(f"the file is not YAML: {error}", where=str(path)) from None
    if root is None:
        raise ConfigError(
            f"expected a {what}, received an empty one",
            where=str(path),
            hint=hint or "`graphbox init` writes one to start from",
        )
    source = Source(path=path, data=None, text=text.splitlines())
    source.data = _Reader(source).value(root, ())
    if not isinstance(source.data, dict):
        raise ConfigError(
            f"expected a mapping of keys to values, received {describe_value(source.data)}",
            where=f"{path}:{root.start_mark.line + 1}",
            hint=hint or "a run file starts with `version: 1`",
        )
    return source


def source_of(values: Mapping[str, Any]) -> Source:
    """Return a run file that a program made as plain values; they are copied, tuples become lists.

    Raises:
        ConfigError: a value has no form in a run file, or a key is no text.
    """
    return Source(path=Path("config"), data=_plain(values, ()))


def _plain(value: Any, path: KeyPath) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(
                    f"expected keys that are text, received {key!r}", where=dotted(path) or "config"
                )
        return {key: _plain(each, (*path, key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, (*path, index)) for index, each in enumerate(value)]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise ConfigError(
        f"expected text, a number, a list or a mapping, received {type(value).__name__}",
        where=dotted(path) or "config",
        hint="data goes into `graph=` of `graphbox.run`",
    )


def parse_value(text: str, where: str) -> Any:
    """Return ``text``, one YAML value written on one line, as a plain value.

    Raises:
        ConfigError: it is not YAML.
    """
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except YAMLError as error:
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(
            f"expected a YAML value, received `{text}` ({problem})",
            where=where,
            hint="quote the whole override for the shell, and text with special characters for YAML",
        ) from None
    if root is None:
        return None
    source = Source(path=Path(where), data=None)
    value = _Reader(source).value(root, ())
    if source.problems:
        raise ConfigError(source.problems[0].message, where=where)
    return value


def describe_value(value: Any) -> str:  # noqa: PLR0911 (a table of types)
    """Return how a message names a received value: ``the text 'abc'``, ``a list``, ``nothing``."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {value!r}"
        case int() | float():
            return str(value)
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return "a mapping"
    return type(value).__name__


def _read_text(path: Path, what: str) -> str:
    try:
        if path.is_dir():
            raise NotFoundError(
                f"expected a {what}, received a folder", where=str(path), hint="name the .yaml file in it"
            )
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        hint = "check the path"
        if path.parent.is_dir():
            beside = sorted(p.name for p in path.parent.iterdir() if p.suffix in {".yaml", ".yml"})[:5]
            if beside:
                hint = f"{what}s there: {', '.join(beside)}"
        raise NotFoundError(f"there is no such {what}", where=str(path), hint=hint) from None
    except OSError as error:
        raise ConfigError(f"the {what} cannot be read: {error.strerror}", where=str(path)) from None
    if len(raw) > _MAX_BYTES:
        raise ConfigError(
            f"expected a {what} of at most {_MAX_BYTES} bytes, received a larger file", where=str(path)
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"expected UTF-8 text, received the byte 0x{raw[error.start]:02x} at offset {error.start}",
            where=f"{path}:{line}",
            hint="save the file as UTF-8",
        ) from None


def _syntax_error(path: Path, text: str, error: MarkedYAMLError) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 1
    lines = text.splitlines()
    shown = lines[line - 1] if line <= len(lines) else ""
    problem = str(error.problem or error.context or error).replace("'\\t'", "a tab")
    if "\t" in shown[: mark.column + 1 if mark is not None else 0]:
        return ConfigError(
            "expected spaces, received a tab: YAML does not allow tabs for indentation",
            where=f"{path}:{line}",
            hint="replace the tab by spaces",
        )
    if "but found another document" in problem:
        return ConfigError(
            "expected one YAML document, received several",
            where=f"{path}:{line}",
            hint="remove the line `---`",
        )
    context = f" {error.context}" if error.context else ""
    return ConfigError(
        f"the file is not valid YAML: {problem}{context}",
        where=f"{path}:{line}",
        hint="often the cause is on the line before: a missing colon, quote or bracket, or the indentation",
    )


def _character(character: Any) -> str:
    return f"U+{character if isinstance(character, int) else ord(character):04X}"


class _Reader:
    """Turns composed YAML nodes into plain values and notes the line of each."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._constructor = YAML(typ="safe", pure=True).constructor
        self._open: set[int] = set()
        self._values = 0

    def value(self, node: Node, path: KeyPath) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES:
            self._stop(node, "the file unfolds to more than a million values", "use fewer aliases (`*name`)")
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self._stop(node, "an alias (`*name`) refers to the value it is part of", "write the value out")
        self._open.add(id(node))
        try:
            if isinstance(node, SequenceNode):
                return self._sequence(node, path)
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        kind = str(node.tag).removeprefix(_PREFIX)
        if kind in {"int", "float", "bool", "null"}:
            return self._constructor.construct_object(node)
        if kind not in {"str", "timestamp"}:
            self._problem(node, path, f"the YAML tag `!{kind}` is not allowed here", "write a plain value")
        return node.value

    def _sequence(self, node: SequenceNode, path: KeyPath) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self._source.lines[*path, index] = item.start_mark.line + 1
            items.append(self.value(item, (*path, index)))
        return items

    def _mapping(self, node: Node, path: KeyPath) -> dict[str, Any]:
        if not isinstance(node, MappingNode):
            self._stop(node, "expected a mapping, a list or a value", None)
        merged: dict[str, Any] = {}
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _PREFIX + "merge":
                merged = {**self._merge(value_node, path), **merged}
                continue
            key = self._key(key_node, path)
            line = key_node.start_mark.line + 1
            if key in mapping:
                first = self._source.lines[*path, key]
                self._problem(
                    key_node,
                    path,
                    f"the key `{key}` is given twice, first on line {first}",
                    "remove one of them",
                )
            self._source.lines[*path, key] = line
            mapping[key] = self.value(value_node, (*path, key))
        return {**merged, **mapping}

    def _key(self, node: Node, path: KeyPath) -> str:
        if isinstance(node, ScalarNode):
            return str(node.value)
        self._problem(node, path, "expected a name as key, received a list or a mapping", None)
        return ""

    def _merge(self, node: Node, path: KeyPath) -> dict[str, Any]:
        parts = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, MappingNode):
                self._stop(part, "expected a mapping after the merge key `<<`", "write `<<: *name`")
            merged = {**self.value(part, path), **merged}
        return merged

    def _problem(self, node: Node, path: KeyPath, message: str, hint: str | None) -> None:
        line = node.start_mark.line + 1
        self._source.problems.append(Problem(key=path, message=message, hint=hint, line=line))

    def _stop(self, node: Node, message: str, hint: str | None) -> None:
        raise ConfigError(message, where=f"{self._source.path}:{node.start_mark.line + 1}", hint=hint)
