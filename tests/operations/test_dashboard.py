"""The Grafana dashboard asks for metrics and labels that a running server has."""

from __future__ import annotations

import json
import re
from typing import Any

import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.operations.manifests import OPERATIONS
from tests.server.sample_models import build_workspace
from tests.server.server_process import start_process

DASHBOARD: dict[str, Any] = json.loads((OPERATIONS / "grafana" / "graphbox.json").read_text())
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
# Given by Prometheus to every sample that it scrapes.
SCRAPE_LABELS = {"job", "instance"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def parsed(expression: str) -> promql_parser.Expr:
    """Return an expression with its variables replaced as Grafana does it."""
    return promql_parser.parse(re.sub(r"\[\$__rate_interval\]", "[1m]", expression))


def asked_labels(expression: promql_parser.Expr) -> dict[str, set[str]]:
    """Return for each metric the labels that an expression selects or groups by."""
    asked: dict[str, set[str]] = {}

    def visit(node: Any, grouped: set[str]) -> None:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            grouped = grouped | set(node.modifier.labels)
        if isinstance(node, promql_parser.VectorSelector):
            matched = {matcher.name for matcher in node.matchers.matchers}
            asked.setdefault(str(node.name), set()).update(matched | grouped)
        for name in ("lhs", "rhs", "expr", "vector_selector", "args"):
            inner = getattr(node, name, None)
            for each in inner if isinstance(inner, list) else [inner]:
                if each is not None:
                    visit(each, grouped)

    visit(expression, set())
    return asked


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Name of each metric of a server after requests, and the labels of its samples."""
    folder = tmp_path_factory.mktemp("dashboard")
    workspace = build_workspace(folder / "debian").root
    server = start_process({"port": 0, "workspace": workspace}, folder / "server.log")
    try:
        server.wait_until_ready()
        with server.client() as client:
            for example in workspace.glob("models/*/1/example_request.json"):
                name = example.parts[-3]
                answer = client.post(f"/v2/models/{name}/infer", content=example.read_bytes())
                assert answer.status_code == 200, answer.text
            text = client.get("/metrics").text
    finally:
        server.stop()
        assert server.process.stdout is not None
        server.process.stdout.close()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for suffix in SUFFIXES.get(family.type, [""]):
            name = family.name + suffix
            labels = [set(sample.labels) for sample in family.samples if sample.name == name]
            found[name] = set.union(*labels) if labels else set()
    return found


@pytest.mark.parametrize("expression", expressions())
def test_metrics_and_labels_exist(expression: str, metrics: dict[str, set[str]]) -> None:
    asked = asked_labels(parsed(expression))
    assert asked
    for name, labels in asked.items():
        assert name in metrics
        if metrics[name]:  # those without a sample show no labels
            assert labels - SCRAPE_LABELS <= metrics[name]


def test_variables_ask_for_metrics_that_exist(metrics: dict[str, set[str]]) -> None:
    queries = [each["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    matches = [re.fullmatch(r"label_values\((\w+), (\w+)\)", query) for query in queries]
    assert len(matches) == 2
    for match in matches:
        assert match is not None
        assert match[1] in metrics
        assert match[2] in metrics[match[1]] | SCRAPE_LABELS


def test_legends_name_labels_that_are_left() -> None:
    for panel in panels():
        for target in panel["targets"]:
            labels = set().union(*asked_labels(parsed(target["expr"])).values())
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert named <= labels | SCRAPE_LABELS | {"worker"}


def test_panels_are_beside_one_another() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_names_of_variables_are_those_used() -> None:
    defined = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", " ".join(expressions()))) - {"__rate_interval"}
    assert used <= defined
    assert (OPERATIONS / "grafana" / "graphbox.json").read_text().endswith("}\n")
