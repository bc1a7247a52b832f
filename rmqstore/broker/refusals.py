"""Services that a broker does not have, by the codes of the requests for them.

`docs/broker.md` and `docs/operations.md` list them in the sections that the refusals name.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.remoting.codes import RequestCode

__all__ = ["CLIENT_SERVICES", "COMMANDS"]

CLIENT_SERVICES: Mapping[int, str] = {
    RequestCode.POP_ROLLBACK: "records of POP in RocksDB; they are in the log",
    RequestCode.POP_LITE_MESSAGE: "light topics",
    RequestCode.LITE_SUBSCRIPTION_CTL: "light topics",
    RequestCode.ACK_LITE_MESSAGE: "light topics",
}
"""The services that requests of clients are for."""

COMMANDS: Mapping[int, str] = {
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: "queues and tables in RocksDB",
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: "queues and tables in RocksDB",
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "static topics",
    RequestCode.RESET_MASTER_FLUSH_OFFSET: "offsets of the master that an operator sets",
    RequestCode.SWITCH_TIMER_ENGINE: "timers in RocksDB",
    RequestCode.GET_BROKER_LITE_INFO: "light topics",
    RequestCode.GET_PARENT_TOPIC_INFO: "light topics",
    RequestCode.GET_LITE_TOPIC_INFO: "light topics",
    RequestCode.GET_LITE_CLIENT_INFO: "light topics",
    RequestCode.GET_LITE_GROUP_INFO: "light topics",
    RequestCode.TRIGGER_LITE_DISPATCH: "light topics",
    **dict.fromkeys(
        range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1),
        "users and access control",
    ),
}
"""The services that requests of operators are for."""
