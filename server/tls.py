"""TLS of a server's connections."""

from __future__ import annotations

import ssl
from pathlib import Path

from graphbox.errors import UsageError
from graphbox.server.settings import Settings

__all__ = ["Tls"]


class Tls:
    """The certificate of a server, and the contexts of its listeners.

    Args:
        certificate: PEM file with the certificate and those that lead to the root.
        key: PEM file with its private key, without a passphrase.

    Raises:
        UsageError: a file cannot be read, or the key is not that of the certificate.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._contexts: list[ssl.SSLContext] = []
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
        """Return a new context of a listener, TLS 1.2 or newer.

        Args:
            protocol: that clients of the listener agree on (ALPN), such as ``h2``.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([protocol])
        self._load(context)
        self._contexts.append(context)
        return context

    def reload(self) -> None:
        """Read the files again; connections that are open keep their certificate.

        Raises:
            UsageError: see `Tls`; the certificate that was read before stays.
        """
        self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        for context in self._contexts:
            self._load(context)

    def _load(self, context: ssl.SSLContext) -> None:
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


def _no_passphrase() -> str:
    return ""
