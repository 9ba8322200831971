"""The client for asyncio: the names of `ottla.client`, to be awaited."""

from __future__ import annotations

from ottla.client.admin import Admin
from ottla.client.cluster import ClientOptions
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.reader import Reader
from ottla.client.producer import Producer

__all__ = ["Admin", "ClientOptions", "Consumer", "Producer", "Reader"]
