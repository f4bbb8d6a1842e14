"""Weights in blocks of 4 or 8 bits: ``MatMulNBits``, an operator of ONNX Runtime.

Each column of a weight is cut into blocks with one scale each: ``weight = scale * (code - 2 ** (bits - 1))``.
ONNX Runtime's kernels quantize the left operand to int8 in the same blocks, row by row (``accuracy_level``
4), and multiply integers. With that they are the fastest for single rows, and slower than int8 products for
batches. Without it, they expand the weights in every call: a tower took 1.9 ms instead of 0.07 with 8 bits.

The codes are made here and not by onnxruntime.quantization, whose module for it changes the logging of the
process and needs two packages more, and which takes the scale of a block from its largest weight alone: the
scale with the least squared error is smaller for 4 bits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.method import ConvertedOnnx, Rounding
from graphbox.compress.dense.onnx_graph import Graph, Product
from graphbox.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BlockCodes", "BlockWeights", "block_codes"]

_BLOCKS = (16, 32, 64, 128, 256)
_INT8_ACTIVATIONS = 4
_LARGEST_ACTIVATION = 127
_SCALE_FACTORS = {4: np.linspace(1.0, 0.7, 13), 8: np.ones(1)}
"""Candidates for a block's scale, relative to the one at which its largest weight has the last code."""
_DOMAIN = "com.microsoft"


@dataclass(frozen=True, eq=False)
class BlockCodes:
    """Codes uint8 [columns, blocks, bytes of a block] and scales float32 [columns * blocks]."""

    codes: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.float32]

    def values(self, rows: int, bits: int) -> npt.NDArray[np.float32]:
        """Return the matrix float32 [rows, columns] that the codes stand for."""
        codes = self.codes
        if bits == 4:
            codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:2], -1)
        middle = 1 << (bits - 1)
        scales = self.scales.reshape(*codes.shape[:2], 1)
        matrix = ((codes.astype(np.float32) - middle) * scales).reshape(len(codes), -1)
        return np.ascontiguousarray(matrix[:, :rows].T)


