"""Kinds of models of sequences: SASRec, GRU4Rec, ComiRec."""

from __future__ import annotations

from graphbox.config import ComiRecConfig, GRU4RecConfig, ModelKind, SASRecConfig, SequenceSection
from graphbox.config.model_kind import TORCH_OPTIMIZERS


def _sequence_model(section: type[SequenceSection]) -> ModelKind:
    """Return the kind of a section: the next event of a history."""
    return ModelKind(
        section,
        "graphbox.train.sequences.trainer:SequenceTrainer",
        footprint="graphbox.train.sequences.footprint:SequenceFootprint",
        libraries=(TORCH_OPTIMIZERS,),
    )


sasrec = _sequence_model(SASRecConfig)
gru4rec = _sequence_model(GRU4RecConfig)
comirec = _sequence_model(ComiRecConfig)
