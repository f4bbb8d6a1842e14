"""Embeddings of ids that a model of stored rows lacks, by each policy, and how often they were asked for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import Artifact
from graphbox.artifact.lookup_form import UnknownIds
from graphbox.compress import compress
from graphbox.config import CompressConfig
from graphbox.deploy import open_encoder
from graphbox.errors import FormatError, InvalidRequestError, NotFoundError
from tests.artifact.lookup_model import CODECS, DIM, ITEMS, USERS, write_lookup
from tests.artifact.sample_model import make_model, write_encoder

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("unknown_ids", ["zero", "mean"])
def test_unknown_ids_have_the_default_row(unknown_ids: UnknownIds, codec: str, tmp_path: Path) -> None:
    artifact = write_lookup(tmp_path / "1", unknown_ids, codec)
    with open_encoder(artifact.path) as model:
        for node_type, ids, unknown in (("user", USERS, "user x"), ("item", ITEMS, 8)):
            table, default_row = artifact.table(node_type), artifact.default_row(node_type)
            places = RANDOM.integers(-1, len(ids), 500)
            asked: list[Any] = [unknown if place < 0 else ids[place] for place in places]
            vectors, known = model.encode_known(asked, node_type)
            assert default_row is not None
            expected = np.stack([default_row if place < 0 else table.rows([place])[0] for place in places])
            np.testing.assert_array_equal(vectors, expected)
            np.testing.assert_array_equal(known, places >= 0)
            np.testing.assert_array_equal(model.encode(asked, node_type), expected)
        vectors, known = model.encode_known([])
        assert (vectors.shape, known.shape) == ((0, DIM), (0,))
        assert known.dtype == np.bool_


def test_unknown_ids_are_refused_where_nothing_is_declared(tmp_path: Path) -> None:
    rows = write_lookup(tmp_path / "rows" / "1", "refuse")
    encoder = write_encoder(tmp_path / "encoder" / "1", make_model())
    for path in (rows.path, encoder.path):
        with open_encoder(path) as model:
            first = model.ids([0])
            vectors, known = model.encode_known(first)
            np.testing.assert_array_equal(vectors, model.encode(first))
            assert known.tolist() == [True]
            with pytest.raises(NotFoundError, match=r"`absent`.*1 of 2 ids are unknown"):
                model.encode_known([*first, "absent"])


def test_what_a_default_does_not_change(tmp_path: Path) -> None:
    with open_encoder(write_lookup(tmp_path / "1").path) as model:
        with pytest.raises(NotFoundError, match="expected the id of a node of type `user`"):
            model.neighbors(["user x"], 1)
        with pytest.raises(NotFoundError, match="node types"):
            model.encode(["user 1"], "package")
        with pytest.raises(InvalidRequestError, match="expected ids of type string, received int"):
            model.encode([3])
        with pytest.raises(InvalidRequestError, match="expected ids of type int64, received str"):
            model.encode(["7"], "item")
        with pytest.raises(InvalidRequestError, match="received -1"):
            model.encode_indices(np.array([-1]))


def test_inference_has_an_output_of_known_ids(tmp_path: Path) -> None:
    ids = np.array([b"user 1", b"absent"], object)
    with open_encoder(write_lookup(tmp_path / "zero" / "1", "zero").path) as model:
        for asked in (ids, ids[:0]):
            found = model.infer({"id": asked})
            assert list(found) == ["embedding", "known"]
            assert found["embedding"].shape == (len(asked), DIM)
            np.testing.assert_array_equal(found["known"], np.array([True, False])[: len(asked)])
            assert found["known"].dtype == np.bool_
    with open_encoder(write_lookup(tmp_path / "refuse" / "1", "refuse").path) as model:
        assert list(model.infer({"id": ids[:1]})) == ["embedding"]
        with pytest.raises(NotFoundError, match="`absent`"):
            model.infer({"id": ids})


def test_lookups_are_counted_by_any_number_of_threads(tmp_path: Path) -> None:
    start = threading.Barrier(4)

    def ask(number: int) -> int:
        random = np.random.default_rng(number)
        start.wait()
        defaults = 0
        for _ in range(50):
            known = model.encode_known([f"user {place}" for place in random.integers(0, 140_000, 20)])[1]
            defaults += int(np.count_nonzero(~known))
        return defaults

    with open_encoder(write_lookup(tmp_path / "1").path) as model:
        model.encode(["user 1", "absent"])
        with pytest.raises(InvalidRequestError):
            model.encode([1])
        assert model.lookups.counts() == (2, 1)
        with ThreadPoolExecutor(4) as threads:
            defaults = sum(threads.map(ask, range(4)))
        assert model.lookups.counts() == (2 + 4 * 50 * 20, 1 + defaults)
        assert 0 < defaults < 4 * 50 * 20


def test_a_compressed_version_has_the_same_default(tmp_path: Path) -> None:
    artifact = write_lookup(tmp_path / "1")
    compress(
        artifact,
        tmp_path / "2",
        CompressConfig(),
        version=2,
        metric="recall",
        evaluate=lambda _model, _fold: {"recall": 1.0},
    )
    compressed = Artifact.open(tmp_path / "2")
    assert {spec.codec for spec in compressed.manifest.tables.values()} == {"int8_rowwise"}
    with open_encoder(compressed.path) as model:
        vectors, known = model.encode_known([8, 7], "item")
        np.testing.assert_array_equal(vectors[0], artifact.default_row("item"))
        np.testing.assert_allclose(vectors[1], artifact.table("item").rows([ITEMS.index(7)])[0], atol=0.05)
        assert known.tolist() == [False, True]


def test_a_damaged_default_row_shows_when_the_model_is_opened(tmp_path: Path) -> None:
    artifact = write_lookup(tmp_path / "1")
    (artifact.path / "defaults" / "user.npy").write_bytes(
        (artifact.path / "defaults" / "user.npy").read_bytes()[:-8] + bytes(8)
    )
    with pytest.raises(FormatError, match="sha256"):
        open_encoder(artifact.path)
