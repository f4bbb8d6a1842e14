"""Run files: what loads, and what every mistake says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox.config import (
    Metapath2VecConfig,
    RunConfig,
    SageConfig,
    config_digest,
    config_schema,
    dump_config,
    load_config,
    place_in_file,
)
from graphbox.errors import ConfigError, NotFoundError

RUN_FILE = """\
version: 1
name: small
graph:
  name: small
  nodes:
    paper: {path: paper.csv, features: {field: categorical, year: number}}
    author: {path: author.csv}
  edges:
    - {type: [paper, cites, paper], path: cites.csv}
    - {type: [author, writes, paper], path: writes.csv, reverse: written_by}
tasks:
  field:
    kind: classify
    node_type: paper
    label: field
models:
  walk:
    kind: metapath2vec
    task: field
    metapaths:
      - [[paper, written_by, author], [author, writes, paper]]
      - [[paper, cites, paper]]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("paper", "author", "cites", "writes"):
        (tmp_path / f"{name}.csv").write_text("id\n")
    return tmp_path


def write(folder: Path, text: str = RUN_FILE) -> Path:
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def refuse(folder: Path, text: str = RUN_FILE, overrides: tuple[str, ...] = ()) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(write(folder, text), overrides)
    assert caught.value.exit_code == 2
    return caught.value


def test_load(folder: Path) -> None:
    config = load_config(write(folder))
    assert config.name == "small"
    assert config.graph.edges[1].type == ("author", "writes", "paper")
    model = config.models["walk"]
    assert isinstance(model, Metapath2VecConfig)
    assert model.dim == 64
    assert config.graph.locate("paper.csv") == folder / "paper.csv"


def test_columns_of_a_table_without_a_header_line(folder: Path) -> None:
    text = RUN_FILE.replace("{path: author.csv}", "{path: author.csv, columns: [id, name]}")
    assert load_config(write(folder, text)).graph.nodes["author"].columns == ("id", "name")


