"""Training and evaluation: tasks and their splits, baselines, trainers, checkpoints."""

from __future__ import annotations

from graphbox.train.completion.likely_answers import LikelyAnswer, likely_answers
from graphbox.train.evaluate import (
    evaluate_baselines,
    evaluate_embeddings,
    evaluate_logits,
    evaluate_scores,
    evaluate_trained,
)
from graphbox.train.fit import fit, load_outcome
from graphbox.train.links.evaluation import evaluate_link_embeddings
from graphbox.train.loop import Outcome, TrainProgress
from graphbox.train.network.trained_network import ClassHead, TrainedNetwork, load_network
from graphbox.train.recommendation.sage_encoder import SageEncoder
from graphbox.train.registry import Assignment
from graphbox.train.splitting import make_split
from graphbox.train.tasks import (
    ClassifySplit,
    ClickSplit,
    CompleteSplit,
    LinkSplit,
    RecommendSplit,
    load_split,
    save_split,
)
from graphbox.train.trained import TrainedModel, load_trained
from graphbox.train.trainer import Selection, Trainer
from graphbox.train.view import GraphView
from graphbox.train.walks.embed import embed

__all__ = [
    "Assignment",
    "ClassHead",
    "ClassifySplit",
    "ClickSplit",
    "CompleteSplit",
    "GraphView",
    "LikelyAnswer",
    "LinkSplit",
    "Outcome",
    "RecommendSplit",
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
