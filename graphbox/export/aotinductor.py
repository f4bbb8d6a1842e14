"""Compiles an ONNX model with PyTorch: ``python -m graphbox.export.aotinductor compile MODEL FOLDER``.

The adapter ``aotinductor`` (`graphbox.deploy.adapters.aotinductor`) runs it as a process of its own: the
compiler's settings are global, and its memory stays out of the server's. The folder gets the exported
program, the compiled one, and the sizes of inputs that it was compiled for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from graphbox.artifact import inspect_onnx
from graphbox.deploy.protocol import DTYPE_OF
from graphbox.errors import GraphboxError, UnsupportedError
from graphbox.export.onnx_operators import TORCH_OPERATORS
from graphbox.export.onnx_to_torch import OnnxModule

__all__ = ["COMPILED_FILE", "EXPORTED_FILE", "SIZES_FILE", "compile_onnx", "export_program"]

EXPORTED_FILE: Final = "model.pt2"
COMPILED_FILE: Final = "compiled.pt2"
SIZES_FILE: Final = "sizes.json"
_REFUSED: Final = 3
# Precompiled headers are 300 MB, and save nothing where one model is compiled.
_SETTINGS: Final[Mapping[str, Any]] = {
    "aot_inductor.precompile_headers": False,
    "cpp_cache_precompile_headers": False,
}
_CHECKED_SIZES: Final = (0, 1, 2, 17)
_MANY: Final = 1 << 31
_EXAMPLE_SIZE: Final = 257
"""Size of every dimension of any size in the example: not 0 or 1, which PyTorch would make constants."""


def export_program(model: bytes) -> torch.export.ExportedProgram:
    """Return an ONNX model as a program of ``torch.export``, with the dimensions of any size kept.

    Args:
        model: content of an ONNX file, self-contained.

    Raises:
        FormatError: it is no ONNX model, or refers to other files.
        UnsupportedError: an operator, attribute or shape cannot be expressed, or dimensions of any size
            have to be of one size.
    """
    tracing: Any = import_module("torch.fx.experimental._config")
    dimensions = inspect_onnx(model, "the model").dimensions
    module = OnnxModule(model).eval()
    examples, dynamic = [], []
    for tensor in inspect_onnx(model, "the model").input_tensors:
        free = [axis for axis, size in enumerate(dimensions[tensor.name]) if not isinstance(size, int)]
        shape = [_EXAMPLE_SIZE if size < 0 else size for size in tensor.shape]
        examples.append(torch.zeros(shape, dtype=_torch_dtype(DTYPE_OF[tensor.datatype].name)))
        dynamic.append(dict.fromkeys(free, torch.export.Dim.DYNAMIC))
    try:
        # Oblivious: no branch is taken because a size is not 0 or 1, so programs hold for those as well.
        with torch.no_grad(), tracing.patch(backed_size_oblivious=True):
            return torch.export.export(
                module, tuple(examples), dynamic_shapes={"inputs": tuple(dynamic)}, strict=False
            )
    except GraphboxError:
        raise
    except Exception as error:
        raise UnsupportedError(f"PyTorch cannot export the model: {_first_lines(error)}") from error


def _torch_dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found


def _first_lines(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def input_sizes(program: torch.export.ExportedProgram) -> list[list[int | str]]:
    """Return the shape of each input: a number, or a name; dimensions of one name have one size.

    Raises:
        UnsupportedError: the program holds for some sizes alone, or a size is computed from others.
    """
    for symbol, bounds in program.range_constraints.items():
        if bounds.lower > 0:
            raise UnsupportedError(f"expected a model of any sizes, {symbol} is at least {bounds.lower}")
        if bounds.upper < _MANY:
            raise UnsupportedError(f"expected a model of any sizes, {symbol} is at most {bounds.upper}")
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    shapes = (values[str(name)].shape for name in program.graph_signature.user_inputs)
    return [[_size(size) for size in shape] for shape in shapes]


def _size(size: int | torch.SymInt) -> int | str:
    if isinstance(size, int):
        return size
    name = str(size)
    if not name.isidentifier():
        raise UnsupportedError(f"expected sizes of inputs that are free or equal, received {name}")
    return name


def compile_onnx(model: bytes, folder: Path, threads: int) -> None:
    """Write the exported program, the compiled program and the sizes of its inputs.

    Args:
        model: content of an ONNX file, self-contained.
        folder: to write to.
        threads: that the loops of the compiled program use.

    Raises:
        FormatError: see `export_program`.
        UnsupportedError: see `export_program`; or the compiler refuses the program.
    """
    program = export_program(model)
    sizes = input_sizes(program)
    (folder / SIZES_FILE).write_text(json.dumps(sizes))
    # Without the example, which would be written as a pickle.
    example, program.example_inputs = program.example_inputs, None
    torch.export.save(program, folder / EXPORTED_FILE)
    program.example_inputs = example
    try:
        with torch.no_grad():
            settings = {**_SETTINGS, "cpp.threads": threads}
            torch._inductor.aoti_compile_and_package(
                program, package_path=str(folder / COMPILED_FILE), inductor_configs=settings
            )
    except Exception as error:
        raise UnsupportedError(f"PyTorch cannot compile the model: {_first_lines(error)}") from error
    dtypes = [each.dtype for each in example[0]] if example is not None else []
    _check_compiled(OnnxModule(model), list(zip(sizes, dtypes, strict=True)), folder / COMPILED_FILE)


def _check_compiled(
    module: OnnxModule, inputs: Sequence[tuple[Sequence[int | str], torch.dtype]], path: Path
) -> None:
    """Compare the compiled program with the module at sizes that compilers get wrong: 0 and 1 among them.

    From 2 on every dimension of any size has a size of its own. Differences of rounding are accepted.
    """
    packages: Any = import_module("torch._inductor.package")
    compiled = packages.load_package(str(path))
    free = sorted({each for sizes, _ in inputs for each in sizes if isinstance(each, str)})
    checked = 0
    for size in _CHECKED_SIZES:
        size_of = {name: size + number * (size > 1) for number, name in enumerate(free)}
        shapes = [[size_of[each] if isinstance(each, str) else each for each in sizes] for sizes, _ in inputs]
        fewest = min((each for shape in shapes for each in shape), default=1)
        for most in (fewest, 1):  # positions among all rows, or 0 where they select from fewer
            generator = torch.Generator().manual_seed(0)
            feeds = [
                _feed(shape, dtype, most, generator) for shape, (_, dtype) in zip(shapes, inputs, strict=True)
            ]
            try:
                expected = module(*feeds)
            except (IndexError, RuntimeError):
                continue  # torch itself refuses this: a maximum of no values, a position beyond the rows
            checked += 1
            for found, wanted in zip(compiled.loader.boxed_run(list(feeds)), expected, strict=True):
                if found.shape != wanted.shape or not _is_close(found, wanted):
                    raise UnsupportedError(
                        f"PyTorch's compiled program is wrong where dimensions have the sizes {size_of}"
                    )
            break
    if not checked:
        raise UnsupportedError(
            f"PyTorch runs the model with none of the sizes {_CHECKED_SIZES} of its free dimensions"
        )


def _feed(shape: list[int], dtype: torch.dtype, most: int, generator: torch.Generator) -> Tensor:
    if not dtype.is_floating_point:
        return torch.randint(0, max(1, most), shape, generator=generator).to(dtype)
    return torch.rand(shape, generator=generator).to(dtype) + 0.125


def _is_close(found: Tensor, wanted: Tensor) -> bool:
    first, second = found.to(torch.float64), wanted.to(torch.float64)
    scale = float(second.abs().nan_to_num(posinf=0).max()) if second.numel() else 0.0
    return torch.allclose(first, second, rtol=1e-2, atol=1e-2 * scale, equal_nan=True)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="graphbox.export.aotinductor")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("operators")
    compiling = commands.add_parser("compile")
    compiling.add_argument("model", type=Path)
    compiling.add_argument("folder", type=Path)
    compiling.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    if given.command == "operators":
        sys.stdout.write(json.dumps(sorted(TORCH_OPERATORS)))
        return 0
    try:
        compile_onnx(given.model.read_bytes(), given.folder, given.threads)
    except GraphboxError as error:
        sys.stdout.write(json.dumps({"refused": error.message, "where": error.where}))
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main())
