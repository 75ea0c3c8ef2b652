"""The dynamic configuration keys: what each means, which values it takes, and what holds when nobody has set it.

A key of a topic may also be set for the cluster: it is then the default of every topic. Values travel and are kept as
text; whatever was let in by `check` can be read by the functions at the end. Nothing here knows the storage engine, but
the topic keys mean what its `LogConfig` means, and a test compares the defaults.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from math import isfinite

from lograft.contract.errors import InvalidConfigValue, InvalidRequest, LogError, UnknownConfig
from lograft.metadata_quorum.core.model import ClusterState, ConfigKey, Partition
from lograft.v1 import metadata_pb2

CLUSTER = metadata_pb2.CONFIG_RESOURCE_CLUSTER
BROKER = metadata_pb2.CONFIG_RESOURCE_BROKER
TOPIC = metadata_pb2.CONFIG_RESOURCE_TOPIC

MIN_IN_SYNC = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MAX_INT = (1 << 63) - 1
# The largest batch that the format can carry, and the largest segment whose index positions fit in 32 bits.
_MAX_BATCH_BYTES = (1 << 31) - 1
_MAX_SEGMENT_BYTES = (1 << 32) - 1 - _MAX_BATCH_BYTES
# Not int(): it would take "1_000", " 7" and digits of other scripts, and other readers of the value might not.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_DECIMAL = re.compile(r"[0-9]{1,10}(\.[0-9]{1,15})?")


class Kind(Enum):
    """How the text of a value is meant."""

    INTEGER = "integer"
    DECIMAL = "decimal number"
    BOOLEAN = "true or false"
    CHOICE = "one of some words"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key."""

    key: str
    kind: Kind
    default: str
    help: str
    least: int = 0
    most: int = _MAX_INT
    choices: tuple[str, ...] = ()

    def problem_with(self, value: str) -> str | None:
        """Why the value cannot be taken."""
        match self.kind:
            case Kind.INTEGER:
                if not _INTEGER.fullmatch(value):
                    return "it must be a whole number"
                return self._out_of_range(int(value))
            case Kind.DECIMAL:
                if not _DECIMAL.fullmatch(value) or not isfinite(float(value)):
                    return "it must be a number such as 0.5"
                return self._out_of_range(float(value))
            case Kind.BOOLEAN:
                return None if value in ("true", "false") else "it must be true or false"
            case Kind.CHOICE:
                return None if value in self.choices else f"it must be one of: {' | '.join(self.choices)}"

    def _out_of_range(self, number: float) -> str | None:
        if number < self.least:
            return f"it must be at least {self.least}"
        return f"it must be at most {self.most}" if number > self.most else None


def _integer(key: str, default: int, text: str, *, least: int = 0, most: int = _MAX_INT) -> Setting:
    return Setting(key, Kind.INTEGER, str(default), text, least, most)


def _boolean(key: str, default: str, text: str) -> Setting:
    return Setting(key, Kind.BOOLEAN, default, text)


def _choice(key: str, choices: tuple[str, ...], text: str) -> Setting:
    return Setting(key, Kind.CHOICE, choices[0], text, choices=choices)


def _table(*settings: Setting) -> dict[str, Setting]:
    return {setting.key: setting for setting in settings}


