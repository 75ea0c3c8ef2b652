"""The one table of errors, from disk to user.

Every class below is a row: number, gRPC status, whether to retry, whether to refresh the metadata first, and the
outcome (was the request applied?). Numbers are never reused and never change meaning. The same class is raised by the
storage, sent by a broker and raised again in the client.

    LogError
    ├── UnknownTopicOrPartition, NotLeader, FencedEpoch, NoLeader, OffsetOutOfRange
    ├── InvalidRequest, CorruptBatch, RecordTooLarge, Throttled, UnsupportedVersion
    ├── NotEnoughReplicas, ReplicationTimeout, OutOfOrderSequence, ProducerFenced
    ├── RebalanceInProgress, StaleGeneration, UnknownMember, NotCoordinator
    ├── TopicExists, QuorumUnavailable, MetadataOutcomeUnknown, ShuttingDown, Internal
    ├── DiskFull, StorageCorrupted, StorageFailed, DirectoryLocked, WrongDirectory, DirectoryUnusable
    ├── NotController, UnknownBroker, BrokerIdInUse, WrongCluster, MembershipRefused
    ├── InvalidTopicName, InvalidPartitionCount, InvalidReplicationFactor, InvalidAssignment
    ├── UnknownConfig, InvalidConfigValue, NoEligibleLeader, MoveRefused, BrokerInUse, UnknownName
    └── UnknownServerError (a number that this version does not know)

An error is a fact with fields: the fields are the dataclass fields, the text is built from them. Fields are str, int or
None, so every error survives pickle (Spark and multiprocessing need it) and the wire.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from lograft.v1 import errors_pb2


class Outcome(Enum):
    """Whether the request that failed has changed anything."""

    NOT_APPLIED = errors_pb2.OUTCOME_NOT_APPLIED
    UNKNOWN = errors_pb2.OUTCOME_UNKNOWN


class LogError(Exception):
    """Base of every error that Lograft raises."""

    number: ClassVar[int] = 0
    status: ClassVar[str] = "UNKNOWN"
    retriable: ClassVar[bool] = False
    refresh_metadata: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = Outcome.NOT_APPLIED
    template: ClassVar[str] = ""

    def facts(self) -> dict[str, str | int | None]:
        """The fields of the error, in order."""
        names: Iterable[str] = getattr(self, "__dataclass_fields__", ())
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return self.template.format(**self.facts())

    def __reduce__(self) -> tuple[type["LogError"], tuple[str | int | None, ...]]:
        # Not `self.args`: they miss whatever was passed by keyword.
        return type(self), tuple(self.facts().values())


@dataclass(eq=False)
class UnknownTopicOrPartition(LogError):
    """The broker does not know the topic, or the topic has no such partition."""

    number = 1
    status = "NOT_FOUND"
    retriable = True
    refresh_metadata = True
    template = "unknown topic or partition {topic}-{partition}: check the name, or create the topic first"

    topic: str
    partition: int


@dataclass(eq=False)
class NotLeader(LogError):
    """Another broker leads the partition."""

    number = 2
    status = "FAILED_PRECONDITION"
    retriable = True
    refresh_metadata = True

    topic: str
    partition: int
    leader_hint: int | None = None
    leader_epoch: int | None = None

    def __str__(self) -> str:
        epoch = "" if self.leader_epoch is None else f" in epoch {self.leader_epoch}"
        hint = "ask for the metadata again" if self.leader_hint is None else f"try broker {self.leader_hint}"
        return f"not the leader of {self.topic}-{self.partition}{epoch} ({hint})"


@dataclass(eq=False)
class FencedEpoch(LogError):
    """The request carries an epoch that is over."""

    number = 3
    status = "FAILED_PRECONDITION"
    retriable = True
    refresh_metadata = True
    template = "epoch {epoch} is over for {subject}: the current one is {current_epoch}"

    subject: str
    epoch: int
    current_epoch: int


@dataclass(eq=False)
class NoLeader(LogError):
    """No replica may lead the partition at the moment."""

    number = 4
    status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True
    template = "{topic}-{partition} has no leader at the moment"

    topic: str
    partition: int


@dataclass(eq=False)
class OffsetOutOfRange(LogError):
    """The offset was deleted, or lies beyond what can be asked for."""

    number = 5
    status = "OUT_OF_RANGE"
    template = (
        "offset {offset} of {subject} is out of range: the log holds {start_offset} up to {end_offset} (exclusive)"
    )

    subject: str
    offset: int
    start_offset: int
    end_offset: int


@dataclass(eq=False)
class InvalidRequest(LogError):
    """The request can never succeed as it is."""

    number = 6
    status = "INVALID_ARGUMENT"
    template = "{problem}"

    problem: str


@dataclass(eq=False)
class CorruptBatch(LogError):
    """Bytes that should be a record batch are not a sound one."""

    number = 7
    status = "INVALID_ARGUMENT"
    template = "not a sound record batch at position {position} of {source}: {problem}"

    problem: str
    source: str = "the request"
    position: int = 0


@dataclass(eq=False)
class RecordTooLarge(LogError):
    """The batch is larger than the topic allows."""

    number = 8
    status = "INVALID_ARGUMENT"
    template = "{what} of {size_bytes} bytes is above the limit of {limit_bytes} bytes ({setting})"

    what: str
    size_bytes: int
    limit_bytes: int
    setting: str


@dataclass(eq=False)
class NotEnoughReplicas(LogError):
    """Refused before the append: the in-sync set is below ``min.insync.replicas``."""

    number = 9
    status = "UNAVAILABLE"
    retriable = True
    template = "{topic}-{partition} has {in_sync} replicas in sync and needs {required} (min.insync.replicas)"

    topic: str
    partition: int
    in_sync: int
    required: int


@dataclass(eq=False)
class ReplicationTimeout(LogError):
    """Appended by the leader, but not confirmed by the in-sync replicas in time."""

    number = 10
    status = "DEADLINE_EXCEEDED"
    retriable = True
    outcome = Outcome.UNKNOWN
    template = "{topic}-{partition}: appended, but the replicas did not confirm it within {timeout_ms} ms"

    topic: str
    partition: int
    timeout_ms: int


@dataclass(eq=False)
class Throttled(LogError):
    """The client is over its quota."""

    number = 11
    status = "RESOURCE_EXHAUSTED"
    retriable = True
    template = "over quota: try again in {retry_after_ms} ms"

    retry_after_ms: int


@dataclass(eq=False)
class DiskFull(LogError):
    """The append was refused and undone; everything acknowledged before stays readable."""

    number = 12
    status = "RESOURCE_EXHAUSTED"
    template = "no space left for {path}: refused, and nothing of it is kept; free some space"

    path: str


@dataclass(eq=False)
class OutOfOrderSequence(LogError):
    """An idempotent producer's batch does not follow its last one."""

    number = 13
    status = "FAILED_PRECONDITION"
    retriable = True
    template = "producer {producer_id} sent sequence {sequence}, expected {expected}: an earlier batch is missing"

    producer_id: int
    sequence: int
    expected: int


