"""Chooses the settings that a section leaves to the data, before its model is trained.

The kind of model suggests settings that suit the data. Several are compared on the validation part, and with
`tune` a search goes on from them; the test part is not read. Trials are kept in the run's folder, so that a
process that was killed continues with the trial that it was in.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphbox.config import Candidate, DataFacts, ModelSection
from graphbox.durable import write_atomically
from graphbox.errors import (
    DoesNotFitError,
    GraphboxError,
    InterruptedRunError,
    UnsupportedError,
    UsageError,
)
from graphbox.train.choosing.proposals import propose
from graphbox.train.choosing.pruning import Curve, MedianRule
from graphbox.train.choosing.trials import SettingsTrial, SettingsTrialLog, key_of
from graphbox.train.json_record import read_record

__all__ = ["CHOICES", "Measured", "Settled", "settle", "settled_earlier"]

CHOICES = "choices"
"""Folder of a run with a folder for each model whose settings were chosen."""
_SETTLED, _TRIALS = "chosen.json", "trials.jsonl"


@dataclass(frozen=True)
class Measured:
    """Outcome of a training on the training part.

    Attributes:
        metric: name of a figure on the validation part.
        value: the figure.
        cost: what a better model has less of.
        epochs: epochs that were trained.
        best_epoch: the epoch after which it was best; None: the last.
        median: of a training that was pruned, the median that the figure was worse than; None: it ended.
        curve: how the cost fell; empty where it was not measured in training.
    """

    metric: str
    value: float
    cost: float
    epochs: int
    best_epoch: int | None
    median: float | None = None
    curve: Curve = ()


@dataclass(frozen=True)
class Settled:
    """Settings that were chosen.

    Attributes:
        settings: values by key of the section.
        why: how they were chosen, in words.
        metric: figure by which they were compared; empty: nothing was compared.
        trials: what was tried; their curves are in the log alone.
        facts: what was known of the data.
        seconds: that the choice took.
        trained: folder below the model's with the run of the trial that won; None: it was not trained.
    """

    settings: Mapping[str, Any]
    why: str
    metric: str = ""
    trials: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    trained: str | None = None


Train = Callable[[ModelSection, Path, Callable[[], bool], MedianRule | None], Measured]
"""Trains a settled section in a folder of its own, from its last checkpoint if there is one, and measures it
on the validation part. The function says whether the time is over; the rule prunes; None: nothing does."""

Report = Callable[[SettingsTrial, int], None]
"""Called with each finished trial and the number of trials so far."""


def settle(
    config: ModelSection,
    facts: DataFacts,
    folder: Path,
    train: Train,
    *,
    seed: int,
    compares: bool,
    report: Report | None = None,
) -> Settled:
    """Return settings for what a section leaves to the data; those of an earlier attempt if it made them.

    Args:
        config: the section, with something to choose.
        facts: what is known of the data.
        folder: of the model's choices, in the run's folder.
        train: trains and measures.
        seed: of the search.
        compares: whether there is a validation part to compare suggestions on.
        report: called with each finished trial.

    Raises:
        UsageError: no trial could be trained; the message has the reason of the first.
        InterruptedRunError: the run was stopped.
    """
    earlier = settled_earlier(folder)
    if earlier is not None:
        return earlier
    folder.mkdir(parents=True, exist_ok=True)
    suggestions = _distinct(config, facts)
    if config.tune is None and (len(suggestions) < 2 or not compares):
        first = suggestions[0]
        found = Settled(first.settings, first.why, facts=asdict(facts))
    else:
        found = _Search(config, facts, folder, train, seed, report).run(suggestions)
    with write_atomically(folder / _SETTLED) as stream:
        stream.write(json.dumps(asdict(found), indent=1).encode())
    return settled_earlier(folder) or found  # the same values as for those who come later


def settled_earlier(folder: Path) -> Settled | None:
    """Return what :func:`settle` kept in a folder; None: nothing.

    Raises:
        FormatError: the file is damaged.
    """
    try:
        return read_record(folder / _SETTLED, Settled, "remove the file; trials are in the log")
    except FileNotFoundError:
        return None


def _distinct(config: ModelSection, facts: DataFacts) -> list[Candidate]:
    """Return the suggestions, reduced to what there is to choose; those that are then the same once."""
    found: dict[str, Candidate] = {}
    for each in config.suggestions(facts) or (Candidate({}, "the defaults of the kind"),):
        settings = {name: value for name, value in each.settings.items() if name in (config.auto or ())}
        found.setdefault(key_of(settings), Candidate(settings, each.why, each.trial))
    return list(found.values())


_REFUSALS = (UsageError, DoesNotFitError, UnsupportedError, GraphboxError)
"""Errors of settings: they fit neither the graph nor the memory, or a loss is not finite."""


class _Search:
    def __init__(
        self,
        config: ModelSection,
        facts: DataFacts,
        folder: Path,
        train: Train,
        seed: int,
        report: Report | None,
    ) -> None:
        self._config = config
        self._facts = facts
        self._folder = folder
        self._train = train
        self._seed = seed
        self._report = report or (lambda *_: None)
        self._first_error: GraphboxError | None = None
        self._log = SettingsTrialLog(folder / _TRIALS)
        self._space = {name: each for name, each in config.SPACE.items() if name in (config.auto or ())}

    def run(self, suggestions: list[Candidate]) -> Settled:
        for each in suggestions:
            if not self._is_over():
                trial = {} if self._is_search else each.trial
                self._try(each.settings, "suggested", each.why, trial)
        while self._is_search and not self._is_over():
            found = propose(self._space, list(self._log), self._config.model_dump(mode="python"), self._seed)
            if found is None:
                break
            # How long to train, say, is as suggested; options of one layer do not fit another.
            base = {name: value for name, value in suggestions[0].settings.items() if name != "layer_options"}
            self._try({**base, **found}, "search", "", {})
        return self._decide(is_final=self._is_search or not any(each.trial for each in suggestions))

    @property
    def _is_search(self) -> bool:
        return self._config.tune is not None

    def _is_over(self) -> bool:
        """Return whether the time is over; the first trial is always finished."""
        limit = self._config.tune
        return limit is not None and self._log.best is not None and self._log.seconds >= limit

    def _try(self, settings: Mapping[str, Any], source: str, why: str, of_trial: Mapping[str, Any]) -> None:
        if self._log.find(settings) is not None:
            return
        began = time.monotonic()
        limit = self._config.tune
        left = None if limit is None or self._log.best is None else limit - self._log.seconds

        def is_over() -> bool:
            return left is not None and time.monotonic() - began >= left

        place = self._folder / f"trial-{len(self._log)}"
        common: dict[str, Any] = {"settings": dict(settings), "source": source, "why": why}
        try:
            section = self._config.settled(settings).model_copy(update=dict(of_trial))
            measured = self._train(section, place, is_over, self._rule(source))
            common["state"] = "measured" if measured.median is None else "pruned"
            trial = SettingsTrial(**common, seconds=time.monotonic() - began, **vars(measured))
        except InterruptedRunError:
            if not is_over():
                raise
            trial = SettingsTrial(**common, state="stopped", seconds=time.monotonic() - began)
        except GraphboxError as error:
            if type(error) not in _REFUSALS:
                raise
            self._first_error = self._first_error or error
            common["why"] = str(error)
            trial = SettingsTrial(**common, state="refused", seconds=time.monotonic() - began)
        self._log.add(trial)
        self._keep_best()
        self._report(trial, len(self._log))

    def _rule(self, source: str) -> MedianRule | None:
        """Return the rule that may end a trial early; None: a suggestion is always trained to its end."""
        if source != "search":
            return None
        return MedianRule([trial.curve for trial in self._log.measured])

    def _keep_best(self) -> None:
        """Remove what trials left, but for the best one."""
        best = self._place_of_best()
        for place in self._folder.glob("trial-*"):
            if place.name != best:
                shutil.rmtree(place)

    def _place_of_best(self) -> str | None:
        best = self._log.best
        return None if best is None else f"trial-{[each.key for each in self._log].index(best.key)}"

    def _decide(self, *, is_final: bool) -> Settled:
        best = self._log.best
        trials = list(self._log)
        if best is None and self._first_error is not None:
            raise self._first_error
        if best is None:
            raise UsageError(
                f"expected settings with which the model can be trained, received {len(trials)} trials that "
                f"cannot: {trials[0].why}",
                hint="give the settings in the run file; `auto: []` takes the defaults",
            )
        how = "search" if best.source == "search" else best.why
        measured, pruned = len(self._log.measured), sum(each.state == "pruned" for each in trials)
        more = f", {pruned} more pruned" if pruned else ""
        why = f"best {best.metric} of {measured}{more}: {how}" if measured + pruned > 1 else how
        return Settled(
            best.settings,
            why,
            best.metric,
            tuple(_without_curve(each) for each in trials),
            asdict(self._facts),
            self._log.seconds,
            self._place_of_best() if is_final else None,
        )


def _without_curve(trial: SettingsTrial) -> dict[str, Any]:
    return {name: value for name, value in asdict(trial).items() if name != "curve"}
