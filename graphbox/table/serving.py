"""Tables that answer lookups alone, and take up deltas while they do."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import FormatError, NotFoundError, UsageError
from graphbox.native import Int64Array, thread_count
from graphbox.table.arguments import Float32Array, budget_bytes, chosen
from graphbox.table.checkpoint import check_chain, check_settings, make_table, read_chain
from graphbox.table.checkpoint_files import CONTENTS, native_parts
from graphbox.table.manifest import Chain, Manifest, ServingValues, read_manifest
from graphbox.table.policy import TablePolicies
from graphbox.table.rows import TableRows
from graphbox.table.table import EmbeddingTable

if TYPE_CHECKING:
    import torch

Unknown: TypeAlias = Literal["initial", "zeros"]


class ServingTable:
    """The rows of a checkpoint, for lookups; deltas are applied in their order while lookups go on.

    It takes checkpoints of whole rows and those for serving (``save_base(path, serving=...)``), and keeps
    values alone. Safe to use from several threads.

    Made by :meth:`open`.
    """

    def __init__(self, rows: TableRows, base: Manifest, unknown: Unknown) -> None:
        self._rows = rows
        self._base = base
        self._unknown = unknown
        self._place: Chain | None = None
        self._applying = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        deltas: Iterable[str | os.PathLike[str]] = (),
        unknown: Unknown = "initial",
        dtype: ServingValues = "float32",
        memory_bytes: int | None = None,
        threads: int | None = None,
    ) -> ServingTable:
        """Return the table of a checkpoint.

        Args:
            path: of a base or full checkpoint.
            deltas: those after the base, all in their order.
            unknown: what :meth:`pull` gives for keys without a row: the values that a new row would start
                with when training (``initial``), or zeros.
            dtype: how values are kept in memory, whatever they are on disk; ``int8`` takes a quarter of
                ``float32``, as deltas of int8 do.
            memory_bytes: the most memory the table may take; None: no limit.
            threads: see :func:`graphbox.native.thread_count`.

        Raises:
            NotFoundError: no such checkpoint.
            FormatError: it is damaged, no checkpoint, or of another version.
            ConflictError: deltas of another base, or not all in their order.
            UsageError: a delta without a base, or a wrong argument.
            DataError: NaN or infinity in a row that is to be kept as int8.
            DoesNotFitError: the rows exceed ``memory_bytes``.
        """
        chosen(unknown, "unknown", Unknown)
        folders = (Path(path), *(Path(delta) for delta in deltas))
        while True:
            manifests = read_chain(folders)
            table = cls(
                _empty_rows(manifests[0], folders[0], unknown, dtype, memory_bytes, threads),
                manifests[0],
                unknown,
            )
            try:
                for folder, manifest in zip(folders, manifests, strict=True):
                    table._take_up(folder, manifest)
            except (FormatError, NotFoundError):
                # A checkpoint that was replaced meanwhile: what replaced it is opened instead.
                if [manifest.digest for manifest in read_chain(folders)] == [
                    each.digest for each in manifests
                ]:
                    raise
            else:
                return table

    def __repr__(self) -> str:
        place = f"base={self.base[:12]!r}, sequence={self.sequence}"
        return f"ServingTable(rows={len(self)}, dim={self.dim}, {place})"

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self._rows.dim

    @property
    def nbytes(self) -> int:
        """Memory of rows and index in bytes."""
        return self._rows.nbytes

    @property
    def base(self) -> str:
        """Digest of the base: tables with the same base and sequence have the same rows."""
        return self._base.digest

    @property
    def sequence(self) -> int:
        """Number of deltas that were applied."""
        return 0 if self._place is None else self._place.sequence - 1

    @overload
    def pull(self, keys: torch.Tensor, out: torch.Tensor | None = ...) -> torch.Tensor: ...

    @overload
    def pull(self, keys: npt.ArrayLike, out: Float32Array | None = ...) -> Float32Array: ...

    def pull(self, keys: Any, out: Any = None) -> Any:
        """Return the rows of ``keys``; nothing is created.

        Args:
            keys: integers of any shape.
            out: float32 [*keys.shape, dim], contiguous, to write into instead of new memory.

        Returns:
            float32 [*keys.shape, dim]: ``out`` when given; a torch tensor when ``keys`` is one. For unknown
            keys, what ``unknown`` says.

        Raises:
            UsageError: keys that are no integers, or ``out`` of another shape or dtype.
        """
        return self._rows.pull(keys, out, create=False)

    def contains(self, keys: Any) -> npt.NDArray[np.bool_]:
        """Return whether each key has a row: bool [*keys.shape]."""
        return self._rows.contains(keys)

    def keys(self) -> Int64Array:
        """Return all keys, int64 [len]."""
        return self._rows.keys()

    def apply(self, path: str | os.PathLike[str]) -> None:
        """Apply the next delta.

        All of it is verified before the first row changes. Then rows change one after another while lookups
        go on: each row is the old one or the new one, a lookup meanwhile may see some of either.

        Raises:
            ConflictError: a delta of another base, one that was applied before, or one that comes too early;
                the table stays as it was, and the message says what is wanted.
            FormatError: the delta is damaged; the table stays as it was.
            UsageError: no delta, or the table was opened from a full checkpoint, which none can follow.
            DataError: NaN or infinity in a row that is to be kept as int8; the table stays as it was.
            DoesNotFitError: new rows would exceed ``memory_bytes``; the table stays as it was.
        """
        folder = Path(path)
        with self._applying:
            manifest = read_manifest(folder)
            if self._place is None:
                raise UsageError(
                    "expected a table opened from a base, this one was opened from a full checkpoint",
                    where=str(folder),
                    hint="save_base() writes a base, and save_delta() what follows it",
                )
            check_chain(self._place, manifest, folder)
            check_settings(self._base, manifest, folder)
            self._take_up(folder, manifest)

    def _take_up(self, folder: Path, manifest: Manifest) -> None:
        source = make_table(EmbeddingTable, manifest, folder)
        records = source._current.part_records(CONTENTS[manifest.contents])
        parts = native_parts(folder, manifest)
        self._rows._current.apply_values(str(folder), parts, records, self._rows.threads)
        self._place = None if manifest.kind == "full" else manifest.after()


def _empty_rows(
    base: Manifest,
    folder: Path,
    unknown: Unknown,
    dtype: ServingValues,
    memory_bytes: int | None,
    threads: int | None,
) -> TableRows:
    """Return rows without optimizer state, whose initial values are those of the base's table."""
    source = make_table(EmbeddingTable, base, folder)
    optimizer = EmbeddingTable(source.dim, "sgd")._current.optimizer  # which has no state
    policies = TablePolicies()
    native = _core.Table(
        source.dim,
        dtype=chosen(dtype, "dtype", ServingValues),
        optimizer=optimizer,
        init_scale=source._current.init_scale if unknown == "initial" else 0.0,
        seed=source.seed,
        memory_bytes=budget_bytes(memory_bytes),
        skip_nonfinite=False,
        policies=policies.to_core(),
    )
    return TableRows(native, policies, time.time, thread_count(threads))
