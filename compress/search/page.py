"""Report of a search as one HTML file: no scripts, nothing from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from graphbox.errors import missing_extra

__all__ = ["report_page"]

_WIDTH, _HEIGHT, _MARGIN = 640, 360, 56


def report_page(report: Mapping[str, Any]) -> str:
    """Return the report of a search as an HTML page.

    Args:
        report: document of `graphbox.compress.search.report`.

    Raises:
        BackendMissingError: the package jinja2 is missing.
    """
    try:
        from jinja2 import Environment
    except ImportError as error:
        raise missing_extra("jinja2", "train") from error
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["bytes"] = _byte_size
    template = resources.files("graphbox.compress.search").joinpath("report.html").read_text()
    chosen = next(each for each in report["points"] if each["key"] == report["chosen"])
    return environment.from_string(template).render(report=report, chosen=chosen, chart=_chart(report))


def _chart(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return places of all models: bytes on a logarithmic axis, the metric on the other."""
    metric = report["metric"]
    measured = [each for each in report["trials"] if each["state"] == "measured"]
    sizes = [each["size_bytes"] for each in measured]
    values = [each["metrics"][metric] for each in measured]
    log_low, log_span = math.log(min(sizes)), math.log(max(sizes) / min(sizes)) or 1.0
    low, span = min(values), (max(values) - min(values)) or 1.0
    points = {each["key"]: each for each in report["points"]}
    height = _HEIGHT - 2 * _MARGIN

    def mark(trial: Mapping[str, Any]) -> dict[str, Any]:
        value, point = trial["metrics"][metric], points.get(trial["key"])
        error = None if point is None else point["standard_error"]
        across = (math.log(trial["size_bytes"]) - log_low) / log_span
        return {
            "x": round(_MARGIN + across * (_WIDTH - 2 * _MARGIN), 1),
            "y": round(_HEIGHT - _MARGIN - (value - low) / span * height, 1),
            "half": round(min(error / span * height, _HEIGHT), 1) if error else None,
            "is_point": point is not None,
            "is_chosen": trial["key"] == report["chosen"],
            "title": f"{trial['name']}: {_byte_size(trial['size_bytes'])}, {metric} {value:.4f}",
        }

    marks = sorted((mark(each) for each in measured), key=lambda each: each["is_point"])
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _MARGIN,
        "right": _WIDTH - _MARGIN,
        "top": _MARGIN,
        "bottom": _HEIGHT - _MARGIN,
        "least_bytes": min(sizes),
        "most_bytes": max(sizes),
        "least": low,
        "most": max(values),
        "marks": marks,
    }


def _byte_size(size: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size:.0f} B"
