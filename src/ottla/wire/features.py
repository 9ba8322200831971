"""Names of features that Kafka does not have. A broker tells of them with ApiVersions."""

from __future__ import annotations

GROWTH_FEATURE = "ottla.growth.version"
"""Topics can grow in order: ExpandInOrder is there, though no list of APIs has it."""
