"""The REST interface, one file for each noun."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

__all__ = ["API_PREFIX", "RoutingKey"]

API_PREFIX = "/api/v1"
"""Prefix of the path of every route, but those of health and metrics."""

RoutingKey = Annotated[
    str | None,
    Header(alias="x-routing-key", description="requests with the same key go to the same version"),
]
"""Header of requests that a canary may answer; see `Inference.use`."""
