"""The messages are those of the protocol: names, numbers and types equal those of Triton's client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tritonclient.grpc import model_config_pb2, service_pb2

from graphbox.server.grpc import inference_messages
from graphbox.server.grpc.descriptors import file_descriptor

OURS = inference_messages.DESCRIPTOR
# Of Triton's configuration we have the fields that are filled in.
PARTIAL = {"ModelConfig", "ModelInput", "ModelOutput"}
FOLDER = Path(str(inference_messages.__file__)).parent


def field_facts(field: Any) -> tuple[Any, ...]:
    other = field.message_type or field.enum_type
    oneof = field.containing_oneof
    return (
        field.number,
        field.type,
        field.is_repeated,
        None if other is None else other.full_name,
        None if oneof is None else oneof.name,
    )


def theirs(name: str) -> Any:
    for module in (service_pb2, model_config_pb2):
        if name in module.DESCRIPTOR.message_types_by_name:
            return module.DESCRIPTOR.message_types_by_name[name]
    raise AssertionError(f"Triton's client has no message {name}")


def compare(ours: Any, other: Any) -> None:
    assert ours.full_name == other.full_name
    own_fields = {field.name: field_facts(field) for field in ours.fields}
    other_fields = {field.name: field_facts(field) for field in other.fields}
    if ours.name in PARTIAL:
        other_fields = {name: facts for name, facts in other_fields.items() if name in own_fields}
    assert own_fields == other_fields
    nested = {each.name for each in ours.nested_types}
    if ours.name not in PARTIAL:
        assert nested == {each.name for each in other.nested_types}
    for name in nested:
        compare(ours.nested_types_by_name[name], other.nested_types_by_name[name])


@pytest.mark.parametrize("name", sorted(OURS.message_types_by_name))
def test_messages_are_those_of_the_protocol(name: str) -> None:
    compare(OURS.message_types_by_name[name], theirs(name))


def test_no_message_is_missing() -> None:
    assert set(service_pb2.DESCRIPTOR.message_types_by_name) <= set(OURS.message_types_by_name)


def test_methods_are_those_of_the_protocol() -> None:
    def methods(file: Any) -> dict[str, tuple[str, str, bool, bool]]:
        return {
            method.name: (
                method.input_type.full_name,
                method.output_type.full_name,
                method.client_streaming,
                method.server_streaming,
            )
            for method in file.services_by_name["GRPCInferenceService"].methods
        }

    assert methods(OURS) == methods(service_pb2.DESCRIPTOR)


def test_datatypes_are_those_of_the_protocol() -> None:
    def values(file: Any) -> dict[str, int]:
        return {value.name: value.number for value in file.enum_types_by_name["DataType"].values}

    assert values(OURS) == values(model_config_pb2.DESCRIPTOR)


def test_health_is_that_of_grpc() -> None:
    file = file_descriptor("health.proto")
    request = file.message_types_by_name["HealthCheckRequest"]
    response = file.message_types_by_name["HealthCheckResponse"]
    assert file.package == "grpc.health.v1"
    assert [(field.name, field.number) for field in request.fields] == [("service", 1)]
    assert [(field.name, field.number) for field in response.fields] == [("status", 1)]
    statuses = response.enum_types_by_name["ServingStatus"].values
    assert [(each.name, each.number) for each in statuses] == [
        ("UNKNOWN", 0),
        ("SERVING", 1),
        ("NOT_SERVING", 2),
        ("SERVICE_UNKNOWN", 3),
    ]


def test_generated_files_are_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="the compiler of protocol buffers is in the extra dev")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{FOLDER}", "--include_imports"]
    outputs = [f"--descriptor_set_out={tmp_path / 'descriptors.binpb'}", f"--pyi_out={tmp_path}"]
    subprocess.run([*command, *outputs, "inference.proto", "health.proto"], check=True)
    made = FileDescriptorSet.FromString((tmp_path / "descriptors.binpb").read_bytes())
    kept = FileDescriptorSet.FromString((FOLDER / "descriptors.binpb").read_bytes())
    assert made == kept, "run: make proto"
    for name in ("inference", "health"):
        made_stub = (tmp_path / f"{name}_pb2.pyi").read_text()
        assert made_stub == (FOLDER / f"{name}_messages.pyi").read_text(), "run: make proto"
