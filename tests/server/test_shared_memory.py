"""System shared memory by the clients that Triton users have, unmodified, and by hostile ones."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
import tritonclient.utils.shared_memory as client_memory
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from graphbox.errors import InvalidRequestError
from graphbox.server.kserve.shared_memory import SharedMemory
from graphbox.server.kserve.tensors import decode_binary
from graphbox.server.problem import RefusedError
from graphbox.server.shared_document import SharedDocument
from graphbox.workspace import Workspace
from tests.server.sample_models import DIM, PACKAGES, expected_embeddings
from tests.server.server_process import ServerProcess, StartServer, start_process

FOLDER = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is
TRANSPORTS = ["http", "grpc"]
REGION_BYTES = 4096


@pytest.fixture(scope="module")
def server(shared_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of two workers that offers shared memory."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    settings = {"port": 0, "grpc_port": 0, "workspace": shared_workspace.root, "workers": 2}
    running = start_process({**settings, "shared_memory": True}, log)
    running.wait_until_ready()
    yield running
    assert running.stop() == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


@pytest.fixture
def key() -> Iterator[str]:
    """Key of memory that does not exist yet, and is removed afterwards."""
    name = f"graphbox_test_{os.getpid()}"
    yield f"/{name}"
    path = FOLDER / name
    if path.is_symlink() or path.exists():
        path.unlink()


@contextmanager
def connected(server: ServerProcess, transport: str) -> Iterator[tuple[Any, Any]]:
    """Give the module of a transport and a client."""
    module = triton_http if transport == "http" else triton_grpc
    address = server.address if transport == "http" else server.grpc_address
    with module.InferenceServerClient(address) as client:
        yield module, client


def status_of(caught: pytest.ExceptionInfo[InferenceServerException]) -> str:
    return str(caught.value.status())


def wants(module: Any, region: str, size: int, offset: int) -> Any:
    output = module.InferRequestedOutput("embedding")
    output.set_shared_memory(region, size, offset=offset)
    return output


def has_ids(module: Any, region: str, ids: list[str], size: int, offset: int = 0) -> Any:
    tensor = module.InferInput("id", [len(ids)], "BYTES")
    tensor.set_shared_memory(region, size, offset=offset)
    return tensor


def serialized(ids: list[str]) -> Any:
    return serialize_byte_tensor(np.array([each.encode() for each in ids], object))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_inputs_and_outputs(server: ServerProcess, key: str, transport: str) -> None:
    """Registrations at one worker are known to all, at once."""
    ids = PACKAGES[:4]
    given = serialized(ids)
    size, out_bytes = len(given.item()), len(ids) * DIM * 4
    handle = client_memory.create_shared_memory_region("both", key, REGION_BYTES)
    try:
        client_memory.set_shared_memory_region(handle, [given], offset=64)
        for number in range(20):
            with connected(server, transport) as (module, client):  # of either worker
                client.register_system_shared_memory("both", key, REGION_BYTES)
            with connected(server, transport) as (module, client):
                status = client.get_system_shared_memory_status("both")
                regions = [*status.regions] if transport == "grpc" else [each["name"] for each in status]
                assert regions == ["both"]
                client_memory.set_shared_memory_region(handle, [np.zeros(out_bytes, np.uint8)], offset=1024)
                result = client.infer(
                    "companion",
                    [has_ids(module, "both", ids, size, 64)],
                    outputs=[wants(module, "both", out_bytes, 1024)],
                    request_id=str(number),
                )
                output = result.get_output("embedding")
                shape = output["shape"] if transport == "http" else [*output.shape]
                assert shape == [4, DIM]
                found = client_memory.get_contents_as_numpy(handle, np.float32, [4, DIM], offset=1024)
                np.testing.assert_allclose(found, expected_embeddings(ids), rtol=1e-5)
            with connected(server, transport) as (_, client):
                client.unregister_system_shared_memory("both")
    finally:
        client_memory.destroy_shared_memory_region(handle)


def test_asyncio_clients(server: ServerProcess, key: str) -> None:
    given = serialized(PACKAGES[:2])
    handle = client_memory.create_shared_memory_region("later", key, REGION_BYTES)
    client_memory.set_shared_memory_region(handle, [given])

    async def ask(module: Any, address: str) -> None:
        async with module.InferenceServerClient(address) as client:
            await client.register_system_shared_memory("later", key, REGION_BYTES)
            tensor = has_ids(module, "later", PACKAGES[:2], len(given.item()))
            found = (await client.infer("companion", [tensor])).as_numpy("embedding")
            np.testing.assert_allclose(found, expected_embeddings(PACKAGES[:2]), rtol=1e-5)
            await client.unregister_system_shared_memory("later")

    try:
        asyncio.run(ask(triton_http_aio, server.address))
        asyncio.run(ask(triton_grpc_aio, server.grpc_address))
    finally:
        client_memory.destroy_shared_memory_region(handle)


Damage = Callable[[Path], object]


def _replace(path: Path) -> None:
    path.unlink()
    path.write_bytes(bytes(REGION_BYTES))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: os.truncate(path, 0), "was truncated"),
        (lambda path: os.truncate(path, 100), "was truncated"),
        (_replace, "another of the same key"),
        (lambda path: path.unlink(), "No such file"),
    ],
    ids=["emptied", "truncated", "replaced", "removed"],
)
def test_memory_that_the_client_takes_away(
    server: ServerProcess, key: str, transport: str, damage: Damage, says: str
) -> None:
    path = FOLDER / key[1:]
    given = serialized(["zsh"]).item()
    path.write_bytes(given + bytes(REGION_BYTES - len(given)))
    with connected(server, transport) as (module, client):
        client.register_system_shared_memory("gone", key, REGION_BYTES)
        tensor = has_ids(module, "gone", ["zsh"], len(given))
        assert client.infer("companion", [tensor]).as_numpy("embedding").shape == (1, DIM)
        damage(path)
        plain = module.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
        for inputs, outputs in (([tensor], None), ([plain], [wants(module, "gone", DIM * 4, 512)])):
            with pytest.raises(InferenceServerException, match=says) as caught:
                client.infer("companion", inputs, outputs=outputs)
            assert status_of(caught) in {"400", "StatusCode.INVALID_ARGUMENT"}
            assert key not in str(caught.value), "an error names no memory"
        assert client.infer("companion", [plain]).as_numpy("embedding").shape == (1, DIM)
        client.unregister_system_shared_memory("gone")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_cannot_be_registered(server: ServerProcess, key: str, transport: str, tmp_path: Path) -> None:
    path = FOLDER / key[1:]
    path.write_bytes(bytes(REGION_BYTES))
    link, pipe = FOLDER / f"{key[1:]}_link", FOLDER / f"{key[1:]}_pipe"
    (tmp_path / "file").write_bytes(bytes(REGION_BYTES))
    link.symlink_to(tmp_path / "file")
    os.mkfifo(pipe)
    cases: list[tuple[str, int, int]] = [
        (f"/{link.name}", 0, 8),
        (f"/{pipe.name}", 0, 8),  # would wait for a writer
        ("/graphbox_absent", 0, 8),
        ("/other_prefix", 0, 8),
        ("/graphbox_/../../etc/passwd", 0, 8),
        ("/graphbox_a/b", 0, 8),
        ("//graphbox_a", 0, 8),
        ("graphbox_\0", 0, 8),
        ("", 0, 8),
        (key, 0, REGION_BYTES + 1),
        (key, REGION_BYTES, 1),
        (key, 2**64 - 1, 2**63),
        (key, 0, 0),
    ]
    try:
        with connected(server, transport) as (_, client):
            for wanted, offset, size in cases:
                with pytest.raises(InferenceServerException) as caught:
                    client.register_system_shared_memory("never", wanted, size, offset=offset)
                assert status_of(caught) in {"400", "StatusCode.INVALID_ARGUMENT"}, (wanted, offset, size)
            status = client.get_system_shared_memory_status()
            assert not (status.regions if transport == "grpc" else status)
    finally:
        link.unlink()
        pipe.unlink()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_parts_of_regions(server: ServerProcess, key: str, transport: str) -> None:
    (FOLDER / key[1:]).write_bytes(bytes(REGION_BYTES))
    with connected(server, transport) as (module, client):
        client.register_system_shared_memory("parts", key, 256, offset=64)
        with pytest.raises(InferenceServerException, match="registered already") as caught:
            client.register_system_shared_memory("parts", key, 8)
        assert status_of(caught) in {"409", "StatusCode.FAILED_PRECONDITION"}
        for size, offset in ((257, 0), (8, 249), (2**63 - 1, 2**63 - 1)):
            with pytest.raises(InferenceServerException, match="part of the 256 bytes"):
                client.infer("companion", [has_ids(module, "parts", ["zsh"], size, offset)])
        plain = module.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
        with pytest.raises(InferenceServerException, match="at least the 16 bytes"):
            client.infer("companion", [plain], outputs=[wants(module, "parts", 15, 0)])
        with pytest.raises(InferenceServerException, match="length at byte"):
            client.infer("companion", [has_ids(module, "parts", ["zsh"], 2)])
        client.infer("companion", [plain], outputs=[wants(module, "parts", 16, 240)])
        written = (FOLDER / key[1:]).read_bytes()
        assert len(written) == REGION_BYTES
        np.testing.assert_allclose(
            np.frombuffer(written[304:320], np.float32), expected_embeddings(["zsh"])[0], rtol=1e-5
        )
        assert not any(written[:304]), "nothing is written beside the part"
        assert not any(written[320:])
        client.unregister_system_shared_memory()
        with pytest.raises(InferenceServerException, match="no shared memory region") as caught:
            client.infer("companion", [has_ids(module, "parts", ["zsh"], 8)])
        assert status_of(caught) in {"404", "StatusCode.NOT_FOUND"}


def test_regions_come_and_go_while_they_are_used(server: ServerProcess, key: str) -> None:
    """Every answer is right, or says that the region is not there."""
    given = serialized(["zsh"]).item()
    (FOLDER / key[1:]).write_bytes(given + bytes(REGION_BYTES - len(given)))
    stop = threading.Event()

    def register_and_unregister() -> None:
        with connected(server, "http") as (_, client):
            while not stop.is_set():
                client.register_system_shared_memory("moving", key, REGION_BYTES)
                client.unregister_system_shared_memory("moving")

    other = threading.Thread(target=register_and_unregister)
    other.start()
    refusals: list[str] = []
    try:
        with connected(server, "grpc") as (module, client):
            for _ in range(300):
                try:
                    found = client.infer("companion", [has_ids(module, "moving", ["zsh"], len(given))])
                except InferenceServerException as error:
                    refusals.append(str(error))
                else:
                    expected = expected_embeddings(["zsh"])
                    np.testing.assert_allclose(found.as_numpy("embedding"), expected, rtol=1e-5)
    finally:
        stop.set()
        other.join(20)
    assert all("no shared memory region `moving`" in refusal for refusal in refusals), refusals


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_without_shared_memory(
    start_server: StartServer, shared_workspace: Workspace, transport: str
) -> None:
    server = start_server(workspace=shared_workspace.root, grpc_port=0)
    server.wait_until_ready()
    with connected(server, transport) as (module, client):
        status = client.get_system_shared_memory_status()
        assert not (status.regions if transport == "grpc" else status)
        client.unregister_system_shared_memory()
        with pytest.raises(InferenceServerException, match="--shared-memory") as caught:
            client.register_system_shared_memory("a", "/graphbox_a", 8)
        assert status_of(caught) in {"400", "StatusCode.INVALID_ARGUMENT"}
        with pytest.raises(InferenceServerException, match="does not offer shared memory"):
            client.infer("companion", [has_ids(module, "a", ["zsh"], 8)])
        with pytest.raises(InferenceServerException, match="GPUs"):
            client.register_cuda_shared_memory("a", b"eA==", 0, 8)


def test_gpu_memory_is_refused_in_words(server: ServerProcess) -> None:
    for transport in TRANSPORTS:
        with connected(server, transport) as (_, client):
            status = client.get_cuda_shared_memory_status()
            assert not (status.regions if transport == "grpc" else status)
            client.unregister_cuda_shared_memory()
            with pytest.raises(InferenceServerException, match="shared memory of GPUs is not offered"):
                client.register_cuda_shared_memory("a", b"eA==", 0, 8)


def test_copies_in_use_are_limited(key: str) -> None:
    """Memory read by a request counts until its tensors are gone."""
    (FOLDER / key[1:]).write_bytes(bytes(REGION_BYTES))
    memory = SharedMemory(SharedDocument.of_one_process(), "graphbox_", 1024, 2048)
    memory.register("r", key, 0, REGION_BYTES)
    with pytest.raises(InvalidRequestError, match="at most 1024 bytes in one tensor"):
        memory.part("r", 0, 1025, "inputs[0]")
    part = memory.part("r", 0, 1024, "inputs[0]")
    for _ in range(10):
        first = decode_binary(part.read("inputs[0]"), "FP32", [256], "inputs[0]")
        second = part.read("inputs[0]")
        with pytest.raises(RefusedError) as caught:
            part.read("inputs[0]")
        assert caught.value.status == 503
        assert first.shape == (256,)
        del first, second
