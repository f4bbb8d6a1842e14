"""JSON schemas of the custom resources in ``operations/``: the fields that are used, and no others.

Written from KServe's Go types (``pkg/apis/serving``) and the CRD of the Prometheus operator. Containers and
pods inside of them are left open here: `kubernetes_validate` checks these.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA: Schema = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"},
        "labels": _TEXTS,
        "annotations": _TEXTS,
    },
}
_PROTOCOL: Schema = {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}
_REPLICAS: Schema = {"type": "integer", "minimum": 0}


def _object(required: list[str], properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


def _resource(version: str, kind: str, spec: Schema) -> Schema:
    return _object(
        ["apiVersion", "kind", "metadata", "spec"],
        {"apiVersion": {"const": version}, "kind": {"const": kind}, "metadata": _METADATA, "spec": spec},
    )


_FORMAT = _object(
    ["name"],
    {
        "name": _TEXT,
        "version": _TEXT,
        "autoSelect": {"type": "boolean"},
        "priority": {"type": "integer", "minimum": 1},
    },
)

POD_FIELDS_OF_PREDICTORS = (
    "automountServiceAccountToken",
    "enableServiceLinks",
    "terminationGracePeriodSeconds",
)
"""Fields of a pod that a predictor uses beside its model."""

SCHEMAS: dict[str, Schema] = {
    "ServingRuntime": _resource(
        "serving.kserve.io/v1alpha1",
        "ServingRuntime",
        _object(
            ["containers", "supportedModelFormats"],
            {
                "annotations": _TEXTS,
                "labels": _TEXTS,
                "containers": {"type": "array", "minItems": 1},
                "volumes": {"type": "array"},
                "multiModel": {"type": "boolean"},
                "disabled": {"type": "boolean"},
                "protocolVersions": {"type": "array", "items": _PROTOCOL},
                "supportedModelFormats": {"type": "array", "minItems": 1, "items": _FORMAT},
            },
        ),
    ),
    "InferenceService": _resource(
        "serving.kserve.io/v1beta1",
        "InferenceService",
        _object(
            ["predictor"],
            {
                "predictor": _object(
                    ["model"],
                    {
                        "minReplicas": _REPLICAS,
                        "maxReplicas": _REPLICAS,
                        "scaleMetric": {"enum": ["cpu", "memory", "concurrency", "rps"]},
                        "scaleTarget": {"type": "integer"},
                        "model": _object(
                            ["modelFormat", "storageUri"],
                            {
                                "modelFormat": _object(["name"], {"name": _TEXT, "version": _TEXT}),
                                "runtime": _TEXT,
                                "protocolVersion": _PROTOCOL,
                                "storageUri": {"type": "string", "pattern": "^pvc://[a-z0-9-]+/[^/].*$"},
                            },
                        ),
                        **{name: {} for name in POD_FIELDS_OF_PREDICTORS},
                    },
                )
            },
        ),
    ),
    "ServiceMonitor": _resource(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        _object(
            ["selector", "endpoints"],
            {
                "selector": _object(["matchLabels"], {"matchLabels": _TEXTS}),
                "endpoints": {
                    "type": "array",
                    "minItems": 1,
                    "items": _object(
                        ["port", "path"],
                        {
                            "port": _TEXT,
                            "path": {"type": "string", "pattern": "^/"},
                            "interval": {"type": "string", "pattern": "^[0-9]+s$"},
                            "scrapeTimeout": {"type": "string", "pattern": "^[0-9]+s$"},
                            "authorization": _object(
                                ["credentials"],
                                {
                                    "type": _TEXT,
                                    "credentials": _object(["key", "name"], {"key": _TEXT, "name": _TEXT}),
                                },
                            ),
                        },
                    ),
                },
            },
        ),
    ),
    "Kustomization": _object(
        ["apiVersion", "kind", "resources"],
        {
            "apiVersion": {"const": "kustomize.config.k8s.io/v1beta1"},
            "kind": {"const": "Kustomization"},
            "resources": {"type": "array", "minItems": 1, "items": _TEXT},
        },
    ),
}
"""Schema by kind."""
