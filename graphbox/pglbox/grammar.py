"""The little languages inside the values of a PGLBox YAML file: types, their files, metapaths.

::

    etype2files          edge ":" path {"," edge ":" path}            a2b:dirA,b2r2c:dirB
    ntype2files          node ":" path {"," node ":" path}            a:node_types,b:node_types
    edge                 node "2" [relation "2"] node                 a2b, a2clicks2b
    meta_path            path {";" path} | "[" group {"," group} "]"  a2b-b2a;b2a-a2b
    group                path {";" path}
    path                 edge {"-" edge}
    type pairs           node "2" node {";" node "2" node}            w2q;q2t
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from graphbox.errors import UsageError

_TYPE_NAME = re.compile(r"[^\W_](?:[\w-]*[^\W_])?")
_RELATION = "to"
_REVERSE = "rev_"


@dataclass(frozen=True)
class EdgeName:
    """An edge type as PGLBox writes it.

    Attributes:
        source: node type where it starts.
        relation: name of the relation, None for ``a2b``.
        target: node type where it ends.
    """

    source: str
    relation: str | None
    target: str

    def __str__(self) -> str:
        middle = "" if self.relation is None else f"{self.relation}2"
        return f"{self.source}2{middle}{self.target}"

    @property
    def reversed(self) -> EdgeName:
        """The name PGLBox gives to the same edges, backwards."""
        return EdgeName(self.target, self.relation, self.source)

    @property
    def edge_type(self) -> tuple[str, str, str]:
        """The edge type of the run file."""
        return (self.source, self.relation or _RELATION, self.target)

    @property
    def reverse_relation(self) -> str:
        """The relation of the reverse edge type in the run file."""
        return _REVERSE + (self.relation or _RELATION)

    @property
    def reverse_edge_type(self) -> tuple[str, str, str]:
        """The edge type of the run file that holds the same edges backwards."""
        return (self.target, self.reverse_relation, self.source)


def parse_edge(text: str) -> EdgeName:
    """Return the edge type that ``text`` names.

    Raises:
        UsageError: it is neither ``a2b`` nor ``a2r2b``.
    """
    parts = text.strip().split("2")
    if len(parts) not in {2, 3}:
        raise UsageError(
            f"expected an edge type like `a2b` or `a2r2b`, received `{text.strip()}`",
            hint="`2` separates the names, so no name may contain a 2; rename the type here and "
            "in the node files",
        )
    for part in parts:
        _check_name(part, text)
    if len(parts) == 2:
        return EdgeName(parts[0], None, parts[1])
    return EdgeName(parts[0], parts[1], parts[2])


def parse_files(text: str) -> dict[str, str]:
    """Return the path of each type in ``type:path,type:path``.

    Raises:
        UsageError: an item is no ``type:path``, or a type is given twice.
    """
    found: dict[str, str] = {}
    for item in text.split(","):
        name, colon, path = (part.strip() for part in item.partition(":"))
        if not (name and colon and path) or ":" in path:
            raise UsageError(
                f"expected `type:path`, items separated by commas, received `{item.strip()}`",
                hint="neither names nor paths may contain a comma or a colon",
            )
        if name in found:
            raise UsageError(f"the type `{name}` is given twice", hint="remove one of them")
        found[name] = path
    return found


def parse_node_types(text: str) -> dict[str, str]:
    """Return the path of each node type in ``ntype2files``.

    Raises:
        UsageError: see :func:`parse_files`, or a type may not be called so.
    """
    found = parse_files(text)
    for name in found:
        _check_name(name, name)
    return found


def parse_metapaths(text: str) -> list[list[EdgeName]]:
    """Return the metapaths, each a list of edge types; the groups of ``[p1;p2,p3]`` follow one another.

    Raises:
        UsageError: the text is malformed, or two steps of a metapath do not meet.
    """
    inner = text.strip()
    if inner.startswith("[") != inner.endswith("]"):
        raise UsageError(
            f"expected a closing bracket for every opening one, received `{inner}`",
            hint="write `[path;path,path]`, or `path;path` without brackets",
        )
    if inner.startswith("["):
        inner = inner[1:-1].replace(",", ";")
    paths = []
    for path in inner.split(";"):
        if not path.strip():
            raise UsageError(
                "expected metapaths separated by `;`, received an empty one",
                hint="remove the surplus semicolon",
            )
        paths.append([parse_edge(step) for step in path.split("-")])
    for steps in paths:
        for step, following in pairwise(steps):
            if step.target != following.source:
                raise UsageError(
                    f"the metapath `{'-'.join(map(str, steps))}` does not connect: `{step}` arrives at "
                    f"`{step.target}`, `{following}` leaves from `{following.source}`",
                    hint="each step must leave from the node type where the one before arrives",
                )
    return paths


def parse_pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs of node types in ``w2q;q2t``.

    Raises:
        UsageError: an item is no pair.
    """
    pairs = []
    for item in text.split(";"):
        parts = [part.strip() for part in item.split("2")]
        if len(parts) != 2 or not all(parts):
            raise UsageError(f"expected pairs of node types like `w2q;q2t`, received `{item.strip()}`")
        pairs.append((parts[0], parts[1]))
    return pairs


def _check_name(name: str, whole: str) -> None:
    if not _TYPE_NAME.fullmatch(name) or "__" in name or len((_REVERSE + name).encode()) > 64:
        raise UsageError(
            "expected a name of letters, digits, `-` and single `_` (at most 60 bytes, a letter "
            "or digit at both "
            f"ends), received `{name}` in `{whole.strip()}`",
            hint="a run file cannot call a type so: rename it here and in the node files",
        )
