"""Original ids in, embeddings and neighbours out, against an oracle that shares no code."""

from __future__ import annotations

import concurrent.futures
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphbox.artifact import Artifact, Manifest, PaddedBlockForm
from graphbox.deploy import DeployedEncoder, UnseenNode, open_encoder
from graphbox.deploy.feeds import PaddedBlockFeeds
from graphbox.errors import (
    DoesNotFitError,
    FormatError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
    UsageError,
)
from tests.artifact.sample_model import SampleModel, make_model, onnx_of, write_embedding, write_encoder


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nodes=st.lists(st.integers(0, 39), max_size=60))
def test_encode_is_the_oracle_for_any_batch(
    encoder: DeployedEncoder, sample: SampleModel, nodes: list[int]
) -> None:
    vectors = encoder.encode([sample.ids["package"][node] for node in nodes])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, sample.encode(nodes), atol=2e-6)


@pytest.mark.parametrize("packages", [1, 2, 3000])
def test_encode_is_the_oracle_for_any_size_of_graph(tmp_path: Path, packages: int) -> None:
    """Small requests on a large graph and large ones on a small graph take different ways to unique nodes."""
    sample = make_model(packages=packages, tags=1, seed=5)
    with open_encoder(write_encoder(tmp_path / "1", sample).path) as model:
        for count in (1, 7, 200):
            nodes = np.random.default_rng(count).integers(0, packages, count)
            np.testing.assert_allclose(model.encode_indices(nodes), sample.encode(nodes.tolist()), atol=2e-6)


def test_a_row_does_not_depend_on_its_batch(encoder: DeployedEncoder) -> None:
    together = encoder.encode_indices(np.arange(40))
    alone = np.concatenate([encoder.encode_indices(np.array([node])) for node in range(40)])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_no_ids_give_no_rows(encoder: DeployedEncoder, embedding: DeployedEncoder) -> None:
    assert encoder.encode([]).shape == (0, encoder.manifest.dim)
    assert embedding.encode([]).shape == (0, embedding.manifest.dim)
    index, score = encoder.neighbors([], 3)
    assert (index.shape, score.shape) == ((0, 3), (0, 3))


def test_neighbours_are_the_best_of_a_plain_search(encoder: DeployedEncoder, sample: SampleModel) -> None:
    nodes = list(range(40))
    scores = sample.encode(nodes) @ sample.target.T
    np.fill_diagonal(scores, -np.inf)
    index, score = encoder.neighbors(sample.ids["package"], 5)
    np.testing.assert_array_equal(index, np.argsort(-scores, axis=1, kind="stable")[:, :5])
    np.testing.assert_allclose(score, np.take_along_axis(scores, index, axis=1), atol=1e-5)
    with_self, _ = encoder.neighbors(sample.ids["package"], 40, exclude_self=False)
    assert sorted(with_self[0]) == nodes


def test_embeddings_are_rows_and_neighbours_are_of_the_same_type(
    embedding: DeployedEncoder, sample: SampleModel
) -> None:
    rows = sample.rows["tag"][:, :5]
    np.testing.assert_array_equal(embedding.encode(sample.ids["tag"], node_type="tag"), rows)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    index, score = embedding.neighbors(sample.ids["tag"], 6, node_type="tag")
    np.testing.assert_array_equal(index, np.argsort(-cosine, axis=1)[:, :6])
    np.testing.assert_allclose(score, np.take_along_axis(cosine, index, axis=1), atol=1e-6)
    assert embedding.target_type("tag") == "tag"
    assert embedding.query_types == ("package", "tag")


