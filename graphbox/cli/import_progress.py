"""Progress of an import and of changes to a graph, and what Ctrl-C does to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from graphbox.cli.progress import ShownProgress
from graphbox.cli.session import Session
from graphbox.errors import InterruptedRunError

Tell: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, and how many of how many bytes (or tables) are."""


@contextmanager
def watched_import(
    session: Session,
    what: str = "import",
    unit: str = "B",
    *,
    outcome: str = "the graph is as it was before",
    hint: str = "the same command starts again",
) -> Iterator[Tell]:
    """Show progress while the block runs; the first Ctrl-C or SIGTERM ends it at the next step told.

    Args:
        session: the call of the command line.
        what: what the block does.
        unit: of its steps.
        outcome: what is left when it is stopped.
        hint: how to continue then.

    Raises:
        InterruptedRunError: it was stopped on request.
    """
    from graphbox.pipeline import stop_on_signals

    with (
        ShownProgress(session.err(), quiet=session.quiet) as progress,
        stop_on_signals(progress.note, outcome) as stop,
    ):
        progress.begin(what, 1, 1)

        def tell(stage: str, done: int, total: int) -> None:
            stop.check()
            progress.step(stage, done, total, unit)

        try:
            yield tell
        except InterruptedRunError:
            raise InterruptedRunError(
                f"stopped during the {what}: {outcome}",
                hint=hint,
            ) from None
