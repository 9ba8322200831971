"""Settings of Kafka's broker that Ottla keeps and describes, without acting on them."""

from __future__ import annotations

from ottla.config import Definition

KEPT_SETTINGS: dict[str, Definition] = {}
