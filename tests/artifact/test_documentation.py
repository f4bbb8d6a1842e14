"""The page on the format says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq

from graphbox.artifact import (
    Artifact,
    FieldsForm,
    FieldSpec,
    FieldTable,
    LayerSpec,
    LookupForm,
    Manifest,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TensorsForm,
    TriplesForm,
)
from graphbox.artifact.links import COLUMNS
from graphbox.artifact.manifest import _NAME
from graphbox.row_codecs import CODEC_NAMES
from tests.artifact.sample_model import make_model, write_embedding, write_encoder

VERSIONS = ("encoder/1", "encoder/2", "embedding/1", "click/1", "knowledge_graph/1", "tensors/1", "rows/1")
PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "artifact.md").read_text()


def _section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def _first_column(section: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", _section(section), re.MULTILINE)


def test_every_key_of_the_manifest_is_described_in_its_order() -> None:
    assert _first_column("manifest.json") == list(Manifest.model_fields)


def test_every_key_of_preprocess_is_described() -> None:
    text = _section("preprocess.json")
    forms = (LookupForm, PaddedBlockForm, RowsSpec, LayerSpec, RelationGroup)
    for form in (*forms, FieldsForm, FieldSpec, FieldTable, TriplesForm, TensorsForm):
        for name in form.model_fields:
            assert f"`{name}`" in text or f'"{name}"' in text, name


def test_the_columns_of_links_are_those_described(tmp_path: Path) -> None:
    assert tuple(_first_column("links.parquet")) == COLUMNS
    write_encoder(tmp_path / "1", make_model())
    schema = pq.read_schema(tmp_path / "1" / "links.parquet")
    kinds = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|$", _section("links.parquet"), re.MULTILINE))
    written = {name: str(schema.field(name).type) for name in schema.names}
    assert {name: "string" if "string" in kind else kind for name, kind in written.items()} == kinds


def test_every_file_written_is_described(tmp_path: Path) -> None:
    patterns = [re.escape(path) for path in _first_column("Files")]
    patterns = [re.sub(r"<[^>]+>", r"[\\w-]+", pattern.replace(r"\ ", " ")) for pattern in patterns]
    folder = Path(__file__).parents[1] / "formats" / "artifact-1"
    written = [write_encoder(tmp_path / "1", make_model()), write_embedding(tmp_path / "2", make_model())]
    written += [Artifact.open(folder / version) for version in VERSIONS]
    for artifact in written:
        for path in [*artifact.manifest.files, "manifest.json"]:
            if not path.startswith(
                "weights/"
            ):  # the sample's own choice of path for the normalization `table`
                assert any(re.fullmatch(pattern, path) for pattern in patterns), path


def test_every_row_codec_is_described() -> None:
    assert tuple(_first_column("Row codecs")) == CODEC_NAMES


def test_the_pattern_of_names_is_the_one_described() -> None:
    assert f"`{_NAME.pattern}`" in PAGE
