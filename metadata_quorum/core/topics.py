"""What becomes of topics: creation, deletion, more partitions, configuration.

Each function reads the state and returns the change to commit, or the error to answer with.
"""

from collections.abc import Iterable, Mapping, Sequence

from lograft.contract.errors import (
    InvalidAssignment,
    InvalidPartitionCount,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    LogError,
    TopicExists,
    UnknownBroker,
    UnknownTopicOrPartition,
)
from lograft.contract.ids import check_topic_name
from lograft.metadata_quorum.core import config_keys
from lograft.metadata_quorum.core.model import Broker, ClusterState, ConfigKey, Topic
from lograft.metadata_quorum.core.placement import candidates, place
from lograft.v1 import cluster_pb2, metadata_pb2

MAX_PARTITIONS = 100_000
# Groups find their coordinator by a hash over its partitions: with another number they would lose their offsets.
GROUPS_TOPIC = "__groups"


def create(
    state: ClusterState, op: cluster_pb2.CreateTopicOperation, *, topic_id: str, now_ms: int, start: int
) -> metadata_pb2.Change | LogError:
    """A new topic, its replicas placed by hand or from ``start`` on."""
    try:
        check_topic_name(op.name)
    except InvalidTopicName as problem:
        return problem
    if op.name in state.topic_ids:
        return TopicExists(op.name)
    error = _values_error(metadata_pb2.CONFIG_RESOURCE_TOPIC, op.configs) or config_keys.check_together(
        op.configs, _cluster_values(state)
    )
    if error is not None:
        return error
    placed = _placed_for_create(state, op, start)
    if isinstance(placed, LogError):
        return placed
    if op.validate_only:
        return metadata_pb2.Change(barrier=metadata_pb2.Barrier())
    return metadata_pb2.Change(
        create_topic=metadata_pb2.CreateTopic(
            name=op.name,
            topic_id=topic_id,
            assignments=_assignments(state, placed),
            configs=op.configs,
            created_at_ms=now_ms,
        )
    )


def delete(state: ClusterState, op: cluster_pb2.DeleteTopicOperation) -> metadata_pb2.Change | LogError:
    """A topic goes, by name, by id, or by both if the caller wants to be sure which one."""
    topic = state.topic_named(op.name) if op.name else state.topics.get(op.topic_id)
    if topic is None or (op.topic_id and topic.topic_id != op.topic_id):
        return UnknownTopicOrPartition(op.name or op.topic_id, 0)
    if not config_keys.cluster_bool(state, "delete.topic.enable"):
        return InvalidRequest(f"topic {topic.name} stays: deleting topics is switched off (delete.topic.enable)")
    return metadata_pb2.Change(delete_topic=metadata_pb2.DeleteTopic(topic_id=topic.topic_id))


def add_partitions(
    state: ClusterState, op: cluster_pb2.AddPartitionsOperation, *, start: int
) -> metadata_pb2.Change | LogError:
    """More partitions, with as many replicas as the first one has."""
    topic = state.topic_named(op.topic)
    if topic is None:
        return UnknownTopicOrPartition(op.topic, 0)
    present = len(topic.partitions)
    if topic.name == GROUPS_TOPIC:
        return InvalidPartitionCount(
            op.topic, op.total, "groups are found by the number of its partitions, it is fixed"
        )
    if op.total <= present:
        problem = "it has as many already" if op.total == present else f"it has {present}, and never loses any"
        return InvalidPartitionCount(op.topic, op.total, problem)
    if op.total > MAX_PARTITIONS:
        return InvalidPartitionCount(op.topic, op.total, f"the limit is {MAX_PARTITIONS}")
    if op.assignments:
        if len(op.assignments) != op.total - present:
            problem = f"{len(op.assignments)} assignments for {op.total - present} new partitions"
            return InvalidPartitionCount(op.topic, op.total, problem)
        placed = _by_hand(state, op.topic, op.assignments, first=present)
    else:
        placed = _automatic(state, op.total - present, len(topic.partitions[0].target), start, shift=present)
    if isinstance(placed, LogError):
        return placed
    return metadata_pb2.Change(
        add_partitions=metadata_pb2.AddPartitions(
            topic_id=topic.topic_id, existing_partitions=present, assignments=_assignments(state, placed)
        )
    )


def alter_config(state: ClusterState, op: cluster_pb2.AlterConfigOperation) -> metadata_pb2.Change | LogError:
    """Set and remove keys of the cluster, a broker or a topic."""
    name = _resource_name(state, op)
    if isinstance(name, LogError):
        return name
    present = state.configs.get(ConfigKey(op.resource, name), {})
    error = _values_error(op.resource, op.set)
    for key in op.remove:
        # What an earlier or later release has set may always be removed.
        unknown = None if key in present else config_keys.check_key(op.resource, key)
        twice = InvalidRequest(f"{key} is both set and removed") if key in op.set else None
        error = error or unknown or twice
    if error is not None:
        return error
    after = {key: value for key, value in present.items() if key not in set(op.remove)} | dict(op.set)
    error = _conflict(state, op.resource, after)
    if error is not None:
        return error
    return metadata_pb2.Change(
        alter_config=metadata_pb2.AlterConfig(resource=op.resource, name=name, set=op.set, remove=op.remove)
    )


