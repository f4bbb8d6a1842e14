"""The keys `device` and `memory.hbm` of the run file."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.config import RunConfig, config_digest, config_schema, dump_config, load_config
from graphbox.errors import ConfigError

_RUN = """\
version: 1
name: small
graph:
  name: small
  nodes: {a: {path: a.csv, id: id, features: {label: categorical}}}
  edges: [{type: [a, to, a], path: e.csv, source: s, target: t}]
"""


def load(folder: Path, *more: str) -> RunConfig:
    path = folder / "run.yaml"
    path.write_text(_RUN + "".join(f"{line}\n" for line in more))
    return load_config(path, check_files=False)


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:3"])
def test_devices(tmp_path: Path, name: str) -> None:
    config = load(tmp_path, f"device: {name}")
    assert config.device == name
    again = tmp_path / "again.yaml"
    again.write_text(dump_config(config))
    assert load_config(again, check_files=False) == config


def test_a_run_goes_on_with_another_device_and_other_budgets(tmp_path: Path) -> None:
    digests = {
        config_digest(load(tmp_path, *lines))
        for lines in ([], ["device: cpu"], ["device: cuda:1"], ["memory: {hbm: {tables: 3GiB}}"])
    }
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CUDA", "''", "cuda:1 "])
def test_no_such_device(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"device: '{name.strip(chr(39))}'")
    text = str(caught.value)
    assert "run.yaml:7" in text
    assert "expected `auto`, `cpu`, `cuda` or `cuda:` and a number, received" in text
    assert "a GPU is `cuda`" in text


def test_budgets_of_the_gpu(tmp_path: Path) -> None:
    hbm = load(tmp_path, "memory: {hbm: {topology: 1GiB, features: 0, tables: '0'}}").memory.hbm
    assert (hbm.topology, hbm.features, hbm.tables) == (1 << 30, 0, 0)
    assert load(tmp_path).memory.hbm.tables is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("memory: {hbm: {tables: false}}",), "memory.hbm.tables: expected a size"),
        (("memory: {hbm: {tables: -1}}",), "memory.hbm.tables: expected a size"),
        (("memory: {hbm: {rows: 1GiB}}",), "memory.hbm.rows: unknown key"),
        (("device: cpu", "memory: {hbm: {tables: 1GiB}}"), "budgets of its memory beside `device: cpu`"),
    ],
)
def test_budgets_that_are_none(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *lines)
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


def test_schema_knows_them() -> None:
    schema = config_schema()
    device = schema["properties"]["device"]
    assert device["default"] == "auto"
    assert "pattern" in device
    assert set(schema["$defs"]["HbmConfig"]["properties"]) == {"topology", "features", "tables"}
