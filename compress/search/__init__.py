"""Search for compressed models within limits: recipes are tried, measured on the target and chosen among."""

from __future__ import annotations

from graphbox.compress.search.choice import choose, infeasible
from graphbox.compress.search.page import report_page
from graphbox.compress.search.report import Setting, progress_document, report_document
from graphbox.compress.search.search import Budget, Found, search
from graphbox.compress.search.space import CodecCost, Space, ladder, smallest_uniform
from graphbox.compress.search.suggestions import suggestions
from graphbox.compress.search.trials import RecipeTrialLog, Trial
from graphbox.compress.search.workbench import Target, Workbench

__all__ = [
    "Budget",
    "CodecCost",
    "Found",
    "RecipeTrialLog",
    "Setting",
    "Space",
    "Target",
    "Trial",
    "Workbench",
    "choose",
    "infeasible",
    "ladder",
    "progress_document",
    "report_document",
    "report_page",
    "search",
    "smallest_uniform",
    "suggestions",
]