@dataclass(eq=False)
class ProducerFenced(LogError):
    """A newer incarnation of the producer exists."""

    number = 14
    status = "FAILED_PRECONDITION"
    template = "producer {producer_id} of epoch {epoch} is fenced: epoch {current_epoch} has taken over"

    producer_id: int
    epoch: int
    current_epoch: int


@dataclass(eq=False)
class RebalanceInProgress(LogError):
    """The group is handing partitions over."""

    number = 15
    status = "ABORTED"
    retriable = True
    template = "group {group} is rebalancing: rejoin"

    group: str


@dataclass(eq=False)
class StaleGeneration(LogError):
    """The member's epoch is over."""

    number = 16
    status = "ABORTED"
    retriable = True
    template = "member {member} of group {group} has a stale epoch: rejoin"

    group: str
    member: str


@dataclass(eq=False)
class UnknownMember(LogError):
    """The coordinator does not know the member."""

    number = 17
    status = "ABORTED"
    retriable = True
    template = "group {group} has no member {member}: rejoin"

    group: str
    member: str


@dataclass(eq=False)
class NotCoordinator(LogError):
    """Another broker coordinates the group."""

    number = 18
    status = "FAILED_PRECONDITION"
    retriable = True
    refresh_metadata = True

    group: str
    coordinator_hint: int | None = None

    def __str__(self) -> str:
        hint = "ask for the metadata again" if self.coordinator_hint is None else f"try broker {self.coordinator_hint}"
        return f"not the coordinator of group {self.group} ({hint})"


@dataclass(eq=False)
class TopicExists(LogError):
    """A topic has a unique name."""

    number = 19
    status = "ALREADY_EXISTS"
    template = "topic {topic} exists already"

    topic: str


@dataclass(eq=False)
class QuorumUnavailable(LogError):
    """No metadata quorum node could take the change."""

    number = 20
    status = "UNAVAILABLE"
    retriable = True
    template = "the metadata quorum is not available: {reason}"

    reason: str


