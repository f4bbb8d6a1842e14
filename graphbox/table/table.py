"""The embedding table: how one is made, and where its rows are kept: in memory, on SSD, in checkpoints."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import Int64Array, integer_array, seed_number, thread_count
from graphbox.table.arguments import (
    DEFAULT_BETAS,
    DType,
    Float32Array,
    Nonfinite,
    Optimizer,
    budget_bytes,
    chosen,
    integer,
    nonnegative,
    number_pair,
    positive_or_infinite,
    refuse_unused,
    shard_numbers,
)
from graphbox.table.catalogue_contents import FolderContents
from graphbox.table.checkpoint import SavedRows, load_table, save_table
from graphbox.table.checkpoint_files import ChainName
from graphbox.table.chunks import chunks_of
from graphbox.table.manifest import Chain, ServingValues
from graphbox.table.policy import (
    Admission,
    Eviction,
    Expiry,
    ShowClickScore,
    TablePolicies,
)
from graphbox.table.reference import check_reference, reference
from graphbox.table.rows import ClosedTable, TableRows
from graphbox.table.settings import check_same_settings, table_arguments, table_settings
from graphbox.table.statistics import TableStatistics
from graphbox.table.tier import (
    OWNED_TABLES,
    Prefetch,
    Recovery,
    TableFolder,
    TierStatistics,
    left_to_parent,
    statistics_of,
)

if TYPE_CHECKING:
    import torch

    from graphbox.table.gradients import Gradient
    from graphbox.table.key_bags import KeyBags
    from graphbox.table.lookup import RowLookup

_MOST_VALUES = 65536


class EmbeddingTable(TableRows):
    """Rows for any int64 keys, with their optimizer state; it grows as keys come.

    A row starts with values that are a function of ``seed`` and its key alone. ``push`` sums the gradients of
    equal keys and applies them once: 256 in the order of the batch, then the next 256, then these sums. So
    results are the same, bit by bit, for any number of threads and after ``save`` and ``load``. Safe to use
    from several threads.

    Arrays come as NumPy's, torch's, or anything else's that has ``__dlpack__``. Rows come back as float32: in
    ``out`` where it is given, as a torch tensor where keys are one, otherwise as a NumPy array.

    Optimizers:
        ``sgd``.
        ``adagrad`` (Duchi et al., JMLR 2011, diagonal form).
        ``rowwise_adagrad``: one state for a row, which gains the mean of the squared gradient.
        ``adam`` (Kingma and Ba, ICLR 2015). Each row counts its own steps, so a key that comes late starts as
        an early one did; ``torch.optim.SparseAdam`` counts those of the whole table.
        ``rowwise_adam``: one second moment for a row, of the mean of the squared gradient.
        ``ftrl``: FTRL-Proximal (McMahan et al., KDD 2013, algorithm 1); values become exactly 0 with ``l1``.

    Args:
        dim: values of a row, 1 to 65,536.
        optimizer: its name.
        lr: learning rate, can be changed later.
        eps: added to the root that Adagrad and Adam divide by. Where an argument is of some optimizers only,
            others refuse it.
        init_scale: new values are uniform in [-init_scale, init_scale). None: 1 / sqrt(dim).
        initial_accumulator: state of a new row in both Adagrads and FTRL.
        betas: how much the moments of Adam keep of themselves.
        beta: smoothing of the learning rate in FTRL.
        l1: strength of FTRL's lasso penalty.
        l2: strength of FTRL's ridge penalty.
        weight_decay: this times the value is added to its gradient, whenever the row is pushed.
        decoupled_weight_decay: values shrink by ``lr * weight_decay`` instead (AdamW; Loshchilov and Hutter,
            ICLR 2019); not with FTRL.
        bounds: least and largest value, kept after each update. None: any.
        mean_gradient: average the gradients of equal keys instead of summing them.
        clip_norm: shorten the gradient of a row, those of equal keys summed, to this Euclidean norm where it
            is longer. None: any length.
        clip_value: hold each value of that gradient between -clip_value and clip_value, after ``clip_norm``
            (what FBGEMM calls ``max_gradient``). None: any.
        nonfinite: what to do with a gradient that holds NaN or infinity. ``refuse``: the push raises and
            applies nothing. ``skip``: that position of the batch is left out, and counted in
            :attr:`skipped_gradients`.
        dtype: how rows keep their values. ``float16`` takes half the memory: updates are computed in float32
            and rounded stochastically, up or down with odds that make the mean right, so that small steps are
            not lost (Gupta et al., ICML 2015). Which way follows from ``seed``, key and the row's number of
            updates. Values beyond 65,504 become that; state is float32 always.
        seed: of the initial values, and of how float16 values are rounded.
        memory_bytes: the most memory the table may take; None: no limit. An operation that would exceed it
            changes nothing, unless rows may leave for it (``eviction``).
        path: a folder on SSD for rows that find no room in memory, in segments
            (docs/formats/table-segments.md). :meth:`flush` makes it hold the whole table. A folder that holds
            a table is opened, as :meth:`open` does, if the other arguments are those it was made with; only
            ``lr`` may differ, and then changes. None: all rows stay in memory. Not with ``eviction``;
            ``admission`` by count counts in a sketch.
        admission: which keys get a row. None: all that are pulled or pushed. A key that is not admitted has
            its initial values, and what is pushed to it is dropped; :attr:`policy_events` counts both.
        expiry: which rows :meth:`shrink` drops because they were not seen for long. None: none.
        score: what rows are worth; :meth:`shrink` drops those worth little. None: nothing is counted.
        eviction: which rows leave when ``memory_bytes``, which it needs, is used up and others need room:
            those that no pull or push has looked up lately (``clock``), or a sixteenth of all at once, of the
            lowest ``score``. Their keys start anew if they come back. None: none leaves, what does not fit is
            refused.
        clock: tells the time in seconds since 1970, for ``expiry``.
        threads: None: see :func:`graphbox.native.thread_count`.

    Raises:
        UsageError: a wrong argument, or something else in the folder.
        ConflictError: another process has the folder open, or the table in it has other settings.
        FormatError: the table in the folder is damaged.
        DoesNotFitError: ``memory_bytes`` has no room even for an empty table.
    """

    def __init__(
        self,
        dim: int,
        optimizer: Optimizer = "rowwise_adagrad",
        lr: float = 0.05,
        *,
        eps: float = 1e-8,
        init_scale: float | None = None,
        initial_accumulator: float = 0.0,
        betas: tuple[float, float] = DEFAULT_BETAS,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        bounds: tuple[float, float] | None = None,
        mean_gradient: bool = False,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        nonfinite: Nonfinite = "refuse",
        dtype: DType = "float32",
        seed: int = 0,
        memory_bytes: int | None = None,
        path: str | os.PathLike[str] | None = None,
        admission: Admission | None = None,
        expiry: Expiry | None = None,
        score: ShowClickScore | None = None,
        eviction: Eviction | None = None,
        clock: Callable[[], float] = time.time,
        threads: int | None = None,
    ) -> None:
        policies = TablePolicies(admission, expiry, score, eviction)
        policies.check_place(has_budget=memory_bytes is not None, has_folder=path is not None)
        name = chosen(optimizer, "optimizer", Optimizer)
        refuse_unused(
            name, eps=eps, initial_accumulator=initial_accumulator, betas=betas, beta=beta, l1=l1, l2=l2
        )
        settings = _core.OptimizerConfig(
            name,
            lr=nonnegative(lr, "lr"),
            eps=nonnegative(eps, "eps"),
            initial_accumulator=nonnegative(initial_accumulator, "initial_accumulator"),
            betas=number_pair(betas, "betas"),
            beta=nonnegative(beta, "beta"),
            l1=nonnegative(l1, "l1"),
            l2=nonnegative(l2, "l2"),
            weight_decay=nonnegative(weight_decay, "weight_decay"),
            decoupled_weight_decay=bool(decoupled_weight_decay),
            bounds=(-math.inf, math.inf) if bounds is None else number_pair(bounds, "bounds"),
            clip_norm=positive_or_infinite(clip_norm, "clip_norm"),
            clip_value=positive_or_infinite(clip_value, "clip_value"),
            mean_gradient=bool(mean_gradient),
        )
        values = integer(dim, "dim", 1, _MOST_VALUES)
        native = _core.Table(
            values,
            dtype=chosen(dtype, "dtype", DType),
            optimizer=settings,
            init_scale=1 / math.sqrt(values) if init_scale is None else nonnegative(init_scale, "init_scale"),
            seed=seed_number(seed),
            memory_bytes=budget_bytes(memory_bytes),
            skip_nonfinite=chosen(nonfinite, "nonfinite", Nonfinite) == "skip",
            policies=policies.to_core(),
        )
        super().__init__(native, policies, clock, thread_count(threads))
        self._saving = threading.Lock()
        self._chains: dict[ChainName, Chain] = {}
        self._saved: SavedRows | None = None
        # After the table, which removes its files: so they go before the folder's lock does.
        self._folder: TableFolder | None = None
        if path is not None:
            self._live_in(Path(path))

    def __repr__(self) -> str:
        if isinstance(self._held, ClosedTable):
            return f"EmbeddingTable(closed, path={str(self._held.folder)!r})"
        place = "" if self.path is None else f", path={str(self.path)!r}"
        return (
            f"EmbeddingTable(rows={len(self)}, dim={self.dim}, optimizer={self.optimizer!r}, "
            f"lr={self.lr:g}{place})"
        )

    def __reduce__(self) -> Never:
        raise UsageError(
            "a table can be neither copied nor pickled",
            hint="save it with save(path), and load that with EmbeddingTable.load(path) where it is wanted",
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        memory_bytes: int | None = None,
        threads: int | None = None,
    ) -> EmbeddingTable:
        """Open a table's folder: the table is as it was at the last :meth:`flush`, with its settings.

        ``EmbeddingTable(..., path=path)`` opens it, too, or makes a new table where there is none.

        Files of a process that ended later are removed. Where the catalogue of the folder is damaged, it is
        made anew from the segments; :attr:`recovery` says so.

        Args:
            path: what was given to ``EmbeddingTable(path=...)``.
            memory_bytes: as there; may differ from what it was.
            threads: as there.

        Raises:
            NotFoundError: there is no table.
            ConflictError: another process has it open.
            FormatError: a segment is missing or damaged, or the catalogue is that of something else.
            DoesNotFitError: ``memory_bytes`` has no room for the index and some rows.
        """
        folder, contents = TableFolder.opened(Path(path))
        try:
            table = cls(
                **table_arguments(contents.settings, Path(path)), memory_bytes=memory_bytes, threads=threads
            )
        except BaseException:
            folder.close()
            raise
        try:
            folder.attach(table, contents)
            table._own(folder)
        except BaseException:
            folder.let_go(table)
            raise
        return table

    @property
    def path(self) -> Path | None:
        """Folder of the rows that are on SSD, or None."""
        return None if self._folder is None else self._folder.path

    @property
    def recovery(self) -> Recovery | None:
        """Repairs that :meth:`open` made; None for a table without a folder."""
        return None if self._folder is None else self._folder.recovery

    def flush(self) -> None:
        """Make the folder hold the table as it is now, durably and at once: :meth:`open` opens this.

        Pulls and pushes go on between parts of it.

        Raises:
            UsageError: a table without a folder.
            DoesNotFitError: the disk is full. The table can still be used, and what was flushed before stays.
            GraphboxError: the system refuses to write.
        """
        self._tiered("flush", "save it with save()").flush(self, table_settings(self))

    def close(self) -> None:
        """Flush, and let others open the folder; what is being prefetched stops.

        A table without a folder has nothing to close.

        Raises:
            DoesNotFitError: the disk is full; the table stays open.
            GraphboxError: the system refuses to write; the table stays open.
        """
        folder = self._folder
        if folder is None:
            return
        with folder.closing:
            folder.stop_prefetches()
            # An interrupted one is resumed; one that another thread has done is not done again.
            if not isinstance(self._held, ClosedTable):
                if self._upper is not None:
                    self._upper.close()
                self.flush()
                folder.leaving = self._native
                self._held = ClosedTable(folder.path)
            folder.close()
            self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prefetch(self, keys: Any) -> Prefetch:
        """Begin to read rows of ``keys`` that are on SSD into memory, while others go on.

        For the keys of the next pass while this one trains: rows of the keys of the last two calls stay in
        memory while there are others that can leave. It stops when there is no more room. Keys without a row
        get none.

        Args:
            keys: integers of any shape; repetitions do no harm.

        Returns:
            A handle: its ``wait()`` says how many rows are in memory.

        Raises:
            UsageError: a table without a folder, or keys that are no integers.
        """
        folder = self._tiered("prefetch", "its rows are always in memory")
        wanted = integer_array(keys, "keys", dimensions=None).reshape(-1)
        prefetch = Prefetch(wanted, self.threads)
        folder.start(prefetch, self)
        return prefetch

    def statistics(self) -> TableStatistics:
        """Return all figures of the table: rows, memory, what policies did, and where rows on SSD are."""
        tier = None if self._folder is None else statistics_of(self)
        memory = self.nbytes, self.memory_bytes
        return TableStatistics(
            len(self), *memory, self.passes, self.skipped_gradients, self.policy_events, tier
        )

    def tier_statistics(self) -> TierStatistics:
        """Return where rows are, and what moved.

        Raises:
            UsageError: a table without a folder.
        """
        self._tiered("tier_statistics", "its rows are always in memory")
        return statistics_of(self)

    def purge(self) -> int:
        """Rewrite the segments that still hold rows of erased keys, flush, and remove the old ones.

        After :meth:`erase` a key's row is not found any more, but its bytes lie in segments until those are
        rewritten. This does so now.

        Returns:
            How many segments were rewritten.

        Raises:
            UsageError: a table without a folder.
            DoesNotFitError: the disk is full.
            GraphboxError: the system refuses to write.
        """
        folder = self._tiered("purge", "erased rows are gone at once")
        rewritten = _core.table_purge(self._current)
        folder.flush(self, table_settings(self))
        return rewritten

    def _live_in(self, path: Path) -> None:
        """Keep rows in a folder: those of the table that is there, if it has the same settings."""
        settings = table_settings(self)
        if not TableFolder.holds_table(path):
            folder = TableFolder.created(path)
            try:
                folder.attach(self, FolderContents(settings))
                self._own(folder)
            except BaseException:
                folder.discard(self._native)
                raise
        else:
            folder, contents = TableFolder.opened(path)
            try:
                check_same_settings(settings, contents.settings, path)
                folder.attach(self, replace(contents, settings=settings))
                self._own(folder)
            except BaseException:
                folder.let_go(self)
                raise

    def _own(self, folder: TableFolder) -> None:
        self._folder = folder
        OWNED_TABLES.add(self)

    def _leave_to_parent(self) -> None:
        """Do without the folder: this process was forked from the one that has it open."""
        if self._folder is not None:
            self._held = left_to_parent(self._held, self._folder)
            self._folder = self._upper = None

    def _tiered(self, operation: str, otherwise: str) -> TableFolder:
        """Return the folder of a table that is open."""
        folder = self._folder
        if isinstance(self._held, ClosedTable):
            raise self._held.error()
        if folder is None:
            raise UsageError(
                f"{operation}() is for a table with rows on SSD, this one has no folder",
                where="path",
                hint=f"{otherwise}; or make the table with path=",
            )
        return folder

    # --- For torch modules

    @property
    def is_collective(self) -> bool:
        """Never: it is a table of this process alone."""
        return False

    def learn(self, gradients: Sequence[Gradient]) -> None:
        """Apply the gradients of lookups, in their order, as one push."""
        from graphbox.table.gradients import joined_gradient

        given = joined_gradient(gradients)
        self._current.push_bags(
            given.rows, given.offsets, given.weights, given.divisors, given.values, self.threads
        )

    def lookup_keys(self, keys: torch.Tensor, name: str) -> torch.Tensor:
        """Return keys of a module's lookup as it is done here: int64 in host memory.

        Raises:
            UsageError: they are no integers.
        """
        import torch

        return torch.from_numpy(integer_array(keys, name, dimensions=None))

    def lookup(self, keys: torch.Tensor, bags: KeyBags | None = None) -> RowLookup:
        """Return what pulls the rows of keys, or the sums of bags, and makes gradients of their rows."""
        from graphbox.table.lookup import Lookup

        return Lookup(self, keys, bags)

    def reference(self) -> dict[str, Any]:
        """Return what a ``state_dict`` holds of the table, plain values: which checkpoint has its rows."""
        return reference(self)

    def check_reference(self, state: object) -> None:
        """Compare the table with the one that returned a :meth:`reference`.

        Warns where that cannot be told, because the rows were in no checkpoint then.

        Raises:
            UsageError: what is no reference, or one to a table of another shape.
            ConflictError: the rows are others.
        """
        check_reference(self, state)

    # --- As a whole

    def items(self, *, chunk_rows: int = 65_536) -> Iterator[tuple[Int64Array, Float32Array]]:
        """Go through the table: keys and their rows, a chunk at a time.

        The table is free for other work between chunks, and each chunk is of one moment. A key that is in the
        table from the first chunk to the last is given exactly once, with its row as it was when its chunk
        was made. One that comes meanwhile may be given or not, one that is erased and comes back even twice.

        Args:
            chunk_rows: the most rows of a chunk; the last one has fewer.

        Yields:
            Keys, int64 [n], and rows, float32 [n, dim].

        Raises:
            UsageError: ``chunk_rows`` below 1.
        """
        return chunks_of(self, integer(chunk_rows, "chunk_rows", 1, 2**31))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, a folder with everything: rows, state and settings.

        A reader sees the old checkpoint or the new one, whatever happens. Of a table in memory, pulls of
        known keys go on meanwhile, and changes wait. One with rows on SSD writes the rows that changed to its
        own segments, as :meth:`flush` does, and links segments into the checkpoint: all goes on, and the
        checkpoint holds the table as of a moment in between. Besides the table, saving takes 4 MiB for each
        thread and for two more (12 MiB where segments must be copied). The format: docs/formats/table.md.

        Args:
            path: of the folder; a checkpoint that is there is replaced in one step.

        Raises:
            NotFoundError: the folder around it does not exist.
            ConflictError: something else is at ``path``, or the file system cannot replace folders.
            DoesNotFitError: the disk is full.
            GraphboxError: the system refuses to write.
        """
        save_table(self, Path(path), "full")

    def save_base(self, path: str | os.PathLike[str], *, serving: ServingValues | None = None) -> None:
        """Write a checkpoint that :meth:`save_delta` continues: from now on the table notes what changes.

        The note takes two bits for each row in memory and 8 bytes for each key that the table had and that
        was erased, within ``memory_bytes``; with admission by count a bit for each byte of the sketch.

        Args:
            path: see :meth:`save`.
            serving: values alone, as this type, for :class:`graphbox.table.ServingTable`: a chain of its own
                beside that of whole rows. ``float16`` is rounded to the nearest; ``int8`` is a scale for each
                row and values in 127ths of its largest one.

        Raises:
            DataError: NaN or infinity in a row that is to be saved as float16 or int8.
            GraphboxError: see :meth:`save`.
        """
        save_table(self, Path(path), "base", serving)

    def save_delta(self, path: str | os.PathLike[str], *, serving: ServingValues | None = None) -> None:
        """Write the rows that changed and the keys that were erased since the last base or delta.

        A delta that could not be written changes nothing: the next one has its rows too.

        Args:
            path: see :meth:`save`.
            serving: continue the chain for serving; another type than that of the base is fine.

        Raises:
            UsageError: no base was saved or loaded.
            ConflictError: a delta for training would replace its base or a delta before it.
            DoesNotFitError: the disk is full; or the erased keys had no room in ``memory_bytes``: save a
                base.
            GraphboxError: see :meth:`save_base`.
        """
        save_table(self, Path(path), "delta", serving)

    @classmethod
    def load(
        cls,
        checkpoint: str | os.PathLike[str],
        *,
        deltas: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        memory_bytes: int | None = None,
        path: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        shard: tuple[int, int] = (0, 1),
    ) -> EmbeddingTable:
        """Return the table of a checkpoint; it goes on as the saved one would have, bit by bit.

        After a base, with or without deltas, :meth:`save_delta` continues the chain.

        Args:
            checkpoint: a full checkpoint or a base.
            deltas: that or those after the base, all in their order.
            memory_bytes: of the table, see :class:`EmbeddingTable`. None: no limit, so that none of its rows
                is evicted.
            path: a new or empty folder for rows that find no room in memory. These go there then, also where
                the saved table evicted them.
            threads: of the table, and of loading.
            shard: (i, n): only the keys whose :func:`graphbox.table.shard_of` among n is i.

        Raises:
            NotFoundError: no such checkpoint.
            FormatError: it is damaged, no checkpoint, or of another version.
            ConflictError: deltas of another base, or not all in their order.
            UsageError: a delta without a base, a checkpoint for serving, or a wrong shard.
            DoesNotFitError: the table exceeds ``memory_bytes``.
        """
        return load_table(
            cls,
            Path(checkpoint),
            [Path(deltas)] if isinstance(deltas, str | os.PathLike) else [Path(delta) for delta in deltas],
            shard_numbers(shard),
            threads,
            memory_bytes=memory_bytes,
            path=None if path is None else Path(path),
        )
