"""`graphbox init`: each template, filled in, goes from tables to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.cli.init import Template
from graphbox.config import load_config
from tests.cli.conftest import Call

# No setting of a model, so that its defaults are those of the code.
NAMED = {"kind", "task", "train_on", "validate_first"}


def write(path: Path, header: str, rows: list[str]) -> None:
    path.write_text("\n".join([header, *rows]) + "\n")


def graph_tables(folder: Path) -> None:
    """Write 90 nodes of 3 labels, with a number that hints at the label, linked within it."""
    generator = np.random.default_rng(0)
    write(
        folder / "my_nodes.csv",
        "name,kind,size",
        [f"n{number},k{number % 3},{number % 3 + generator.normal():.3f}" for number in range(90)],
    )
    pairs = {(one, (one + 3 * step) % 90) for one in range(90) for step in (1, 2, 5)}
    write(folder / "my_edges.csv", "from,to", [f"n{one},n{other}" for one, other in sorted(pairs)])


def choice_tables(folder: Path) -> None:
    """Write choices of 60 users among 40 items of 4 tastes."""
    generator = np.random.default_rng(0)
    taken = {
        (user, 4 * int(item) + user % 4)
        for user in range(60)
        for item in generator.choice(10, 6, replace=False)
    }
    write(folder / "my_choices.csv", "who,what", [f"u{user},i{item}" for user, item in sorted(taken)])


def event_tables(folder: Path) -> None:
    """Write events of 60 users, who mostly take the items in their order."""
    generator = np.random.default_rng(0)
    rows = []
    for user in range(60):
        item = int(generator.integers(0, 20))
        for at in range(8):
            rows.append(f"u{user},i{item},{at}")
            item = (item + 1 + int(generator.random() < 0.2)) % 20
    write(folder / "my_events.csv", "who,what,at", rows)


def log_tables(folder: Path) -> None:
    """Write 400 impressions, clicked where the offer is cheap."""
    generator = np.random.default_rng(0)
    prices = generator.random(400)
    write(
        folder / "my_log.csv",
        "hit,price,shop",
        [
            f"{int(price + generator.normal() / 5 < 0.4)},{price:.3f},s{int(price * 999) % 7}"
            for price in prices
        ],
    )


def fact_tables(folder: Path) -> None:
    """Write facts about 60 people: who is next to whom, and, by that, who is near whom."""
    facts = [f"e{one},next,e{(one + 1) % 60}" for one in range(60)]
    facts += [f"e{one},near,e{(one + 2) % 60}" for one in range(60)]
    facts += [f"e{(one + 2) % 60},near,e{one}" for one in range(60)]
    write(folder / "my_facts.csv", "subject,verb,object", facts)


EDGES = {"edges.csv": "my_edges.csv", "source: source": "source: from", "target: target": "target: to"}
FILLED: dict[str, tuple[Any, dict[str, str]]] = {
    "walk": (graph_tables, EDGES),
    "classify": (
        graph_tables,
        {
            **EDGES,
            "nodes.csv": "my_nodes.csv",
            "id: id ": "id: name ",
            "label: categorical": "{kind: categorical, size: number}",
            "label: label": "label: kind",
        },
    ),
    "click": (
        log_tables,
        {
            "log.csv": "my_log.csv",
            "label: boolean": "{hit: boolean, price: number, shop: categorical}",
            "label: label": "label: hit",
        },
    ),
    "knowledge": (
        fact_tables,
        {
            "links.csv": "my_facts.csv",
            "source: head": "source: subject",
            "target: tail": "target: object",
            "relation: categorical": "verb: categorical",
            "relation_feature: relation": "relation_feature: verb",
        },
    ),
    "next": (
        event_tables,
        {
            "events.csv": "my_events.csv",
            "source: user": "source: who",
            "target: item\n": "target: what\n",
            "timestamp: time": "timestamp: at",
        },
    ),
    "recommend": (
        choice_tables,
        {"choices.csv": "my_choices.csv", "source: user": "source: who", "target: item": "target: what"},
    ),
}


def fill_in(path: Path, changes: dict[str, str]) -> None:
    text = path.read_text()
    for old, new in changes.items():
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.parametrize("template", sorted(FILLED))
def test_filled_in_it_runs(template: str, folder: Path, graphbox: Call) -> None:
    write_data, changes = FILLED[template]
    outcome = graphbox("init", "--template", template, "own")
    assert outcome.code == 0, outcome.err
    assert "graphbox check own/graphbox.yaml" in outcome.out
    path = folder / "own" / "graphbox.yaml"
    write_data(path.parent)
    unfilled = graphbox("check", path)
    assert unfilled.code == 2  # says which lines are to be filled in
    assert ".csv" in unfilled.err
    fill_in(path, changes)
    assert graphbox("check", path).code == 0
    outcome = graphbox("run", path, "threads=1", "bench.seconds=0.05", "--json", "-q")
    assert outcome.code == 0, outcome.err
    report = outcome.json
    assert report["state"] == "finished"
    assert all(each["stage_seconds"]["compute"] > 0 for each in report["training"].values())
    for task, models in report["metrics"].items():
        assert models
        assert report["baselines"][task]


def test_each_template_is_run() -> None:
    assert sorted([*FILLED, "stream"]) == sorted(Template)


def test_filled_in_it_follows(folder: Path, graphbox: Call) -> None:
    outcome = graphbox("init", "--template", "stream", "own")
    assert outcome.code == 0
    assert "graphbox train own/graphbox.yaml --follow own/incoming" in outcome.out
    assert "graphbox run" not in outcome.out
    path = folder / "own" / "graphbox.yaml"
    fill_in(path, {"user  ": "who  ", "target: item": "target: what", "timestamp: time": "timestamp: at"})
    for hour in range(3):
        place = folder / "own" / "incoming" / "20261101" / f"{hour:02d}"
        place.mkdir(parents=True)
        rows = [
            f"u{number % 20},i{(number * hour + number) % 12},{hour * 3600 + number}" for number in range(60)
        ]
        write(place / "choices.csv", "who,what,at", rows)
        (place / "_SUCCESS").touch()
    outcome = graphbox(
        "train", path, "--follow", folder / "own" / "incoming", "--once", "threads=1", "--json"
    )
    assert outcome.code == 0, outcome.err
    assert [chunk["name"][-2:] for chunk in outcome.json["chunks"]] == ["00", "01", "02"]


@pytest.mark.parametrize("template", list(Template))
def test_it_is_short_and_leaves_settings_to_the_code(
    template: Template, folder: Path, graphbox: Call
) -> None:
    assert graphbox("init", "-t", template).code == 0
    text = (folder / "graphbox.yaml").read_text()
    assert len(text.splitlines()) <= 40
    assert "# <-" in text
    config = load_config(folder / "graphbox.yaml", check_files=False)
    if template != Template.STREAM:  # whose passes over a chunk are not those over a whole graph
        assert all(model.model_fields_set <= NAMED for model in config.models.values())


def test_nothing_is_written_over(folder: Path, graphbox: Call) -> None:
    (folder / "graphbox.yaml").write_text("mine")
    outcome = graphbox("init", "--template", "walk")
    assert outcome.code == 1
    assert "expected no file there" in outcome.err
    assert (folder / "graphbox.yaml").read_text() == "mine"


def test_templates_are_named(folder: Path, graphbox: Call) -> None:
    outcome = graphbox("init")
    assert outcome.code == 2
    assert all(template in outcome.err for template in Template)
    assert graphbox("init", "--template", "wlak").code == 2
    (folder / "file").write_text("")
    outcome = graphbox("init", "--template", "walk", "file")
    assert outcome.code == 1
    assert "the folder cannot be made" in outcome.err


def test_document(folder: Path, graphbox: Call) -> None:
    assert graphbox("init", "--template", "walk", "--json").json == {
        "template": "walk",
        "path": "graphbox.yaml",
    }
