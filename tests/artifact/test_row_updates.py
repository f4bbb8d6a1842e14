"""Row updates against a plain reference: a dict of id and row."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from graphbox.artifact import Artifact
from graphbox.artifact.row_updates import (
    UPDATES_FOLDER,
    RowUpdate,
    UpdateManifest,
    UpdatesFolder,
    UpdatesWriter,
    VersionPoint,
    in_batches,
)
from graphbox.artifact.updated_rows import UpdatedRows
from graphbox.errors import (
    ConflictError,
    DoesNotFitError,
    FormatError,
    InvalidRequestError,
    NotFoundError,
    UsageError,
)
from graphbox.rows import StoredRows
from tests.artifact.long_chain import write_manifest
from tests.artifact.lookup_model import CODECS, DIM, ITEMS, USERS, write_lookup

Float32 = npt.NDArray[np.float32]
NONE = VersionPoint(sequence=0, digest="0" * 64)


@pytest.fixture(scope="module", params=CODECS)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_lookup(tmp_path_factory.mktemp("lookup") / "1", codec=request.param)


@pytest.fixture
def copied(tmp_path: Path) -> Artifact:
    """An artifact of its own for a test that writes updates."""
    return write_lookup(tmp_path / "1")


def update_of(rows: UpdatedRows, **tables: tuple[list[Any], Float32]) -> RowUpdate:
    """Return an update that follows a state, which was never written."""
    arrays = {
        name: (pa.array(ids, pa.int64() if type(ids[0]) is int else pa.large_string()), values)
        for name, (ids, values) in tables.items()
    }
    manifest = UpdateManifest(
        sequence=rows.point.sequence + 1,
        parent=rows.point,
        depth=1,
        created_at="2026-01-01T00:00:00.000Z",
        tables={name: {"rows": len(each), "dim": DIM} for name, (each, _) in arrays.items()},  # type: ignore[misc]
        files={},
        digest=f"{rows.point.sequence + 1:064x}",
    )
    return RowUpdate(manifest, arrays)


def reference_of(artifact: Artifact, table: str) -> dict[Any, Float32]:
    stored = artifact.table(table)
    return dict(zip(stored.ids, stored.block(0, len(stored)).copy(), strict=True))


def check_state(rows: UpdatedRows, expected: dict[str, dict[Any, Float32]], seed: int) -> None:
    """Compare every way to read rows with the reference."""
    random = np.random.default_rng(seed)
    for table, reference in expected.items():
        found = rows.artifact.table(table)
        ids = rows.artifact.ids(table)
        known = list(reference)
        assert len(found) == len(ids) == len(known)
        changed = {*known[-20:], *[known[each] for each in random.integers(0, len(known), 50)]}
        chosen = [each for each in known if each in changed] or known
        index = ids.index(chosen)
        assert ids.take(index) == chosen
        values = np.stack([reference[each] for each in chosen])
        np.testing.assert_array_equal(found.rows(index), values)
        np.testing.assert_array_equal(found.rows(index[:1]), values[:1])
        out = np.zeros((len(index), DIM + 3), np.float32)[:, 1 : 1 + DIM]
        np.testing.assert_array_equal(found.rows(index, out), values)
        all_rows = np.stack([reference[each] for each in ids])
        np.testing.assert_array_equal(found.block(0, len(found)), all_rows)
        start = int(random.integers(0, len(found)))
        np.testing.assert_array_equal(found.block(start, start + 100), all_rows[start : start + 100])
        plain = StoredRows.of_float32(all_rows)
        bags = np.array([0, len(index) // 2, len(index) // 2, len(index)])
        weights = random.standard_normal(len(index)).astype(np.float32)
        np.testing.assert_array_equal(found.sums(index, bags, weights), plain.sums(index, bags, weights))
        queries = random.standard_normal((2, DIM)).astype(np.float32)
        np.testing.assert_array_equal(found.best(queries, 3)[0], plain.best(queries, 3)[0])
        for outside in (len(found), -1, -2):
            with pytest.raises(InvalidRequestError, match=rf"in \[0, {len(found)}\), received {outside}"):
                found.rows([index[0], outside])


@pytest.mark.parametrize("seed", range(3))
def test_random_updates_and_roll_backs(artifact: Artifact, seed: int) -> None:
    random = np.random.default_rng(seed)
    states = [UpdatedRows.of(artifact)]
    references = [{table: reference_of(artifact, table) for table in ("user", "item")}]
    for step in range(12):
        rows, reference = states[-1], {name: dict(each) for name, each in references[-1].items()}
        tables: dict[str, tuple[list[Any], Float32]] = {}
        for table in ("user", "item") if step % 3 else ("user",):
            known = list(reference[table])
            ids = {known[each] for each in random.integers(0, len(known), random.integers(1, 6))}
            for number in random.integers(0, 40, random.integers(0, 6)):
                ids.add(f"new {number}" if table == "user" else 1_000_000 + int(number))
            values = random.standard_normal((len(ids), DIM)).astype(np.float32)
            tables[table] = list(ids), values
            reference[table] |= dict(zip(ids, values, strict=True))
        states.append(rows.apply([update_of(rows, **tables)]))
        references.append(reference)
    for number in random.permutation(len(states))[:4]:
        check_state(states[number], references[number], seed)
    check_state(states[0], references[0], seed)


def test_updates_applied_at_once_are_those_applied_one_by_one(artifact: Artifact) -> None:
    rows = UpdatedRows.of(artifact)
    updates, one_by_one = [], rows
    for tag in range(1, 6):
        ids: list[Any] = [USERS[tag], USERS[3], f"new {tag % 2}", f"new {tag}"]
        distinct = list(dict.fromkeys(ids))
        update = update_of(one_by_one, user=(distinct, np.full((len(distinct), DIM), tag, np.float32)))
        updates.append(update)
        one_by_one = one_by_one.apply([update])
    at_once = rows.apply(updates)
    assert (
        list(at_once.artifact.ids("user"))[len(USERS) :]
        == list(one_by_one.artifact.ids("user"))[len(USERS) :]
    )
    np.testing.assert_array_equal(
        at_once.artifact.table("user").block(0, 70_010), one_by_one.artifact.table("user").block(0, 70_010)
    )
    assert at_once.artifact.table("item") is artifact.table("item")
    assert at_once.artifact.ids("item") is artifact.ids("item")
    in_two = rows.apply(updates[:2]).apply(updates[2:])
    assert list(in_two.artifact.ids("user")) == list(at_once.artifact.ids("user"))
    np.testing.assert_array_equal(
        in_two.artifact.table("user").block(0, 70_010), at_once.artifact.table("user").block(0, 70_010)
    )


def test_updates_as_one_are_those_applied_in_turn(artifact: Artifact) -> None:
    """Added ids keep their numbers, whatever the order in which rows were changed."""
    rows = UpdatedRows.of(artifact)
    for tag, ids in enumerate((["b", "a"], [USERS[9], "a"], ["c", "b", USERS[2]]), 1):
        rows = rows.apply([update_of(rows, user=(ids, np.full((len(ids), DIM), tag, np.float32)))])
    later = {"user": (pa.array(["d", "a"], pa.large_string()), np.full((2, DIM), 9, np.float32))}
    (ids, values) = rows.as_one_update(later)["user"]
    assert ids.to_pylist() == [USERS[2], USERS[9], "b", "a", "c", "d"]
    assert values[:, 0].tolist() == [3, 2, 3, 9, 3, 9]


def test_batches_of_a_chain(copied: Artifact) -> None:
    writer = UpdatesWriter(copied.path, copied.manifest.digest)
    points, chain = [writer.root], []
    for tag in range(5):
        chain.append(write(writer, points[-1], tag))
        points.append(chain[-1].point)
    size = max(sum(file.bytes for file in each.files.values()) for each in chain)
    for most, expected in ((1, [1] * 5), (2 * size, [2, 2, 1]), (5 * size, [5])):
        batches = list(in_batches(chain, most))
        assert [len(each) for each in batches] == expected
        assert [each for batch in batches for each in batch] == chain
    assert list(in_batches([])) == []
    assert chain[0].row_bytes == 4 * len(ITEMS) * DIM


def test_default_row_of_unknown_ids(artifact: Artifact) -> None:
    rows = UpdatedRows.of(artifact)
    ones = np.ones((2, DIM), np.float32)
    table = rows.apply([update_of(rows, user=([USERS[1], "new"], ones))]).artifact.table("user")
    default = np.full(DIM, 7, np.float32)
    found = table.rows([0, -1, 1, len(USERS)], default_row=default)
    np.testing.assert_array_equal(found[0], artifact.table("user").rows([0])[0])
    np.testing.assert_array_equal(found[1:], np.stack([default, ones[0], ones[0]]))
    np.testing.assert_array_equal(table.rows([1, -1], default_row=default), np.stack([ones[0], default]))


def test_ids_of_an_updated_version(artifact: Artifact) -> None:
    rows = UpdatedRows.of(artifact)
    ids = rows.apply(
        [update_of(rows, user=(["user", "user new"], np.ones((2, DIM), np.float32)))]
    ).artifact.ids("user")
    assert ids.take(ids.with_prefix("user", 2)) == ["user", "user 0"]
    assert ids.take(ids.with_prefix("user n", 5)) == ["user new"]
    assert ids.find("user new") == len(USERS) + 1
    assert ids.find("absent") is None
    assert ids[0] == USERS[0]
    assert len(ids.to_arrow()) == len(ids) == len(USERS) + 2
    with pytest.raises(NotFoundError, match="did you mean"):
        ids.index(["user nww"])
    with pytest.raises(InvalidRequestError, match="received"):
        ids.take([len(ids)])
    asked = np.array([0, 4, len(USERS), len(USERS) + 1])
    assert ids.take_arrow(asked).to_pylist() == [USERS[0], USERS[4], "user", "user new"]


def test_values_that_can_be_no_id_of_an_updated_version(artifact: Artifact) -> None:
    rows = UpdatedRows.of(artifact)
    one = np.ones((1, DIM), np.float32)
    updated = rows.apply([update_of(rows, user=(["new"], one), item=([99], one))]).artifact
    items, users = updated.ids("item"), updated.ids("user")
    beyond = 9_999_999_999_999_999_999
    assert items.index([beyond, 99, 7], missing=-1).tolist() == [-1, len(ITEMS), 2]
    assert items.find(items.from_text(str(beyond))) is None
    assert items.index([np.int64(99), np.int64(-4)]).tolist() == [len(ITEMS), 0]  # type: ignore[list-item]
    assert users.index(["\ud800", "new"], missing=-1).tolist() == [-1, len(USERS)]
    with pytest.raises(NotFoundError, match=str(beyond)):
        items.index([beyond])
    with pytest.raises(InvalidRequestError, match="ids of type string, received int 3"):
        users.index(["new", 3])


def test_what_does_not_fit_changes_nothing(artifact: Artifact) -> None:
    rows = UpdatedRows.of(artifact)
    ones = np.ones((1, DIM), np.float32)
    later = rows.apply([update_of(rows, user=(["new"], ones))])
    cases: list[tuple[RowUpdate, str]] = [
        (update_of(rows, user=(["new"], ones)), "follows 1, received row update 1, which follows 0"),
        (update_of(later, other=(["new"], ones)), r"one of the tables \['item', 'user'\]"),
        (update_of(later, user=(["new"], ones[:, 1:])), "with rows of length 8"),
        (update_of(later, item=(["new"], ones)), "ids of type int64, received string"),
        (update_of(later, user=(["a", "a"], np.ones((2, DIM), np.float32))), "1 duplicates"),
    ]
    for update, message in cases:
        with pytest.raises(FormatError, match=message):
            later.apply([update])
    with pytest.raises(DoesNotFitError, match="at most 71 bytes"):
        later.apply([update_of(later, user=(["other"], ones))], max_bytes=71)
    assert later.apply([update_of(later, user=(["new"], ones))], max_bytes=36).nbytes == 36
    assert later.apply([]) is later


def write(
    writer: UpdatesWriter, parent: VersionPoint, tag: float, sequence: int | None = None
) -> UpdateManifest:
    values = {"item": (pa.array(ITEMS), np.full((len(ITEMS), DIM), tag, np.float32))}
    with writer.locked():
        return writer.write(values, parent, 1, sequence)


def test_chain_of_written_updates(copied: Artifact) -> None:
    writer = UpdatesWriter(copied.path, copied.manifest.digest)
    assert (writer.newest(), writer.sequences()) == (0, [])
    assert writer.chain(0) == (False, [])
    first = write(writer, writer.root, 1)
    second = write(writer, first.point, 2)
    branch = write(writer, first.point, 3)
    assert writer.sequences() == [1, 2, 3]
    assert writer.chain(2) == (False, [first, second])
    assert writer.chain(3, first.point) == (True, [branch])
    assert writer.chain(3, second.point) == (False, [first, branch])
    assert writer.chain(2, writer.root) == (True, [first, second])
    (ids, rows) = writer.read(branch).tables["item"]
    assert ids.to_pylist() == ITEMS
    assert (rows == 3).all()
    for wrong in (3, 5):
        with pytest.raises(ConflictError, match=f"row update 4, the next one, received {wrong}"):
            write(writer, second.point, 4, wrong)
    assert write(writer, second.point, 4, 4).sequence == 4
    names = [each.name for each in writer.path.iterdir()]
    assert sorted(names) == [".lock", "1", "2", "3", "4"]


def test_chains_that_are_refused(copied: Artifact, tmp_path: Path) -> None:
    writer = UpdatesWriter(copied.path, copied.manifest.digest)
    points = [writer.root]
    for tag in range(3):
        points.append(write(writer, points[-1], tag).point)
    folder = copied.path / UPDATES_FOLDER
    other = UpdatesWriter(copied.path, "f" * 64)
    with pytest.raises(FormatError, match="those of another one"):
        other.chain(3)
    (folder / "2").rename(tmp_path / "aside")
    with pytest.raises(FormatError, match="expected row update 2, found none"):
        writer.chain(3)
    assert writer.chain(3, points[2]) == (True, [writer.manifest(3)])
    shutil.copytree(folder / "1", folder / "2")
    with pytest.raises(FormatError, match="as the folder is named, received 1"):
        writer.chain(3)
    shutil.rmtree(folder / "2")
    (folder / "2").mkdir()
    with pytest.raises(FormatError, match="found none"):
        writer.chain(3)
    shutil.rmtree(folder / "2")
    replaced = UpdatesWriter(tmp_path / "other", copied.manifest.digest)
    (tmp_path / "other").mkdir()
    write(replaced, replaced.root, 0)
    write(replaced, replaced.root, 9)
    (replaced.path / "2").rename(folder / "2")
    with pytest.raises(FormatError, match="which the next one names as its parent"):
        writer.chain(3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"sequence": 1', b'"sequence": 7', "digest"),
        (b"graphbox-row-update", b"other", "the format"),
        (b'"format_version": 1', b'"format_version": 2', "format version 1, received 2"),
        (b"{", b"", "JSON"),
        (b'"depth"', b'"other"', "key"),
    ],
)
def test_damaged_manifest(copied: Artifact, old: bytes, new: bytes, message: str) -> None:
    writer = UpdatesWriter(copied.path, copied.manifest.digest)
    write(writer, writer.root, 1)
    manifest = writer.path / "1" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(old, new, 1))
    with pytest.raises(FormatError, match=message):
        writer.chain(1)


@pytest.mark.parametrize("time", ["2026-13-45T99:99:99.999Z", "2026-02-30T00:00:00.000Z"])
def test_time_that_there_is_not(copied: Artifact, time: str) -> None:
    """Its digits and its digest are as they should be."""
    writer = UpdatesWriter(copied.path, copied.manifest.digest)
    manifest = write(writer, writer.root, 1).model_copy(update={"created_at": time})
    write_manifest(writer.path / "1", manifest)
    with pytest.raises(FormatError, match="created_at"):
        writer.manifest(1)


def test_a_writer_that_does_not_finish_is_waited_for_a_limited_time(copied: Artifact) -> None:
    writer = UpdatesWriter(copied.path, copied.manifest.digest)
    write(writer, writer.root, 1)
    with (writer.path / ".lock").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match=r"another writer; waited 0\.1 s"):
            writer.locked(0.1).__enter__()
    with writer.locked(0.1):
        pass


def test_folders_that_cannot_be_written_to(copied: Artifact, tmp_path: Path) -> None:
    gone = UpdatesWriter(tmp_path / "gone", copied.manifest.digest)
    with pytest.raises(NotFoundError, match="expected the folder of a model version, found none") as caught:
        gone.locked().__enter__()
    assert caught.value.where == str(tmp_path / "gone")
    writer = UpdatesWriter(copied.path, copied.manifest.digest)
    writer.path.write_text("")
    with pytest.raises(UsageError, match="a folder of row updates that can be written to") as refused:
        writer.locked().__enter__()
    assert refused.value.where == str(writer.path)
    writer.path.unlink()
    values = {"item": (pa.array(ITEMS), np.ones((len(ITEMS), DIM), np.float32))}
    with writer.locked():
        shutil.rmtree(copied.path)
        with pytest.raises(NotFoundError, match="expected the folder of a model version"):
            writer.write(values, writer.root, 1)


def test_removed_updates_leave_nothing(copied: Artifact) -> None:
    writer = UpdatesWriter(copied.path, copied.manifest.digest)
    point = writer.root
    for tag in range(4):
        point = write(writer, point, tag).point
    writer.remove(4)
    writer.remove_before(3)
    assert sorted(each.name for each in writer.path.iterdir()) == [".lock", "3"]


@pytest.mark.parametrize("damage", ["byte", "shorter", "gone", "link", "NaN", "dtype"])
def test_damaged_rows(copied: Artifact, tmp_path: Path, damage: str) -> None:
    writer = UpdatesWriter(copied.path, copied.manifest.digest)
    values = np.ones((len(ITEMS), DIM), np.float32)
    if damage == "NaN":
        values[1, 2] = np.nan
    with writer.locked():
        manifest = writer.write({"item": (pa.array(ITEMS), values)}, writer.root, 1)
    file = writer.path / "1" / "tables" / "item" / "rows.npy"
    content = file.read_bytes()
    match damage:
        case "byte":
            file.write_bytes(content[:-1] + b"\x11")
        case "shorter":
            file.write_bytes(content[:-4])
        case "gone":
            file.unlink()
        case "link":
            file.rename(tmp_path / "rows.npy")
            file.symlink_to(tmp_path / "rows.npy")
        case "dtype":
            np.save(file, values.astype(np.float64))
    with pytest.raises(FormatError):
        writer.read(manifest)


def test_version_without_updates_reads_no_more(artifact: Artifact) -> None:
    rows = UpdatedRows.of(artifact)
    assert rows.artifact is artifact
    assert (rows.nbytes, rows.largest_share) == (0, 0)


def test_updates_of_the_first_release_of_the_format() -> None:
    version = Path(__file__).parents[1] / "formats" / "row-update-1" / "section" / "1"
    artifact = Artifact.open(version)
    folder = UpdatesFolder(version, artifact.manifest.digest)
    assert folder.sequences() == [1, 2]
    rows = UpdatedRows.of(artifact).apply([folder.read(each) for each in folder.chain(2)[1]])
    ids, table = rows.artifact.ids("package"), rows.artifact.table("package")
    assert ids.take([len(ids) - 2, len(ids) - 1]) == ["first", "second"]
    assert table.rows(ids.index(["nginx", "first", "second"]))[:, 0].tolist() == [1, 2, 2]
    assert rows.artifact.table("tag").rows(rows.artifact.ids("tag").index(["web"]))[0].tolist() == [1.5] * 4
