"""Keys and values as functions make them: text, JSON, and Avro and Protobuf with a small registry."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.struct_pb2 import Struct, Value  # type: ignore[import-untyped]
from google.protobuf.timestamp_pb2 import Timestamp  # type: ignore[import-untyped]

from ottla.client import InvalidRecord, NewRecord, aio, serde
from ottla.client.serde.avro import AvroDeserializer, AvroSerializer
from ottla.client.serde.protobuf import ProtobufDeserializer, ProtobufSerializer
from ottla.client.serde.registry import RegistryError, SchemaRegistry
from ottla.testing.world import World

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "count", "type": "int"}]}


class Registry(BaseHTTPRequestHandler):
    schemas: ClassVar[list[dict[str, Any]]] = []
    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(self.path)
        if not self.path.endswith("/versions"):
            self._answer(200 if body in self.schemas else 404, {"version": self.schemas.index(body) + 1})
            return
        if body not in self.schemas:
            self.schemas.append(body)
        self._answer(200, {"id": self.schemas.index(body) + 1})

    def do_GET(self) -> None:
        number = int(self.path.rsplit("/", 1)[1])
        self.asked.append(self.path)
        if number > len(self.schemas):
            self._answer(404, {"message": "no such schema"})
        else:
            self._answer(200, self.schemas[number - 1])

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    Registry.schemas.clear()
    Registry.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield SchemaRegistry(f"http://127.0.0.1:{server.server_port}/")
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_producer_writes_what_its_functions_make() -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Producer(world.bootstrap, key=serde.encode_text, value=serde.encode_json) as producer:
                await producer.send("t", {"count": 2}, key="é")
                await producer.send("t", None, key="gone")
                await producer.send_many("t", [[1], NewRecord({"a": None}, key="k")])
                with pytest.raises(InvalidRecord, match="the value cannot be serialized"):
                    producer.send("t", {1, 2})
                with pytest.raises(InvalidRecord, match="text is a str, not int"):
                    producer.send("t", 1, key=7)

        world.run(main())
        found = [(record.key, record.value) for record in world.written("t")]
        assert found == [("é".encode(), b'{"count":2}'), (b"gone", None), (None, b"[1]"), (b"k", b'{"a":null}')]
        both = serde.Deserializers(serde.decode_text, serde.decode_json)
        assert (both.key("t", found[0][0]), both.value("t", found[0][1])) == ("é", {"count": 2})
        assert both.value("t", None) is None


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="value is a function of one argument"):
        aio.Producer("localhost:9092", value=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key is a function of one argument"):
        aio.Consumer("localhost:9092", "t", group="g", key=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["messages", "batches", "poll"])
def test_a_consumer_hands_out_what_its_functions_make(registry: SchemaRegistry, way: str) -> None:
    """Also of those that know their topic."""
    with World() as world:
        for topic in ("orders", "returns"):
            world.create_topic(topic)

        async def main() -> list[Any]:
            async with aio.Producer(
                world.bootstrap, key=serde.encode_text, value=AvroSerializer(registry, ORDER)
            ) as producer:
                await producer.send("orders", {"count": 2}, key="a")
                await producer.send("orders", None, key="b")
            async with aio.Consumer(
                world.bootstrap, "orders", group="g", key=serde.decode_text, value=AvroDeserializer(registry)
            ) as consumer:
                seen: list[Any] = []
                while len(seen) < 2:
                    if way == "poll":
                        seen += [one for batch in await consumer.poll() for one in batch.records]
                    elif way == "batches":
                        seen += (await anext(aiter(consumer.batches()))).records
                    else:
                        seen.append(await anext(aiter(consumer)))
                return [(one.key, one.value) for one in seen]

        assert world.run(main()) == [("a", {"count": 2}), ("b", None)]


def test_avro_goes_there_and_back_and_the_registry_is_asked_once(registry: SchemaRegistry) -> None:
    write = serde.Serializers(None, AvroSerializer(registry, ORDER))
    data = [write("orders", {"count": count}, None)[0] for count in range(3)]
    assert data[0] == b"\0\0\0\0\x01\0"
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "colour", "type": "string", "default": "red"}]}
    read = serde.Deserializers(None, AvroDeserializer(registry, newer))
    assert [read.value("orders", one) for one in data] == [{"count": count, "colour": "red"} for count in range(3)]
    assert Registry.asked == ["/subjects/orders-value/versions", "/schemas/ids/1"]
    with pytest.raises(InvalidRecord, match="cannot be serialized"):
        write("orders", {"count": "two"}, None)
    with pytest.raises(ValueError, match="not in the wire format"):
        read.value("orders", b"plain")
    with pytest.raises(RegistryError, match="no such schema"):
        read.value("orders", b"\0\0\0\0\x09\0")


def test_avro_schemas_that_refer_to_others_are_read(registry: SchemaRegistry) -> None:
    """As Confluent's clients register them: a type of another subject, which refers to one as well."""
    town = {"type": "record", "name": "x.Town", "fields": [{"name": "name", "type": "string"}]}
    place = {"type": "record", "name": "x.Place", "fields": [{"name": "town", "type": "x.Town"}]}
    fields = [{"name": "from", "type": "x.Place"}, {"name": "to", "type": ["null", "x.Place"]}]
    trip = {"type": "record", "name": "x.Trip", "fields": fields}
    uses_town = {"name": "x.Town", "subject": "town-value", "version": 1}
    uses_place = {"name": "x.Place", "subject": "place-value", "version": 2}
    Registry.schemas += [
        {"schema": json.dumps(town)},
        {"schema": json.dumps(place), "references": [uses_town]},
        {"schema": json.dumps(trip), "references": [uses_place, uses_town]},
    ]
    data = bytes([0, 0, 0, 0, 3, 8]) + b"Brno" + bytes([2, 8]) + b"Wien"
    decode = AvroDeserializer(registry).bind("trips", "value")
    for _ in range(2):
        assert decode(data) == {"from": {"town": {"name": "Brno"}}, "to": {"town": {"name": "Wien"}}}
    assert Registry.asked == ["/schemas/ids/3", "/subjects/place-value/versions/2", "/subjects/town-value/versions/1"]


