"""A model whose outputs have other shapes than its form says is damaged: nothing is broadcast or cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from graphbox.artifact import FieldsForm, PaddedBlockForm, TriplesForm
from graphbox.deploy import open_model
from graphbox.errors import FormatError
from tests.deploy.form_models import WRITERS
from tests.deploy.hostile_versions import sign


@pytest.mark.parametrize("form", [PaddedBlockForm, FieldsForm, TriplesForm])
def test_other_numbers_of_rows_are_refused(form: type[Any], tmp_path: Path) -> None:
    """The declared shape has a free number of rows, the result each row twice."""
    path = tmp_path / "1"
    WRITERS[form](path)
    model = onnx.load(path / "model.onnx")
    output = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["once" if name == output else name for name in node.output]
    model.graph.node.append(helper.make_node("Concat", ["once", "once"], [output], axis=0))
    onnx.save(model, path / "model.onnx")
    sign(path)
    with (
        open_model(path, "onnxruntime") as opened,
        pytest.raises(FormatError, match=r"expected outputs of the shapes .*, received \[\[") as caught,
    ):
        opened.warm_up()
    assert caught.value.where == str(path)
