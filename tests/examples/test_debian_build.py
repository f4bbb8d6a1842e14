"""The script that builds the bundled graph, on a small index that has every case its docstring names."""

from __future__ import annotations

import gzip
import importlib.util
import json
import lzma
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbox.errors import DataError, NotFoundError, UsageError

SCRIPT = Path(__file__).parents[2] / "examples" / "debian" / "build.py"

INDEX = """\
Package: editor
Source: editor-src (2.1-1)
Version: 2.1-1
Installed-Size: 1200
Maintainer: Somebody <somebody@example.org>
Architecture: amd64
Depends: libc (>= 2), libc (<< 3), mail-agent | spell:any (>= 1) [amd64] <!nocheck>, gone | also-gone,
 docs,
Pre-Depends: loader
Recommends: spell | docs, spell | fonts, editor-plugin
Suggests: libc, absent
Section: editors
Priority: optional
Tag: role::program, works-with::{text,
 audio}, interface::x11

Package: editor-plugin
Version: 1
Architecture: all
Provides: editor-plugin, plugin-api (= 3), spell
Enhances: editor, plugin-api
Section: editors
Priority: optional
Description: first line
 Depends: not-a-field

Package: libc
Version: 1:2.9-1
Installed-Size: 10
Section: libs
Priority: required
Essential: yes

Package: libc
Source: glibc
Version: 1:2.10-1
Installed-Size: 11
Section: libs
Priority: required
Essential: yes

Package: libc
Source: older
Version: 3
Section: libs
Priority: optional

Package: postman
Version: 1
Provides: mail-agent
Section: mail
Priority: optional

Package: pigeon
Version: 1
Provides: mail-agent (= 2), mail-agent
Recommends: mail-agent
Section: mail
Priority: optional

Package: spell
Version: 1
Section: text
Priority: optional

Package: docs
Version: 1
Essential: no

Package: fonts
Version: 1
Section: fonts
Priority: optional

Package: loader
Version: 1
Section: libs
Priority: required
"""


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("debian_build", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["debian_build"] = module
    spec.loader.exec_module(module)
    return module


def rows(folder: Path, name: str) -> list[tuple[Any, ...]]:
    table = pq.read_table(folder / f"{name}.parquet")
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture
def built(build: ModuleType, tmp_path: Path) -> tuple[Path, Any]:
    (tmp_path / "Packages").write_text(INDEX)
    return tmp_path / "out", build.build([tmp_path / "Packages"], tmp_path / "out")


def test_packages_are_sorted_with_the_highest_version(built: tuple[Path, Any]) -> None:
    out, summary = built
    assert rows(out, "package") == [
        ("docs", None, None, None, False),
        ("editor", "editors", "optional", 1200, False),
        ("editor-plugin", "editors", "optional", None, False),
        ("fonts", "fonts", "optional", None, False),
        ("libc", "libs", "required", 11, True),
        ("loader", "libs", "required", None, False),
        ("pigeon", "mail", "optional", None, False),
        ("postman", "mail", "optional", None, False),
        ("spell", "text", "optional", None, False),
    ]
    assert summary.stanzas == 11
    assert summary.dropped["other versions of a package"] == 2


def test_sources_and_tags(built: tuple[Path, Any]) -> None:
    out, _ = built
    assert ("editor", "editor-src") in rows(out, "built_from")
    assert ("libc", "glibc") in rows(out, "built_from")
    assert ("docs", "docs") in rows(out, "built_from")
    assert len(rows(out, "built_from")) == 9
    assert ("older",) not in rows(out, "source")
    assert rows(out, "tag") == [
        ("interface::x11",),
        ("role::program",),
        ("works-with::audio",),
        ("works-with::text",),
    ]
    assert rows(out, "tagged") == [("editor", tag) for (tag,) in rows(out, "tag")]


def test_relations_follow_the_rules(built: tuple[Path, Any]) -> None:
    out, summary = built
    assert rows(out, "depends") == [
        ("editor", "libc", 0),  # the second clause on libc adds nothing
        ("editor", "pigeon", 2),  # both providers of the virtual mail-agent ...
        ("editor", "postman", 2),
        ("editor", "spell", 2),  # ... and the alternative that is a package (not what provides its name)
        ("editor", "docs", 4),  # clause 3 names nothing in the index
    ]
    assert rows(out, "pre_depends") == [("editor", "loader", 0)]
    assert rows(out, "recommends") == [
        ("editor", "docs", 0),
        ("editor", "spell", 0),
        ("editor", "fonts", 1),
        ("editor", "editor-plugin", 2),
        ("pigeon", "postman", 0),  # pigeon provides mail-agent itself
    ]
    assert rows(out, "suggests") == [("editor", "libc", 0)]
    assert rows(out, "enhances") == [("editor-plugin", "editor", 0)]
    assert dict(summary.dropped) == {
        "other versions of a package": 2,
        "depends: target named by an earlier clause": 1,
        "depends: name outside the index": 2,
        "recommends: target named by an earlier clause": 1,
        "recommends: package naming itself": 1,
        "suggests: name outside the index": 1,
        "enhances: package naming itself": 1,
    }
    assert summary.as_dict()["unresolved_examples"] == ["absent", "also-gone", "gone"]


def lz4_compress(data: bytes) -> bytes:
    frame = pytest.importorskip("lz4.frame", reason="reading .lz4 is an option of the example")
    compressed: bytes = frame.compress(data)
    return compressed


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, lz4_compress])
def test_every_compression_gives_the_same_bytes(
    compress: Any, build: ModuleType, built: tuple[Path, Any], tmp_path: Path
) -> None:
    path = tmp_path / "index"  # the name says nothing: the first bytes do
    path.write_bytes(compress(INDEX.encode()))
    build.build([path], tmp_path / "again")
    for file in built[0].iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes(), file.name


