"""TLS for servers and clients, in the terms of RocketMQ's `tls.*` properties."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from rmqstore.config import ClientAuth, TlsConfig, TlsMode
from rmqstore.errors import ArgumentError

__all__ = ["ClientAuth", "TlsClient", "TlsMode", "TlsServer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServer:
    """The TLS of a server: files in PEM."""

    certificate: str | Path
    key: str | Path
    key_password: str | None = None
    trusted: str | Path | None = None
    """Certificates that sign the clients' certificates."""
    client_auth: ClientAuth = ClientAuth.NONE
    mode: TlsMode = TlsMode.PERMISSIVE

    @classmethod
    def from_config(cls, config: TlsConfig) -> TlsServer | None:
        """Return the TLS of a server with these settings, None where it takes plain connections
        only.

        Where the server does not verify a client's certificate, it does not request the
        certificate.
        """
        if config.mode is TlsMode.DISABLED or not config.certificate:
            return None
        auth = config.client_auth
        if auth is ClientAuth.OPTIONAL and not config.client_verified:
            auth = ClientAuth.NONE
        return cls(
            certificate=config.certificate,
            key=config.key,
            key_password=config.key_password or None,
            trusted=None if auth is ClientAuth.NONE else config.client_trusted,
            client_auth=auth,
            mode=config.mode,
        )

    def context(self) -> ssl.SSLContext:
        """Return the context for accepted connections. Raises ArgumentError for files that cannot
        be used."""
        if self.client_auth is not ClientAuth.NONE and self.trusted is None:
            raise ArgumentError(
                f"client_auth is {self.client_auth.value!r} without trusted certificates; "
                "name the file that signs the clients' certificates as trusted"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load(context, self.trusted, self.certificate, self.key, self.key_password)
        context.verify_mode = {
            ClientAuth.NONE: ssl.CERT_NONE,
            ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
            ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
        }[self.client_auth]
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClient:
    """The TLS of a client: files in PEM."""

    trusted: str | Path | None = None
    """Certificates that sign the servers' certificates; None: those that the system trusts."""
    certificate: str | Path | None = None
    key: str | Path | None = None
    key_password: str | None = None
    is_server_verified: bool = True
    """False takes any certificate, as Java clients do by default (`tls.client.authServer`)."""
    is_host_checked: bool = True
    """Whether the certificate must name the host of the address. Java clients do not check."""

    @classmethod
    def from_config(cls, config: TlsConfig) -> TlsClient | None:
        """Return the TLS of a client with these settings, None without tls.enable."""
        if not config.enable:
            return None
        return cls(
            trusted=config.server_trusted or None,
            certificate=config.own_certificate or None,
            key=config.own_key or None,
            key_password=config.own_key_password or None,
            is_server_verified=config.server_verified,
            is_host_checked=False,
        )

    def context(self) -> ssl.SSLContext:
        """Return the context for connections to be made. Raises ArgumentError for files that cannot
        be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not self.is_server_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.trusted is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        context.check_hostname = self.is_server_verified and self.is_host_checked
        _load(context, self.trusted, self.certificate, self.key, self.key_password)
        return context


def _load(
    context: ssl.SSLContext,
    trusted: str | Path | None,
    certificate: str | Path | None,
    key: str | Path | None,
    password: str | None,
) -> None:
    if trusted is not None:
        try:
            context.load_verify_locations(trusted)
        except OSError as error:
            raise ArgumentError(
                f"trusted certificates {trusted} cannot be used: {error}; give a PEM file"
            ) from error
    if certificate is not None:
        try:
            # Without a password here, OpenSSL would ask at the terminal for that of an encrypted
            # key.
            context.load_cert_chain(certificate, key, password or "")
        except OSError as error:
            raise ArgumentError(
                f"certificate {certificate} with key {key} cannot be used: {error}; "
                "give PEM files that belong together, and key_password for an encrypted key"
            ) from error
