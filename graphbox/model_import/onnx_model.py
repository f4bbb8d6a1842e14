"""An ONNX file of another program, checked and tried, as a model version of bare tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.artifact import ArtifactWriter, OnnxSummary, TensorsForm, TensorSpec, inspect_onnx
from graphbox.artifact.onnx_inspection import Dimension
from graphbox.deploy.fastest import open_program
from graphbox.deploy.made_up_feeds import made_up_feeds
from graphbox.deploy.program import CheckedProgram
from graphbox.deploy.protocol import DTYPE_OF, Options
from graphbox.errors import DataError, InvalidRequestError, UnsupportedError, UsageError
from graphbox.model_import.onnx_rewriting import self_contained_model, with_shapes

__all__ = ["ImportedOnnx", "read_onnx_model"]

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

_TRIED_ROWS = 2
# Operators of these sets are tried; whether a runtime has them is its word.
_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
_FEW_ELEMENTS = 10_000
_MOST_ELEMENTS = 1 << 28


@dataclass(frozen=True, eq=False)
class ImportedOnnx:
    """An ONNX model ready to be written.

    Attributes:
        model: the file's content: self-contained, with a shape of each input and output, and a name of each
            dimension of any size.
        opset: version of ONNX's operators; of those of ``ai.onnx.ml`` where it uses no others.
        precision: of its matrix products.
        inputs: in the order of the file.
        outputs: in the order of the file.
        example: inputs of a KServe v2 request that the model answered.
    """

    model: bytes
    opset: int
    precision: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    example: list[dict[str, Any]]

    def write(self, writer: ArtifactWriter, *, join_calls: bool = True) -> None:
        """Write the parts of a model version of kind ``tensors``.

        Args:
            writer: of the version.
            join_calls: see `TensorsForm`.
        """
        writer.set_onnx(
            self.model,
            opset=self.opset,
            precision=self.precision,
            inputs=self.inputs,
            outputs=self.outputs,
        )
        writer.set_preprocess(TensorsForm(join_calls=join_calls))
        writer.set_example(self.example)


def read_onnx_model(path: Path, target: str = "auto", example: Path | None = None) -> ImportedOnnx:
    """Read an ONNX file, check it and run it once.

    Args:
        path: of the file; tensors whose data is in other files of its folder are moved in.
        target: to try it on: an adapter's name, ``adapter/device``, or ``auto``.
        example: a KServe v2 request as JSON that the model accepts; None: inputs are made up.

    Raises:
        FormatError: it is no ONNX model, or a damaged one.
        DataError: it does not run on the example, or refers to data that is not there.
        UnsupportedError: it has operators, types or a size that cannot be served.
        BackendMissingError: the target is not available.
    """
    where = str(path)
    model = self_contained_model(path)
    summary = inspect_onnx(model, where)
    _check_supported(summary, where)
    _check_size(summary, where)
    model = with_shapes(model, summary, _named_shapes(summary), where)
    for _ in range(2):
        with open_program(target, model, Options()).program as program:
            feeds, answers = _answered(program, example, where)
            declared = inspect_onnx(model, where)
            found = _found_shapes(program, declared, answers)
        if all(declared.output_dimensions[name] == found[name] for name in found) and not declared.unranked:
            return ImportedOnnx(
                model,
                declared.opsets.get("", declared.opsets.get("ai.onnx.ml", 1)),
                declared.precision,
                declared.input_tensors,
                declared.output_tensors,
                [_example_input(tensor, feeds[tensor.name]) for tensor in declared.input_tensors],
            )
        model = with_shapes(model, declared, found, where)
    raise DataError(
        f"expected outputs of the shapes that the model declares, received {_shapes_text(answers)}",
        where=where,
    )


def _check_supported(summary: OnnxSummary, where: str) -> None:
    """Reject what cannot be served.

    Raises:
        UnsupportedError: operators of other packages, types that no request can have, inputs without a shape.
    """
    known = _KNOWN_DOMAINS | summary.function_domains
    for operator, domains in sorted(summary.domains.items()):
        if others := sorted(domains - known):
            raise UnsupportedError(
                f"expected operators of ONNX, or functions that the file brings, received `{operator}` of "
                f"the domain `{others[0]}`",
                where=where,
                hint="export the model without operators of its own",
            )
    if not summary.dimensions or not summary.output_dimensions:
        raise UnsupportedError("expected a model with at least one input and one output", where=where)
    try:
        _ = summary.input_tensors, summary.output_tensors
    except UnsupportedError as error:
        raise UnsupportedError(
            error.message,
            where=f"{where}, {error.where}",
            hint="scikit-learn's classifiers: convert them with options={'zipmap': False}"
            if "sequence" in error.message
            else "do this part of the model before the request, or after it",
        ) from error
    unranked = [name for name in summary.dimensions if name in summary.unranked]
    if unranked:
        raise UnsupportedError(
            f"expected inputs with a number of dimensions, `{unranked[0]}` has none",
            where=where,
            hint="export the model with the shapes of its inputs; a dimension of any size has a name",
        )


def _check_size(summary: OnnxSummary, where: str) -> None:
    """Reject inputs that fill memory with one row of a request.

    Raises:
        UnsupportedError: there are too many numbers.
    """
    for name, sizes in summary.dimensions.items():
        fixed = prod(size for size in sizes if isinstance(size, int) and not _is_unnamed(size))
        if fixed > _MOST_ELEMENTS:
            raise UnsupportedError(
                f"expected inputs of at most {_MOST_ELEMENTS:,} numbers, `{name}` has {fixed:,}", where=where
            )


def _named_shapes(summary: OnnxSummary) -> dict[str, tuple[Dimension, ...]]:
    """Return the shapes of inputs and outputs with a name for each dimension of any size."""
    declared = {**summary.dimensions, **summary.output_dimensions}
    taken = {size for sizes in declared.values() for size in sizes if isinstance(size, str)}
    shapes: dict[str, tuple[Dimension, ...]] = {}
    for name, sizes in declared.items():
        if name not in summary.unranked:
            shapes[name] = tuple(
                _free_name(name, axis, taken) if _is_unnamed(size) else size
                for axis, size in enumerate(sizes)
            )
    return {name: sizes for name, sizes in shapes.items() if sizes != declared[name]}


def _is_unnamed(size: Dimension) -> bool:
    # Some exporters write -1 for any size; the format's integers are read without a sign.
    return size == "" or (isinstance(size, int) and size >= 1 << 63)


def _free_name(tensor: str, axis: int, taken: set[str]) -> str:
    name = f"{tensor}_{axis}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _answered(program: CheckedProgram, example: Path | None, where: str) -> tuple[Arrays, Arrays]:
    """Run the model on the example, or on made-up feeds that JSON can hold, as it can their answers.

    Returns:
        The feeds and the answers, by name.

    Raises:
        UsageError: the example is no request for the model.
        DataError: the model does not run.
    """
    if example is not None:
        feeds = _given_feeds(program, example)
        return feeds, _tried(program, feeds, where, is_made_up=False)
    made_up = made_up_feeds(program, _TRIED_ROWS)
    digits = 3 if sum(array.size for array in made_up.values()) <= _FEW_ELEMENTS else 1
    feeds = {
        name: np.asarray(array.round(digits)) if array.dtype.kind == "f" else array
        for name, array in made_up.items()
    }
    answers = _tried(program, feeds, where, is_made_up=True)
    if not all(np.isfinite(array).all() for array in answers.values()):
        # A logarithm, say: JSON has no NaN.
        feeds = {
            name: np.asarray(abs(each)) if each.dtype.kind == "f" else each for name, each in feeds.items()
        }
        answers = _tried(program, feeds, where, is_made_up=True)
    return feeds, answers


def _given_feeds(program: CheckedProgram, example: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        given = {tensor["name"]: tensor for tensor in json.loads(example.read_bytes())["inputs"]}
        feeds = {
            tensor.name: np.array(given[tensor.name]["data"], DTYPE_OF[tensor.datatype]).reshape(
                given[tensor.name]["shape"]
            )
            for tensor in program.inputs
        }
        if not all(np.isfinite(array).all() for array in feeds.values()):
            raise ValueError("a number is NaN or infinite")
        return feeds
    except OSError as error:
        raise UsageError(f"cannot read the example: {error.strerror or error}", where=str(example)) from error
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        names = ", ".join(f"`{tensor.name}` ({tensor.datatype})" for tensor in program.inputs)
        raise UsageError(
            f"expected a KServe v2 request as JSON with the inputs {names}, each with `shape` and `data`, "
            f"received something else ({type(error).__name__}: {error})",
            where=str(example),
        ) from error


def _tried(
    program: CheckedProgram, feeds: Mapping[str, npt.NDArray[Any]], where: str, *, is_made_up: bool
) -> dict[str, npt.NDArray[Any]]:
    try:
        answers = program.run(feeds)
    except InvalidRequestError as error:
        given = "inputs made up by their shapes" if is_made_up else "the inputs of --example"
        raise DataError(
            f"expected a model that runs on {given}, {_shapes_text(feeds)}: {error.message}",
            where=f"{where}, {error.where}" if error.where else where,
            hint="give inputs that it accepts: --example REQUEST.json, a KServe v2 request"
            if is_made_up
            else None,
        ) from error
    return answers


def _found_shapes(
    program: CheckedProgram, declared: OnnxSummary, answers: Mapping[str, npt.NDArray[Any]]
) -> dict[str, tuple[Dimension, ...]]:
    """Return the shapes of outputs: sizes that the runtime found fixed, else declared or new names."""
    taken = {
        size
        for sizes in (*declared.dimensions.values(), *declared.output_dimensions.values())
        for size in sizes
        if isinstance(size, str)
    }
    found: dict[str, tuple[Dimension, ...]] = {}
    for tensor in program.outputs:
        rank = answers[tensor.name].ndim
        known = tensor.shape if len(tensor.shape) == rank else (-1,) * rank
        names = declared.output_dimensions[tensor.name]
        if tensor.name in declared.unranked or len(names) != rank:
            names = ("",) * rank
        found[tensor.name] = tuple(
            fixed
            if fixed >= 0
            else name
            if isinstance(name, str) and name
            else _free_name(tensor.name, axis, taken)
            for axis, (fixed, name) in enumerate(zip(known, names, strict=True))
        )
    return found


def _example_input(tensor: TensorSpec, array: npt.NDArray[Any]) -> dict[str, Any]:
    # The shortest text that names the same number: as a Python float a float32 has up to 17 digits.
    values = array.ravel()
    data = [float(str(value)) for value in values] if array.dtype.kind == "f" else values.tolist()
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(array.shape), "data": data}


def _shapes_text(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    return ", ".join(f"`{name}` {list(array.shape)}" for name, array in arrays.items())
