"""Sources of served models together: each model name belongs to one of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from graphbox.errors import UsageError
from graphbox.server.sources import Source, WatchedSource

__all__ = ["OwnedSources"]

logger = logging.getLogger("graphbox.server")


class OwnedSources:
    """Sources with their newest listings, and which of them each model name belongs to.

    `read` and `poll` may be called by any thread, `assign_owners` by one at a time.

    Args:
        sources: the first that lists a name owns it.

    Attributes:
        owners: source by model name, as `assign_owners` found them.

    Raises:
        UsageError: two sources hold a model of the same name.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.owners: dict[str, WatchedSource] = {}
        self._sources = [WatchedSource(source) for source in sources]
        self._shadowed: set[tuple[str, str]] = set()
        for name, first, second in self._assign_owners():
            raise UsageError(
                f"the model `{name}` is in {first} and in {second}",
                hint="rename one of them, or serve only one of the two",
            )

    def read(self) -> None:
        """Read the listings of all sources.

        Raises:
            GraphboxError: a source cannot be read; those before it have new listings.
        """
        for watched in self._sources:
            watched.read()

    def poll(self) -> bool:
        """Read the listings that have changed; return whether there are any."""
        changed = [watched.poll() for watched in self._sources]
        return any(changed)

    def assign_owners(self) -> None:
        """Assign each model name to one source, by the newest listings; log names that two sources list."""
        shadowed = {(name, other) for name, _, other in self._assign_owners()}
        for name, label in sorted(shadowed - self._shadowed):
            logger.error("model %s of %s is not served: another source has that name", name, label)
        self._shadowed = shadowed

    def _assign_owners(self) -> list[tuple[str, str, str]]:
        """Assign each model name to one source: the present owner, else the first source that lists it.

        Returns:
            Name, owner and other source, where two sources list the same name.
        """
        listed = [(watched, watched.listing.names) for watched in self._sources]
        owners = {name: watched for watched, names in listed for name in names & self._owned_by(watched)}
        doubled = []
        for watched, names in listed:
            for name in sorted(names):
                owner = owners.setdefault(name, watched)
                if owner is not watched:
                    doubled.append((name, owner.label, watched.label))
        self.owners = owners
        return doubled

    def _owned_by(self, watched: WatchedSource) -> set[str]:
        return {name for name, owner in self.owners.items() if owner is watched}
