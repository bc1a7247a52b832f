"""The settings of TLS: one frozen value with RocketMQ's `tls.*` keys.

RocketMQ reads them from the file that its key `tls.config.file` names, and from properties of the
Java process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from rmqstore.config import sources
from rmqstore.config.options import Option, option, options_of, violations_of
from rmqstore.config.properties import format_properties, parse_properties
from rmqstore.errors import ConfigError

__all__ = ["ClientAuth", "TlsConfig", "TlsMode"]


class _Word(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return next((each for each in cls if each == str(value).lower()), None)


class TlsMode(_Word):
    """The connections that a server accepts (`tls.server.mode`)."""

    DISABLED = "disabled"
    """Plain connections only."""
    PERMISSIVE = "permissive"
    """Both kinds; the first byte of a connection decides."""
    ENFORCING = "enforcing"
    """TLS only."""


class ClientAuth(_Word):
    """Whether clients present a certificate (`tls.server.need.client.auth`)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The TLS of a server and of its client side, or of a client; files in PEM.

    The constructor raises one ConfigError that lists every violation.
    """

    mode: TlsMode = option(  # noqa: RUF009
        "tls.server.mode",
        TlsMode.PERMISSIVE,
        help="connections that a server accepts: plain (disabled), TLS (enforcing), or both",
        effect="server",
    )
    certificate: str = option(
        "tls.server.certPath",
        "",
        help="certificates of the server",
        effect="server; without it the server accepts only plain connections",
    )
    key: str = option("tls.server.keyPath", "", help="private key of the server", effect="server")
    key_password: str = option(
        "tls.server.keyPassword", "", help="password of an encrypted key", effect="server"
    )
    client_auth: ClientAuth = option(  # noqa: RUF009
        "tls.server.need.client.auth",
        ClientAuth.NONE,
        help="whether clients present a certificate: none, optional or require",
        effect="server",
    )
    client_verified: bool = option(
        "tls.server.authClient",
        False,
        help="verify the certificates of clients; with require they are verified in any case",
        effect="server, with tls.server.need.client.auth",
    )
    client_trusted: str = option(
        "tls.server.trustCertPath",
        "",
        help="certificates that sign the clients' certificates",
        effect="server, with tls.server.need.client.auth",
    )
    enable: bool = option(
        "tls.enable",
        False,
        help="use TLS for connections to other servers",
        effect="client",
    )
    own_certificate: str = option(
        "tls.client.certPath",
        "",
        help="certificates that the client presents",
        effect="client",
    )
    own_key: str = option(
        "tls.client.keyPath", "", help="private key of the client", effect="client"
    )
    own_key_password: str = option(
        "tls.client.keyPassword", "", help="password of an encrypted key", effect="client"
    )
    server_verified: bool = option(
        "tls.client.authServer",
        False,
        help="verify the servers' certificates, but not the host that they name",
        effect="client",
    )
    server_trusted: str = option(
        "tls.client.trustCertPath",
        "",
        help="certificates that sign the servers' certificates; the system's if empty",
        effect="client, with tls.client.authServer",
    )

    def __post_init__(self) -> None:
        violations = violations_of(self) or self._contradictions()
        if violations:
            raise ConfigError(violations)

    def _contradictions(self) -> list[str]:
        found = []
        for certificate, key, side in (
            (self.certificate, self.key, "server"),
            (self.own_certificate, self.own_key, "client"),
        ):
            if bool(certificate) != bool(key):
                found.append(
                    f"tls.{side}.certPath and tls.{side}.keyPath: only one is set; set both or "
                    "neither"
                )
        if self.mode is TlsMode.ENFORCING and not self.certificate:
            found.append(
                "tls.server.certPath (certificate) is empty, but tls.server.mode is enforcing; "
                "name the file of the server's certificates"
            )
        verifies = self.client_auth is ClientAuth.REQUIRE or (
            self.client_auth is ClientAuth.OPTIONAL and self.client_verified
        )
        if verifies and not self.client_trusted:
            found.append(
                f"tls.server.trustCertPath (client_trusted) is empty, but certificates of clients "
                f"are verified ({self.client_auth}); name the file that signs them"
            )
        return found

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """Return the RocketMQ side of every field, by field name."""
        return options_of(cls)

    @classmethod
    def from_properties(
        cls,
        path_or_text: str | os.PathLike[str] | None,
        changes: Mapping[str, str] | None = None,
    ) -> TlsConfig:
        """Return the settings of RocketMQ's file: a path, or text with a line break or `=`.

        *changes* are pairs of keys and values that override those of the file. Raises one
        ConfigError that lists every mistake, with the nearest known key for an unknown key.
        """
        text, name = "", "tls"
        if path_or_text is not None:
            text, name = sources.source_of(path_or_text, encoding="iso-8859-1")
        if changes:
            text = format_properties(parse_properties(text) | dict(changes))
        settings = sources.from_properties(text, cls.options(), known=_OTHER_KEYS, strict=True)
        (config,) = sources.build(settings, (cls,), source=name)
        sources.warn(settings, name, used=cls.options())
        assert isinstance(config, cls)
        return config


_OTHER_KEYS = frozenset({"tls.test.mode.enable"})
"""RocketMQ creates certificates in that mode; here certificates always come from files."""
