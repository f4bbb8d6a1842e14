"""ONNX graphs as the conversions read and write them: constants, matrix products, the final checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import inspect_onnx
from graphbox.compress.dense.method import ConversionReport, ConvertedOnnx
from graphbox.errors import DataError, UnsupportedError, UsageError, did_you_mean, missing_extra

__all__ = ["Graph", "Product", "nothing_to_convert"]

_PRODUCTS = frozenset({"Gemm", "MatMul"})


@dataclass(frozen=True)
class Product:
    """A matrix product with a constant: ``output = x @ weight + bias``.

    Attributes:
        node: position among the graph's nodes.
        operator: ``Gemm`` or ``MatMul``.
        x: name of the left operand.
        weight: name of the constant; also the name of the layer.
        bias: name of the value that a Gemm adds; empty: none.
        output: name of the result.
        is_transposed: whether the constant is stored as ``[columns, rows]``.
        is_plain: False for a Gemm with factors or a transposed left operand.
        rank: number of dimensions of ``x``; None: unknown.
        rows: of the weight, the inner dimension of the product.
        columns: of the weight.
    """

    node: int
    operator: str
    x: str
    weight: str
    bias: str
    output: str
    is_transposed: bool
    is_plain: bool
    rank: int | None
    rows: int
    columns: int


class Graph:
    """An ONNX model under change.

    Args:
        model: the content of a self-contained ONNX file.

    Attributes:
        proto: the ModelProto.
        opset: version of ONNX's own operators.

    Raises:
        FormatError: the model is damaged or refers to other files.
        DataError: a constant is not finite.
        BackendMissingError: the package onnx is missing.
    """

    def __init__(self, model: bytes) -> None:
        try:
            import onnx
        except ImportError as error:
            raise missing_extra("onnx", "train") from error
        summary = inspect_onnx(model, "the model")
        self.opset = summary.opsets.get("", 0)
        self.proto: Any = onnx.load_model_from_string(model)
        self._onnx: Any = onnx
        self._size_bytes = len(model)
        self._constants_to_initializers()
        self._tensors = {tensor.name: tensor for tensor in self.proto.graph.initializer}
        self._added: dict[str, Any] = {}
        self._added_names: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._names = self._all_names()
        self._check_finite()

    @property
    def nodes(self) -> list[Any]:
        """The nodes of the main graph, in order."""
        return list(self.proto.graph.node)

    def array(self, name: str) -> npt.NDArray[Any] | None:
        """Return a constant; None: there is none of this name."""
        tensor = self._tensors.get(name) or self._added.get(name)
        return None if tensor is None else self._onnx.numpy_helper.to_array(tensor)

    def float_constants(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the float32 constants that nodes read and that are no inputs of the model."""
        inputs = {value.name for value in self.proto.graph.input}
        used = set(_names_read(self.proto.graph)) - inputs
        return {
            name: self._onnx.numpy_helper.to_array(tensor)
            for name, tensor in self._tensors.items()
            if tensor.data_type == self._onnx.TensorProto.FLOAT and name in used
        }

    def drop_constant(self, name: str) -> None:
        """Remove a constant: a node will compute the value of this name."""
        self._dropped.add(name)

    def replace_constant(self, name: str, value: npt.NDArray[Any]) -> None:
        """Replace a constant by one of another shape under the same name."""
        self._tensors[name].CopyFrom(self._onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))

    def names_read(self, node: Any) -> list[str]:
        """Return the names that a node reads, those of its subgraphs included."""
        return list(_names_of(node))

    def readers(self, name: str) -> int:
        """Return how often a value is read, as an output of the model too."""
        read = [*_names_read(self.proto.graph), *self.outputs()]
        return read.count(name)

    def between(self, first: Product, following: Collection[Product]) -> list[Any]:
        """Return the node of a product, and the nodes on its result up to other products."""
        ends = {product.node for product in following}
        reached = {first.output}
        nodes = [self.proto.graph.node[first.node]]
        for number, node in enumerate(self.proto.graph.node):
            if number not in ends and number != first.node and reached & set(node.input):
                reached.update(node.output)
                nodes.append(node)
        return nodes

    def outputs(self) -> tuple[str, ...]:
        """Return the names of the graph's outputs."""
        return tuple(value.name for value in self.proto.graph.output)

    def products(self) -> list[Product]:
        """Return the products with a float32 matrix as constant, in the order of computation."""
        ranks = self._ranks()
        inputs = {value.name for value in self.proto.graph.input}
        found = []
        for number, node in enumerate(self.proto.graph.node):
            weight = node.input[1] if node.op_type in _PRODUCTS and len(node.input) > 1 else ""
            tensor = self._tensors.get(weight)
            if tensor is None or weight in inputs or node.domain or len(tensor.dims) != 2:
                continue
            if tensor.data_type != self._onnx.TensorProto.FLOAT:
                continue
            attributes = self.attributes(node)
            is_transposed = bool(attributes.get("transB", 0))
            scaled = attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0
            rows, columns = tensor.dims[::-1] if is_transposed else tensor.dims
            found.append(
                Product(
                    node=number,
                    operator=node.op_type,
                    x=node.input[0],
                    weight=weight,
                    bias=node.input[2] if len(node.input) > 2 else "",
                    output=node.output[0],
                    is_transposed=is_transposed,
                    is_plain=not scaled and not attributes.get("transA", 0),
                    rank=ranks.get(node.input[0]),
                    rows=int(rows),
                    columns=int(columns),
                )
            )
        return found

    def matrix(self, product: Product) -> npt.NDArray[np.float32]:
        """Return the weight of a product as ``[rows, columns]``."""
        array = self.array(product.weight)
        assert array is not None  # noqa: S101 - `products` found it
        return array.T if product.is_transposed else array

    def attributes(self, node: Any) -> dict[str, Any]:
        """Return the attributes of a node by name."""
        value = self._onnx.helper.get_attribute_value
        return {attribute.name: value(attribute) for attribute in node.attribute}

    def node(self, operator: str, inputs: Iterable[str], output: str, **attributes: Any) -> Any:
        """Return a new node."""
        return self._onnx.helper.make_node(operator, list(inputs), [output], **attributes)

    def import_domain(self, domain: str, version: int) -> None:
        """Declare the operators of another domain, unless that is done."""
        if domain not in {each.domain for each in self.proto.opset_import}:
            self.proto.opset_import.append(self._onnx.helper.make_opsetid(domain, version))

    def fresh(self, name: str) -> str:
        """Return a name like ``name`` that no value of the model has."""
        taken = self._names
        unused = name
        number = 1
        while unused in taken:
            number += 1
            unused = f"{name}_{number}"
        taken.add(unused)
        return unused

    def add_constant(self, name: str, value: npt.NDArray[Any] | np.generic) -> str:
        """Add a constant, or reuse one that was added under this name, and return its name in the graph."""
        if name not in self._added_names:
            self._added_names[name] = self.fresh(name)
            unused = self._added_names[name]
            self._added[unused] = self._onnx.numpy_helper.from_array(np.asarray(value), unused)
        return self._added_names[name]

    def replace_nodes(self, nodes: Iterable[Any]) -> None:
        """Replace all nodes of the main graph."""
        kept = list(nodes)
        self.proto.graph.ClearField("node")
        self.proto.graph.node.extend(kept)

    def finished(self) -> bytes:
        """Return the file: without stale shapes and unused constants, checked and self-contained."""
        graph = self.proto.graph
        # The shapes noted for the old values do not describe the new ones.
        graph.ClearField("value_info")
        used = set(_names_read(graph)) | {value.name for value in graph.output}
        constants = [*graph.initializer, *self._added.values()]
        kept = [tensor for tensor in constants if tensor.name in used - self._dropped]
        graph.ClearField("initializer")
        graph.initializer.extend(kept)
        self._onnx.checker.check_model(self.proto, full_check=True)
        model = self.unchecked()
        inspect_onnx(model, "the converted model")
        return model

    def unchecked(self) -> bytes:
        """Return the file as it is now."""
        model: bytes = self.proto.SerializeToString()
        return model

    def converted(self, method: str, bytes_after: dict[str, int], kept: Iterable[str]) -> ConvertedOnnx:
        """Finish the file and report on it.

        Args:
            method: name of the method.
            bytes_after: bytes that took the place of each converted weight.
            kept: weights of products that stay float32.
        """
        kept_bytes = {name: self._size(name) for name in kept if name not in bytes_after}
        before = sum(self._size(name) for name in bytes_after)
        model = self.finished()
        report = ConversionReport(
            method=method,
            converted=tuple(sorted(bytes_after)),
            kept_float=tuple(sorted(kept_bytes)),
            weight_bytes_before=before + sum(kept_bytes.values()),
            weight_bytes_after=sum(bytes_after.values()) + sum(kept_bytes.values()),
            file_bytes_before=self._size_bytes,
            file_bytes_after=len(model),
        )
        return ConvertedOnnx(model, report)

    def selected(
        self, method: str, suited: Iterable[Product], layers: Collection[str] | None
    ) -> list[Product]:
        """Return the products to convert.

        Args:
            method: name of the method, for messages.
            suited: products that the method can convert.
            layers: names of weights; None: all.

        Raises:
            UnsupportedError: there is nothing to convert.
            UsageError: a layer is unknown, or the method cannot convert it.
        """
        candidates = list(suited)
        if layers is None:
            if not candidates:
                raise nothing_to_convert(method, [product.weight for product in self.products()])
            return candidates
        known = {product.weight for product in candidates}
        for name in layers:
            if name not in known:
                raise UsageError(
                    f"expected layers among {sorted(known)}, which {method} can convert, received `{name}`",
                    hint=did_you_mean(name, known),
                )
        if not layers:
            raise UsageError(f"expected at least one layer for {method} to convert, received none")
        return [product for product in candidates if product.weight in set(layers)]

    def _all_names(self) -> set[str]:
        graph = self.proto.graph
        computed = {name for node in graph.node for name in (*node.input, *node.output)}
        return computed | {value.name for value in (*graph.input, *graph.output)} | set(self._tensors)

    def _size(self, name: str) -> int:
        array = self.array(name)
        return 0 if array is None else int(array.nbytes)

    def _constants_to_initializers(self) -> None:
        graph = self.proto.graph
        nodes = []
        for node in graph.node:
            value = node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
            if value is None or value.name != "value" or node.output[0] in self.outputs():
                nodes.append(node)
                continue
            tensor = graph.initializer.add()
            tensor.CopyFrom(value.t)
            tensor.name = node.output[0]
        self.replace_nodes(nodes)

    def _check_finite(self) -> None:
        for name, tensor in self._tensors.items():
            if tensor.data_type == self._onnx.TensorProto.FLOAT:
                array = self._onnx.numpy_helper.to_array(tensor)
                if not np.isfinite(array).all():
                    raise DataError(
                        f"expected finite weights, received {int((~np.isfinite(array)).sum())} that are "
                        "NaN or infinite",
                        where=f"constant `{name}`",
                        hint="train the model again with a lower learning rate or gradient clipping",
                    )

    def _ranks(self) -> dict[str, int]:
        inferred = self._onnx.shape_inference.infer_shapes(self.proto).graph
        return {
            value.name: len(value.type.tensor_type.shape.dim)
            for value in (*inferred.input, *inferred.value_info, *inferred.output)
            if value.type.tensor_type.HasField("shape")
        }


def nothing_to_convert(method: str, received: Collection[str]) -> UnsupportedError:
    """Return the error that a model has no product that a method can convert."""
    return UnsupportedError(
        f"expected a matrix product with a constant that {method} can convert, "
        f"received {sorted(received) or 'none'}",
        hint="set `dense: float32` for this model",
    )


def _names_read(graph: Any) -> Iterator[str]:
    """Yield the names that nodes read, those of subgraphs included."""
    for node in graph.node:
        yield from _names_of(node)


def _names_of(node: Any) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for subgraph in (attribute.g, *attribute.graphs):
            yield from _names_read(subgraph)
            yield from (value.name for value in subgraph.output)
