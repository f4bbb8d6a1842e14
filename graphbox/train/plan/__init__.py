"""Predicted peak memory of trainings, model by model."""

from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.training_plan import TrainingPlan, check_room, plan_trainings, problems

__all__ = ["GraphCounts", "TrainingPlan", "check_room", "plan_trainings", "problems"]
