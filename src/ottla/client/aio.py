"""The client for asyncio: the names of `ottla.client`, to be awaited."""

from __future__ import annotations

from ottla.client.admin.admin import Admin
from ottla.client.consumer.batch_reader import BatchReader
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.reader import Reader
from ottla.client.network.cluster import ClientOptions
from ottla.client.producer.producer import Producer

__all__ = ["Admin", "BatchReader", "ClientOptions", "Consumer", "Producer", "Reader"]