def test_protobuf_names_the_message_in_its_file(registry: SchemaRegistry) -> None:
    first = serde.Serializers(None, ProtobufSerializer(registry, Struct))
    second = serde.Serializers(None, ProtobufSerializer(registry, Value))
    struct = Struct()
    struct.update({"a": 1})
    one, _ = first("t", struct, None)
    other, _ = second("t", Value(string_value="x"), None)
    assert (one[5:6], other[5:7]) == (b"\0", b"\x02\x02")
    assert serde.Deserializers(None, ProtobufDeserializer(Struct)).value("t", one) == struct
    assert serde.Deserializers(None, ProtobufDeserializer(Value)).value("t", other).string_value == "x"
    with pytest.raises(InvalidRecord, match="it is a Struct, not a Value"):
        first("t", Value(), None)
    with pytest.raises(ValueError, match="cut off"):
        ProtobufDeserializer(Value).bind("t", "value")(b"\0\0\0\0\1\x80")


def test_protobuf_files_that_import_others_name_them(registry: SchemaRegistry) -> None:
    """money.proto is imported by price.proto, and that by order.proto; timestamps every registry has."""
    pool = descriptor_pool.DescriptorPool()
    timestamp = descriptor_pb2.FileDescriptorProto()
    Timestamp.DESCRIPTOR.file.CopyToProto(timestamp)
    pool.Add(timestamp)
    names = ["money", "price", "order"]
    for number, name in enumerate(names):
        file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="shop", syntax="proto3")
        message = file.message_type.add(name=name.title())
        if number:
            file.dependency.append(f"{names[number - 1]}.proto")
            inner = f".shop.{names[number - 1].title()}"
            message.field.add(name="inner", number=1, type=11, label=1, type_name=inner)
        else:
            message.field.add(name="cents", number=1, type=3, label=1)
        if name == "order":
            file.dependency.append("google/protobuf/timestamp.proto")
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    write = serde.Serializers(None, ProtobufSerializer(registry, order))
    value = order()
    value.inner.inner.cents = 7
    data, _ = write("t", value, None)
    assert data[:6] == b"\0\0\0\0\x03\0"
    assert serde.Deserializers(None, ProtobufDeserializer(order)).value("t", data).inner.inner.cents == 7
    assert [schema.get("references", []) for schema in Registry.schemas] == [
        [],
        [{"name": "money.proto", "subject": "money.proto", "version": 1}],
        [{"name": "price.proto", "subject": "price.proto", "version": 2}],
    ]


