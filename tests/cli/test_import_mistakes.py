"""Mistakes of users in imports and changes of graphs, and the messages they get; see `test_mistakes`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.workspace import Workspace, writer_lock
from tests.cli.conftest import Call, Outcome
from tests.cli.test_mistakes import GOLDEN, change, check, imported

Arguments = Sequence[str]
SHOP = ("import", "shop.csv", "--name", "shop", "--type", "user,buys,item", "-q")


@dataclass(frozen=True)
class Mistake:
    """A mistake: how the call ends, what is prepared, and the call."""

    code: int
    prepare: Callable[[Path], None]
    arguments: Arguments


def nothing(folder: Path) -> None:
    """The small run file and its tables are there."""


def with_shop(folder: Path) -> None:
    """A graph of users with string ids and items with integer ids."""
    from tests.cli.conftest import call_main

    (folder / "shop.csv").write_text("source,target\nann,1\nann,2\nbob,2\n")
    outcome = call_main(SHOP)
    assert outcome.code == 0, outcome.err


def with_papers(folder: Path) -> None:
    """The graph of the small run file is in the workspace."""
    imported(folder)


def changed(old: str, new: str) -> Callable[[Path], None]:
    """Return what changes a text of the run file."""
    return lambda folder: change(folder / "run.yaml", old, new)


def written(name: str, text: str, before: Callable[[Path], None] = nothing) -> Callable[[Path], None]:
    """Return what writes a file."""

    def prepare(folder: Path) -> None:
        before(folder)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    return prepare


def other_columns(folder: Path) -> None:
    pq.write_table(pa.table({"src": [1], "dst": [2]}), folder / "edges.parquet")


def of_other_types(folder: Path) -> None:
    """Tables of Parquet whose columns are not of the types that the run file asks for."""
    pq.write_table(pa.table({"id": ["a"], "year": [[1]], "open": [1.5]}), folder / "paper.parquet")
    columns = {"source": [1], "target": ["a"], "w": ["heavy"], "at": [1.5]}
    pq.write_table(pa.table(columns), folder / "cites.parquet")
    (folder / "run.yaml").write_text(
        "version: 1\nname: x\ngraph:\n  name: x\n  nodes:\n"
        "    paper: {path: paper.parquet, features: {year: number, open: boolean}}\n"
        "  edges:\n    - {type: [paper, cites, paper], path: cites.parquet, weight: w, timestamp: at}\n"
    )


def with_an_empty_folder(folder: Path) -> None:
    changed("path: cites.csv", "path: parts")(folder)
    (folder / "parts").mkdir()


def several_mistakes(folder: Path) -> None:
    changed(GRAPH, "  memory: 2 gigs\n" + GRAPH)(folder)
    changed(AUTHORS, "    author: {path: author.csv, features: {age: nmber}}\n")(folder)
    changed(CITES, "{type: [paper, cites, papr], path: cites.csv}\n    - " + MISSING)(folder)


def with_empty_sections(folder: Path) -> None:
    text = (folder / "run.yaml").read_text()
    (folder / "run.yaml").write_text(text + "serve:\ntrack:\nmemory:\n")


def with_import_paths(folder: Path) -> None:
    (folder / "run.yaml").write_text(
        "version: 1\nname: x\ngraph:\n  name: x\n  edges: []\n  nodes:\n"
        "    paper: {path: paper.csv, features: {years: number}}\n"
        "tasks:\n  t: {kind: classify, node_type: paper, label: open}\n"
        "models:\n"
        "  a: {kind: module, task: t, model: no_such_package.models:Model}\n"
        "  b: {kind: module, task: t, model: json:NoModel}\n"
        "  c: {kind: module, task: t, model: model.py}\n"
        "  d: {kind: gnn, task: t, layer: 'json:Layer'}\n"
        "  e: {kind: module, task: t, model: 'json:JSONDecoder'}\n"
    )


AUTHORS = "    author: {path: author.csv}\n"
GRAPH = "  name: papers\n  nodes:\n"
CITES = "{type: [paper, cites, paper], path: cites.csv, reverse: cited_by}"

MISSING = "{type: [paper, quotes, paper], path: cites.csv, weight: strength}"

MISTAKES: dict[str, Mistake] = {
    # the run file
    "unit_of_memory_in_the_run_file": Mistake(
        2, changed(GRAPH, "  memory: 2 gigs\n" + GRAPH), ["check", "run.yaml"]
    ),
    "memory_that_is_a_list": Mistake(2, changed(GRAPH, "  memory: [2GiB]\n" + GRAPH), ["check", "run.yaml"]),
    "unknown_format_of_a_table": Mistake(
        2, changed("path: cites.csv", "path: cites.csv, format: csvv"), ["check", "run.yaml"]
    ),
    "list_separators": Mistake(
        2,
        changed(
            CITES,
            CITES.replace("csv,", "csv, list_separator: '', weight: w,")
            + "\n    - "
            + CITES.replace("csv,", "csv, list_separator: '; ',")
            .replace("cite", "quote")
            .replace("quotes.csv", "cites.csv"),
        ),
        ["check", "run.yaml"],
    ),
    "list_separator_between_columns": Mistake(
        2, changed("path: cites.csv", "path: cites.csv, list_separator: ','"), ["check", "run.yaml"]
    ),
    "pattern_without_files": Mistake(
        2, changed("path: cites.csv", "path: 'parts/*.csv'"), ["check", "run.yaml"]
    ),
    "folder_without_files": Mistake(
        2,
        with_an_empty_folder,
        ["check", "run.yaml"],
    ),
    "features_without_a_table": Mistake(
        2, changed(AUTHORS, "    author: {features: {age: number}}\n"), ["check", "run.yaml"]
    ),
    "node_type_without_table_and_edges": Mistake(
        2, changed(AUTHORS, AUTHORS + "    venue: {}\n"), ["check", "run.yaml"]
    ),
    "several_columns_that_are_not_there": Mistake(
        2,
        changed(CITES, "{type: [paper, cites, paper], path: cites.csv, source: sorce, weight: strength}"),
        ["check", "run.yaml"],
    ),
    "columns_that_are_not_there_beside_other_mistakes": Mistake(
        2,
        several_mistakes,
        ["check", "run.yaml"],
    ),
    "empty_sections": Mistake(2, with_empty_sections, ["check", "run.yaml"]),
    "import_paths_that_lead_nowhere": Mistake(2, with_import_paths, ["check", "run.yaml"]),
    "columns_of_other_types": Mistake(2, of_other_types, ["check", "run.yaml"]),
    "one_column_for_both_ends": Mistake(
        2,
        changed(CITES, "{type: [paper, cites, paper], path: cites.csv, target: source}"),
        ["check", "run.yaml"],
    ),
    "one_column_for_both_ends_of_a_table": Mistake(
        2,
        nothing,
        ["import", "cites.csv", "--source", "target", "--target", "target"],
    ),
    # a table
    "nothing_to_import": Mistake(2, nothing, ["import"]),
    "unknown_unit_of_memory": Mistake(2, nothing, ["import", "run.yaml", "--memory", "2G"]),
    "memory_that_is_negative": Mistake(2, nothing, ["import", "run.yaml", "--memory=-1GiB"]),
    "too_little_memory": Mistake(3, nothing, ["import", "run.yaml", "--memory", "10MB"]),
    "table_that_is_not_there": Mistake(2, nothing, ["import", "cite.csv"]),
    "unknown_suffix_of_a_table": Mistake(2, written("cites.xls", "a,b\n"), ["import", "cites.xls"]),
    "unknown_format_option": Mistake(2, nothing, ["import", "cites.csv", "--format", "parqet"]),
    "edge_type_of_two_names": Mistake(2, nothing, ["import", "cites.csv", "--type", "paper,cites"]),
    "edge_type_with_a_bad_name": Mistake(2, nothing, ["import", "cites.csv", "--type", "pa per,cites,paper"]),
    "column_option_that_is_not_there": Mistake(2, nothing, ["import", "cites.csv", "--weight", "target2"]),
    "source_without_target": Mistake(2, other_columns, ["import", "edges.parquet", "--source", "src"]),
    "data_where_the_header_should_be": Mistake(
        2, written("edges.tsv", "1\t258\t0.5\n1\t401\t1\n"), ["import", "edges.tsv"]
    ),
    "triples": Mistake(2, written("t.csv", "head,relation,tail\na,likes,b\n"), ["import", "t.csv"]),
    "triples_of_recbole": Mistake(
        2,
        written("t.kg", "head_id:token\trelation_id:token\ttail_id:token\na\tlikes\tb\n"),
        ["import", "t.kg"],
    ),
    "weight_of_text_beside_malformed_lines": Mistake(
        4,
        written("e.csv", "source,target,label\na,b,good,very\nc,d,bad\ne,f,good\n"),
        ["import", "e.csv", "--weight", "label"],
    ),
    "table_with_one_column": Mistake(2, nothing, ["import", "author.csv"]),
    "options_of_a_table_with_a_run_file": Mistake(
        2, nothing, ["import", "run.yaml", "--name", "other", "--weight", "w"]
    ),
    "two_tables_at_once": Mistake(2, nothing, ["import", "cites.csv", "writes.csv"]),
    # changing a graph
    "append_without_a_workspace": Mistake(
        2, nothing, ["import", "--append", "cites.csv", "--name", "papers"]
    ),
    "append_to_a_graph_that_is_not_there": Mistake(
        2, with_papers, ["import", "--append", "cites.csv", "--name", "paper"]
    ),
    "append_without_a_name": Mistake(2, with_papers, ["import", "--append", "cites.csv"]),
    "append_without_an_edge_type": Mistake(
        2, with_papers, ["import", "--append", "cites.csv", "--name", "papers"]
    ),
    "append_a_weight_the_graph_lacks": Mistake(
        2,
        written("more.csv", "source,target,w\nann,3,1\n", with_shop),
        ["import", "--append", "more.csv", "--name", "shop", "--weight", "w"],
    ),
    "append_and_remove_at_once": Mistake(
        2, nothing, ["import", "--append", "--remove", "cites.csv", "--name", "papers"]
    ),
    "node_option_without_remove": Mistake(2, nothing, ["import", "--node", "paper", "p1"]),
    "remove_nothing": Mistake(2, with_shop, ["import", "--remove", "--name", "shop"]),
    "remove_an_unknown_id": Mistake(
        2, with_shop, ["import", "--remove", "--name", "shop", "--node", "user", "carl"]
    ),
    "remove_an_unknown_id_strictly": Mistake(
        2, with_shop, ["import", "--remove", "--strict", "--name", "shop", "--node", "user", "ann", "carl"]
    ),
    "remove_an_unknown_node_type": Mistake(
        2, with_shop, ["import", "--remove", "--name", "shop", "--node", "usr", "ann"]
    ),
    "remove_text_where_ids_are_integers": Mistake(
        4, with_shop, ["import", "--remove", "--name", "shop", "--node", "item", "1", "two"]
    ),
    "remove_ids_of_a_file_that_is_not_there": Mistake(
        2, with_shop, ["import", "--remove", "--name", "shop", "--node", "user", "--ids", "gone.txt"]
    ),
    "compact_a_graph_that_is_not_there": Mistake(2, with_shop, ["compact", "shopp"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str, folder: Path, graphbox: Call) -> None:
    mistake = MISTAKES[name]
    mistake.prepare(folder)
    check(f"import/{name}", mistake.code, mistake.arguments, graphbox(*mistake.arguments), folder)


def test_every_golden_file_belongs_to_a_mistake() -> None:
    names = {path.stem for path in (GOLDEN / "import").glob("*.txt")}
    assert names == {*MISTAKES, "two_writers", "plan_that_does_not_fit"}


def test_two_writers(folder: Path, graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(folder)
    with Workspace("workspace").graph_lock("papers"):
        monkeypatch.setattr(
            "graphbox.workspace.graphs.writer_lock",
            lambda path, what, timeout_s=0.0: writer_lock(path, what, 0.1),
        )
        outcome = graphbox("import", "run.yaml", "--again")
    check("import/two_writers", 1, ["import", "run.yaml", "--again"], outcome, folder)


def test_plan_that_does_not_fit(folder: Path, graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        total: int
        used: int
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 10**6 - 5000, 5000))
    outcome = graphbox("plan", "run.yaml")
    assert "Tiers" in outcome.out
    silent = Outcome(outcome.code, "", outcome.err)
    check("import/plan_that_does_not_fit", 3, ["plan", "run.yaml"], silent, folder)
