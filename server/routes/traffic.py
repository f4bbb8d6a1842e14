"""Routes of traffic between versions of a model: canaries, shadows and rolling back."""

from __future__ import annotations

from fastapi import APIRouter

from graphbox.server.routes import API_PREFIX
from graphbox.server.routes.models import Name, version_of, writable_workspace
from graphbox.server.routes.traffic_states import traffic_states
from graphbox.server.schema import CanaryRequest, ModelVersion, ShadowRequest, Traffic
from graphbox.server.services import Services, ServicesDep
from graphbox.workspace.traffic import Role

router = APIRouter(prefix=f"{API_PREFIX}/models", tags=["models"])


@router.post("/{name}/rollback")
def roll_back(name: Name, services: ServicesDep) -> ModelVersion:
    """Make the version active that was active before the present one.

    The server switches to it as after `promote`. Ends the canary and the shadow of the model.
    """
    with writable_workspace(services, name, None, "rollback", f"rollback {name}") as workspace:
        record = workspace.roll_back_model(name)
    return version_of(record, record)


@router.post("/{name}/canary")
def set_canary(name: Name, canary: CanaryRequest, services: ServicesDep) -> Traffic:
    """Let a version answer a share of the requests that name no version, within a second.

    A promotion ends it.
    """
    version, percent = canary.version, canary.percent
    command = f"canary {name} {version} --percent {percent:g}"
    with writable_workspace(services, name, version, "canary", command) as workspace:
        if percent:
            workspace.set_canary(name, version, percent)
        else:
            workspace.end_share(name, "canary")
    return _traffic(services, name)


@router.delete("/{name}/canary")
def end_canary(name: Name, services: ServicesDep) -> Traffic:
    """Let the active version answer all requests that name no version, within a second."""
    return _end(services, name, "canary")


@router.post("/{name}/shadow")
def set_shadow(name: Name, shadow: ShadowRequest, services: ServicesDep) -> Traffic:
    """Repeat a share of the answered requests on a version, and sum the differences of its outputs.

    Requests are repeated within a second; a promotion ends it.
    """
    version, percent = shadow.version, shadow.percent
    command = f"shadow {name} {version} --percent {percent:g}"
    with writable_workspace(services, name, version, "shadow", command) as workspace:
        if percent:
            workspace.set_shadow(name, version, percent, shadow.tolerance)
        else:
            workspace.end_share(name, "shadow")
    return _traffic(services, name)


@router.delete("/{name}/shadow")
def end_shadow(name: Name, services: ServicesDep) -> Traffic:
    """Stop repeating requests, within a second, and drop the sums of the differences."""
    return _end(services, name, "shadow")


def _end(services: Services, name: str, role: Role) -> Traffic:
    with writable_workspace(services, name, None, f"ending the {role}", f"{role} {name} --end") as workspace:
        workspace.end_share(name, role)
    return _traffic(services, name)


def _traffic(services: Services, name: str) -> Traffic:
    states = traffic_states(services, services.repository.known())
    return states.get(name, Traffic(canary=None, shadow=None))
