"""Options of `graphbox serve` from three places: the command line, the environment, and a file.

The signature of the command is the one list of them. What it does not name of `Settings`, apart from what it
sets in other words, is added to it from there, with its type, default and description. An option beats an
environment variable ``GRAPHBOX_SERVE_<OPTION>``, that beats the file of ``--config``, and that the default.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from graphbox.cli.session import Session, global_options
from graphbox.errors import ConfigError, UsageError, did_you_mean
from graphbox.server.settings import Settings

__all__ = ["ENVIRONMENT_PREFIX", "print_options", "read_options", "with_settings"]

ENVIRONMENT_PREFIX = "GRAPHBOX_SERVE"
"""Prefix of the options' environment variables, before an underscore."""

# Settings that the command has options of other names or forms for.
_IN_OTHER_WORDS = frozenset(
    {"allowed_hosts", "database_url", "max_json_bytes", "max_rows_by_model", "workspace"}
)
_SIMPLE: dict[str, Any] = {
    "bool": bool,
    "float": float,
    "float | None": float | None,
    "int": int,
    "int | None": int | None,
    "str": str,
}
# Of the options of every command, those that say how a server runs; and what a file cannot say.
_SHARED_IN_FILES = ("workspace", "log_level")
_NOT_IN_FILES = frozenset({"config", "print_config", "session", "token"})
_PANEL = "Limits and timeouts"
_LATER_SOURCES = {
    "COMMANDLINE": "option",
    "ENVIRONMENT": "environment",
    "DEFAULT_MAP": "file",
    "DEFAULT": "default",
}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each simple field of `Settings` that a command has none for."""
    signature = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    texts = _descriptions(Settings.__doc__ or "")
    added = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[
                _SIMPLE[str(field.type)],
                typer.Option(
                    f"--{field.name.replace('_', '-')}",
                    help=texts.get(field.name, ""),
                    rich_help_panel=_PANEL,
                ),
            ],
        )
        for field in fields(Settings)
        if field.name not in signature.parameters
        and field.name not in _IN_OTHER_WORDS
        and str(field.type) in _SIMPLE
        and field.default is not MISSING
    ]

    @functools.wraps(command)
    def run(*arguments: Any, **values: Any) -> None:
        command(*arguments, **values)

    parameters = [*(p.replace(annotation=hints.get(p.name, p.annotation)) for p in own), *added]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    for parameter in parameters:
        for info in get_args(parameter.annotation)[1:]:
            # The prefix is said once, at the option of the file.
            info.show_envvar = info.envvar is not None
    return run


def read_options(context: typer.Context, path: Path | None, command: Callable[..., None]) -> None:
    """Make the values of a file the defaults of the options; check the names of environment variables.

    Args:
        context: of the command, whose options are not read yet.
        path: the file; None: there is none.
        command: the command, with its signature.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it has mistakes.
        UsageError: a variable is that of no option.
    """
    options = _options_of(command)
    _check_environment({*options, *inspect.signature(command).parameters} - {"session"})
    if path is None:
        return
    values = _read(path, options)
    session: Session = context.obj
    if session.has_explicit_workspace:  # by an option of `graphbox`, before the name of the command
        values.pop("workspace", None)
    context.default_map = {**(context.default_map or {}), **values}


def print_options(session: Session, command: Callable[..., None]) -> None:
    """Print the values of the options as a file, and where each comes from; no secret."""
    context = session.context
    if context is None:
        return
    options = _options_of(command)
    document: dict[str, Any] = {}
    lines: list[str] = []
    for name in options:
        value = _plain(context.params.get(name))
        source = context.get_parameter_source(name)
        if name == "workspace" and value is None:
            value = _plain(session.workspace_path)
        if value is None:
            continue
        document[name] = value
        lines.append(
            f"{name}: {json.dumps(value)}  # {_LATER_SOURCES.get(getattr(source, 'name', ''), 'default')}"
        )
    if context.params.get("token"):
        lines.append("# token: given, and not printed")
    session.answer(document, lambda console: console.out("\n".join(lines)))


def _options_of(command: Callable[..., None]) -> dict[str, Any]:
    """Return the types of the options that a file can have, by name."""
    own = {p.name: p.annotation for p in inspect.signature(command).parameters.values()}
    shared = get_type_hints(global_options, include_extras=True)
    found = {**own, **{name: shared[name] for name in _SHARED_IN_FILES}}
    return {
        name: get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
        for name, annotation in found.items()
        if name not in _NOT_IN_FILES
    }


def _check_environment(names: Iterable[str]) -> None:
    known = {f"{ENVIRONMENT_PREFIX}_{name.upper()}" for name in names}
    for variable in sorted(os.environ):
        if variable.startswith(f"{ENVIRONMENT_PREFIX}_") and variable not in known:
            raise UsageError(
                "expected the name of an option after the prefix, received another one",
                where=f"environment variable {variable}",
                hint=did_you_mean(variable, known) or "`graphbox serve --help` lists the options",
            )


def _read(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    from pydantic import ConfigDict, ValidationError, create_model

    from graphbox.config.explain import explain
    from graphbox.config.problem import Problem
    from graphbox.config.source import read_source

    source = read_source(path, what="configuration of a server", hint="it has lines such as `port: 8710`")
    # Numbers are text where an option is: `max_rows: [1000, income=50]`.
    kinds = {name: _with_numbers_as_text(kind) for name, kind in options.items()}
    model = create_model(
        "ServeFile",
        __config__=ConfigDict(extra="forbid", strict=True, coerce_numbers_to_str=True, allow_inf_nan=False),
        **{name: (kind, None) for name, kind in kinds.items()},  # type: ignore[call-overload]
    )
    problems = list(source.problems)
    try:
        checked = model.model_validate_json(json.dumps(source.data))
    except ValidationError as error:
        for item in error.errors(include_url=False):
            if item["type"] == "extra_forbidden":
                key = str(item["loc"][0])
                hint = did_you_mean(key, options) or f"known keys: {', '.join(options)}"
                if key == "token":
                    hint = "name a file of tokens by `token_file`, or set the variable GRAPHBOX_TOKEN"
                problems.append(Problem((key,), "unknown key", hint, source.line((key,))))
            else:
                problems.append(explain(item, source))
        raise _config_error(path, source.text, problems) from None
    if problems:
        raise _config_error(path, source.text, problems)
    base = path.resolve().parent
    return {name: _beside(getattr(checked, name), base) for name in source.data}


def _config_error(path: Path, text: list[str], problems: list[Any]) -> ConfigError:
    mistakes = "mistake" if len(problems) == 1 else "mistakes"
    return ConfigError(
        f"the configuration of the server has {len(problems)} {mistakes}",
        where=str(path),
        problems=[problem.render(path, text) for problem in problems],
    )


def _beside(value: Any, base: Path) -> Any:
    """Return a value of a file with paths as they are meant: relative to the file."""
    if isinstance(value, Path):
        return str(base / value)
    if isinstance(value, list):
        return [_beside(each, base) for each in value]
    return value.value if isinstance(value, Enum) else value


def _with_numbers_as_text(kind: Any) -> Any:
    """Return a type whose texts may be written as numbers."""
    from pydantic import Field

    if kind is str:
        return Annotated[str, Field(strict=False)]
    if get_origin(kind) is list:
        return list[_with_numbers_as_text(get_args(kind)[0])]  # type: ignore[misc]  # a type at run time
    if get_origin(kind) in {Union, UnionType}:
        return Union[tuple(_with_numbers_as_text(each) for each in get_args(kind))]  # noqa: UP007
    return kind


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value] or None
    if isinstance(value, Enum):
        return value.value
    # Of a file, paths are relative to it: these are the same wherever they are written to.
    return str(value.absolute()) if isinstance(value, Path) else value


def _descriptions(docstring: str) -> dict[str, str]:
    """Return the text of each attribute of a docstring, as a sentence."""
    _, _, section = inspect.cleandoc(docstring).partition("Attributes:\n")
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
    return {name: _sentence(" ".join(text.split())) for name, text in entries}


def _sentence(text: str) -> str:
    text = text.replace("``", "").replace("`", "")
    return text[:1].upper() + text[1:]
