"""Shorter neighbour lists: the same as a loop chooses, served as the model computes on them, or refused."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from graphbox.artifact import Artifact, ArtifactWriter, NeighborLists, PaddedBlockForm, RelationGroup
from graphbox.compress import compress
from graphbox.compress.neighbors import ShortenedLists, closest_to_mean, neighbor_choices, shortened
from graphbox.compress.parts import Original, commit_version, write_recipe
from graphbox.compress.popularity import popularity_of
from graphbox.compress.recipe import Recipe
from graphbox.config import BenchConfig, CompressConfig
from graphbox.deploy import open_encoder
from graphbox.errors import UnsupportedError, UsageError
from tests.artifact.sample_model import SampleModel, make_model, write_embedding, write_encoder
from tests.export.test_sequences import export as export_sequence
from tests.export.test_sequences import source_of

Float = npt.NDArray[np.float32]
BENCH = BenchConfig(batch_sizes=(1,), seconds=0.02)
LOOPED = ("node", "near", "node")
WEIGHED = RelationGroup(
    edge_types=(LOOPED, ("node", "far", "node")),
    counts="counts.npy",
    neighbors="neighbors.npy",
    normalization="table",
    weights="weights.npy",
    neighbors_input="neighbors",
    weights_input="weights",
)


def reference(vectors: Float, weights: Float, most: int) -> list[int]:
    """Return the chosen vectors of one list, by computing the mean of each possible choice."""
    mean = np.average(vectors, axis=0, weights=weights)
    chosen: list[int] = []
    for _ in range(most):
        errors = {}
        for each in sorted(set(range(len(vectors))) - set(chosen)):
            places = [*chosen, each]
            found = np.average(vectors[places], axis=0, weights=weights[places])
            errors[each] = float(np.square(found - mean).sum())
        chosen.append(next(each for each in errors if errors[each] <= min(errors.values()) * (1 + 1e-4)))
    return sorted(chosen)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_chosen_vectors_equal_the_reference(seed: int, weighted: bool) -> None:
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((30, 9, 6), np.float32)
    weights = random.uniform(0.1, 2, (30, 9)).astype(np.float32)
    for most in (1, 3, 8):
        chosen = closest_to_mean(vectors, weights if weighted else None, most)
        for number, found in enumerate(chosen):
            of_list = weights[number] if weighted else np.ones(9, np.float32)
            assert np.flatnonzero(found).tolist() == reference(vectors[number], of_list, most)


def test_of_equals_the_first_are_chosen() -> None:
    chosen = closest_to_mean(np.zeros((1, 5, 3), np.float32), np.zeros((1, 5), np.float32), 2)
    assert chosen.tolist() == [[True, True, False, False, False]]


def looped_lists(random: np.random.Generator, nodes: int) -> NeighborLists:
    """Return lists of two relations in which most nodes are their own neighbour, with positive weights."""
    parts, counts = [], np.zeros((nodes, 2), np.uint16)
    for node in range(nodes):
        for relation in range(2):
            others = random.choice(np.delete(np.arange(nodes), node), random.integers(0, 9), replace=False)
            own = [node] if node % 5 else []
            part = random.permutation([*others, *own]).astype(np.int32)
            counts[node, relation] = len(part)
            parts.append(part)
    flat = counts.reshape(-1).astype(np.int64)
    weights = random.uniform(0.1, 2, int(flat.sum())).astype(np.float32)
    return NeighborLists(
        (np.cumsum(flat) - flat).reshape(counts.shape), counts, np.concatenate(parts), weights
    )


@pytest.mark.parametrize("normalized", [False, True])
def test_weighted_lists_equal_a_loop(normalized: bool) -> None:
    random = np.random.default_rng(0)
    lists, rows = looped_lists(random, 40), random.standard_normal((40, 4), np.float32)
    scales = {"source_scales": "scales.npy", "self_loops": True} if normalized else {}
    found = shortened(lists, WEIGHED.model_copy(update=scales), lambda nodes: rows[nodes], 3)
    assert found.weights is not None
    assert lists.weights is not None
    for (node, relation), start in np.ndenumerate(lists.start):
        whole = slice(start, start + lists.counts[node, relation])
        neighbors, weights = lists.neighbors[whole], lists.weights[whole]
        own = (neighbors == node) & normalized
        others = np.flatnonzero(~own)
        chosen = others
        if len(others) > 3:
            of_others = weights[others] if normalized else np.ones(len(others), np.float32)
            chosen = others[reference(rows[neighbors[others]], of_others, 3)]
        kept = np.sort(np.concatenate([np.flatnonzero(own), chosen]))
        scale = weights[others].sum() / weights[chosen].sum() if normalized and len(others) else 1.0
        expected = np.where(own, weights, weights * scale)[kept]
        short = slice(found.start[node, relation], found.start[node, relation] + found.counts[node, relation])
        np.testing.assert_array_equal(found.neighbors[short], neighbors[kept])
        np.testing.assert_allclose(found.weights[short], expected, rtol=1e-5)
    assert found.counts.dtype == np.uint16
    assert found.neighbors.dtype == np.int32


@pytest.fixture(scope="module")
def sample() -> SampleModel:
    return make_model(packages=120, tags=9)


@pytest.fixture
def artifact(sample: SampleModel, tmp_path: Path) -> Artifact:
    return write_encoder(tmp_path / "sample" / "1", sample, unseen=True)


def form_of(artifact: Artifact) -> PaddedBlockForm:
    assert isinstance(artifact.preprocess, PaddedBlockForm)
    return artifact.preprocess


def with_short_lists(sample: SampleModel, most: int) -> SampleModel:
    """Return the model with at most so many neighbours, chosen by the reference."""
    short = deepcopy(sample)
    for (source, _, _), table in short.neighbors.items():
        for slots in table:
            present = np.flatnonzero(slots >= 0)
            if len(present) > most:
                vectors = sample.rows[source][slots[present]]
                kept = reference(vectors, np.ones(len(present), np.float32), most)
                slots[np.delete(present, kept)] = -1
    return short


def shorter(artifact: Artifact, path: Path, most: int) -> Artifact:
    """Write a version with shorter lists, otherwise as it is."""
    config = CompressConfig(dense="float32", tables="float32", max_neighbors=most)
    arguments = {"version": 2, "metric": "m", "evaluate": lambda *_: {"m": 1.0}, "bench": BENCH}
    compress(artifact, path, config, **arguments)  # type: ignore[arg-type]
    return Artifact.open(path)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_encoder_computes_on_the_kept_lists(
    artifact: Artifact, sample: SampleModel, tmp_path: Path, most: int
) -> None:
    written = shorter(artifact, tmp_path / "sample" / "2", most)
    assert written.manifest.lineage.steps == ("export", f"neighbors at most {most}")
    for group in form_of(written).groups:
        assert written.neighbor_lists(group).counts.max() == most
    nodes = np.arange(120)
    with open_encoder(written.path) as model, open_encoder(artifact.path) as original:
        found = model.encode_indices(nodes)
        np.testing.assert_allclose(
            found, with_short_lists(sample, most).encode(nodes.tolist()), rtol=1e-4, atol=1e-5
        )
        assert np.abs(found - original.encode_indices(nodes)).max() > 1e-3
        assert model.encodes_unseen
    before, after = (sum(file.bytes for file in each.manifest.files.values()) for each in (artifact, written))
    assert after < before


def test_a_version_with_packed_lists_gets_shorter_ones_too(
    artifact: Artifact, sample: SampleModel, tmp_path: Path
) -> None:
    once = shorter(artifact, tmp_path / "sample" / "2", 3)
    twice = shorter(once, tmp_path / "sample" / "3", 2)
    for group in form_of(twice).groups:
        assert group.neighbors.endswith(".parquet")
        assert twice.neighbor_lists(group).counts.max() == 2
    with open_encoder(twice.path) as model:
        expected = with_short_lists(with_short_lists(sample, 3), 2).encode([3, 7])
        np.testing.assert_allclose(model.encode_indices(np.array([3, 7])), expected, rtol=1e-4, atol=1e-5)


def test_tiers_follow_the_kept_lists(artifact: Artifact, tmp_path: Path) -> None:
    recipe = Recipe(tables={"package": "int4_int3_tiers"}, max_neighbors=1)
    path = tmp_path / "sample" / "2"
    with open_encoder(artifact.path) as model, ArtifactWriter(path) as writer:
        changes = write_recipe(Original(artifact, model), writer, recipe)
        written = commit_version(artifact, writer, 2, changes.steps)
    of_kept, of_all = popularity_of(written, "package"), popularity_of(artifact, "package")
    assert of_kept is not None
    assert of_all is not None
    with_lists = popularity_of(artifact, "package", ShortenedLists(artifact, 1))
    assert with_lists is not None
    np.testing.assert_array_equal(of_kept, with_lists)
    bits = np.load(path / "tables" / "package" / "rest.is_hot.npy")
    is_hot = np.unpackbits(bits, bitorder="little")[: len(of_kept)].astype(bool)
    assert of_kept[is_hot].min() >= of_kept[~is_hot].max()
    assert of_all[is_hot].min() < of_all[~is_hot].max()


def test_bounds_that_leave_out_something_are_choices(artifact: Artifact, tmp_path: Path) -> None:
    assert neighbor_choices(artifact) == (None, 2, 1)  # 3 leaves out less than 5 %
    assert neighbor_choices(artifact, 2) == (2,)
    vectors = write_embedding(tmp_path / "vectors" / "1", make_model())
    assert neighbor_choices(vectors) == (None,)


def test_histories_in_order_are_not_shortened(tmp_path: Path) -> None:
    artifact = export_sequence(source_of("sasrec"), tmp_path / "1")
    assert neighbor_choices(artifact) == (None,)
    with pytest.raises(UnsupportedError, match="reads histories in their order: train it with a smaller"):
        neighbor_choices(artifact, 2)


def test_a_model_without_lists_is_refused(tmp_path: Path) -> None:
    vectors = write_embedding(tmp_path / "vectors" / "1", make_model())
    with pytest.raises(UnsupportedError, match="this one reads no neighbour lists") as refused:
        shorter(vectors, tmp_path / "vectors" / "2", 4)
    assert "--max-neighbors" in str(refused.value.hint)
    assert not (tmp_path / "vectors" / "2").exists()
    with pytest.raises(UnsupportedError, match="reads no neighbour lists"):
        neighbor_choices(vectors, 4)


def test_a_bound_that_no_list_exceeds_is_nothing_to_compress(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected something to compress"):
        shorter(artifact, tmp_path / "sample" / "2", 100)


@pytest.mark.parametrize(
    ("layer", "options", "is_sum"),
    [
        ("gin", {}, True),
        ("gin", {"aggr": "max"}, False),
        ("sage", {}, False),
        ("sage", {"aggr": "sum"}, True),
        ("gat", {}, False),
    ],
)
def test_layers_that_add_all_neighbours_up_are_refused(
    artifact: Artifact, tmp_path: Path, layer: str, options: dict[str, str], is_sum: bool
) -> None:
    path = tmp_path / "sample" / "2"
    with ArtifactWriter(path) as writer:
        for node_type in artifact.node_types:
            writer.add_ids(node_type, artifact.ids(node_type).to_arrow())
        for name in artifact.manifest.tables:
            writer.copy_table(artifact, name)
        writer.copy_onnx(artifact)
        writer.copy_rest(artifact)
        section = {"section": {"layer": layer, "layer_options": options}}
        writer.set_network(lambda folder: _write(folder / "network.json", json.dumps(section)))
        commit_version(artifact, writer, 2, [])
    summed = Artifact.open(path)
    groups = {"normalization": "none", "weights": None, "weights_input": None}
    layers = tuple(
        each.model_copy(update={"groups": tuple(group.model_copy(update=groups) for group in each.groups)})
        for each in form_of(summed).layers
    )
    summed.preprocess = form_of(summed).model_copy(update={"layers": layers})
    if is_sum:
        with pytest.raises(UnsupportedError, match="adds up the vectors of all neighbours"):
            ShortenedLists(summed, 2)
        assert neighbor_choices(summed) == (None,)
    else:
        assert ShortenedLists(summed, 2).left_out > 0


def _write(file: Path, text: str) -> None:
    file.write_text(text)
