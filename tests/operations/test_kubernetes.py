"""Kubernetes and KServe: schemas, security, and that the files agree with one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from graphbox.server.settings import Settings
from tests.operations.custom_resources import POD_FIELDS_OF_PREDICTORS, SCHEMAS
from tests.operations.manifests import (
    GRPC_PORT,
    HTTP_PORT,
    LIVE,
    OPERATIONS,
    READY,
    USER,
    WORKLOADS,
    Object,
    container_command,
    dockerfiles,
    load,
    objects_of_kind,
    only_container,
    pod_specs,
    yaml_files,
)

VERSIONS = ("1.30", "1.37")
# For what a worker does after the drain.
CLOSING_S = 15

each_pod = pytest.mark.parametrize("path", pod_specs(), ids=lambda path: path.stem)


def pod_of(spec: Object) -> Object:
    """Return a pod with this spec, for a validator that knows no KServe."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", yaml_files(), ids=lambda path: path.stem)
def test_schema(path: Path, version: str) -> None:
    loaded = load(path)
    if loaded["kind"] in SCHEMAS:
        jsonschema.validate(loaded, SCHEMAS[loaded["kind"]])
    else:
        kubernetes_validate.validate(loaded, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_schema_of_what_kserve_puts_into_pods(version: str) -> None:
    ((_, runtime),) = objects_of_kind("ServingRuntime")
    pod = {name: runtime["spec"][name] for name in ("containers", "volumes")}
    kubernetes_validate.validate(pod_of(pod), version, strict=True)
    ((_, service),) = objects_of_kind("InferenceService")
    predictor = service["spec"]["predictor"]
    fields = {name: predictor[name] for name in POD_FIELDS_OF_PREDICTORS}
    kubernetes_validate.validate(pod_of(pod | fields), version, strict=True)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("spec", "template", "spec", "containers", 0, "redinessProbe"), {}),
        (("spec", "template", "spec", "containers", 0, "resources", "limits", "memory"), [1]),
        (("spec", "replicas"), "two"),
    ],
)
def test_validator_finds_mistakes(keys: tuple[str | int, ...], value: Any) -> None:
    ((_, loaded),) = objects_of_kind("Deployment")
    place: Any = loaded
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(loaded, VERSIONS[-1], strict=True)


def test_kustomizations_name_every_file() -> None:
    for folder in (OPERATIONS / "kubernetes").iterdir():
        named = set(load(folder / "kustomization.yaml")["resources"])
        files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert {name for name in named if not name.startswith("../")} == files
        assert all((folder / name).exists() for name in named)


def test_namespaces_are_left_to_the_user() -> None:
    assert not [path for path in yaml_files() if "namespace" in load(path).get("metadata", {})]


@each_pod
def test_pods_are_confined(path: Path) -> None:
    spec = pod_specs()[path]
    container = only_container(spec)
    security = {**spec.get("securityContext", {}), **container["securityContext"]}
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == security["runAsGroup"] == USER
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_pods_have_neither_credentials_nor_variables_of_services(kind: str) -> None:
    ((_, loaded),) = objects_of_kind(kind)
    spec = loaded["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False


@each_pod
def test_tokens_come_from_the_secret(path: Path) -> None:
    spec = pod_specs()[path]
    container = only_container(spec)
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "tokens"]
    assert volume["secret"] == {"secretName": "graphbox-tokens"}
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "tokens"]
    assert mount["readOnly"] is True
    # A path inside of the volume is mounted once, and would keep tokens that were removed.
    assert "subPath" not in mount
    file = container_command(path, container).option("token-file")
    assert file == f"{mount['mountPath']}/tokens.toml"
    assert not list(objects_of_kind("Secret")), "no file holds a token"


