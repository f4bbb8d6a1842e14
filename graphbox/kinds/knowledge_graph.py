"""Kinds of knowledge-graph embeddings: DistMult, ComplEx, TransE, RotatE."""

from __future__ import annotations

from graphbox.config import ComplExConfig, DistMultConfig, ModelKind, RotatEConfig, TransEConfig

_TRAINER = "graphbox.train.completion.trainer:CompletionTrainer"
_BILINEAR = "graphbox.train.completion.footprint:BilinearFootprint"
_TRANSLATION = "graphbox.train.completion.footprint:TranslationFootprint"

distmult = ModelKind(DistMultConfig, _TRAINER, footprint=_BILINEAR)
complex_ = ModelKind(ComplExConfig, _TRAINER, footprint=_BILINEAR)
transe = ModelKind(TransEConfig, _TRAINER, footprint=_TRANSLATION)
rotate = ModelKind(RotatEConfig, _TRAINER, footprint=_TRANSLATION)
