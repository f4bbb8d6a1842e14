"""The live line of progress on a terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from graphbox.cli.progress import ShownProgress


def live_lines(stage: str, what: str, width: int) -> list[str]:
    """Return what a terminal of so many columns is shown."""
    written = io.StringIO()
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    with ShownProgress(console, quiet=False) as progress:
        progress.begin(stage, 1, 1)
        progress.step(what, 0, None)
        bar = progress._bar
        assert bar is not None
        Console(file=written, width=width, color_system=None).print(bar.get_renderable())
    return [line.rstrip() for line in written.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_long_line_gives_way(width: int) -> None:
    """Ctrl-C appears as ^C behind the live line, which could not be erased if that began another line."""
    what = "waiting for a marker in it (_SUCCESS, _DONE, done): chunk 20261103 and what comes after it"
    [line] = live_lines("follow", what, width)
    assert len(line) <= width - 2
    assert re.search(r"1/1 follow +waiting for .*…", line)


def test_names_are_no_markup() -> None:
    [line] = live_lines("follow", "sales[copy].csv [/]", 120)
    assert "sales[copy].csv [/]" in line
