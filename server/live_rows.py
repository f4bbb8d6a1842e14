"""Row updates of one served model version: applies what leads to the active one, reports what is served."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from graphbox.artifact.row_updates import RowUpdate, UpdateManifest, UpdatesFolder, in_batches
from graphbox.artifact.updated_rows import UpdatedRows
from graphbox.errors import DoesNotFitError, FormatError, GraphboxError
from graphbox.server.counters import GAUGE, Counters

__all__ = ["LiveRows", "RowsCollector", "RowsState"]

logger = logging.getLogger("graphbox.server")

ADVISED_SHARE: Final = 0.2
"""Changed rows of a table, for each stored one, from which a new version is advised."""
_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 60.0
_MOST_TRIED: Final = 64
_STATES: Final = (GAUGE, "row updates")
_SEQUENCE, _WRITTEN_MS, _REFUSED, _STATE_SLOTS = range(4)
_COUNTS: Final = ("row updates",)
_ROWS, _COUNT_SLOTS = range(2)


@dataclass(frozen=True, slots=True)
class RowsState:
    """Row updates of a model version in this worker.

    Attributes:
        sequence: number of the last update that answers have; 0: none.
        wanted: number of the active one.
        failure: why ``wanted`` is not applied, else empty.
    """

    sequence: int
    wanted: int
    failure: str


@dataclass(frozen=True, slots=True)
class _Failure:
    """An active update that was not applied.

    Attributes:
        wanted: its number.
        pause_s: time until it is tried again.
        retry_at: when that is, by `time.monotonic`.
    """

    wanted: int
    pause_s: float
    retry_at: float


class LiveRows:
    """Brings the rows of an open model version to its active row update. The caller calls it from one thread.

    Args:
        name: of the model.
        version: of the model.
        path: folder of the version.
        counters: of the server.
        wanted: returns the number of the active update, 0: none; None: the newest of the folder is active.
        max_bytes: most bytes of changed rows.
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: Path,
        counters: Counters,
        wanted: Callable[[], int] | None,
        max_bytes: int,
    ) -> None:
        self._name = name
        self._version = version
        self._path = path
        self._counters = counters
        self._active = wanted
        self._max_bytes = max_bytes
        self._record: memoryview[int] | None = None
        self._counts: memoryview[int] | None = None
        self._failure = ""
        self._failed: _Failure | None = None
        # Why updates do not fit, by digest: it names all before them, so they never will.
        self._too_large: dict[str, str] = {}
        self._is_advised = False
        self.state = RowsState(0, 0, "")

    def wanted(self) -> int:
        """Return the number of the update that is active; 0: none is."""
        if self._active is not None:
            return self._active()
        return UpdatesFolder(self._path, "0" * 64).newest()

    def is_due(self, rows: UpdatedRows) -> bool:
        """Return whether `advance` may change the rows; cheap enough to poll."""
        try:
            wanted = self.wanted()
        except OSError:
            return False
        if wanted == rows.point.sequence:
            return bool(self._failure)
        failed = self._failed
        return failed is None or failed.wanted != wanted or time.monotonic() >= failed.retry_at

    def advance(self, rows: UpdatedRows) -> UpdatedRows:
        """Return the rows after the active update, or after the last one before it that can be applied.

        An update that is missing or damaged is refused, with all that follow it; it is logged once, and
        tried again after pauses that grow. One that does not fit is not read again.

        Args:
            rows: the present ones.
        """
        try:
            wanted = self.wanted()
        except OSError as error:
            self._note_failure(0, f"the folder of updates cannot be read: {error.strerror}")
            return rows
        started = time.perf_counter()
        try:
            found, failure = self._at(rows, wanted)
        except Exception as error:  # no update may stop what is served
            if not self._failure:
                logger.exception("model %s version %d: row updates cannot be read", self._name, self._version)
            found, failure = rows, f"{type(error).__name__}: {error}"
        self._note_failure(wanted, failure)
        if found is not rows:
            self._log(found, started)
        self._report(rows, found, wanted)
        return found

    def close(self) -> None:
        """Report nothing more: the version is not served."""
        if self._record is not None:
            self._record[_SEQUENCE] = self._record[_WRITTEN_MS] = self._record[_REFUSED] = 0

    def _at(self, rows: UpdatedRows, wanted: int) -> tuple[UpdatedRows, str]:
        """Return the rows after an update or the best there is, and why it is not this update."""
        if wanted == rows.point.sequence:
            return rows, ""
        original = UpdatedRows.of(rows.base)
        if not wanted:
            return original, ""
        folder = UpdatesFolder(self._path, rows.base.manifest.digest)
        try:
            continues, chain = folder.chain(wanted, rows.point)
        except GraphboxError as error:
            return (rows if rows.point.sequence else self._newest_whole(folder, original, wanted)), _text(
                error
            )
        found, failure = self._applied(folder, rows if continues else original, chain)
        if not failure:
            return found, failure
        if rows.point.sequence:  # rows of another chain are not the last good ones
            return (found if continues else rows), failure
        return (found if found.point.sequence else self._newest_whole(folder, original, wanted)), failure

    def _newest_whole(self, folder: UpdatesFolder, original: UpdatedRows, wanted: int) -> UpdatedRows:
        """Return the rows after the newest update before ``wanted`` that can be applied."""
        earlier = [each for each in folder.sequences() if each < wanted]
        for sequence in earlier[: -_MOST_TRIED - 1 : -1]:
            try:
                _, chain = folder.chain(sequence)
            except GraphboxError:
                continue
            return self._applied(folder, original, chain)[0]
        return original

    def _applied(
        self, folder: UpdatesFolder, rows: UpdatedRows, chain: Sequence[UpdateManifest]
    ) -> tuple[UpdatedRows, str]:
        """Return the rows after as many updates of a chain as can be applied, and why it is not all."""
        found, applied_rows, failure = rows, 0, ""
        for manifests in in_batches(chain):
            before = found
            found, failure = self._applied_batch(folder, before, manifests)
            applied_rows += found.applied_rows if found is not before else 0
            if failure:
                break
        return (replace(found, applied_rows=applied_rows) if found is not rows else rows), failure

    def _applied_batch(
        self, folder: UpdatesFolder, rows: UpdatedRows, manifests: Sequence[UpdateManifest]
    ) -> tuple[UpdatedRows, str]:
        """Return the same of updates that are read at once."""
        updates: list[RowUpdate] = []
        failure = ""
        try:
            for manifest in manifests:
                self._check_fits(rows, manifest)
                updates.append(folder.read(manifest))
        except GraphboxError as error:  # those before it count
            failure = _text(error)
        try:
            return rows.apply(updates, self._max_bytes), failure
        except (FormatError, DoesNotFitError):
            found, refused = self._one_by_one(rows, updates)
            return found, refused or failure

    def _check_fits(self, rows: UpdatedRows, manifest: UpdateManifest) -> None:
        """Refuse an update that is known not to fit, before it is read.

        Raises:
            DoesNotFitError: it did not before, or its rows alone are too many.
        """
        if manifest.digest in self._too_large:
            raise DoesNotFitError(self._too_large[manifest.digest])
        rows.check_size(manifest.sequence, manifest.row_bytes, self._max_bytes)

    def _one_by_one(self, rows: UpdatedRows, updates: Sequence[RowUpdate]) -> tuple[UpdatedRows, str]:
        """Return the rows after the updates before the first one that cannot be applied, and why."""
        found, applied_rows, failure = rows, 0, ""
        for update in updates:
            try:
                found = found.apply([update], self._max_bytes)
            except FormatError as error:
                failure = _text(error)
                break
            except DoesNotFitError as error:
                failure = self._too_large[update.manifest.digest] = _text(error)
                break
            applied_rows += found.applied_rows
        return (replace(found, applied_rows=applied_rows) if found is not rows else rows), failure

    def _note_failure(self, wanted: int, failure: str) -> None:
        if failure:
            pause_s, before = _RETRY_S, self._failed
            if before is not None and before.wanted == wanted:
                pause_s = min(_LONGEST_RETRY_S, 2 * before.pause_s)
            self._failed = _Failure(wanted, pause_s, time.monotonic() + pause_s)
        else:
            self._failed = None
            self._too_large.clear()
        if failure != self._failure and failure:
            logger.error(
                "model %s version %d: row update %d is refused: %s",
                self._name,
                self._version,
                wanted,
                failure,
            )
        self._failure = failure

    def _log(self, found: UpdatedRows, started: float) -> None:
        logger.info(
            "model %s version %d: row update %d is served, %d bytes of changed rows, applied in %.1f ms",
            self._name,
            self._version,
            found.point.sequence,
            found.nbytes,
            1e3 * (time.perf_counter() - started),
        )
        is_advised = found.largest_share > ADVISED_SHARE
        if is_advised and not self._is_advised:
            logger.warning(
                "model %s version %d: %.0f %% of a table's rows are changed ones, ranked exactly and kept by "
                "each worker: export a new version of the model",
                self._name,
                self._version,
                100 * found.largest_share,
            )
        self._is_advised = is_advised

    def _report(self, before: UpdatedRows, found: UpdatedRows, wanted: int) -> None:
        self.state = RowsState(found.point.sequence, wanted, self._failure)
        if self._record is None or self._counts is None:
            if not wanted and not found.point.sequence:
                return
            model = self._name, str(self._version)
            self._record = self._counters.record((*_STATES, *model), "", _STATE_SLOTS)
            self._counts = self._counters.record((*_COUNTS, *model), "", _COUNT_SLOTS)
        self._record[_WRITTEN_MS] = 0 if found.last is None else round(found.last.created.timestamp() * 1e3)
        self._record[_SEQUENCE] = found.point.sequence
        self._record[_REFUSED] = int(bool(self._failure))
        if found is not before and found.last is not None:
            self._counts[_ROWS] += found.applied_rows


