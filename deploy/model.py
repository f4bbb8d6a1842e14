"""Common part of open model versions: their files, what runs their ONNX part, queries to measure."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, Manifest, TensorSpec
from graphbox.deploy.fastest import Choice
from graphbox.deploy.protocol import Feeds
from graphbox.deploy.signature import (
    DIGEST_PROPERTY,
    ONNX_SUFFIX,
    PRECISION_PROPERTY,
    THREADS_PROPERTY,
    WHOLE,
    Outputs,
    Parameters,
    Signature,
    by_name,
)
from graphbox.errors import FormatError, NotFoundError, UnsupportedError, UsageError, did_you_mean

__all__ = ["DeployedModel", "Operation"]

Operation: TypeAlias = Literal["encode", "neighbors", "predict", "answer", "program"]
"""Operation of a model that can be measured: an answer, or ``program``, the ONNX part on prepared feeds."""


class DeployedModel(ABC):
    """Answers for one model version; safe to use from several threads. Use `open_model`.

    Attributes:
        artifact: the model version.
        manifest: what it is.
        effective: what really runs it: the adapter, the program's `Effective`, what was measured to choose
            it, and under ``further`` the same of what graphbox brings for it (ranking) on another target;
            of encoders also ``nearest``, see `graphbox.deploy.nearest.nodes.NearestNodes.states`.
        inputs: of the bare ONNX part; empty when there is none.
        outputs: of the bare ONNX part; empty when there is none.
        rows_sequence: number of the last row update that was applied; 0: none.
    """

    OPERATIONS: ClassVar[tuple[Operation, ...]]
    """Operations that can be measured; the first is the one the model is made for."""

    def __init__(self, artifact: Artifact, main: Choice | None, further: Choice | None) -> None:
        self.artifact = artifact
        self.manifest: Manifest = artifact.manifest
        self.effective: dict[str, Any] = _effective(main, further)
        self._program = main.program if main else None
        self._further = further.program if further else None
        self.inputs: tuple[TensorSpec, ...] = main.program.inputs if main else ()
        self.outputs: tuple[TensorSpec, ...] = main.program.outputs if main else ()
        self.rows_sequence = 0

    @cached_property
    def signatures(self) -> Mapping[str, Signature]:
        """The ways to call the model, by the suffix that the model's name gets in protocols.

        `graphbox.deploy.signature.WHOLE` is always there, ``ONNX_SUFFIX`` where the model has an ONNX part.
        """
        signatures = self._form_signatures()
        if self.manifest.onnx is not None:
            signatures[ONNX_SUFFIX] = self._onnx_signature()
        if self.rows_sequence:
            of_rows = self.rows_sequence
            signatures = {name: replace(each, rows_sequence=of_rows) for name, each in signatures.items()}
        return MappingProxyType(signatures)

    @abstractmethod
    def _form_signatures(self) -> dict[str, Signature]:
        """Return the signatures of the model's form, `WHOLE` among them."""

    def with_rows(self, artifact: Artifact, sequence: int) -> Self:
        """Return this model with other rows; it stays as it is, so that calls that run see one state of them.

        Programs and all that no row update changes are shared: the original alone is closed.

        Args:
            artifact: the same model version, with row updates; see `graphbox.artifact.updated_rows`.
            sequence: number of the last of them.
        """
        view = copy.copy(self)
        view.artifact = artifact
        view.rows_sequence = sequence
        view.__dict__.pop("signatures", None)
        view._use_rows()
        return view

    def _use_rows(self) -> None:  # noqa: B027 - bare tensors have no rows
        """Replace all that refers to rows or ids by that of `artifact`."""

    def release_rows(self) -> None:
        """Free the rows of this state with its last call, without waiting for the collector of cycles."""
        self.__dict__.pop("signatures", None)

    def infer(
        self, inputs: Feeds, parameters: Parameters = MappingProxyType({}), signature: str = WHOLE
    ) -> Outputs:
        """Return the outputs of a call by name; see `graphbox.deploy.signature.Signature.infer`.

        Args:
            inputs: an array for each input of the signature.
            parameters: by name; those that are left out have their defaults.
            signature: which of `signatures`.

        Raises:
            NotFoundError: the model has no such signature; an id is no node of the model.
            InvalidRequestError: an input or a parameter is missing, unknown, or not what the model reads.
        """
        return self.signature(signature).infer(inputs, parameters)

    def signature(self, suffix: str) -> Signature:
        """Return one of `signatures`.

        Raises:
            NotFoundError: the model has none of this suffix.
        """
        if suffix not in self.signatures:
            name = self.manifest.name
            known = ", ".join(f"`{name}{each}`" for each in self.signatures)
            missing = " (it has no ONNX part: its embeddings are rows)" if suffix == ONNX_SUFFIX else ""
            raise NotFoundError(
                f"expected one of {known}, received `{name}{suffix}`{missing}",
                hint=did_you_mean(suffix, self.signatures),
            )
        return self.signatures[suffix]

    def _onnx_signature(self) -> Signature:
        onnx = self.manifest.onnx
        if onnx is None:
            raise self._no_onnx()
        return Signature(
            platform="onnxruntime_onnx",
            inputs=by_name(self.inputs),
            outputs=by_name(self.outputs),
            answer=lambda inputs, _: self.run(inputs),
            work=lambda inputs: sum(array.size for array in inputs.values()),
            joinable=self._joins_onnx_rows(),
            properties={
                DIGEST_PROPERTY: self.manifest.files[onnx.path].sha256,
                PRECISION_PROPERTY: str(self.effective["precision"]),
                THREADS_PROPERTY: str(self.effective["threads"]),
            },
        )

    def _joins_onnx_rows(self) -> bool:
        """Return whether calls of the bare ONNX part may be joined; see `Signature.joinable`."""
        return False

    @property
    def _has_independent_rows(self) -> bool:
        """Whether the outputs of a row of the ONNX part depend on that row alone."""
        return self._program is None or not self._program.quantizes_whole_batches

    @abstractmethod
    def warm_up(self) -> None:
        """Do now what the first request would wait for."""

    @abstractmethod
    def calls(self, operation: Operation, pool: npt.NDArray[np.int64], k: int) -> Callable[[int], object]:
        """Return a function that answers the i-th of a pool of queries.

        Args:
            operation: one of :attr:`OPERATIONS`.
            pool: int64 [queries, batch], in [0, `num_queries`).
            k: answers of each, where several are asked for.
        """

    @abstractmethod
    def program_feeds(self, queries: npt.NDArray[np.int64]) -> Feeds:
        """Return the feeds of the bare ONNX part for some of the queries to measure with.

        Args:
            queries: int64 [batch], in [0, `num_queries`).

        Raises:
            UnsupportedError: the model has no ONNX part.
        """

    @property
    @abstractmethod
    def num_queries(self) -> int:
        """Number of different queries to measure with."""

    def check_operation(self, operation: Operation | None) -> Operation:
        """Return what is to be measured: the first of :attr:`OPERATIONS` where nothing is asked for.

        Raises:
            UsageError: it is none of them.
        """
        if operation is not None and operation not in self.OPERATIONS:
            raise UsageError(
                f"expected one of {', '.join(self.OPERATIONS)} to measure of a model of kind "
                f"{self.manifest.kind}, received {operation}"
            )
        return operation or self.OPERATIONS[0]

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the bare ONNX part; see `graphbox.deploy.program.CheckedProgram.run`.

        Raises:
            UnsupportedError: when the model has none.
        """
        if self._program is None:
            raise self._no_onnx()
        return self._program.run(feeds, out)

    def _run_built(self, feeds: Feeds, *shapes: tuple[int, ...]) -> list[npt.NDArray[Any]]:
        """Return the first outputs of the ONNX part for feeds that this model built.

        Args:
            feeds: of the ONNX part.
            shapes: that the outputs have to have, one for each that is wanted.

        Raises:
            FormatError: they have others.
            UnsupportedError: the model has no ONNX part.
        """
        if self._program is None:
            raise self._no_onnx()
        found = self._program.run_built(feeds)
        outputs = [found[tensor.name] for tensor in self.outputs[: len(shapes)]]
        if [output.shape for output in outputs] != list(shapes):
            raise FormatError(
                f"expected outputs of the shapes {list(map(list, shapes))}, received "
                f"{[list(output.shape) for output in outputs]}",
                where=str(self.artifact.path),
            )
        return outputs

    def close(self) -> None:
        """Free the memory; a second call does nothing."""
        for program in (self._program, self._further):
            if program is not None:
                program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _no_onnx(self) -> UnsupportedError:
        return UnsupportedError(
            "expected a model with an ONNX part, this one is tables only", where=str(self.artifact.path)
        )


def _effective(main: Choice | None, further: Choice | None) -> dict[str, Any]:
    running = main or further
    if running is None:
        return {}
    effective = running.effective
    if further is not None and (further.adapter.name, further.device.name) != (
        running.adapter.name,
        running.device.name,
    ):
        effective["further"] = further.effective
    return effective
