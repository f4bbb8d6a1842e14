"""Opens a model version: what answers depends on what kind of model it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from graphbox.artifact import Artifact, FieldsForm, TensorsForm, TriplesForm
from graphbox.deploy.click import DeployedClick
from graphbox.deploy.encoder import DeployedEncoder
from graphbox.deploy.fastest import Choice, open_program
from graphbox.deploy.knowledge_graph import BEST_MODEL, DeployedKnowledgeGraph
from graphbox.deploy.model import DeployedModel
from graphbox.deploy.nearest.exact import RANKING_MODEL
from graphbox.deploy.nearest.nodes import NearestMode
from graphbox.deploy.program import CheckedProgram
from graphbox.deploy.protocol import Options
from graphbox.deploy.tensors import DeployedTensors
from graphbox.errors import FormatError, UnsupportedError

__all__ = ["open_click", "open_encoder", "open_knowledge_graph", "open_model"]

Kind = TypeVar("Kind", bound=DeployedModel)


def open_model(
    path: str | os.PathLike[str],
    target: str = "auto",
    threads: int = 1,
    verify: bool = True,
    nearest: NearestMode = "exact",
) -> DeployedModel:
    """Open a model version and make it ready on a target.

    Args:
        path: the folder of the version.
        target: an adapter's name, ``adapter/device``, or ``auto``: the fastest that runs the model.
        threads: that one call may use.
        verify: check the digest of every file first.
        nearest: whether nearest nodes are found by an index; it is built in the background, once for a
            folder of packages.

    Returns:
        `DeployedEncoder`, `DeployedClick`, `DeployedKnowledgeGraph` or `DeployedTensors`.

    Raises:
        NotFoundError: when there is no such model or target.
        FormatError: when the model is damaged.
        BackendMissingError: when the target is not available.
        UnsupportedError: when it cannot run the model.
    """
    artifact = Artifact.open(Path(path), verify=verify)
    options = Options(threads=threads)
    model = artifact.onnx_bytes() if artifact.manifest.onnx else None
    with ExitStack() as opened:
        main = None if model is None else _opened(opened, target, model, options)
        if main is not None:
            _check_tensors(artifact, main.program)
        deployed = _of_form(
            artifact, main, lambda brought: _beside(opened, main, target, brought, options), nearest
        )
        opened.pop_all()
    return deployed


def _of_form(
    artifact: Artifact, main: Choice | None, beside: Callable[[bytes], Choice], nearest: NearestMode
) -> DeployedModel:
    """Return what answers for a model version.

    Args:
        artifact: the model version.
        main: its ONNX part; None: it has none.
        beside: opens a small model that graphbox brings.
        nearest: see `open_model`.
    """
    form = artifact.preprocess
    if isinstance(form, FieldsForm) and main is not None:
        return DeployedClick(artifact, form, main)
    if isinstance(form, TriplesForm) and main is not None:
        return DeployedKnowledgeGraph(artifact, form, main, beside(BEST_MODEL))
    if isinstance(form, TensorsForm) and main is not None:
        return DeployedTensors(artifact, form, main)
    assert not isinstance(form, FieldsForm | TriplesForm | TensorsForm)  # noqa: S101 - an artifact is checked when opened
    return DeployedEncoder(artifact, form, main, beside(RANKING_MODEL), nearest)


def _opened(stack: ExitStack, target: str, model: bytes, options: Options) -> Choice:
    """Open a program that is closed with the stack."""
    choice = open_program(target, model, options)
    stack.callback(choice.program.close)
    return choice


def _beside(stack: ExitStack, main: Choice | None, target: str, model: bytes, options: Options) -> Choice:
    """Return a small model that graphbox brings, on the device of the model, or where that cannot run it."""
    if main is None:
        return _opened(stack, target, model, options)
    try:
        return _opened(stack, f"{main.adapter.name}/{main.device.name}", model, options)
    except UnsupportedError:
        return _opened(stack, "auto", model, options)


def open_encoder(
    path: str | os.PathLike[str],
    target: str = "auto",
    threads: int = 1,
    verify: bool = True,
    nearest: NearestMode = "exact",
) -> DeployedEncoder:
    """Open a model version that gives embeddings; see `open_model`.

    Raises:
        UnsupportedError: it gives none.
    """
    model = open_model(path, target, threads, verify, nearest)
    return _checked_kind(model, DeployedEncoder, "gives embeddings")


def open_click(
    path: str | os.PathLike[str], target: str = "auto", threads: int = 1, verify: bool = True
) -> DeployedClick:
    """Open a model version that gives the probabilities of rows; see `open_model`.

    Raises:
        UnsupportedError: it gives none.
    """
    return _checked_kind(open_model(path, target, threads, verify), DeployedClick, "predicts rows")


def open_knowledge_graph(
    path: str | os.PathLike[str], target: str = "auto", threads: int = 1, verify: bool = True
) -> DeployedKnowledgeGraph:
    """Open a model version that answers questions about triples; see `open_model`.

    Raises:
        UnsupportedError: it answers none.
    """
    model = open_model(path, target, threads, verify)
    return _checked_kind(model, DeployedKnowledgeGraph, "answers questions about triples")


def _checked_kind(model: DeployedModel, kind: type[Kind], wanted: str) -> Kind:
    if isinstance(model, kind):
        return model
    manifest = model.manifest
    model.close()
    raise UnsupportedError(
        f"expected a model that {wanted}, received `{manifest.name}` of kind {manifest.kind}",
        where=str(model.artifact.path),
    )


def _check_tensors(artifact: Artifact, program: CheckedProgram) -> None:
    """Check that the ONNX file is the one the manifest describes."""
    declared = artifact.manifest.onnx
    if declared is None or (declared.inputs, declared.outputs) == (program.inputs, program.outputs):
        return
    received = [
        (tensor.name, tensor.datatype, tensor.shape) for tensor in (*program.inputs, *program.outputs)
    ]
    raise FormatError(
        f"expected the inputs and outputs that the manifest lists, received {received}",
        where=str(artifact.path / declared.path),
    )
