"""Turn Debian ``Packages`` indexes into the Parquet files of the bundled graph.

Usage::

    python examples/debian/build.py Packages.xz [more Packages files ...] --out DIRECTORY

A ``Packages`` file (plain, .gz, .xz or .lz4) is what any mirror has under
``dists/SUITE/COMPONENT/binary-ARCHITECTURE/`` and what ``apt-get update`` keeps in
``/var/lib/apt/lists``. Written are, each one sorted zstd Parquet file:

==================  ====================================================================
``package``         id, section, priority, installed_size_kb, essential
``source``          id
``tag``             id (a debtag such as ``role::program``)
``depends``, ...    source, target, group: one file for each of the five relations of
                    :data:`RELATIONS`, package to package
``built_from``      source (a package), target (a source)
``tagged``          source (a package), target (a tag)
==================  ====================================================================

The rules:

* Of several stanzas with one package name the one with the highest version is kept (Debian Policy
  5.6.12 orders versions), the first one of equals.
* ``group`` numbers the comma-separated clauses of one field from 0; the alternatives ``a | b`` of one
  clause share it. Version constraints, ``:any`` and other architecture qualifiers, ``[arch]`` and
  ``<profile>`` restrictions are dropped.
* A name that no package carries is a virtual one and stands for every package that provides it, each
  an alternative of the clause; a name that nothing provides (it lies outside the given files) is
  dropped and counted.
* A target named by several clauses of one field (``x (>= 1), x (<< 2)``) keeps the first of them.
* A package naming itself (mostly through something it provides) gives no edge.
* Nothing about people is read: no maintainers, no uploaders.

The same input gives the same bytes (with the same version of pyarrow).
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import io
import json
import lzma
import os
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.errors import BackendMissingError, DataError, GraphboxError, NotFoundError, UsageError

RELATIONS = {
    "depends": "Depends",
    "pre_depends": "Pre-Depends",
    "recommends": "Recommends",
    "suggests": "Suggests",
    "enhances": "Enhances",
}
"""Edge type to the field it is read from."""

_FIELDS = {
    field.encode()
    for field in (
        *("Package", "Version", "Source", "Section", "Priority", "Installed-Size", "Essential"),
        *("Provides", "Tag"),
        *RELATIONS.values(),
    )
}
_PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*")
_VERSION_PART = re.compile(r"(\D*)(\d*)")
_TAG_ALTERNATIVES = re.compile(r"([^{},\s]*)\{([^{}]*)\}")


@dataclass(frozen=True)
class Stanza:
    """One package of an index: the fields the graph is made of, by their names, and where they stood."""

    fields: dict[str, str]
    where: str

    @property
    def name(self) -> str:
        """The package's name."""
        return self.fields["Package"]


@dataclass
class Summary:
    """Counts of rows and files read, written and dropped, by kind."""

    files: list[str] = field(default_factory=list)
    stanzas: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    file_bytes: dict[str, int] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    unresolved_names: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "files": self.files,
            "stanzas": self.stanzas,
            "rows": self.rows,
            "file_bytes": self.file_bytes,
            "dropped": dict(sorted(self.dropped.items())),
            "unresolved_examples": [name for name, _ in _most_common(self.unresolved_names, 10)],
        }


def _most_common(counter: Counter[str], n: int) -> list[tuple[str, int]]:
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:n]


# Reading


def _open_lz4(path: Path) -> IO[bytes]:
    try:
        lz4_frame: Any = importlib.import_module("lz4.frame")
    except ImportError as error:
        raise BackendMissingError(
            "reading an .lz4 file needs the package `lz4`, which is not installed",
            where=str(path),
            hint="pip install lz4, or decompress the file first: lz4 -d FILE Packages",
        ) from error
    opened: IO[bytes] = lz4_frame.open(path, "rb")
    return opened


