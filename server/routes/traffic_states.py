"""Documents of canaries and shadows."""

from __future__ import annotations

from collections.abc import Iterable

from graphbox.server.repository import Known
from graphbox.server.schema import CanaryState, ShadowOutputState, ShadowState, Traffic
from graphbox.server.services import Services
from graphbox.server.traffic import unavailable_requests
from graphbox.workspace.traffic import Canary, Shadow, ShadowSums

__all__ = ["traffic_states"]


def traffic_states(services: Services, known: Iterable[Known]) -> dict[str, Traffic]:
    """Return canaries and shadows by model name; models without any are left out.

    Args:
        services: parts of the server.
        known: versions of the repository.
    """
    workspace = services.workspace
    traffic = {} if workspace is None else workspace.traffic_of_models()
    if workspace is None or not traffic:
        return {}
    opened = {(each.name, each.version) for each in known if each.state == "READY"}
    found = {}
    for name, each in traffic.items():
        canary, shadow = each.canary, each.shadow
        sums = workspace.shadow_sums(name) if shadow is not None else None
        found[name] = Traffic(
            canary=None if canary is None else _canary(services, name, canary, opened),
            shadow=None if shadow is None else _shadow(services, name, shadow, sums or ShadowSums(), opened),
        )
    return found


def _canary(services: Services, name: str, canary: Canary, opened: set[tuple[str, int]]) -> CanaryState:
    return CanaryState(
        version=canary.version,
        percent=canary.percent,
        available=(name, canary.version) in opened,
        unavailable_requests=unavailable_requests(services.repository.counters, name, canary.version),
    )


def _shadow(
    services: Services, name: str, shadow: Shadow, sums: ShadowSums, opened: set[tuple[str, int]]
) -> ShadowState:
    return ShadowState(
        version=shadow.version,
        percent=shadow.percent,
        tolerance=shadow.tolerance,
        available=(name, shadow.version) in opened,
        calls=sums.calls,
        failed=sums.failed,
        dropped=sums.dropped,
        active_ms=sums.active_ms,
        shadow_ms=sums.shadow_ms,
        error=None if sums.error is None else services.public_text(sums.error),
        outputs=[
            ShadowOutputState(
                name=output_name,
                rows=output.rows,
                different_share=output.different_share,
                mean_difference=output.mean_difference,
                largest_difference=output.largest_difference,
                overlap=output.overlap,
            )
            for output_name, output in sums.outputs.items()
        ],
    )