def test_root_is_relative_to_the_file_behind_a_link(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = tmp_path_factory.mktemp("elsewhere") / "link.yaml"
    link.symlink_to(write(folder))
    assert load_config(link).graph.locate("paper.csv") == folder / "paper.csv"


def test_config_is_frozen(folder: Path) -> None:
    config = load_config(write(folder))
    with pytest.raises(ValueError, match="frozen"):
        config.name = "other"


def test_dump_loads_to_the_same_config(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    config = load_config(write(folder), ["models.walk.dim=32", "seed=7"])
    copy = tmp_path_factory.mktemp("elsewhere") / "resolved.yaml"
    copy.write_text(dump_config(config))
    assert load_config(copy) == config


def test_digest_ignores_what_does_not_change_results(folder: Path) -> None:
    path = write(folder)
    digest = config_digest(load_config(path))
    assert config_digest(load_config(path, ["serve.port=9000", "threads=1"])) == digest
    assert config_digest(load_config(path, ["seed=1"])) != digest


def test_schema_describes_every_key() -> None:
    schema = config_schema()
    json.dumps(schema)
    for section in [schema, *schema["$defs"].values()]:
        for name, field in section["properties"].items():
            assert field.get("description"), f"{section['title']}.{name} has no description"
        assert section["additionalProperties"] is False


# ------------------------------------------------------------------------------------ overrides


def test_overrides_are_typed_by_the_schema(folder: Path) -> None:
    config = load_config(
        write(folder),
        [
            "models.walk.dim=32",
            "models.walk.learning_rate=1",
            "graph.strict=true",
            "name='7'",
            "bench.batch_sizes=[1]",
        ],
    )
    model = config.models["walk"]
    assert isinstance(model, Metapath2VecConfig)
    assert (model.dim, model.learning_rate) == (32, 1.0)
    assert config.graph.strict is True
    assert config.name == "7"
    assert config.bench.batch_sizes == (1,)


def test_override_adds_a_model_and_a_section(folder: Path) -> None:
    task = "  related: {kind: recommend, node_type: paper, relations: [cites]}\n"
    text = RUN_FILE.replace("models:\n", f"{task}models:\n") + "  second: {kind: sage, task: related}\n"
    config = load_config(write(folder, text), ["export.small={model: second}", "models.second.epochs=1"])
    assert isinstance(config.models["second"], SageConfig)
    assert config.export["small"].model == "second"


@pytest.mark.parametrize(
    ("model", "export", "received"),
    [
        ("{kind: gnn, task: field}", "form: encoder, ", "kind gnn with `form: encoder`"),
        ("{kind: sage, task: field, relations: [[paper, cites, paper]]}", "", "kind sage"),
        ("{kind: deepfm, task: field}", "", "kind deepfm"),
        ("{kind: complex, task: field}", "", "kind complex"),
    ],
)
def test_only_stored_vectors_answer_unknown_ids(folder: Path, model: str, export: str, received: str) -> None:
    text = f"models: {{m: {model}}}\nexport: {{e: {{model: m, {export}unknown_ids: mean}}}}\n"
    error = refuse(folder, RUN_FILE[: RUN_FILE.index("models:")] + text)
    assert "export.e.unknown_ids" in str(error)
    assert f"served as stored vectors beside `unknown_ids`, received one of {received}" in str(error)


def test_vectors_answer_unknown_ids(folder: Path) -> None:
    walk = load_config(write(folder), ["export={e: {model: walk, unknown_ids: zero}}"])
    assert walk.export["e"].unknown_ids == "zero"
    assert load_config(write(folder), ["export={e: {model: walk}}"]).export["e"].unknown_ids == "refuse"
    error = refuse(folder, overrides=("export={e: {model: walk, unknown_ids: median}}",))
    assert "'refuse', 'zero' or 'mean'" in str(error)


def test_override_of_a_list_item(folder: Path) -> None:
    (folder / "other.csv").write_text("id\n")
    config = load_config(write(folder), ["graph.edges.0.path=other.csv"])
    assert config.graph.edges[0].path == "other.csv"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("models.walk.dim=x", "models.walk.dim: expected an integer, received the text 'x'"),
        ("models.walk.dim=1.5", "models.walk.dim: expected an integer, received 1.5"),
        ("models.walk.dim=0", "expected a number of at least 1, received 0"),
        ("models.walk.dmi=3", "models.walk.dmi: there is no such key\n  = help: did you mean `dim`?"),
        ("models.wlak.dim=3", "models.wlak: there is no such key\n  = help: did you mean `walk`?"),
        ("seed", "expected `key.path=value`, received `seed`"),
        ("=3", "expected `key.path=value`"),
        ("graph.edges.2.path=x", "expected the position of an item, 0 to 1, received `2`"),
        ("name.x=1", "there is nothing below this value"),
        ("models.walk.kind=wlak", "received 'wlak'"),
        ("seed=[", "expected a YAML value, received `[`"),
        ("graph.root=package://os", "expected `package://graphbox.demo`"),
    ],
)
def test_wrong_override(folder: Path, override: str, message: str) -> None:
    error = str(refuse(folder, overrides=(override,)))
    assert f"override `{override}`" in error
    assert message in error


def test_a_message_that_says_what_was_received_says_it_once(folder: Path) -> None:
    error = str(refuse(folder, overrides=("models.walk.auto=[dim]",)))
    assert "models.walk.auto: expected settings that can be chosen, received `dim`\n" in error


# ------------------------------------------------------------------------------------- mistakes


