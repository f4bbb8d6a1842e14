"""From a PGLBox YAML file to a run file, with an account of every key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphbox.errors import ConfigError, UsageError, did_you_mean
from graphbox.pglbox.grammar import parse_pairs
from graphbox.pglbox.graph_section import graph_section, metapaths
from graphbox.pglbox.keys import KEYS, Fate, Key
from graphbox.pglbox.run_file import KeyPath, render
from graphbox.pglbox.settings import Settings, read_settings

_MODEL = "walk"
_SHOWN_CHARACTERS = 60
_NOTHING, _SAME = "asks for nothing", "the same here"
_CHOICES = {
    "loss_type": (
        "sigmoid",
        "nce",
        "hinge",
        "sigmoid_loss",
        "nce_loss",
        "hinge_loss",
        "in_batch_negative_softmax_loss",
        "graph_negative_softmax_loss",
    ),
    "gcl_loss": ("simgcl_loss",),
    "sparse_type": ("adagrad", "adagrad_v2", "std_adagrad", "shared_adam", "adam", "naive"),
    "sage_layer_type": (
        "GIN",
        "GraphSAGEMean",
        "GraphSAGEBow",
        "GraphSAGEMax",
        "GAT",
        "LightGCN",
        "TransformerConv",
    ),
    "train_storage_mode": ("WHOLE_HBM", "MEM_EMBEDDING", "SSD_EMBEDDING"),
    "train_mode": ("train", "online_train"),
    "slot_pool_type": ("sum", "concat"),
    "model_type": ("GNNModel",),
}
_SECRETS = ("graph_data_fs_ugi", "output_fs_ugi", "fs_ugi")


@dataclass(frozen=True)
class Outcome:
    """Conversion of one key of the file.

    Attributes:
        key: the key.
        line: its line.
        value: its value; None for what may be a password.
        fate: result of its conversion.
        target: key of the run file that has its meaning, or that it concerns; "" when there is none.
        note: difference or reason.
    """

    key: str
    line: int | None
    value: Any
    fate: Fate
    target: str
    note: str


@dataclass(frozen=True)
class Conversion:
    """A converted file.

    Attributes:
        values: the run file's sections.
        text: the run file's text, with the notes as comments.
        outcomes: what became of each key, in the order of the file.
    """

    values: dict[str, Any]
    text: str
    outcomes: tuple[Outcome, ...]


def convert(
    path: str | Path, *, data: str | Path | None = None, output: str | Path | None = None
) -> Conversion:
    """Convert a PGLBox YAML file, in PGL's or PaddleRec's variant, to a run file.

    Args:
        path: the YAML file.
        data: folder of the sharded or plain part files, instead of the one the file names.
        output: where the run file will be, to which its paths are relative; without it in the working
            directory.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is not YAML, or keys are refused; ``problems`` holds one message for each.
    """
    settings = read_settings(Path(path))
    converter = _Converter(
        settings, None if data is None else Path(data), Path(output or "graphbox.yaml").parent
    )
    values = converter.values()
    outcomes = converter.outcomes()
    if settings.problems:
        raise _refusal(settings)
    text = render(
        values,
        _comments(outcomes),
        head=[f"Converted from the PGLBox file {Path(path).name} by `graphbox convert-pglbox`."],
        foot=_foot(outcomes),
    )
    return Conversion(values, text, tuple(outcomes))


def _refusal(settings: Settings) -> ConfigError:
    order = sorted(settings.problems, key=lambda problem: (problem.line or 0, problem.message))
    problems = list(dict.fromkeys(problem.render(settings.path, settings.source.text) for problem in order))
    count = "1 key" if len(problems) == 1 else f"{len(problems)} keys"
    return ConfigError(
        f"{count} of {settings.path} cannot be converted; no run file was written", problems=problems
    )


class _Converter:
    def __init__(self, settings: Settings, data: Path | None, base: Path) -> None:
        self._settings = settings
        self._data = data
        self._base = base

    def values(self) -> dict[str, Any]:
        """Return the run file's sections; what is wrong is noted in the settings."""
        name = re.sub(r"[^A-Za-z0-9_]+", "-", self._settings.path.stem).strip("-") or "pglbox"
        return {
            "version": 1,
            "name": name[:128],
            "graph": {"name": name[:128], "root": self._root(), **graph_section(self._settings)},
            "tasks": {},
            "models": {_MODEL: self._model()},
        }

    def outcomes(self) -> list[Outcome]:
        """Return what becomes of each key of the file."""
        found = []
        for name in self._settings.names:
            key = KEYS.get(name)
            fate, note = self._unknown(name) if key is None else self._fate(key)
            value = None if name in _SECRETS else self._settings.value(name)
            target = key.target if key is not None and fate in {Fate.MAPPED, Fate.UNSUPPORTED} else ""
            found.append(Outcome(name, self._settings.line(name), value, fate, target, note))
        return found

    def _unknown(self, name: str) -> tuple[Fate, str]:
        hint = did_you_mean(name, KEYS)
        if hint is None:
            return Fate.IGNORED, "no key of PGLBox, which reads past unknown keys without a word"
        self._settings.wrong(name, "unknown key", hint)
        return Fate.REFUSED, hint

    def _fate(self, key: Key) -> tuple[Fate, str]:
        self._check_value(key)
        special = self._special_fate(key.name)
        if special is not None:
            return special
        if key.only_sage and not self._settings.flag("sage_mode"):
            return Fate.IGNORED, "`sage_mode` is off, so PGLBox does not read it either"
        optional = key.fate is Fate.UNSUPPORTED or key.kind in {"names", "mapping"}
        if optional and self._asks_for_nothing(key):
            return Fate.IGNORED, _SAME if self._settings.value(key.name) else _NOTHING
        return key.fate, key.note

    def _special_fate(self, name: str) -> tuple[Fate, str] | None:
        """Return what becomes of a key that depends on more than whether it asks for something."""
        match name:
            case "graph_data_local_path" if self._data is not None:
                return Fate.IGNORED, "`--data` names the folder"
            case "graph_data_hdfs_path":
                used = self._uses_remote_path()
                return (Fate.MAPPED, KEYS[name].note) if used else (Fate.IGNORED, "not used")
            case "train_mode":
                return Fate.IGNORED, _NOTHING if self._settings.text(name) in {"", "train"} else KEYS[
                    name
                ].note
            case "symmetry" if not self._settings.flag(name):
                return Fate.MAPPED, "edge types go one way, as the file says"
            case "model_type" | "need_train":
                return Fate.MAPPED, ""  # the table's note tells of the values that were refused
        return None

    def _asks_for_nothing(self, key: Key) -> bool:
        value = self._settings.value(key.name)
        if key.kind == "flag":
            return not self._settings.flag(key.name)
        if isinstance(value, str):
            value = value.strip().removesuffix("_loss" if key.name == "loss_type" else "")
        return not value or value in key.off

    def _check_value(self, key: Key) -> None:
        """Note what is wrong with a value that graphbox reads, or that PGLBox would stumble over."""
        settings, name = self._settings, key.name
        match key.kind:
            case "flag":
                settings.flag(name)
            case "integer":
                settings.integer(name, least=0)
            case "number":
                settings.number(name)
            case "text" if settings.text(name) and name in _CHOICES:
                self._check_choice(name, settings.text(name))
            case "names" | "integers":
                settings.texts(name)
        if name == "need_train" and settings.value(name) is not None and not settings.flag(name):
            settings.wrong(
                name,
                "inference alone needs the model of an earlier PGLBox run, which graphbox cannot read",
                "set `need_train: True` to train a model here",
            )
        if name == "train_mode" and settings.text(name) == "online_train" and self._data is None:
            settings.wrong(
                name,
                "routine training reads another folder for every hour or day; a run file has one",
                "give `--data FOLDER` with one of them, and convert again for the next",
            )
        if name == "excluded_train_pair" and settings.text(name):
            self._check_pairs(name)

    def _check_choice(self, name: str, value: str) -> None:
        choices = _CHOICES[name]
        if value not in choices:
            hint = did_you_mean(value, choices)
            self._settings.wrong(name, f"expected one of {', '.join(choices)}, received `{value}`", hint)

    def _check_pairs(self, name: str) -> None:
        try:
            parse_pairs(self._settings.text(name))
        except UsageError as error:
            self._settings.wrong(name, error.message, error.hint)

    # The sections

    def _root(self) -> str:
        if self._data is not None:
            return self._data.as_posix() if self._data.is_absolute() else _relative(self._data, self._base)
        name = "graph_data_hdfs_path" if self._uses_remote_path() else "graph_data_local_path"
        text = self._settings.text(name)
        if not text:
            self._settings.wrong(
                "graph_data_local_path",
                "the folder of the data is missing",
                "name it here, or give `--data FOLDER`",
            )
        elif re.match(r"(hdfs|afs):", text):
            self._settings.wrong(
                name,
                f"the data are on a Hadoop cluster: `{text}`",
                "fetch them with `hadoop fs -get`, and give `--data FOLDER`",
            )
        if Path(text).is_absolute():
            return text
        return _relative(self._settings.path.parent / text, self._base)

    def _uses_remote_path(self) -> bool:
        settings = self._settings
        return (
            self._data is None
            and not settings.text("graph_data_local_path")
            and bool(settings.text("graph_data_hdfs_path"))
        )

    def _model(self) -> dict[str, Any]:
        settings = self._settings
        paths = metapaths(settings)
        length = max(1, (settings.integer("walk_len", 9, least=2) or 9) - 1)
        window = settings.integer("win_size", 2) or 2
        negatives = settings.integer("neg_num")
        pairs = settings.integer("batch_size")
        rate = settings.number("sparse_lr")
        if rate is not None and rate <= 0:
            settings.wrong("sparse_lr", f"expected a number greater than 0, received {rate:g}")
        model: dict[str, Any] = {"kind": "metapath2vec"}
        model["dim"] = settings.integer("emb_size", 64)
        model["metapaths"] = [[list(step) for step in path] for path in paths]
        model["walks_per_node"] = settings.integer("walk_times", 1)
        model["walk_length"] = length
        model["window"] = window
        if negatives is not None:
            model["negative_weight"] = float(negatives)
        if settings.flag("weighted_sample"):
            model["weighted"] = True
        model["subsample"] = 0.0
        model["epochs"] = settings.integer("epochs", 1)
        if pairs is not None:
            model["batch_size"] = _walks_for(pairs, length, window, len(paths))
        if rate is not None:
            model["learning_rate"] = rate
        return model


