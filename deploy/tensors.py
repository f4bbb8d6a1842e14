"""A bare ONNX model ready to run: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, TensorsForm
from graphbox.deploy.fastest import Choice
from graphbox.deploy.made_up_feeds import feeds_of_shapes
from graphbox.deploy.model import DeployedModel, Operation
from graphbox.deploy.protocol import DTYPE_OF, Feeds
from graphbox.deploy.row_independence import rows_are_independent
from graphbox.deploy.signature import WHOLE, Signature
from graphbox.errors import FormatError, UsageError

__all__ = ["DeployedTensors", "example_arrays"]


class DeployedTensors(DeployedModel):
    """Runs an ONNX model on arrays, by `infer` or `run`.

    Args:
        artifact: the model version, of kind ``tensors``.
        form: its preprocess.
        main: its ONNX file.
    """

    OPERATIONS = ("program",)

    def __init__(self, artifact: Artifact, form: TensorsForm, main: Choice) -> None:
        super().__init__(artifact, main, None)
        self._form = form
        self._main = main.program

    def _form_signatures(self) -> dict[str, Signature]:
        return {WHOLE: self._onnx_signature()}

    def _joins_onnx_rows(self) -> bool:
        return self._form.join_calls and self._has_independent_rows and self._passes_probe

    @cached_property
    def _passes_probe(self) -> bool:
        try:
            return rows_are_independent(self._main, self.example_feeds())
        except FormatError:
            return False  # `warm_up` reports the damaged example

    def example_feeds(self) -> dict[str, npt.NDArray[Any]]:
        """Return the inputs of the example request as arrays.

        Raises:
            FormatError: the example is no request for this model.
        """
        return example_arrays(self.artifact)

    def batch_feeds(self, batch: int) -> dict[str, npt.NDArray[Any]]:
        """Return made-up feeds of ``batch`` rows.

        Rows are the first axes of the inputs that have any size, and every axis with the name of one of
        these. Other axes are as long as in the example request.

        Raises:
            UsageError: the inputs have a fixed number of rows, another one.
        """
        names = self._main.dimensions
        rows = {names[tensor.name][0] for tensor in self.inputs if tensor.shape[:1] == (-1,)}
        shapes = {
            tensor.name: tuple(
                batch if size < 0 and (axis == 0 or names[tensor.name][axis] in rows) else length
                for axis, (size, length) in enumerate(zip(tensor.shape, example.shape, strict=True))
            )
            for tensor, example in zip(self.inputs, self.example_feeds().values(), strict=True)
        }
        fixed = next((tensor.shape[0] for tensor in self.inputs if tensor.shape), 1)
        if not rows and batch != fixed:
            raise UsageError(
                f"expected a batch of {fixed}, which the inputs of `{self.manifest.name}` are fixed to, "
                f"received {batch}",
                hint=f"--batch {fixed}",
            )
        return feeds_of_shapes(self._main, shapes)

    def warm_up(self) -> None:
        """Run the model once, on the example request."""
        self.run(self.example_feeds())

    @property
    def num_queries(self) -> int:
        """Return 1: feeds are made up, there is nothing to choose from."""
        return 1

    def calls(
        self,
        operation: Operation,  # noqa: ARG002
        pool: npt.NDArray[np.int64],
        k: int,  # noqa: ARG002
    ) -> Callable[[int], object]:
        """Return a function that runs the model on made-up feeds; see `DeployedModel.calls`."""
        feeds = self.batch_feeds(pool.shape[1])
        return lambda _: self.run(feeds)

    def program_feeds(self, queries: npt.NDArray[np.int64]) -> Feeds:  # noqa: ARG002 - there is one query
        """Return the example request; see `DeployedModel.program_feeds`."""
        return self.example_feeds()


def example_arrays(artifact: Artifact) -> dict[str, npt.NDArray[Any]]:
    """Return the inputs of the example request of a model of kind ``tensors`` as arrays.

    Raises:
        FormatError: the example is no request for this model.
    """
    given = {tensor["name"]: tensor for tensor in artifact.example_inputs()}
    feeds = {}
    for tensor in artifact.manifest.inputs:
        try:
            example = given[tensor.name]
            feeds[tensor.name] = np.array(example["data"], DTYPE_OF[tensor.datatype]).reshape(
                example["shape"]
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(
                f"expected an example request with {tensor.datatype} data for the input `{tensor.name}`, "
                f"received none that fits ({error})",
                where=str(artifact.path),
            ) from error
    return feeds
