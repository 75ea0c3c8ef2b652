"""What leaders ask of the controller: another in-sync set, or somebody else to lead.

Compare-and-set: a leader that is over, or that decided on an older value of the partition, is refused, learns the
present value through Watch and asks again.
"""

from collections.abc import Sequence

from lograft.contract.errors import (
    FencedEpoch,
    InvalidRequest,
    LogError,
    NoEligibleLeader,
    NotLeader,
    UnknownTopicOrPartition,
)
from lograft.metadata_quorum.core import config_keys
from lograft.metadata_quorum.core.brokers import current_broker
from lograft.metadata_quorum.core.elect import eligible_after, in_replica_order, next_leader, partition_change
from lograft.metadata_quorum.core.model import ClusterState, Partition, PartitionKey
from lograft.metadata_quorum.core.reassign import finished
from lograft.v1 import cluster_pb2, metadata_pb2


def change_in_sync(state: ClusterState, op: cluster_pb2.ChangeInSyncOperation) -> metadata_pb2.Change | LogError:
    """The leader's new in-sync set; finishes a move in the same step if that completes it."""
    key = PartitionKey(op.topic_id, op.partition)
    old = _led_partition(state, key, op.broker_id, op.broker_epoch, op.leader_epoch)
    if isinstance(old, LogError):
        return old
    subject = _subject(state, key)
    if op.partition_epoch != old.partition_epoch:
        return FencedEpoch(subject, op.partition_epoch, old.partition_epoch)
    error = _members_error(state, subject, old, op.broker_id, op.in_sync)
    if error is not None:
        return error
    configured = config_keys.topic_int(state, op.topic_id, config_keys.MIN_IN_SYNC)
    minimum = config_keys.effective_min_in_sync(configured, old)
    in_sync = in_replica_order(old, (member.broker_id for member in op.in_sync))
    new = old._replace(in_sync=in_sync, eligible=eligible_after(old, in_sync, min_in_sync=minimum))
    return partition_change(key, old, finished(new, state.brokers, configured_min=configured) or new)


def offer_leadership(state: ClusterState, op: cluster_pb2.OfferLeadershipOperation) -> metadata_pb2.Change | LogError:
    """Another in-sync replica that is alive leads. The asker stays in sync: only its successor can tell otherwise."""
    key = PartitionKey(op.topic_id, op.partition)
    old = _led_partition(state, key, op.broker_id, op.broker_epoch, op.leader_epoch)
    if isinstance(old, LogError):
        return old
    others = old._replace(in_sync=tuple(member for member in old.in_sync if member != op.broker_id), eligible=())
    leader = next_leader(others, state.brokers)
    if leader is None:
        return NoEligibleLeader(_subject(state, key), "no other replica is in sync and alive")
    return partition_change(key, old, old._replace(leader=leader))


def _led_partition(
    state: ClusterState, key: PartitionKey, broker_id: int, broker_epoch: int, leader_epoch: int
) -> Partition | LogError:
    """The partition, if the asker leads it, in its present incarnation and in the present epoch."""
    broker = current_broker(state, broker_id, broker_epoch)
    if isinstance(broker, LogError):
        return broker
    partition = state.partition(key)
    if partition is None:
        return UnknownTopicOrPartition(_topic_name(state, key), key.partition)
    if partition.leader != broker_id:
        return NotLeader(_topic_name(state, key), key.partition, partition.leader, partition.leader_epoch)
    if partition.leader_epoch != leader_epoch:
        return FencedEpoch(_subject(state, key), leader_epoch, partition.leader_epoch)
    return partition


def _members_error(
    state: ClusterState, subject: str, old: Partition, leader: int, members: Sequence[cluster_pb2.InSyncMember]
) -> LogError | None:
    wanted = [member.broker_id for member in members]
    if leader not in wanted:
        return InvalidRequest(f"{subject}: its leader {leader} is always in sync with itself")
    if len(set(wanted)) != len(wanted):
        return InvalidRequest(f"{subject}: a broker is named twice in {wanted}")
    for member in members:
        if member.broker_id not in old.replicas:
            return InvalidRequest(f"{subject} has no replica on broker {member.broker_id}")
        # Another incarnation than the one that caught up may have lost what the leader saw.
        broker = current_broker(state, member.broker_id, member.broker_epoch)
        if isinstance(broker, LogError):
            return broker
        if member.broker_id not in old.in_sync and not broker.may_join:
            status = "fenced" if broker.fenced else "draining"
            return InvalidRequest(f"{subject}: broker {member.broker_id} is {status} and cannot join the in-sync set")
    return None


def _topic_name(state: ClusterState, key: PartitionKey) -> str:
    topic = state.topics.get(key.topic_id)
    return key.topic_id if topic is None else topic.name


def _subject(state: ClusterState, key: PartitionKey) -> str:
    return f"{_topic_name(state, key)}-{key.partition}"