def test_memory_of_neighbours_is_bounded_before_it_is_taken(
    encoder: DeployedEncoder, sample: SampleModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = encoder.artifact.preprocess
    assert isinstance(form, PaddedBlockForm)
    feeds = PaddedBlockFeeds(encoder.artifact, form)
    with pytest.raises(DoesNotFitError, match="vectors take at most 100 bytes, received lists of up to"):
        feeds.build(np.arange(40), most_bytes=100)
    nodes = list(range(40))
    monkeypatch.setattr("graphbox.deploy.encoder._CHUNK_BYTES", 2_000)  # of a few nodes
    np.testing.assert_allclose(encoder.encode_indices(np.arange(40)), sample.encode(nodes), atol=2e-6)
    monkeypatch.setattr("graphbox.deploy.encoder._QUERY_BYTES", 100)
    with pytest.raises(DoesNotFitError):
        encoder.encode_indices(np.arange(40))


def test_models_without_what_it_takes_encode_no_unseen_nodes(
    encoder: DeployedEncoder, embedding: DeployedEncoder
) -> None:
    with pytest.raises(UnsupportedError, match="encodes those of its graph alone"):
        encoder.encode_unseen([UnseenNode()])
    with pytest.raises(UnsupportedError, match="looks stored vectors up"):
        embedding.encode_unseen([UnseenNode()])
    for model in (encoder, embedding):
        assert model.classes == ()
        with pytest.raises(UnsupportedError, match="this model has no classes"):
            model.classify(["package-001"])


def test_ids_map_there_and_back(encoder: DeployedEncoder) -> None:
    assert encoder.index(["package-007"]).tolist() == [7]
    assert encoder.index(["tag-002"], "tag").tolist() == [2]
    assert encoder.ids([3, 4]) == ["package-003", "package-004"]


def test_unknown_ids_are_named(encoder: DeployedEncoder) -> None:
    with pytest.raises(NotFoundError, match="received `pakage-007`") as caught:
        encoder.encode(["package-001", "pakage-007"])
    assert caught.value.hint is not None
    assert "did you mean `package-0" in caught.value.hint


@pytest.mark.parametrize("k", [0, -1, 40, 10**9])
def test_k_out_of_range_is_refused(encoder: DeployedEncoder, k: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"expected k from 1 to 39, received {k}"):
        encoder.neighbors(["package-001"], k)


def test_only_queries_of_known_types_are_answered(encoder: DeployedEncoder) -> None:
    with pytest.raises(NotFoundError, match=r"one of the node types \['package'\], received `tag`"):
        encoder.encode(["tag-001"], node_type="tag")


@pytest.mark.parametrize("wrong", [-1, 40])
def test_indices_out_of_range_are_refused(
    encoder: DeployedEncoder, embedding: DeployedEncoder, wrong: int
) -> None:
    for model in (encoder, embedding):
        with pytest.raises(InvalidRequestError, match="indices"):
            model.encode_indices(np.array([0, wrong]))


def test_tables_alone_have_no_onnx_part(embedding: DeployedEncoder) -> None:
    assert (embedding.inputs, embedding.outputs) == ((), ())
    with pytest.raises(UnsupportedError, match="tables only"):
        embedding.run({})
    with pytest.raises(UnsupportedError, match="tables only"):
        embedding.feeds(np.array([0]))


def test_the_bare_onnx_part_answers_the_feeds(encoder: DeployedEncoder, sample: SampleModel) -> None:
    feeds = encoder.feeds(np.array([5, 6]))
    assert {tensor.name for tensor in encoder.inputs} == set(feeds)
    out = {"embedding": np.zeros((2, 4), np.float32)}
    assert encoder.run(feeds, out)["embedding"] is out["embedding"]
    np.testing.assert_allclose(out["embedding"], sample.encode([5, 6]), atol=2e-6)


def test_padding_points_to_a_zero_row_and_never_below(encoder: DeployedEncoder) -> None:
    feeds = encoder.feeds(np.array([0, 0, 9]))
    for tensor in encoder.inputs:
        if tensor.name.startswith("rows_"):
            assert not feeds[tensor.name][0].any()
        if tensor.datatype == "INT64":
            assert feeds[tensor.name].min(initial=0) >= 0
    for name in ("depends_suggests", "tags"):
        assert not feeds[f"neighbors_1_{name}"][feeds[f"weights_1_{name}"] == 0].any()


def test_many_threads_get_their_own_rows(encoder: DeployedEncoder, sample: SampleModel) -> None:
    expected = sample.encode(list(range(40)))

    def wrong(number: int) -> float:
        nodes = np.random.default_rng(number).integers(0, 40, 1 + number % 9)
        return float(np.abs(encoder.encode_indices(nodes) - expected[nodes]).max())

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert max(pool.map(wrong, range(300))) < 2e-6


def test_a_warm_model_has_read_what_its_first_request_needs(tmp_path: Path) -> None:
    written = write_encoder(tmp_path / "1", make_model(packages=2_000, tags=3)).path
    with open_encoder(written) as model:
        model.warm_up()
        for path in written.rglob("*"):
            if path.is_file():
                path.unlink()
        nearest, _ = model.neighbors(["package-1999"], 1)
        assert nearest.tolist() != model.index(["package-1999"]).reshape(1, 1).tolist()
    with open_encoder(write_encoder(tmp_path / "2", make_model(packages=1, tags=1)).path) as model:
        model.warm_up()


def test_what_runs_is_reported(encoder: DeployedEncoder, embedding: DeployedEncoder) -> None:
    assert encoder.effective["adapter"] == "onnxruntime"
    assert encoder.effective["provider"] == "CPUExecutionProvider"
    assert encoder.effective["threads"] == 1
    assert encoder.effective["precision"] == "float32"
    assert embedding.effective["adapter"] == "onnxruntime"


def test_a_closed_model_refuses(tmp_path: Path) -> None:
    model = open_encoder(write_encoder(tmp_path / "1", make_model()).path)
    model.close()
    model.close()
    with pytest.raises(UsageError, match="closed"):
        model.encode(["package-001"])
    with pytest.raises(UsageError, match="closed"):
        model.neighbors(["package-001"], 1)


def test_another_onnx_file_than_the_manifest_describes_is_refused(tmp_path: Path) -> None:
    artifact = write_encoder(tmp_path / "1", make_model())
    path = artifact.path / "manifest.json"
    content = json.loads(path.read_text())
    content["onnx"]["outputs"][0]["shape"] = [-1, 9]
    path.write_text(Manifest.model_validate(content).to_json())
    with pytest.raises(FormatError, match="expected the inputs and outputs that the manifest lists"):
        open_encoder(artifact.path)


def test_damage_is_found_before_anything_runs(tmp_path: Path) -> None:
    artifact = write_encoder(tmp_path / "1", make_model())
    path = artifact.path / "model.onnx"
    content = bytearray(path.read_bytes())
    content[-20] ^= 255
    path.write_bytes(bytes(content))
    with pytest.raises(FormatError, match="sha256"):
        open_encoder(artifact.path)


def test_an_onnx_file_that_points_elsewhere_is_never_loaded(tmp_path: Path) -> None:
    import onnx

    sample = make_model()
    artifact = write_encoder(tmp_path / "1", sample)
    proto = onnx.load_model_from_string(onnx_of(sample)[0])
    tensor = proto.graph.initializer[1]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="manifest.json")
    (artifact.path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(FormatError, match="another file"):
        Artifact(artifact.path, artifact.manifest).onnx_bytes()


def test_integer_ids(tmp_path: Path) -> None:
    sample = make_model(id_kind="int64")
    with open_encoder(write_embedding(tmp_path / "1", sample).path) as model:
        np.testing.assert_array_equal(model.encode([-3, 4]), sample.rows["package"][:2, :5])
        with pytest.raises(InvalidRequestError, match="expected ids of type int64, received str"):
            model.encode(["-3"])