def test_prometheus_presents_a_token_of_its_own() -> None:
    ((_, monitor),) = objects_of_kind("ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "graphbox-prometheus", "key": "token"}


@each_pod
def test_probes_and_ports(path: Path) -> None:
    container = only_container(pod_specs()[path])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert list(ports.values()) == [HTTP_PORT, GRPC_PORT]
    paths = {"startupProbe": LIVE, "livenessProbe": LIVE, "readinessProbe": READY}
    for probe, expected in paths.items():
        asked = container[probe]["httpGet"]
        assert (asked["path"], ports.get(asked["port"], asked["port"])) == (expected, HTTP_PORT)
    command = container_command(path, container)
    assert (command.option("port"), command.option("grpc-port")) == (str(HTTP_PORT), str(GRPC_PORT))


def test_service_leads_to_the_ports_of_pods() -> None:
    ((_, service),) = objects_of_kind("Service")
    offered = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert offered == {"http": HTTP_PORT, "grpc": GRPC_PORT}
    assert all(port["targetPort"] == port["name"] for port in service["spec"]["ports"])
    for _, workload in objects_of_kind(*WORKLOADS):
        container = only_container(workload["spec"]["template"]["spec"])
        assert {port["name"]: port["containerPort"] for port in container["ports"]} == offered
    ((_, policy),) = objects_of_kind("NetworkPolicy")
    admitted = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert admitted == set(offered)
    ((_, monitor),) = objects_of_kind("ServiceMonitor")
    assert monitor["spec"]["endpoints"][0]["port"] in offered


def test_selectors_find_the_pods() -> None:
    labels = {"app.kubernetes.io/name": "graphbox"}
    for _, workload in objects_of_kind(*WORKLOADS):
        assert workload["spec"]["selector"]["matchLabels"] == labels
        assert workload["spec"]["template"]["metadata"]["labels"] == labels
    ((_, service),) = objects_of_kind("Service")
    assert service["spec"]["selector"] == service["metadata"]["labels"] == labels
    for kind, key in (
        ("NetworkPolicy", "podSelector"),
        ("PodDisruptionBudget", "selector"),
        ("ServiceMonitor", "selector"),
    ):
        ((_, selecting),) = objects_of_kind(kind)
        assert selecting["spec"][key]["matchLabels"] == labels


def test_scaler_and_budget_leave_a_pod() -> None:
    ((_, deployment),) = objects_of_kind("Deployment")
    ((_, scaler),) = objects_of_kind("HorizontalPodAutoscaler")
    ((_, budget),) = objects_of_kind("PodDisruptionBudget")
    target = {name: deployment[name] for name in ("apiVersion", "kind")} | {"name": "graphbox"}
    assert scaler["spec"]["scaleTargetRef"] == target
    assert "replicas" not in deployment["spec"], "the scaler's number would be set back by every apply"
    assert scaler["spec"]["minReplicas"] > budget["spec"]["minAvailable"] >= 1
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_pods_have_the_time_to_drain() -> None:
    for _, workload in objects_of_kind(*WORKLOADS):
        spec = workload["spec"]["template"]["spec"]
        before_s = int(only_container(spec)["lifecycle"]["preStop"]["exec"]["command"][-1])
        needed_s = before_s + Settings.drain_timeout_s + CLOSING_S
        assert spec["terminationGracePeriodSeconds"] > needed_s
    ((_, service),) = objects_of_kind("InferenceService")
    predictor = service["spec"]["predictor"]
    assert predictor["terminationGracePeriodSeconds"] > Settings.drain_timeout_s + CLOSING_S


def test_volumes_are_mounted_where_the_server_looks() -> None:
    claims = {claim["metadata"]["name"] for _, claim in objects_of_kind("PersistentVolumeClaim")}
    for path, workload in objects_of_kind(*WORKLOADS):
        spec = workload["spec"]["template"]["spec"]
        container = only_container(spec)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts.keys() == {volume["name"] for volume in spec["volumes"]}
        command = container_command(path, container)
        assert (command.option("models") or command.option("workspace")) in mounts.values()
        assert "/tmp" in mounts.values()  # noqa: S108 - the root is read-only
        claimed = [
            v["persistentVolumeClaim"]["claimName"]
            for v in spec["volumes"]
            if "emptyDir" not in v and "secret" not in v
        ]
        assert set(claimed) <= claims
    for image in dockerfiles():
        environment = image.environment()
        assert environment["GRAPHBOX_PACKAGES"].startswith("/tmp/")  # noqa: S108
        # Pods that serve a folder of models would open the workspace, too.
        assert "GRAPHBOX_WORKSPACE" not in environment


def test_inference_service_uses_the_runtime() -> None:
    ((_, runtime),) = objects_of_kind("ServingRuntime")
    ((_, service),) = objects_of_kind("InferenceService")
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    formats = [
        {key: each[key] for key in ("name", "version")} for each in runtime["spec"]["supportedModelFormats"]
    ]
    assert model["modelFormat"] in formats
    container = only_container(runtime["spec"])
    assert container["name"] == "kserve-container"
    assert "--models=/mnt/models" in container["args"]
    assert runtime["spec"]["annotations"]["prometheus.kserve.io/port"] == str(HTTP_PORT)
