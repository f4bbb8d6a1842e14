"""Pages of browser bundles answer in a real browser as graphbox does in Python."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import Artifact, FieldsForm, FieldSpec, TensorsForm, TriplesForm
from graphbox.deploy import DeployedEncoder, DeployedTensors, open_click, open_knowledge_graph, open_model
from graphbox.deploy.building import build_package
from tests.artifact.sample_model import make_model, write_embedding, write_encoder
from tests.deploy.browser_models import write_classifier, write_large_graph, write_rows
from tests.deploy.form_models import WRITERS, write_click_of_histories, write_click_of_labels

ROOT = Path(__file__).resolve().parents[2]
FORMATS = ROOT / "tests/formats/artifact-1"
QUERIES, NEAREST = 20, 10
REQUESTS = 60
TOLERANCE = 1e-5
BROWSER_TIMEOUT_S = 240

is_built = (ROOT / "deploy/browser_page/index.html").exists()


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
                    "tolerance": TOLERANCE,
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
    return {"bundle": bundle, "outputs": outputs, "tolerance": TOLERANCE}


def random_row(fields: Sequence[FieldSpec], random: np.random.Generator) -> tuple[dict[str, Any], list[str]]:
    """Return a row as a client writes it in JSON, and the texts that a visitor writes.

    Values are known, new or missing.
    """
    row: dict[str, Any] = {}
    texts = []
    for field in fields:
        value, text = _random_value(field, random)
        row[field.name] = value
        texts.append(text)
    return row, texts


def _random_value(field: FieldSpec, random: np.random.Generator) -> tuple[Any, str]:
    match field.kind:
        case "categorical":
            text = str(random.choice(["", "nl", "u3", "u6", "i1", "i5", "nobody", "7", "né 节点 " * 20]))
            return text or None, text
        case "slots":
            known: list[str | int] = ["nl", 0, 1, 2, 5, -9, 2**63 - 1, "a", "word 3", "007", "节点" * 30]
            values = [known[place] for place in random.integers(0, len(known), random.integers(0, 4))]
            return values, "|".join(map(str, values))
        case "number":
            exponent = float(random.choice([0.0, 1.0, 30.0]))
            number = float(random.standard_normal() * 10**exponent)
            return (None, " ") if random.random() < 0.2 else (number, repr(number))
        case "integer":
            integer = int(random.choice([-3, 0, 7, 10, 11, 23, 2**53 + 1, -(2**63)]))
            return integer, str(integer)
        case "boolean":
            is_true = bool(random.integers(2))
            return is_true, "true" if is_true else "false"
        case _:
            numbers = [float(each) for each in random.standard_normal(field.dim) * 4]
            return numbers, ", ".join(map(repr, numbers))


def click_answers(artifact: Artifact, bundle: str) -> dict[str, Any]:
    """Return the probabilities of random rows, and the columns of which nothing was learnt."""
    random = np.random.default_rng(5)
    form = artifact.preprocess
    assert isinstance(form, FieldsForm)
    rows, texts = zip(*(random_row(form.fields, random) for _ in range(REQUESTS)), strict=True)
    with open_click(artifact.path, "onnxruntime") as model:
        found = model.predict(rows)
    queries = [
        {
            "values": values,
            "probabilities": found.probabilities[number].tolist(),
            "unseen": found.unseen_fields(number),
        }
        for number, values in enumerate(texts)
    ]
    columns = [{"name": field.name, "kind": field.kind} for field in form.fields]
    about = {"bundle": bundle, "columns": columns, "labels": form.labels, "tolerance": TOLERANCE}
    return {**about, "queries": queries}


def graph_answers(artifact: Artifact, bundle: str) -> dict[str, Any]:
    """Return the answers to random questions about both ends of all relations."""
    random = np.random.default_rng(6)
    queries = []
    with open_knowledge_graph(artifact.path, "onnxruntime") as model:
        for _ in range(REQUESTS):
            relation = str(random.choice(model.relations))
            to_heads, with_known = (bool(each) for each in random.integers(0, 2, 2))
            asked = artifact.ids(model.end_types(relation)[to_heads])
            identifier, k = asked[int(random.integers(len(asked)))], int(random.integers(1, 15))
            (answers,) = model.answer(relation, [identifier], k, to_heads=to_heads, with_known=with_known)
            names = artifact.ids(answers.node_type).take(answers.index)
            found = zip(map(str, names), answers.score.tolist(), answers.known.tolist(), strict=True)
            question = {"relation": relation, "asked": "head" if to_heads else "tail"}
            queries.append(
                {**question, "id": str(identifier), "k": k, "known": with_known, "answers": list(found)}
            )
    return {"bundle": bundle, "tolerance": TOLERANCE, "queries": queries}


CLICKS: Mapping[str, Callable[[Path], Artifact]] = {
    "visits": WRITERS[FieldsForm],
    "histories": write_click_of_histories,
    "labels": write_click_of_labels,
    "trained-clicks": lambda _: Artifact.open(FORMATS / "click/1"),
}
GRAPHS: Mapping[str, Callable[[Path], Artifact]] = {
    "likes": WRITERS[TriplesForm],
    "trained-graph": lambda _: Artifact.open(FORMATS / "knowledge_graph/1"),
    "large-graph": write_large_graph,
}


@pytest.mark.skipif(not is_built, reason="`make web` builds the page")
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
    answers: dict[str, Any] = {"encoders": [], "tensors": [], "clicks": [], "graphs": []}
    for name, write in writers.items():
        artifact = write(tmp_path / name / "1")
        build_package(artifact.path, "browser", out=folder / name)
        answers["encoders"] += encoder_answers(artifact, name)
    bare = WRITERS[TensorsForm](tmp_path / "bare" / "1")
    build_package(bare.path, "browser", out=folder / "bare")
    answers["tensors"].append(tensors_answers(bare, "bare"))
    for name, write in (*CLICKS.items(), *GRAPHS.items()):
        artifact = write(tmp_path / name / "1")
        build_package(artifact.path, "browser", out=folder / name)
        if name in CLICKS:
            answers["clicks"].append(click_answers(artifact, name))
        else:
            answers["graphs"].append(graph_answers(artifact, name))
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
