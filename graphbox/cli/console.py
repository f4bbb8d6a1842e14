"""A console on which text of the user's data cannot steer the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), *_DIRECTIONS), 0xFFFD),
}


class DataConsole(Console):
    """Shows control characters as pictures: an escape sequence in an id or a malformed line stays text.

    Characters that turn the direction of text are replaced as well. Rich's own styles and cursor movements
    are not text, and unaffected.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, with control characters in text made visible."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(segment.text.translate(_VISIBLE), segment.style)
