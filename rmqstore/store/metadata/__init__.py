"""The metadata files under config/: topics, groups, offsets and request modes.

topics.json           dataVersion, topicConfigTable {topic: {...}}
consumerOffset.json   dataVersion, offsetTable {"topic@group": {queue: offset}}
lmqConsumerOffset.json
                      dataVersion, offsetTable, lmqOffsetTable {"topic@group": offset}
delayOffset.json      dataVersion, offsetTable {level: offset}
subscriptionGroup.json
                      dataVersion, subscriptionGroupTable {group: {...}},
                      forbiddenTable {group: {topic: bits}}
messageRequestMode.json
                      messageRequestModeMap {topic: {group: {...}}}
consumerFilter.json   filterDataByTopic {topic: {groupFilterData {group: {...}}, topic}}
consumerOrderInfo.json
                      table {"topic@group": {queue: {...}}}

They are read as RocketMQ 5.3 (fastjson) and 5.5 (fastjson2) write them: numeric keys without
quotes, and `$ref` objects where one value occurs twice. They are written as 5.3 does, which both
accept. Other than RocketMQ, a save is atomic and durable, and no load deletes anything: a file that
cannot be read is passed over for its .bak, and set aside as .damaged when the next save takes its
place.
"""

from __future__ import annotations

from rmqstore.data_version import DataVersion
from rmqstore.store.metadata.filters import FilterData, FilterTable
from rmqstore.store.metadata.groups import FORBIDDEN_READ, GroupConfig, GroupTable
from rmqstore.store.metadata.offset_table import OffsetTable
from rmqstore.store.metadata.offsets import (
    ConsumerOffsets,
    DelayOffsets,
    LightConsumerOffsets,
    TimerProgress,
    is_of_light_group,
    load_consumer_offsets,
    offsets_key,
)
from rmqstore.store.metadata.request_modes import RequestMode, RequestModes
from rmqstore.store.metadata.topics import TopicConfig, TopicTable, batch_queue_count

__all__ = [
    "FORBIDDEN_READ",
    "ConsumerOffsets",
    "DataVersion",
    "DelayOffsets",
    "FilterData",
    "FilterTable",
    "GroupConfig",
    "GroupTable",
    "LightConsumerOffsets",
    "OffsetTable",
    "RequestMode",
    "RequestModes",
    "TimerProgress",
    "TopicConfig",
    "TopicTable",
    "batch_queue_count",
    "is_of_light_group",
    "load_consumer_offsets",
    "offsets_key",
]
