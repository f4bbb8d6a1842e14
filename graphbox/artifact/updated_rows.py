"""Rows of an open model version with row updates: stored rows are shared, changed ones lie beside them.

Everything here is immutable. Applying an update makes new objects, so a call that began before it sees the
rows before it, and a call after it sees all of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.artifact.ids import Id, Ids
from graphbox.artifact.links import Links
from graphbox.artifact.manifest import Manifest
from graphbox.artifact.preprocess import (
    FieldsForm,
    LookupForm,
    PaddedBlockForm,
    Preprocess,
    TriplesForm,
)
from graphbox.artifact.reader import Artifact
from graphbox.artifact.row_updates import RowUpdate, TableRows, UpdateManifest, VersionPoint
from graphbox.artifact.rows import RowTable
from graphbox.errors import DoesNotFitError, FormatError, InvalidRequestError, UnsupportedError
from graphbox.id_index import build_index, find_ids
from graphbox.rows import Float32, Indices, Int64, StoredRows

__all__ = ["UpdatedArtifact", "UpdatedIds", "UpdatedRows", "UpdatedTable", "takes_new_ids"]

_NO_PLACES: Final[Int64] = np.empty(0, np.int64)


def takes_new_ids(form: Preprocess, node_type: str) -> bool:
    """Return whether a row update may add ids of a node type.

    An encoder knows the neighbours of the nodes it was exported with alone, but takes new candidates of a
    type that its network does not read; the relations of a knowledge graph are part of the model.
    """
    if isinstance(form, TriplesForm):
        return node_type != form.relation_type
    if isinstance(form, PaddedBlockForm):
        read = {end for group in form.groups for end in (group.source, group.target)}
        return node_type not in {form.node_type, *form.rows, *read}
    return isinstance(form, LookupForm | FieldsForm)


class UpdatedIds(Ids):
    """Original ids of a node type, and those that row updates have added behind them.

    Args:
        base: ids of the model version.
        added: large_string or int64, as those of ``base``, with no id of ``base``.

    Raises:
        FormatError: an added id occurs twice.
    """

    def __init__(self, base: Ids, added: pa.Array) -> None:
        self.node_type = base.node_type
        self.kind = base.kind
        self._base = base
        self._added = Ids(added, base.node_type)

    def extended(self, added: pa.Array) -> UpdatedIds:
        """Return these ids with further ones behind them."""
        return UpdatedIds(self._base, pa.concat_arrays([self._added.to_arrow(), added]))

    def __len__(self) -> int:
        return len(self._base) + len(self._added)

    def __getitem__(self, index: int) -> Id:
        first = len(self._base)
        return self._base[index] if index < first else self._added[index - first]

    def __iter__(self) -> Iterator[Id]:
        yield from self._base
        yield from self._added

    def take(self, indices: npt.ArrayLike) -> list[Id]:
        """Return the ids at ``indices``; see `Ids.take`."""
        wanted, first = np.asarray(indices, np.int64), len(self._base)
        if wanted.ndim != 1 or not wanted.size or wanted.max() < first:
            return self._base.take(wanted)
        if wanted.min() < 0 or wanted.max() >= len(self):
            raise InvalidRequestError(
                f"expected indices of a {self.node_type} in [0, {len(self)}), received "
                f"{wanted.min()} to {wanted.max()}"
            )
        return [self[index] for index in wanted.tolist()]

    def to_arrow(self) -> pa.Array:
        """Return all ids as an Arrow array of type large_string or int64."""
        return pa.concat_arrays([self._base.to_arrow(), self._added.to_arrow()])

    def take_arrow(self, indices: Int64) -> pa.Array:
        """Return the ids at ascending ``indices``; see `Ids.take_arrow`."""
        first = len(self._base)
        split = int(np.searchsorted(indices, first))
        added = self._added.take_arrow(indices[split:] - first)
        return pa.concat_arrays([self._base.take_arrow(indices[:split]), added])

    def suggest(self, value: Id) -> str | None:
        """Return ``did you mean `x`?`` for the closest id, or None when nothing is close."""
        return self._base.suggest(value) or self._added.suggest(value)

    def with_prefix(self, prefix: str, limit: int) -> Int64:
        """Return the indices of at most ``limit`` ids that start with ``prefix``, shortest first."""
        added = self._added.with_prefix(prefix, limit) + len(self._base)
        found = np.concatenate([self._base.with_prefix(prefix, limit), added])
        texts = [str(each) for each in self.take(found)]
        order = sorted(range(len(found)), key=lambda place: (len(texts[place]), texts[place]))
        return found[np.array(order[:limit], np.int64)]

    def _found_buffers(self, asked: Any, valid: npt.NDArray[np.uint8] | None = None) -> Int64:
        found = self._base._found_buffers(asked, valid)
        if found.min(initial=0) < 0:
            added = self._added._found_buffers(asked, valid)
            np.copyto(found, added + len(self._base), where=(found < 0) & (added >= 0))
        return found


@dataclass(frozen=True, eq=False)
class ChangedRows:
    """Rows of a table that row updates have set.

    Attributes:
        nodes: int64 [m], distinct: node indices, those of added ids among them.
        rows: float32 [m, dim].
    """

    nodes: Int64
    rows: Float32

    @cached_property
    def _index(self) -> Any:
        return build_index(pa.array(self.nodes), threads=1)[0]

    def places(self, nodes: Int64) -> Int64:
        """Return the place of each node among ``nodes``, int64 [n]; -1: its row is not changed."""
        return find_ids(self._index, (self.nodes, None), (nodes, None), None, threads=1)

    def merged(self, nodes: Int64, rows: Float32) -> ChangedRows:
        """Return these rows with later ones.

        Args:
            nodes: int64 [n]; of one that repeats the last row counts.
            rows: float32 [n, dim].
        """
        reversed_first = np.unique(nodes[::-1], return_index=True)[1]
        last = np.sort(len(nodes) - 1 - reversed_first)
        nodes, rows = nodes[last], rows[last]
        places = self.places(nodes) if len(self.nodes) else np.full(len(nodes), -1, np.int64)
        is_new = places < 0
        before, added = len(self.nodes), int(np.count_nonzero(is_new))
        merged = np.empty((before + added, rows.shape[1]), np.float32)
        merged[:before] = self.rows
        merged[places[~is_new]] = rows[~is_new]
        merged[before:] = rows[is_new]
        found = ChangedRows(np.concatenate([self.nodes, nodes[is_new]]), merged)
        _ = found._index  # now, and not in a request
        return found


class UpdatedTable(RowTable):
    """A table with changed and added rows; see `StoredRows`. The stored rows are shared and stay as they are.

    Args:
        base: the table as it is stored.
        ids: of its rows, added ones behind those of ``base``.
        changed: rows that are read instead of, or beyond, those of ``base``.

    Attributes:
        base: the table as it is stored.
        changed: changed and added rows.
    """

    def __init__(self, base: RowTable, ids: Ids, changed: ChangedRows) -> None:
        self.base = base
        self.ids = ids
        self.changed = changed
        self.dim = base.dim
        self.codec = base.codec
        self.nbytes = base.nbytes + changed.rows.nbytes
        self._noun = ids.node_type

    def __len__(self) -> int:
        return len(self.ids)

    def rows(
        self, indices: Indices, out: Float32 | None = None, default_row: Float32 | None = None
    ) -> Float32:
        """Return the rows at ``indices`` as float32; see `StoredRows.rows`."""
        given = np.asarray(indices)
        if not given.size or given.ndim != 1 or given.dtype.kind not in "iu":
            return self.base.rows(given, out, default_row)
        wanted = np.ascontiguousarray(given, np.int64)
        places = self.changed.places(wanted)
        is_changed = places >= 0
        if not is_changed.any():
            return self._stored(wanted, out, default_row)
        found = np.empty((len(wanted), self.dim), np.float32) if out is None else out
        if not is_changed.all():
            # Any row will do for those that are written below.
            self._stored(np.where(is_changed, 0 if default_row is None else -1, wanted), found, default_row)
        found[is_changed] = self.changed.rows[places[is_changed]]
        return found

    def _stored(self, indices: Int64, out: Float32 | None, default_row: Float32 | None) -> Float32:
        """Return rows that no update has changed; an index beyond the stored rows is outside."""
        try:
            return self.base.rows(indices, out, default_row)
        except InvalidRequestError:
            lowest = 0 if default_row is None else -1
            outside = indices[(indices < lowest) | (indices >= len(self.base))]
            if not len(outside):
                raise
            raise self._outside(outside[0]) from None

    def block(self, start: int, stop: int, out: Float32 | None = None) -> Float32:
        """Return rows ``start`` to ``stop`` (cut off at ``n``) as float32, copied; see `StoredRows.block`."""
        count = max(0, min(stop, len(self)) - start)
        block = np.empty((count, self.dim), np.float32) if out is None else out[:count]
        stored = min(count, max(0, len(self.base) - start))
        if stored:
            block[:stored] = self.base.block(start, start + stored)
        nodes, order = self._ascending
        part = slice(*np.searchsorted(nodes, [start, start + count]))
        block[nodes[part] - start] = self.changed.rows[order[part]]
        return block

    def sums(self, indices: Int64, offsets: Int64, weights: Float32) -> Float32:
        """Return the weighted sum of the rows of each bag; see `StoredRows.sums`."""
        if not (self.changed.places(indices) >= 0).any():
            return self.base.sums(indices, offsets, weights)
        # Gathered, so that each bag is added in its order: the same bits as of a table with these rows.
        gathered = self.rows(indices, default_row=np.zeros(self.dim, np.float32))
        places = np.where(indices < 0, -1, np.arange(len(indices)))
        return StoredRows.of_float32(gathered).sums(places, offsets, weights)

    def best(self, queries: Float32, k: int, lengths: Float32 | None = None) -> tuple[Int64, Float32]:
        """Return the ``k`` rows with the largest inner products; see `StoredRows.best`.

        All rows are decoded at once: `graphbox.deploy.nearest` ranks changed rows beside the stored ones.
        """
        return StoredRows.of_float32(self.block(0, len(self))).best(queries, k, lengths)

    @cached_property
    def _ascending(self) -> tuple[Int64, Int64]:
        """Changed nodes in ascending order, and their places."""
        order = np.argsort(self.changed.nodes, kind="stable")
        return self.changed.nodes[order], order


class UpdatedArtifact(Artifact):
    """An open model version whose tables and ids have row updates applied.

    Args:
        base: the model version; tables and ids that no update changes are its own.
        tables: changed tables by name.
        ids: changed ids by node type.
    """

    def __init__(self, base: Artifact, tables: Mapping[str, UpdatedTable], ids: Mapping[str, Ids]) -> None:
        # The parts of a version that no update changes (links, neighbours, ...) are read once, by the base.
        self.__dict__.update(base.__dict__)
        self._base = base
        self._updated_tables = tables
        self._updated_ids = ids

    def table(self, name: str) -> RowTable:
        """Return one table of rows; see `Artifact.table`."""
        found = self._updated_tables.get(name)
        return self._base.table(name) if found is None else found

    def ids(self, node_type: str) -> Ids:
        """Return the original ids of one node type; see `Artifact.ids`."""
        found = self._updated_ids.get(node_type)
        return self._base.ids(node_type) if found is None else found

    @cached_property
    def links(self) -> Links:
        """The known links of the training graph; see `Artifact.links`."""
        return self._base.links


@dataclass(frozen=True, eq=False)
class UpdatedRows:
    """The rows of an open model version after some row updates; `UpdatedRows.of` begins with none.

    Attributes:
        base: the model version as it was opened.
        point: the state: number and digest of the last update.
        last: description of the last update; None: none was applied.
        tables: changed tables by name.
        ids: ids with added ones, by node type.
        applied_rows: rows of the updates that the last `apply` took.
    """

    base: Artifact
    point: VersionPoint
    last: UpdateManifest | None = None
    tables: Mapping[str, UpdatedTable] = field(default_factory=dict)
    ids: Mapping[str, UpdatedIds] = field(default_factory=dict)
    applied_rows: int = 0

    @classmethod
    def of(cls, base: Artifact) -> UpdatedRows:
        """Return the rows of a model version without updates."""
        return cls(base, VersionPoint(sequence=0, digest=base.manifest.digest))

    @cached_property
    def artifact(self) -> Artifact:
        """The model version with these rows."""
        return UpdatedArtifact(self.base, self.tables, self.ids) if self.last else self.base

    @property
    def nbytes(self) -> int:
        """Bytes of changed and added rows."""
        return sum(table.changed.rows.nbytes for table in self.tables.values())

    @property
    def largest_share(self) -> float:
        """Changed and added rows of a table for each stored one, of the table where they are most."""
        return max(
            (len(each.changed.nodes) / max(1, len(each.base)) for each in self.tables.values()), default=0.0
        )

    def apply(self, updates: Sequence[RowUpdate], max_bytes: int | None = None) -> UpdatedRows:
        """Return the rows after further updates, in their order; all of them or an error.

        Args:
            updates: the first one's parent is `point`, the parent of each other one is the one before.
            max_bytes: most bytes of changed and added rows; None: any number.

        Raises:
            FormatError: an update does not follow, or does not fit the model version.
            DoesNotFitError: there would be more than ``max_bytes`` of changed rows.
        """
        if not updates:
            return self
        merger = _Merger(self)
        point = self.point
        for update in updates:
            if update.manifest.parent != point:
                raise FormatError(
                    f"expected a row update that follows {point.sequence}, received row update "
                    f"{update.manifest.sequence}, which follows {update.manifest.parent.sequence}",
                    where=str(self.base.path),
                )
            try:
                merger.add(update.tables)
            except (FormatError, UnsupportedError) as error:
                number = update.manifest.sequence
                raise FormatError(
                    f"row update {number}: {error.message}", where=str(self.base.path)
                ) from error
            point = update.manifest.point
        tables = merger.tables()
        applied = sum(update.manifest.num_rows for update in updates)
        found = UpdatedRows(self.base, point, updates[-1].manifest, tables, merger.ids, applied)
        if max_bytes is not None:
            self.check_size(point.sequence, found.nbytes, max_bytes)
        return found

    def check_size(self, sequence: int, row_bytes: int, max_bytes: int) -> None:
        """Refuse an update with which there are too many bytes of changed rows.

        Args:
            sequence: number of the update.
            row_bytes: bytes of changed and added rows, at least.
            max_bytes: most of them.

        Raises:
            DoesNotFitError: they are more.
        """
        if row_bytes > max_bytes:
            raise DoesNotFitError(
                f"expected changed rows of at most {max_bytes} bytes, row update {sequence} makes them "
                f"{row_bytes}",
                where=str(self.base.path),
                hint="export a new version of the model, or serve with a higher --max-updated-bytes",
            )

    def as_one_update(self, later: TableRows) -> TableRows:
        """Return all changed rows, and later ones, as those of one update that follows the version itself.

        Ids are in the order of their nodes, so that those that are added keep their numbers.

        Raises:
            FormatError: the later rows do not fit the model version.
            UnsupportedError: they add ids of a node type that cannot have new ones.
        """
        merger = _Merger(self)
        merger.add(later)
        found: dict[str, tuple[pa.Array, Float32]] = {}
        for name, table in merger.tables().items():
            order = np.argsort(table.changed.nodes)
            ids = table.ids.take_arrow(table.changed.nodes[order])
            found[name] = ids, table.changed.rows[order]
        return found


class _Merger:
    """Collects the rows of several updates, and the ids that they add."""

    def __init__(self, start: UpdatedRows) -> None:
        self._base = start.base
        self._manifest: Manifest = start.base.manifest
        self._tables = start.tables
        self._nodes: dict[str, list[Int64]] = {}
        self._rows: dict[str, list[Float32]] = {}
        self.ids: dict[str, UpdatedIds] = dict(start.ids)

    def add(self, tables: TableRows) -> None:
        """Take the rows of an update by table.

        Raises:
            FormatError: they do not fit the model version, or an id occurs twice in a table.
            UnsupportedError: it adds ids of a node type that cannot have new ones.
        """
        added: dict[str, pa.Array] = {}
        covered: dict[str, set[str]] = {}
        for name, (ids, rows) in tables.items():
            spec = self._manifest.tables.get(name)
            if spec is None or rows.shape[1] != spec.dim:
                raise FormatError(
                    f"expected rows of one of the tables {sorted(self._manifest.tables)}, of its length, "
                    f"received `{name}` with rows of length {rows.shape[1]}"
                )
            known = self.ids.get(spec.node_type) or self._base.ids(spec.node_type)
            own = Ids(ids, spec.node_type)
            if own.kind != known.kind:
                raise FormatError(f"expected ids of type {known.kind}, received {own.kind}")
            nodes = known.index_of(own)
            is_new = nodes < 0
            new = own.to_arrow().filter(pa.array(is_new))
            if not added.setdefault(spec.node_type, new).equals(new):
                raise FormatError(f"expected the same new ids in all tables of `{spec.node_type}`")
            nodes[is_new] = len(known) + np.arange(len(new))
            covered.setdefault(spec.node_type, set()).add(name)
            self._nodes.setdefault(name, []).append(nodes)
            self._rows.setdefault(name, []).append(rows)
        for node_type, new in added.items():
            if len(new):
                self._extend(node_type, new, covered[node_type])

    def _extend(self, node_type: str, new: pa.Array, covered: set[str]) -> None:
        needed = {name for name, spec in self._manifest.tables.items() if spec.node_type == node_type}
        if not takes_new_ids(self._base.preprocess, node_type):
            raise UnsupportedError(f"expected ids of nodes of the model, received new ids of `{node_type}`")
        if covered != needed:
            raise FormatError(
                f"expected rows of new ids of `{node_type}` in the tables {sorted(needed)}, received them in "
                f"{sorted(covered)}"
            )
        before = self.ids.get(node_type)
        base = self._base.ids(node_type)
        self.ids[node_type] = UpdatedIds(base, new) if before is None else before.extended(new)

    def tables(self) -> dict[str, UpdatedTable]:
        """Return all changed tables.

        Tables whose ids have grown are among them, since new ids have rows in all tables of their node type.
        """
        found = dict(self._tables)
        for name, parts in self._nodes.items():
            base = self._base.table(name)
            none = ChangedRows(_NO_PLACES, np.empty((0, base.dim), np.float32))
            changed = found[name].changed if name in found else none
            node_type = self._manifest.tables[name].node_type
            ids = self.ids.get(node_type) or self._base.ids(node_type)
            merged = changed.merged(np.concatenate(parts), np.concatenate(self._rows[name]))
            found[name] = UpdatedTable(base, ids, merged)
        return found
