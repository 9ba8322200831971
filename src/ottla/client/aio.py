"""The client for asyncio: the names of `ottla.client`, to be awaited."""

from __future__ import annotations

from ottla.client.admin import Admin
from ottla.client.cluster import ClientOptions
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.reader import Reader

__all__ = ["Admin", "ClientOptions", "Consumer", "Producer", "Reader"]
