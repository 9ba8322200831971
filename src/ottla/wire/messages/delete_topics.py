"""DeleteTopics (20), versions 1 to 6: deletes topics.

4 is flexible; 5 has an error message and knows of quotas; 6 deletes by id too.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Int16, Int32, String, Uuid
from ottla.wire.uuids import ZERO_UUID


class DeleteTopicState(Struct):
    name: String | None = None
    topic_id: Uuid


class DeleteTopicsRequest(Request, api=apis.DELETE_TOPICS):
    topics: list[DeleteTopicState] = at("6+", [])
    topic_names: list[String] = ignorable("0-5", [])
    timeout_ms: Int32


class DeletableTopicResult(Struct):
    name: String | None = at("0+", None, nullable="6+")
    topic_id: Uuid = ignorable("6+", ZERO_UUID)
    error_code: Int16
    error_message: String | None = ignorable("5+", None)


class DeleteTopicsResponse(Response, api=apis.DELETE_TOPICS):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult]
