"""Moves of partitions between brokers, and leadership given back or taken by hand.

Each function reads the state and returns the change to commit, or the error to answer with. What the controller does by
itself (draining, preferred leaders, moves that became complete) comes as lists of changes, each independent of the
others and on another partition, so that they can be committed together.
"""

from collections.abc import Iterator

from lograft.contract.errors import (
    InvalidAssignment,
    InvalidRequest,
    LogError,
    MoveRefused,
    NoEligibleLeader,
    UnknownTopicOrPartition,
)
from lograft.metadata_quorum.core import config_keys
from lograft.metadata_quorum.core.drains import describe_drain, next_drain_moves
from lograft.metadata_quorum.core.elect import partition_change, with_leader
from lograft.metadata_quorum.core.model import ClusterState, Partition, PartitionKey
from lograft.metadata_quorum.core.reassign import begun, cancelled, finished, what_is_missing
from lograft.metadata_quorum.core.topics import replicas_error
from lograft.v1 import cluster_pb2, metadata_pb2

__all__ = [
    "cancel",
    "completed_moves",
    "describe_drain",
    "elect",
    "list_moves",
    "move",
    "next_drain_moves",
    "preferred_elections",
]


def move(state: ClusterState, op: cluster_pb2.MovePartitionOperation) -> metadata_pb2.Change | LogError:
    """Other replicas for a partition. Fewer of the same, or another order, may be done at once."""
    found = _found(state, op.topic, op.partition)
    if isinstance(found, LogError):
        return found
    key, old = found
    subject, target = f"{op.topic}-{op.partition}", tuple(op.replicas)
    error = replicas_error(state, subject, target)
    if error is not None:
        return error
    if old.moving:
        return MoveRefused(subject, f"it is on its way to brokers {_shown(old.target)} already: cancel that first")
    if target == old.replicas:
        return metadata_pb2.Change(barrier=metadata_pb2.Barrier())
    for broker_id in target:
        broker = state.brokers[broker_id]
        if broker_id not in old.replicas and not broker.may_join:
            status = "fenced: start it first" if broker.fenced else "draining"
            return InvalidAssignment(subject, ",".join(map(str, target)), f"broker {broker_id} is {status}")
    new = begun(old, target)
    return partition_change(key, old, finished(new, state.brokers, configured_min=_minimum(state, key)) or new)


def cancel(state: ClusterState, op: cluster_pb2.CancelMoveOperation) -> metadata_pb2.Change | LogError:
    """Back to the replicas from before the move."""
    found = _found(state, op.topic, op.partition)
    if isinstance(found, LogError):
        return found
    key, old = found
    new = cancelled(old, state.brokers, configured_min=_minimum(state, key))
    return MoveRefused(f"{op.topic}-{op.partition}", new) if isinstance(new, str) else partition_change(key, old, new)


def list_moves(state: ClusterState, topic: str = "") -> list[cluster_pb2.Move]:
    """The moves in progress, of one topic or of all, with what each waits for."""
    moves = []
    for key, partition in _moving(state):
        name = state.topics[key.topic_id].name
        if topic in ("", name):
            moves.append(
                cluster_pb2.Move(
                    topic=name,
                    partition=key.partition,
                    replicas=partition.replicas,
                    adding=partition.adding,
                    removing=partition.removing,
                    added_in_sync=[replica for replica in partition.adding if replica in partition.in_sync],
                    waiting_for=what_is_missing(partition, state.brokers, configured_min=_minimum(state, key)),
                )
            )
    return moves


def completed_moves(state: ClusterState, *, limit: int) -> list[metadata_pb2.Change]:
    """Moves that nothing is missing for. A leader's in-sync change finishes a move by itself; this is for those that
    became complete without one, by another ``min.insync.replicas`` or a broker that came back."""
    changes: list[metadata_pb2.Change] = []
    for key, old in _moving(state):
        if len(changes) >= limit:
            break
        done = finished(old, state.brokers, configured_min=_minimum(state, key))
        if done is not None:
            changes.append(partition_change(key, old, done))
    return changes


def preferred_elections(state: ClusterState, *, limit: int) -> list[metadata_pb2.Change]:
    """Leadership back to preferred leaders that are alive and in sync. Partitions on a move wait until it is done."""
    changes: list[metadata_pb2.Change] = []
    willing = {broker_id for broker_id, broker in state.brokers.items() if broker.may_join}
    for topic in state.topics.values():
        for number, old in enumerate(topic.partitions):
            preferred = old.replicas[0]
            if old.leader in (preferred, None) or preferred not in willing or old.moving:
                continue
            if preferred in old.in_sync:
                if len(changes) >= limit:
                    return changes
                key = PartitionKey(topic.topic_id, number)
                changes.append(partition_change(key, old, old._replace(leader=preferred)))
    return changes


def elect(state: ClusterState, op: cluster_pb2.ElectLeaderOperation) -> metadata_pb2.Change | LogError:
    """An election by hand. Nothing happens if its aim is reached already."""
    found = _found(state, op.topic, op.partition)
    if isinstance(found, LogError):
        return found
    key, old = found
    subject = f"{op.topic}-{op.partition}"
    match op.election:
        case cluster_pb2.ELECTION_PREFERRED:
            return _elect_preferred(state, key, old, subject)
        case cluster_pb2.ELECTION_UNCLEAN:
            if old.leader is not None:
                return metadata_pb2.Change(barrier=metadata_pb2.Barrier())
            minimum = config_keys.min_in_sync(state, key.topic_id, old)
            new = with_leader(old, state.brokers, min_in_sync=minimum, unclean=True)
            if new.leader is None:
                return NoEligibleLeader(subject, f"none of the brokers {_shown(old.replicas)} is alive")
            return partition_change(key, old, new)
        case _:
            return InvalidRequest(f"{subject}: there is no election of kind {int(op.election)}")


def _elect_preferred(
    state: ClusterState, key: PartitionKey, old: Partition, subject: str
) -> metadata_pb2.Change | LogError:
    preferred = old.replicas[0]
    if old.leader == preferred:
        return metadata_pb2.Change(barrier=metadata_pb2.Barrier())
    if preferred not in old.in_sync:
        return NoEligibleLeader(subject, f"its first replica, on broker {preferred}, is not in sync")
    broker = state.brokers[preferred]
    if not broker.may_join:
        return NoEligibleLeader(subject, f"broker {preferred} is {'fenced' if broker.fenced else 'draining'}")
    return partition_change(key, old, old._replace(leader=preferred))


def _found(state: ClusterState, topic_name: str, number: int) -> tuple[PartitionKey, Partition] | LogError:
    topic = state.topic_named(topic_name)
    if topic is None or number >= len(topic.partitions):
        return UnknownTopicOrPartition(topic_name, number)
    return PartitionKey(topic.topic_id, number), topic.partitions[number]


def _moving(state: ClusterState) -> Iterator[tuple[PartitionKey, Partition]]:
    for key in state.moving:
        yield key, state.topics[key.topic_id].partitions[key.partition]


def _minimum(state: ClusterState, key: PartitionKey) -> int:
    return config_keys.topic_int(state, key.topic_id, config_keys.MIN_IN_SYNC)


def _shown(replicas: tuple[int, ...]) -> str:
    return ", ".join(map(str, replicas))
