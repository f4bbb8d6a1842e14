"""What trainings take of memory before they are run: the most that the process will hold, model by model."""

from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.training_plan import TrainingPlan, check_room, plan_trainings, problems

__all__ = ["GraphCounts", "TrainingPlan", "check_room", "plan_trainings", "problems"]
