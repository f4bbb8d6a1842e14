"""Reading, checking and writing run files.

All mistakes of a file are reported at once: the YAML's, the schema's, references between sections, and
files that are not there.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from ruamel.yaml import YAML

from graphbox.config.explain import explain, fields_at
from graphbox.config.files import what_is_missing
from graphbox.config.graph import GraphConfig
from graphbox.config.graph_schema import SchemaOf, names_stored_graph
from graphbox.config.kinds import model_kinds
from graphbox.config.problem import Problem, dotted
from graphbox.config.references import check_references
from graphbox.config.schema import RunConfig
from graphbox.config.section import is_start_folder
from graphbox.config.source import KeyPath, Source, parse_value, read_source, source_of
from graphbox.config.stream import OPERATIONAL_STREAM_KEYS, StreamConfig
from graphbox.errors import ConfigError, DataError, did_you_mean

TableCheck: TypeAlias = Callable[[GraphConfig], Iterable[tuple[KeyPath, str, str | None]]]
"""Gives the key, the message and the hint of each mistake that shows when tables are looked into."""

ModelCheck: TypeAlias = Callable[[dict[str, Any]], Iterable[tuple[KeyPath, str, str | None]]]
"""Gives the same for the section `models`, as plain values, when what it names is imported."""

_COMES_WITH_CHUNKS = "the tables of a stream come with its chunks: `graphbox train {} --follow DIR`"


def load_config(
    config: str | Path | Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    check_files: bool = True,
    stored_schema: SchemaOf | None = None,
    check_tables: TableCheck | None = None,
    check_models: ModelCheck | None = None,
    complete: bool = True,
    before_stream: bool = False,
) -> RunConfig:
    """Read a run file.

    Relative paths in it are relative to the file itself (links resolved), and absolute in the result.

    Args:
        config: the YAML file; or its content as plain values, with paths relative to the working directory.
        overrides: ``key.path=value`` texts that replace or add values; ``value`` is YAML, and checked
            like the rest. List items are named by position: ``graph.edges.0.path=x.parquet``.
        check_files: also report source files that are not there.
        stored_schema: also report names that a stored graph does not have, and one that is not there; see
            :data:`graphbox.config.graph_schema.SchemaOf`.
        check_tables: also report what this finds wrong in the tables of sections without another mistake.
        check_models: also report what this finds wrong.
        complete: the section `graph` is a whole graph; else it changes one that has the types it names.
        before_stream: a run file with a section `stream` need not name its folder yet for its tables to come
            with the chunks.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it has mistakes; ``problems`` holds one message for each.
    """
    source = source_of(config) if isinstance(config, Mapping) else read_source(Path(config))
    problems = list(source.problems)
    for override in overrides:
        problem = _apply_override(source, override)
        if problem is not None:
            problems.append(problem)
    checked = None
    try:
        checked = RunConfig.model_validate_json(json.dumps(source.data))
    except ValidationError as error:
        problems += [explain(item, source) for item in error.errors(include_url=False)]
    problems += check_references(source, complete=complete, stored_schema=stored_schema)
    base = Path.cwd() if isinstance(config, Mapping) else source.path.resolve().parent
    # The tables of a stream come with its chunks.
    follows = checked is not None and checked.stream.folder is not None
    is_of_stream = source.data.get("stream") if checked is None else checked.stream != StreamConfig()
    has_tables = not follows and not (before_stream and is_of_stream)
    if check_files:
        missing = _missing_files(source, base) if has_tables else _missing_stream(source, base)
        if has_tables and is_of_stream:
            missing = [replace(problem, hint=_COMES_WITH_CHUNKS.format(source.path)) for problem in missing]
        problems += missing
    if check_models is not None and isinstance(models := source.data.get("models"), dict):
        problems += [_problem_at(source, *found) for found in check_models(models)]
    if not problems and checked is not None:
        checked = _with_absolute_folders(checked, base)
        if check_tables is not None and has_tables:
            problems += [_problem_at(source, *found) for found in check_tables(checked.graph)]
    elif check_tables is not None and has_tables:
        problems += _table_problems(source, base, check_tables, problems)
    if problems or checked is None:
        raise _config_error(source, problems)
    return checked


def place_in_file(path: str | Path, overrides: Iterable[str], key: str) -> str | None:
    """Return where a run file says ``key``, such as ``models.light.dim``: the file and its line, and the key.

    Of a key that is not said it is the line of what it belongs to; of one that an override says the override.

    Args:
        path: the run file.
        overrides: see :func:`load_config`.
        key: the dotted key.

    Returns:
        None where the file has no section of that name.
    """
    source = read_source(Path(path))
    for override in overrides:
        _apply_override(source, override)
    found: Any = source.data
    steps: KeyPath = ()
    for step in key.split("."):
        if isinstance(found, list) and step.isdigit() and int(step) < len(found):
            steps, found = (*steps, int(step)), found[int(step)]
        elif isinstance(found, dict) and step in found:
            steps, found = (*steps, step), found[step]
        else:
            break
    if not steps:
        return None
    line, said_by = source.line(steps), source.overridden.get(steps)
    if said_by is not None:
        return f"override `{said_by}`: {key}"
    return f"{path}: {key}" if line is None else f"{path}:{line}: {key}"


def dump_config(config: RunConfig) -> str:
    """Return ``config`` as the text of a run file that loads to an equal config."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 110
    stream = io.StringIO()
    yaml.dump(config.model_dump(mode="json", exclude_none=True), stream)
    return stream.getvalue()


