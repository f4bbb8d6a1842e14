"""The dense method for a target: the fastest that its device runs."""

from __future__ import annotations

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.conversion import convert_dense
from graphbox.compress.dense.method import ConvertedOnnx, DenseMethod
from graphbox.compress.dense.registry import dense_method, dense_methods
from graphbox.deploy.select import choose
from graphbox.errors import UnsupportedError

__all__ = ["convert_for_target", "default_dense"]

_EVERYWHERE = "float16"
"""Method for devices on which no method is known to be faster: half the size."""


def default_dense(
    model: bytes, target: str = "auto", calibration: Calibration | None = None
) -> DenseMethod | None:
    """Return the method for a target; None: leave the model as it is.

    That is the method that is known to be the fastest on the target's adapter, if the device supports the
    converted model, and ``float16`` elsewhere.

    Args:
        model: a float32 ONNX file's content.
        target: an adapter's name, ``adapter/device``, or ``auto``.
        calibration: feeds of real requests; without them, methods that need them are not considered.

    Raises:
        NotFoundError: no such target is registered.
        BackendMissingError: it is not available.
    """
    adapter, device = choose(target, model)
    everywhere = dense_method(_EVERYWHERE)
    candidates = [method for method in dense_methods() if adapter.name in method.default_on]
    for method in [*candidates, everywhere]:
        if method.needs_calibration and calibration is None:
            continue
        try:
            converted = method.convert(model, calibration)
        except UnsupportedError:
            continue
        if adapter.supports(converted.model, device).supported:
            return method
    return None


def convert_for_target(
    method: DenseMethod, model: bytes, target: str = "auto", calibration: Calibration | None = None
) -> ConvertedOnnx:
    """Convert a model by a method that was asked for, if the target runs the result.

    Raises:
        UnsupportedError: the device cannot run the converted model, with its reason.
        GateError: outputs are not like those of the original; see `convert_dense`.
    """
    converted = convert_dense(method, model, calibration)
    try:
        choose(target, converted.model)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"expected a target that runs {method.name} models: {error.message}",
            where=f"dense: {method.user_name}",
            hint="set `dense: auto`, which takes a method that the target runs",
        ) from error
    return converted
