"""Inputs and outputs of a model version as clients call it."""

from __future__ import annotations

from graphbox.artifact.fields_form import FieldsForm
from graphbox.artifact.lookup_form import LookupForm
from graphbox.artifact.manifest import Datatype, OnnxSpec, TensorSpec
from graphbox.artifact.preprocess import PaddedBlockForm, Preprocess
from graphbox.artifact.tensors_form import TensorsForm
from graphbox.artifact.triples_form import TriplesForm

Tensors = tuple[TensorSpec, ...]


def served_tensors(
    form: Preprocess, onnx: OnnxSpec | None, dim: int, *, integer_ids: bool
) -> tuple[Tensors, Tensors]:
    """Return the inputs and outputs of a form.

    Args:
        form: of the model version.
        onnx: its dense part; bare tensors are those of it.
        dim: length of an embedding.
        integer_ids: whether the ids that are asked for are integers.
    """
    if isinstance(form, TensorsForm):
        return ((), ()) if onnx is None else (onnx.inputs, onnx.outputs)
    if isinstance(form, FieldsForm):
        outputs = tuple(_tensor(name, "FP32") for name in form.probabilities)
        return tuple(field.tensor for field in form.fields), outputs
    datatype: Datatype = "INT64" if integer_ids else "BYTES"
    ids = _tensor("id", datatype)
    if isinstance(form, TriplesForm):
        outputs = (_tensor("answer", datatype, -1), _tensor("score", "FP32", -1))
        return (ids, _tensor("relation", "BYTES")), outputs
    embedding = _tensor("embedding", "FP32", dim)
    if isinstance(form, LookupForm) and form.defaults:
        return (ids,), (embedding, _tensor("known", "BOOL"))
    if isinstance(form, PaddedBlockForm) and form.classes:
        return (ids,), (embedding, _tensor("probability", "FP32", len(form.classes)))
    return (ids,), (embedding,)


def _tensor(name: str, datatype: Datatype, *sizes: int) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=(-1, *sizes))
