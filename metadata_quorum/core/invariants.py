"""What must hold in every state, and between a state and a later one. For tests, simulations and `--check` tools.

Written from the rules and not from `apply`: it shares no code with what it watches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from lograft.metadata_quorum.core.model import (
    ANSWERED_LIMIT,
    FEATURE_LEVEL,
    Broker,
    ClusterState,
    ConfigKey,
    Partition,
    PartitionKey,
    Topic,
)
from lograft.v1 import metadata_pb2


def violations(state: ClusterState, previous: ClusterState | None = None) -> list[str]:
    """Everything that is wrong with the state, and with the way from an earlier one to it; empty if all is well."""
    found = [*_header(state), *_brokers(state), *_topics(state), *_settings(state), *_derived(state)]
    if previous is not None:
        found += [*_numbers_since(state, previous), *_brokers_since(state, previous), *_topics_since(state, previous)]
    return found


def _header(state: ClusterState) -> Iterator[str]:
    if state.previous_term > state.term:
        yield f"the term went from {state.previous_term} to {state.term}"
    if not 1 <= state.feature_level <= FEATURE_LEVEL:
        yield f"feature level {state.feature_level}"
    if bool(state.controller_epoch) != bool(state.controller_node):
        yield f"controller epoch {state.controller_epoch} is held by {state.controller_node!r}"
    names = [member.name for member in state.members]
    if "" in names or _repeated(names):
        yield f"quorum members are named {names}"
    if state.next_producer_id < 0:
        yield f"next producer id {state.next_producer_id}"


def _brokers(state: ClusterState) -> Iterator[str]:
    for broker_id, broker in state.brokers.items():
        if broker_id != broker.broker_id:
            yield f"broker {broker.broker_id} is kept as {broker_id}"
        if not 1 <= broker.broker_epoch < state.next_broker_epoch:
            yield f"broker {broker_id} has epoch {broker.broker_epoch}, the next is {state.next_broker_epoch}"
        if not broker.incarnation_id:
            yield f"broker {broker_id} has no incarnation id"
        if not 0 <= broker.registered_version <= state.version:
            yield f"broker {broker_id} registers at {broker.registered_version}, after {state.version}"
        if not broker.fenced and broker.fence_reason:
            yield f"broker {broker_id} lives and is fenced: {broker.fence_reason}"
    for epoch in _repeated(broker.broker_epoch for broker in state.brokers.values()):
        yield f"two brokers have epoch {epoch}"


def _topics(state: ClusterState) -> Iterator[str]:
    for topic_id, topic in state.topics.items():
        if topic_id != topic.topic_id or not topic_id:
            yield f"topic {topic.topic_id!r} is kept as {topic_id!r}"
        if not topic.name or not topic.partitions:
            yield f"topic {topic.name!r} has {len(topic.partitions)} partitions"
        for number, partition in enumerate(topic.partitions):
            for problem in _partition(partition, state.brokers):
                yield f"{topic.name}-{number} {problem}: {partition}"
    for name in _repeated(topic.name for topic in state.topics.values()):
        yield f"two topics are named {name}"


def _partition(partition: Partition, brokers: dict[int, Broker]) -> Iterator[str]:
    replicas = set(partition.replicas)
    if not replicas:
        yield "has no replicas"
    if not replicas <= brokers.keys():
        yield f"has replicas on brokers that nobody knows, {sorted(replicas - brokers.keys())}"
    for name in ("replicas", "in_sync", "eligible", "adding", "removing"):
        members = getattr(partition, name)
        if _repeated(members):
            yield f"names a broker twice in {name}"
        if not replicas.issuperset(members):
            yield f"has {name} that are no replicas"
    if set(partition.in_sync) & set(partition.eligible):
        yield "has a replica both in sync and eligible"
    if set(partition.adding) & set(partition.removing):
        yield "has a replica that comes and goes"
    if replicas and (replicas == set(partition.adding) or replicas == set(partition.removing)):
        yield "moves from nowhere or to nowhere"
    if partition.leader is not None:
        if partition.leader not in partition.in_sync:
            yield "has a leader that is not in sync"
        leader = brokers.get(partition.leader)
        if leader is not None and leader.fenced:
            yield "has a leader that is fenced"
    if partition.leader_epoch < 0 or partition.partition_epoch < partition.leader_epoch:
        yield "has had more elections than changes"


def _settings(state: ClusterState) -> Iterator[str]:
    for key, values in state.configs.items():
        if not values:
            yield f"{key} is kept without values"
        if not _exists(state, key):
            yield f"{key} is the configuration of nothing"
    for quota, limits in state.quotas.items():
        if not limits:
            yield f"{quota} is kept without limits"
        if not all(0 <= limit < float("inf") for limit in limits.values()):
            yield f"{quota} has a limit that is none: {limits}"
    if "" in state.users:
        yield "a user has no name"
    if len(state.answered) > ANSWERED_LIMIT:
        yield f"{len(state.answered)} answers are kept"
    if b"" in state.answered:
        yield "an answer is kept for no command"


def _exists(state: ClusterState, key: ConfigKey) -> bool:
    match key.resource:
        case metadata_pb2.CONFIG_RESOURCE_CLUSTER:
            return not key.name
        case metadata_pb2.CONFIG_RESOURCE_BROKER:
            return key.name in map(str, state.brokers)
        case metadata_pb2.CONFIG_RESOURCE_TOPIC:
            return key.name in state.topics
        case _:
            return False


def _derived(state: ClusterState) -> Iterator[str]:
    replicas_on: dict[int, dict[PartitionKey, None]] = {}
    moving: dict[PartitionKey, None] = {}
    for topic in state.topics.values():
        for number, partition in enumerate(topic.partitions):
            key = PartitionKey(topic.topic_id, number)
            for broker_id in partition.replicas:
                replicas_on.setdefault(broker_id, {})[key] = None
            if partition.adding or partition.removing:
                moving[key] = None
    if state.topic_ids != {topic.name: topic.topic_id for topic in state.topics.values()}:
        yield "the index of topic names is wrong"
    if state.replicas_on != replicas_on:
        yield "the index of replicas by broker is wrong"
    if state.moving != moving:
        yield "the index of moving partitions is wrong"


def _numbers_since(state: ClusterState, previous: ClusterState) -> Iterator[str]:
    for name in ("version", "term", "feature_level", "controller_epoch", "next_broker_epoch", "next_producer_id"):
        before, after = getattr(previous, name), getattr(state, name)
        if after < before:
            yield f"{name} went back from {before} to {after}"
    if state.controller_epoch == previous.controller_epoch and state.controller_node != previous.controller_node:
        yield f"controller epoch {state.controller_epoch} has two holders"
    if previous.cluster_id and state.cluster_id != previous.cluster_id:
        yield f"cluster {previous.cluster_id} became {state.cluster_id}"


def _brokers_since(state: ClusterState, previous: ClusterState) -> Iterator[str]:
    for broker_id, broker in state.brokers.items():
        before = previous.brokers.get(broker_id)
        if before is None:
            if broker.broker_epoch < previous.next_broker_epoch:
                yield f"new broker {broker_id} has the old epoch {broker.broker_epoch}"
        elif broker.broker_epoch == before.broker_epoch:
            if _incarnation(broker) != _incarnation(before):
                yield f"broker {broker_id} is two incarnations in epoch {broker.broker_epoch}"
        elif broker.broker_epoch < previous.next_broker_epoch:
            yield f"broker {broker_id} went from epoch {before.broker_epoch} to the old one {broker.broker_epoch}"


def _incarnation(broker: Broker) -> tuple[str, str, int]:
    return broker.incarnation_id, broker.directory_id, broker.registered_version


def _topics_since(state: ClusterState, previous: ClusterState) -> Iterator[str]:
    for topic_id, topic in state.topics.items():
        before = previous.topics.get(topic_id)
        if before is not None:
            yield from _topic_since(topic, before)


def _topic_since(topic: Topic, before: Topic) -> Iterator[str]:
    if (topic.name, topic.created_at_ms) != (before.name, before.created_at_ms):
        yield f"topic {topic.topic_id} was {before.name} and is {topic.name}"
    if len(topic.partitions) < len(before.partitions):
        yield f"{topic.name} had {len(before.partitions)} partitions and has {len(topic.partitions)}"
    for number, (new, old) in enumerate(zip(topic.partitions, before.partitions, strict=False)):
        if new == old:
            continue
        if new.leader_epoch < old.leader_epoch or new.partition_epoch < old.partition_epoch:
            yield f"{topic.name}-{number} went back from {old} to {new}"
        if new.leader_epoch == old.leader_epoch and new.leader != old.leader:
            yield f"{topic.name}-{number} has two leaders in epoch {new.leader_epoch}: {old.leader} and {new.leader}"
        if new.partition_epoch == old.partition_epoch:
            yield f"{topic.name}-{number} changed within partition epoch {new.partition_epoch}: {old} to {new}"


def _repeated(values: Iterable[object]) -> list[object]:
    return [value for value, times in Counter(values).items() if times > 1]
