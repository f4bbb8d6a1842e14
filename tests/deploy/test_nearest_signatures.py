"""Nearest nodes by named arrays: of ids, of vectors, with allow-lists and deny-lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.deploy.joining import answer_joined, batch_key
from graphbox.deploy.signature import NEAREST_SUFFIX, NEAREST_VECTORS_SUFFIX
from graphbox.errors import GraphboxError, InvalidRequestError, NotFoundError
from tests.deploy.form_models import write_numbers
from tests.deploy.nearest_models import DIM, clustered, wait_for_index, write_items

K = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedEncoder]:
    path = write_items(tmp_path_factory.mktemp("models") / "shop" / "1").path
    with open_encoder(path, "onnxruntime", nearest="index") as opened:
        for query_type in ("item", "user"):
            assert wait_for_index(opened, query_type) == "index"
        yield opened


def texts(values: list[str]) -> npt.NDArray[Any]:
    tensor = np.empty(len(values), object)
    tensor[:] = [each.encode() for each in values]
    return tensor


def test_ids_give_their_neighbors(model: DeployedEncoder) -> None:
    found = model.infer({"id": texts(["item-00007", "item-00100"])}, {"k": K}, NEAREST_SUFFIX)
    index, score = model.neighbors(["item-00007", "item-00100"], K)
    assert found["neighbor"].tolist() == [[str(each).encode() for each in model.ids(row)] for row in index]
    np.testing.assert_array_equal(found["score"], score)
    assert found["count"].tolist() == [K, K]
    assert model.infer({"id": texts(["item-00007"])}, {}, NEAREST_SUFFIX)["neighbor"].shape == (1, 10)


def test_ids_of_another_type_and_their_links(model: DeployedEncoder) -> None:
    asked = {"k": K, "node_type": "user"}
    user = texts(["1005"])
    first = model.infer({"id": user}, asked, NEAREST_SUFFIX)
    index, _ = model.neighbors([1005], K, node_type="user")
    assert first["neighbor"][0].tolist() == [str(each).encode() for each in model.ids(index[0], "item")]
    new = model.infer({"id": user}, {**asked, "linked": False}, NEAREST_SUFFIX)
    linked = model.ids(model.artifact.links.linked_to("user", 5, "item"), "item")
    assert not {str(each).encode() for each in linked} & set(new["neighbor"][0].tolist())
    assert new["count"].tolist() == [K]


def test_vectors_give_their_neighbors(model: DeployedEncoder) -> None:
    vectors = clustered(4, 9)
    found = model.infer({"vector": vectors}, {"k": K}, NEAREST_VECTORS_SUFFIX)
    for row, (index, score) in enumerate(model.nearest.nearest(vectors, K, "item")):
        assert found["neighbor"][row].tolist() == [str(each).encode() for each in model.ids(index)]
        assert found["score"][row].tolist() == score.tolist()
    nothing = model.infer({"vector": vectors[:0]}, {"k": K}, NEAREST_VECTORS_SUFFIX)
    assert {name: array.shape for name, array in nothing.items()} == {
        "neighbor": (0, K),
        "score": (0, K),
        "count": (0,),
    }


def test_lists_of_each_query(model: DeployedEncoder) -> None:
    vectors = clustered(4, 9)
    best = model.infer({"vector": vectors}, {"k": K}, NEAREST_VECTORS_SUFFIX)["neighbor"]
    allow = ["item-00001", "item-00002", "item-11999", "no such item"]
    inputs = {
        "vector": vectors,
        "allow": texts(allow),
        "num_allow": np.array([-1, 4, 0, -1]),
        "deny": np.concatenate([best[0, :2], texts(["gone", "item-00001"])]),
        "num_deny": np.array([2, 2, 0, 0]),
    }
    found = model.infer(inputs, {"k": K}, NEAREST_VECTORS_SUFFIX)
    assert found["count"].tolist() == [K, 2, 0, K]
    assert found["neighbor"][0, : K - 2].tolist() == best[0, 2:].tolist()
    assert sorted(found["neighbor"][1, :2]) == [b"item-00002", b"item-11999"]
    assert found["neighbor"][1, 2:].tolist() == [b""] * 3
    assert not found["score"][1, 2:].any()
    assert found["neighbor"][3].tolist() == best[3].tolist()


def test_joined_calls_answer_as_single_ones(model: DeployedEncoder) -> None:
    signature = model.signature(NEAREST_VECTORS_SUFFIX)
    vectors = clustered(6, 9)
    lists = {"allow": texts(["item-00003", "item-00004"]), "num_allow": np.array([2])}
    calls = [
        signature.completed({"vector": vectors[:2]}),
        signature.completed({"vector": vectors[2:3], **lists}),
        signature.completed({"vector": vectors[3:6]}),
    ]
    assert len({batch_key(signature, each, {"k": K}) for each in calls}) == 1
    joined = answer_joined(signature, calls, {"k": K})
    for together, call in zip(joined, calls, strict=True):
        alone = signature.answer(call, {"k": K})
        assert not isinstance(together, Exception)
        for name, expected in alone.items():
            np.testing.assert_array_equal(together[name], expected)


def test_integer_ids(tmp_path: Path) -> None:
    with open_encoder(write_numbers(tmp_path / "numbers" / "1").path, "onnxruntime") as model:
        inputs = {"id": np.array([102]), "deny": np.array([104, 7]), "num_deny": np.array([2])}
        found = model.infer(inputs, {"k": K}, NEAREST_SUFFIX)
        assert found["neighbor"].dtype == np.int64
        assert found["count"].tolist() == [3]
        assert set(found["neighbor"][0, :3].tolist()) == {100, 101, 103}
        assert found["neighbor"][0, 3:].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("changes", "parameters", "message"),
    [
        ({}, {"k": 0}, "between 1 and 1000"),
        ({}, {"k": True}, "between 1 and 1000"),
        ({}, {"k": 1001}, "between 1 and 1000"),
        ({}, {"node_type": "shop"}, "one of the node types item, user"),
        ({}, {"linked": False}, "unknown: .'linked'."),
        ({"vector": np.full((2, DIM), np.nan, np.float32)}, {}, "finite numbers"),
        ({"vector": np.ones((2, DIM + 1), np.float32)}, {}, r"\[any, 16\]"),
        ({"allow": texts(["item-00001"])}, {}, "sum 1"),
        ({"num_allow": np.array([0])}, {}, "2 counts"),
        ({"num_allow": np.array([-2, 0])}, {}, "counts of at least -1"),
        ({"num_deny": np.array([-1, 0])}, {}, "counts of at least 0"),
        ({"deny": texts(["item-00001"]), "num_deny": np.array([2, -1])}, {}, "counts of at least 0"),
        ({"num_deny": np.array([2**62, 2**62])}, {}, "counts of at least 0"),
        ({"deny": np.array([b"\xff"], object), "num_deny": np.array([1, 0])}, {}, "UTF-8"),
    ],
)
def test_wrong_requests(
    model: DeployedEncoder, changes: dict[str, Any], parameters: dict[str, Any], message: str
) -> None:
    inputs = {"vector": clustered(2, 9), **changes}
    with pytest.raises(InvalidRequestError, match=message):
        model.infer(inputs, parameters, NEAREST_VECTORS_SUFFIX)


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ({}, InvalidRequestError),
        ({"id": texts(["nobody"])}, NotFoundError),
        ({"id": texts(["item-00001"]), "vector": clustered(1, 9)}, InvalidRequestError),
    ],
)
def test_wrong_ids(model: DeployedEncoder, inputs: dict[str, Any], error: type[GraphboxError]) -> None:
    with pytest.raises(error):
        model.infer(inputs, {}, NEAREST_SUFFIX)
