"""ApiVersions (18), versions 0 to 4: tells which APIs and versions a broker has.

The response header never has tagged fields, so that any client can read it, and an unknown version is
answered as version 0. 3 is flexible, names the client's software and lists features; 4 may list features
from level 0.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, ignorable, tagged
from ottla.wire.types import Bool, Int16, Int32, Int64, String


class ApiVersionsRequest(Request, api=apis.API_VERSIONS):
    client_software_name: String = ignorable("3+", "")
    client_software_version: String = ignorable("3+", "")


class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: String
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    name: String
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Response, api=apis.API_VERSIONS):
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = ignorable("1+", 0)
    supported_features: list[SupportedFeatureKey] = tagged(0, "3+", [], ignorable=True)
    finalized_features_epoch: Int64 = tagged(1, "3+", -1, ignorable=True)  # -1: unknown
    finalized_features: list[FinalizedFeatureKey] = tagged(2, "3+", [], ignorable=True)
    zk_migration_ready: Bool = tagged(3, "3+", False, ignorable=True)