def config_digest(config: RunConfig) -> str:
    """Return a SHA-256 (hex) of :func:`result_settings`."""
    text = json.dumps(result_settings(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def evaluation_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings of ``tasks`` that only the evaluation reads."""
    tasks = {
        name: task.model_dump(mode="json", include=set(task.EVALUATION_KEYS))
        for name, task in config.tasks.items()
    }
    return {"tasks": tasks}


def training_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that decide the graph, the splits and the trained models."""
    values = result_settings(config)
    for name, task in config.tasks.items():
        values["tasks"][name] = {
            key: value for key, value in values["tasks"][name].items() if key not in task.EVALUATION_KEYS
        }
    return {key: value for key, value in values.items() if key not in {"export", "compress", "bench"}}


def result_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that change the results of a run, as plain values."""
    follows = config.stream.folder is not None
    return config.model_dump(
        mode="json",
        exclude={
            "serve": True,
            "track": True,
            "memory": True,
            "threads": True,
            "device": True,
            "processes": True,
            "graph": {"memory"},
            # What is said of a stream counts where one is followed.
            "stream": set(OPERATIONAL_STREAM_KEYS) if follows else True,
        },
    )


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the run file."""
    kinds = model_kinds()
    sections: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (kind.section, "validation") for kind in kinds.values()
    ]
    references, document = models_json_schema([(RunConfig, "validation"), *sections])
    definitions = document["$defs"]
    schema = definitions.pop(RunConfig.__name__)
    of_kinds = {name: references[section]["$ref"] for name, section in zip(kinds, sections, strict=True)}
    schema["$defs"] = definitions
    (pattern,) = schema["properties"]["models"]["patternProperties"]
    schema["properties"]["models"]["patternProperties"][pattern] = {
        "discriminator": {"mapping": of_kinds, "propertyName": "kind"},
        "oneOf": [{"$ref": reference} for reference in of_kinds.values()],
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "graphbox run file", **schema}


def _config_error(source: Source, problems: Sequence[Problem]) -> ConfigError:
    in_order = sorted(
        problems,
        key=lambda p: (p.override is not None, p.line is None, p.line or 0, dotted(p.key), p.message),
    )
    rendered = dict.fromkeys(problem.render(source.path, source.text) for problem in in_order)
    count = "1 mistake" if len(rendered) == 1 else f"{len(rendered)} mistakes"
    what = f"the run file {source.path}" if source.text else "the config"
    return ConfigError(f"{count} in {what}", problems=rendered)


def _with_absolute_folders(config: RunConfig, base: Path) -> RunConfig:
    """Return the config with `graph.root` and the folders of stream and models as absolute paths."""
    folders = {
        name: str((base / path).resolve())
        for name, path in (("folder", config.stream.folder), ("output", config.stream.output))
        if path is not None and not GraphConfig.is_url(path)
    }
    config = config.model_copy(update={"stream": config.stream.model_copy(update=folders)})
    models = {
        name: model.model_copy(update={"start_from": str((base / model.start_from).resolve())})
        if model.start_from is not None and is_start_folder(model.start_from)
        else model
        for name, model in config.models.items()
    }
    config = config.model_copy(update={"models": models})
    return config.model_copy(update={"graph": _with_absolute_root(config.graph, base)})


def _with_absolute_root(graph: GraphConfig, base: Path) -> GraphConfig:
    if GraphConfig.is_url(graph.root) or graph.is_stored:
        return graph
    return graph.model_copy(update={"root": str((base / graph.root).resolve())})


def _table_problems(
    source: Source, base: Path, check_tables: TableCheck, known: Sequence[Problem]
) -> list[Problem]:
    """Return the mistakes in the tables of those sections of the graph that have no other mistake."""
    graph = source.data.get("graph")
    wrong = {problem.key[:3] for problem in known if problem.key[:1] == ("graph",)}
    if not isinstance(graph, dict) or ("graph", "root") in wrong:
        return []
    right = {key: value for key, value in graph.items() if ("graph", key) not in wrong}
    nodes, edges = right.get("nodes") or {}, right.get("edges") or []
    kept = [position for position in range(len(edges)) if ("graph", "edges", position) not in wrong]
    whole = {
        **right,
        "name": "graph",
        "nodes": {name: {} if ("graph", "nodes", name) in wrong else entry for name, entry in nodes.items()},
        "edges": [edges[position] for position in kept],
    }
    try:
        config = GraphConfig.model_validate_json(json.dumps(whole))
    except ValidationError:
        return []  # its mistakes are among the known ones
    found = []
    try:
        for key, message, hint in check_tables(_with_absolute_root(config, base)):
            place = (*key[:2], kept[int(key[2])], *key[3:]) if key[1] == "edges" else key
            found.append(_problem_at(source, place, message, hint))
    except DataError as error:
        found.append(_problem_at(source, ("graph",), f"{error.where}: {error.message}", error.hint))
    return found


def _missing_files(source: Source, base: Path) -> list[Problem]:
    graph = source.data.get("graph")
    if not isinstance(graph, dict) or names_stored_graph(source.data):
        return []
    root = graph.get("root", ".")
    if not isinstance(root, str) or GraphConfig.is_remote(root):
        return []
    try:
        folder = GraphConfig.folder(root, base)
    except ConfigError as error:
        return [_problem_at(source, ("graph", "root"), error.message, error.hint)]
    if not folder.is_dir():
        message = f"there is no folder {folder}"
        return [_problem_at(source, ("graph", "root"), message, "paths are relative to the run file")]
    problems = []
    for key, entry in _entries(graph):
        name = entry.get("path")
        if isinstance(name, str) and not GraphConfig.is_url(name):
            missing = what_is_missing(folder, name)
            if missing is not None:
                problems.append(_problem_at(source, (*key, "path"), *missing))
    return problems


def _missing_stream(source: Source, base: Path) -> list[Problem]:
    """Return what is wrong with the folder in which chunks appear, if one is named."""
    stream = source.data.get("stream")
    folder = stream.get("folder") if isinstance(stream, dict) else None
    if not isinstance(folder, str):
        return []
    if GraphConfig.is_url(folder):
        message = f"expected a folder of this machine, received the URL {folder}"
        hint = "mount it, or copy each chunk into a folder and its marker last"
    elif not (base / folder).is_dir():
        message = f"expected a folder in which chunks appear, there is none: {base / folder}"
        hint = "make it, or name another one; it may be empty"
    else:
        return []
    return [_problem_at(source, ("stream", "folder"), message, hint)]


def _entries(graph: dict[str, Any]) -> Iterable[tuple[KeyPath, dict[str, Any]]]:
    nodes, edges = graph.get("nodes"), graph.get("edges")
    for name, entry in nodes.items() if isinstance(nodes, dict) else ():
        if isinstance(entry, dict):
            yield ("graph", "nodes", name), entry
    for index, entry in enumerate(edges if isinstance(edges, list) else ()):
        if isinstance(entry, dict):
            yield ("graph", "edges", index), entry


def _problem_at(source: Source, key: KeyPath, message: str, hint: str | None) -> Problem:
    return Problem(
        key=key, message=message, hint=hint, line=source.line(key), override=source.overridden.get(key)
    )


def _apply_override(source: Source, text: str) -> Problem | None:
    """Set one value in the source's data; return what is wrong with the override, if anything is."""
    name, equals, value_text = text.partition("=")
    parts = name.strip().split(".")
    if not equals or not all(parts):
        return Problem(
            key=(),
            message=f"expected `key.path=value`, received `{text}`",
            hint="for example `models.sage.epochs=5`",
            override=text,
        )
    value = parse_value(value_text, f"override `{text}`")
    container: Any = source.data
    key: KeyPath = ()
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if isinstance(container, list):
            if not part.isdigit() or int(part) >= len(container):
                message = f"expected the position of an item, 0 to {len(container) - 1}, received `{part}`"
                return Problem(key=key, message=message, override=text)
            step: str | int = int(part)
        elif isinstance(container, dict):
            step = part
            problem = _unknown_step(source, key, part, container, last, text)
            if problem is not None:
                return problem
        else:
            message = f"there is nothing below this value, so `{part}` cannot be set"
            return Problem(key=key, message=message, override=text)
        key = (*key, step)
        if last:
            container[step] = value
            source.overridden[key] = text
            break
        if isinstance(container, dict) and step not in container:
            container[step] = {}
        container = container[step]
    return None


def _unknown_step(
    source: Source, key: KeyPath, part: str, container: dict[str, Any], last: bool, override: str
) -> Problem | None:
    fields = fields_at(source.data, key)
    if part in container or (fields is not None and part in fields) or (fields is None and last):
        return None
    known = sorted({*container, *(fields or ())})
    hint = did_you_mean(part, known) or f"there are: {', '.join(known)}"
    return Problem(key=(*key, part), message="there is no such key", hint=hint, override=override)
