"""The table of configuration keys in the documents is that of the code."""

from __future__ import annotations

from rmqstore.config import (
    BrokerConfig,
    Configuration,
    ControllerConfig,
    NameserverConfig,
    TlsConfig,
)
from tests.house.tables import cells_of, rows_of

HEAD = ("key", "field", "default", "unit", "meaning", "takes effect")


def test_configuration_table_of_the_documents_is_that_of_the_code() -> None:
    wanted = [
        [f"`{about.key}`", f"`{name}`", *cells_of(about), about.effect]
        for name, about in Configuration.options().items()
    ]
    assert rows_of("docs/configuration.md", *HEAD) == wanted


def test_table_of_the_nameserver_is_that_of_the_code() -> None:
    wanted = [
        [f"`{about.key}`", f"`{name}`", *cells_of(about), about.effect]
        for name, about in NameserverConfig.options().items()
    ]
    assert rows_of("docs/configuration.md", "key of namesrv.conf", *HEAD[1:]) == wanted


def test_table_of_the_controller_is_that_of_the_code() -> None:
    wanted = [
        [f"`{about.key}`", f"`{name}`", *cells_of(about), about.effect]
        for name, about in ControllerConfig.options().items()
    ]
    assert rows_of("docs/configuration.md", "key of controller.conf", *HEAD[1:]) == wanted


def test_table_of_the_broker_is_that_of_the_code() -> None:
    wanted = [
        [f"`{about.key}`", f"`{name}`", *cells_of(about), about.effect]
        for name, about in BrokerConfig.options().items()
    ]
    assert rows_of("docs/configuration.md", "key of broker.conf", *HEAD[1:]) == wanted


def test_table_of_tls_is_that_of_the_code() -> None:
    wanted = [
        [f"`{about.key}`", f"`{name}`", *cells_of(about), about.effect]
        for name, about in TlsConfig.options().items()
    ]
    assert rows_of("docs/configuration.md", "key of tls.config.file", *HEAD[1:]) == wanted
