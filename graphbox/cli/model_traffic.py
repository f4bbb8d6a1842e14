"""`graphbox models rollback`, `canary` and `shadow`: which versions of a model get its requests."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.promotion import print_servers, server_documents
from graphbox.cli.session import Session
from graphbox.cli.text import table

if TYPE_CHECKING:
    from graphbox.workspace import Workspace
    from graphbox.workspace.traffic import ModelTraffic, Role, ShadowSums

__all__ = ["canary_model", "roll_back_model", "shadow_model"]

NameArgument = Annotated[str, typer.Argument(help="Name of the model.")]
VersionArgument = Annotated[
    int | None, typer.Argument(help="Version, not the active one; without it, what is set is shown.")
]
EndOption = Annotated[bool, typer.Option("--end", help="End it: the active version answers alone.")]


def roll_back_model(session: Session, name: NameArgument) -> None:
    """Make the version active that was active before the present one. Ends canary and shadow."""
    with session.workspace() as workspace:
        before = workspace.active_versions().get(name)
        model = workspace.roll_back_model(name)
        servers = workspace.running_servers()
    document = {
        "name": name,
        "version": model.version,
        "active_before": before,
        "servers": server_documents(servers),
    }

    def show(console: Any) -> None:
        console.print(
            f"{name}: version {model.version} is active, before it version {before} was", soft_wrap=True
        )
        print_servers(servers, console)

    session.answer(document, show)


def canary_model(
    session: Session,
    name: NameArgument,
    version: VersionArgument = None,
    percent: Annotated[
        float, typer.Option(help="Share of the requests that name no version; 0 ends the canary.")
    ] = 10.0,
    end: EndOption = False,
) -> None:
    """Let a version answer a share of the requests; promoting a version ends it.

    Requests with the same routing key go to the same version.
    """
    with session.workspace() as workspace:
        if _is_change(workspace, name, "canary", version, percent, end=end) and version is not None:
            workspace.set_canary(name, version, percent)
        traffic = workspace.traffic(name)
        active = workspace.active_versions().get(name)
    canary = traffic.canary

    def show(console: Any) -> None:
        if canary is None:
            console.print(f"{name}: version {active} answers all requests, there is no canary")
            return
        console.print(
            f"{name}: version {canary.version} answers {canary.percent:g} % of the requests as canary, "
            f"version {active} the others",
            soft_wrap=True,
        )

    session.answer(_document(name, active, traffic, None), show)


def shadow_model(
    session: Session,
    name: NameArgument,
    version: VersionArgument = None,
    percent: Annotated[
        float, typer.Option(help="Share of the requests that are repeated; 0 ends the shadow.")
    ] = 100.0,
    tolerance: Annotated[
        float, typer.Option(help="Largest absolute difference of numbers that count as equal.")
    ] = 1e-4,
    end: EndOption = False,
) -> None:
    """Repeat answered requests on a version and sum the differences; promoting a version ends it.

    Without a version, the sums so far are shown. Clients get the answers of the active version alone.
    """
    with session.workspace() as workspace:
        if _is_change(workspace, name, "shadow", version, percent, end=end) and version is not None:
            workspace.set_shadow(name, version, percent, tolerance)
        traffic = workspace.traffic(name)
        active = workspace.active_versions().get(name)
        sums = workspace.shadow_sums(name)

    def show(console: Any) -> None:
        if traffic.shadow is None or sums is None:
            console.print(f"{name}: no requests are repeated, there is no shadow")
            return
        console.print(
            f"{name}: {traffic.shadow.percent:g} % of the requests to version {active} are repeated on "
            f"version {traffic.shadow.version}; tolerance {traffic.shadow.tolerance:g}",
            soft_wrap=True,
        )
        _print_sums(sums, console)

    session.answer(_document(name, active, traffic, sums), show)


def _is_change(
    workspace: Workspace, name: str, role: Role, version: int | None, percent: float, *, end: bool
) -> bool:
    """End a canary or shadow where that is asked for; return whether one is to be set."""
    if end or not percent:
        workspace.end_share(name, role)
        return False
    return version is not None


def _document(
    name: str, active: int | None, traffic: ModelTraffic, sums: ShadowSums | None
) -> dict[str, Any]:
    document: dict[str, Any] = {"name": name, "active": active, **asdict(traffic)}
    if sums is not None:
        outputs = {
            output_name: {
                "rows": output.rows,
                "different_share": output.different_share,
                "mean_difference": output.mean_difference,
                "largest_difference": output.largest_difference,
                "overlap": output.overlap,
            }
            for output_name, output in sums.outputs.items()
        }
        document["shadow_record"] = {
            "calls": sums.calls,
            "failed": sums.failed,
            "dropped": sums.dropped,
            "active_ms": sums.active_ms,
            "shadow_ms": sums.shadow_ms,
            "error": sums.error,
            "outputs": outputs,
        }
    return document


def _print_sums(sums: ShadowSums, console: Any) -> None:
    console.print(f"{sums.calls:,} requests compared, {sums.failed:,} failed, {sums.dropped:,} dropped")
    if sums.error is not None:
        console.print(f"the last failure: {sums.error}", markup=False, soft_wrap=True)
    if sums.active_ms is not None and sums.shadow_ms is not None:
        console.print(
            f"mean execution {sums.shadow_ms:.3f} ms, that of the active version {sums.active_ms:.3f} ms"
        )
    rows = [
        (
            name,
            f"{output.rows:,}",
            _share(output.different_share),
            _number(output.mean_difference),
            _number(output.largest_difference),
            _share(output.overlap),
        )
        for name, output in sums.outputs.items()
    ]
    if rows:
        columns = ("output", "rows", "different", "mean difference", "largest", "ids in common")
        console.print(table(None, columns, rows, columns[1:]))


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.2%}"


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"
