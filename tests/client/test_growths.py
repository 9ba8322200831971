"""Brokers that know nothing of topics that grow in order are not asked about it."""

from ottla.client import Admin
from ottla.wire.apis import DESCRIBE_CONFIGS
from ottla.wire.errors import ErrorCode
from ottla.wire.header import RequestHeader
from ottla.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from ottla.wire.schema import Request
from tests.client.scripted_broker import TOPIC, ScriptedBroker, ScriptedBrokerThread


def not_allowed(_: RequestHeader, __: Request) -> DescribeConfigsResponse:
    """As Apache Kafka answers who may read a topic, and no more."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    result = DescribeConfigsResult(error_code=code, error_message="", resource_type=2, resource_name=TOPIC, configs=[])
    return DescribeConfigsResponse(results=[result])


def test_who_may_only_read_a_topic_of_apache_kafka_is_told_of_no_growth() -> None:
    scripted = ScriptedBroker({DESCRIBE_CONFIGS: not_allowed})
    with ScriptedBrokerThread(scripted) as broker, Admin(broker.bootstrap) as admin:
        assert admin.describe_growths([TOPIC]) == {TOPIC: ()}
