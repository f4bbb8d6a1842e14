"""The file of finished trials: it survives a kill at any byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbox.compress.latency import Latency
from graphbox.compress.recipe import Recipe
from graphbox.compress.search import RecipeTrialLog, Trial
from graphbox.errors import DoesNotFitError, FormatError


def trial(number: int) -> Trial:
    """Return a trial like those of a search."""
    return Trial(
        Recipe("int8", {"user": "int4"}, ("a",), 1 / number),
        "sampler",
        "measured",
        size_bytes=number,
        parts_bytes={"dense": number},
        metrics={"recall@20": 0.1 * number},
        latency=Latency(0.1, 0.05, 0.2, 0.3, 0.4, 0.5),
        seconds=0.7,
    )


REFUSED = Trial(Recipe("int4_weights"), "ladder", "refused", reason="the target cannot run it")


def test_trials_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = RecipeTrialLog(tmp_path / "trials.jsonl")
    for each in (trial(1), REFUSED, trial(2)):
        log.add(each)
    again = RecipeTrialLog(tmp_path / "trials.jsonl")
    assert list(again) == [trial(1), REFUSED, trial(2)]
    assert again.find(REFUSED.recipe) == REFUSED
    assert again.find(Recipe()) is None


def test_trials_from_before_fine_tuning_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    RecipeTrialLog(path).add(trial(1))
    line = json.loads(path.read_text())
    assert line["recipe"].pop("tuned") is False
    path.write_text(json.dumps(line) + "\n")
    assert list(RecipeTrialLog(path)) == [trial(1)]
    assert RecipeTrialLog(path).find(trial(1).recipe) == trial(1)


@pytest.mark.parametrize("line", ["{}", "[]", "no json", "null", "[" * 5000, '{"recipe": 3}'])
def test_a_whole_line_that_is_no_trial_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trials.jsonl"
    RecipeTrialLog(path).add(trial(1))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(FormatError, match="expected a line for each trial") as refused:
        RecipeTrialLog(path)
    assert refused.value.where == str(path)


def test_an_unfinished_line_is_dropped_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    log = RecipeTrialLog(path)
    log.add(trial(1))
    whole = path.stat().st_size
    log.add(trial(2))
    content = path.read_bytes()
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        expected = (length >= whole) + (length == len(content))
        log = RecipeTrialLog(path)
        assert len(log) == expected
        log.add(trial(3))
        assert list(RecipeTrialLog(path))[-1] == trial(3)


def test_a_full_disk_is_an_error_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    log = RecipeTrialLog(path)
    path.symlink_to("/dev/full")
    with pytest.raises(DoesNotFitError, match="no room to note a finished trial"):
        log.add(trial(1))
