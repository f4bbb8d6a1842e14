"""Training and evaluation: tasks and their splits, baselines, trainers, checkpoints."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphbox.train.assignment import Assignment
from graphbox.train.fit import fit, load_outcome
from graphbox.train.loop import Outcome, TrainProgress
from graphbox.train.network.network_files import load_network
from graphbox.train.network.trained_network import ClassHead, TrainedNetwork
from graphbox.train.own_module.inputs import ModuleInputs
from graphbox.train.recommendation.sage_encoder import SageEncoder
from graphbox.train.row_keys import RowKeys
from graphbox.train.tasks import (
    ClassifySplit,
    ClickSplit,
    CompleteSplit,
    LinkSplit,
    NextSplit,
    RecommendSplit,
    load_split,
    save_split,
)
from graphbox.train.trained import TrainedModel, load_trained
from graphbox.train.trainer import Selection, Trainer
from graphbox.train.view import GraphView

if TYPE_CHECKING:
    from graphbox.train.completion.likely_answers import LikelyAnswer as LikelyAnswer
    from graphbox.train.completion.likely_answers import likely_answers as likely_answers
    from graphbox.train.evaluate import evaluate_baselines as evaluate_baselines
    from graphbox.train.evaluate import evaluate_embeddings as evaluate_embeddings
    from graphbox.train.evaluate import evaluate_logits as evaluate_logits
    from graphbox.train.evaluate import evaluate_scores as evaluate_scores
    from graphbox.train.evaluate import evaluate_trained as evaluate_trained
    from graphbox.train.links.evaluation import evaluate_link_embeddings as evaluate_link_embeddings
    from graphbox.train.splitting import make_split as make_split
    from graphbox.train.walks.embed import embed as embed

_MODULE_OF = {
    "LikelyAnswer": "graphbox.train.completion.likely_answers",
    "embed": "graphbox.train.walks.embed",
    "evaluate_baselines": "graphbox.train.evaluate",
    "evaluate_embeddings": "graphbox.train.evaluate",
    "evaluate_link_embeddings": "graphbox.train.links.evaluation",
    "evaluate_logits": "graphbox.train.evaluate",
    "evaluate_scores": "graphbox.train.evaluate",
    "evaluate_trained": "graphbox.train.evaluate",
    "likely_answers": "graphbox.train.completion.likely_answers",
    "make_split": "graphbox.train.splitting",
}
"""Names that several processes that train one model do not need: loaded on first use."""

__all__ = [
    "Assignment",
    "ClassHead",
    "ClassifySplit",
    "ClickSplit",
    "CompleteSplit",
    "GraphView",
    "LikelyAnswer",
    "LinkSplit",
    "ModuleInputs",
    "NextSplit",
    "Outcome",
    "RecommendSplit",
    "RowKeys",
    "SageEncoder",
    "Selection",
    "TrainProgress",
    "TrainedModel",
    "TrainedNetwork",
    "Trainer",
    "embed",
    "evaluate_baselines",
    "evaluate_embeddings",
    "evaluate_link_embeddings",
    "evaluate_logits",
    "evaluate_scores",
    "evaluate_trained",
    "fit",
    "likely_answers",
    "load_network",
    "load_outcome",
    "load_split",
    "load_trained",
    "make_split",
    "save_split",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'graphbox.train' has no attribute {name!r}")
