"""Model versions for tests of browser bundles, beside those of `form_models`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphbox.artifact import (
    Artifact,
    ArtifactWriter,
    LayerSpec,
    LookupForm,
    PaddedBlockForm,
    RowsSpec,
    TargetSpec,
    TensorSpec,
    TriplesForm,
)
from graphbox.artifact.links import links_table
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.row_codecs import row_codec

__all__ = ["write_classifier", "write_large_graph", "write_rows"]

ROWS, DIM = 3000, 33
COLOURS = 25
LARGE_ROWS, LARGE_DIM = 70_000, 64  # more numbers than the page scores at once


def write_rows(path: Path, codec: str) -> Artifact:
    """Write rows alone, enough for several blocks; ids are text that is markup, addresses or Chinese."""
    rows = np.random.default_rng(3).standard_normal((ROWS, DIM), np.float32)
    rows[7] = 0
    ids = [f"<i>{index}</i> & \"'?#%2F\\ 节点" for index in range(ROWS)]
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", ids)
        writer.add_table("item", "item", rows, row_codec("int8_rowwise" if codec == "int8" else codec))
        writer.set_preprocess(LookupForm(node_type="item", tables={"item": "item"}))
        targets = {"item": TargetSpec(table="item", score="cosine")}
        return writer.commit(name=codec, version=1, kind="embedding", task=None, dim=DIM, targets=targets)


def write_classifier(path: Path) -> Artifact:
    """Write an encoder that gives probabilities of three classes, and has no table to rank."""
    inputs = [
        TensorSpec(name="rows", datatype="FP32", shape=(-1, 3)),
        TensorSpec(name="own", datatype="INT64", shape=(-1,)),
    ]
    outputs = [TensorSpec(name=name, datatype="FP32", shape=(-1, 3)) for name in ("embedding", "probability")]
    model = write_onnx(
        [
            Node("Gather", ["rows", "own"], ["embedding"]),
            Node("Softmax", ["embedding"], ["probability"], {"axis": 1}),
        ],
        {"rows": (np.float32, ["m", 3]), "own": (np.int64, ["n"])},
        {"embedding": (np.float32, ["n", 3]), "probability": (np.float32, ["n", 3])},
    )
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", range(-5, COLOURS - 5))
        rows = np.random.default_rng(2).standard_normal((COLOURS, 3), np.float32)
        writer.add_table("item", "item", rows)
        writer.set_onnx(model, opset=20, precision="float32", inputs=inputs, outputs=outputs)
        form = PaddedBlockForm(
            node_type="item",
            rows={"item": RowsSpec(input="rows", tables=("item",))},
            layers=(LayerSpec(groups=(), self_inputs={"item": "own"}),),
            classes=("<b>red</b>", "green", "blue"),
        )
        writer.set_preprocess(form)
        return writer.commit(name="colours", version=1, kind="encoder", task="classify", dim=3, targets={})


def write_large_graph(path: Path) -> Artifact:
    """Write a knowledge graph of int8 rows whose candidates are scored in several calls."""
    random = np.random.default_rng(7)
    model = write_onnx(
        [
            Node("Mul", ["rows", "relations"], ["queries"]),
            Node("Gemm", ["queries", "candidates"], ["scores"], {"transB": 1}),
        ],
        {name: (np.float32, [size, LARGE_DIM]) for name, size in _INPUTS.items()},
        {"scores": (np.float32, ["n", "m"])},
    )
    inputs = [TensorSpec(name=name, datatype="FP32", shape=(-1, LARGE_DIM)) for name in _INPUTS]
    form = TriplesForm(
        node_type="page",
        entities={"page": "page"},
        relation_type="relation",
        to_tails="to_tails",
        to_heads="to_heads",
        ends={"links to": ("page", "page"), "<b>cites</b>": ("page", "page")},
        rows_input="rows",
        relations_input="relations",
        candidates_input="candidates",
        compares_numbers=False,
    )
    with ArtifactWriter(path) as writer:
        writer.add_ids("page", [f"page {number}" for number in range(LARGE_ROWS)])
        rows = random.standard_normal((LARGE_ROWS, LARGE_DIM), np.float32)
        writer.add_table("page", "page", rows, row_codec("int8_rowwise"))
        writer.add_ids("relation", list(form.ends))
        for name in (form.to_tails, form.to_heads):
            writer.add_table(name, "relation", random.standard_normal((2, LARGE_DIM), np.float32))
        outputs = [TensorSpec(name="scores", datatype="FP32", shape=(-1, -1))]
        writer.set_onnx(model, opset=20, precision="float32", inputs=inputs, outputs=outputs)
        writer.set_preprocess(form)
        source, target = random.integers(0, LARGE_ROWS, (2, 1000))
        held_out = np.zeros(len(source), bool)
        writer.set_links(links_table(source, target, held_out, ("page", "links to", "page")))
        return writer.commit(
            name="pages", version=1, kind="knowledge_graph", task="complete", dim=LARGE_DIM, targets={}
        )


_INPUTS = {"rows": "n", "relations": "n", "candidates": "m"}
