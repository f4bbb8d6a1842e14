"""Browser bundles: what is written, what is refused, and what pages answer in a real browser."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import (
    Artifact,
    ArtifactWriter,
    FieldsForm,
    LayerSpec,
    LookupForm,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TargetSpec,
    TensorsForm,
    TensorSpec,
    TriplesForm,
)
from graphbox.compress import quantize_rows
from graphbox.deploy import (
    DeployedEncoder,
    DeployedTensors,
    Options,
    Package,
    choose,
    open_encoder,
    open_model,
    targets,
)
from graphbox.deploy.adapters import browser
from graphbox.deploy.adapters.browser import BrowserProgram
from graphbox.deploy.adapters.chromium import Chromium, PageError
from graphbox.deploy.building import build_package
from graphbox.deploy.conformance import check_adapter
from graphbox.deploy.conformance_models import sum_model
from graphbox.deploy.onnx_writer import Node, write_onnx
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
from tests.deploy.form_models import WRITERS

ROOT = Path(__file__).resolve().parents[2]
QUERIES, NEAREST = 20, 10
ROWS, DIM = 3000, 33
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


def write_rows(path: Path, codec: str) -> Artifact:
    """Write rows alone, enough for several blocks; ids are text that is markup, addresses or Chinese."""
    rows = np.random.default_rng(3).standard_normal((ROWS, DIM), np.float32)
    rows[7] = 0
    ids = [f"<i>{index}</i> & \"'?#%2F\\ 节点" for index in range(ROWS)]
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", ids)
        if codec == "int8":
            writer.add_int8_table("item", "item", *quantize_rows(rows))
        else:
            writer.add_table("item", "item", rows.astype(codec))
        writer.set_preprocess(LookupForm(node_type="item", tables={"item": "item"}))
        targets = {"item": TargetSpec(table="item", score="cosine")}
        return writer.commit(name=codec, version=1, kind="embedding", task=None, dim=DIM, targets=targets)


def write_classifier(path: Path) -> Artifact:
    """Write an encoder that gives probabilities of three classes, and has no table to rank."""
    inputs = [
        TensorSpec(name="rows", datatype="FP32", shape=(-1, 3)),
        TensorSpec(name="own", datatype="INT64", shape=(-1,)),
    ]
    outputs = [TensorSpec(name=name, datatype="FP32", shape=(-1, 3)) for name in ("embedding", "probability")]
    model = write_onnx(
        [
            Node("Gather", ["rows", "own"], ["embedding"]),
            Node("Softmax", ["embedding"], ["probability"], {"axis": 1}),
        ],
        {"rows": (np.float32, ["m", 3]), "own": (np.int64, ["n"])},
        {"embedding": (np.float32, ["n", 3]), "probability": (np.float32, ["n", 3])},
    )
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", range(-5, QUERIES))
        rows = np.random.default_rng(2).standard_normal((QUERIES + 5, 3), np.float32)
        writer.add_table("item", "item", rows)
        writer.set_onnx(model, opset=20, precision="float32", inputs=inputs, outputs=outputs)
        form = PaddedBlockForm(
            node_type="item",
            rows={"item": RowsSpec(input="rows", tables=("item",))},
            layers=(LayerSpec(groups=(), self_inputs={"item": "own"}),),
            classes=("<b>red</b>", "green", "blue"),
        )
        writer.set_preprocess(form)
        return writer.commit(name="colours", version=1, kind="encoder", task="classify", dim=3, targets={})


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
@pytest.mark.parametrize("form", [FieldsForm, TriplesForm])
def test_kinds_without_a_page_are_refused(form: type[Any], tmp_path: Path) -> None:
    artifact = WRITERS[form](tmp_path / "model" / "1")
    with pytest.raises(UnsupportedError, match=f"of kind {artifact.manifest.kind}"):
        bundle_of(artifact, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
    assert not list(tmp_path.glob(".*.partial"))


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
    monkeypatch.setattr(browser, "_MOST_FILE_BYTES", 1000)
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


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """The file server of ``python -m http.server``, without its log."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """An empty folder below a path of a plain file server, and its address."""
    folder = tmp_path / "www" / "some" / "path"
    folder.mkdir(parents=True)
    handler = functools.partial(_Quiet, directory=str(tmp_path / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/some/path/"
        server.shutdown()
        thread.join()


def encoder_answers(artifact: Artifact, bundle: str) -> list[dict[str, Any]]:
    """Return what graphbox answers to some ids of each type, as the test in the browser reads it."""
    answers = []
    with open_model(artifact.path, "onnxruntime") as model:
        assert isinstance(model, DeployedEncoder)
        for node_type in model.query_types:
            ids = list(model.id_index(node_type))
            asked = ids[:: max(1, len(ids) // QUERIES)][:QUERIES]
            queries = []
            for identifier in asked:
                found: dict[str, Any] = {"id": str(identifier), "neighbors": [], "classes": []}
                if node_type in model.manifest.targets:
                    k = min(NEAREST, len(model.id_index(model.target_type(node_type))) - 1)
                    index, score = model.neighbors([identifier], k, node_type=node_type)
                    names = map(str, model.ids(index[0], model.target_type(node_type)))
                    found["neighbors"] = list(zip(names, score[0].tolist(), strict=True))
                if model.classes:
                    _, probability = model.classify_indices(model.index([identifier]))
                    order = np.argsort(-probability[0])
                    found["classes"] = [[model.classes[i], float(probability[0, i])] for i in order]
                queries.append(found)
            target = model.target_type(node_type) if node_type in model.manifest.targets else ""
            answers.append(
                {
                    "bundle": bundle,
                    "type": node_type,
                    "target": target,
                    "tolerance": 1e-5,
                    "queries": queries,
                }
            )
    return answers


def tensors_answers(artifact: Artifact, bundle: str) -> dict[str, Any]:
    """Return what graphbox computes from the example of a bare model."""
    with open_model(artifact.path, "onnxruntime") as model:
        assert isinstance(model, DeployedTensors)
        outputs = [
            {
                "title": f"{spec.name}: {spec.datatype} [{', '.join(map(str, value.shape))}]",
                "values": value.reshape(-1).tolist(),
            }
            for spec, value in zip(model.outputs, model.run(model.example_feeds()).values(), strict=True)
        ]
    return {"bundle": bundle, "outputs": outputs, "tolerance": 1e-5}


@with_page
@pytest.mark.browser
@pytest.mark.slow
def test_pages_answer_as_graphbox_does(site: tuple[Path, str], tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        pytest.fail("chromium is missing: apt-get install chromium")
    folder, address = site
    writers: dict[str, Callable[[Path], Artifact]] = {
        "float32": lambda path: write_rows(path, "float32"),
        "float16": lambda path: write_rows(path, "float16"),
        "int8": lambda path: write_rows(path, "int8"),
        "types": lambda path: write_embedding(path, make_model(tags=30)),
        "encoder": lambda path: write_encoder(path, make_model(id_kind="int64")),
        "classifier": write_classifier,
    }
    answers: dict[str, Any] = {"encoders": [], "tensors": []}
    for name, write in writers.items():
        artifact = write(tmp_path / name / "1")
        bundle_of(artifact, folder / name)
        answers["encoders"] += encoder_answers(artifact, name)
    bare = WRITERS[TensorsForm](tmp_path / "bare" / "1")
    bundle_of(bare, folder / "bare")
    answers["tensors"].append(tensors_answers(bare, "bare"))
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    done = subprocess.run(
        ["npm", "--prefix", str(ROOT / "web"), "run", "e2e"],  # noqa: S607 (npm of the set-up)
        env={
            **os.environ,
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "GRAPHBOX_URL": address,
            "GRAPHBOX_BUNDLE_ANSWERS": str(tmp_path / "answers.json"),
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=BROWSER_TIMEOUT_S,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
