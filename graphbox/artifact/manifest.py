"""The manifest of a model version: what it is, what it takes and gives, and the digest of every file."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from graphbox.errors import FormatError, UsageError
from graphbox.row_codecs import row_codec

FORMAT: Final = "graphbox-model"
FORMAT_VERSION: Final = 1
MANIFEST_FILE: Final = "manifest.json"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

Kind = Literal["encoder", "embedding", "click", "knowledge_graph", "tensors"]
RowScore = Literal["inner_product", "cosine"]
Score = Literal[RowScore, "max_inner_product"]
"""Score of a row for a query: of ``max_inner_product`` the largest inner product with one of its vectors."""
Datatype = Literal[
    "BOOL",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "FP16",
    "FP32",
    "FP64",
    "BYTES",
]


def check_name(name: str, what: str = "name") -> str:
    """Return ``name`` when it may name a model, a table or a file of an artifact.

    Args:
        name: 1 to 128 characters of ``A-Z a-z 0-9 _ . -``, starting with a letter, a digit or ``_``.
        what: the noun used in the message.

    Raises:
        UsageError: when it may not.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"expected a {what} of 1 to 128 letters, digits, `_`, `.` or `-` that starts with a letter, "
            f"a digit or `_`, received {name[:160]!r}"
        )
    return name


def is_plain_name(name: str) -> bool:
    """Return whether `check_name` accepts ``name``."""
    return _NAME.fullmatch(name) is not None


def _relative_path(path: str) -> str:
    parts = path.split("/")
    if len(parts) > 8 or not all(_NAME.fullmatch(part) for part in parts):
        raise ValueError(f"not a relative path of plain names: {path[:300]!r}")
    return path


def _plain_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a plain name: {name[:160]!r}")
    return name


def _codec_name(name: str) -> str:
    try:
        return row_codec(name).name
    except UsageError as error:
        raise ValueError(error.message) from error


RelativePath = Annotated[str, AfterValidator(_relative_path)]
Name = Annotated[str, AfterValidator(_plain_name)]
CodecName = Annotated[str, AfterValidator(_codec_name)]


class Record(BaseModel):
    """Base of everything written as JSON into an artifact: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TensorSpec(Record):
    """One input or output. ``-1`` in ``shape`` is a dimension of any size."""

    name: str = Field(min_length=1, max_length=256)
    datatype: Datatype
    shape: tuple[Annotated[int, Field(ge=-1)], ...]


class OnnxSpec(Record):
    """The dense part. ``precision`` is what the weights really are, e.g. ``float32`` or ``int8_dynamic``."""

    path: RelativePath
    opset: int = Field(ge=1)
    precision: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class TableSpec(Record):
    """A table of rows beside the ONNX graph, in the folder ``tables/<its name>``.

    Attributes:
        node_type: what its ids are ids of; of clicks, whose ids are keys of values, the name of the table.
        codec: name of the codec of its rows, with its parameters; see `graphbox.row_codecs`.
        rows: how many.
        dim: length of a row.
        ids: path of the ids.
    """

    node_type: str
    codec: CodecName
    rows: int = Field(ge=0)
    dim: int = Field(ge=1)
    ids: RelativePath


class TargetSpec(Record):
    """The table whose rows are ranked for queries of one node type, and the score that ranks them."""

    table: Name
    score: Score

    @property
    def row_score(self) -> RowScore:
        """Score of a row and one vector."""
        return "cosine" if self.score == "cosine" else "inner_product"


class Lineage(Record):
    """Where a model version comes from. ``steps`` names the operations since training, oldest first."""

    run: str | None = None
    graph: str | None = None
    parent: str | None = None
    steps: tuple[str, ...] = ()


class FileRecord(Record):
    """Size and digest of one file."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(Record):
    """Everything about one model version but the numbers themselves.

    Attributes:
        inputs: as served: the original ids; of clicks the columns of rows; of bare tensors those of ``onnx``.
        outputs: as served: the embedding, ``FP32 [-1, dim]``; of clicks the probability, ``FP32 [-1]``; of
            knowledge graphs ids and scores of the best answers; of bare tensors those of ``onnx``.
        dim: length of an embedding; of clicks and bare tensors 1.
        onnx: the dense part, or None when an embedding is a row of a table.
        tables: by name.
        targets: what to rank against, by the node type of the query.
        metrics: ``{task: {metric: value}}`` as measured when this version was made.
        network: folder of the graph network that made the embeddings, for nodes that came later; or None.
        files: every other file of the folder, by relative path.
        digest: sha256 of the rest of the manifest; through ``files`` it identifies every byte.
    """

    format: Literal["graphbox-model"] = FORMAT
    format_version: Literal[1] = FORMAT_VERSION
    byte_order: Literal["little"] = "little"
    name: Name
    version: int = Field(ge=1)
    created_at: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")
    kind: Kind
    task: str | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dim: int = Field(ge=1)
    onnx: OnnxSpec | None = None
    tables: dict[Name, TableSpec]
    targets: dict[str, TargetSpec]
    metrics: dict[str, dict[str, float]] = Field(default_factory=dict)
    lineage: Lineage = Lineage()
    preprocess: RelativePath
    links: RelativePath | None = None
    network: RelativePath | None = None
    example_request: RelativePath | None = None
    files: dict[RelativePath, FileRecord]
    digest: str = ""

    def vectors(self, query_type: str) -> int:
        """Return how many vectors a query of a node type in ``targets`` has; 1 but for ``max_inner_product``.

        They are one embedding, one after the other, each as long as a row of the table that is ranked.
        """
        target = self.targets[query_type]
        return self.dim // self.tables[target.table].dim if target.score == "max_inner_product" else 1

    @property
    def size_bytes(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(record.bytes for record in self.files.values())

    def computed_digest(self) -> str:
        """Return the sha256 of this manifest without its ``digest`` field."""
        content = self.model_dump(mode="json", exclude={"digest"})
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the text of ``manifest.json``, with the digest filled in."""
        content = self.model_dump(mode="json") | {"digest": self.computed_digest()}
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_manifest(text: bytes, path: Path) -> Manifest:
    """Parse ``manifest.json``.

    Args:
        text: the content of the file.
        path: named in messages.

    Raises:
        FormatError: when it is no manifest, of another version, or damaged.
    """
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"expected JSON, received something else ({error})", where=str(path)) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        received = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise FormatError(f"expected the format `{FORMAT}`, received {received!r}", where=str(path))
    if content.get("format_version") != FORMAT_VERSION:
        raise FormatError(
            f"expected format version {FORMAT_VERSION}, received {content.get('format_version')!r}",
            where=str(path),
            hint="this model was written by another version of graphbox; export it again with this one",
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise FormatError(first_problem(error), where=str(path)) from error
    if manifest.digest != (computed := manifest.computed_digest()):
        raise FormatError(
            f"expected the digest {manifest.digest or '(none)'}, the content has {computed}",
            where=str(path),
            hint="the manifest was edited or damaged; export the model again",
        )
    return manifest


def first_problem(error: ValidationError) -> str:
    """Return the first mistake pydantic found as ``key: what is wrong``."""
    problem = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in problem["loc"]) or "the document"
    return f"key `{key}`: {problem['msg']}, received {str(problem['input'])[:120]!r}"