class RowsCollector(Collector):
    """Reports row updates of all workers that run, each with a label ``worker``."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the versions that have row updates."""
        labels = ["model", "version", "worker"]
        sequence = GaugeMetricFamily(
            "graphbox_rows_sequence", "Number of the row update that answers have", labels=labels
        )
        age = GaugeMetricFamily(
            "graphbox_rows_update_age_seconds", "Time since that row update was written", labels=labels
        )
        refused = GaugeMetricFamily(
            "graphbox_rows_refused", "1 where the active row update cannot be applied", labels=labels
        )
        rows = CounterMetricFamily("graphbox_rows_updated", "Rows of applied row updates", labels=labels)
        now_ms = time.time() * 1e3
        for worker, group, record in self._counters.records_of_workers(_STATES):
            each = [*group, str(worker)]
            sequence.add_metric(each, record[_SEQUENCE])
            refused.add_metric(each, record[_REFUSED])
            if record[_WRITTEN_MS]:
                age.add_metric(each, max(0.0, (now_ms - record[_WRITTEN_MS]) / 1e3))
        for worker, group, record in self._counters.records_of_workers(_COUNTS):
            rows.add_metric([*group, str(worker)], record[_ROWS])
        yield from (sequence, age, refused, rows)


def _text(error: GraphboxError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
