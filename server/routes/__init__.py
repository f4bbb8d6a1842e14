"""The REST interface, one file for each noun."""

from __future__ import annotations

__all__ = ["API_PREFIX"]

API_PREFIX = "/api/v1"
"""Prefix of the path of every route, but those of health and metrics."""
