"""Rows, lists and graphs read in tiers give what NumPy gives, within their budgets, whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graphbox import _core
from graphbox.errors import FormatError, GraphboxError, NotFoundError, UsageError
from graphbox.graph.array_file import HEADER_BYTES, ArrayFile, array_header
from graphbox.graph.tier import Backend, ListFiles, Rows, TierOptions, open_lists

Array = npt.NDArray[Any]

MIB = 1 << 20
DTYPES_AND_SHAPES = [
    ("|u1", ()),
    ("|b1", ()),
    ("<i8", ()),
    ("<f4", (3,)),
    ("<i4", (32,)),
    ("<f4", (128,)),
    ("<f4", (33, 4)),
    ("<i8", (1024,)),
    ("<f4", (20_000,)),
]


def write_array(path: Path, array: Array) -> ArrayFile:
    """Write an array file as graphs have them."""
    with path.open("wb") as file:
        file.write(array_header(array.dtype, array.shape))
        file.write(np.ascontiguousarray(array).tobytes())
    return ArrayFile(path, HEADER_BYTES, array.dtype, array.shape)


def random_array(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    drawn = np.random.default_rng(seed).integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    if dtype == "|b1":
        drawn %= 2
    return drawn.view(dtype).reshape(shape)


def same(left: Array, right: Array) -> bool:
    """Compare bytes: numbers drawn as bytes may be NaN."""
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def batches(rng: np.random.Generator, num_rows: int) -> list[Array]:
    """Return batches of several habits: random, repeated, ascending, descending, all equal, none."""
    return [
        rng.integers(0, num_rows, 700),
        rng.integers(0, max(num_rows // 50, 1), 900),
        np.arange(num_rows)[: 5 * 700],
        np.arange(num_rows)[::-1][:700],
        np.full(300, num_rows - 1),
        np.zeros(0, np.int64),
        rng.integers(0, num_rows, 1),
    ]


def possible(backend: Backend) -> Backend:
    """Return the backend, or skip where this machine refuses it."""
    try:
        _core.Store([(__file__, Path(__file__).stat().st_size)], None, 0, backend, 1, False)
    except GraphboxError as error:
        pytest.skip(error.message)
    return backend


# Rows


@pytest.mark.parametrize("backend", ["io_uring", "threads"])
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("dtype", "row_shape"), DTYPES_AND_SHAPES)
def test_rows_are_those_of_numpy(
    tmp_path: Path, dtype: str, row_shape: tuple[int, ...], direct: bool, backend: Backend
) -> None:
    row_bytes = int(np.dtype(dtype).itemsize * np.prod(row_shape))
    array = random_array(dtype, (max(5, 600_000 // row_bytes), *row_shape))
    file = write_array(tmp_path / "rows.npy", array)
    rng = np.random.default_rng(1)
    for budget, threads in ((0, 1), (5000, 2), (array.nbytes // 5, 3), (array.nbytes // 2, 1), (8 * MIB, 4)):
        options = TierOptions(possible(backend), depth=16, direct=direct, threads=threads)
        rows = Rows(file, budget_bytes=budget, options=options)
        assert (rows.num_rows, rows.dtype, rows.row_shape) == (len(array), array.dtype, array.shape[1:])
        requests = 0
        for _ in range(2):
            for index in batches(rng, len(array)):
                assert same(rows.read(index), array[index])
                out = np.empty((len(index), *row_shape), dtype)
                assert rows.read(index.tolist(), out=out) is out
                assert same(out, array[index])
                requests += 2 * len(index)
                assert rows.stats.resident_bytes <= budget
        assert rows.stats.requests == requests
        assert rows.stats.budget_bytes == budget


def test_an_array_that_fits_is_read_once(tmp_path: Path) -> None:
    array = random_array("<f4", (3000, 128))
    rows = Rows(write_array(tmp_path / "rows.npy", array), budget_bytes=8 * MIB)
    rows.read(np.arange(len(array)))
    read = rows.stats
    assert read.read_bytes == array.nbytes + HEADER_BYTES
    index = np.random.default_rng(0).integers(0, len(array), 5000)
    assert same(rows.read(index), array[index])
    assert rows.stats.read_bytes == read.read_bytes
    assert rows.stats.hits - read.hits == 5000


def test_a_pass_reads_each_block_about_once(tmp_path: Path) -> None:
    array = random_array("<f4", (50_000, 16))
    rows = Rows(write_array(tmp_path / "rows.npy", array))
    index = np.random.default_rng(0).integers(0, len(array), 200_000)
    assert same(rows.read(index, whole_pass=True), array[index])
    assert rows.stats.read_bytes <= array.nbytes * 1.05
    assert rows.stats.read_requests <= 60


def test_many_requests_at_once_come_in_their_order(tmp_path: Path) -> None:
    array = random_array("<i4", (5000, 2))
    file = write_array(tmp_path / "rows.npy", array)
    index = np.random.default_rng(0).integers(0, len(array), 400_000)
    for budget in (0, array.nbytes // 3, 8 * MIB):
        assert same(Rows(file, budget_bytes=budget).read(index), array[index])


def test_what_is_used_often_is_kept(tmp_path: Path) -> None:
    """A fifth of the rows in memory serves most of skewed requests, passes over all rows between or not."""
    array = random_array("<f4", (20_000, 64))
    rows = Rows(write_array(tmp_path / "rows.npy", array), budget_bytes=array.nbytes // 5)
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, len(array) + 1) ** 1.1
    popular = rng.permutation(len(array))
    share = weights[: len(array) // 6].sum() / weights.sum()
    before = rows.stats
    for round_ in range(30):
        rows.read(popular[rng.choice(len(array), 5000, p=weights / weights.sum())])
        if round_ == 9:
            before = rows.stats
        if round_ % 10 == 9:
            rows.read(np.arange(len(array)), whole_pass=True)
    hits = rows.stats.hits - before.hits
    asked = rows.stats.requests - before.requests - 2 * len(array)
    assert hits / asked > 0.8 * share


def test_several_threads_may_ask_at_once(tmp_path: Path) -> None:
    array = random_array("<f4", (4000, 64))
    file = write_array(tmp_path / "rows.npy", array)
    for budget in (0, array.nbytes // 4, 8 * MIB):
        rows = Rows(file, budget_bytes=budget, options=TierOptions(threads=2))

        def ask(seed: int, rows: Rows = rows) -> bool:
            index = np.random.default_rng(seed).integers(0, len(array), 3000)
            return same(rows.read(index), array[index])

        with ThreadPoolExecutor(4) as executor:
            assert all(executor.map(ask, range(24)))
        assert rows.stats.resident_bytes <= budget


def test_a_forked_process_reads_on_its_own(tmp_path: Path) -> None:
    script = f"""
        import os, sys
        import numpy as np
        from pathlib import Path
        from graphbox.graph.tier import Rows, TierOptions
        from graphbox.graph.array_file import ArrayFile
        for backend in ("auto", "threads"):
            file = ArrayFile(Path({str(tmp_path / "rows.npy")!r}), {HEADER_BYTES}, np.dtype("<i8"), (50000,))
            rows = Rows(file, budget_bytes=100_000, options=TierOptions(backend))
            assert (rows.read(np.arange(50000)) == np.arange(50000)).all()
            child = os.fork()
            if child == 0:
                ok = (rows.read(np.arange(49999, -1, -1)) == np.arange(49999, -1, -1)).all()
                os._exit(0 if ok else 1)
            assert (rows.read(np.arange(50000)) == np.arange(50000)).all()
            assert os.waitpid(child, 0)[1] == 0
        """
    write_array(tmp_path / "rows.npy", np.arange(50_000))
    run_python(script)


def run_python(script: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    """Peak memory of a process that reads 16 times its budget grows by the budget and the stated rest."""
    file = write_array(tmp_path / "rows.npy", np.zeros((512 * 1024, 64), np.float32))  # 128 MiB
    script = f"""
        import numpy as np
        from pathlib import Path
        from graphbox import _core
        from graphbox.graph.array_file import ArrayFile
        from graphbox.graph.tier import Rows, TierOptions
        def peak_bytes():
            # Not ru_maxrss, which a child inherits from the process that started it.
            return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
        file = ArrayFile(Path({str(file.path)!r}), {file.offset}, np.dtype("<f4"), {file.shape})
        rng = np.random.default_rng(0)
        out = np.zeros((20_000, 64), np.float32)
        Rows(file, options=TierOptions(threads=1)).read(rng.integers(0, 512 * 1024, 20_000), out=out)
        before = peak_bytes()
        rows = Rows(file, budget_bytes={8 * MIB}, options=TierOptions(threads=1))
        for _ in range(40):
            rows.read(rng.integers(0, 512 * 1024, 20_000), out=out)
        print(peak_bytes() - before, rows.stats.resident_bytes)
        """
    grown, resident = map(int, run_python(script).split())
    assert 6 * MIB < resident <= 8 * MIB
    assert grown < 8 * MIB + 8 * MIB  # bookkeeping of a batch, huge pages touched in part


def test_a_refused_io_uring_is_replaced_and_said(tmp_path: Path) -> None:
    """As in containers: a filter of system calls answers io_uring_setup with EPERM."""
    write_array(tmp_path / "rows.npy", np.arange(50_000))
    script = f"""
        import ctypes, struct
        from pathlib import Path
        import numpy as np
        PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
        IO_URING_SETUP, REFUSED, ALLOWED = 425, 0x00050001, 0x7FFF0000
        load_number, is_setup = (0x20, 0, 0, 0), (0x15, 0, 1, IO_URING_SETUP)
        instructions = [load_number, is_setup, (0x06, 0, 0, REFUSED), (0x06, 0, 0, ALLOWED)]
        code = b"".join(struct.pack("HBBI", *each) for each in instructions)
        code = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("HxxxxxxQ", len(instructions), ctypes.addressof(code))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) == 0, ctypes.get_errno()
        from graphbox.errors import GraphboxError
        from graphbox.graph.array_file import ArrayFile
        from graphbox.graph.tier import Rows, TierOptions
        file = ArrayFile(Path({str(tmp_path / "rows.npy")!r}), {HEADER_BYTES}, np.dtype("<i8"), (50000,))
        rows = Rows(file)
        assert (rows.read(np.arange(0, 50000, 7)) == np.arange(0, 50000, 7)).all()
        try:
            Rows(file, options=TierOptions("io_uring"))
        except GraphboxError as error:
            print(rows.backend, "|", error.message, "|", error.hint)
        """
    used, message, hint = run_python(script).split("|")
    assert used.startswith("threads (no io_uring: ")
    assert "cannot be used" in message
    assert "`threads`" in hint


def test_rows_say_what_is_wrong(tmp_path: Path) -> None:
    array = random_array("<f4", (100, 4))
    file = write_array(tmp_path / "rows.npy", array)
    rows = Rows(file)
    with pytest.raises(UsageError, match=r"from 0 to 99, received 100 at position 1"):
        rows.read([5, 100, -1])
    with pytest.raises(UsageError, match=r"received -3 at position 0"):
        rows.read([-3])
    with pytest.raises(UsageError, match="expected integers"):
        rows.read([0.5])
    for out in (np.empty((2, 4)), np.empty((3, 4), "<f4"), np.empty((4, 2), "<f4").T):
        with pytest.raises(UsageError, match=r"C-contiguous array float32 \[2, 4\]"):
            rows.read([0, 1], out=out)
    with pytest.raises(UsageError, match="budget_bytes"):
        Rows(file, budget_bytes=-1)
    with pytest.raises(UsageError, match="backend must be"):
        Rows(file, options=TierOptions("mmap"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="1 to 4096 reads in flight"):
        Rows(file, options=TierOptions(depth=0))
    with pytest.raises(NotFoundError, match="No such file"):
        Rows(ArrayFile(tmp_path / "absent.npy", HEADER_BYTES, array.dtype, array.shape))
    with pytest.raises(FormatError, match="expected a file of 2128 bytes, received one of 1728"):
        Rows(ArrayFile(file.path, HEADER_BYTES, array.dtype, (125, 4)))
    empty = Rows(write_array(tmp_path / "empty.npy", array[:0]))
    assert empty.read([]).shape == (0, 4)
    with pytest.raises(UsageError, match="received 0 at position 0"):
        empty.read([0])


@pytest.mark.parametrize("backend", ["io_uring", "threads"])
def test_a_file_truncated_while_open_is_named(tmp_path: Path, backend: Backend) -> None:
    array = random_array("<f4", (5000, 64))
    file = write_array(tmp_path / "rows.npy", array)
    for budget in (0, array.nbytes // 4, 8 * MIB):
        write_array(file.path, array)
        rows = Rows(file, budget_bytes=budget, options=TierOptions(possible(backend)))
        os.truncate(file.path, 700_000)
        for _ in range(2):
            with pytest.raises(FormatError, match="the file now has 700000 bytes") as caught:
                rows.read(np.arange(5000))
            assert caught.value.where == str(file.path)
        assert same(rows.read(np.arange(2000)), array[:2000])  # what is there can still be read


# Lists


def random_lists(num_lists: int, dtype: str = "<i4") -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 30, num_lists)
    lengths[rng.random(num_lists) < 0.02] = 3000
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return offsets, random_array(dtype, (int(offsets[-1]),), 4)


def expected_lists(offsets: Array, values: Array, index: Array) -> tuple[Array, Array]:
    lists = [values[offsets[i] : offsets[i + 1]] for i in index]
    lengths = np.array([0, *map(len, lists)])
    return np.cumsum(lengths), np.concatenate([values[:0], *lists])


@pytest.mark.parametrize("backend", ["io_uring", "threads"])
@pytest.mark.parametrize("dtype", ["<i4", "<i8"])
def test_lists_are_those_of_numpy(tmp_path: Path, dtype: str, backend: Backend) -> None:
    offsets, values = random_lists(3000, dtype)
    weights = random_array("<f4", values.shape, 5)
    files = ListFiles(
        write_array(tmp_path / "offsets.npy", offsets),
        {
            "values": write_array(tmp_path / "values.npy", values),
            "weight": write_array(tmp_path / "weight.npy", weights),
        },
    )
    rng = np.random.default_rng(0)
    for budget, threads in ((0, 1), (50_000, 2), (values.nbytes // 5, 1), (16 * MIB, 3)):
        options = TierOptions(possible(backend), depth=16, threads=threads)
        lists = open_lists({"a": files}, budget_bytes=budget, options=options)["a"]
        assert lists.num_lists == 3000
        for _ in range(2):
            for index in batches(rng, 3000):
                expected_offsets, expected = expected_lists(offsets, values, index)
                found_offsets, found = lists.lists(index)
                assert (found_offsets == expected_offsets).all()
                assert same(found, expected)
                read = lists.read(index, ("weight",))
                assert same(read.items["weight"], weights[read.positions()])
                assert same(values[read.positions()], expected)
            assert lists.stats.resident_bytes <= budget


def test_lists_say_what_is_wrong(tmp_path: Path) -> None:
    offsets, values = random_lists(50)
    items = {"v": write_array(tmp_path / "v.npy", values)}
    good = ListFiles(write_array(tmp_path / "offsets.npy", offsets), items)
    lists = open_lists({0: good})[0]
    with pytest.raises(UsageError, match="from 0 to 49, received 50 at position 0"):
        lists.lists([50])
    with pytest.raises(NotFoundError, match="no array `w`"):
        lists.read([0], ("w",))
    with pytest.raises(UsageError, match="expected offsets int64"):
        open_lists({0: ListFiles(good.items["v"], good.items)})
    with pytest.raises(UsageError, match="arrays \\[items\\] of one length"):
        open_lists({0: ListFiles(good.offsets, {**good.items, "w": good.offsets})})
    assert open_lists({}) == {}
    offsets[20] = offsets[-1] + 1
    write_array(tmp_path / "offsets.npy", offsets)
    with pytest.raises(FormatError, match=r"expected offsets that ascend .* for list 19") as caught:
        open_lists({0: good})[0].lists([3, 19])
    assert caught.value.where == str(good.offsets.path)