def test_a_registry_that_is_not_there_is_said_plainly() -> None:
    write = serde.Serializers(None, AvroSerializer(SchemaRegistry("http://127.0.0.1:1"), ORDER))
    with pytest.raises(RegistryError, match="cannot be reached"):
        write("orders", {"count": 1}, None)


class Away:
    """A deserializer whose registry is not there for a while."""

    def __init__(self) -> None:
        self.is_away = True

    def __call__(self, data: bytes) -> str:
        if self.is_away and data.startswith(b"needs it"):
            raise RegistryError("the registry cannot be reached", is_retriable=True)
        return data.decode()


def test_a_registry_that_is_away_is_no_fault_of_a_record() -> None:
    """It is raised each time, hides nothing that comes before it, and makes no dead letters of sound records."""
    with World() as world:
        world.create_topic("t", partitions=2)
        world.create_topic("dead")
        world.put("t", b"sound", partition=0)
        world.put("t", b"sound too", b"needs it", partition=1)

        async def main() -> None:
            reads = Away()
            seen: list[str] = []

            async def handle(message: Any) -> None:
                seen.append(message.value)
                if len(seen) == 3:
                    consumer.stop()

            async with aio.Consumer(world.bootstrap, "t", group="g", value=reads) as consumer:
                while len(seen) < 2:
                    for batch in await consumer.poll(1_000):
                        seen += [record.value for record in batch.records]
                for _ in range(2):
                    with pytest.raises(RegistryError):
                        await consumer.poll(1_000)
                with pytest.raises(RegistryError):
                    await consumer.run(handle, dead_letter="dead")
                reads.is_away = False
                await consumer.run(handle, dead_letter="dead")
            assert sorted(seen) == ["needs it", "sound", "sound too"]

        world.run(main(), most_seconds=100)
        assert not world.committed("dead")


@pytest.mark.parametrize(("code", "is_retriable"), [(404, False), (422, False), (429, True), (500, True), (503, True)])
def test_what_a_registry_refuses_may_pass_or_not(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, code: int, is_retriable: bool
) -> None:
    monkeypatch.setattr(Registry, "do_GET", lambda self: self._answer(code, {}))
    with pytest.raises(RegistryError) as refused:
        registry.schema(1)
    assert refused.value.is_retriable is is_retriable


def test_what_answers_in_place_of_a_registry_is_said_plainly(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(handler: Registry) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"<html>sign in</html>")

    monkeypatch.setattr(Registry, "do_GET", answer)
    with pytest.raises(RegistryError, match="no answer of a registry") as refused:
        registry.schema(1)
    assert refused.value.is_retriable


def test_a_dead_letter_is_written_as_it_came_whatever_its_producer_serializes() -> None:
    with World() as world:
        world.create_topic("t")
        world.create_topic("dead")
        world.put("t", b"\xff\x00")

        async def main() -> None:
            async def handle(_: Any) -> None:
                raise ValueError("never")

            async with (
                aio.Producer(world.bootstrap, value=serde.encode_json, key=serde.encode_json) as producer,
                aio.Consumer(world.bootstrap, "t", group="g") as consumer,
            ):
                running = asyncio.ensure_future(consumer.run(handle, retries=0, dead_letter="dead", producer=producer))
                while not world.committed("dead") and not running.done():
                    await asyncio.sleep(0.1)
                consumer.stop()
                await running

        world.run(main(), most_seconds=100)
        assert [record.value for record in world.committed("dead")] == [b"\xff\x00"]


@pytest.mark.parametrize(
    ("options", "error"),
    [({"dead_leter": "x"}, TypeError), ({"retries": -1}, ValueError), ({"retries": "3"}, TypeError),
     ({"dead_letter": "no topic"}, ValueError)],
)  # fmt: skip
def test_an_option_of_run_that_cannot_be_is_told(options: dict[str, Any], error: type[Exception]) -> None:
    consumer = aio.Consumer("localhost:1", "t", group="g")
    with pytest.raises(error, match=next(iter(options))):
        consumer.recovery(options)  # type: ignore[arg-type]
