"""Models of sequences as encoders: known nodes, histories of new ones, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray

from graphbox.artifact import Artifact
from graphbox.deploy import DeployedEncoder, UnseenNode, open_encoder
from graphbox.errors import NotFoundError, UnsupportedError
from graphbox.export import NewVersion, SequenceSource, export_sequence
from graphbox.models.comirec import ComiRec
from graphbox.models.gru4rec import GRU4Rec
from graphbox.models.sasrec import SASRec
from graphbox.models.sequence_blocks import SequenceNetwork
from graphbox.train.compressed import CompressedRows
from graphbox.train.sequences.encoder import encode_histories

Floats = NDArray[np.float32]

DIM, ITEMS, WINDOW = 8, 12, 5
RELATION = "item__history__user"
HISTORIES: list[list[int]] = [[3], [], [1, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7], [9, 8, 7, 6, 5], [11, 10]]


def network_of(kind: str) -> SequenceNetwork:
    torch.manual_seed(1)
    if kind == "gru4rec":
        return GRU4Rec(DIM, 10, dropout=0.3).eval()
    if kind == "comirec":
        return ComiRec(DIM, WINDOW, interests=3, hidden=10, dropout=0.3).eval()
    return SASRec(DIM, WINDOW, layers=2, heads=2, dropout=0.3).eval()


def compressed(histories: list[list[int]]) -> CompressedRows:
    offsets = np.cumsum([0, *(len(each) for each in histories)])
    return CompressedRows(offsets, np.array([item for each in histories for item in each], np.int64))


def vectors_of(
    network: SequenceNetwork, rows: NDArray[np.float32], histories: list[list[int]]
) -> NDArray[np.float32]:
    found: NDArray[np.float32] = encode_histories(
        network, torch.from_numpy(rows), compressed(histories), WINDOW
    ).numpy()
    return found


def source_of(kind: str) -> SequenceSource:
    rows = np.random.default_rng(0).standard_normal((ITEMS, DIM)).astype(np.float32)
    network, known = network_of(kind), compressed(HISTORIES)
    vectors = vectors_of(network, rows, HISTORIES)
    return SequenceSource(network, WINDOW, "user", "item", known.offsets, known.values, rows, vectors)


def export(source: SequenceSource, folder: Path, removed_item: int | None = None) -> Artifact:
    items = [f"i{each}" if each != removed_item else None for each in range(ITEMS)]
    ids = {"item": pa.array(items), "user": pa.array([f"u{each}" for each in range(len(HISTORIES))])}
    result = export_sequence(source, ids, NewVersion(folder, "model", 1, "next"))
    assert result.parity is not None
    assert result.parity.max_absolute_error < 1e-5
    return result.artifact


@pytest.fixture(scope="module", params=["sasrec", "gru4rec", "comirec"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SequenceSource, DeployedEncoder]]:
    source = source_of(request.param)
    folder = tmp_path_factory.mktemp("model") / "1"
    export(source, folder)
    with open_encoder(folder) as model:
        yield source, model


Served = tuple[SequenceSource, DeployedEncoder]


class TestServes:
    def test_known_nodes_by_their_last_events(self, served: Served) -> None:
        source, model = served
        ids = [f"u{each}" for each in range(len(HISTORIES))]
        np.testing.assert_allclose(model.encode(ids), source.vectors, atol=1e-5)
        scores = (source.rows @ source.vectors[3].reshape(-1, DIM).T).max(axis=1)
        index, score = model.neighbors(["u3"], 4)
        assert index[0].tolist() == np.argsort(-scores)[:4].tolist()
        np.testing.assert_allclose(score[0], np.sort(scores)[::-1][:4], atol=1e-5)
        assert model.target_type() == "item"
        assert model.encode_indices(np.empty(0, np.int64)).shape == (0, source.network.vectors * DIM)

    def test_the_same_on_another_target(self, served: Served) -> None:
        pytest.importorskip("openvino")
        source, model = served
        nodes = [UnseenNode(neighbors={RELATION: each}) for each in (["i1", "i5"], ["i0"])]
        with open_encoder(model.artifact.path, "openvino") as other:
            vectors = other.encode_indices(np.arange(len(HISTORIES)))
            np.testing.assert_allclose(vectors, source.vectors, atol=1e-5)
            np.testing.assert_allclose(other.encode_unseen(nodes), model.encode_unseen(nodes), atol=1e-5)
            (index, score), (expected, scores) = (each.neighbors(["u3"], 4) for each in (other, model))
            assert index.tolist() == expected.tolist()
            np.testing.assert_allclose(score, scores, atol=1e-5)

    def test_a_compiler_that_computes_them_wrongly_is_refused(self, served: Served) -> None:
        pytest.importorskip("iree.compiler")
        with pytest.raises(UnsupportedError, match=r"IREE (compute|compile|cannot compile)"):
            open_encoder(served[1].artifact.path, "iree")

    def test_histories_of_new_nodes_as_those_of_known_ones(self, served: Served) -> None:
        source, model = served
        nodes = [UnseenNode(neighbors={RELATION: [f"i{item}" for item in each]}) for each in HISTORIES]
        np.testing.assert_allclose(model.encode_unseen(nodes), source.vectors, atol=1e-5)
        alone = [model.encode_unseen([each])[0] for each in nodes]
        np.testing.assert_allclose(alone, source.vectors, atol=1e-5)
        assert not source.vectors[1].any()  # without events

    def test_the_last_events_of_a_history_longer_than_the_window(self, served: Served) -> None:
        source, model = served
        history = [int(each) for each in np.random.default_rng(2).integers(0, ITEMS, 300)]
        long = UnseenNode(neighbors={RELATION: [f"i{item}" for item in history]})
        expected = vectors_of(source.network, source.rows, [history[-WINDOW:]])
        np.testing.assert_allclose(model.encode_unseen([long]), expected, atol=1e-5)

    def test_an_order_of_its_own_for_each_history(self, served: Served) -> None:
        _, model = served
        forward, backward = (
            UnseenNode(neighbors={RELATION: each}) for each in (["i1", "i2", "i3"], ["i3", "i2", "i1"])
        )
        first, second = model.encode_unseen([forward, backward])
        assert np.abs(first - second).max() > 1e-3

    def test_items_that_are_not_in_the_history(self, served: Served) -> None:
        _, model = served
        node = UnseenNode(neighbors={RELATION: ["i1", "i5"]})
        vectors = model.encode_unseen([node])
        ((every, _),) = model.neighbors_of_unseen([node], vectors, ITEMS)
        ((others, scores),) = model.neighbors_of_unseen([node], vectors, ITEMS, exclude_given=True)
        expected = (served[0].rows @ vectors.reshape(-1, DIM).T).max(axis=1)
        np.testing.assert_allclose(scores, expected[others], atol=1e-5)
        assert (np.diff(scores) <= 0).all()
        assert sorted(every.tolist()) == list(range(ITEMS))
        assert others.tolist() == [each for each in every.tolist() if each not in {1, 5}]

    def test_unknown_items_are_refused_by_name(self, served: Served) -> None:
        _, model = served
        with pytest.raises(NotFoundError, match="never-seen"):
            model.encode_unseen([UnseenNode(neighbors={RELATION: ["i1", "never-seen"]})])


def test_removed_items_leave_the_histories(tmp_path: Path) -> None:
    source = source_of("sasrec")
    histories = [[item for item in each if item != 2] for each in HISTORIES]
    source = SequenceSource(**{**vars(source), "vectors": vectors_of(source.network, source.rows, histories)})
    artifact = export(source, tmp_path / "1", removed_item=2)
    assert artifact.manifest.tables["item"].rows == ITEMS - 1
    with open_encoder(tmp_path / "1") as model, pytest.raises(NotFoundError, match="i2"):
        model.encode_unseen([UnseenNode(neighbors={RELATION: ["i2"]})])
