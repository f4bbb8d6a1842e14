"""Tables published for serving as they are trained: a base per period, a delta per version, and readers.

A folder of publications holds ``version.json``, which names the checkpoints that the version consists of, and
a folder for each table with these checkpoints; parameters of a network beside them are a file of safetensors.
What a version names stays as it is until two newer bases are there; ``version.json`` is replaced in one step.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphbox.durable import write_atomically
from graphbox.errors import FormatError, NotFoundError
from graphbox.table.checkpoint_files import CHAINS
from graphbox.table.document import document_text, read_document
from graphbox.table.manifest import ServingValues, read_manifest
from graphbox.table.serving import ServingTable, Unknown
from graphbox.table.table import EmbeddingTable

if TYPE_CHECKING:
    import torch

VERSION_FILE: Final = "version.json"
_FORMAT: Final = "graphbox-table-publication"
_FORMAT_VERSION: Final = 1
_KEPT_BASES: Final = 2
_PARAMETERS: Final = re.compile(r"parameters-([0-9]{6,12})\.safetensors")


@dataclass(frozen=True)
class Version:
    """Content of a published version.

    Attributes:
        number: version number; it rises.
        name: label of the version, such as the last chunk of data that it has learnt.
        tables: by name of the table its checkpoints in their order, a base and deltas: names of folders, and
            the digests of their manifests.
        parameters: name of the file with parameters and the SHA-256 of its content; None: there are none.
    """

    number: int
    name: str
    tables: Mapping[str, tuple[tuple[str, str], ...]]
    parameters: tuple[str, str] | None = None


def read_version(folder: Path) -> Version | None:
    """Return the version that a folder of publications holds now; None: none yet.

    Raises:
        FormatError: it is damaged, or of another version of the format.
    """
    path = folder / VERSION_FILE
    try:
        document = read_document(path, _FORMAT, _FORMAT_VERSION)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return Version(
            int(document["number"]),
            str(document["name"]),
            {
                str(name): tuple((_folder_name(each["folder"]), str(each["digest"])) for each in chain)
                for name, chain in document["tables"].items()
            },
            _parameters_file(document["parameters"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"expected a version of published tables, received another document ({error!r})", where=str(path)
        ) from None


def _parameters_file(document: Mapping[str, str] | None) -> tuple[str, str] | None:
    if document is None:
        return None
    name, digest = document["file"], document["sha256"]
    if not _PARAMETERS.fullmatch(name):
        raise ValueError(name)
    return name, digest


def _folder_name(name: Any) -> str:
    if not isinstance(name, str) or not name.startswith(("base-", "delta-")) or "/" in name:
        raise ValueError(name)
    return name


@dataclass(frozen=True)
class PublicationState:
    """Where a publisher is: what it needs, with the tables as they were then, to go on.

    Attributes:
        number: of the last version that was written, or of which a part was; -1: none.
        base: number of the version that began the chain of deltas; -1: none.
        parts: deltas that were written in the midst of this version.
        is_whole: whether all of it was written.
    """

    number: int = -1
    base: int = -1
    parts: int = 0
    is_whole: bool = True


class TablePublisher:
    """Writes the versions of some tables.

    A version is written (:meth:`write`) before it is published (:meth:`publish`): a checkpoint of the
    training belongs in between. So a training that died and goes on from its last checkpoint writes again
    only what no reader has been told of.

    Args:
        folder: where to; made when it is not there.
        values: what rows are kept as.
        base_every: versions from one base to the next; 1: all are bases.
        state: where it was when the tables were as they are now.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        values: ServingValues = "float32",
        base_every: int = 24,
        state: PublicationState | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._values: ServingValues = values
        self._base_every = base_every
        self.state = state or PublicationState()

    def resume(self, tables: Mapping[str, EmbeddingTable]) -> None:
        """Go on with the chains of tables that are as they were in :attr:`state`.

        Where the checkpoints of a chain are gone, the next version begins with a base.
        """
        state = self.state
        if state.number < 0 or self.begins_chain(state.number + state.is_whole):
            return
        try:
            places = {
                name: read_manifest(self._folder / name / self._last_folder()).after() for name in tables
            }
        except NotFoundError:
            self.state = replace(state, base=-1, parts=0)
            return
        for name, table in tables.items():
            # Nothing has changed since: the tables are those that the last checkpoint of the chain was of.
            table._current.track_changes(CHAINS["serving"])
            table._chains["serving"] = places[name]

    def write_part(self, number: int, tables: Mapping[str, EmbeddingTable]) -> None:
        """Write what has changed so far for a version that is not whole yet, to go on from here."""
        self._begin(number)
        if self.begins_chain(number):
            return
        self._write(f"delta-{number:06d}.{self.state.parts}", tables)
        self.state = replace(self.state, parts=self.state.parts + 1)

    def write(
        self,
        number: int,
        tables: Mapping[str, EmbeddingTable],
        parameters: Mapping[str, torch.Tensor] | None = None,
    ) -> int:
        """Write a version and return its bytes; :meth:`publish` tells the readers.

        Args:
            number: of the version, one more than that of the last one that was whole.
            tables: the tables by name, always the same ones.
            parameters: of a network that goes with them, by name; counted here, and written when the version
                is published.
        """
        self._begin(number)
        if self.begins_chain(number):
            size = self._write(f"base-{number:06d}", tables)
            self.state = PublicationState(number, base=number)
        else:
            size = self._write(f"delta-{number:06d}", tables)
            self.state = replace(self.state, is_whole=True)
        return size + (len(_parameters_content(parameters)) if parameters else 0)

    def publish(
        self,
        name: str,
        tables: Mapping[str, EmbeddingTable],
        parameters: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Tell readers of the version that was written last; doing it again changes nothing.

        Args:
            name: what the version is called.
            tables: the tables by name.
            parameters: of a network that goes with them, by name.
        """
        chains = {
            table: [{"folder": folder, "digest": digest} for folder, digest in self._chain(table)]
            for table in tables
        }
        document = {
            "format": _FORMAT,
            "version": _FORMAT_VERSION,
            "number": self.state.number,
            "name": name,
            "tables": chains,
            "parameters": self._write_parameters(parameters) if parameters else None,
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        with write_atomically(self._folder / VERSION_FILE) as stream:
            stream.write(document_text(document).encode())
        kept = [self._remove_old(self._folder / table) for table in tables]
        first = min(kept, default=self.state.base - self._base_every)
        for path in self._folder.glob("parameters-*.safetensors"):
            if _number_of(path) < first:
                path.unlink()

    def _write_parameters(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        content = _parameters_content(parameters)
        name = f"parameters-{self.state.number:06d}.safetensors"
        with write_atomically(self._folder / name) as stream:
            stream.write(content)
        return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}

    def _begin(self, number: int) -> None:
        if self.state.is_whole:
            self.state = replace(self.state, number=number, parts=0, is_whole=False)

    def begins_chain(self, number: int) -> bool:
        """Return whether a version would be a base."""
        return self.state.base < 0 or number - self.state.base >= self._base_every

    def _write(self, folder: str, tables: Mapping[str, EmbeddingTable]) -> int:
        size = 0
        for name, table in tables.items():
            path = self._folder / name / folder
            path.parent.mkdir(parents=True, exist_ok=True)
            if folder.startswith("base"):
                table.save_base(path, serving=self._values)
            else:
                table.save_delta(path, serving=self._values)
            size += sum(file.stat().st_size for file in path.iterdir())
        return size

    def _last_folder(self) -> str:
        """Return the last checkpoint of the chains."""
        state = self.state
        if state.is_whole:
            return self._whole_folder(state.number)
        return (
            f"delta-{state.number:06d}.{state.parts - 1}"
            if state.parts
            else self._whole_folder(state.number - 1)
        )

    def _whole_folder(self, number: int) -> str:
        return f"{'base' if number == self.state.base else 'delta'}-{number:06d}"

    def _chain(self, table: str) -> list[tuple[str, str]]:
        """Return the checkpoints of the version that was written last, found from the last to the base."""
        place, state = self._folder / table, self.state
        folders = [path for path in place.iterdir() if path.name[0] != "." and _number_of(path) >= state.base]
        found = {
            manifest.digest: (path.name, manifest) for path in folders for manifest in [read_manifest(path)]
        }
        last = read_manifest(place / self._whole_folder(state.number))
        chain = []
        step: str | None = last.digest
        while step is not None:
            name, manifest = found[step]
            chain.append((name, step))
            step = None if manifest.chain is None else manifest.chain.parent
        return chain[::-1]

    @staticmethod
    def _remove_old(folder: Path) -> int:
        """Remove what belongs to older chains than the last two; return the first version that is left."""
        numbers = {path: _number_of(path) for path in folder.iterdir() if path.name[0] != "."}
        bases = sorted(number for path, number in numbers.items() if path.name.startswith("base-"))
        if len(bases) > _KEPT_BASES:
            for path, number in numbers.items():
                if number < bases[-_KEPT_BASES]:
                    shutil.rmtree(path)
        return bases[-_KEPT_BASES:][0]


def _parameters_content(parameters: Mapping[str, torch.Tensor]) -> bytes:
    from safetensors.torch import save

    return save({name: value.detach().contiguous() for name, value in parameters.items()})


def _number_of(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[2].partition(".")[0])


class PublishedTables(Mapping[str, ServingTable]):
    """The tables of the last version in a folder of publications; :meth:`update` takes up newer ones.

    Made by :meth:`open`.
    """

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        self._folder = folder
        self._options = options
        self._version = Version(-1, "", {})
        self._tables: dict[str, ServingTable] = {}
        self._parameters: dict[str, torch.Tensor] = {}

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        unknown: Unknown = "initial",
        dtype: ServingValues = "float32",
        memory_bytes: int | None = None,
        threads: int | None = None,
    ) -> PublishedTables:
        """Return the tables of the last version.

        Args:
            folder: of the publications.
            unknown: see :meth:`ServingTable.open`, as for the others; they count for each table.
            dtype: how values are kept in memory.
            memory_bytes: the most memory of a table.
            threads: of each table.

        Raises:
            NotFoundError: nothing was published there yet.
            FormatError: a file is damaged.
            DoesNotFitError: the rows of a table exceed ``memory_bytes``.
        """
        options = {"unknown": unknown, "dtype": dtype, "memory_bytes": memory_bytes, "threads": threads}
        published = cls(Path(folder), options)
        if not published.update():
            raise NotFoundError(
                f"expected published tables, a folder with {VERSION_FILE}, received one without",
                where=str(folder),
                hint="a training that follows a stream writes the first version after its first chunk",
            )
        return published

    @property
    def number(self) -> int:
        """Number of the version."""
        return self._version.number

    @property
    def name(self) -> str:
        """Name of the version."""
        return self._version.name

    @property
    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Parameters of the network that goes with the tables, by name."""
        return self._parameters

    def __getitem__(self, name: str) -> ServingTable:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def update(self) -> bool:
        """Take up the last version; return whether it is another one than before.

        Within a chain the deltas are applied to the tables that there are, while lookups go on; a new chain
        gives new tables. When it returns, all tables are of this version; on an error all that were replaced
        are as they were, and those that deltas were applied to may be newer until it is called again.

        Raises:
            FormatError: a file is damaged.
            DoesNotFitError: the rows of a table exceed ``memory_bytes``.
        """
        while True:
            version = read_version(self._folder)
            if version is None or version == self._version:
                return False
            try:
                parameters = self._read_parameters(version)
                self._tables = {name: self._table(name, chain) for name, chain in version.tables.items()}
            except (FormatError, NotFoundError):
                # Removed while they were read, as newer ones had come: these are taken instead.
                if read_version(self._folder) == version:
                    raise
            else:
                self._version, self._parameters = version, parameters
                return True

    def _read_parameters(self, version: Version) -> dict[str, torch.Tensor]:
        if version.parameters is None:
            return {}
        from safetensors.torch import load

        name, digest = version.parameters
        path = self._folder / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise NotFoundError("the parameters of the version are missing", where=str(path)) from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise FormatError(
                "expected the file as it was written, received one that was changed", where=str(path)
            )
        return load(content)

    def _table(self, name: str, chain: tuple[tuple[str, str], ...]) -> ServingTable:
        """Return a table as a version has it: the one there is, with what it lacks, or a new one."""
        place = self._folder / name
        known = self._tables.get(name)
        if known is not None and known.base == chain[0][1] and known.sequence < len(chain):
            applied = known.sequence
            had = self._version.tables.get(name, ())
            if had[: applied + 1] == chain[: min(applied + 1, len(had))]:
                for folder, _ in chain[applied + 1 :]:
                    known.apply(place / folder)
                return known
        folders = [place / folder for folder, _ in chain]
        return ServingTable.open(folders[0], deltas=folders[1:], **self._options)
