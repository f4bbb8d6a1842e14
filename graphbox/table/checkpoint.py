"""Checkpoints of a table: everything at once, or a base and the deltas after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from graphbox.errors import ConflictError, FormatError, NotFoundError, UsageError
from graphbox.table.arguments import NO_BUDGET
from graphbox.table.atomic_folder import atomic_folder
from graphbox.table.checkpoint_files import (
    CHAINS,
    ChainName,
    CheckpointOf,
    native_parts,
    read_policy_state,
    write_checkpoint,
)
from graphbox.table.document import RESTORE
from graphbox.table.manifest import MANIFEST, Chain, Kind, Manifest, ServingValues, read_manifest
from graphbox.table.settings import POLICY_STATE, table_arguments
from graphbox.table.tier import TableFolder

if TYPE_CHECKING:
    from graphbox.table.table import EmbeddingTable

TableType = TypeVar("TableType", bound="EmbeddingTable")

_CHANGING = ("lr", POLICY_STATE)
"""Settings that may differ between a base and its deltas: the last ones count."""


@dataclass(frozen=True, slots=True)
class SavedRows:
    """The last checkpoint of a table's whole rows: where, the digest of its manifest, and what it holds.

    Attributes:
        path: of the folder.
        digest: of its manifest.
        changes: the table's count of changes when it held these rows: as long as it is the same, they are.
    """

    path: str
    digest: str
    changes: int


def save_table(table: EmbeddingTable, path: Path, kind: Kind, serving: ServingValues | None = None) -> None:
    """Write a checkpoint of ``table``; see :meth:`graphbox.table.EmbeddingTable.save`."""
    if serving is not None and serving not in get_args(ServingValues):
        raise UsageError(
            f"expected one of {', '.join(get_args(ServingValues))}, received {serving!r}", where="serving"
        )
    with table._saving:
        if kind == "full":
            with atomic_folder(path, is_checkpoint, "a checkpoint") as folder:
                manifest, changes = write_checkpoint(CheckpointOf(table, folder, "full"))
        else:
            manifest, changes = _save_in_chain(table, path, kind, serving)
        if serving is None:
            table._saved = SavedRows(str(path.absolute()), manifest.digest, changes)


def _save_in_chain(
    table: EmbeddingTable, path: Path, kind: Kind, serving: ServingValues | None
) -> tuple[Manifest, int]:
    name: ChainName = "training" if serving is None else "serving"
    chain = None
    if kind == "delta":
        chain = table._chains.get(name)
        if chain is None:
            call = "save_base(path)" if serving is None else f"save_base(path, serving={serving!r})"
            raise UsageError(
                f"expected a table whose {name} base was saved or loaded, there is none",
                hint=f"call {call} first",
            )
        if serving is None:  # servers apply a delta and then need it no more
            _refuse_earlier(path, chain)
    try:
        with atomic_folder(path, is_checkpoint, "a checkpoint") as folder:
            wanted = CheckpointOf(table, folder, kind, serving or "records", chain)
            manifest, changes = write_checkpoint(wanted)
        # First: changes that come in two deltas do no harm, and those that come in none do.
        table._chains[name] = manifest.after()
        table._current.confirm_changes(CHAINS[name])
    except BaseException:
        table._current.restore_changes(CHAINS[name])
        raise
    return manifest, changes


def _refuse_earlier(path: Path, chain: Chain) -> None:
    """Refuse to replace the base or a delta that the next one builds on: nothing could be loaded any more."""
    try:
        manifest = read_manifest(path)
    except (FormatError, NotFoundError):
        return
    first = manifest.digest if manifest.chain is None else manifest.chain.base
    if first == chain.base and (manifest.chain is None or manifest.chain.sequence < chain.sequence):
        name = "the base" if manifest.chain is None else f"delta {manifest.chain.sequence}"
        raise ConflictError(
            f"expected a place for delta {chain.sequence}, received that of {name}, which it builds on",
            where=str(path),
            hint="save each delta under a name of its own",
        )


def is_checkpoint(path: Path) -> bool:
    """Return whether ``path`` may be replaced by a checkpoint: it is one, or an empty folder."""
    if not path.is_dir():
        return False
    return not any(path.iterdir()) or (path / MANIFEST).is_file()


def load_table(
    table_type: type[TableType],
    checkpoint: Path,
    deltas: Iterable[Path],
    shard: tuple[int, int],
    threads: int | None,
    /,
    **budget: Any,
) -> TableType:
    """Return the table of a checkpoint and its deltas; see :meth:`graphbox.table.EmbeddingTable.load`."""
    folders = (checkpoint, *deltas)
    while True:
        manifests = read_chain(folders)
        try:
            return _load(table_type, folders, manifests, shard, threads, **budget)
        except (FormatError, NotFoundError):
            # A checkpoint that was replaced meanwhile: what replaced it is loaded instead.
            if [manifest.digest for manifest in read_chain(folders)] == [each.digest for each in manifests]:
                raise


def read_chain(folders: tuple[Path, ...]) -> list[Manifest]:
    """Return the manifests of a checkpoint and the deltas after it, checked against each other."""
    manifests = [read_manifest(folder) for folder in folders]
    check_chain(None, manifests[0], folders[0])
    place = manifests[0].after()
    for manifest, folder in zip(manifests[1:], folders[1:], strict=True):
        if manifests[0].kind != "base":
            raise UsageError(
                "expected a base, which deltas can follow, received a full checkpoint",
                where=str(folders[0]),
                hint="save_base() writes one",
            )
        check_chain(place, manifest, folder)
        check_settings(manifests[0], manifest, folder)
        place = manifest.after()
    return manifests


def check_chain(place: Chain | None, manifest: Manifest, folder: Path) -> None:
    """Check that a checkpoint belongs at a place of a chain: a delta there, or with None what stands alone.

    Raises:
        ConflictError: a delta of another base, one that was applied before, or one that comes too early.
        UsageError: a delta where a base is wanted, or the other way round.
    """
    chain = manifest.chain
    if place is None or chain is None:
        if (place is None) != (chain is None):
            wanted, received = ("a full checkpoint or a base", "a delta")
            if place is not None:
                wanted, received = "a delta", f"a {manifest.kind} checkpoint"
            raise UsageError(f"expected {wanted}, received {received}", where=str(folder))
        return
    if chain == place:
        return
    number = f"delta {chain.sequence}"
    if chain.base != place.base:
        message, hint = (
            f"received {number} of another base",
            "give the deltas that were saved after this base",
        )
    elif chain.sequence < place.sequence:
        message, hint = f"received {number}, which was applied before", "leave it out"
    elif chain.sequence > place.sequence:
        message, hint = f"received {number}: one before it is missing", f"give delta {place.sequence} first"
    else:
        message = f"received {number} of another history"
        hint = "tables that went on from one checkpoint more than once saved both: give those of one"
    raise ConflictError(
        f"expected delta {place.sequence} of the base, {message}", where=str(folder), hint=hint
    )


def check_settings(base: Manifest, manifest: Manifest, folder: Path) -> None:
    """Check that a delta has the settings of its base, but for those that may change.

    Raises:
        FormatError: it has others.
    """

    def fixed(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if name not in _CHANGING}

    if fixed(base.table) != fixed(manifest.table):
        raise FormatError(
            "the delta's settings are not those of its base", where=str(folder / MANIFEST), hint=RESTORE
        )


def make_table(table_type: type[TableType], manifest: Manifest, folder: Path, **options: Any) -> TableType:
    """Return a table without rows, with the settings that a checkpoint names.

    Raises:
        FormatError: no table has such settings.
        UsageError: an option, or what ``path`` holds, is wrong.
    """
    arguments = table_arguments(manifest.table, folder)
    if options.get("path") is not None:
        TableFolder.refuse_table(options["path"])
        arguments["eviction"] = None  # rows that find no room go there instead
    if options.get("memory_bytes") is None:
        options["memory_bytes"] = NO_BUDGET
    try:
        return table_type(**arguments, **options)
    except TypeError as error:
        problem = str(error)
    except UsageError as error:
        if error.where in (*options, "admission") or error.where == str(options.get("path")):
            raise
        problem = str(error)
    raise FormatError(
        f"the manifest names settings that no table has: {problem}",
        where=str(folder / MANIFEST),
        hint=RESTORE,
    )


def _load(
    table_type: type[TableType],
    folders: tuple[Path, ...],
    manifests: list[Manifest],
    shard: tuple[int, int],
    threads: int | None,
    **budget: Any,
) -> TableType:
    if any(manifest.contents != "records" for manifest in manifests):
        raise UsageError(
            "expected a checkpoint of whole rows, received one of values alone",
            where=str(folders[0]),
            hint="open it with graphbox.table.ServingTable",
        )
    table = make_table(table_type, manifests[-1], folders[-1], threads=threads, **budget)
    try:
        if shard[1] == 1:
            table._current.reserve(manifests[0].rows)
        for folder, manifest in zip(folders, manifests, strict=True):
            is_delta = manifest.kind == "delta"
            parts = native_parts(folder, manifest)
            table._current.load_checkpoint(str(folder), parts, is_delta, shard, table.threads)
            table._current.add_policy_state(read_policy_state(folder, manifest), shard)
        if table.path is not None:
            table.flush()
    except BaseException:
        if table._folder is not None:
            table._folder.discard(table._current)
        raise
    if manifests[0].kind == "base" and shard[1] == 1:
        table._current.track_changes(CHAINS["training"])
        table._chains["training"] = manifests[-1].after()
    if shard[1] == 1:
        table._saved = SavedRows(str(folders[-1].absolute()), manifests[-1].digest, table._current.changes)
    return table