def open_index(path: Path) -> IO[bytes]:
    """Open a ``Packages`` file; the compression is told by its first bytes, not by its name.

    Raises:
        NotFoundError: there is no such file.
        BackendMissingError: it is .lz4 and the package ``lz4`` is not installed.
    """
    if not path.is_file():
        raise NotFoundError(
            "there is no such file" if not path.exists() else "expected a file, received a folder",
            where=str(path),
            hint="on Debian, `sudo apt-get update` puts the indexes into /var/lib/apt/lists",
        )
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return io.BufferedReader(gzip.open(path, "rb"), 1 << 20)
    if magic == b"\xfd7zXZ\x00":
        return lzma.open(path, "rb")
    if magic.startswith(b"\x04\x22\x4d\x18"):
        return _open_lz4(path)
    return path.open("rb")


def read_stanzas(path: Path) -> Iterator[Stanza]:
    """Yield the stanzas of one ``Packages`` file, in its order.

    Raises:
        DataError: a line is no field, a stanza has no package name, a number is none, the text is not
            UTF-8, or the compressed file is damaged or truncated.
    """
    try:
        with open_index(path) as file:
            yield from _stanzas_of_lines(path, file)
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, RuntimeError) as error:
        raise DataError(
            f"the compressed file is damaged or truncated ({error})",
            where=str(path),
            hint="fetch it again and compare it with the checksums in the mirror's Release file",
        ) from error


def _stanzas_of_lines(path: Path, lines: Iterable[bytes]) -> Iterator[Stanza]:
    fields: dict[str, str] = {}
    first_line, current = 1, ""
    try:
        for number, line in enumerate(lines, start=1):
            if line[:1] in b" \t" and line.strip():
                if current:
                    fields[current] += " " + line.decode().strip()
            elif not line.strip():
                if fields:
                    yield _checked(fields, f"{path}:{first_line}")
                fields, first_line, current = {}, number + 1, ""
            else:
                name, colon, value = line.partition(b":")
                if not colon or not name.isascii():
                    raise DataError(
                        f"expected `Field: value`, received {line[:60]!r}",
                        where=f"{path}:{number}",
                        hint="give files of the Packages format (deb-src indexes are another one)",
                    )
                current = ""
                if name in _FIELDS:
                    current = name.decode()
                    fields[current] = value.decode().strip()
                elif not fields:
                    # A stanza that starts with a field we do not need is still a stanza.
                    fields = {"": ""}
    except UnicodeDecodeError as error:
        raise DataError(f"expected UTF-8 text ({error.reason})", where=f"{path}:{number}") from error
    if fields:
        yield _checked(fields, f"{path}:{first_line}")


def _checked(fields: dict[str, str], where: str) -> Stanza:
    name = fields.get("Package", "")
    if not _PACKAGE_NAME.fullmatch(name):
        raise DataError(
            f"expected a stanza with a field `Package` and a package name in it, received {name!r}",
            where=where,
        )
    size = fields.get("Installed-Size", "0")
    if not (size.isascii() and size.isdigit()):
        raise DataError(
            f"expected Installed-Size to be a whole number of kB, received {size!r}",
            where=f"{where} ({name})",
        )
    return Stanza(fields, where)


def version_key(version: str) -> tuple[Any, ...]:
    """Return a key that sorts as Debian versions do (Debian Policy 5.6.12).

    Versions are ``[epoch:]upstream[-revision]``; the parts are compared as alternating runs of
    non-digits and digits, where ``~`` sorts before the end, letters after it and the rest last.
    """
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return (int(epoch) if epoch.isdigit() else 0, _part_key(upstream), _part_key(revision))


def _part_key(part: str) -> tuple[Any, ...]:
    key: list[Any] = []
    for text, digits in _VERSION_PART.findall(part or "0"):  # an absent part counts as 0
        if text or digits:
            order = [-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in text]
            key += [(*order, 0), int(digits or 0)]
    return (*key, (0,))


def read_packages(paths: Sequence[Path], summary: Summary) -> dict[str, Stanza]:
    """Read all files and keep one stanza for each package name, sorted by name.

    Raises:
        DataError: a file is malformed, or there is no package in any.
    """
    packages: dict[str, Stanza] = {}
    for path in paths:
        before = summary.stanzas
        for stanza in read_stanzas(path):
            summary.stanzas += 1
            kept = packages.get(stanza.name)
            if kept is None:
                packages[stanza.name] = stanza
                continue
            summary.dropped["other versions of a package"] += 1
            if version_key(stanza.fields.get("Version", "")) > version_key(kept.fields.get("Version", "")):
                packages[stanza.name] = stanza
        summary.files.append(path.name)
        _log(f"read {summary.stanzas - before:,} stanzas of {path}")
    if not packages:
        raise DataError(
            "expected at least one package, received none", where=", ".join(str(path) for path in paths)
        )
    return dict(sorted(packages.items()))


