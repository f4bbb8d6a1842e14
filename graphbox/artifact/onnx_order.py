"""Refuses ONNX files whose nodes are not in the order of computation, as the format demands: cyclic ones too.

OpenVINO follows a cycle until memory is exhausted.
"""

from __future__ import annotations

from typing import Final

from graphbox.artifact.protobuf import WireReader
from graphbox.errors import FormatError

__all__ = ["check_order"]

# Fields of onnx.proto3.
_MODEL_GRAPH, _MODEL_FUNCTION = 7, 25
_GRAPH_NODE, _FUNCTION_NODE = 1, 7
_NODE_INPUT, _NODE_OUTPUT, _NODE_ATTRIBUTE = 1, 2, 5
_ATTRIBUTE_GRAPHS: Final = frozenset({6, 11})


def check_order(model: bytes, where: str) -> None:
    """Check that each node comes after the nodes that it reads from, in subgraphs and functions as well.

    Args:
        model: the content of an ``.onnx`` file, whose nesting is bounded.
        where: the file, named in messages.

    Raises:
        FormatError: a node reads what itself or a later one computes, or the bytes are damaged.
    """
    _OrderReader(model, where).check(len(model))


class _OrderReader(WireReader):
    def check(self, stop: int) -> None:
        """Check the main graph and the functions."""
        for field, wire_type, _, body, end in self._fields(0, stop):
            if wire_type == 2 and field == _MODEL_GRAPH:
                self._read_names(body, end, _GRAPH_NODE)
            elif wire_type == 2 and field == _MODEL_FUNCTION:
                self._read_names(body, end, _FUNCTION_NODE)

    def _read_names(self, start: int, stop: int, node_field: int) -> set[str]:
        """Check a graph, and return the names that its nodes read."""
        nodes = [
            self._node(body, end)
            for field, wire_type, _, body, end in self._fields(start, stop)
            if (field, wire_type) == (node_field, 2)
        ]
        not_computed = set().union(*(outputs for _, outputs in nodes))
        for inputs, outputs in nodes:
            if early := inputs & not_computed:
                raise FormatError(
                    "expected nodes in the order of computation, received one that reads "
                    f"`{min(early):.100}` before it is computed",
                    where=self._where,
                )
            not_computed -= outputs
        return set().union(*(inputs for inputs, _ in nodes))

    def _node(self, start: int, stop: int) -> tuple[set[str], set[str]]:
        """Return the names that a node, with its subgraphs, reads, and those that it computes."""
        names: dict[int, set[str]] = {_NODE_INPUT: set(), _NODE_OUTPUT: set()}
        for field, wire_type, _, body, end in self._fields(start, stop):
            if wire_type != 2:
                continue
            if field in names and body < end:
                names[field].add(self._text(body, end))
            elif field == _NODE_ATTRIBUTE:
                for number, kind, _, graph, graph_end in self._fields(body, end):
                    if kind == 2 and number in _ATTRIBUTE_GRAPHS:
                        names[_NODE_INPUT] |= self._read_names(graph, graph_end, _GRAPH_NODE)
        return names[_NODE_INPUT], names[_NODE_OUTPUT]
