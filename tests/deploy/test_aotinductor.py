"""Models compiled by PyTorch: an encoder from ids to embeddings, packages, threads and refusals."""

from __future__ import annotations

import concurrent.futures
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from graphbox.artifact import Artifact, inspect_onnx
from graphbox.deploy import Options, choose, open_encoder
from graphbox.deploy.adapters import aotinductor
from graphbox.deploy.building import BuiltPackage, build_package
from graphbox.deploy.conformance_models import OPERATORS
from graphbox.deploy.nearest.exact import RANKING_MODEL
from graphbox.deploy.program import CheckedProgram, compile_model
from graphbox.errors import BackendMissingError, InvalidRequestError, UnsupportedError
from graphbox.export.onnx_operators import TORCH_OPERATORS
from graphbox.package_folder import FOLDER_VARIABLE
from tests.artifact.sample_model import SampleModel, write_encoder
from tests.export.test_onnx_to_torch import NUMBERS, VALUES, model_of_node

pytestmark = pytest.mark.slow  # a model takes 10 s to compile


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the packages of this module, so that each model is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("aotinductor")
        patch.setenv(FOLDER_VARIABLE, str(folder))
        yield folder


@pytest.fixture(scope="module")
def version(sample: SampleModel, packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_encoder(tmp_path_factory.mktemp("models") / "1", sample)


@pytest.fixture(scope="module")
def built(version: Artifact, packages: Path) -> BuiltPackage:
    return build_package(version.path, "aotinductor", out=packages / "files")


@pytest.fixture(scope="module")
def total(packages: Path) -> Iterator[CheckedProgram]:
    """The program ``x + y`` for one thread."""
    adapter, device = choose("aotinductor")
    model = next(each for each in OPERATORS if each.name == "Add").model()
    with compile_model(adapter, model, device, Options(threads=1)) as program:
        yield program


@pytest.mark.usefixtures("built")
def test_an_encoder_answers_as_with_onnx_runtime(version: Artifact, sample: SampleModel) -> None:
    with open_encoder(version.path, target="aotinductor") as compiled, open_encoder(version.path) as usual:
        for nodes in ([], [3], [0, 1], list(range(40)) * 2):
            ids = [sample.ids["package"][node] for node in nodes]
            found = compiled.encode(ids)
            np.testing.assert_allclose(found, usual.encode(ids), atol=1e-5)
            np.testing.assert_allclose(found, sample.encode(nodes), atol=1e-5)


def test_the_exported_program_is_the_model(built: BuiltPackage, version: Artifact) -> None:
    assert set(built.files) == {"compiled.pt2", "model.pt2", "sizes.json"}
    program = torch.export.load(Path(built.folder) / "model.pt2").module()
    inputs = inspect_onnx(version.onnx_bytes(), "the model").inputs
    with open_encoder(version.path) as usual:
        feeds = usual.feeds(np.arange(5))
        (found,) = program(*[torch.from_numpy(feeds[name]) for name in inputs])
        np.testing.assert_allclose(found.numpy(), usual.encode_indices(np.arange(5)), atol=1e-5)


def test_the_files_hold_no_pickles(built: BuiltPackage) -> None:
    for name in ("compiled.pt2", "model.pt2"):
        with zipfile.ZipFile(Path(built.folder) / name) as archive:
            for entry in archive.infolist():
                assert not archive.read(entry).startswith((b"\x80", b"PK")), entry.filename
                if entry.filename.endswith("weights_config.json"):
                    weights = json.loads(archive.read(entry))["config"].values()
                    assert not any(weight["use_pickle"] for weight in weights)


def test_sizes_that_differ_are_refused(total: CheckedProgram) -> None:
    """The compiled program does not check them, and would read beyond the shorter input."""
    with pytest.raises(InvalidRequestError, match="expected 4 as the size of dimension 0"):
        total.run({"x": np.ones((4, 5), np.float32), "y": np.ones((3, 5), np.float32)})


def test_feeds_that_cannot_be_written(total: CheckedProgram) -> None:
    feeds = {"x": np.ones((2, 5), np.float32), "y": np.ones((2, 5), np.float32)}
    for array in feeds.values():
        array.flags.writeable = False
    assert (total.run(feeds)["result"] == 2).all()


def test_calls_of_many_threads_end(total: CheckedProgram) -> None:
    """PyTorch's pool of programs deadlocks on Python's global lock, now and then."""

    def answer(number: int) -> bool:
        values = np.full((1 + number % 5, 5), number, np.float32)
        return bool((total.run({"x": values, "y": values})["result"] == 2 * number).all())

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(answer, range(20_000)))


def test_threads_of_other_calls_stay_as_they_are(total: CheckedProgram) -> None:
    before = torch.get_num_threads()
    assert total.effective["threads"] == 1
    total.run({name: np.ones((2, 5), np.float32) for name in "xy"})
    assert torch.get_num_threads() == before


def test_supported_operators_are_those_that_are_translated() -> None:
    adapter, device = choose("aotinductor")
    assert aotinductor._operators() == set(TORCH_OPERATORS)
    support = adapter.supports(model_of_node("Det", {"x": VALUES}), device)
    assert (support.supported, support.reason) == (
        False,
        "no torch function is known for the operators Det",
    )


def test_refusals_of_the_compiler_have_its_reason(tmp_path: Path) -> None:
    adapter, device = choose("aotinductor")
    model = model_of_node("Squeeze", {"x": VALUES[:, None]})
    assert adapter.supports(model, device).supported
    with pytest.raises(UnsupportedError, match="Squeeze: without axes"):
        adapter.build(model, device, Options(), tmp_path)


def test_shapes_of_inputs_are_refused_without_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each encoder is opened with a ranking, whose number of results is an input, on the same target."""
    adapter, device = choose("aotinductor")
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    for model in (RANKING_MODEL, model_of_node("Reshape", {"x": VALUES, "y": NUMBERS[0]})):
        with pytest.raises(UnsupportedError, match="expected a constant as input 1"):
            adapter.build(model, device, Options(), tmp_path)


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [("no-such-compiler", "is not in PATH"), ("false", "`false` failed"), ("true", "does not load")],
)
def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, compiler: str, reason: str) -> None:
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(BackendMissingError, match=reason):
        choose("aotinductor")
