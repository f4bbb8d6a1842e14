"""Whether a server, or one of its workers, should receive requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Readiness"]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a worker should receive requests.

    Attributes:
        ready: models are preloaded, and each of them has a version that answers.
        available: names of the models that answer.
        loading: names of the models that are about to be opened.
        failed: reason by model name, of the models that cannot answer.
    """

    ready: bool
    available: list[str]
    loading: list[str]
    failed: dict[str, str]

    @classmethod
    def of_all(cls, workers: Sequence[Readiness]) -> Readiness:
        """Return the readiness of a server: it is ready, and has a model, where every worker is and has."""
        failed = {name: reason for each in workers for name, reason in each.failed.items()}
        loading = {name for each in workers for name in each.loading} - failed.keys()
        available = {name for each in workers for name in each.available} - failed.keys() - loading
        return cls(all(each.ready for each in workers), sorted(available), sorted(loading), failed)
