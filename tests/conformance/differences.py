"""Where Ottla answers otherwise than Apache Kafka, and means to. docs/conformance.md shows the same table.

Each row names an exchange and the steps (from 0) whose answers Ottla gives in place of Kafka's. Everything else of
the exchange is as Kafka's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.handlers.api_versions import FEATURES
from ottla.wire.apis import APIS, GROWTH_FEATURE
from ottla.wire.errors import ErrorCode
from tests.conformance.connection import NoFrame
from tests.conformance.rendering import Json
from tests.conformance.served import SERVED


class Difference(NamedTuple):
    reason: str
    change: Callable[[list[dict[str, Json]]], None]
    """Turns the steps that Kafka answered into those that Ottla answers."""


def expected_steps(full_name: str, steps: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """What Ottla answers in an exchange, given what Kafka did."""
    if full_name not in DIFFERENCES:
        return steps
    changed = copy.deepcopy(steps)
    DIFFERENCES[full_name].change(changed)
    return changed


def _only_what_is_served(steps: list[dict[str, Json]]) -> None:
    served = {api.key for api in APIS if api.name in SERVED}
    answer = steps[0]["answer"]
    answer["api_keys"] = [row for row in answer["api_keys"] if row.get("api_key", 0) in served]
    for features, ours in _GROWTH.items():
        if features in answer:
            kept = [feature for feature in answer[features] if feature["name"] in FEATURES]
            is_all = any("min_version" not in feature for feature in kept)  # before version 4, none from level 0 on
            kept += [ours] if features == "finalized_features" or is_all else []
            _set_list(answer, features, sorted(kept, key=lambda feature: str(feature["name"])))


_GROWTH: dict[str, dict[str, Json]] = {
    "supported_features": {"name": GROWTH_FEATURE, "max_version": 1},
    "finalized_features": {"name": GROWTH_FEATURE, "max_version_level": 1, "min_version_level": 1},
}
"""Topics that grow in order."""


def _set_list(struct: dict[str, Json], field: str, elements: list[Json]) -> None:
    """An empty list is left out, as every default is."""
    struct[field] = elements
    if not elements:
        del struct[field]


def _fenced_in_the_last_epoch(steps: list[dict[str, Json]]) -> None:
    steps[0]["answer"]["error_code"] = ErrorCode.PRODUCER_FENCED.value


def _null_records_are_refused(steps: list[dict[str, Json]]) -> None:
    partition = {"error_code": ErrorCode.INVALID_RECORD.value, "base_offset": -1}
    steps[0]["answer"] = {"responses": [{"name": "topic", "partition_responses": [partition]}]}


def _resource_kind_is_refused(steps: list[dict[str, Json]]) -> None:
    """Every answer about a logger or client metrics is the same refusal."""
    for step in steps:
        answer = step["answer"]
        is_description = "results" in answer
        for result in answer.get("results", answer.get("responses")):
            kind = result["resource_type"]
            message = _REFUSED_DESCRIPTION if is_description else f"Unknown resource type {kind}"
            result |= {"error_code": ErrorCode.INVALID_REQUEST.value, "error_message": message}
            if is_description:
                _set_list(result, "configs", [])


def _without_reporters_and_keystore(steps: list[dict[str, Json]]) -> None:
    for result in steps[0]["answer"]["results"]:
        result["configs"] = [
            config
            for config in result["configs"]
            if config["name"] not in ("metric.reporters", "ssl.keystore.password")
        ]


def _without_share_and_streams_groups(steps: list[dict[str, Json]]) -> None:
    [result] = steps[0]["answer"]["results"]
    result["configs"] = [config for config in result["configs"] if config["name"].startswith("consumer.")]


def _repeated_join_is_answered(steps: list[dict[str, Json]]) -> None:
    steps[3]["answer"] = "an answer"


def _nothing_is_added(steps: list[dict[str, Json]]) -> None:
    steps[0]["answer"] = {}


def _stable_from_the_start(steps: list[dict[str, Json]]) -> None:
    [topic] = steps[1]["answer"]["topics"]
    topic["partitions"][0]["offset"] = 2


def _closed(steps: list[dict[str, Json]]) -> None:
    steps[0]["answer"] = NoFrame.CLOSED.value


def _no_number_is_refused(steps: list[dict[str, Json]]) -> None:
    [entry] = steps[0]["answer"]["entries"]
    entry |= {
        "error_code": ErrorCode.INVALID_REQUEST.value,
        "error_message": "Quota producer_byte_rate must be a number",
    }


_SERVED = Difference(
    "Ottla lists the APIs and features it has: not those of Kafka's metadata log, of share and of streams groups.",
    _only_what_is_served,
)

_REFUSED_DESCRIPTION = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
_KIND = Difference(
    "Kafka has settings of loggers and of client metrics. Ottla has not.",
    _resource_kind_is_refused,
)
_NO_TRANSACTIONS = Difference(
    "Kafka never answers a request to add partitions to no transaction. Ottla answers with nothing.",
    _nothing_is_added,
)
_NO_JVM = Difference(
    "Ottla has neither reporters in a JVM nor a keystore for TLS, and does not describe them.",
    _without_reporters_and_keystore,
)
DIFFERENCES: dict[str, Difference] = {
    "configs: change badly: a logger of no name": _KIND,
    "configs: change badly: another logger": _KIND,
    "configs: change badly: client metrics of no name": _KIND,
    "configs: describe badly: a logger of no name": _KIND,
    "configs: describe badly: another logger": _KIND,
    "configs: describe badly: client metrics of no name": _KIND,
    "configs: describe client metrics": _KIND,
    "configs: describe a group": Difference(
        "Kafka has settings for groups that share partitions and for those of Kafka Streams. Ottla has no such groups.",
        _without_share_and_streams_groups,
    ),
    "configs: replace badly: client metrics of no name": _KIND,
    "configs: describe a broker: version 1": _NO_JVM,
    "configs: describe a broker: version 3": _NO_JVM,
    "configs: describe a broker: version 4": _NO_JVM,
    **{f"frames: api versions: version {version}": _SERVED for version in range(5)},
    "frames: api versions from a software with: a name with a hyphen": _SERVED,
    "frames: api versions from a software with: one letter each": _SERVED,
    "frames: a broken frame: a string that is not UTF-8": Difference(
        "Kafka puts a sign in the place of bytes that are no text. Ottla takes text only.", _closed
    ),
    "produce: null records": Difference(
        "Kafka never answers, and the connection hangs. Ottla refuses the partition.", _null_records_are_refused
    ),
    "rebalances: a join that waits is sent again": Difference(
        "Kafka forgets a join that waits when its member sends another. Ottla answers both.",
        _repeated_join_is_answered,
    ),
    "transactional_records: records of an open transaction are deleted": Difference(
        "Where a log starts within a batch, Kafka's last stable offset is that of the batch, before the log's start.",
        _stable_from_the_start,
    ),
    "transactions: no transactions in one request: version 4": _NO_TRANSACTIONS,
    "transactions: no transactions in one request: version 5": _NO_TRANSACTIONS,
    "quotas: an alteration: a value that is no number": Difference(
        "Kafka keeps a rate that is no number, and nothing can be held to it. Ottla refuses it.", _no_number_is_refused
    ),
    "used_up_epochs: one who begins anew": Difference(
        "Kafka fails where a producer asks with an epoch before the last one. Ottla says that it is fenced, as ever.",
        _fenced_in_the_last_epoch,
    ),
}
