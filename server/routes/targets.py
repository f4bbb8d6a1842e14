"""Targets that this machine can run models on."""

from __future__ import annotations

from fastapi import APIRouter

from graphbox.deploy import targets as deployment_targets
from graphbox.server.routes import API_PREFIX
from graphbox.server.schema import DeploymentTarget

router = APIRouter(prefix=API_PREFIX, tags=["targets"])


@router.get("/targets")
def targets() -> list[DeploymentTarget]:
    """List adapters with the devices they found, or the reason why there is none."""
    return [
        DeploymentTarget(
            adapter=target.adapter,
            distribution=target.distribution,
            device=target.device.name if target.device else None,
            kind=target.device.kind if target.device else None,
            description=target.device.description if target.device else None,
            available=target.available,
            reason=target.reason,
            details=dict(target.device.details) if target.device else {},
        )
        for target in deployment_targets()
    ]
