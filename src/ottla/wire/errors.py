"""What goes wrong: bytes that are not the protocol's, and Kafka's error codes, as of 4.3.1.

A code has a number and a meaning, and says whether trying again may help.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ottla.wire.texts import shortened

_RETRIABLE = True


class ProtocolError(ValueError):
    """Bytes that are not what Kafka's protocol says they are. Close the connection they came from."""


class ErrorCode(IntEnum):
    """Fields of messages hold plain numbers: a peer may know codes that we do not."""

    _value_: int
    retriable: bool
    meaning: str

    def __new__(cls, code: int, meaning: str = "", retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = -1, "The server met an error it did not expect."
    NONE = 0, "All is well."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies outside of the partition's log."
    CORRUPT_MESSAGE = 2, "The records are damaged: checksum, size or format is wrong.", _RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "The topic or partition is not on this broker.", _RETRIABLE
    INVALID_FETCH_SIZE = 4, "The size to fetch makes no sense."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", _RETRIABLE
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "This broker does not lead the partition, or has no replica of it.",
        _RETRIABLE,
    )
    REQUEST_TIMED_OUT = 7, "The request took longer than it was allowed to.", _RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, "The replica cannot serve the partition.", _RETRIABLE
    MESSAGE_TOO_LARGE = 10, "A batch is larger than the broker takes."
    STALE_CONTROLLER_EPOCH = 11, "A later controller has spoken already."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata string of a committed offset is too long."
    NETWORK_EXCEPTION = 13, "The connection broke before the answer came.", _RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state.", _RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator yet.", _RETRIABLE
    NOT_COORDINATOR = 16, "This broker is not the coordinator.", _RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic's name is not allowed."
    RECORD_LIST_TOO_LARGE = 18, "A batch is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, "Too few replicas are in sync to take the records.", _RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The records were written, but to too few in-sync replicas.",
        _RETRIABLE,
    )
    INVALID_REQUIRED_ACKS = 21, "The acks are none of -1, 0 and 1."
    ILLEGAL_GENERATION = 22, "The group's generation is another."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member's protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, "The group id is not allowed."
    UNKNOWN_MEMBER_ID = 25, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside of the broker's limits."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offsets to commit take too much space."
    TOPIC_AUTHORIZATION_FAILED = 29, "The topic is forbidden to this principal."
    GROUP_AUTHORIZATION_FAILED = 30, "The group is forbidden to this principal."
    CLUSTER_AUTHORIZATION_FAILED = 31, "The cluster operation is forbidden to this principal."
    INVALID_TIMESTAMP = 32, "A record's timestamp is outside of the topic's limits."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not have this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The broker does not have this version of the API."
    TOPIC_ALREADY_EXISTS = 36, "There is a topic of this name."
    INVALID_PARTITIONS = 37, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replicas cannot be placed as asked."
    INVALID_CONFIG = 40, "A configuration value is not allowed."
    NOT_CONTROLLER = 41, "This broker is not the controller.", _RETRIABLE
    INVALID_REQUEST = 42, "The request contradicts itself or says too little."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The stored format of the records cannot do this."
    POLICY_VIOLATION = 44, "A policy of the cluster forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "A sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The batch with this sequence number was stored before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is old."
    INVALID_TXN_STATE = 48, "The transaction's state does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is above the broker's limit."
    CONCURRENT_TRANSACTIONS = 51, "Another operation on the transaction is still under way.", _RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "The marker comes from a coordinator that has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "The transactional id is forbidden to this principal."
    SECURITY_DISABLED = 54, "Security is switched off."
    OPERATION_NOT_ATTEMPTED = 55, "Others in the same request failed, so this was not tried."
    KAFKA_STORAGE_ERROR = 56, "A log could not be read or written on disk.", _RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "The credentials were not accepted."
    UNKNOWN_PRODUCER_ID = 59, "The partition remembers nothing of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being moved."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal neither owns the delegation token nor may renew it."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens cannot be asked for over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "The delegation token is forbidden to this principal."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "Principals of this type are not known."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker does not know this fetch session.", _RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session expects another epoch.", _RETRIABLE
    LISTENER_NOT_FOUND = 72, "The leader has no listener of the name that was asked through.", _RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "Topics cannot be deleted on this cluster."
    FENCED_LEADER_EPOCH = 74, "The leader epoch is older than the broker's.", _RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch is newer than the broker's.", _RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The API's version does not allow the compression of the records."
    STALE_BROKER_EPOCH = 77, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know yet how far the log is committed.", _RETRIABLE
    MEMBER_ID_REQUIRED = 79, "The member must join again, with the id it has been given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not there.", _RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another member has taken this instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica may become the leader.", _RETRIABLE
    ELECTION_NOT_NEEDED = 84, "The leader is the right one already.", _RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic."
    INVALID_RECORD = 87, "The broker refuses a record."
    UNSTABLE_OFFSET_COMMIT = 88, "Offsets wait for a transaction to end.", _RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "A quota is used up for now.", _RETRIABLE
    PRODUCER_FENCED = 90, "A newer producer has the transactional id."
    RESOURCE_NOT_FOUND = 91, "There is no such resource."
    DUPLICATE_RESOURCE = 92, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential is not good enough."
    INCONSISTENT_VOTER_SET = 94, "Sender and receiver do not agree on the voters."
    INVALID_UPDATE_VERSION = 95, "The feature cannot be set to this level."
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position is outside of the snapshot."
    UNKNOWN_TOPIC_ID = 100, "No topic on this broker has this id.", _RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "The broker id is in use."
    BROKER_ID_NOT_REGISTERED = 102, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, "The log belongs to another topic id.", _RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and topic ids.", _RETRIABLE
    INELIGIBLE_REPLICA = 107, "A replica may not be in the in-sync set."
    NEW_LEADER_ELECTED = 108, "The partition was changed and has a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is in tiered storage only."
    FENCED_MEMBER_EPOCH = (
        110,
        "The member's epoch is not the coordinator's: give up all partitions and join again.",
    )
    UNRELEASED_INSTANCE_ID = 111, "The instance id still belongs to another member."
    UNSUPPORTED_ASSIGNOR = 112, "The group does not have this assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is old: heartbeat first, then retry."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "Endpoints of this type are not known."
    UNKNOWN_CONTROLLER_ID = 116, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is unknown or outdated."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, "The controller refuses the broker's registration."
    TRANSACTION_ABORTABLE = 120, "The transaction must be aborted; then the producer can go on."
    INVALID_RECORD_STATE = 121, "The record's state does not allow the acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The broker does not know this share session.", _RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session expects another epoch.", _RETRIABLE
    FENCED_STATE_EPOCH = 124, "The epoch of the share group's state is another."
    INVALID_VOTER_KEY = 125, "The voter's key is not that of the receiver."
    DUPLICATE_VOTER = 126, "The voter is in the set already."
    VOTER_NOT_FOUND = 127, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression cannot be read."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata is too old: start again from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not allowed."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The epoch of the topology is not allowed."
    STREAMS_TOPOLOGY_FENCED = 132, "The epoch of the topology is old."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are as many share sessions as there may be.", _RETRIABLE


NO_ERROR: Final = ErrorCode.NONE  # an enum's member takes a while to be looked up


class ApiError(Exception):
    """What was asked for is refused: with a code, and where there is something to tell with a message for who asked."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.meaning)
        self.code = code
        self.message = None if message is None else shortened(message)  # it may name what a client sent

    @property
    def bare(self) -> ApiError:
        """The same, to be kept: one that was raised has the frames that it came through, and they have who keeps it."""
        return ApiError(self.code, self.message)
