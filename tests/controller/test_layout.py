"""The nodes have Kafka's paths and JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller import layout
from ottla.controller.changes import NewTopic
from ottla.controller.layout import BrokerNode, CorruptNode, PartitionState, TopicNode
from ottla.controller.memory_nodes import MemoryNodes, MemoryTree
from ottla.controller.steps import finished
from ottla.wire.uuids import ZERO_UUID, uuid_text

TOPIC_ID = bytes(range(16))


def test_a_topic_is_written_as_kafka_did() -> None:
    assert layout.encode_topic(TopicNode(TOPIC_ID, [[1, 2], [2]])) == (
        b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":[1,2],"1":[2]},'
        b'"adding_replicas":{},"removing_replicas":{}}'
    )


def test_a_topic_of_the_first_version_has_no_id() -> None:
    assert layout.decode_topic(b'{"version":1,"partitions":{"1":[2],"0":[1]}}') == TopicNode(ZERO_UUID, [[1], [2]])


def test_a_state_is_written_as_kafka_did() -> None:
    data = b'{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":2,"isr":[1,2]}'
    state = PartitionState(1, 4, (1, 2), controller_epoch=2)
    assert layout.encode_state(state) == data
    assert layout.decode_state(data) == state


def test_cluster_id_and_broker_are_written_as_kafka_did() -> None:
    assert layout.encode_cluster_id(uuid_text(TOPIC_ID)) == b'{"version":"1","id":"AAECAwQFBgcICQoLDA0ODw"}'
    broker = BrokerNode({"PLAINTEXT": ("h", 9092)}, None, 17)
    assert layout.encode_broker(broker) == (
        b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"17","endpoints":["PLAINTEXT://h:9092"],'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}'
    )
    assert layout.decode_broker(layout.encode_broker(broker)) == broker
    broker = BrokerNode({"PLAINTEXT": ("::1", 9092)}, "r", 17)
    assert layout.encode_broker(broker) == (
        b'{"version":5,"host":"::1","port":9092,"jmx_port":-1,"timestamp":"17","endpoints":["PLAINTEXT://[::1]:9092"],'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"rack":"r","features":{}}'
    )
    assert layout.decode_broker(layout.encode_broker(broker)) == broker


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b'{"version":1}', b"\xff"])
def test_what_is_not_the_form_is_told(data: bytes) -> None:
    with pytest.raises(CorruptNode):
        layout.decode_config(data)


@given(st.text())
def test_any_name_makes_one_part_of_a_path_and_is_never_the_default(name: str) -> None:
    try:
        part = layout.sanitized(name)
    except UnicodeEncodeError:
        return  # a lone surrogate cannot come over the wire
    assert "/" not in part
    assert part != layout.DEFAULT_ENTITY
    assert layout.unsanitized(part) == name


def test_names_are_sanitized_as_kafka_did() -> None:
    assert layout.sanitized("a b*~+/<ü>") == "a%20b%2A~%2B%2F%3C%C3%BC%3E"
    assert layout.unsanitized(layout.sanitized(None)) is None


def test_a_topic_is_read_back_with_its_states() -> None:
    store = MemoryNodes(MemoryTree())
    store.commit(layout.prepare_operations({}))
    assert layout.prepare_operations(store.tree("")) == []
    topic = TopicNode(TOPIC_ID, [[1, 2], [2, 1]])
    store.commit(list(NewTopic("t", topic, {"retention.ms": "5"}, layout.first_states(topic.replicas)).operations()))
    store.commit(list(layout.partition_operations("t", 2, layout.first_states([[3]]))))
    states = [PartitionState(1, 0, (1, 2)), PartitionState(2, 0, (2, 1))]
    assert finished(layout.read_topics_and_states(store.tree(""))) == {"t": (topic, states)}
    assert finished(layout.read_configs(store.tree(""), layout.TOPIC_CONFIGS)) == {"t": {"retention.ms": "5"}}


def test_a_topic_without_the_state_of_a_partition_is_told() -> None:
    store = MemoryNodes(MemoryTree())
    store.commit(layout.prepare_operations({}))
    operations = list(NewTopic("t", TopicNode(TOPIC_ID, [[1]]), {}, layout.first_states([[1]])).operations())
    store.commit(operations[:-1])
    with pytest.raises(CorruptNode, match="no state"):
        finished(layout.read_topics_and_states(store.tree("")))
