"""The bundled graph through every stage, from the wheel, asked over HTTP and looked at in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.http

if TYPE_CHECKING:
    from tests.e2e.conftest import Demo, Installation

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # the first test waits for the whole demo

BASELINES_OF_COMPANION = {
    "popular",
    "popular_within_category",
    "adamic_adar",
    "personalized_pagerank",
    "user_knn",
}


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (loopback)
        return json.load(answer)


def modules_of_the_checkout() -> int:
    """Return how many modules and packages the wheel must hold."""
    folders = [ROOT / name for name in ("graphbox", "deploy", "compress", "server")]
    files = {path.resolve() for folder in folders for path in folder.rglob("*.py")}
    native = list((ROOT / "graphbox").glob("_*.pyi"))
    return len(files) - 1 + len(native)  # the root package is not counted


def test_the_wheel_holds_page_data_and_all_packages(installation: Installation) -> None:
    program = f"""
import importlib, importlib.resources as r, pkgutil
import graphbox, graphbox._core, graphbox.server

names = [m.name for m in pkgutil.walk_packages(graphbox.__path__, "graphbox.")]
assert len(names) == {modules_of_the_checkout()}, len(names)
for name in names:
    if name not in ("graphbox.__main__", "graphbox.migrations.env"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:  # kernels need graphbox[gpu], the plugin of pytest needs pytest
            if error.name not in ("triton", "pytest"):
                raise
static = r.files("graphbox.server") / "static"
assert (static / "index.html").is_file()
assert any(True for _ in (static / "assets").iterdir())
page = r.files("graphbox.deploy") / "browser_page"
assert (page / "index.html").is_file()
assert [file.name for file in (page / "assets").iterdir() if file.name.endswith(".wasm")]
assert (r.files("graphbox.demo") / "depends.parquet").is_file()
assert (r.files("graphbox.demo") / "graphbox.yaml").is_file()
assert not (r.files("graphbox") / "csrc").is_dir()
print(graphbox.server.__file__)
"""
    done = subprocess.run(
        [str(installation.python), "-c", program],
        cwd=installation.environment,
        env=installation.variables(),
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.startswith(str(installation.environment))


def test_the_models_learned_something(demo: Demo) -> None:
    section = demo.document["metrics"]["section"]["skipgram"]
    companion = demo.document["metrics"]["companion"]["sage"]
    assert section["accuracy"] >= 0.75
    assert companion["recall@20"] >= 0.34
    assert companion["ndcg@20"] >= 0.24


def test_every_report_shows_trivial_baselines(demo: Demo) -> None:
    assert set(demo.document["baselines"]["companion"]) >= BASELINES_OF_COMPANION
    assert set(demo.document["baselines"]["section"]) >= {"majority", "neighbors_vote"}


def test_compression_is_smaller_within_the_allowed_drop(demo: Demo) -> None:
    (report,) = demo.document["compress"].values()
    assert report["size_bytes"]["after"] < 0.5 * report["size_bytes"]["before"]
    assert report["metric"]["drop"] <= report["metric"]["max_drop"]


def test_stages_report_seconds_and_peak_bytes(demo: Demo) -> None:
    for stage in demo.document["stages"]:
        assert stage["seconds"] > 0
        assert stage["peak_bytes"] > 0


def test_running_again_repeats_nothing_and_prints_the_same_document(
    installation: Installation, demo: Demo
) -> None:
    run_file = next(installation.environment.glob("lib/python3*/site-packages/graphbox/demo/graphbox.yaml"))
    again = installation.run("-C", str(demo.workspace), "--json", "run", str(run_file))
    assert json.loads(again.stdout)["metrics"] == demo.document["metrics"]


def test_neighbours_of_nginx_have_original_ids(server_url: str) -> None:
    model = next(m["name"] for m in get(f"{server_url}/api/v1/models") if "companion" in m["name"])
    answer = get(f"{server_url}/api/v1/models/{model}/neighbors?type=package&id=nginx&k=10")
    assert len(answer["neighbors"]) == 10
    assert {"id", "type", "score"} <= set(answer["neighbors"][0])
    scores = [n["score"] for n in answer["neighbors"]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("binary", [False, True])
def test_tritonclient_gets_the_same_embeddings_as_json_and_binary(server_url: str, binary: bool) -> None:
    with tritonclient.http.InferenceServerClient(server_url.removeprefix("http://")) as client:
        name = next(m["name"] for m in get(f"{server_url}/api/v1/models") if "companion" in m["name"])
        ids = tritonclient.http.InferInput("id", [2], "BYTES")
        ids.set_data_from_numpy(np.array([b"nginx", b"vim"], dtype=object), binary_data=binary)
        output = tritonclient.http.InferRequestedOutput("embedding", binary_data=binary)
        embedding = client.infer(name, [ids], outputs=[output]).as_numpy("embedding")
    assert embedding is not None
    assert embedding.shape[0] == 2
    assert np.isfinite(embedding).all()


def test_the_page_in_a_real_browser(server_url: str, node_variables: dict[str, str]) -> None:
    if shutil.which("chromium") is None:
        pytest.fail("chromium is missing: apt-get install chromium")
    done = subprocess.run(
        ["npm", "--prefix", str(ROOT / "web"), "run", "e2e"],  # noqa: S607 (npm of the set-up)
        env={**node_variables, "GRAPHBOX_URL": server_url},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def test_no_file_was_written_beside_the_workspace(demo: Demo) -> None:
    assert {path.name for path in Path(demo.workspace.parent).iterdir()} <= {"workspace", "server.log"}