def test_all_mistakes_at_once_in_file_order(folder: Path) -> None:
    text = (
        RUN_FILE.replace("label: field", "lable: field")
        .replace("kind: metapath2vec", "kind: metapath2vec\n    dim: wide")
        .replace("path: cites.csv", "path: citse.csv")
        .replace("task: field", "task: feild")
    )
    error = refuse(folder, text)
    assert error.message == f"4 mistakes in the run file {folder / 'run.yaml'}"
    lines = [int(problem.split(":")[1]) for problem in error.problems]
    assert lines == sorted(lines)
    shown = str(error)
    assert "run.yaml:9: graph.edges.0.path: expected a file, but" in shown
    assert "= help: did you mean `cites.csv`?" in shown
    assert "run.yaml:15: tasks.field.lable: unknown key" in shown
    assert "= help: did you mean `label`?" in shown
    assert "    15 |     lable: field" in shown
    assert "models.walk.dim: expected an integer, received the text 'wide'" in shown
    assert "there is no task `feild`" in shown


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("version: 1", "version: 2", 1, "expected version 1 of the run file, received 2"),
        ("name: small\ngraph", "name: a/b\ngraph", 2, "expected a name of letters"),
        ("name: small\ngraph", "name: 5\ngraph", 2, "expected text, received 5\n"),
        ("[paper, cites, paper]", "[paper, cites]", 9, "the list is too short"),
        ("[paper, cites, paper]", "[paper, cites, papre]", 9, "there is no node type `papre`"),
        ("[paper, cites, paper]", "[author, writes, paper]", 10, "is given twice, first on line 9"),
        (
            "year: number",
            "year: real",
            6,
            "expected 'number', 'integer', 'categorical', 'boolean', 'vector' or 'slots', received",
        ),
        ("author: {path", "au__thor: {path", 7, "expected letters, digits, `-` and single `_`"),
        ("label: field", "label: feild", 15, "there is no feature `feild` of `paper`"),
        ("label: field", "label: year", 15, "expected a categorical or integer feature, received `year`"),
        (
            "kind: classify",
            "kind: clasify",
            13,
            "expected `kind` to be one of classify, ",
        ),
        ("    kind: classify\n", "", 12, "the key `kind` is missing"),
        (
            "[author, writes, paper]]",
            "[author, wrote, paper]]",
            21,
            "there is no edge type [author, wrote, paper]",
        ),
        ("[[paper, cites, paper]]", "[[paper, written_by, author]]", 22, "the metapath does not connect"),
        ("tasks:\n  field:", "tasks: 3\nmodels:\n  x:", 11, "expected a mapping, received 3"),
    ],
)
def test_mistake(folder: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in RUN_FILE
    error = str(refuse(folder, RUN_FILE.replace(old, new, 1)))
    assert message in error
    assert f"run.yaml:{line}: " in error


def test_a_section_that_may_be_left_out_lacks_a_key(folder: Path) -> None:
    lines = ("kind: sage", "task: field", "pretrain: {negatives: 3}")
    text = RUN_FILE[: RUN_FILE.index("  walk:")] + "  net:\n" + "".join(f"    {line}\n" for line in lines)
    assert "the key `metapaths` is missing" in str(refuse(folder, text))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("relations: [[paper, cite, paper]]", "there is no edge type [paper, cite, paper]"),
        ("embeddings: [authors]", "there is no node type `authors`"),
        ("embeddings: [authors]", "did you mean `author`?"),
        ("features: {papers: []}", "did you mean `paper`?"),
        ("features: {paper: [yeer]}", "there is no feature `yeer` of `paper`"),
    ],
)
def test_names_of_a_graph_network_that_refer_to_nothing(folder: Path, line: str, message: str) -> None:
    text = RUN_FILE[: RUN_FILE.index("  walk:")] + "  net:\n    kind: gnn\n    task: field\n"
    error = str(refuse(folder, f"{text}    {line}\n"))
    assert message in error
    assert f"run.yaml:{text.count(chr(10)) + 1}: " in error