TOPIC_KEYS = _table(
    _choice(
        "cleanup.policy",
        ("delete", "compact", "compact,delete"),
        "Old records are deleted, or only the newest of each key is kept, or both.",
    ),
    _integer("retention.ms", 7 * _DAY_MS, "Segments older than this are deleted; -1 keeps them for ever.", least=-1),
    _integer("retention.bytes", -1, "A partition is cut down to this size, by segments; -1 is no limit.", least=-1),
    _integer(
        "segment.bytes",
        1 << 30,
        "A segment is closed before it grows larger. Retention and compaction work on closed segments.",
        least=1 << 10,
        most=_MAX_SEGMENT_BYTES,
    ),
    _integer(
        "segment.ms",
        7 * _DAY_MS,
        "A segment is closed when it is this old, so that a quiet topic is cleaned too.",
        least=1,
    ),
    _integer(
        "max.message.bytes",
        8 << 20,
        "Largest batch taken, compressed, header included. Not above segment.bytes.",
        least=1 << 10,
        most=_MAX_BATCH_BYTES,
    ),
    _integer(
        "max.uncompressed.bytes", 16 << 20, "The most that one batch may unpack to.", least=1, most=_MAX_BATCH_BYTES
    ),
    _integer("delete.retention.ms", _DAY_MS, "How long compaction keeps a tombstone."),
    Setting(
        "min.cleanable.dirty.ratio",
        Kind.DECIMAL,
        "0.5",
        "Compaction waits until this share of the closed segments is new.",
        most=1,
    ),
    _integer(
        MIN_IN_SYNC,
        2,
        "acks=all is refused while fewer replicas are in sync. A partition with fewer replicas needs all of them.",
        least=1,
        most=1 << 15,
    ),
    _boolean(
        UNCLEAN_ELECTION,
        "false",
        "Without any in-sync replica alive, elect one that may miss acknowledged records. Those are lost.",
    ),
    _choice(
        "message.timestamp.type",
        ("CreateTime", "LogAppendTime"),
        "Records carry the producer's time, or the time of their append.",
    ),
    _integer("message.timestamp.after.max.ms", _HOUR_MS, "Records from further in the future are refused."),
    _choice(
        "durability",
        ("fsync", "os"),
        "Acknowledged records are on the disk, or only with the operating system (lost when the power fails).",
    ),
    _integer(
        "index.interval.bytes", 16 << 10, "One index entry per this many bytes of log.", least=1, most=_MAX_BATCH_BYTES
    ),
    _integer(
        "checkpoint.interval.bytes", 64 << 20, "After a crash about this much of the log's end is read again.", least=1
    ),
    _integer(
        "producer.remembered.batches", 5, "Batches per producer in which a repeat is recognised.", least=1, most=1_000
    ),
    _integer("producer.id.expiration.ms", _DAY_MS, "A producer that sent nothing for so long is forgotten.", least=1),
)

CLUSTER_KEYS = TOPIC_KEYS | _table(
    _boolean("auto.create.topics.enable", "true", "A topic that a producer names is created if there is none."),
    _integer("num.partitions", 1, "Partitions of a topic that is created without a number.", least=1, most=100_000),
    _integer(
        "default.replication.factor", 3, "Replicas of a topic that is created without a number.", least=1, most=1 << 15
    ),
    _boolean("delete.topic.enable", "true", "Whether topics may be deleted at all."),
    _boolean("auto.leader.rebalance.enable", "true", "Leadership goes back to preferred leaders by itself."),
    _integer("leader.imbalance.check.interval.ms", 300_000, "How often it does.", least=1_000),
    _integer(
        "broker.session.timeout.ms", 2_000, "A broker that is silent for so long is fenced.", least=100, most=_HOUR_MS
    ),
    _integer(
        "broker.reconnect.grace.ms",
        300,
        "A broker whose connection broke is fenced unless it is back within this time.",
        most=_HOUR_MS,
    ),
    _integer(
        "max.concurrent.moves",
        20,
        "Moves that the draining of brokers has in progress at a time.",
        least=1,
        most=10_000,
    ),
)

BROKER_KEYS = _table(
    _integer("replication.bytes.per.second", -1, "What it sends to followers that catch up; -1 is no limit.", least=-1),
    _integer("log.cleaner.threads", 1, "Compactions at the same time.", least=1, most=64),
    _integer("log.cleaner.io.max.bytes.per.second", -1, "What compaction reads and writes; -1 is no limit.", least=-1),
)

