"""A state as a series of bytes, and back.

Canonical: equal states give equal bytes, so nodes can be compared by a checksum. Everything that has no order of its
own is sorted; the answered commands keep theirs, because the oldest is forgotten first. `capture` copies the containers
and not what they hold, so the encoding may go on in another thread while `apply` changes the state.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from google.protobuf.message import DecodeError

from lograft.contract.errors import UnsupportedVersion
from lograft.metadata_quorum.core.apply_access import acl_from
from lograft.metadata_quorum.core.apply_partitions import SharedTuples, index
from lograft.metadata_quorum.core.model import (
    FEATURE_LEVEL,
    Acl,
    Broker,
    ClusterState,
    ConfigKey,
    Credential,
    Endpoint,
    Member,
    Partition,
    PartitionKey,
    QuotaKey,
    Topic,
)
from lograft.v1 import metadata_pb2

FORMAT_VERSION = 1
# Tag and length in front of a message, at most.
_OVERHEAD_BYTES = 5

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class StateCopy:
    """A moment of a state that nobody changes any more, without what is derived."""

    header: metadata_pb2.SnapshotHeader
    brokers: list[Broker]
    topics: list[Topic]
    configs: dict[ConfigKey, dict[str, str]]
    users: dict[str, Credential]
    acls: list[Acl]
    quotas: dict[QuotaKey, dict[str, float]]
    answered: dict[bytes, bytes]

    @property
    def version(self) -> int:
        """Raft index of the last entry in it."""
        return self.header.version

    @property
    def term(self) -> int:
        """Raft term of the last entry in it."""
        return self.header.term


def capture(state: ClusterState) -> StateCopy:
    """The state as it is now. Quick: the owner of the state waits for it."""
    header = metadata_pb2.SnapshotHeader(
        format_version=FORMAT_VERSION,
        feature_level=state.feature_level,
        version=state.version,
        term=state.term,
        previous_term=state.previous_term,
        cluster_id=state.cluster_id,
        controller_epoch=state.controller_epoch,
        controller_node=state.controller_node,
        next_broker_epoch=state.next_broker_epoch,
        next_producer_id=state.next_producer_id,
        members=[metadata_pb2.QuorumMember(**member._asdict()) for member in state.members],
    )
    return StateCopy(
        header,
        list(state.brokers.values()),
        [
            Topic(topic.topic_id, topic.name, topic.created_at_ms, topic.partitions.copy())
            for topic in state.topics.values()
        ],
        state.configs.copy(),
        state.users.copy(),
        list(state.acls),
        state.quotas.copy(),
        state.answered.copy(),
    )


def encode_pieces(copy: StateCopy, *, piece_bytes: int = 256 << 10) -> Iterator[bytes]:
    """Serialized `SnapshotPiece` messages, each about ``piece_bytes`` long at most."""
    piece = metadata_pb2.SnapshotPiece(header=copy.header)
    size_bytes = piece.ByteSize()
    for field, message, message_bytes in _items(copy, piece_bytes):
        if size_bytes + message_bytes > piece_bytes:
            yield piece.SerializeToString(deterministic=True)
            piece = metadata_pb2.SnapshotPiece()
            size_bytes = 0
        getattr(piece, field).append(message)
        size_bytes += message_bytes
    piece.complete = True
    yield piece.SerializeToString(deterministic=True)


def _items(copy: StateCopy, piece_bytes: int) -> Iterator[tuple[str, Any, int]]:
    """Field of a piece, a message for it, and its size: in the order in which they are written."""
    brokers = sorted(copy.brokers, key=lambda broker: broker.broker_id)
    yield from _sized("brokers", map(_broker_message, brokers))
    yield from _topic_items(copy, piece_bytes)
    yield from _sized("configs", _config_messages(copy))
    yield from _sized("users", _user_messages(copy))
    yield from _sized("acls", (metadata_pb2.Acl(**acl._asdict()) for acl in sorted(copy.acls)))
    yield from _sized("quotas", _quota_messages(copy))
    yield from _sized("answered", _answered_messages(copy))


def _sized(field: str, messages: Iterable[Any]) -> Iterator[tuple[str, Any, int]]:
    for message in messages:
        yield field, message, message.ByteSize() + _OVERHEAD_BYTES


def _topic_items(copy: StateCopy, piece_bytes: int) -> Iterator[tuple[str, Any, int]]:
    # Most partitions look like another one: finding the bytes costs far less than building the message. Bytes, because
    # 100,000 messages kept alive would each hold an arena of their own.
    known: dict[Partition, bytes] = {}
    for topic in sorted(copy.topics, key=lambda topic: topic.topic_id):
        summary = metadata_pb2.TopicState(
            topic_id=topic.topic_id,
            name=topic.name,
            created_at_ms=topic.created_at_ms,
            partition_count=len(topic.partitions),
        )
        yield "topics", summary, summary.ByteSize() + _OVERHEAD_BYTES
        run: list[bytes] = []
        run_bytes = first = 0
        for number, partition in enumerate(topic.partitions):
            encoded = known.get(partition)
            if encoded is None:
                encoded = known[partition] = _run_of_one(partition)
            if run and run_bytes + len(encoded) > piece_bytes // 2:
                yield _run_item(topic.topic_id, first, run)
                run, run_bytes, first = [], 0, number
            run.append(encoded)
            run_bytes += len(encoded)
        yield _run_item(topic.topic_id, first, run)


def _run_of_one(partition: Partition) -> bytes:
    message = metadata_pb2.PartitionState(
        replicas=partition.replicas,
        in_sync=partition.in_sync,
        eligible=partition.eligible,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        adding=partition.adding,
        removing=partition.removing,
    )
    return metadata_pb2.PartitionRun(partitions=[message]).SerializeToString(deterministic=True)


def _run_item(topic_id: str, first: int, run: list[bytes]) -> tuple[str, metadata_pb2.PartitionRun, int]:
    # Messages written one after the other are read as one, with all their repeated fields.
    head = metadata_pb2.PartitionRun(topic_id=topic_id, first_partition=first).SerializeToString()
    encoded = head + b"".join(run)
    return "partitions", metadata_pb2.PartitionRun.FromString(encoded), len(encoded) + _OVERHEAD_BYTES


def _broker_message(broker: Broker) -> metadata_pb2.BrokerState:
    return metadata_pb2.BrokerState(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        incarnation_id=broker.incarnation_id,
        directory_id=broker.directory_id,
        endpoints=[metadata_pb2.Endpoint(**endpoint._asdict()) for endpoint in broker.endpoints],
        rack=broker.rack,
        fenced=broker.fenced,
        draining=broker.draining,
        fence_reason=broker.fence_reason,
        registered_version=broker.registered_version,
        registered_at_ms=broker.registered_at_ms,
    )


def _config_messages(copy: StateCopy) -> Iterator[metadata_pb2.ConfigState]:
    for key, values in sorted(copy.configs.items()):
        yield metadata_pb2.ConfigState(
            resource=cast("metadata_pb2.ConfigResource", key.resource), name=key.name, values=values
        )


def _user_messages(copy: StateCopy) -> Iterator[metadata_pb2.UserState]:
    for name, credential in sorted(copy.users.items()):
        yield metadata_pb2.UserState(name=name, credential=metadata_pb2.Credential(**credential._asdict()))


def _quota_messages(copy: StateCopy) -> Iterator[metadata_pb2.QuotaState]:
    for key, values in sorted(copy.quotas.items()):
        yield metadata_pb2.QuotaState(entity=metadata_pb2.QuotaEntity(**key._asdict()), values=values)


def _answered_messages(copy: StateCopy) -> Iterator[metadata_pb2.AnsweredCommand]:
    for command_id, result in copy.answered.items():
        yield metadata_pb2.AnsweredCommand(command_id=command_id, result=metadata_pb2.ChangeResult.FromString(result))


class SnapshotLoader:
    """Builds a state from the pieces of a snapshot, added in order. Of no use after an error."""

    def __init__(self) -> None:
        self._state: ClusterState | None = None
        self._complete = False
        # Partitions that each topic is to have.
        self._counts: dict[str, int] = {}
        # Most partitions look like another one; these become the same object.
        self._partitions: dict[bytes, Partition] = {}
        self._shared = SharedTuples()
        self._last: dict[str, Any] = {}

    def add(self, piece: bytes) -> None:
        """Take the next piece. Raises `ValueError` if it cannot be the next, `UnsupportedVersion` if it is too new."""
        if self._complete:
            raise ValueError("a snapshot goes on after its last piece")
        try:
            message = metadata_pb2.SnapshotPiece.FromString(piece)
        except DecodeError as error:
            raise ValueError("a piece of a snapshot cannot be read") from error
        if message.HasField("header") == (self._state is not None):
            raise ValueError("a snapshot has one header, in its first piece")
        if self._state is None:
            self._state = _state_from(message.header)
        self._add_contents(self._state, message)
        self._complete = message.complete

    @property
    def complete(self) -> bool:
        """Whether the last piece has come."""
        return self._complete

    def finish(self) -> ClusterState:
        """The state. Raises `ValueError` if pieces are missing."""
        if self._state is None or not self._complete:
            raise ValueError("the snapshot is not complete")
        for topic_id, count in self._counts.items():
            if len(self._state.topics[topic_id].partitions) != count:
                raise ValueError(f"the snapshot lacks partitions of topic {topic_id}")
        _derive(self._state)
        if not self._state.replicas_on.keys() <= self._state.brokers.keys():
            raise ValueError("the snapshot lacks brokers that hold replicas")
        return self._state

    def _add_contents(self, state: ClusterState, piece: metadata_pb2.SnapshotPiece) -> None:
        for broker in self._ascending("broker", piece.brokers, lambda each: each.broker_id):
            state.brokers[broker.broker_id] = _broker_from(broker)
        for topic in self._ascending("topic", piece.topics, lambda each: each.topic_id):
            state.topics[topic.topic_id] = Topic(topic.topic_id, topic.name, topic.created_at_ms)
            self._counts[topic.topic_id] = topic.partition_count
        for run in piece.partitions:
            self._add_run(state, run)
        for config in self._ascending("configuration", piece.configs, lambda each: (each.resource, each.name)):
            state.configs[ConfigKey(config.resource, config.name)] = dict(config.values)
        for user in self._ascending("user", piece.users, lambda each: each.name):
            kept = user.credential
            state.users[user.name] = Credential(kept.scheme, kept.salt, kept.hash, kept.n, kept.r, kept.p)
        for acl in self._ascending("ACL", piece.acls, acl_from):
            state.acls[acl_from(acl)] = None
        for quota in self._ascending("quota", piece.quotas, lambda each: (each.entity.user, each.entity.client_id)):
            state.quotas[QuotaKey(quota.entity.user, quota.entity.client_id)] = dict(quota.values)
        for answered in piece.answered:
            if answered.command_id in state.answered:
                raise ValueError("a snapshot holds a command twice")
            state.answered[answered.command_id] = answered.result.SerializeToString(deterministic=True)

    def _add_run(self, state: ClusterState, run: metadata_pb2.PartitionRun) -> None:
        topic = state.topics.get(run.topic_id)
        if topic is None or run.first_partition != len(topic.partitions):
            raise ValueError(f"partitions from {run.first_partition} of topic {run.topic_id} are out of order")
        for each in run.partitions:
            # The bytes serve only as a key. Reading the fields one by one costs ten times as much.
            as_bytes = each.SerializeToString()
            partition = self._partitions.get(as_bytes)
            if partition is None:
                partition = self._partitions[as_bytes] = _partition_from(each, self._shared)
            topic.partitions.append(partition)

    def _ascending(self, what: str, messages: Iterable[_Value], key: Callable[[_Value], _Key]) -> Iterator[_Value]:
        """The messages, if they are sorted: pieces that were mixed up, or given twice, are not."""
        for message in messages:
            found: Any = key(message)
            if what in self._last and found <= self._last[what]:
                raise ValueError(f"a snapshot is out of order: {what} {found} after {self._last[what]}")
            self._last[what] = found
            yield message


def _state_from(header: metadata_pb2.SnapshotHeader) -> ClusterState:
    if header.format_version == 0:
        raise ValueError("a snapshot has no format version")
    if header.format_version != FORMAT_VERSION:
        raise UnsupportedVersion("the metadata snapshot", header.format_version, FORMAT_VERSION)
    if header.feature_level > FEATURE_LEVEL:
        raise UnsupportedVersion("the metadata log", header.feature_level, FEATURE_LEVEL)
    return ClusterState(
        version=header.version,
        term=header.term,
        previous_term=header.previous_term,
        feature_level=header.feature_level,
        cluster_id=header.cluster_id,
        controller_epoch=header.controller_epoch,
        controller_node=header.controller_node,
        members=tuple(Member(each.name, each.directory_id, each.address) for each in header.members),
        next_broker_epoch=header.next_broker_epoch,
        next_producer_id=header.next_producer_id,
    )


def _broker_from(broker: metadata_pb2.BrokerState) -> Broker:
    return Broker(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        incarnation_id=broker.incarnation_id,
        directory_id=broker.directory_id,
        endpoints=tuple(Endpoint(each.name, each.host, each.port) for each in broker.endpoints),
        rack=broker.rack,
        fenced=broker.fenced,
        draining=broker.draining,
        fence_reason=broker.fence_reason,
        registered_version=broker.registered_version,
        registered_at_ms=broker.registered_at_ms,
    )


def _partition_from(partition: metadata_pb2.PartitionState, shared: SharedTuples) -> Partition:
    return Partition(
        shared[tuple(partition.replicas)],
        shared[tuple(partition.in_sync)],
        shared[tuple(partition.eligible)],
        partition.leader if partition.HasField("leader") else None,
        partition.leader_epoch,
        partition.partition_epoch,
        shared[tuple(partition.adding)],
        shared[tuple(partition.removing)],
    )


def _derive(state: ClusterState) -> None:
    for topic in state.topics.values():
        if topic.name in state.topic_ids:
            raise ValueError(f"the snapshot has two topics of the name {topic.name}")
        state.topic_ids[topic.name] = topic.topic_id
        for number, partition in enumerate(topic.partitions):
            index(state, PartitionKey(topic.topic_id, number), partition)
