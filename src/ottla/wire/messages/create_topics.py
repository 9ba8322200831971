"""CreateTopics (19), versions 2 to 7: creates topics.

4 allows the defaults of the broker (-1); 5 is flexible and answers with the configuration; 6 knows of
quotas; 7 answers with the topic id.
"""

from __future__ import annotations

from typing import ClassVar

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, ignorable, tagged
from ottla.wire.types import Bool, Int8, Int16, Int32, String, Uuid
from ottla.wire.uuids import ZERO_UUID


class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    name: String
    value: String | None


class CreatableTopic(Struct):
    name: String
    num_partitions: Int32  # -1 with assignments or for the default
    replication_factor: Int16  # -1 with assignments or for the default
    assignments: list[CreatableReplicaAssignment]  # empty lets the broker choose
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(Request, api=apis.CREATE_TOPICS):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct):
    repeats: ClassVar[bool] = True

    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool


class CreatableTopicResult(Struct):
    name: String
    topic_id: Uuid = ignorable("7+", ZERO_UUID)
    error_code: Int16
    error_message: String | None = None
    topic_config_error_code: Int16 = tagged(0, "5+", 0, ignorable=True)
    num_partitions: Int32 = ignorable("5+", -1)
    replication_factor: Int16 = ignorable("5+", -1)
    configs: list[CreatableTopicConfigs] | None = ignorable("5+", [])


class CreateTopicsResponse(Response, api=apis.CREATE_TOPICS):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult]