KEYS: dict[int, dict[str, Setting]] = {CLUSTER: CLUSTER_KEYS, BROKER: BROKER_KEYS, TOPIC: TOPIC_KEYS}
_RESOURCE_NAMES: dict[int, str] = {CLUSTER: "cluster", BROKER: "broker", TOPIC: "topic"}


def check_key(resource: int, key: str) -> LogError | None:
    """Whether there is such a key."""
    settings = KEYS.get(resource)
    if settings is None:
        return InvalidRequest(f"there is no configuration of resource {resource}")
    if key in settings:
        return None
    near = get_close_matches(key[:100], settings, n=1)
    return UnknownConfig(key[:300], _RESOURCE_NAMES[resource], near[0] if near else None)


def check(resource: int, key: str, value: str) -> LogError | None:
    """Whether the key takes the value."""
    unknown = check_key(resource, key)
    if unknown is not None:
        return unknown
    problem = KEYS[resource][key].problem_with(value)
    return None if problem is None else InvalidConfigValue(key, value[:300], problem)


def check_together(values: Mapping[str, str], defaults: Mapping[str, str]) -> LogError | None:
    """Whether the values of one resource fit each other; ``defaults`` are what holds for those that are not set."""

    def number(key: str) -> int:
        return int(values.get(key) or defaults.get(key) or CLUSTER_KEYS[key].default)

    batch, segment = number("max.message.bytes"), number("segment.bytes")
    if batch > segment:
        problem = f"it must not be above segment.bytes ({segment}): a batch never spans segments"
        return InvalidConfigValue("max.message.bytes", str(batch), problem)
    grace, timeout = number("broker.reconnect.grace.ms"), number("broker.session.timeout.ms")
    if grace > timeout:
        problem = f"it must not be above broker.session.timeout.ms ({timeout}): silence ends the session before"
        return InvalidConfigValue("broker.reconnect.grace.ms", str(grace), problem)
    return None


def cluster_value(state: ClusterState, key: str) -> str:
    """What holds for the cluster: set there, or the default."""
    return state.configs.get(ConfigKey(CLUSTER, ""), {}).get(key) or CLUSTER_KEYS[key].default


def cluster_int(state: ClusterState, key: str) -> int:
    """The same as a number."""
    return int(cluster_value(state, key))


def cluster_bool(state: ClusterState, key: str) -> bool:
    """The same as a truth value."""
    return cluster_value(state, key) == "true"


def broker_value(state: ClusterState, broker_id: int, key: str) -> str:
    """What holds for a broker: set there, or the default."""
    return state.configs.get(ConfigKey(BROKER, str(broker_id)), {}).get(key) or BROKER_KEYS[key].default


def topic_value(state: ClusterState, topic_id: str, key: str) -> str:
    """What holds for a topic: set there, or for the cluster, or the default."""
    return state.configs.get(ConfigKey(TOPIC, topic_id), {}).get(key) or cluster_value(state, key)


def topic_int(state: ClusterState, topic_id: str, key: str) -> int:
    """The same as a number."""
    return int(topic_value(state, topic_id, key))


def topic_bool(state: ClusterState, topic_id: str, key: str) -> bool:
    """The same as a truth value."""
    return topic_value(state, topic_id, key) == "true"


def effective_min_in_sync(configured: int, partition: Partition) -> int:
    """How many replicas must be in sync before the high watermark may advance.

    Never more than the partition has replicas: a topic with one replica must be writable although the default is two.
    During a move the replicas from before it count: a partition that grows from one replica to three would otherwise
    refuse writes until the second has caught up. The controller and the leader must agree on this number, because an
    eligible replica is complete only as long as the high watermark stands still: both take it from here.
    """
    return min(configured, len(partition.replicas) - len(partition.adding))


def min_in_sync(state: ClusterState, topic_id: str, partition: Partition) -> int:
    """The effective ``min.insync.replicas`` of one partition."""
    return effective_min_in_sync(topic_int(state, topic_id, MIN_IN_SYNC), partition)
