"""The contract between training, compression, deployment and serving: one version of one model in one folder.

A model version is written once by `ArtifactWriter`, moved into place atomically, and opened by
`Artifact.open`, which verifies every byte. Needs numpy, pyarrow and pydantic, and once rows are read the
native core (`graphbox.rows`); never torch. The layout is described in ``docs/formats/artifact.md``.
"""

from __future__ import annotations

from graphbox.artifact.fields_form import FieldSpec, FieldTable
from graphbox.artifact.ids import Ids
from graphbox.artifact.links import Link, Links
from graphbox.artifact.manifest import (
    FORMAT,
    FORMAT_VERSION,
    Lineage,
    Manifest,
    OnnxSpec,
    TableSpec,
    TargetSpec,
    TensorSpec,
    check_name,
)
from graphbox.artifact.onnx_inspection import OnnxSummary, inspect_onnx
from graphbox.artifact.preprocess import (
    EdgeFeature,
    FieldsForm,
    GroupEdges,
    LayerSpec,
    LookupForm,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TensorsForm,
    TriplesForm,
)
from graphbox.artifact.reader import Artifact, NeighborLists
from graphbox.artifact.rows import RowTable
from graphbox.artifact.writer import ArtifactWriter

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "Artifact",
    "ArtifactWriter",
    "EdgeFeature",
    "FieldSpec",
    "FieldTable",
    "FieldsForm",
    "GroupEdges",
    "Ids",
    "LayerSpec",
    "Lineage",
    "Link",
    "Links",
    "LookupForm",
    "Manifest",
    "NeighborLists",
    "OnnxSpec",
    "OnnxSummary",
    "PaddedBlockForm",
    "RelationGroup",
    "RowTable",
    "RowsSpec",
    "TableSpec",
    "TargetSpec",
    "TensorSpec",
    "TensorsForm",
    "TriplesForm",
    "check_name",
    "inspect_onnx",
]