def test_an_edge_type_of_walks_that_is_not_there(folder: Path) -> None:
    text = (
        RUN_FILE[: RUN_FILE.index("  walk:")]
        + "  walk: {kind: deepwalk, edge_types: [[paper, cite, paper]]}\n"
    )
    assert "there is no edge type [paper, cite, paper]" in str(refuse(folder, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a run file, received an empty one"),
        ("# nothing\n", "expected a run file, received an empty one"),
        ("- 1\n", "expected a mapping of keys to values, received a list of 1"),
        ("name: a\nname: b\n", "the key `name` is given twice, first on line 1"),
        ("name:\n\tx: 1\n", "run.yaml:2: expected spaces, received a tab"),
        ("name: [1,\n", "the file is not valid YAML"),
        ("name: 'x\n", "the file is not valid YAML"),
        ("a: 1\n---\nb: 1\n", "expected one YAML document, received several"),
        ("a: !!python/object:os.system 1\n", "the YAML tag `!python/object:os.system` is not allowed here"),
        ("a: &x [*x]\n", "refers to the value it is part of"),
        ("a: *x\n", "found undefined alias"),
        ("a: \x01\n", "a character that YAML does not allow: U+0001"),
        ("[1]: 2\n", "expected a name as key"),
        ("<<: 3\n", "expected a mapping after the merge key"),
    ],
)
def test_wrong_yaml(folder: Path, text: str, message: str) -> None:
    assert message in str(refuse(folder, text))


def test_aliases_that_explode_are_refused(folder: Path) -> None:
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "more than a million values" in str(refuse(folder, "\n".join(levels)))


def test_not_utf8(folder: Path) -> None:
    path = folder / "run.yaml"
    path.write_bytes(b"version: 1\nname: caf\xe9\n")
    with pytest.raises(
        ConfigError, match=r"run.yaml:2: expected UTF-8 text, received the byte 0xe9 at offset 20"
    ):
        load_config(path)


def test_utf8_with_byte_order_mark(folder: Path) -> None:
    path = folder / "run.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + RUN_FILE.encode())
    assert load_config(path).name == "small"


def test_missing_file_names_its_neighbours(folder: Path) -> None:
    write(folder)
    with pytest.raises(
        NotFoundError, match=r"there is no such run file\n  = help: run files there: run.yaml"
    ):
        load_config(folder / "rnu.yaml")


def test_folder_instead_of_file(folder: Path) -> None:
    with pytest.raises(NotFoundError, match="expected a run file, received a folder"):
        load_config(folder)


def test_merge_key(folder: Path) -> None:
    text = RUN_FILE.replace(
        "    kind: metapath2vec\n", "    <<: &shared {dim: 16, epochs: 2}\n    kind: metapath2vec\n"
    )
    model = load_config(write(folder, text)).models["walk"]
    assert isinstance(model, Metapath2VecConfig)
    assert (model.dim, model.epochs) == (16, 2)


@settings(max_examples=200, deadline=None)
@given(
    start=st.integers(0, len(RUN_FILE)),
    length=st.integers(0, 40),
    filling=st.sampled_from(["", "null", "[]", "{}", "-1", ": ", "\n", "'", "x", "\t", "&a *a", "1e999"]),
)
def test_mutilated_files_load_or_say_what_is_wrong(
    start: int, length: int, filling: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutilated.yaml"
    path.write_text(RUN_FILE[:start] + filling + RUN_FILE[start + length :])
    outcome: RunConfig | ConfigError
    try:
        outcome = load_config(path, check_files=False)
    except ConfigError as error:
        outcome = error
    assert isinstance(outcome, RunConfig) or outcome.problems or outcome.where


def test_the_place_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("version: 1\nmodels:\n  rows:\n    dim: 8\n")
    assert place_in_file(path, [], "models.rows.dim") == f"{path}:4: models.rows.dim"
    assert place_in_file(path, [], "models.rows.kind") == f"{path}:3: models.rows.kind"
    assert place_in_file(path, ["models.rows.dim=4"], "models.rows.dim") == (
        "override `models.rows.dim=4`: models.rows.dim"
    )
    assert place_in_file(path, [], "node type item") is None


def test_a_dumped_config_with_budgets_loads_again(tmp_path: Path) -> None:
    """A run that is resumed loads what it dumped, with the defaults of every section."""
    file = tmp_path / "run.yaml"
    file.write_text(
        "version: 1\nname: run\nmemory: {total: 1000000}\n"
        "graph: {name: graph, edges: [{type: [node, to, node], path: edges.csv}], nodes: {node: }}\n"
    )
    config = load_config(file, check_files=False)
    dumped = tmp_path / "dumped.yaml"
    dumped.write_text(dump_config(config))
    assert load_config(dumped, check_files=False) == config
