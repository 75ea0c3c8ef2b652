"""How draining brokers are emptied: leadership goes first, then one bounded batch of moves after the other."""

from collections.abc import Iterator, Sequence

from lograft.contract.errors import LogError, UnknownBroker
from lograft.metadata_quorum.core import config_keys
from lograft.metadata_quorum.core.elect import next_leader, partition_change
from lograft.metadata_quorum.core.model import Broker, ClusterState, Partition, PartitionKey
from lograft.metadata_quorum.core.placement import candidates
from lograft.metadata_quorum.core.reassign import begun, cancelled, what_is_missing
from lograft.v1 import cluster_pb2, metadata_pb2

# Every leadership that moves interrupts its producers for a moment: not all of a large broker's at once.
LEADERSHIPS_AT_ONCE = 1_000
_DESCRIBED_AT_MOST = 1_000


def next_drain_moves(state: ClusterState, *, limit: int) -> list[metadata_pb2.Change]:
    """What to do next for draining brokers; nothing if they are empty, or if all waits.

    Leadership is handed over where another in-sync replica can take it, and a move onto a broker that began to drain is
    called off: it could never finish. Then moves to the least loaded brokers begin, as long as fewer than ``limit``
    moves are in progress, whoever began them.
    """
    changes: dict[PartitionKey, metadata_pb2.Change] = {}
    waiting: dict[PartitionKey, Partition] = {}
    for key, old in _on_draining(state):
        new = _called_off(state, key, old) or _handed_over(state, old)
        if new is not None:
            if len(changes) < LEADERSHIPS_AT_ONCE:
                changes[key] = partition_change(key, old, new)
        elif not old.moving and old.leader is not None:
            # Without a leader nobody could copy it: such a move would only take the place of others.
            waiting[key] = old
    free = limit - len(state.moving)
    brokers = candidates(state)
    load = {broker.broker_id: len(state.replicas_on.get(broker.broker_id, ())) for broker in brokers}
    for key, old in waiting.items():
        if free <= 0:
            break
        target = _relocated(state, old, brokers, load)
        if target is not None:
            changes[key] = partition_change(key, old, begun(old, target))
            free -= 1
    return list(changes.values())


def describe_drain(state: ClusterState, broker_id: int) -> cluster_pb2.DescribeDrainResponse | LogError:
    """How far the draining of a broker is, and per partition what it waits for."""
    broker = state.brokers.get(broker_id)
    if broker is None:
        return UnknownBroker(broker_id)
    keys = state.replicas_on.get(broker_id, {})
    response = cluster_pb2.DescribeDrainResponse(draining=broker.draining, remaining_replicas=len(keys))
    if not broker.draining:
        return response
    brokers = candidates(state)
    load = {other.broker_id: 0 for other in brokers}
    for key, partition in state.partitions_on(broker_id):
        if len(response.partitions) >= _DESCRIBED_AT_MOST:
            break
        response.partitions.add(
            topic=state.topics[key.topic_id].name,
            partition=key.partition,
            waiting_for=_waiting_for(state, key, partition, brokers, load),
        )
    return response


def _on_draining(state: ClusterState) -> Iterator[tuple[PartitionKey, Partition]]:
    """Every partition with a replica on a draining broker, once."""
    seen: set[PartitionKey] = set()
    for broker_id in sorted(state.brokers):
        if state.brokers[broker_id].draining:
            for key, partition in state.partitions_on(broker_id):
                if key not in seen:
                    seen.add(key)
                    yield key, partition


def _called_off(state: ClusterState, key: PartitionKey, old: Partition) -> Partition | None:
    """The partition without its move, if that waits for a draining broker to come into sync."""
    if not old.moving:
        return None
    configured = config_keys.topic_int(state, key.topic_id, config_keys.MIN_IN_SYNC)
    never = {replica for replica in old.target if state.brokers[replica].draining and replica not in old.in_sync}
    # Of the added ones all are needed, of the others as many as min.insync.replicas asks for.
    if never.isdisjoint(old.adding) and len(old.target) - len(never) >= min(configured, len(old.target)):
        return None
    new = cancelled(old, state.brokers, configured_min=configured)
    return None if isinstance(new, str) else new


def _handed_over(state: ClusterState, old: Partition) -> Partition | None:
    """The partition led by somebody else, if a draining broker leads it and another can."""
    if old.leader is None or not state.brokers[old.leader].draining:
        return None
    leader = next_leader(old._replace(eligible=()), state.brokers)
    return None if leader is None or state.brokers[leader].draining else old._replace(leader=leader)


def _relocated(
    state: ClusterState, old: Partition, brokers: Sequence[Broker], load: dict[int, int]
) -> tuple[int, ...] | None:
    """The replicas with draining brokers replaced, or None if there are not enough others. Counts into ``load``."""
    target = list(old.replicas)
    for place, replica in enumerate(old.replicas):
        if not state.brokers[replica].draining:
            continue
        racks = [state.brokers[other].rack for other in target if other != replica]
        free = [broker for broker in brokers if broker.broker_id not in target and broker.broker_id not in old.replicas]
        if not free:
            return None
        # A rack that holds fewest of the others comes first, then the broker with the fewest replicas.
        best = min(free, key=lambda broker: (_uses(racks, broker.rack), load[broker.broker_id], broker.broker_id))
        target[place] = best.broker_id
    for broker_id in target:
        if broker_id not in old.replicas:
            load[broker_id] += 1
    return tuple(target)


def _uses(racks: Sequence[str], rack: str) -> int:
    return racks.count(rack) if rack else 0


def _waiting_for(
    state: ClusterState, key: PartitionKey, partition: Partition, brokers: Sequence[Broker], load: dict[int, int]
) -> str:
    configured = config_keys.topic_int(state, key.topic_id, config_keys.MIN_IN_SYNC)
    if partition.moving:
        return f"its move: {what_is_missing(partition, state.brokers, configured_min=configured)}"
    if partition.leader is None:
        return "a leader: no replica that holds everything is alive"
    if _relocated(state, partition, brokers, load) is None:
        others = sum(broker.broker_id not in partition.replicas for broker in brokers)
        return f"a broker that can take it: {others} are alive, not draining and without a replica of it"
    return "its turn: other moves are in progress"