@dataclass(eq=False)
class MetadataOutcomeUnknown(LogError):
    """The metadata change may or may not have been committed."""

    number = 21
    status = "DEADLINE_EXCEEDED"
    retriable = True
    outcome = Outcome.UNKNOWN
    template = "no answer from the metadata quorum within {timeout_ms} ms: read back before you repeat the change"

    timeout_ms: int


@dataclass(eq=False)
class ShuttingDown(LogError):
    """The process is stopping."""

    number = 22
    status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True
    template = "{who} is shutting down: use another broker"

    who: str


@dataclass(eq=False)
class StorageCorrupted(LogError):
    """Bytes that were safe on disk are damaged."""

    number = 23
    status = "DATA_LOSS"
    template = "{path} is damaged at position {position}: {problem}"

    path: str
    position: int
    problem: str


@dataclass(eq=False)
class UnsupportedVersion(LogError):
    """Written or asked for by a newer version than this one."""

    number = 24
    status = "UNIMPLEMENTED"
    template = "{subject} has version {found}, and this release knows up to {supported}: upgrade first"

    subject: str
    found: int
    supported: int


@dataclass(eq=False)
class Internal(LogError):
    """A bug. Its text is in the server's log under the incident id."""

    number = 25
    status = "INTERNAL"
    outcome = Outcome.UNKNOWN
    template = "internal error, incident {incident}: the server's log has the details"

    incident: str


@dataclass(eq=False)
class StorageFailed(LogError):
    """A sync or a write of the disk failed. It is never retried: the disk is closed for writing."""

    number = 26
    status = "UNAVAILABLE"
    refresh_metadata = True
    outcome = Outcome.UNKNOWN
    template = "{path} is closed for writing after a failed disk operation ({problem}): check the disk, then restart"

    path: str
    problem: str


@dataclass(eq=False)
class DirectoryLocked(LogError):
    """Another running process owns the directory."""

    number = 27
    status = "FAILED_PRECONDITION"
    template = "{path} is in use by another process ({owner}): stop it first"

    path: str
    owner: str


@dataclass(eq=False)
class WrongDirectory(LogError):
    """The directory belongs to another cluster, broker or topic."""

    number = 28
    status = "FAILED_PRECONDITION"
    template = "{path} belongs to {what} {found}, not {expected}: it is left as it is; point to the right directory"

    path: str
    what: str
    found: str
    expected: str


@dataclass(eq=False)
class DirectoryUnusable(LogError):
    """The directory cannot be read or written at all."""

    number = 29
    status = "FAILED_PRECONDITION"
    template = "{path} cannot be used: {problem}"

    path: str
    problem: str


@dataclass(eq=False)
class NotController(LogError):
    """The quorum node is not the cluster's active controller."""

    number = 30
    status = "FAILED_PRECONDITION"
    retriable = True
    refresh_metadata = True

    node: str
    controller_hint: str | None = None
    address_hint: str | None = None

    def __str__(self) -> str:
        if self.controller_hint is None:
            return f"quorum node {self.node} is not the controller, and none is known at the moment: try again"
        address = "" if self.address_hint is None else f" at {self.address_hint}"
        return f"quorum node {self.node} is not the controller: try {self.controller_hint}{address}"


@dataclass(eq=False)
class BrokerIdInUse(LogError):
    """Another living process is registered under the broker's id."""

    number = 31
    status = "ALREADY_EXISTS"
    retriable = True
    template = (
        "broker id {broker_id} is in use by a living broker (incarnation {incarnation}): give this one another id, "
        "or stop the other and wait for its session to end"
    )

    broker_id: int
    incarnation: str


@dataclass(eq=False)
class UnknownBroker(LogError):
    """No broker of this id is registered."""

    number = 32
    status = "NOT_FOUND"
    template = "no broker {broker_id} is registered"

    broker_id: int


@dataclass(eq=False)
class InvalidTopicName(LogError):
    """The name cannot be a topic's."""

    number = 33
    status = "INVALID_ARGUMENT"
    template = "topic name {name!r} {problem}"

    name: str
    problem: str


@dataclass(eq=False)
class InvalidPartitionCount(LogError):
    """A topic has at least one partition and never loses any."""

    number = 34
    status = "INVALID_ARGUMENT"
    template = "{requested} partitions for topic {topic}: {problem}"

    topic: str
    requested: int
    problem: str


@dataclass(eq=False)
class InvalidReplicationFactor(LogError):
    """Replicas of one partition sit on different brokers, so there must be enough of them."""

    number = 35
    status = "INVALID_ARGUMENT"
    template = "replication factor {requested} needs as many brokers, and {available} can take replicas: {problem}"

    requested: int
    available: int
    problem: str


