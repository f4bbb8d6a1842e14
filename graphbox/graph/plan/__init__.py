"""What an import takes before it is run: memory, disk and time."""

from graphbox.graph.plan.prediction import ImportPlan, TypePlan, plan_import

__all__ = ["ImportPlan", "TypePlan", "plan_import"]