def _walks_for(pairs: int, length: int, window: int, metapaths: int) -> int:
    """Return how many walks of each metapath make about ``pairs`` pairs of centre and context."""
    per_walk = sum(2 * (length + 1 - distance) for distance in range(1, min(window, length) + 1))
    return max(1, round(pairs / (per_walk * max(1, metapaths))))


def _relative(path: Path, base: Path) -> str:
    """Return ``path`` as it is written in a file in the folder ``base``."""
    return Path(os.path.relpath(path, base)).as_posix()


# Notes in the run file


def _comments(outcomes: list[Outcome]) -> dict[KeyPath, list[str]]:
    comments: dict[KeyPath, list[str]] = {}
    for outcome in outcomes:
        if outcome.target and outcome.note:
            shown = "" if outcome.fate is Fate.MAPPED else f" {_shortened(outcome.value)}, not supported"
            place = tuple(outcome.target.partition(".*")[0].split("."))
            comments.setdefault(place, []).append(f"{outcome.key}{shown}: {outcome.note}")
    comments["tasks",] = [
        (
            "PGLBox evaluates nothing, so neither does this run. A task here, named by `task:` in "
            "the model, would hold "
            "edges or labels out and report how well they are found."
        )
    ]
    comments.setdefault(("models", _MODEL, "subsample"), []).append(
        "PGLBox does not thin out frequent nodes; 1e-3 is this program's default."
    )
    comments.setdefault(("models", _MODEL, "kind"), []).append(
        "Centres and contexts have a table each; PGLBox has one for both."
    )
    return comments


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _foot(outcomes: list[Outcome]) -> list[str]:
    rest = [outcome for outcome in outcomes if not outcome.target]
    quiet = [outcome.key for outcome in rest if outcome.note in {_NOTHING, _SAME}]
    told: dict[str, list[str]] = {}
    for outcome in rest:
        if outcome.key not in quiet:
            told.setdefault(outcome.note, []).append(outcome.key)
    lines = [f"  {', '.join(keys)}: {note}" for note, keys in told.items()]
    if quiet:
        lines.append(f"  {', '.join(quiet)}: ask for nothing, or for what is so here anyway")
    return ["", "Keys of the PGLBox file that are not needed here:", *lines] if lines else []
