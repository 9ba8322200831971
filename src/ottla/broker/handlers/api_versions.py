"""ApiVersions (18), versions 0 to 4.

Asked in a version that is not there, it answers in version 0 with the one row that lets the client ask again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.broker.api_table import served_apis
from ottla.broker.dispatch import Context
from ottla.wire import apis
from ottla.wire.apis import GROWTH_FEATURE
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

FIRST_VERSION_WITH_SOFTWARE_NAME = 3
FIRST_VERSION_WITH_FEATURES_FROM_0 = 4
FEATURES = {"group.version": 1, "transaction.version": 2, GROWTH_FEATURE: 1}
"""What clients may rely on beyond the APIs, always at its highest level."""
SUPPORTED_FEATURES = [
    SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in FEATURES.items()
]
FINALIZED_FEATURES = [
    FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level) for name, level in FEATURES.items()
]
FEATURES_EPOCH = 0  # they never change
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse | None:
    version = context.version
    if not apis.API_VERSIONS.serves(version):
        only = ApiVersion(
            api_key=apis.API_VERSIONS.key,
            min_version=apis.API_VERSIONS.least,
            max_version=apis.API_VERSIONS.highest,
        )
        context.reply_in_version(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[only]), 0)
        return None
    if version >= FIRST_VERSION_WITH_SOFTWARE_NAME:
        names = (request.client_software_name, request.client_software_version)
        if not all(map(SOFTWARE.fullmatch, names)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    served = [ApiVersion(api_key=api.key, min_version=api.least, max_version=api.highest) for api in served_apis()]
    return ApiVersionsResponse(
        error_code=0,
        api_keys=served,
        # Clients of before break on a least version of 0 (KAFKA-17011), so they see no supported features.
        supported_features=SUPPORTED_FEATURES if version >= FIRST_VERSION_WITH_FEATURES_FROM_0 else [],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=FINALIZED_FEATURES,
    )
