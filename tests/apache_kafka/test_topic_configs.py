"""The answers that the tests of topic configurations hold are those of the real Kafka."""

import json
from pathlib import Path

from tests.apache_kafka.harness import ApacheKafka, run_tool

FACTS = Path(__file__).parents[1] / "config" / "topic_configs.json"


def test_the_facts_are_what_kafka_answers(apache_kafka: ApacheKafka) -> None:
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    cases = json.dumps([answer["configs"] for answer in facts["answers"]])
    asked = json.loads(run_tool("AskTopicConfigs", apache_kafka.bootstrap, "described", text_in=cases))
    assert asked == facts