# Relations


def parse_relation(text: str) -> list[list[str]]:
    """Return the names in a relationship field: one list of alternatives for each clause.

    ``"a (>= 1) | b:any, c [amd64] <!nocheck>"`` gives ``[["a", "b"], ["c"]]``. A trailing comma is
    legal and adds nothing.

    Raises:
        ValueError: an alternative does not start with a package name.
    """
    clauses = []
    for clause in text.split(","):
        if not clause.strip():
            continue
        names = []
        for alternative in clause.split("|"):
            match = _PACKAGE_NAME.match(alternative.strip())
            if match is None:
                raise ValueError(f"expected a package name, received {alternative.strip()!r}")
            names.append(match.group())
        clauses.append(names)
    return clauses


def parse_tags(text: str) -> list[str]:
    """Return the tags of a ``Tag`` field, sorted; ``works-with::{audio,video}`` is two of them."""
    tags: set[str] = set()

    def expand(match: re.Match[str]) -> str:
        tags.update(match[1] + name.strip() for name in match[2].split(",") if name.strip())
        return ""

    rest = _TAG_ALTERNATIVES.sub(expand, text)
    tags.update(tag.strip() for tag in rest.split(",") if tag.strip())
    return sorted(tags)


def _relation_of(stanza: Stanza, name: str) -> list[list[str]]:
    try:
        return parse_relation(stanza.fields.get(name, ""))
    except ValueError as error:
        raise DataError(str(error), where=f"{stanza.where} ({stanza.name}), field {name}") from error


def providers_of(packages: dict[str, Stanza]) -> dict[str, list[str]]:
    """Return the packages that provide each virtual name (a name that is no package's own)."""
    providers: dict[str, list[str]] = {}
    for name, stanza in packages.items():
        for clause in _relation_of(stanza, "Provides"):
            for provided in clause:
                if provided not in packages and name not in providers.setdefault(provided, []):
                    providers[provided].append(name)
    return providers


def relation_edges(
    packages: dict[str, Stanza], providers: dict[str, list[str]], relation: str, summary: Summary
) -> pa.Table:
    """Return the edges of one relation, sorted by source, group and target."""
    rows: list[tuple[str, int, str]] = []
    for name, stanza in packages.items():
        first_group: dict[str, int] = {}
        for group, alternatives in enumerate(_relation_of(stanza, RELATIONS[relation])):
            for written in alternatives:
                targets = [written] if written in packages else providers.get(written, [])
                if not targets:
                    summary.dropped[f"{relation}: name outside the index"] += 1
                    summary.unresolved_names[written] += 1
                for target in targets:
                    if target == name:
                        summary.dropped[f"{relation}: package naming itself"] += 1
                    elif first_group.setdefault(target, group) != group:
                        summary.dropped[f"{relation}: target named by an earlier clause"] += 1
        rows += sorted((name, group, target) for target, group in first_group.items())
    return pa.table(
        {
            "source": pa.array([row[0] for row in rows], pa.string()),
            "target": pa.array([row[2] for row in rows], pa.string()),
            "group": pa.array([row[1] for row in rows], pa.int32()),
        }
    )


# Tables


def _package_table(packages: dict[str, Stanza]) -> pa.Table:
    def column(name: str) -> list[str | None]:
        return [stanza.fields.get(name) or None for stanza in packages.values()]

    return pa.table(
        {
            "id": pa.array(packages, pa.string()),
            "section": pa.array(column("Section"), pa.string()),
            "priority": pa.array(column("Priority"), pa.string()),
            "installed_size_kb": pa.array(
                [int(size) if size else None for size in column("Installed-Size")], pa.int64()
            ),
            "essential": pa.array([value == "yes" for value in column("Essential")], pa.bool_()),
        }
    )


