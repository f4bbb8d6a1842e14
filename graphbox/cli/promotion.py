"""Texts about versions: which one is active, how a new one compares, which servers serve it."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.text import byte_size, metric

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.config import PromotionRule
    from graphbox.workspace import RunningServer

PromoteOption = Annotated[
    bool | None,
    typer.Option(
        "--promote/--no-promote",
        help="Make the new version active, or do not. (default: what the run file says)",
        show_default=False,
    ),
]


def rule_of_option(promote: bool | None) -> PromotionRule | None:
    """Return the rule that an option asks for instead of the one in the run file, if any."""
    return None if promote is None else "always" if promote else "never"


def print_promotions(
    promotions: Mapping[str, Mapping[str, Any]], servers: Sequence[RunningServer], console: Console
) -> None:
    """Print which version of each model is active, and which servers take it up."""
    for name, promotion in promotions.items():
        console.print(_promotion_text(name, promotion), markup=False, soft_wrap=True)
    if promotions:
        print_servers(servers, console)
        console.print()


def print_servers(servers: Sequence[RunningServer], console: Console) -> None:
    """Print whether a running server of the workspace takes up the active versions."""
    for line in _server_lines(servers):
        console.print(line, markup=False, soft_wrap=True)


def server_documents(servers: Iterable[RunningServer]) -> list[dict[str, Any]]:
    """Return running servers as plain values."""
    return [asdict(server) for server in servers]


def comparison_text(comparison: Mapping[str, Any]) -> str:
    """Return the figures of a version against those of the active one, on one line."""
    quality, size, request = (comparison[key] for key in ("quality", "size_bytes", "request_ms"))
    parts = []
    if comparison["metric"] is not None and quality["version"] is not None:
        versus = "not comparable" if comparison["not_comparable"] else metric(quality["active"])
        parts.append(f"{comparison['metric']} {metric(quality['version'])} vs {versus}")
    parts.append(f"{byte_size(size['version'])} vs {byte_size(size['active'])}")
    if comparison["request"] is not None:
        new, old = (_milliseconds(request[key]) for key in ("version", "active"))
        parts.append(f"{comparison['request']} request {new} vs {old}")
    return ", ".join(parts)


def _promotion_text(name: str, promotion: Mapping[str, Any]) -> str:
    version, active, comparison = promotion["version"], promotion["active"], promotion["comparison"]
    compared = "" if comparison is None else f": {comparison_text(comparison)}"
    if version == active:
        before = "" if comparison is None else f", before it version {comparison['active']} was"
        return f"{name}: version {version} is active ({promotion['reason']}){before}{compared}"
    return (
        f"{name}: version {version} is not active, version {active} is ({promotion['reason']}){compared}; "
        f"`graphbox models promote {name} --version {version}` serves it"
    )


def _server_lines(servers: Sequence[RunningServer]) -> list[str]:
    if not servers:
        return ["no server of this workspace is running: `graphbox serve` serves the active versions"]
    lines = []
    for server in servers:
        place = "" if server.host == socket.gethostname() else f" on {server.host}"
        which = f"the server at {server.url} (process {server.pid}{place})"
        if server.follows:
            lines.append(f"{which} takes up active versions within a second")
        else:
            lines.append(
                f"{which} does not follow (--no-follow): `kill -HUP {server.pid}`{place} makes it take up "
                "the active versions"
            )
    return lines


def _milliseconds(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f} ms"
