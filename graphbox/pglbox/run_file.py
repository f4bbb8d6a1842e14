"""Writing a run file with comments beside what they concern."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

KeyPath = tuple[str, ...]

_WIDTH = 110
_ONE_LINE = 96


def render(
    values: Mapping[str, Any],
    comments: Mapping[KeyPath, Sequence[str]],
    *,
    head: Sequence[str],
    foot: Sequence[str],
) -> str:
    """Return the text of a run file.

    Args:
        values: its sections; what is below the second level and short is written on one line.
        comments: lines that stand above a key, by its path.
        head: lines that stand at the top.
        foot: lines that stand at the end.
    """
    yaml = YAML(typ="rt", pure=True)
    yaml.width = _WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(_section(values, (), comments), stream)
    parts = [_wrapped(head, 0), stream.getvalue().rstrip("\n"), _wrapped(foot, 0)]
    return "\n".join(part for part in parts if part) + "\n"


def _section(
    values: Mapping[str, Any], path: KeyPath, comments: Mapping[KeyPath, Sequence[str]]
) -> CommentedMap:
    section = CommentedMap()
    for key, value in values.items():
        section[key] = _value(value, (*path, key), comments)
        lines = comments.get((*path, key))
        if lines:
            indent = 2 * len(path)
            text = _wrapped(lines, indent).replace("\n# ", "\n").removeprefix("# ")
            section.yaml_set_comment_before_after_key(key, before=text, indent=indent)
    return section


def _value(value: Any, path: KeyPath, comments: Mapping[KeyPath, Sequence[str]]) -> Any:
    if isinstance(value, Mapping):
        section = _section(value, path, comments)
        if not value or (len(path) > 2 and len(str(value).replace("'", "")) < _ONE_LINE):
            section.fa.set_flow_style()
        return section
    if isinstance(value, list | tuple):
        items = CommentedSeq(_value(item, (*path, ""), comments) for item in value)
        if not any(isinstance(item, Mapping) for item in value) and len(path) > 3:
            items.fa.set_flow_style()
        return items
    return value


def _wrapped(lines: Sequence[str], indent: int) -> str:
    wrapped = []
    for given in lines:
        # Names and values of the other file stand here too: nothing in them may end the comment.
        line = given if given.isprintable() else ascii(given)[1:-1]
        further = "  " + " " * (len(line) - len(line.lstrip()))
        wrapped += textwrap.wrap(
            line,
            _WIDTH - indent - 2,
            subsequent_indent=further,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(f"# {line}".rstrip() for line in wrapped)
