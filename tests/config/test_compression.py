"""Section `compress` of run files: codecs by table, limits of latency, and what mistakes say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from graphbox.config import CompressConfig, load_config, precisions_by_table
from graphbox.config.explain import explain
from graphbox.config.source import source_of
from graphbox.errors import ConfigError

RUN_FILE = """\
version: 1
name: small
graph:
  name: small
  nodes:
    paper: {path: paper.csv}
  edges:
    - {type: [paper, cites, paper], path: cites.csv}
tasks:
  cited: {kind: recommend, node_type: paper, relations: [cites], target_type: paper}
models:
  light: {kind: lightgcn, task: cited}
export:
  shop: {model: light}
compress:
  shop: COMPRESS
"""


def loaded(folder: Path, section: str) -> CompressConfig:
    """Return the section of a run file."""
    path = folder / "run.yaml"
    path.write_text(RUN_FILE.replace("COMPRESS", section))
    return load_config(path, check_files=False).compress["shop"]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{}", {"*": "int8"}),
        ("{tables: int4}", {"*": "int4"}),
        ("{tables: {paper: int3, tag: int4_clustered}}", {"paper": "int3", "tag": "int4_clustered"}),
        ('{tables: {paper: int3, "*": int8}}', {"paper": "int3", "*": "int8"}),
    ],
)
def test_codecs_are_for_all_tables_or_by_table(
    tmp_path: Path, section: str, expected: dict[str, str]
) -> None:
    assert precisions_by_table(loaded(tmp_path, section).tables) == expected


def test_limits_of_latency_are_milliseconds_or_relative(tmp_path: Path) -> None:
    search = loaded(tmp_path, "{search: {max_p50_ms: 100%, max_p99_ms: 3}}").search
    assert search is not None
    assert (search.max_p50_ms, search.max_p99_ms) == ("100%", 3)


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ("{tables: int9}", "tables", "received the text 'int9'\n.*\n.*did you mean `int8`"),
        ("{tables: {paper: int9}}", "tables.paper", "received the text 'int9'\n.*\n.*did you mean `int8`"),
        ("{tables: [int8]}", "tables", "expected 'float32', .*, received a list of 1"),
        ("{search: {max_p50_ms: 3ms}}", "search.max_p50_ms", "expected milliseconds like 3, or like 100% of"),
        ("{search: {max_p50_ms: -1}}", "search.max_p50_ms", "expected milliseconds .*, received -1"),
        (
            "{search: {max_p99_ms: 0%}}",
            "search.max_p99_ms",
            "expected milliseconds .*, received the text '0%'",
        ),
    ],
)
def test_mistakes_name_key_and_values(tmp_path: Path, section: str, key: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, section)
    (problem,) = refused.value.problems
    assert problem.startswith(f"{tmp_path}/run.yaml:16: compress.shop.{key}: ")
    assert re.search(message, problem)


def test_messages_of_checks_have_no_words_of_the_library() -> None:
    class Named(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def check(cls, value: Any) -> Any:
            raise ValueError("Expected a short name.")

    with pytest.raises(ValidationError) as refused:
        Named.model_validate({"name": "long"})
    (item,) = refused.value.errors(include_url=False)
    assert explain(item, source_of({"name": "long"})).message == (
        "expected a short name, received the text 'long'"
    )
