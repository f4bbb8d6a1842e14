"""TLS of a server's connections."""

from __future__ import annotations

import ssl
from pathlib import Path

from graphbox.errors import UsageError
from graphbox.server.settings import Settings

__all__ = ["Tls"]


class Tls:
    """The certificate of a server, and the contexts of its connections.

    Args:
        certificate: PEM file with the certificate and those that lead to the root.
        key: PEM file with its private key, without a passphrase.

    Raises:
        UsageError: a file cannot be read, or the key is not that of the certificate.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.context("http/1.1")  # finds what is wrong with the files

    @classmethod
    def of(cls, settings: Settings) -> Tls | None:
        """Return the TLS of a server; None: it has none.

        Raises:
            UsageError: see `Tls`.
        """
        if settings.tls_certificate is None or settings.tls_key is None:
            return None
        return cls(settings.tls_certificate, settings.tls_key)

    def context(self, protocol: str) -> ssl.SSLContext:
        """Return the context of new connections, TLS 1.2 or newer.

        Args:
            protocol: that clients of the listener agree on (ALPN), such as ``h2``.
        """
        if protocol not in self._contexts:
            self._contexts[protocol] = self._new_context(protocol)
        return self._contexts[protocol]

    def reload(self) -> None:
        """Read the files again; connections that are open keep their certificate.

        Raises:
            UsageError: see `Tls`; the certificate that was read before stays.
        """
        # New ones: a context keeps a certificate for each type of key that it was given.
        self._contexts = {protocol: self._new_context(protocol) for protocol in self._contexts}

    def _new_context(self, protocol: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([protocol])
        try:
            # Without the function, OpenSSL would ask the terminal for a passphrase.
            context.load_cert_chain(self._certificate, self._key, password=_no_passphrase)
        except OSError as error:  # which errors of OpenSSL are, too
            reason = error.strerror or str(error)
            raise UsageError(
                "expected PEM files of a certificate and of its private key without a passphrase, "
                f"received: {reason}",
                where=f"{self._certificate}, {self._key}",
            ) from error
        return context


def _no_passphrase() -> str:
    return ""