@dataclass(frozen=True)
class BlockWeights:
    """Weights of ``bits`` bits in blocks; for ONNX Runtime.

    Attributes:
        bits: of a code.
        block: weights of a column with one scale: 16, 32, 64, 128 or 256.
    """

    bits: Literal[4, 8]
    block: int = 32

    needs_calibration = False
    default_on: frozenset[str] = frozenset()

    @property
    def is_coarse(self) -> bool:
        """True with 4 bits: models lose by the rounding."""
        return self.bits == 4

    def __post_init__(self) -> None:
        if self.block not in _BLOCKS:
            raise UsageError(f"expected blocks of {', '.join(map(str, _BLOCKS))}, received {self.block}")

    @property
    def name(self) -> str:
        """Name in manifests: ``int8_weights`` or ``int4_weights``."""
        return f"int{self.bits}_weights"

    @property
    def user_name(self) -> str:
        """Name in run files, the same."""
        return self.name

    def convert(
        self,
        model: bytes,
        calibration: Calibration | None = None,  # noqa: ARG002 - weights are rounded, nothing is measured
        layers: Collection[str] | None = None,
    ) -> ConvertedOnnx:
        """Convert a model; see `graphbox.compress.dense.DenseMethod`."""
        graph = Graph(model)
        products = graph.products()
        by_node = {product.node: product for product in self._chosen(graph, layers)}
        bytes_after: dict[str, int] = {}
        nodes: list[Any] = []
        for number, node in enumerate(graph.nodes):
            if number in by_node:
                nodes += self._nodes(graph, by_node[number], node.name, bytes_after)
            else:
                nodes.append(node)
        graph.replace_nodes(nodes)
        graph.import_domain(_DOMAIN, 1)
        kept = [product.weight for product in products if product.node not in by_node]
        return graph.converted(self.name, bytes_after, kept)

    def roundings(
        self,
        model: bytes,
        calibration: Calibration | None = None,  # noqa: ARG002 - as in `convert`
        layers: Collection[str] | None = None,
    ) -> dict[str, Rounding]:
        """Return the rounding of each product; see `graphbox.compress.dense.DenseMethod`."""
        rounding = Rounding(self._rounded_weight, self._rounded_activations)
        return {product.output: rounding for product in self._chosen(Graph(model), layers)}

    def _chosen(self, graph: Graph, layers: Collection[str] | None) -> list[Product]:
        return graph.selected(self.name, [each for each in graph.products() if each.is_plain], layers)

    def _rounded_weight(self, matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return block_codes(matrix, self.bits, self.block).values(len(matrix), self.bits)

    def _rounded_activations(self, x: Tensor) -> Tensor:
        """Round as the kernels do: each block of a row has the step at which its largest element is 127."""
        width = x.shape[-1]
        whole = x.new_zeros((*x.shape[:-1], -(-width // self.block) * self.block))
        whole[..., :width] = x
        blocks = whole.reshape(*x.shape[:-1], -1, self.block)
        step = blocks.abs().amax(-1, keepdim=True) / _LARGEST_ACTIVATION
        codes = (blocks / step.where(step > 0, step.new_ones(()))).round()
        return (codes * step).reshape(whole.shape)[..., :width]

    def _nodes(self, graph: Graph, product: Product, name: str, bytes_after: dict[str, int]) -> list[Any]:
        codes = block_codes(graph.matrix(product), self.bits, self.block)
        names = [
            graph.add_constant(f"{product.weight}_codes", codes.codes),
            graph.add_constant(f"{product.weight}_scales", codes.scales),
        ]
        bytes_after[product.weight] = codes.codes.nbytes + codes.scales.nbytes
        multiplied = graph.fresh(f"{product.output}_product") if product.bias else product.output
        node = graph.node(
            "MatMulNBits",
            [product.x, *names],
            multiplied,
            domain=_DOMAIN,
            name=name,
            K=product.rows,
            N=product.columns,
            bits=self.bits,
            block_size=self.block,
            accuracy_level=_INT8_ACTIVATIONS,
        )
        added = [graph.node("Add", [multiplied, product.bias], product.output)] if product.bias else []
        return [node, *added]


def block_codes(matrix: npt.NDArray[np.float32], bits: int, block: int) -> BlockCodes:
    """Quantize the columns of a matrix in blocks.

    Args:
        matrix: finite float32 [rows, columns]; rows beyond a multiple of ``block`` are padded with zeros.
        bits: of a code, 4 or 8.
        block: weights with one scale.
    """
    rows, columns = matrix.shape
    middle = 1 << (bits - 1)
    padded = np.zeros((columns, -(-rows // block) * block), np.float32)
    padded[:, :rows] = matrix.T
    blocks = padded.reshape(columns, -1, block)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], axis=2)
    best_scale = best_codes = best_error = None
    for factor in _SCALE_FACTORS[bits]:
        scale = (extreme * np.float32(-factor / middle)).astype(np.float32)
        divisor = np.where(scale != 0, scale, np.float32(1))
        codes = np.rint(blocks / divisor).clip(-middle, middle - 1)
        error = np.square(codes * scale - blocks).sum(axis=2, keepdims=True)
        if best_error is None or best_codes is None or best_scale is None:
            best_scale, best_codes, best_error = scale, codes, error
            continue
        better = error < best_error
        best_scale = np.where(better, scale, best_scale)
        best_codes = np.where(better, codes, best_codes)
        best_error = np.where(better, error, best_error)
    assert best_codes is not None and best_scale is not None  # noqa: S101, PT018 - there is a factor
    unsigned: npt.NDArray[np.uint8] = (best_codes + middle).astype(np.uint8)
    if bits == 4:
        unsigned = unsigned[..., ::2] | (unsigned[..., 1::2] << np.uint8(4))
    return BlockCodes(np.ascontiguousarray(unsigned), best_scale.reshape(-1))
