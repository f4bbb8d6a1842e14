"""Model versions without some nodes, beside what a plain computation says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from graphbox.artifact import Artifact
from graphbox.artifact.forgetting import nodes_held, updates_hold, write_without
from graphbox.artifact.ids import ids_of_kind
from graphbox.artifact.row_updates import UpdatesWriter
from graphbox.deploy import open_encoder, open_knowledge_graph
from graphbox.errors import ConflictError
from tests.server.sample_models import (
    DEPENDS,
    NEIGHBORS,
    PACKAGES,
    ROWS,
    TARGET,
    write_encoder,
    write_numbers,
    write_vectors,
)

FORMATS = Path(__file__).parents[1] / "formats" / "artifact-1"


def texts(*ids: str) -> pa.Array:
    return pa.array(ids, pa.large_string())


def forgotten(artifact: Artifact, path: Path, node_type: str, *ids: str) -> Artifact:
    return write_without(artifact, nodes_held(artifact, {node_type: texts(*ids)}), path)


@pytest.mark.parametrize("removed", [[0], [len(PACKAGES) - 1], [1, 2, 5], list(range(1, len(PACKAGES)))])
def test_encoder_without_nodes_is_one_that_never_had_them(removed: list[int], tmp_path: Path) -> None:
    original = write_encoder(tmp_path / "1")
    names = [PACKAGES[index] for index in removed]
    reduced = forgotten(original, tmp_path / "2", "package", *names)
    kept = [name for name in PACKAGES if name not in names]
    assert list(reduced.ids("package")) == kept
    assert not {*reduced.example_ids()} & {*names}
    with open_encoder(reduced.path) as model:
        np.testing.assert_allclose(model.encode(kept), plain_embeddings(removed), rtol=1e-5, atol=1e-6)
        best, score = model.neighbors(kept[:1], k=1, exclude_self=False)
        scores = plain_embeddings(removed)[0] @ np.delete(TARGET, removed, axis=0).T
        assert score[0, 0] == pytest.approx(float(scores.max()), rel=1e-4)
        assert scores[best[0, 0]] == pytest.approx(float(scores.max()), rel=1e-4)


def plain_embeddings(removed: list[int]) -> npt.NDArray[np.float32]:
    """Return the embeddings of the packages that stay: own row plus the mean of the neighbours that stay."""
    found = []
    for node in range(len(PACKAGES)):
        around = [other for other in NEIGHBORS[node] if other >= 0 and other not in removed]
        mean = np.mean(ROWS[around], axis=0) if around else np.zeros(ROWS.shape[1], np.float32)
        if node not in removed:
            found.append(ROWS[node] + mean)
    return np.array(found, np.float32)


def test_links_of_forgotten_nodes_are_gone_and_others_renumbered(tmp_path: Path) -> None:
    original = write_encoder(tmp_path / "1")
    removed = {PACKAGES[1], PACKAGES[4]}
    reduced = forgotten(original, tmp_path / "2", "package", *removed)

    def named(artifact: Artifact) -> set[tuple[str, str]]:
        ids = list(artifact.ids("package"))
        return {
            (str(ids[source]), str(ids[target]))
            for source in range(len(ids))
            for target in artifact.links.ends_of(DEPENDS, source)
        }

    assert named(reduced) == {pair for pair in named(original) if not {*pair} & removed}
    assert named(reduced)


def test_rows_of_other_types_stay(tmp_path: Path) -> None:
    original = write_vectors(tmp_path / "1")
    reduced = forgotten(original, tmp_path / "2", "tag", "python")
    assert "python" in list(reduced.ids("package"))
    assert "python" not in list(reduced.ids("tag"))
    for node_type in ("package", "tag"):
        ids = list(reduced.ids(node_type))
        before = original.table(node_type).rows(original.ids(node_type).index(ids))
        np.testing.assert_array_equal(reduced.table(node_type).rows(np.arange(len(ids))), before)
    about = (reduced.manifest.name, reduced.manifest.version, reduced.manifest.metrics)
    assert about == (original.manifest.name, original.manifest.version, original.manifest.metrics)
    assert reduced.manifest.lineage.steps[-1] == "forget"


def test_forgetting_twice_is_one_step(tmp_path: Path) -> None:
    first = forgotten(write_vectors(tmp_path / "1"), tmp_path / "2", "tag", "python")
    second = forgotten(first, tmp_path / "3", "package", PACKAGES[0])
    assert second.manifest.lineage.steps.count("forget") == 1


def test_integer_ids_are_given_as_text(tmp_path: Path) -> None:
    original = write_numbers(tmp_path / "1")
    reduced = forgotten(original, tmp_path / "2", "item", "-5", "9007199254740993", "none", str(1 << 70))
    assert list(reduced.ids("item")) == [0, 12, 123]


@pytest.mark.parametrize(("kind", "expected"), [("string", ["7", "x"]), ("int64", [7])])
def test_ids_of_kind(kind: str, expected: list[str | int]) -> None:
    assert ids_of_kind(texts("7", "x"), kind).to_pylist() == expected  # type: ignore[arg-type]


def test_nothing_held(tmp_path: Path) -> None:
    artifact = write_vectors(tmp_path / "1")
    assert nodes_held(artifact, {"package": texts("absent"), "user": texts(PACKAGES[0])}) == {}


def test_a_type_does_not_end_up_empty(tmp_path: Path) -> None:
    original = write_vectors(tmp_path / "1")
    with pytest.raises(ConflictError, match="hold no `package` at all"):
        forgotten(original, tmp_path / "2", "package", *PACKAGES)
    assert not (tmp_path / "2").exists()


def test_knowledge_graph_answers_without_the_forgotten(tmp_path: Path) -> None:
    original = Artifact.open(FORMATS / "knowledge_graph" / "1")
    asked = str(original.example_ids()[0])
    reduced = forgotten(original, tmp_path / "2", "place", asked, "p1-0")
    assert not {asked, "p1-0"} & {*reduced.example_ids()}
    with open_knowledge_graph(reduced.path) as model, open_knowledge_graph(original.path) as before:
        kept = list(reduced.ids("place"))
        assert len(kept) == len(original.ids("place")) - 2
        relation = next(iter(model.form.ends))
        rows = np.arange(5)
        wanted = original.ids("place").index(kept)
        np.testing.assert_allclose(
            model.scores(relation, rows), before.scores(relation, wanted[:5])[:, wanted], rtol=1e-5, atol=1e-5
        )


def test_keys_of_clicks_are_no_ids() -> None:
    artifact = Artifact.open(FORMATS / "click" / "1")
    ids = {name: artifact.ids(name).to_arrow().cast(pa.large_string()) for name in artifact.node_types}
    assert nodes_held(artifact, ids) == {}


def test_row_updates_hold_ids(tmp_path: Path) -> None:
    artifact = write_vectors(tmp_path / "1")
    writer = UpdatesWriter(artifact.path, artifact.manifest.digest)
    rows = np.ones((1, artifact.manifest.dim), np.float32)
    with writer.locked():
        writer.write({"package": (texts("added"), rows)}, writer.root, 1)
    assert nodes_held(artifact, {"package": texts("added")}) == {}
    assert updates_hold(artifact, {"package": texts("other", "added")})
    assert not updates_hold(artifact, {"tag": texts("added")})
    assert not updates_hold(artifact, {"package": texts("other")})
