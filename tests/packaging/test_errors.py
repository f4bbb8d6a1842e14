"""The exception tree is drawn in its docstring; the drawing is what the classes say."""

from __future__ import annotations

import inspect
import re

import pytest

from graphbox import errors
from graphbox.errors import ConfigError, GraphboxError, did_you_mean, missing_extra

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, GraphboxError)
}


def test_the_drawing_lists_every_class_with_its_codes() -> None:
    drawn = {
        match[1]: (int(match[2]), int(match[3]))
        for match in re.finditer(r"(\w+Error) +exit (\d+) +HTTP (\d+)", errors.__doc__ or "")
    }
    assert drawn == {name: (value.exit_code, value.http_status) for name, value in CLASSES.items()}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_rendering_says_where_what_and_what_to_do(name: str) -> None:
    error = CLASSES[name]("expected a, received b", where="graph.yaml:3", hint="write a")
    assert str(error) == "graph.yaml:3: expected a, received b\n  = help: write a"
    assert re.fullmatch(r"[a-z_]+", error.code)


def test_a_config_error_shows_every_problem() -> None:
    error = ConfigError("2 mistakes in graphbox.yaml", problems=["first", "second"])
    assert str(error) == "first\nsecond\n2 mistakes in graphbox.yaml"


def test_suggestions_are_close_or_absent() -> None:
    assert did_you_mean("emb_sise", ["emb_size", "epochs"]) == "did you mean `emb_size`?"
    assert did_you_mean("zzz", ["emb_size", "epochs"]) is None


def test_a_missing_extra_names_the_command() -> None:
    assert "pip install 'graphbox[train]'" in str(missing_extra("torch", "train"))
