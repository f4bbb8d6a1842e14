"""`graphbox convert-pglbox`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.pglbox.presets import pgl, yaml_text


@pytest.fixture
def config(folder: Path) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml_text(pgl()))
    return path


def test_account_of_the_keys(folder: Path, config: Path, graphbox: Call) -> None:
    outcome = graphbox("convert-pglbox", "config.yaml", "-o", "out.yaml")
    assert outcome.code == 0, outcome.err
    for word in ("walk_len", "mapped", "models.walk.walk_length", "hadoop_shard", "ignored", "unsupported"):
        assert word in outcome.out
    assert "wrote out.yaml; next: `graphbox check out.yaml`" in outcome.out
    assert (folder / "out.yaml").read_text().startswith("# Converted from the PGLBox file config.yaml")


def test_account_as_json(folder: Path, config: Path, graphbox: Call) -> None:
    document = graphbox("convert-pglbox", "config.yaml", "--json").json
    assert document["output"] == "graphbox.yaml"
    assert [entry["key"] for entry in document["keys"]] == list(pgl())
    found = {entry["key"]: entry for entry in document["keys"]}
    assert found["walk_len"]["fate"] == "mapped"
    assert (found["walk_len"]["value"], found["walk_len"]["target"]) == (24, "models.walk.walk_length")
    assert found["loss_type"]["fate"] == "unsupported"
    assert found["emb_size"]["note"] is None
    lines = config.read_text().splitlines()
    assert all(lines[entry["line"] - 1].startswith(entry["key"]) for entry in document["keys"])


def test_what_is_there_is_kept(folder: Path, config: Path, graphbox: Call) -> None:
    (folder / "graphbox.yaml").write_text("mine")
    outcome = graphbox("convert-pglbox", "config.yaml")
    assert outcome.code == 1
    assert "--force" in outcome.err
    assert (folder / "graphbox.yaml").read_text() == "mine"
    assert graphbox("convert-pglbox", "config.yaml", "--force").code == 0
    assert (folder / "graphbox.yaml").read_text() != "mine"
    assert graphbox("convert-pglbox", "config.yaml", "-o", "no/such/folder.yaml").code == 1


def test_nothing_is_written_when_keys_are_refused(folder: Path, config: Path, graphbox: Call) -> None:
    config.write_text(yaml_text(pgl(wlak_len=4, emb_size="x")))
    outcome = graphbox("convert-pglbox", "config.yaml")
    assert outcome.code == 2
    assert not (folder / "graphbox.yaml").exists()
    assert "did you mean `walk_len`?" in outcome.err
    assert "2 keys of config.yaml cannot be converted" in outcome.err
    problems = graphbox("convert-pglbox", "config.yaml", "--json").json["error"]["problems"]
    assert len(problems) == 2