def test_several_files_are_one_index(build: ModuleType, built: tuple[Path, Any], tmp_path: Path) -> None:
    stanzas = INDEX.split("\n\n")
    for name, part in (("a", stanzas[:4]), ("b", stanzas[4:])):
        (tmp_path / name).write_text("\n\n".join(part))
    build.build([tmp_path / "a", tmp_path / "b"], tmp_path / "again")
    for file in built[0].iterdir():
        assert rows(tmp_path / "again", file.stem) == rows(built[0], file.stem)


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("1.0", "1.0.1"),
        ("1.9", "1.10"),
        ("1.0~rc1", "1.0"),
        ("1.0", "1.0-0.1"),
        ("1.0-1", "1.0-1+b1"),
        ("9", "1:1"),
        ("1.0a", "1.0+a"),
        ("1.0~~", "1.0~"),
        ("1.2-3-4", "1.2-3-5"),
        ("1.0-0", "1.0-1"),
        ("", "0a"),
    ],
)
def test_versions_sort_as_debian_says(lower: str, higher: str, build: ModuleType) -> None:
    assert build.version_key(lower) < build.version_key(higher)


def compare_parts(left: str, right: str) -> int:
    """Compare two version parts as Debian Policy 5.6.12 words it: step by step, from left to right."""

    def order(text: str, position: int) -> int:
        """Return the weight of a character of the non-digit run, 0 at its end."""
        if position == len(text) or text[position].isdigit():
            return 0
        character = text[position]
        return -1 if character == "~" else ord(character) + (0 if character.isalpha() else 256)

    i = j = 0
    while i < len(left) or j < len(right):
        while order(left, i) or order(right, j):
            if order(left, i) != order(right, j):
                return order(left, i) - order(right, j)
            i, j = i + 1, j + 1
        start_i, start_j = i, j
        while i < len(left) and left[i].isdigit():
            i += 1
        while j < len(right) and right[j].isdigit():
            j += 1
        difference = int(left[start_i:i] or 0) - int(right[start_j:j] or 0)
        if difference:
            return difference
    return 0


PARTS = st.text("a1b0.~+", max_size=8)


@given(left=PARTS, right=PARTS)
def test_version_keys_agree_with_a_step_by_step_comparison(left: str, right: str, build: ModuleType) -> None:
    keys = build.version_key(left), build.version_key(right)
    expected = compare_parts(left, right)
    assert (keys[0] < keys[1], keys[0] > keys[1]) == (expected < 0, expected > 0)


@pytest.mark.parametrize(
    ("content", "where", "message"),
    [
        (b"", "Packages", "expected at least one package, received none"),
        (b"\n\n", "Packages", "expected at least one package, received none"),
        (b"Package: a\nno field\n", "Packages:2", "expected `Field: value`, received b'no field"),
        (b"Package: a\n\nVersion: 1\n", "Packages:3", "expected a stanza with a field `Package`"),
        (b"Format: 1\n\nPackage: a\n", "Packages:1", "expected a stanza with a field `Package`"),
        (b"Package: ../a\n", "Packages:1", "received '../a'"),
        (
            b"Package: a\nInstalled-Size: 1 MB\n",
            "Packages:1 (a)",
            "Installed-Size to be a whole number of kB",
        ),
        (b"Package: a\nSection: \xff\n", "Packages:2", "expected UTF-8 text"),
        (
            b"Package: a\nDepends: b | | c\n",
            "Packages:1 (a), field Depends",
            "expected a package name, received ''",
        ),
        (gzip.compress(INDEX.encode())[:-30], "Packages", "the compressed file is damaged or truncated"),
        (lzma.compress(INDEX.encode())[:-30], "Packages", "the compressed file is damaged or truncated"),
        (b"\x04\x22\x4d\x18nonsense", "Packages", "the compressed file is damaged or truncated"),
    ],
)
def test_wrong_files_are_named(
    content: bytes, where: str, message: str, build: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "Packages").write_bytes(content)
    with pytest.raises(DataError) as caught:
        build.build([tmp_path / "Packages"], tmp_path / "out")
    assert caught.value.where == f"{tmp_path}/{where}"
    assert message in caught.value.message
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_named(build: ModuleType, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(NotFoundError, match="file"):
            build.build([path], tmp_path / "out")


def test_the_command_line(build: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Packages").write_text(INDEX)
    assert build.main([str(tmp_path / "Packages"), "--out", str(tmp_path / "out"), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["rows"]["package"] == 9
    assert "read 11 stanzas" in output.err
    assert "dropped 2: depends: name outside the index" in output.err
    assert build.main([str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == NotFoundError.exit_code
    assert "error: " in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert build.main([str(tmp_path / "Packages"), "--out", str(tmp_path / "file")]) == UsageError.exit_code
    assert "cannot write the tables: File exists" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        build.main(["--help"])
    assert "PACKAGES" in capsys.readouterr().out


def test_without_lz4_the_way_out_is_named(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Packages.lz4").write_bytes(b"\x04\x22\x4d\x18rest")
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    assert build.main([str(tmp_path / "Packages.lz4"), "--out", str(tmp_path / "out")]) == 5
    assert "pip install lz4" in capsys.readouterr().err
