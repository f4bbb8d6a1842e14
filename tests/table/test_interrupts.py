"""KeyboardInterrupt at each step of the calls of a table on SSD: it closes, opens, and misses nothing."""

from __future__ import annotations

import dis
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np
import pytest

from graphbox.errors import GraphboxError
from graphbox.table import CountAdmission, EmbeddingTable

DIM: Final = 8
BUDGET: Final = 12 << 20
KEYS: Final = np.arange(600)
ERASED: Final = KEYS[:50]

SIGNALS_ARE_SEEN_AT: Final = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}
"""Instructions at whose end the interpreter looks for signals: KeyboardInterrupt arrives nowhere else."""

DESTRUCTORS: Final = {"__del__", "_remove"}
"""Functions whose exceptions the interpreter prints and forgets."""


class Interruption:
    """Raises KeyboardInterrupt at the n-th of the places where a call of this thread could see a signal.

    A place that is reached many times counts once.

    Args:
        at: which place, from 0. None: nowhere, places are counted.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.place = ""
        self._seen: set[tuple[CodeType, int]] = set()
        self._instructions: dict[CodeType, dict[int, tuple[str, int]]] = {}

    @property
    def places(self) -> int:
        """Number of places that were reached."""
        return len(self._seen)

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Interrupt the block, or what it calls."""
        sys.settrace(self._traced)
        try:
            yield
        finally:
            sys.settrace(None)

    def _traced(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if event != "call" or code.co_name in DESTRUCTORS or code.co_filename == __file__:
            return None
        if code not in self._instructions:
            self._instructions[code] = _instructions(code)
        frame.f_trace_opcodes = True
        last = -1

        def step(frame: FrameType, event: str, _: object) -> Any:
            nonlocal last
            if event == "opcode":
                if last >= 0:
                    self._look(frame, last)
                last = frame.f_lasti
            return step

        return step

    def _look(self, frame: FrameType, last: int) -> None:
        """Interrupt after the instruction ``last``, before the next one."""
        instructions = self._instructions[frame.f_code]
        name, handler = instructions[last]
        # At the end of a block, the exception would come after it instead of in it.
        if name not in SIGNALS_ARE_SEEN_AT or instructions[frame.f_lasti][1] != handler:
            return
        place = (frame.f_code, last)
        if place in self._seen:
            return
        self._seen.add(place)
        if len(self._seen) - 1 == self.at:
            self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            signal.default_int_handler(signal.SIGINT, frame)


def _instructions(code: CodeType) -> dict[int, tuple[str, int]]:
    """Return for each instruction its name, and where an exception in it goes on."""
    blocks = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    found = {}
    for each in dis.get_instructions(code):
        handlers = [block.target for block in blocks if block.start <= each.offset < block.end]
        found[each.offset] = (each.opname, handlers[0] if handlers else -1)
    return found


CALLS: Final[dict[str, Callable[[EmbeddingTable, Path], object]]] = {
    "flush": lambda table, _: table.flush(),
    "save": lambda table, folder: table.save(folder / "checkpoint"),
    "save_base": lambda table, folder: table.save_base(folder / "base"),
    "prefetch": lambda table, _: table.prefetch(KEYS).wait(),
    "purge": lambda table, _: table.purge(),
    "erase": lambda table, _: table.erase(ERASED),
    "items": lambda table, _: list(table.items(chunk_rows=500)),
    "close": lambda table, _: table.close(),
    "open": lambda _, folder: EmbeddingTable.open(folder / "other", memory_bytes=BUDGET),
    "make": lambda _, folder: EmbeddingTable(DIM, path=folder / "new", memory_bytes=BUDGET),
}
OTHERS: Final = ("other", "new")


def made(path: Path) -> EmbeddingTable:
    """Return a new table: a key gets a row when it is pulled for the second time."""
    return EmbeddingTable(
        DIM,
        path=path,
        memory_bytes=BUDGET,
        seed=1,
        threads=1,
        admission=CountAdmission(2, sketch_bytes=1 << 16),
    )


def interrupted(at: int | None, call: str, table: EmbeddingTable, folder: Path) -> Interruption:
    """Make a call, which is interrupted at a place, and keep the traceback as a notebook does."""
    interruption = Interruption(at)
    try:
        with interruption.armed():
            CALLS[call](table, folder)
    except KeyboardInterrupt as error:
        sys.last_value = error
    except (RuntimeError, GraphboxError) as error:
        # CPython's threading.Condition gives up its lock twice then, and shutil.rmtree a folder.
        if not _came_of_interruption(error):
            raise
        sys.last_value = error
    return interruption


def _came_of_interruption(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # files that were opened, and not given to anybody yet
@pytest.mark.parametrize(
    "most_places", [5, pytest.param(10_000, marks=[pytest.mark.stress, pytest.mark.timeout(3600)])]
)
@pytest.mark.parametrize("call", CALLS)
def test_a_table_closes_and_opens_after_an_interrupted_call(
    call: str, most_places: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    # Forgotten, as without pytest: it would keep what cannot be raised, and the table in its frames.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    fresh = EmbeddingTable(DIM, seed=1).pull(KEYS)
    made(tmp_path / "other").close()

    def round_of(at: int | None) -> Interruption:
        name = f"table{at}"
        table = made(tmp_path / name)
        table.pull(KEYS)  # the first time
        table.flush()
        table.pull(KEYS[::2])
        table.end_pass()
        interruption = interrupted(at, call, table, tmp_path)
        table.close()
        with EmbeddingTable.open(tmp_path / name, memory_bytes=BUDGET) as table:
            assert table.recovery is not None, interruption.place
            assert table.recovery.catalogue_damage is None, interruption.place
            assert table.recovery.state_damage is None, interruption.place
            assert table.passes == 1
            np.testing.assert_array_equal(table.contains(KEYS[50::2]), True)
            assert np.all(table.contains(KEYS[1::2]) == 0)
            table.pull(KEYS[1::2])  # the second time
            np.testing.assert_array_equal(table.contains(KEYS[51::2]), True, interruption.place)
            np.testing.assert_array_equal(table.pull(KEYS[50:], create=False), fresh[50:])
        for other in OTHERS:
            with (
                EmbeddingTable(DIM, path=tmp_path / other, memory_bytes=BUDGET)
                if other == "new"
                else (EmbeddingTable.open(tmp_path / other, memory_bytes=BUDGET)) as table
            ):
                assert table.recovery is not None
                assert table.recovery.catalogue_damage is None, interruption.place
        return interruption

    places = round_of(None).places
    rounds = [round_of(at) for at in range(0, places, -(-places // most_places))]
    assert sum(each.place != "" for each in rounds) > len(rounds) // 2  # not all: the first call had more
