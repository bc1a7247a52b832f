"""The commands of `admin` for single messages."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rmqstore.admin.broker import BrokerAdmin
from rmqstore.cli.admin_common import (
    LOCAL_NAMESERVER,
    NamesrvOption,
    on_brokers,
    print_table,
)
from rmqstore.cli.errors import ExitCode, command
from rmqstore.cli.options import JsonOption
from rmqstore.cli.output import print_json, time_text
from rmqstore.net.addresses import format_address
from rmqstore.remoting.bodies.messages import StoredMessage

__all__ = ["query_message_by_id", "query_message_by_key"]

TopicOption = Annotated[str, typer.Option("-t", "--topic", help="Name of a topic.")]


@command
def query_message_by_id(
    topic: TopicOption,
    ids: Annotated[
        str,
        typer.Option(
            "-i", "--msgId", metavar="ID,...", help="Offset ids or unique keys of messages."
        ),
    ],
    body_format: Annotated[
        str | None,
        typer.Option(
            "-f", "--bodyFormat", metavar="CHARSET", help="Show the body as text, such as UTF-8."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--consumerGroup", help="Group of the consumer of -d."),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option("-d", "--clientId", help="Consumer that consumes the messages at once."),
    ] = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Show messages by their ids, or let a consumer consume them."""
    wanted = [each.strip() for each in ids.split(",") if each.strip()]
    if not wanted:
        raise typer.BadParameter("give at least one id", param_hint="-i")
    if (group is None) != (client_id is None):
        raise typer.BadParameter("give both -g and -d, or none", param_hint="-d")
    if group is not None and client_id is not None:
        return _consume(namesrv, topic, wanted, group, client_id, json=json)

    async def work(admin: BrokerAdmin) -> Sequence[StoredMessage]:
        return [await admin.message_by_id(topic, each) for each in wanted]

    for message in on_brokers(namesrv, work):
        members = _members(message)
        if json:
            print_json(members | _body(message))
            continue
        rows = [(name, _shown(name, value)) for name, value in members.items()]
        if body_format is not None:
            rows.append(("body", _text(message.body, body_format)))
        print_table(("message", "value"), ("message", "value"), rows, json=False)
    return ExitCode.OK


def _consume(
    namesrv: str, topic: str, ids: Sequence[str], group: str, client_id: str, *, json: bool
) -> ExitCode:
    """Lets one consumer consume messages, and prints the results of its listener."""

    async def work(admin: BrokerAdmin) -> Sequence[tuple[str, Any]]:
        found = []
        for each in ids:
            message = await admin.message_by_id(topic, each)
            result = await admin.consume_directly(
                group, client_id, topic, message.offset_id, format_address(message.store_host)
            )
            found.append((message.offset_id, result.get("consumeResult")))
        return found

    members = ("offsetMsgId", "consumeResult")
    print_table(("message", "result"), members, on_brokers(namesrv, work), json=json)
    return ExitCode.OK


@command
def query_message_by_key(
    topic: TopicOption,
    key: Annotated[str, typer.Option("-k", "--msgKey", help="Key of messages.")],
    begin_ms: Annotated[
        int | None,
        typer.Option(
            "-b", "--beginTimestamp", metavar="MS", min=0, help="Stored at this time or later."
        ),
    ] = None,
    end_ms: Annotated[
        int | None,
        typer.Option(
            "-e", "--endTimestamp", metavar="MS", min=0, help="Stored at this time or before."
        ),
    ] = None,
    messages_max: Annotated[
        int, typer.Option("-m", "--maxNum", min=1, help="Messages of each broker. Default: 64.")
    ] = 64,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """List the messages with a key, oldest first."""
    limits = {"begin_ms": begin_ms, "end_ms": end_ms}
    given = {name: value for name, value in limits.items() if value is not None}

    async def work(admin: BrokerAdmin) -> Sequence[StoredMessage]:
        return await admin.messages_by_key(topic, key, messages_max=messages_max, **given)

    rows = [
        (each.unique_key or each.offset_id, each.queue_id, each.queue_offset)
        for each in on_brokers(namesrv, work)
    ]
    heads, members = ("message id", "queue", "offset"), ("msgId", "queueId", "queueOffset")
    print_table(heads, members, rows, json=json)
    return ExitCode.OK


def _members(message: StoredMessage) -> dict[str, Any]:
    """Returns the members of a message that mqadmin shows, in its order, with RocketMQ's names."""
    return {
        "offsetMsgId": message.offset_id,
        "topic": message.topic,
        "tags": message.properties.get("TAGS"),
        "keys": message.properties.get("KEYS"),
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "phyOffset": message.physical_offset,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
        "bornHost": format_address(message.born_host),
        "storeHost": format_address(message.store_host),
        "sysFlag": message.sys_flag,
        "properties": dict(sorted(message.properties.items())),
    }


def _shown(name: str, value: Any) -> object:
    """Returns a member as a cell of a table."""
    if value is None:
        return ""
    if name.endswith("Timestamp"):
        return time_text(value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return value


def _body(message: StoredMessage) -> dict[str, str]:
    try:
        return {"body": message.body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(message.body).decode("ascii")}


def _text(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "backslashreplace")
    except LookupError:
        raise typer.BadParameter(f"{charset!r} is not a charset", param_hint="-f") from None
