"""Making bytes of keys and values, and back: plain functions, for `key=` and `value=` of producers and consumers.

    Producer("localhost:9092", key=serde.encode_text, value=serde.encode_json)
    Consumer("localhost:9092", "orders", group="g", key=serde.decode_text, value=serde.decode_json)

Any function of one argument will do. `None` stays None and is not given to it: a value of None is a tombstone. What a
function raises is raised to whoever sends, as InvalidRecord.

Where the bytes depend on the topic, an object with a method `bind(topic, field)` that returns such a function takes its
place: so do those of `ottla.client.serde.avro` and `ottla.client.serde.protobuf`, which keep their schemas in a schema
registry (`pip install ottla[avro]`, `ottla[protobuf]`).
"""

from ottla.client.serde.binding import Bindable, Deserializer, Deserializers, Function, Serializer, Serializers
from ottla.client.serde.plain import decode_json, decode_text, encode_json, encode_text

__all__ = [
    "Bindable",
    "Deserializer",
    "Deserializers",
    "Function",
    "Serializer",
    "Serializers",
    "decode_json",
    "decode_text",
    "encode_json",
    "encode_text",
]
