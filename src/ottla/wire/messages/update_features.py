"""UpdateFeatures (57), versions 0 to 2: raises or lowers the finalized levels of the cluster's features.

Flexible from the start; 1 tells kinds of downgrades apart and can only validate; 2 answers for all at
once.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Bool, Int8, Int16, Int32, String


class FeatureUpdateKey(Struct):
    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = at("0", False)
    upgrade_type: Int8 = at("1+", 1)  # 1 upgrade, 2 safe downgrade, 3 unsafe downgrade


class UpdateFeaturesRequest(Request, api=apis.UPDATE_FEATURES):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = at("1+", False)


class UpdatableFeatureResult(Struct):
    feature: String
    error_code: Int16
    error_message: String | None = None


class UpdateFeaturesResponse(Response, api=apis.UPDATE_FEATURES):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None = None
    results: list[UpdatableFeatureResult] = ignorable("0-1", [])
