"""Options as users write them, and what they are told where one is wrong."""

import pytest

from ottla.client import EARLIEST, LATEST, Isolation, TopicPartition
from ottla.pipelines.options import OptionError
from ottla.pipelines.sink.options import sink_options
from ottla.pipelines.source_options import ByTime, source_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
SUBSCRIBED = {**SERVERS, "subscribe": "orders"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribe": "orders"}, "option kafka.bootstrap.servers is missing"),
        (SERVERS, "set one of the options subscribe, subscribePattern, assign: none of them is set"),
        ({**SUBSCRIBED, "assign": "{}"}, "subscribePattern, assign: subscribe and assign"),
        ({**SUBSCRIBED, "startingOfsets": "earliest"}, "has no option startingOfsets: do you mean startingOffsets?"),
        ({**SUBSCRIBED, "kafka.isolation.levle": "x"}, "do you mean kafka.isolation.level?"),
        ({**SUBSCRIBED, "kafka.ssl.truststore": "x"}, "has no client option kafka.ssl.truststore"),
        ({**SUBSCRIBED, "path": "x"}, "has no path: name the topic with an option"),
        ({**SUBSCRIBED, "kafka.security.protocol": "SASL_SSL"}, "this client does not speak SASL_SSL"),
        ({**SUBSCRIBED, "startingOffsets": "last"}, 'is {"topic": {"0": 23}}, earliest or latest'),
        ({**SUBSCRIBED, "startingOffsets": '{"orders": {"0": -3}}'}, "not a partition and a number"),
        ({**SUBSCRIBED, "startingOffsets": '{"orders": [1]}'}, 'is JSON like {"topic": {"0": 23}}'),
        ({**SUBSCRIBED, "minPartitions": "0"}, "option minPartitions is a whole number of at least 1, not '0'"),
        ({**SUBSCRIBED, "failOnDataLoss": "maybe"}, "option failOnDataLoss is true or false, not 'maybe'"),
        ({**SUBSCRIBED, "kafka.isolation.level": "none"}, "is one of read_committed, read_uncommitted, not 'none'"),
        ({**SUBSCRIBED, "maxTriggerDelay": "soon"}, "is a time such as 500ms, 30s, 15m or 1h, not 'soon'"),
        ({**SUBSCRIBED, "columns": "key,body"}, "option columns names some of key, value, topic"),
        ({**SUBSCRIBED, "columns": "headers"}, "option columns names some of"),
        ({**SUBSCRIBED, "endingOffsets": "latest"}, "option endingOffsets is for batch reads alone"),
        ({**SERVERS, "subscribePattern": "("}, "option subscribePattern is not a regular expression"),
        ({**SERVERS, "assign": '{"orders": [-1]}'}, 'option assign is JSON like {"topic": [0, 1]}'),
        ({**SERVERS, "subscribe": " , "}, "option subscribe names no topic: ','"),
        ({**SUBSCRIBED, "startingTimestamp": "9" * 20}, "option startingTimestamp is at most 9223372036854775807"),
        ({**SUBSCRIBED, "startingOffsets": '{"orders": {"0": 9223372036854775808}}'}, "not a partition and a number"),
        ({**SUBSCRIBED, "kafka.fetch.max.bytes": "2147483648"}, "option kafka.fetch.max.bytes is at most 2147483647"),
        ({**SUBSCRIBED, "kafka.request.timeout.ms": "3000000000"}, "option kafka.request.timeout.ms is at most"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_stream_is_refused_in_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as refused:
        source_options(given, is_stream=True)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOffsets": "latest"}, "option startingOffsets of a batch read is not latest: nothing would be read"),
        ({"endingOffsets": "earliest"}, "option endingOffsets of a batch read is not earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "option endingOffsets of a batch read does not take -2"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "option startingOffsets of a batch read does not take -1"),
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for streams alone"),
    ],
)
def test_a_batch_read_refuses_edges_that_leave_nothing(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as refused:
        source_options({**SUBSCRIBED, **given}, is_stream=False)
    assert sentence in str(refused.value)


def test_what_is_not_said_is_as_in_sparks_own_source() -> None:
    stream, batch = source_options(SUBSCRIBED, is_stream=True), source_options(SUBSCRIBED, is_stream=False)
    assert (stream.start, batch.start, batch.end) == (LATEST, EARLIEST, LATEST)
    assert (stream.fails_on_data_loss, stream.offsets_per_trigger, stream.group_id) == (True, None, None)
    assert stream.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert stream.isolation is Isolation.READ_COMMITTED  # and here not


def test_names_are_taken_in_any_case_and_times_go_before_offsets() -> None:
    options = source_options(
        {
            "KAFKA.bootstrap.servers": "localhost:9092",
            "SUBSCRIBE": "orders, payments,orders",
            "startingOffsets": '{"orders": {"0": -1, "1": -2, "2": 7, "id": "x"}}',
            "maxTriggerDelay": "2m",
            "columns": "value,key",
        },
        is_stream=True,
    )
    assert options.subscription.topics == ("orders", "payments")
    assert options.start == {
        TopicPartition("orders", 0): LATEST, TopicPartition("orders", 1): EARLIEST, TopicPartition("orders", 2): 7,
    }  # fmt: skip
    assert (options.trigger_delay_ms, options.columns) == (120_000, ("key", "value"))
    by_time = {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"orders": {"0": 9}}'}
    assert source_options({**SUBSCRIBED, **by_time}, is_stream=True).start == ByTime(5, is_strict=True)
    del by_time["startingTimestamp"]
    by_time["startingOffsetsByTimestampStrategy"] = "latest"
    each = ByTime({TopicPartition("orders", 0): 9}, is_strict=False)
    assert source_options({**SUBSCRIBED, **by_time}, is_stream=True).start == each


def test_a_group_with_a_prefix_has_the_same_name_when_the_query_starts_again() -> None:
    given = {**SUBSCRIBED, "groupIdPrefix": "team"}
    first = source_options(given, is_stream=True).group_id
    assert first == source_options(given, is_stream=True).group_id
    assert first != source_options({**given, "subscribe": "others"}, is_stream=True).group_id
    assert first is not None
    assert first.startswith("team-")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (SERVERS, "option kafka.transactional.id is missing"),
        ({**SERVERS, "topic": "orders", "kafka.acks": "1"}, "option kafka.acks is all where"),
        ({**SERVERS, "topic": "orders", "delivery": "maybe"}, "option delivery is one of exactly-once, at-least-once"),
        ({**SERVERS, "topic": "orders", "asyncProgressTrackingEnabled": "true"}, "has no option asyncProgressTracking"),
        ({**SERVERS, "topic": "orders", "subscribe": "x"}, "the sink ottla has no option subscribe"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_sink_is_refused_in_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as refused:
        sink_options(given, is_stream=True)
    assert sentence in str(refused.value)


def test_a_stream_is_written_exactly_once_and_a_batch_plainly() -> None:
    given = {**SERVERS, "topic": "orders"}
    stream, batch = sink_options(given, is_stream=True), sink_options(given, is_stream=False)
    assert (stream.is_exactly_once, stream.transactional_id) == (True, "spark-sink-orders")
    assert (batch.is_exactly_once, batch.transactional_id) == (False, None)
