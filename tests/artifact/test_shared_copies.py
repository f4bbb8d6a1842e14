"""Copies that processes share: equal to private ones, complete or absent, and given back."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import Artifact, ArtifactWriter, LookupForm, PaddedBlockForm, TargetSpec
from graphbox.artifact.manifest import FileRecord
from graphbox.artifact.shared_copies import SharedCopies
from graphbox.copy_file import create_copy, grant, is_complete, is_used, open_for_writing
from graphbox.errors import FormatError, TimeLimitError
from graphbox.server.copy_registry import CopyRegistry
from tests.server.sample_models import write_encoder, write_vectors

IN_MEMORY, ON_DISK = 1 << 30, 0


def shared(registry: CopyRegistry, largest_in_memory_bytes: int = IN_MEMORY, **options: Any) -> SharedCopies:
    """Share files of any size."""
    return SharedCopies(
        registry, smallest_bytes=0, largest_in_memory_bytes=largest_in_memory_bytes, **options
    )


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def sweep(registry: CopyRegistry) -> None:
    registry.sweep_at = 0.0
    registry.sweep()


@pytest.fixture
def registry() -> Any:
    owner = CopyRegistry()
    yield owner
    owner.close()


def file_of(artifact: Artifact, name: str) -> tuple[Path, FileRecord]:
    return artifact.path / name, artifact.manifest.files[name]


@pytest.mark.parametrize("limit", [IN_MEMORY, ON_DISK], ids=["in memory", "on disk"])
def test_shared_versions_equal_private_ones(tmp_path: Path, registry: CopyRegistry, limit: int) -> None:
    private = write_encoder(tmp_path / "companion" / "1")
    files = sorted(each.name for each in private.path.rglob("*"))
    opened = [Artifact.open(private.path, copies=shared(registry, limit)) for _ in range(2)]
    before = len(registry)
    for each in opened:
        for name in private.manifest.tables:
            everything = np.arange(len(private.table(name)))
            expected = private.table(name).rows(everything)
            np.testing.assert_array_equal(each.table(name).rows(everything), expected)
            assert list(each.table(name).ids) == list(private.table(name).ids)
        ids = each.ids("package")
        assert ids.index(["zsh", "absent", "café"], missing=-1).tolist() == [5, -1, 6]
        assert ids.take([0, 7]) == ["nginx", "git"]
        assert ids.suggest("nginz") == private.ids("package").suggest("nginz")
        form = private.preprocess
        assert isinstance(form, PaddedBlockForm)
        (group,) = form.layers[0].groups
        lists, wanted = each.neighbor_lists(group), private.neighbor_lists(group)
        for field in ("start", "counts", "neighbors"):
            np.testing.assert_array_equal(getattr(lists, field), getattr(wanted, field))
        (edge_type,) = private.links.edge_types
        assert each.links.edge_types == (edge_type,)
        assert len(each.links) == len(private.links)
        np.testing.assert_array_equal(each.links.pairs(edge_type), private.links.pairs(edge_type))
        np.testing.assert_array_equal(
            each.links.linked_to("package", 0, "package"), private.links.linked_to("package", 0, "package")
        )
        neighbors = np.arange(8)
        assert each.links.between("package", 0, "package", neighbors) == private.links.between(
            "package", 0, "package", neighbors
        )
    assert before, "arrays are copied while they are verified"
    assert len(registry) == before + 3, "ids, starts of lists and links, once for both"
    assert sorted(each.name for each in private.path.rglob("*")) == files


def test_networks_are_verified_and_not_kept(tmp_path: Path, registry: CopyRegistry) -> None:
    """Serving reads nothing of them: they are for training, and as large as the rows."""

    def write_network(folder: Path) -> None:
        np.save(folder / "rows.package.npy", np.ones((1000, 64), np.float32))

    with ArtifactWriter(tmp_path / "1") as writer:
        writer.add_ids("package", ["a", "b"])
        writer.add_table("package", "package", np.eye(2, 4, dtype=np.float32))
        writer.set_preprocess(LookupForm(node_type="package", tables={"package": "package"}))
        writer.set_network(write_network)
        targets = {"package": TargetSpec(table="package", score="cosine")}
        private = writer.commit(name="a", version=1, kind="embedding", task=None, dim=4, targets=targets)
    file, record = file_of(private, "network/rows.package.npy")
    opened = Artifact.open(private.path, copies=shared(registry))
    assert len(registry) == 1, "the rows of the table"
    assert len(opened.table("package")) == 2
    file.write_bytes(file.read_bytes()[:-1] + b"\x11")
    with pytest.raises(FormatError, match=f"expected the sha256 {record.sha256}"):
        Artifact.open(private.path, copies=shared(registry))


def test_integer_ids_without_links(tmp_path: Path, registry: CopyRegistry) -> None:
    private = write_vectors(tmp_path / "section" / "1")
    each = Artifact.open(private.path, copies=shared(registry))
    for node_type in private.node_types:
        assert list(each.ids(node_type)) == list(private.ids(node_type))
        assert each.ids(node_type).kind == private.ids(node_type).kind
    assert (len(each.links), each.links.edge_types) == (0, ())


@pytest.mark.parametrize("limit", [IN_MEMORY, ON_DISK], ids=["in memory", "on disk"])
@pytest.mark.parametrize("change", ["truncate", "overwrite", "remove"])
def test_later_changes_of_files_do_not_matter(
    tmp_path: Path, registry: CopyRegistry, limit: int, change: str
) -> None:
    private = write_encoder(tmp_path / "companion" / "1")
    expected = private.table("package").rows(np.arange(8))
    opened = Artifact.open(private.path, copies=shared(registry, limit))
    array = opened._array("tables/package/rows.npy", "<f4", (8, 4))
    for file in private.path.rglob("*.*"):
        if change == "remove":
            file.unlink()
        else:
            os.truncate(file, 0)
            if change == "overwrite":
                file.write_bytes(b"\xff" * 4096)
    np.testing.assert_array_equal(array, expected)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0


def test_complete_copies_in_memory_cannot_be_changed(tmp_path: Path, registry: CopyRegistry) -> None:
    private = write_encoder(tmp_path / "companion" / "1")
    file, record = file_of(private, "tables/package/rows.npy")
    array = shared(registry).array(file, record)
    copy = registry.grant(record.sha256, None)
    again = os.open(f"/proc/self/fd/{copy}", os.O_RDONLY)
    try:
        assert is_complete(copy)
        assert open_for_writing(copy) is None
        with pytest.raises(OSError, match=r"not permitted|Permission denied"):
            os.truncate(f"/proc/self/fd/{copy}", 0)
        with pytest.raises(OSError, match="Invalid argument"):
            os.ftruncate(again, 0)
    finally:
        os.close(copy)
        os.close(again)
    assert array.shape == (8, 4)


@pytest.mark.parametrize("limit", [IN_MEMORY, ON_DISK], ids=["in memory", "on disk"])
def test_files_of_another_digest_are_refused(tmp_path: Path, registry: CopyRegistry, limit: int) -> None:
    """While the file is verified, and again where it changes between that and its use."""
    private = write_encoder(tmp_path / "companion" / "1")
    file, record = file_of(private, "tables/package/rows.npy")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    copies = shared(registry, limit)
    for _ in range(2):
        with pytest.raises(FormatError, match=f"expected the sha256 {record.sha256}") as caught:
            Artifact.open(private.path, copies=copies)
        assert caught.value.where == str(file)
    file.write_bytes(content)
    opened = Artifact.open(private.path, copies=copies)
    ids, ids_record = file_of(private, private.manifest.tables["package"].ids)
    damaged = bytearray(ids.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    ids.write_bytes(damaged)
    with pytest.raises(FormatError, match=f"expected the sha256 {ids_record.sha256}"):
        opened.ids("package")
    np.testing.assert_array_equal(
        copies.array(file, record), np.load(file), "a failed copy leaves nothing behind"
    )


COPIER = """
import os, sys, time
from graphbox.copy_file import open_for_writing
copy = open_for_writing(int(sys.argv[1]))
os.write(copy, b"half of a copy")
print("writes", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("limit", [IN_MEMORY, ON_DISK], ids=["in memory", "on disk"])
def test_the_next_process_copies_where_one_is_killed(
    tmp_path: Path, registry: CopyRegistry, limit: int
) -> None:
    private = write_encoder(tmp_path / "companion" / "1")
    file, record = file_of(private, "tables/package/rows.npy")
    copy = registry.grant(record.sha256, None if limit == IN_MEMORY else file.parent)
    with subprocess.Popen(
        [sys.executable, "-c", COPIER, str(copy)], pass_fds=[copy], stdout=subprocess.PIPE
    ) as copier:
        assert copier.stdout is not None
        assert copier.stdout.readline() == b"writes\n"
        found: list[Any] = []
        waiting = threading.Thread(
            target=lambda: found.append(shared(registry, limit).array(file, record)), daemon=True
        )
        waiting.start()
        time.sleep(0.2)
        assert not found
        assert waiting.is_alive()
        copier.send_signal(signal.SIGKILL)
        waiting.join(20)
    os.close(copy)
    np.testing.assert_array_equal(found[0], np.load(file))


def test_waiting_for_a_process_that_hangs_ends(tmp_path: Path, registry: CopyRegistry) -> None:
    private = write_encoder(tmp_path / "companion" / "1")
    file, record = file_of(private, "tables/package/rows.npy")
    copy = registry.grant(record.sha256, None)
    writes = open_for_writing(copy)
    assert writes is not None
    with pytest.raises(
        TimeLimitError, match=r"to complete its copy of rows\.npy, received nothing"
    ) as caught:
        shared(registry, stall_timeout_s=0.1).array(file, record)
    assert caught.value.where == str(file)
    os.close(writes)
    shared(registry, stall_timeout_s=0.1).array(file, record)
    os.close(copy)


def test_threads_share_one_copy(tmp_path: Path, registry: CopyRegistry) -> None:
    private = write_encoder(tmp_path / "companion" / "1")
    copies = shared(registry)
    opened: list[Artifact] = []
    threads = [
        threading.Thread(target=lambda: opened.append(Artifact.open(private.path, copies=copies)))
        for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(opened) == 8
    arrays = [each._array("tables/package/rows.npy", "<f4", (8, 4)) for each in opened]
    assert len({array.ctypes.data for array in arrays}) == 1


@pytest.mark.parametrize("limit", [IN_MEMORY, ON_DISK], ids=["in memory", "on disk"])
def test_cycles_leave_no_descriptors(tmp_path: Path, registry: CopyRegistry, limit: int) -> None:
    private = write_vectors(tmp_path / "section" / "1")
    copies = shared(registry, limit)

    def cycle() -> None:
        artifact = Artifact.open(private.path, copies=copies)
        assert len(artifact.table("package")) == 8

    cycle()
    gc.collect()
    sweep(registry)
    before = descriptors()
    for number in range(1000):
        cycle()
        if number % 100 == 0:
            gc.collect()
            sweep(registry)
            assert len(registry) == 0
    gc.collect()
    sweep(registry)
    assert (len(registry), registry.sweep_at, descriptors()) == (0, None, before)


def test_copies_are_used_as_long_as_they_are_mapped(tmp_path: Path, registry: CopyRegistry) -> None:
    private = write_encoder(tmp_path / "companion" / "1")
    copies = shared(registry)
    array = copies.array(*file_of(private, "tables/package/rows.npy"))[2:4]
    sweep(registry)
    assert len(registry) == 1
    del array
    sweep(registry)
    assert len(registry) == 0


def test_locks_follow_descriptors() -> None:
    copy = create_copy(None)
    assert not is_used(copy)
    granted = grant(copy)
    assert is_used(copy)
    writes = open_for_writing(granted)
    assert writes is not None
    assert open_for_writing(granted) is None
    os.close(writes)
    again = open_for_writing(granted)
    assert again is not None
    for each in (again, granted):
        os.close(each)
    assert not is_used(copy)
    os.close(copy)


NO_ROOM = """
import sys
from pathlib import Path
from graphbox.artifact import Artifact
from graphbox.artifact.shared_copies import SharedCopies
from graphbox.errors import DoesNotFitError
from graphbox.server.copy_registry import CopyRegistry
try:
    copies = SharedCopies(CopyRegistry(), smallest_bytes=0, largest_in_memory_bytes=0)
    Artifact.open(Path(sys.argv[1]), copies=copies)
except DoesNotFitError as error:
    sys.exit(str(error))
"""


def test_no_room_on_the_disk(tmp_path: Path) -> None:
    private = write_encoder(tmp_path / "companion" / "1")

    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    ended = subprocess.run(
        [sys.executable, "-c", NO_ROOM, str(private.path)],
        preexec_fn=small_files_only,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert "bytes free in" in ended.stderr
    assert "for a copy of" in ended.stderr
