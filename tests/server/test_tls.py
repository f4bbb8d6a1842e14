"""Encrypted connections: HTTP and gRPC, the certificate's renewal, and files that are none."""

from __future__ import annotations

import datetime as dt
import ipaddress
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from graphbox.errors import UsageError
from graphbox.server.settings import Settings
from graphbox.server.tls import Tls
from graphbox.workspace import Workspace
from tests.server.server_process import TOKEN, ServerProcess, StartServer, wait_until


def write_certificate(folder: Path, name: str = "server") -> tuple[Path, Path]:
    """Write a certificate of the loopback address that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write_certificate(tmp_path)


@pytest.fixture
def encrypted(
    start_server: StartServer, shared_workspace: Workspace, files: tuple[Path, Path]
) -> ServerProcess:
    certificate, key = files
    return start_server(
        workspace=shared_workspace.root, tls_certificate=certificate, tls_key=key, grpc_port=0, token=TOKEN
    )


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


def common_name(server: ServerProcess, certificate: Path) -> str:
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain,
        trusting(certificate).wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        found: Any = connection.getpeercert()
    return str(dict(pair for part in found["subject"] for pair in part)["commonName"])


def test_http(encrypted: ServerProcess, files: tuple[Path, Path]) -> None:
    assert encrypted.url == f"https://127.0.0.1:{encrypted.port}/"
    body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}]}
    bearer = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=encrypted.url, verify=trusting(files[0]), headers=bearer) as client:
        for _ in range(3):
            assert client.post("v2/models/companion/infer", json=body).status_code == 200
        assert client.get("api/v1/models").status_code == 200
        signed_in = client.post("token", data={"token": TOKEN})
        assert "; Secure" in signed_in.headers["set-cookie"]


def test_grpc(encrypted: ServerProcess, files: tuple[Path, Path]) -> None:
    with tritonclient.grpc.InferenceServerClient(
        encrypted.grpc_address, ssl=True, root_certificates=str(files[0])
    ) as client:
        given = tritonclient.grpc.InferInput("id", [2], "BYTES")
        given.set_data_from_numpy(np.array([b"zsh", b"nginx"], np.object_))
        headers = {"authorization": f"Bearer {TOKEN}"}
        found = client.infer("companion", [given], headers=headers).as_numpy("embedding")
    assert found.shape[0] == 2


def test_a_client_without_tls_is_not_answered(encrypted: ServerProcess) -> None:
    with socket.create_connection(("127.0.0.1", encrypted.port), timeout=20) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not connection.recv(65536).startswith(b"HTTP/")


def test_a_client_that_does_not_begin_the_handshake_is_closed(
    start_server: StartServer, shared_workspace: Workspace, files: tuple[Path, Path]
) -> None:
    server = start_server(
        workspace=shared_workspace.root, tls_certificate=files[0], tls_key=files[1], header_timeout_s=0.5
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        assert connection.recv(65536) == b""


def test_old_versions_of_tls_are_refused(encrypted: ServerProcess, files: tuple[Path, Path]) -> None:
    context = trusting(files[0])
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", encrypted.port), timeout=20) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


def test_a_renewed_certificate_is_read_at_sighup(encrypted: ServerProcess, files: tuple[Path, Path]) -> None:
    assert common_name(encrypted, files[0]) == "server"
    files[0].write_bytes(b"not a certificate")
    encrypted.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "was not read again" in encrypted.log.read_text(), what="the refusal")
    write_certificate(files[0].parent, "renewed")
    encrypted.process.send_signal(signal.SIGHUP)

    def is_renewed() -> bool:
        try:
            return common_name(encrypted, files[0]) == "renewed"
        except ssl.SSLCertVerificationError:  # still the one before
            return False

    wait_until(is_renewed, what="the renewed certificate")


def test_files_that_are_no_certificate(tmp_path: Path, files: tuple[Path, Path]) -> None:
    certificate, key = files
    (tmp_path / "other").mkdir()
    other_certificate, other_key = write_certificate(tmp_path / "other")
    (tmp_path / "empty.pem").touch()
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    wrong = [
        (certificate, tmp_path / "absent.pem"),
        (tmp_path / "empty.pem", key),
        (certificate, other_key),
        (other_certificate, key),
        (certificate, locked),
    ]
    for pair in wrong:
        with pytest.raises(UsageError, match="PEM files of a certificate"):
            Tls(*pair)
    assert Tls.of(Settings()) is None


def test_a_certificate_without_its_key(files: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="one of the two"):
        Settings(tls_certificate=files[0]).check()
