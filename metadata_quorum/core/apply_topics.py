"""Changes of topics and of configuration.

Part of `apply`: every function checks first, then stores, and returns what it gave out or why it was rejected.
"""

from collections.abc import Iterable

from lograft.contract.errors import (
    InvalidPartitionCount,
    InvalidRequest,
    InvalidTopicName,
    LogError,
    TopicExists,
    UnknownBroker,
    UnknownTopicOrPartition,
)
from lograft.contract.ids import check_topic_name
from lograft.metadata_quorum.core.apply_partitions import index, planned_changes, planned_partitions, store, unindex
from lograft.metadata_quorum.core.model import ClusterState, ConfigKey, Partition, PartitionKey, Topic
from lograft.v1 import metadata_pb2

MIN_IN_SYNC_KEY = "min.insync.replicas"
_CLUSTER = ConfigKey(metadata_pb2.CONFIG_RESOURCE_CLUSTER, "")


def create_topic(
    state: ClusterState, change: metadata_pb2.CreateTopic, version: int
) -> metadata_pb2.Applied | LogError:
    """A new topic. The answer is its id."""
    try:
        check_topic_name(change.name)
    except InvalidTopicName as problem:
        return problem
    if change.name in state.topic_ids:
        return TopicExists(change.name)
    if not change.topic_id or change.topic_id in state.topics:
        return InvalidRequest(f"topic {change.name} needs an id of its own, not {change.topic_id!r}")
    if not change.assignments:
        return InvalidPartitionCount(change.name, 0, "a topic has at least one")
    topic = Topic(change.topic_id, change.name, change.created_at_ms)
    partitions = planned_partitions(topic, change.assignments, state.brokers)
    if isinstance(partitions, LogError):
        return partitions
    _append(state, topic, partitions)
    state.topics[topic.topic_id] = topic
    state.topic_ids[topic.name] = topic.topic_id
    if change.configs:
        state.configs[_key_of(topic.topic_id)] = dict(change.configs)
    return metadata_pb2.Applied(version=version, id=topic.topic_id)


def delete_topic(
    state: ClusterState, change: metadata_pb2.DeleteTopic, version: int
) -> metadata_pb2.Applied | LogError:
    """Forget a topic and all that belongs to it."""
    topic = state.topics.get(change.topic_id)
    if topic is None:
        return UnknownTopicOrPartition(change.topic_id, 0)
    for number, partition in enumerate(topic.partitions):
        unindex(state, PartitionKey(topic.topic_id, number), partition)
    state.configs.pop(_key_of(topic.topic_id), None)
    del state.topic_ids[topic.name]
    del state.topics[topic.topic_id]
    return metadata_pb2.Applied(version=version)


def add_partitions(
    state: ClusterState, change: metadata_pb2.AddPartitions, version: int
) -> metadata_pb2.Applied | LogError:
    """More partitions, numbered on."""
    topic = state.topics.get(change.topic_id)
    if topic is None:
        return UnknownTopicOrPartition(change.topic_id, 0)
    present = len(topic.partitions)
    wanted = change.existing_partitions + len(change.assignments)
    if change.existing_partitions != present:
        return InvalidPartitionCount(topic.name, wanted, f"it has {present}, not {change.existing_partitions} any more")
    if not change.assignments:
        return InvalidPartitionCount(topic.name, wanted, "it has as many already")
    partitions = planned_partitions(topic, change.assignments, state.brokers)
    if isinstance(partitions, LogError):
        return partitions
    _append(state, topic, partitions)
    return metadata_pb2.Applied(version=version)


def change_partition(
    state: ClusterState, change: metadata_pb2.PartitionChange, version: int
) -> metadata_pb2.Applied | LogError:
    """New values for one partition. The answer is its new partition epoch."""
    plan = planned_changes(state, (change,), state.brokers)
    if isinstance(plan, LogError):
        return plan
    store(state, plan)
    return metadata_pb2.Applied(version=version, number=change.partition_epoch + 1)


def alter_config(
    state: ClusterState, change: metadata_pb2.AlterConfig, version: int
) -> metadata_pb2.Applied | LogError:
    """Set and remove keys. What is both removed and set is set."""
    error = _resource_error(state, change)
    if error is not None:
        return error
    key = ConfigKey(change.resource, change.name)
    present = state.configs.get(key, {})
    removed = set(change.remove)
    values = {name: value for name, value in present.items() if name not in removed} | dict(change.set)
    if values.get(MIN_IN_SYNC_KEY) != present.get(MIN_IN_SYNC_KEY):
        _forget_eligible(_topics_touched(state, key, present, values))
    # Another dict, never the same one changed: a snapshot under way may hold the old one.
    if values:
        state.configs[key] = values
    else:
        state.configs.pop(key, None)
    return metadata_pb2.Applied(version=version)


def _append(state: ClusterState, topic: Topic, partitions: Iterable[Partition]) -> None:
    for number, partition in enumerate(partitions, start=len(topic.partitions)):
        index(state, PartitionKey(topic.topic_id, number), partition)
        topic.partitions.append(partition)


def _key_of(topic_id: str) -> ConfigKey:
    return ConfigKey(metadata_pb2.CONFIG_RESOURCE_TOPIC, topic_id)


def _resource_error(state: ClusterState, change: metadata_pb2.AlterConfig) -> LogError | None:
    match change.resource:
        case metadata_pb2.CONFIG_RESOURCE_CLUSTER:
            return InvalidRequest("the cluster's configuration has no name") if change.name else None
        case metadata_pb2.CONFIG_RESOURCE_TOPIC:
            return None if change.name in state.topics else UnknownTopicOrPartition(change.name, 0)
        case metadata_pb2.CONFIG_RESOURCE_BROKER:
            # By comparison of texts: int() would take "007", " 7" and digits of other scripts for broker 7 as well.
            if any(change.name == str(broker_id) for broker_id in state.brokers):
                return None
            is_number = change.name.isascii() and change.name.isdigit() and len(change.name) <= 10
            return UnknownBroker(int(change.name)) if is_number else InvalidRequest(f"no broker id: {change.name!r}")
        case _:
            return InvalidRequest(f"there is no configuration of resource {int(change.resource)}")


def _topics_touched(
    state: ClusterState, key: ConfigKey, before: dict[str, str], after: dict[str, str]
) -> Iterable[Topic]:
    """The topics for which the new values mean another ``min.insync.replicas``."""
    if key.resource == metadata_pb2.CONFIG_RESOURCE_TOPIC:
        default = state.configs.get(_CLUSTER, {}).get(MIN_IN_SYNC_KEY)
        if before.get(MIN_IN_SYNC_KEY, default) != after.get(MIN_IN_SYNC_KEY, default):
            yield state.topics[key.name]
    elif key == _CLUSTER:
        for topic in state.topics.values():
            if MIN_IN_SYNC_KEY not in state.configs.get(_key_of(topic.topic_id), {}):
                yield topic


def _forget_eligible(topics: Iterable[Topic]) -> None:
    """Nobody is known to hold everything committed under another ``min.insync.replicas``."""
    for topic in topics:
        for number, partition in enumerate(topic.partitions):
            if partition.eligible:
                topic.partitions[number] = partition._replace(
                    eligible=(), partition_epoch=partition.partition_epoch + 1
                )
