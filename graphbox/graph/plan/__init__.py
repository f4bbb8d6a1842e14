"""Prediction of an import's memory, disk space and time."""

from graphbox.graph.plan.prediction import ImportPlan, TypePlan, plan_import

__all__ = ["ImportPlan", "TypePlan", "plan_import"]