@dataclass(eq=False)
class InvalidAssignment(LogError):
    """Replicas that were given by hand do not fit."""

    number = 36
    status = "INVALID_ARGUMENT"
    template = "replicas {replicas} for {subject}: {problem}"

    subject: str
    replicas: str
    problem: str


@dataclass(eq=False)
class UnknownConfig(LogError):
    """There is no such configuration key."""

    number = 37
    status = "INVALID_ARGUMENT"

    key: str
    resource: str
    suggestion: str | None = None

    def __str__(self) -> str:
        hint = "" if self.suggestion is None else f": did you mean {self.suggestion}?"
        return f"unknown configuration key {self.key!r} for a {self.resource}{hint}"


@dataclass(eq=False)
class InvalidConfigValue(LogError):
    """The value does not fit the configuration key."""

    number = 38
    status = "INVALID_ARGUMENT"
    template = "configuration {key} cannot be {value!r}: {problem}"

    key: str
    value: str
    problem: str


@dataclass(eq=False)
class NoEligibleLeader(LogError):
    """No replica may be elected."""

    number = 39
    status = "FAILED_PRECONDITION"
    retriable = True
    template = "{subject}: no replica can be elected: {problem}"

    subject: str
    problem: str


@dataclass(eq=False)
class MoveRefused(LogError):
    """A move of a partition cannot be begun or cancelled."""

    number = 40
    status = "FAILED_PRECONDITION"
    template = "{subject}: {problem}"

    subject: str
    problem: str


@dataclass(eq=False)
class BrokerInUse(LogError):
    """A broker that lives or holds replicas cannot be retired."""

    number = 41
    status = "FAILED_PRECONDITION"
    template = "broker {broker_id} cannot be retired: {problem}"

    broker_id: int
    problem: str


@dataclass(eq=False)
class MembershipRefused(LogError):
    """The quorum's voters cannot be changed so."""

    number = 42
    status = "FAILED_PRECONDITION"
    template = "the quorum's members stay as they are: {problem}"

    problem: str


@dataclass(eq=False)
class WrongCluster(LogError):
    """The request is meant for another cluster."""

    number = 43
    status = "FAILED_PRECONDITION"
    template = "this is cluster {found}, not {expected}: check the addresses"

    found: str
    expected: str


@dataclass(eq=False)
class UnknownName(LogError):
    """There is no such user, ACL or quota."""

    number = 44
    status = "NOT_FOUND"
    template = "there is no {what} {name}"

    what: str
    name: str


@dataclass(eq=False)
class UnknownServerError(LogError):
    """A server of a newer version sent an error that this version does not know."""

    outcome = Outcome.UNKNOWN
    template = "error {unknown_number}: {message}"

    unknown_number: int
    message: str


BY_NUMBER: dict[int, type[LogError]] = {error.number: error for error in LogError.__subclasses__() if error.number}


def to_detail(error: LogError) -> errors_pb2.ErrorDetail:
    """The error as it travels."""
    if isinstance(error, UnknownServerError):  # passed on as it came
        number, message = error.unknown_number, error.message
    else:
        number, message = error.number, str(error)
    detail = errors_pb2.ErrorDetail(
        number=number,
        message=_sendable(message),
        retriable=error.retriable,
        refresh_metadata=error.refresh_metadata,
        outcome=error.outcome.value,
    )
    for name, value in error.facts().items():
        field = detail.fields.add(name=name)
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            field.number = value
        elif value is not None:
            # A number beyond sint64 (a client may ask for any offset) travels as text rather than not at all.
            field.text = _sendable(str(value))
    return detail


def _sendable(text: str) -> str:
    """The text with escapes for what UTF-8 cannot carry, such as a file name in another encoding."""
    return text.encode("utf-8", "backslashreplace").decode()


def from_detail(detail: errors_pb2.ErrorDetail) -> LogError:
    """Rebuild the error that was sent; facts that this version does not know are dropped."""
    error = BY_NUMBER.get(detail.number)
    if error is None:
        return UnknownServerError(detail.number, detail.message)
    known = {field.name for field in dataclasses.fields(error)}  # type: ignore[arg-type]
    facts: dict[str, str | int | None] = {}
    for field in detail.fields:
        if field.name in known:
            kind = field.WhichOneof("value")
            facts[field.name] = None if kind is None else getattr(field, kind)
    try:
        return error(**facts)
    except TypeError:  # an older server did not send a fact that this version wants
        return UnknownServerError(detail.number, detail.message)
