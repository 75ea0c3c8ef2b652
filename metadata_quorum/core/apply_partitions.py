"""What may become of a partition, whoever asks: the rules that hold even if the controller that decided was wrong.

Part of `apply`: checks come first and store nothing, `store` comes last and checks nothing. Composite changes (a broker
that is fenced, with all its partitions) are checked against the brokers as they will be afterwards.
"""

from collections.abc import Iterable, Mapping

from lograft.contract.errors import (
    FencedEpoch,
    InvalidAssignment,
    InvalidRequest,
    LogError,
    NoEligibleLeader,
    UnknownBroker,
    UnknownTopicOrPartition,
)
from lograft.metadata_quorum.core.config_keys import min_in_sync
from lograft.metadata_quorum.core.model import Broker, ClusterState, Partition, PartitionKey, Topic
from lograft.v1 import metadata_pb2

# Partitions as they will be, checked.
Plan = dict[PartitionKey, Partition]


class SharedTuples(dict[tuple[int, ...], tuple[int, ...]]):
    """Equal tuples become one: thousands of partitions have the same replicas."""

    def __missing__(self, value: tuple[int, ...]) -> tuple[int, ...]:
        self[value] = value
        return value


def planned_changes(
    state: ClusterState,
    changes: Iterable[metadata_pb2.PartitionChange],
    brokers: Mapping[int, Broker],
    *,
    wiped: int | None = None,
) -> Plan | LogError:
    """The partitions as the changes want them, or why not. ``wiped`` is a broker that has come with an empty disk."""
    shared = SharedTuples()
    plan: Plan = {}
    for change in changes:
        key = PartitionKey(change.topic_id, change.partition)
        topic = state.topics.get(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            return UnknownTopicOrPartition(key.topic_id if topic is None else topic.name, key.partition)
        if key in plan:
            return InvalidRequest(f"{topic.name}-{key.partition} is changed twice")
        old = topic.partitions[key.partition]
        if change.partition_epoch != old.partition_epoch:
            return FencedEpoch(f"{topic.name}-{key.partition}", change.partition_epoch, old.partition_epoch)
        # By slices: a list and a tuple of it are made in half the time that a tuple of the protobuf container takes.
        new = Partition(
            shared[tuple(change.replicas[:])],
            shared[tuple(change.in_sync[:])],
            tuple(change.eligible[:]) if change.eligible else (),
            change.leader if change.HasField("leader") else None,
            change.leader_epoch,
            old.partition_epoch + 1,
            tuple(change.adding[:]) if change.adding else (),
            tuple(change.removing[:]) if change.removing else (),
        )
        error = _shape_error(topic, key.partition, new, brokers) or _step_error(
            topic, key.partition, old, new, brokers, unclean=change.unclean, wiped=wiped
        )
        if error is not None:
            return error
        if new.eligible and len(new.in_sync) >= min_in_sync(state, key.topic_id, new):
            # Decided under a larger min.insync.replicas, altered since: the leader goes on without them.
            return InvalidRequest(f"{topic.name}-{key.partition}: enough replicas are in sync, no other is eligible")
        plan[key] = new
    return plan


def planned_partitions(
    topic: Topic, assignments: Iterable[metadata_pb2.Assignment], brokers: Mapping[int, Broker]
) -> list[Partition] | LogError:
    """The new partitions of a topic, or what is wrong with them."""
    shared = SharedTuples()
    partitions: list[Partition] = []
    for index, assignment in enumerate(assignments, start=len(topic.partitions)):
        new = Partition(
            shared[tuple(assignment.replicas[:])],
            shared[tuple(assignment.in_sync[:])],
            (),
            assignment.leader if assignment.HasField("leader") else None,
        )
        error = _shape_error(topic, index, new, brokers)
        if error is not None:
            return error
        if not new.in_sync:
            # It could never be elected without losing nothing: nobody would know that there is nothing to lose.
            return NoEligibleLeader(f"{topic.name}-{index}", "a new partition needs a replica in sync")
        for broker_id in new.in_sync:
            if not brokers[broker_id].may_join:
                return _not_joining(topic, index, brokers[broker_id])
        partitions.append(new)
    return partitions


def store(state: ClusterState, plan: Plan) -> None:
    """Put the new values in place, with the indexes derived from them."""
    for key, new in plan.items():
        partitions = state.topics[key.topic_id].partitions
        old = partitions[key.partition]
        partitions[key.partition] = new
        if new.replicas != old.replicas:
            unindex(state, key, old)
            index(state, key, new)
        elif new.adding or new.removing:
            state.moving[key] = None
        elif old.adding or old.removing:
            del state.moving[key]


def index(state: ClusterState, key: PartitionKey, partition: Partition) -> None:
    """Enter a partition into the derived indexes."""
    for broker_id in partition.replicas:
        state.replicas_on.setdefault(broker_id, {})[key] = None
    if partition.moving:
        state.moving[key] = None


def unindex(state: ClusterState, key: PartitionKey, partition: Partition) -> None:
    """Take a partition out of the derived indexes."""
    for broker_id in partition.replicas:
        keys = state.replicas_on[broker_id]
        del keys[key]
        if not keys:
            del state.replicas_on[broker_id]
    state.moving.pop(key, None)


def _shape_error(topic: Topic, number: int, new: Partition, brokers: Mapping[int, Broker]) -> LogError | None:
    """What can be said without the former value."""
    replicas, in_sync, eligible, leader = new.replicas, new.in_sync, new.eligible, new.leader
    members = set(replicas)
    if not replicas or len(members) != len(replicas):
        problem = "a broker is named twice" if replicas else "a partition needs at least one"
        return InvalidAssignment(f"{topic.name}-{number}", ",".join(map(str, replicas)), problem)
    for broker_id in replicas:
        if broker_id not in brokers:
            return UnknownBroker(broker_id)
    holders = {*in_sync, *eligible}
    if not holders <= members or len(holders) != len(in_sync) + len(eligible):
        return InvalidRequest(f"{topic.name}-{number}: in-sync and eligible replicas are different replicas of it")
    if new.adding or new.removing:
        moved = {*new.adding, *new.removing}
        if not moved <= members or len(moved) != len(new.adding) + len(new.removing):
            return InvalidRequest(f"{topic.name}-{number}: replicas that come and that go are different replicas of it")
        if not new.target or not new.original:
            return InvalidRequest(f"{topic.name}-{number}: a move begins and ends with at least one replica")
    if leader is not None:
        if leader not in in_sync:
            return InvalidRequest(f"{topic.name}-{number}: broker {leader} is to lead but is not in sync")
        if brokers[leader].fenced:
            return NoEligibleLeader(f"{topic.name}-{number}", f"broker {leader} is fenced")
    return None


def _step_error(
    topic: Topic,
    number: int,
    old: Partition,
    new: Partition,
    brokers: Mapping[int, Broker],
    *,
    unclean: bool,
    wiped: int | None,
) -> LogError | None:
    """Whether a partition may go from the old to the new value."""
    elected = new.leader_epoch != old.leader_epoch
    if new.leader_epoch not in (old.leader_epoch, old.leader_epoch + 1):
        return FencedEpoch(f"{topic.name}-{number}", new.leader_epoch, old.leader_epoch)
    if not elected and new.leader != old.leader:
        return InvalidRequest(f"{topic.name}-{number}: another leader needs another leader epoch")
    if unclean and not (elected and new.leader is not None):
        return InvalidRequest(f"{topic.name}-{number}: only an election can be unclean")
    if new.in_sync == old.in_sync and new.eligible == old.eligible and wiped is None:
        return None  # who holds the committed records has not changed, and that is all the rest is about
    kept = [broker_id for broker_id in old.in_sync if broker_id != wiped]
    # Those that hold everything committed. Unless the election is unclean, the new ones come from here.
    safe = {*kept, *old.eligible} - {wiped}
    if not unclean:
        if elected and new.leader is not None and new.leader not in safe:
            return NoEligibleLeader(f"{topic.name}-{number}", f"broker {new.leader} may miss committed records")
        if kept and safe.isdisjoint(new.in_sync):
            return InvalidRequest(f"{topic.name}-{number}: the last in-sync replica is never dropped")
    if not safe.issuperset(new.eligible):
        return InvalidRequest(f"{topic.name}-{number}: only a replica that was in sync or eligible can be eligible")
    if wiped in new.in_sync:
        return InvalidRequest(f"{topic.name}-{number}: broker {wiped} has another directory and lost its log")
    return _joining_error(topic, number, old, new, brokers)


def _joining_error(
    topic: Topic, number: int, old: Partition, new: Partition, brokers: Mapping[int, Broker]
) -> LogError | None:
    """Whether every new member of the in-sync set may be one."""
    elected = new.leader if new.leader_epoch != old.leader_epoch else None
    for broker_id in new.in_sync:
        if broker_id in old.in_sync:
            continue
        if new.leader is None:
            return InvalidRequest(f"{topic.name}-{number}: only a leader can tell that a replica is in sync")
        # A draining broker is elected like any other: it may be the only one left that holds the records.
        if broker_id != elected and not brokers[broker_id].may_join:
            return _not_joining(topic, number, brokers[broker_id])
    return None


def _not_joining(topic: Topic, number: int, broker: Broker) -> LogError:
    status = "fenced" if broker.fenced else "draining"
    return InvalidRequest(
        f"{topic.name}-{number}: broker {broker.broker_id} is {status} and cannot join the in-sync set"
    )
