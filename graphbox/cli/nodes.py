"""Nodes that commands are about: named by their original ids, and whether a network can embed them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphbox.errors import NotFoundError, UsageError
from graphbox.words import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphbox.cli.session import Session
    from graphbox.graph import Graph
    from graphbox.train import TrainedNetwork

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INT64 = range(-(2**63), 2**63)

NodesOption = Annotated[
    Path | None,
    typer.Option("--nodes", help="File with an original id on each line: these alone, in its order."),
]


def original_id(graph: Graph, node_type: str, text: str, where: str) -> str | int:
    """Return an id as the node type has it: some have integers.

    Args:
        graph: the graph.
        node_type: the type.
        text: the id as it was given.
        where: where it was given, for the error.

    Raises:
        UsageError: the ids are integers, and this is none.
    """
    if graph.id_type(node_type) != "int64":
        return text
    if not _is_int64(text):
        raise UsageError(
            f"expected an integer id of `{node_type}`, received `{text}`",
            where=where,
            hint=_some_ids(graph, node_type),
        )
    return int(text)


def find_node(
    graph: Graph, node_types: Sequence[str], text: str, node_type: str | None
) -> tuple[str, NDArray[np.int64]]:
    """Return the type and the index, int64 [1], of the node with an original id.

    Args:
        graph: the graph.
        node_types: types to look in, at least one.
        text: the id as it was given.
        node_type: the type to look in alone, one of these; None: all.

    Raises:
        NotFoundError: no node has the id.
        UsageError: nodes of several types have it, or it is no integer where ids are integers.
    """
    types = node_types if node_type is None else [node_type]
    found: list[tuple[str, NDArray[np.int64]]] = []
    for name in types:
        if graph.id_type(name) == "int64" and not _is_int64(text) and len(types) > 1:
            continue
        try:
            found.append((name, graph.index(name, [original_id(graph, name, text, f"node `{text}`")])))
        except NotFoundError:
            if len(types) == 1:
                raise
    if len(found) > 1:
        names = [name for name, _ in found]
        raise UsageError(
            f"expected the node type of the id `{text}`, which {', '.join(names)} have, received none",
            where="--type",
            hint=" or ".join(f"`--type {name}`" for name in names),
        )
    # In no type: the error of the first one suggests a close id.
    return found[0] if found else find_node(graph, node_types, text, node_types[0])


def _is_int64(text: str) -> bool:
    return _INTEGER.fullmatch(text.strip()) is not None and int(text) in _INT64


def chosen_nodes(graph: Graph, node_type: str, nodes: Path | None) -> NDArray[np.int64]:
    """Return the nodes that a file names; without one all that were not removed."""
    import numpy as np

    if nodes is not None:
        return _listed_nodes(graph, node_type, nodes)
    return np.delete(np.arange(graph.num_nodes(node_type)), graph.removed_nodes(node_type))


def nodes_to_embed(
    network: TrainedNetwork, graph: Graph, chosen: Mapping[str, NDArray[np.int64]], *, are_named: bool
) -> tuple[dict[str, NDArray[np.int64]], dict[str, int]]:
    """Return of some nodes those that a graph network has anything to embed by, and how many it has not.

    Args:
        network: the network.
        graph: the graph.
        chosen: nodes by node type.
        are_named: whether the user named each: then there may be none without anything.

    Raises:
        UsageError: a node that was named has nothing.
    """
    kept, left_out = {}, {}
    for node_type, nodes in chosen.items():
        known = network.is_known(graph, node_type)[nodes]
        if are_named and not known.all():
            first = graph.ids(node_type, nodes[~known][:1]).tolist()[0]
            raise UsageError(
                f"expected nodes with a row of training, features, or edges towards them, received "
                f"{counted(int((~known).sum()), 'node')} with none of it, first `{first}`",
                where=f"node type {node_type}",
                hint="append their edges to the graph, or leave them out",
            )
        kept[node_type] = nodes[known]
        if not known.all():
            left_out[node_type] = int((~known).sum())
    return kept, left_out


def tell_left_out(session: Session, left_out: Mapping[str, int]) -> None:
    """Say of how many nodes nothing is known."""
    for node_type, count in left_out.items():
        session.note(
            f"left out: {counted(count, 'node')} of type {node_type} with neither a row of training nor "
            "features nor edges towards them"
        )


def _listed_nodes(graph: Graph, node_type: str, path: Path) -> NDArray[np.int64]:
    """Return the nodes whose ids stand in a file, each once.

    Raises:
        UsageError: the file cannot be read, or has something else than ids.
        NotFoundError: there is no such node.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"expected a text file of ids, received one that cannot be read: {error}",
            where=f"--nodes {path}",
            hint="write one id on each line",
        ) from error
    ids = [original_id(graph, node_type, line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    found: NDArray[np.int64] = graph.index(node_type, list(dict.fromkeys(ids)))
    return found


def _some_ids(graph: Graph, node_type: str) -> str | None:
    some = [str(each) for each in graph.arrow_ids(node_type)[:3].to_pylist() if each is not None]
    return f"there are: {', '.join(some)}, ..." if some else None
