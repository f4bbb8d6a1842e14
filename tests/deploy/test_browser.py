"""Browser bundles: their files, refusals, and programs in a real browser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import (
    Artifact,
    FieldsForm,
    LayerSpec,
    LookupForm,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TensorsForm,
    TriplesForm,
)
from graphbox.deploy import (
    Options,
    Package,
    choose,
    open_encoder,
    open_model,
    targets,
)
from graphbox.deploy.adapters import browser, browser_bundle
from graphbox.deploy.adapters.browser import BrowserProgram
from graphbox.deploy.adapters.browser_bundle import write_bundle
from graphbox.deploy.adapters.chromium import Chromium, PageError
from graphbox.deploy.building import build_package
from graphbox.deploy.conformance import check_adapter
from graphbox.deploy.conformance_models import sum_model
from graphbox.errors import (
    BackendMissingError,
    ConflictError,
    FormatError,
    GraphboxError,
    UnsupportedError,
    UsageError,
)
from graphbox.package_folder import FOLDER_VARIABLE
from tests.artifact.sample_model import make_model, write_embedding, write_encoder
from tests.deploy.browser_models import write_rows
from tests.deploy.form_models import WRITERS

ROOT = Path(__file__).resolve().parents[2]
QUERIES, NEAREST = 20, 10
VARIABLE = "GRAPHBOX_CHROMIUM"
BROWSER_TIMEOUT_S = 240

is_built = (ROOT / "deploy/browser_page/index.html").exists()
with_page = pytest.mark.skipif(not is_built, reason="`make web` builds the page")


@pytest.fixture(autouse=True)
def no_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "packages"))


def bundle_of(artifact: Artifact, folder: Path) -> dict[str, Any]:
    """Build the bundle of a model version; return its description."""
    build_package(artifact.path, "browser", out=folder)
    description: dict[str, Any] = json.loads((folder / "bundle.json").read_text())
    return description


@with_page
def test_rows_are_bundled_as_they_are_stored_and_without_a_runtime(tmp_path: Path) -> None:
    artifact = write_rows(tmp_path / "rows" / "1", "int8")
    description = bundle_of(artifact, tmp_path / "bundle")
    files = description["files"]
    assert set(files) == {"ids/0.json", "tables/item/codes.npy", "tables/item/scale_bias.npy"}
    for name, size in files.items():
        assert (tmp_path / "bundle" / name).stat().st_size == size
    for name in files.keys() - {"ids/0.json"}:
        assert (tmp_path / "bundle" / name).read_bytes() == (artifact.path / name).read_bytes()
    assert json.loads((tmp_path / "bundle/ids/0.json").read_text()) == list(artifact.ids("item"))
    assert description["digest"] == artifact.manifest.digest
    assert not list((tmp_path / "bundle").rglob("*.wasm"))
    assert not list(tmp_path.glob(".*.partial"))


@pytest.mark.parametrize("codec", ["int2_rotated", "int4_rotated"])
def test_rows_in_codecs_that_the_page_does_not_read_become_int8(tmp_path: Path, codec: str) -> None:
    artifact = write_rows(tmp_path / "rows" / "1", codec)
    folder = tmp_path / "bundle"
    folder.mkdir()
    write_bundle(artifact, folder)
    description = json.loads((folder / "bundle.json").read_text())
    assert set(description["files"]) == {
        "ids/0.json",
        "tables/item/codes.npy",
        "tables/item/scale_bias.npy",
    }
    table = description["tables"]["item"]
    assert table["codec"] == "int8_rowwise"
    codes, factors = (np.load(folder / table[name]) for name in ("values", "factors"))
    stored = artifact.table("item").block(0, table["rows"])
    found = codes * factors[:, :1].astype(np.float32) + factors[:, 1:].astype(np.float32)
    assert np.linalg.norm(found - stored) < 0.01 * np.linalg.norm(stored)


@with_page
def test_an_encoder_is_bundled_without_what_a_page_does_not_read(tmp_path: Path) -> None:
    artifact = write_encoder(tmp_path / "encoder" / "1", make_model())
    description = bundle_of(artifact, tmp_path / "bundle")
    assert "model.onnx" in description["files"]
    assert len(list((tmp_path / "bundle").rglob("*.wasm"))) == 1
    assert set(description["ids"]) == {"package"}  # those of tags are neither asked for nor shown
    written = "".join(file.read_text() for file in (tmp_path / "bundle").glob("*.json"))
    assert "run-1" not in written  # names of runs and graphs stay here
    assert "recall" not in written


@with_page
def test_without_a_browser_models_are_not_run(tmp_path: Path) -> None:
    (target,) = targets("browser")
    assert target.available
    assert target.reason == "builds files; GRAPHBOX_CHROMIUM names no browser to run them"
    path = write_encoder(tmp_path / "encoder" / "1", make_model()).path
    with pytest.raises(UnsupportedError, match="GRAPHBOX_CHROMIUM names no browser"):
        open_model(path, "browser")


@with_page
def test_a_browser_that_is_not_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "absent"))
    (target,) = targets("browser")
    assert target.reason is not None
    assert "names a browser that is not there" in target.reason
    monkeypatch.setenv(VARIABLE, "/bin/true")  # ends at once
    adapter, device = choose("browser")
    with pytest.raises(GraphboxError, match="Chromium ended"):
        adapter.load(Package(sum_model(), device, Options()))


@pytest.fixture
def chromium(monkeypatch: pytest.MonkeyPatch) -> str:
    """The browser of this machine, named to the adapter."""
    found = shutil.which("chromium")
    if found is None:
        pytest.fail("chromium is missing: apt-get install chromium")
    monkeypatch.setenv(VARIABLE, found)
    return found


@with_page
@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.usefixtures("chromium")
def test_the_conformance_kit_in_a_browser() -> None:
    report = check_adapter("browser", cycles=50)
    assert [case for case in report.cases if case.outcome == "failed"] == []
    assert [case.case for case in report.cases if case.outcome == "refused"] == ["operator TopK"]


@with_page
@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
def test_an_encoder_in_a_browser_answers_as_onnxruntime_does(tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "encoder" / "1", make_model()).path
    with open_encoder(path, "browser") as there, open_encoder(path, "onnxruntime") as here:
        ids = list(here.id_index())[:QUERIES]
        assert there.effective["runtime"].startswith("onnxruntime-web ")
        np.testing.assert_allclose(there.encode(ids), here.encode(ids), atol=1e-5)
        assert (there.neighbors(ids, NEAREST)[0] == here.neighbors(ids, NEAREST)[0]).all()


@with_page
@pytest.mark.browser
def test_a_browser_reaches_its_page_alone_and_is_started_again_when_it_ended(chromium: str) -> None:
    started = Chromium(chromium, ROOT / "deploy/browser_page", "runner.html")
    try:
        fetches = "(address => fetch(address).then(() => 'an answer', () => 'refused'))"
        for address in ("https://example.org/", "https://page.invalid/../conformance.py"):
            assert started.call(fetches, address) == "refused"
        with pytest.raises(PageError, match="undefined"):
            started.call("graphbox.absent.name")
    finally:
        started.close()
    adapter, device = choose("browser")
    program = adapter.load(Package(sum_model(), device, Options()))
    assert isinstance(program, BrowserProgram)
    program._chromium.close()  # as when it was killed for memory
    with pytest.raises(GraphboxError, match="Chromium ended"):
        program.run({"x": np.ones((2, 3), np.float32)})
    program.close()
    again = adapter.load(Package(sum_model(), device, Options()))
    assert again.run({"x": np.ones((2, 3), np.float32)})["result"].tolist() == [[2.0] * 3] * 2
    again.close()


@with_page
@pytest.mark.parametrize("form", WRITERS)
def test_every_form_has_a_page(form: type[Any], tmp_path: Path) -> None:
    artifact = WRITERS[form](tmp_path / "model" / "1")
    description = bundle_of(artifact, tmp_path / "bundle")
    assert description["form"]["form"] == artifact.preprocess.form
    files = {str(file.relative_to(tmp_path / "bundle")) for file in (tmp_path / "bundle").glob("*/**/*.npy")}
    assert files <= set(description["files"])
    for name, size in description["files"].items():
        assert (tmp_path / "bundle" / name).stat().st_size == size


@with_page
def test_the_example_of_a_row_is_what_a_visitor_would_write(tmp_path: Path) -> None:
    artifact = WRITERS[FieldsForm](tmp_path / "model" / "1")
    inputs = artifact.example_inputs()
    inputs[3]["data"] = [float(np.float32(0.1)), 1.0]
    artifact.example_inputs = lambda: inputs  # type: ignore[method-assign]
    browser.adapter.bundle(artifact, choose("browser")[1], Options(), tmp_path)
    description = json.loads((tmp_path / "bundle.json").read_text())
    found = {each["name"]: each["data"] for each in description["example"]}
    assert found == {"country": ["nl"], "tags": ["1|2"], "age": ["7"], "price": ["0.1"]}
    assert "positive_rate" not in description["form"]
    inputs[0]["data"] = 7
    with pytest.raises(FormatError, match="a list of values for `country`, received int"):
        browser.adapter.bundle(artifact, choose("browser")[1], Options(), tmp_path)


@with_page
def test_known_links_are_bundled_by_relation(tmp_path: Path) -> None:
    description = bundle_of(WRITERS[TriplesForm](tmp_path / "model" / "1"), tmp_path / "bundle")
    assert description["links"] == {"likes": "links/0.npy"}
    pairs = np.load(tmp_path / "bundle/links/0.npy")
    assert pairs.dtype == np.int32
    assert pairs.tolist() == [[0, 1], [1, 2], [2, 3]]  # those that were held out, too


@with_page
def test_a_model_adds_no_page_of_its_own(tmp_path: Path) -> None:
    form = LookupForm(node_type="item", tables={"item": "item"})
    artifact = write_rows(tmp_path / "rows" / "1", "float32")
    group = RelationGroup(
        edge_types=(("item", "to", "item"),),
        counts="index.html",
        neighbors="neighbors.npy",
        neighbors_input="n",
        weights_input="w",
    )
    assert artifact.preprocess == form
    rows = RowsSpec(input="rows", tables=("item",))
    artifact.preprocess = PaddedBlockForm(
        node_type="item", rows={"item": rows}, layers=(LayerSpec(groups=(group,)),)
    )
    artifact.manifest.files["index.html"] = artifact.manifest.files["preprocess.json"]
    (tmp_path / "bundle").mkdir()
    with pytest.raises(FormatError, match=r"received index\.html"):
        browser.adapter.bundle(artifact, choose("browser")[1], Options(), tmp_path / "bundle")


@with_page
def test_example_inputs_that_json_cannot_write_are_text(tmp_path: Path) -> None:
    artifact = WRITERS[TensorsForm](tmp_path / "model" / "1")
    inputs = [
        {"name": "rows", "shape": [1, 2], "data": [float("nan"), float("-inf")]},
        {"name": "positions", "shape": [1], "data": [2**53 + 1]},
    ]
    artifact.example_inputs = lambda: inputs  # type: ignore[method-assign]
    browser.adapter.bundle(artifact, choose("browser")[1], Options(), tmp_path)
    description = json.loads((tmp_path / "bundle.json").read_text())
    assert [example["data"] for example in description["example"]] == [["NaN", "-Infinity"], [str(2**53 + 1)]]


@with_page
def test_a_new_folder_is_needed(tmp_path: Path) -> None:
    path = write_embedding(tmp_path / "model" / "1", make_model()).path
    with pytest.raises(UsageError, match="expected a folder"):
        build_package(path, "browser")
    with pytest.raises(ConflictError, match="does not exist"):
        build_package(path, "browser", out=tmp_path)


@with_page
def test_files_that_no_browser_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_bundle, "_MOST_FILE_BYTES", 1000)
    artifact = write_rows(tmp_path / "rows" / "1", "float32")
    with pytest.raises(UnsupportedError, match="at most 1000 bytes") as raised:
        bundle_of(artifact, tmp_path / "bundle")
    assert raised.value.where == "tables/item/rows.npy"
    assert not list(tmp_path.glob(".*.partial"))


def test_a_page_that_was_not_built_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(BackendMissingError, match="is not built: `make web`"):
        browser._Page(tmp_path)


@with_page
def test_the_page_allows_no_other_host_and_no_evaluated_text() -> None:
    page = (ROOT / "deploy/browser_page/index.html").read_text()
    assert "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'" in page
    assert "://" not in page
