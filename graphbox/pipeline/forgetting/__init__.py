"""Forgetting nodes: out of a graph and out of everything in the workspace that was made of it."""

from __future__ import annotations

from graphbox.pipeline.forgetting.holdings import Holding
from graphbox.pipeline.forgetting.report import ForgetReport
from graphbox.pipeline.forgetting.steps import forget, forget_again, what_holds

__all__ = ["ForgetReport", "Holding", "forget", "forget_again", "what_holds"]
