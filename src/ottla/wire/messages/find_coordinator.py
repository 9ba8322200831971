"""FindCoordinator (10), versions 0 to 6: tells which broker coordinates a group or a transactional id.

1 asks for transactional ids too; 3 is flexible; 4 asks for several at once; 5 knows of abortable errors;
6 of share groups.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Int8, Int16, Int32, String


class FindCoordinatorRequest(Request, api=apis.FIND_COORDINATOR):
    key: String = at("0-3", "")
    key_type: Int8 = at("1+", 0)  # 0 group, 1 transactional id
    coordinator_keys: list[String] = at("4+", [])


class Coordinator(Struct):
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: String | None = None


class FindCoordinatorResponse(Response, api=apis.FIND_COORDINATOR):
    throttle_time_ms: Int32 = ignorable("1+", 0)
    error_code: Int16 = at("0-3", 0)
    error_message: String | None = ignorable("1-3", None)
    node_id: Int32 = at("0-3", 0)
    host: String = at("0-3", "")
    port: Int32 = at("0-3", 0)
    coordinators: list[Coordinator] = at("4+", [])