def _pairs_table(pairs: Iterable[tuple[str, str]]) -> tuple[pa.Table, pa.Table]:
    """Return the edge table of sorted pairs, and the node table of the targets."""
    ordered = sorted(set(pairs))
    edges = pa.table(
        {
            "source": pa.array([source for source, _ in ordered], pa.string()),
            "target": pa.array([target for _, target in ordered], pa.string()),
        }
    )
    nodes = pa.table({"id": pa.array(sorted({target for _, target in ordered}), pa.string())})
    return edges, nodes


def _source_of(stanza: Stanza) -> str:
    """Return the source package: the field may carry a version in parentheses, and may be absent."""
    return stanza.fields.get("Source", "").partition("(")[0].strip() or stanza.name


def build_tables(packages: dict[str, Stanza], summary: Summary) -> dict[str, pa.Table]:
    """Return every table of the graph by its file's stem."""
    built_from, sources = _pairs_table((name, _source_of(stanza)) for name, stanza in packages.items())
    tagged, tags = _pairs_table(
        (name, tag) for name, stanza in packages.items() for tag in parse_tags(stanza.fields.get("Tag", ""))
    )
    tables = {"package": _package_table(packages), "source": sources, "tag": tags}
    providers = providers_of(packages)
    for relation in RELATIONS:
        tables[relation] = relation_edges(packages, providers, relation, summary)
    return {**tables, "built_from": built_from, "tagged": tagged}


def write_tables(tables: dict[str, pa.Table], out: Path, summary: Summary) -> None:
    """Write each table as ``<name>.parquet`` into the folder ``out``, replacing what is there.

    Raises:
        UsageError: the folder cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            path = out / f"{name}.parquet"
            beside = path.with_suffix(".parquet.tmp")
            pq.write_table(
                table,
                beside,
                compression="zstd",
                compression_level=19,
                # Sorted strings share prefixes; the rest has few values.
                use_dictionary=[
                    column for column in ("target", "section", "priority") if column in table.column_names
                ],
                column_encoding={
                    column: "DELTA_BYTE_ARRAY" for column in ("id", "source") if column in table.column_names
                },
                dictionary_pagesize_limit=1 << 24,
                row_group_size=max(len(table), 1),
                store_schema=False,
            )
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            beside.replace(path)
            summary.rows[name] = len(table)
            summary.file_bytes[name] = path.stat().st_size
    except OSError as error:
        raise UsageError(f"cannot write the tables: {error.strerror}", where=str(out)) from error


# Command line


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _report(summary: Summary, seconds: float, out: Path) -> None:
    for name, rows in summary.rows.items():
        _log(f"  {name:<12} {rows:>9,} rows {summary.file_bytes[name]:>10,} bytes")
    for kind, count in sorted(summary.dropped.items()):
        _log(f"  dropped {count:,}: {kind}")
    if summary.unresolved_names:
        names = ", ".join(name for name, _ in _most_common(summary.unresolved_names, 5))
        _log(f"  most often named and outside the index: {names}")
    _log(f"wrote {sum(summary.file_bytes.values()):,} bytes to {out} in {seconds:.1f} s")


def build(paths: Sequence[Path], out: Path) -> Summary:
    """Read the ``Packages`` files and write the graph's Parquet files into ``out``.

    Returns:
        What was read, written and dropped.

    Raises:
        NotFoundError: a file is missing.
        DataError: a file is malformed.
        UsageError: ``out`` cannot be written.
        BackendMissingError: a file is .lz4 and the package ``lz4`` is not installed.
    """
    summary = Summary()
    packages = read_packages(paths, summary)
    write_tables(build_tables(packages, summary), out, summary)
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        description="Turn Debian Packages indexes into Parquet files of a graph."
    )
    parser.add_argument("packages", nargs="+", type=Path, metavar="PACKAGES", help="plain, .gz, .xz or .lz4")
    parser.add_argument("--out", required=True, type=Path, help="folder the Parquet files are written to")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        summary = build(options.packages, options.out)
    except GraphboxError as error:
        _log(f"error: {error}")
        return error.exit_code
    _report(summary, time.monotonic() - started, options.out)
    if options.json:
        print(json.dumps(summary.as_dict(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
