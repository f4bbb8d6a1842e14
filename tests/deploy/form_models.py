"""A small model version of each form, with integer ids, written with NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.artifact import (
    Artifact,
    ArtifactWriter,
    FieldsForm,
    FieldSpec,
    FieldTable,
    LookupForm,
    PaddedBlockForm,
    TargetSpec,
    TensorsForm,
    TensorSpec,
    TriplesForm,
)
from graphbox.artifact.fields_form import probability_names
from graphbox.artifact.links import links_table
from graphbox.artifact.lookup_form import UnknownIds
from graphbox.deploy.conformance_models import gather_model
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.fields import Field, Fields, NumberScale
from tests.artifact.sample_model import make_model, write_encoder

__all__ = ["WRITERS"]

DIM: Final = 3
ENTITIES: Final = 5
_LIKES: Final = ("user", "likes", "item")


def write_numbers(path: Path, unknown_ids: UnknownIds = "refuse") -> Artifact:
    """Write rows alone, whose ids are 100 to 104."""
    rows = np.random.default_rng(1).standard_normal((ENTITIES, DIM), np.float32)
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", range(100, 100 + ENTITIES))
        writer.add_table("item", "item", rows)
        writer.set_lookup("item", {"item": "item"}, unknown_ids)
        targets = {"item": TargetSpec(table="item", score="inner_product")}
        return writer.commit(name="numbers", version=1, kind="embedding", task=None, dim=DIM, targets=targets)


def write_padded_block(path: Path) -> Artifact:
    """Write an encoder whose ids are integers, 7 apart."""
    return write_encoder(path, make_model(packages=9, id_kind="int64"))


def write_click_of_histories(path: Path) -> Artifact:
    """Write the same as :func:`write_click`, with countries seen before and the number of one in a row."""
    history = (
        FieldSpec(name="seen", kind="slots", window=2, items="country"),
        FieldSpec(name="place", kind="integer", items="country"),
    )
    return write_click(path, FieldSpec(name="country", kind="categorical", items="country"), history)


def write_click_of_labels(path: Path) -> Artifact:
    """Write the same as :func:`write_click`, with the probability of a second label."""
    return write_click(path, labels=("clicked", "bought"))


def write_click(
    path: Path,
    country: FieldSpec = FieldSpec(name="country", kind="categorical"),  # noqa: B008 - it is frozen
    further: tuple[FieldSpec, ...] = (),
    labels: tuple[str, ...] = (),
) -> Artifact:
    """Write the probability of a row with a category, slots, a number and an integer."""
    fields = (
        country,
        FieldSpec(name="tags", kind="slots"),
        FieldSpec(name="age", kind="integer", mean=(1.0,), deviation=(1.0,), knots=(0.0, 10.0, 20.0)),
        FieldSpec(name="price", kind="number", mean=(1.0,), deviation=(2.0,), knots=(0.5, 1.5)),
        *further,
    )
    bags = sum(field.window or 1 for field in fields)
    keys = _keys_of(fields)
    names = probability_names(labels)
    of_second = [
        Node("Mul", ["logit", "half"], ["of_second"]),
        Node("Sigmoid", ["of_second"], [names[-1]]),
    ]
    model = write_onnx(
        [
            Node("ReduceSum", ["values", "axes"], ["from_values"], {"keepdims": 0}),
            Node("MatMul", ["numbers", "weight"], ["from_numbers"]),
            Node("Add", ["from_values", "from_numbers"], ["logit"]),
            Node("Sigmoid", ["logit"], ["probability"]),
            *(of_second if labels else ()),
        ],
        {"values": (np.float32, ["n", bags, DIM]), "numbers": (np.float32, ["n", 4])},
        {name: (np.float32, ["n"]) for name in names},
        {
            "axes": np.array([1, 2], np.int64),
            "weight": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
            **({"half": np.array(-0.5, np.float32)} if labels else {}),
        },
    )
    inputs = [
        TensorSpec(name="values", datatype="FP32", shape=(-1, bags, DIM)),
        TensorSpec(name="numbers", datatype="FP32", shape=(-1, 4)),
    ]
    form = FieldsForm(
        node_type="visit",
        fields=fields,
        tables={"values": FieldTable(input="values")},
        numbers="numbers",
        positive_rate=0.25,
        labels=labels,
    )
    with ArtifactWriter(path) as writer:
        writer.add_ids("values", keys.tolist())
        rows = np.random.default_rng(2).standard_normal((len(keys), DIM), np.float32)
        writer.add_table("values", "values", rows)
        outputs = [TensorSpec(name=name, datatype="FP32", shape=(-1,)) for name in names]
        writer.set_onnx(model, opset=20, precision="float32", inputs=inputs, outputs=outputs)
        writer.set_preprocess(form)
        writer.set_example(
            [
                {"name": "country", "datatype": "BYTES", "shape": [2], "data": ["nl", "de"]},
                {"name": "tags", "datatype": "BYTES", "shape": [2], "data": ["1|2", ""]},
                {"name": "age", "datatype": "INT64", "shape": [2], "data": [7, 30]},
                {"name": "price", "datatype": "FP32", "shape": [2], "data": [0.75, 2.5]},
                *(
                    {
                        "name": each.name,
                        "datatype": each.tensor.datatype,
                        "shape": [2],
                        "data": ["", "nl|de|fr"] if each.kind == "slots" else [7, 8],
                    }
                    for each in further
                ),
            ]
        )
        return writer.commit(name="visits", version=1, kind="click", task="click", dim=1, targets={})


def _keys_of(fields: tuple[FieldSpec, ...]) -> npt.NDArray[np.int64]:
    """Return the keys of a few values of each column, ascending."""
    from graphbox.deploy.field_columns import columns_of_rows

    shaped = Fields([Field(each.name, each.kind, each.dim, each.window, each.items) for each in fields], ())
    scale = NumberScale(
        np.array([1.0, 1.0]), np.array([1.0, 2.0]), np.array([[0, 10, 20], [0.5, 1.5, np.inf]]), 0.25
    )
    rows = [
        {"country": country, "tags": [1, 2, 7], "age": age, "price": price, "seen": [country], "place": 7}
        for country, age, price in (("nl", 0, 0.5), ("de", 10, 1.5), ("fr", 20, None))
    ]
    return np.unique(shaped.arrays(shaped.prepare(columns_of_rows(fields, rows)), scale).keys)


def write_knowledge_graph(path: Path) -> Artifact:
    """Write a model of users who like items, by the product of the three rows, with known links."""
    random = np.random.default_rng(3)
    model = write_onnx(
        [
            Node("Mul", ["rows", "relations"], ["queries"]),
            Node("Gemm", ["queries", "candidates"], ["scores"], {"transB": 1}),
        ],
        {
            "rows": (np.float32, ["n", DIM]),
            "relations": (np.float32, ["n", DIM]),
            "candidates": (np.float32, ["m", DIM]),
        },
        {"scores": (np.float32, ["n", "m"])},
    )
    form = TriplesForm(
        node_type="user",
        entities={"user": "user", "item": "item"},
        relation_type="relation",
        to_tails="to_tails",
        to_heads="to_heads",
        ends={"likes": ("user", "item")},
        rows_input="rows",
        relations_input="relations",
        candidates_input="candidates",
        compares_numbers=False,
    )
    inputs = [
        TensorSpec(name=n, datatype="FP32", shape=(-1, DIM)) for n in ("rows", "relations", "candidates")
    ]
    with ArtifactWriter(path) as writer:
        for node_type in ("user", "item"):
            writer.add_ids(node_type, range(10, 10 + ENTITIES))
            writer.add_table(node_type, node_type, random.standard_normal((ENTITIES, DIM), np.float32))
        writer.add_ids("relation", ["likes"])
        for name in ("to_tails", "to_heads"):
            writer.add_table(name, "relation", random.standard_normal((1, DIM), np.float32))
        outputs = [TensorSpec(name="scores", datatype="FP32", shape=(-1, -1))]
        writer.set_onnx(model, opset=20, precision="float32", inputs=inputs, outputs=outputs)
        writer.set_preprocess(form)
        users, items = np.array([0, 1, 2]), np.array([1, 2, 3])
        writer.set_links(links_table(users, items, np.array([False, False, True]), _LIKES))
        writer.set_example(
            [
                {"name": "id", "datatype": "INT64", "shape": [1], "data": [10]},
                {"name": "relation", "datatype": "BYTES", "shape": [1], "data": ["likes"]},
            ]
        )
        return writer.commit(
            name="likes", version=1, kind="knowledge_graph", task="complete", dim=DIM, targets={}
        )


def write_tensors(path: Path) -> Artifact:
    """Write a bare model that selects rows by their positions."""
    inputs = [
        TensorSpec(name="rows", datatype="FP32", shape=(-1, 2)),
        TensorSpec(name="positions", datatype="INT64", shape=(-1,)),
    ]
    with ArtifactWriter(path) as writer:
        outputs = [TensorSpec(name="result", datatype="FP32", shape=(-1, 2))]
        writer.set_onnx(gather_model(), opset=20, precision="float32", inputs=inputs, outputs=outputs)
        writer.set_preprocess(TensorsForm())
        writer.set_example(
            [
                {"name": "rows", "datatype": "FP32", "shape": [2, 2], "data": [1.0, 2.0, 3.0, 4.0]},
                {"name": "positions", "datatype": "INT64", "shape": [2], "data": [1, 0]},
            ]
        )
        return writer.commit(name="select", version=1, kind="tensors", task=None, dim=1, targets={})


WRITERS: Final[Mapping[type[Any], Callable[[Path], Artifact]]] = {
    LookupForm: write_numbers,
    PaddedBlockForm: write_padded_block,
    FieldsForm: write_click,
    TriplesForm: write_knowledge_graph,
    TensorsForm: write_tensors,
}
"""Writer of a model version, by the class of its form."""
