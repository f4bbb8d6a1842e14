"""Sections of knowledge graphs in run files: what they name must be there, as they need it."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.config import CompleteTaskConfig, ComplExConfig, dump_config, load_config
from graphbox.errors import ConfigError

RUN_FILE = """\
version: 1
name: atlas
graph:
  name: atlas
  nodes: {place: {}}
  edges:
    - type: [place, known, place]
      path: known.csv
      features: {relation: categorical, part: categorical, length: number}
      keep_duplicates: true
    - type: [place, last, place]
      path: last.csv
      features: {relation: categorical}
      keep_duplicates: true
tasks:
  missing:
    kind: complete
    relations: [[place, known, place]]
    relation_feature: relation
    split: {kind: given, test_relations: [last]}
models:
  complex: {kind: complex, task: missing}
"""


def write(folder: Path, *changes: tuple[str, str]) -> Path:
    text = RUN_FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    for name in ("known", "last"):
        (folder / f"{name}.csv").write_text("source,target\n")
    (folder / "run.yaml").write_text(text)
    return folder / "run.yaml"


def test_reads_and_comes_back(tmp_path: Path) -> None:
    config = load_config(write(tmp_path))
    assert isinstance(config.tasks["missing"], CompleteTaskConfig)
    assert isinstance(config.models["complex"], ComplExConfig)
    assert config.tasks["missing"].deciding_metric == "mrr"
    (tmp_path / "again.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "again.yaml") == config


def test_all_edge_types_without_a_word(tmp_path: Path) -> None:
    load_config(write(tmp_path, ("    relations: [[place, known, place]]\n", "")))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[[place, known, place]]", "[[place, knwn, place]]", "there is no edge type"),
        ("test_relations: [last]", "test_relations: [lst]", "there is no relation `lst`"),
        ("relation_feature: relation", "relation_feature: reltion", "there is no feature `reltion`"),
        ("relation_feature: relation", "relation_feature: length", "expected a categorical feature"),
        ("test_relations: [last]", "feature: length", "expected a categorical feature"),
        ("      keep_duplicates: true\n", "", "keeps one edge of each pair"),
        ("task: missing}", "task: missing, dim: 5}", "multiple of 2"),
        ("kind: complex,", "kind: deepwalk,", "expected a task of kind"),
        ("    relation_feature", "    group: [place, known, place]\n    relation_feature", "group"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config(write(tmp_path, (old, new)))
