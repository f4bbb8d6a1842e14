"""Training and evaluation: tasks and their splits, baselines, trainers, checkpoints."""

from __future__ import annotations

from graphbox.train.evaluate import evaluate_baselines, evaluate_embeddings, evaluate_scores
from graphbox.train.fit import fit
from graphbox.train.loop import TrainProgress
from graphbox.train.sage_encoder import SageEncoder
from graphbox.train.tasks import ClassifySplit, RecommendSplit, load_split, make_split, save_split
from graphbox.train.trained import TrainedModel, load_trained
from graphbox.train.view import GraphView

__all__ = [
    "ClassifySplit",
    "GraphView",
    "RecommendSplit",
    "SageEncoder",
    "TrainProgress",
    "TrainedModel",
    "evaluate_baselines",
    "evaluate_embeddings",
    "evaluate_scores",
    "fit",
    "load_split",
    "load_trained",
    "make_split",
    "save_split",
]