def replicas_error(state: ClusterState, subject: str, replicas: Sequence[int]) -> LogError | None:
    """What is wrong with replicas that were given by hand, whatever they are for."""
    shown = ",".join(map(str, replicas))
    if not replicas:
        return InvalidAssignment(subject, shown, "a partition needs at least one")
    if len(set(replicas)) != len(replicas):
        return InvalidAssignment(subject, shown, "a broker is named twice")
    for broker_id in replicas:
        if broker_id not in state.brokers:
            return InvalidAssignment(subject, shown, f"no broker {broker_id} is registered")
    return None


def _placed_for_create(
    state: ClusterState, op: cluster_pb2.CreateTopicOperation, start: int
) -> list[tuple[int, ...]] | LogError:
    if op.assignments:
        if op.HasField("partitions") or op.HasField("replication_factor"):
            return InvalidRequest(f"topic {op.name}: give either the replicas of each partition, or numbers")
        if len(op.assignments) > MAX_PARTITIONS:
            return InvalidPartitionCount(op.name, len(op.assignments), f"the limit is {MAX_PARTITIONS}")
        return _by_hand(state, op.name, op.assignments, first=0)
    count = op.partitions if op.HasField("partitions") else config_keys.cluster_int(state, "num.partitions")
    if not 1 <= count <= MAX_PARTITIONS:
        problem = f"the limit is {MAX_PARTITIONS}" if count else "a topic has at least one"
        return InvalidPartitionCount(op.name, count, problem)
    default = config_keys.cluster_int(state, "default.replication.factor")
    factor = op.replication_factor if op.HasField("replication_factor") else default
    return _automatic(state, count, factor, start, shift=start)


def _automatic(
    state: ClusterState, partitions: int, factor: int, start: int, shift: int
) -> list[tuple[int, ...]] | LogError:
    brokers = candidates(state)
    if factor < 1:
        return InvalidReplicationFactor(factor, len(brokers), "a partition needs at least one replica")
    if factor > len(brokers):
        return InvalidReplicationFactor(factor, len(brokers), "start more brokers, or ask for fewer replicas")
    return place(brokers, partitions=partitions, replication_factor=factor, start=start, shift=shift)


def _by_hand(
    state: ClusterState, topic: str, assignments: Iterable[cluster_pb2.ReplicaList], *, first: int
) -> list[tuple[int, ...]] | LogError:
    placed = [tuple(assignment.replicas) for assignment in assignments]
    for partition, replicas in enumerate(placed, start=first):
        subject = f"{topic}-{partition}"
        error = replicas_error(state, subject, replicas)
        if error is not None:
            return error
        shown = ",".join(map(str, replicas))
        if len(replicas) != len(placed[0]):
            return InvalidAssignment(subject, shown, f"another partition has {len(placed[0])} of them")
        brokers = [state.brokers[broker_id] for broker_id in replicas]
        for broker in brokers:
            if broker.draining:
                return InvalidAssignment(subject, shown, f"broker {broker.broker_id} is draining")
        if not any(broker.may_join for broker in brokers):
            return InvalidAssignment(subject, shown, "none of them is alive")
    return placed


def _assignments(state: ClusterState, placed: Iterable[tuple[int, ...]]) -> list[metadata_pb2.Assignment]:
    brokers: dict[int, Broker] = state.brokers
    assignments = []
    for replicas in placed:
        in_sync = [broker_id for broker_id in replicas if brokers[broker_id].may_join]
        assignments.append(metadata_pb2.Assignment(replicas=replicas, in_sync=in_sync, leader=in_sync[0]))
    return assignments


def _resource_name(state: ClusterState, op: cluster_pb2.AlterConfigOperation) -> str | LogError:
    """The resource as the log names it."""
    match op.resource:
        case metadata_pb2.CONFIG_RESOURCE_CLUSTER:
            return InvalidRequest("the cluster's configuration has no name") if op.name else ""
        case metadata_pb2.CONFIG_RESOURCE_TOPIC:
            topic: Topic | None = state.topic_named(op.name)
            return UnknownTopicOrPartition(op.name, 0) if topic is None else topic.topic_id
        case metadata_pb2.CONFIG_RESOURCE_BROKER:
            # Only the plain form: "07" would be another resource than "7".
            if not op.name.isascii() or not op.name.isdigit() or len(op.name) > 10 or str(int(op.name)) != op.name:
                return InvalidRequest(f"no broker id: {op.name[:100]!r}")
            return op.name if int(op.name) in state.brokers else UnknownBroker(int(op.name))
        case _:
            return InvalidRequest(f"there is no configuration of resource {int(op.resource)}")


def _values_error(resource: int, values: Mapping[str, str]) -> LogError | None:
    for key, value in values.items():
        error = config_keys.check(resource, key, value)
        if error is not None:
            return error
    return None


def _cluster_values(state: ClusterState) -> dict[str, str]:
    return state.configs.get(ConfigKey(metadata_pb2.CONFIG_RESOURCE_CLUSTER, ""), {})


def _conflict(state: ClusterState, resource: int, after: dict[str, str]) -> LogError | None:
    """Values that are sound one by one and do not fit together: those of the resource, and what topics inherit."""
    match resource:
        case metadata_pb2.CONFIG_RESOURCE_TOPIC:
            return config_keys.check_together(after, _cluster_values(state))
        case metadata_pb2.CONFIG_RESOURCE_CLUSTER:
            error = config_keys.check_together(after, {})
            for key, values in state.configs.items():
                if error is None and key.resource == metadata_pb2.CONFIG_RESOURCE_TOPIC:
                    error = config_keys.check_together(values, after)
            return error
        case _:
            return None
