"""The interface of dense conversions: a method rewrites the constant matrix products of an ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphbox.compress.dense.calibration import Calibration

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ConversionReport", "ConvertedOnnx", "DenseMethod", "OutputError", "Rounding"]

Float32: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class OutputError:
    """Difference between the outputs of two models on the same feeds.

    Attributes:
        max_relative: largest difference of an element over the largest element, of the worst output.
        rms_relative: root mean square difference over the root mean square, of the worst output.
        rows: rows of the feeds.
    """

    max_relative: float
    rms_relative: float
    rows: int


@dataclass(frozen=True)
class ConversionReport:
    """Outcome of one conversion.

    Attributes:
        method: name of the method, as manifests have it.
        converted: names of the weights that were converted.
        kept_float: names of the weights of matrix products that are still float32.
        weight_bytes_before: of all of these weights.
        weight_bytes_after: of all of these weights, scales and sums included.
        file_bytes_before: of the ONNX file.
        file_bytes_after: of the converted ONNX file.
        error: difference of the outputs; None where no feeds were given and none can be made up.
        notes: remarks on the calibration feeds.
    """

    method: str
    converted: tuple[str, ...]
    kept_float: tuple[str, ...]
    weight_bytes_before: int
    weight_bytes_after: int
    file_bytes_before: int
    file_bytes_after: int
    error: OutputError | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConvertedOnnx:
    """A converted ONNX file and its report."""

    model: bytes
    report: ConversionReport


@dataclass(frozen=True)
class Rounding:
    """Rounding of the operands of one product in a converted model; training computes with rounded values.

    Attributes:
        weight: returns the values that the codes of a matrix float32 [rows, columns] stand for.
        activations: returns the values that the codes of a tensor float32 [..., rows] stand for.
    """

    weight: Callable[[Float32], Float32]
    activations: Callable[[Tensor], Tensor]


@runtime_checkable
class DenseMethod(Protocol):
    """A way to make the ONNX part of a model smaller or faster, without training.

    Attributes:
        name: in manifests and reports, e.g. ``int8_dynamic``.
        user_name: in run files and options, e.g. ``int8``.
        needs_calibration: whether `convert` needs feeds.
        default_on: names of the adapters on which `graphbox.compress.dense.default_dense` takes this method.
        is_coarse: whether models lose enough by its rounding for training to be worth its time.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see the class

    @property
    def user_name(self) -> str: ...  # noqa: D102

    @property
    def needs_calibration(self) -> bool: ...  # noqa: D102

    @property
    def default_on(self) -> frozenset[str]: ...  # noqa: D102

    @property
    def is_coarse(self) -> bool: ...  # noqa: D102

    def convert(
        self, model: bytes, calibration: Calibration | None = None, layers: Collection[str] | None = None
    ) -> ConvertedOnnx:
        """Convert a model; `graphbox.compress.dense.convert_dense` also compares the outputs.

        Args:
            model: a float32 ONNX file's content.
            calibration: feeds of real requests.
            layers: names of the weights to convert, see `graphbox.compress.dense.layers_of`; None: all that
                are worth it.

        Raises:
            UnsupportedError: nothing in it can be converted.
            UsageError: a layer is unknown or cannot be converted, or the method needs a calibration.
            DataError: a weight is not finite.
            BackendMissingError: a package is missing.
        """
        ...

    def roundings(
        self, model: bytes, calibration: Calibration | None = None, layers: Collection[str] | None = None
    ) -> Mapping[str, Rounding]:
        """Return the rounding of each product that `convert` converts, by the name of the product's output.

        Products that round too finely to be trained for are left out. Arguments and errors are those of
        `convert`.
        """
        ...
