"""The cluster's state: brokers, topics, partitions, configuration, users, ACLs, quotas.

A `ClusterState` has one owner and is changed in place, by `apply` alone: copying a dict of 100,000 partitions for each
record would cost more than everything else. The values inside are immutable, so whoever wants to keep a moment (a
snapshot that is written while changes go on) copies the dicts and lists, not what they hold.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

# What this release can apply. A log that asks for more stops the process.
FEATURE_LEVEL = 1
# Answers kept for repeated command ids. Older ones are forgotten in the order of the log.
ANSWERED_LIMIT = 65_536
PRODUCER_ID_BLOCK = 1_000


class PartitionKey(NamedTuple):
    """One partition, by the id of its topic."""

    topic_id: str
    partition: int


class Partition(NamedTuple):
    """Who holds a partition, who leads it, and who has everything that is committed."""

    # The first is the preferred leader. During a move: the old and the new ones.
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    # Out of sync but known to hold all that is committed: they may lead when no in-sync replica can.
    eligible: tuple[int, ...] = ()
    leader: int | None = None
    # Raised with every election.
    leader_epoch: int = 0
    # Raised with every change.
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def moving(self) -> bool:
        """Whether replicas are being moved."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once a move is done; those of now if there is none."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas from before a move; those of now if there is none."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)


class Endpoint(NamedTuple):
    """Where to reach a broker."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker process, in its present or last incarnation."""

    broker_id: int
    # Given out at registration, rising over all brokers.
    broker_epoch: int
    incarnation_id: str
    directory_id: str
    endpoints: tuple[Endpoint, ...] = ()
    rack: str = ""
    # Not to lead, not to be added to an in-sync set.
    fenced: bool = True
    draining: bool = False
    fence_reason: str = ""
    # Raft index of the registration: the broker may be unfenced when it has applied the metadata up to here.
    registered_version: int = 0
    registered_at_ms: int = 0

    @property
    def may_lead(self) -> bool:
        """Whether it can be elected."""
        return not self.fenced

    @property
    def may_join(self) -> bool:
        """Whether it can be added to an in-sync set or be given a replica."""
        return not self.fenced and not self.draining


@dataclass(slots=True)
class Topic:
    """A topic and its partitions, by index."""

    topic_id: str
    name: str
    created_at_ms: int
    partitions: list[Partition] = field(default_factory=list)


class Member(NamedTuple):
    """One voter of the quorum."""

    name: str
    directory_id: str
    address: str


class Credential(NamedTuple):
    """A password as it is kept."""

    scheme: str
    salt: bytes
    hash: bytes
    n: int
    r: int
    p: int


class Acl(NamedTuple):
    """One rule; the numbers are the protobuf enums."""

    principal: str
    resource: int
    resource_name: str
    pattern: int
    operation: int
    deny: bool
    host: str


class ConfigKey(NamedTuple):
    """Whose configuration: resource is the protobuf enum, name is empty, a broker id or a topic id."""

    resource: int
    name: str


class QuotaKey(NamedTuple):
    """Whose limits; empty means the default for all others."""

    user: str
    client_id: str


@dataclass(slots=True)
class ClusterState:
    """Everything the quorum keeps."""

    # Raft index and term of the last entry applied, and the term of the one before it.
    version: int = 0
    term: int = 0
    previous_term: int = 0
    feature_level: int = FEATURE_LEVEL
    cluster_id: str = ""
    controller_epoch: int = 0
    controller_node: str = ""
    members: tuple[Member, ...] = ()
    next_broker_epoch: int = 1
    next_producer_id: int = 0
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    configs: dict[ConfigKey, dict[str, str]] = field(default_factory=dict)
    users: dict[str, Credential] = field(default_factory=dict)
    acls: dict[Acl, None] = field(default_factory=dict)
    quotas: dict[QuotaKey, dict[str, float]] = field(default_factory=dict)
    # Serialized ChangeResult by command id, oldest first.
    answered: dict[bytes, bytes] = field(default_factory=dict)

    # Derived from the above, kept by `apply` so that nothing has to look at every partition.
    topic_ids: dict[str, str] = field(default_factory=dict)
    replicas_on: dict[int, dict[PartitionKey, None]] = field(default_factory=dict)
    moving: dict[PartitionKey, None] = field(default_factory=dict)

    def topic_named(self, name: str) -> Topic | None:
        """The topic of that name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, key: PartitionKey) -> Partition | None:
        """The partition, if there is one."""
        topic = self.topics.get(key.topic_id)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return None
        return topic.partitions[key.partition]

    def partitions_on(self, broker_id: int) -> Iterator[tuple[PartitionKey, Partition]]:
        """The partitions that have a replica on the broker."""
        for key in self.replicas_on.get(broker_id, ()):
            yield key, self.topics[key.topic_id].partitions[key.partition]
