"""Popularity of rows: by neighbour lists, and by links that were not held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphbox.artifact import PaddedBlockForm
from graphbox.compress.popularity import popularity_of
from graphbox.compress.tables import CODEC_OF_PRECISION, TIERED_PRECISIONS, codec_of
from graphbox.errors import UnsupportedError
from graphbox.row_codecs import ArrayRows
from tests.artifact.sample_model import make_model, write_embedding, write_encoder


def test_rows_of_messages_count_by_the_lists_that_they_are_in(tmp_path: Path) -> None:
    artifact = write_encoder(tmp_path / "1", make_model())
    form = artifact.preprocess
    assert isinstance(form, PaddedBlockForm)
    groups = {group.neighbors: group for layer in form.layers for group in layer.groups}.values()
    for name in ("package", "tag"):
        expected = np.ones(artifact.manifest.tables[name].rows, np.int64)
        for group in groups:
            if group.source == name:
                np.add.at(expected, artifact.neighbor_lists(group).neighbors, 1)
        found = popularity_of(artifact, name)
        assert found is not None
        np.testing.assert_array_equal(found, expected)


def test_ranked_rows_count_by_links_that_were_not_held_out(tmp_path: Path) -> None:
    artifact = write_encoder(tmp_path / "1", make_model())
    rows = artifact.manifest.tables["target"].rows
    known = artifact.links.counts("package", rows, with_held_out=False)
    every = artifact.links.counts("package", rows)
    found = popularity_of(artifact, "target")
    assert found is not None
    np.testing.assert_array_equal(found, known[0] + known[1])
    assert (known[0] + known[1]).sum() < (every[0] + every[1]).sum()


def test_tiers_need_to_know_what_is_popular(tmp_path: Path) -> None:
    artifact = write_embedding(tmp_path / "1", make_model())
    rows = ArrayRows(np.random.default_rng(0).standard_normal((200, 16), np.float32))
    assert popularity_of(artifact, next(iter(artifact.manifest.tables))) is None
    for precision in CODEC_OF_PRECISION:
        if precision in TIERED_PRECISIONS:
            with pytest.raises(UnsupportedError, match=f"read often for `{precision}`"):
                codec_of(precision, None)
            arrays = codec_of(precision, np.arange(200)).encode(rows)
            (bitmap,) = (array for file, array in arrays.items() if file.endswith("is_hot.npy"))
            is_hot = np.unpackbits(bitmap, bitorder="little")
            np.testing.assert_array_equal(np.flatnonzero(is_hot), np.arange(150, 200))
        else:
            assert codec_of(precision, None) is CODEC_OF_PRECISION[precision]
