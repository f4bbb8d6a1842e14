"""Packages are built once, checked when they are used, and never half there."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.deploy import Device, Options, Package, Support, TensorSpec
from graphbox.deploy.conformance_models import sum_model
from graphbox.deploy.packages import prepared
from graphbox.errors import DoesNotFitError, FormatError, GraphboxError, UnsupportedError
from graphbox.package_folder import FOLDER_VARIABLE, packages_folder

DEVICE = Device("toy:0", "other", "a toy", available=True, details={"driver": "1"})
SLOW_S = 60


class Compiler:
    """An adapter that writes the model into two files; what is wrong with it is said by ``fault``."""

    name = "toy"
    api = 1
    builds_ahead = True

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.builds = 0

    def probe(self) -> list[Device]:
        return [DEVICE]

    def supports(self, model: bytes, device: Device) -> Support:
        return Support(supported=True)

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:
        self.builds += 1
        if self.fault == "unsupported":
            raise UnsupportedError("it has no such operator")
        if self.fault == "full":
            raise OSError(28, os.strerror(28))
        if self.fault == "nothing":
            return
        (folder / "code").write_bytes(model)
        if self.fault == "slow":
            time.sleep(SLOW_S)
        if self.fault in {"folder", "deep link"}:
            (folder / "more").mkdir()
        if self.fault == "deep link":
            (folder / "more" / "link").symlink_to("/etc/hostname")
        if self.fault == "name":
            (folder / "more").mkdir()
            (folder / "more" / "a b").write_bytes(model)
        if self.fault == "deep":
            deep = folder / "/".join("abcdefgh")
            deep.mkdir(parents=True)
            (deep / "code").write_bytes(model)
        if self.fault == "link":
            (folder / "more").symlink_to("/etc/hostname")
        (folder / "weights").write_bytes(model[::-1])

    def load(self, package: Package) -> Any:
        raise AssertionError("no test loads it")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "packages"))
    return tmp_path / "packages"


def built(adapter: Compiler, model: bytes = b"model", **options: Any) -> Path:
    package = prepared(adapter, model, DEVICE, Options(**options))
    assert package.folder is not None
    return package.folder


def test_an_adapter_that_compiles_when_it_loads_writes_nothing(folder: Path) -> None:
    adapter = Compiler()
    adapter.builds_ahead = False
    assert prepared(adapter, b"model", DEVICE, Options()).folder is None
    assert not folder.exists()


def test_what_was_built_is_used_again(folder: Path) -> None:
    adapter = Compiler()
    path = built(adapter)
    assert (path / "code").read_bytes() == b"model"
    assert built(adapter) == path
    assert adapter.builds == 1
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    assert folder.stat().st_mode & 0o777 == 0o700


class NestedCompiler(Compiler):
    """An adapter that writes a folder for a version, as model repositories have it."""

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:
        super().build(model, device, options, folder)
        (folder / "1" / "data").mkdir(parents=True)
        (folder / "1" / "model").write_bytes(model)
        (folder / "1" / "data" / "package.json").write_bytes(model)


@pytest.mark.parametrize("damage", ["none", "flipped", "missing", "link"])
def test_files_in_folders_are_kept_and_checked(damage: str) -> None:
    adapter = NestedCompiler()
    path = built(adapter)
    listed = json.loads((path / "package.json").read_text())["files"]
    assert sorted(listed) == ["1/data/package.json", "1/model", "code", "weights"]
    match damage:
        case "flipped":
            (path / "1" / "model").write_bytes(b"nodel")
        case "missing":
            shutil.rmtree(path / "1" / "data")
        case "link":
            (path / "1").rename(path.parent.parent / "1")
            (path / "1").symlink_to(path.parent.parent / "1")
    assert built(adapter) == path
    assert adapter.builds == (1 if damage == "none" else 2)
    assert (path / "1" / "data" / "package.json").read_bytes() == b"model"
    assert not (path / "1").is_symlink()


def test_all_that_matters_is_in_the_key() -> None:
    adapter = Compiler()
    paths = {
        built(adapter),
        built(adapter, b"other"),
        built(adapter, threads=2),
        built(adapter, allow_lower_precision=True),
    }
    for device in (
        replace(DEVICE, name="toy:1"),
        replace(DEVICE, details={"driver": "2"}),
        replace(DEVICE, description="another toy"),
    ):
        package = prepared(adapter, b"model", device, Options())
        assert package.folder is not None
        paths.add(package.folder)
    adapter.name = "toys"
    paths.add(built(adapter))
    assert len(paths) == 8
    assert adapter.builds == 8


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped", "missing", "unlisted", "no list", "bad list", "link"]
)
def test_a_damaged_package_is_built_again(damage: str) -> None:
    adapter = Compiler()
    path = built(adapter)
    content = (path / "code").read_bytes()
    match damage:
        case "truncated":
            (path / "code").write_bytes(content[:-1])
        case "flipped":
            (path / "code").write_bytes(bytes([content[0] ^ 1]) + content[1:])
        case "missing":
            (path / "weights").unlink()
        case "unlisted":
            text = (path / "package.json").read_text()
            (path / "package.json").write_text(
                text.replace('"key":"', '"key":"0').replace('"key": "', '"key": "0')
            )
        case "no list":
            (path / "package.json").unlink()
        case "bad list":
            (path / "package.json").write_text("[1, 2")
        case "link":
            (path / "code").rename(path.parent.parent / "code")
            (path / "code").symlink_to(path.parent.parent / "code")
    assert built(adapter) == path
    assert adapter.builds == 2
    assert (path / "code").read_bytes() == content
    assert not (path / "code").is_symlink()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        ("unsupported", UnsupportedError, "no such operator"),
        ("full", DoesNotFitError, "cannot keep compiled models: No space left on device"),
        ("nothing", FormatError, "expected files of the adapter `toy`, which builds ahead, received none"),
        ("folder", FormatError, "received `more`"),
        ("link", FormatError, "received `more`"),
        ("deep link", FormatError, "received `more/link`"),
        ("name", FormatError, "received `more/a b`"),
        ("deep", FormatError, "received `a/b/c/d/e/f/g/h/code`"),
    ],
)
def test_what_could_not_be_built_leaves_nothing(
    folder: Path, fault: str, error: type[GraphboxError], text: str
) -> None:
    with pytest.raises(error, match=text):
        built(Compiler(fault))
    assert list(folder.iterdir()) == []
    assert built(Compiler()).exists()


def test_a_folder_that_others_may_write_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(
        FormatError, match="expected a folder that only you can write, received mode drwxrwxrwx"
    ):
        built(Compiler())


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    folder.write_text("a file")
    with pytest.raises(GraphboxError, match="cannot keep compiled models") as caught:
        built(Compiler())
    assert caught.value.where == str(folder)
    assert FOLDER_VARIABLE in (caught.value.hint or "")


def _build_in_a_process(fault: str) -> None:
    built(Compiler(fault), bytes(1 << 20))


def test_a_process_that_is_killed_while_it_builds_leaves_no_package(folder: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_build_in_a_process, args=("slow",))
    process.start()
    deadline = time.monotonic() + SLOW_S / 2
    while not list(folder.glob(".*.partial/code")):
        assert time.monotonic() < deadline, "the process did not begin to build"
        time.sleep(0.05)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    (left,) = folder.iterdir()
    assert left.name.endswith(".partial")
    adapter = Compiler()
    path = built(adapter, bytes(1 << 20))
    assert adapter.builds == 1
    assert path.exists()
    assert left.exists()  # it could be of a process that still builds
    a_day_ago = time.time() - 25 * 3600
    os.utime(left, (a_day_ago, a_day_ago))
    built(adapter, b"other")
    assert not left.exists()


def test_processes_that_build_the_same_do_not_meet(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_build_in_a_process, args=("",)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SLOW_S)
        assert process.exitcode == 0
    (path,) = folder.iterdir()
    assert (path / "code").read_bytes() == bytes(1 << 20)


def test_packages_that_nobody_uses_are_removed() -> None:
    adapter = Compiler()
    old, used = built(adapter, b"old"), built(adapter, b"used")
    long_ago = time.time() - 31 * 24 * 3600
    for path in (old, used):
        os.utime(path / "package.json", (long_ago, long_ago))
    assert built(adapter, b"used") == used
    built(adapter, b"new")
    assert used.exists()
    assert not old.exists()


def test_without_the_variable_they_are_in_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert packages_folder() == tmp_path / "graphbox" / "packages"


@pytest.mark.parametrize("name", ["openvino", "iree"])
def test_a_package_answers_as_the_model_says(name: str) -> None:
    from graphbox.deploy import open_program

    for _ in range(2):
        with open_program(name, sum_model(), Options()).program as program:
            assert program.inputs == (TensorSpec(name="x", datatype="FP32", shape=(-1, 3)),)
            x = np.arange(6, dtype=np.float32).reshape(2, 3)
            np.testing.assert_array_equal(program.run({"x": x})["result"], 2 * x)
