"""The key `processes` of the run file."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.config import config_digest, model_kinds
from graphbox.errors import ConfigError
from tests.config.test_device import load


def test_one_unless_said(tmp_path: Path) -> None:
    assert load(tmp_path).processes == 1
    assert load(tmp_path, "processes: 4").processes == 4


def test_a_run_goes_on_with_another_number(tmp_path: Path) -> None:
    assert config_digest(load(tmp_path)) == config_digest(load(tmp_path, "processes: 4"))


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5"])
def test_no_number_of_processes(tmp_path: Path, number: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"processes: {number}")
    assert "run.yaml:7" in str(caught.value)


def test_which_kinds_are_divided() -> None:
    sampled = {"num_neighbors": [10, 10]}
    divided = {name for name, kind in model_kinds().items() if kind.section.undivided(None, sampled) is None}
    assert divided == {
        *("gnn", "mlp", "two_tower", "deepfm", "dcn", "wide_and_deep", "din", "mmoe"),
        *("distmult", "complex", "transe", "rotate", "matrix_factorization", "sage", "pinsage"),
        *("sasrec", "gru4rec", "comirec"),
    }


_TOPIC = """\
tasks:
  topic: {kind: classify, node_type: a, label: label}
  links: {kind: predict_links, node_type: a, target_type: a, relations: [to]}
  best: {kind: recommend, node_type: a, relations: [to]}
"""


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("{kind: gnn, task: topic, num_neighbors: [5, 5]}", None),
        ("{kind: gnn, task: topic}", "the whole graph is its one batch"),
        ("{kind: gnn, task: links, num_neighbors: [5, 5]}", None),
        ("{kind: matrix_factorization, task: best}", None),
        (
            "{kind: sage, task: best, pretrain: {metapaths: [[[a, to, a]]]}}",
            "the walks that it learns first are not divided",
        ),
        ("{kind: lightgcn, task: best}", "each batch smooths the rows of all nodes over the whole graph"),
        ("{kind: deepwalk}", "one loop draws its pairs and learns their rows where they are"),
        ("{kind: temporal, task: links}", "its batches are not divided among processes"),
    ],
)
def test_models_that_one_process_trains_are_told_by_check(
    tmp_path: Path, model: str, reason: str | None
) -> None:
    lines = ("processes: 2", *_TOPIC.splitlines(), "models:", f"  net: {model}")
    if reason is None:
        assert load(tmp_path, *lines).processes == 2
        return
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *lines)
    text = str(caught.value)
    assert f"received `net` of kind {model.split()[1].rstrip(',}')}: {reason}" in text
    assert "run.yaml:7" in text


def test_streams_have_one_process(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "processes: 2", "stream: {folder: .}", "models:", "  walk: {kind: deepwalk}")
    assert "expected one process for a model that follows a stream, received 2" in str(caught.value)
