"""Who leads a partition next, and what becomes of its in-sync and eligible replicas then.

Everything takes a `Partition` and returns another one; `change_to` turns the step from the old to the new value into
the change to commit. Rules in short: an in-sync replica is elected before an eligible one, and a replica that may miss
committed records only if somebody asked for that.
"""

from collections.abc import Collection, Iterable, Mapping

from lograft.metadata_quorum.core.model import Broker, Partition, PartitionKey
from lograft.v1 import metadata_pb2


def next_leader(partition: Partition, brokers: Mapping[int, Broker], *, unclean: bool = False) -> int | None:
    """The replica to elect: in sync, else eligible, else with ``unclean`` any that lives. None if there is none.

    Of each group the first in the order of the replicas, and a draining broker only if there is no other: it would
    have to hand over again at once.
    """
    groups: list[Collection[int]] = [partition.in_sync, partition.eligible]
    if unclean:
        groups.append(partition.replicas)
    for group in groups:
        living = [
            replica
            for replica in partition.replicas
            if replica in group and (broker := brokers.get(replica)) is not None and broker.may_lead
        ]
        for replica in living:
            if not brokers[replica].draining:
                return replica
        if living:
            return living[0]
    return None


def with_leader(
    partition: Partition, brokers: Mapping[int, Broker], *, min_in_sync: int, unclean: bool = False
) -> Partition:
    """The partition after an election, perhaps with nobody as its leader.

    A leader that was not in sync begins alone: what the others hold is compared with its log from here on. Former
    in-sync members do not become eligible here: whoever was waited for may have lost its unsynced tail meanwhile.
    """
    leader = next_leader(partition, brokers, unclean=unclean)
    if leader is None or leader in partition.in_sync:
        return partition._replace(leader=leader)
    if leader not in partition.eligible:
        return partition._replace(leader=leader, in_sync=(leader,), eligible=())
    others = tuple(replica for replica in partition.eligible if replica != leader)
    return partition._replace(leader=leader, in_sync=(leader,), eligible=others if min_in_sync > 1 else ())


def is_unclean(old: Partition, new: Partition) -> bool:
    """Whether the new leader may miss records that were acknowledged."""
    return new.leader is not None and new.leader not in old.in_sync and new.leader not in old.eligible


def eligible_after(
    old: Partition, in_sync: Collection[int], *, min_in_sync: int, lost: Collection[int] = ()
) -> tuple[int, ...]:
    """The eligible replicas when the in-sync set becomes ``in_sync``, in the order of the old replicas.

    Below ``min.insync.replicas`` the high watermark stands still, so a member that is dropped at that size goes on to
    hold everything committed. At or above it advances again, and nobody outside the set can be counted on. ``lost``
    are brokers whose logs cannot be trusted any more.
    """
    if len(in_sync) >= min_in_sync:
        return ()
    return tuple(
        replica
        for replica in old.replicas
        if (replica in old.in_sync or replica in old.eligible) and replica not in in_sync and replica not in lost
    )


def without_broker(
    old: Partition,
    broker_id: int,
    brokers: Mapping[int, Broker],
    *,
    min_in_sync: int,
    lost: bool = False,
    wiped: bool = False,
    unclean: bool = False,
) -> Partition | None:
    """The partition when a broker is fenced, or None if that changes nothing. ``brokers`` shows it fenced already.

    The last in-sync member stays in the set, and the partition waits for it, unless an eligible replica can lead.
    ``lost``: the broker may miss what it once had, so it is not eligible. ``wiped``: it has an empty disk, so it leaves
    even as the last. ``unclean``: the topic would rather lose records than wait.
    """
    is_member, led_by_it = broker_id in old.in_sync, old.leader == broker_id
    if not (is_member or led_by_it or ((lost or wiped) and broker_id in old.eligible)):
        return None
    gone = (broker_id,) if lost or wiped else ()
    in_sync = old.in_sync
    if is_member and (wiped or len(in_sync) > 1):
        in_sync = tuple(replica for replica in in_sync if replica != broker_id)
    new = old._replace(in_sync=in_sync, eligible=eligible_after(old, in_sync, min_in_sync=min_in_sync, lost=gone))
    if led_by_it or old.leader is None:
        new = with_leader(new, brokers, min_in_sync=min_in_sync, unclean=unclean)
        if new.leader is not None and new.in_sync != in_sync and not is_unclean(old, new):
            new = new._replace(eligible=eligible_after(old, new.in_sync, min_in_sync=min_in_sync, lost=gone))
    return None if new == old else new


def change_to(
    key: PartitionKey, old: Partition, new: Partition, *, new_term: bool = False
) -> metadata_pb2.PartitionChange:
    """The step from the old to the new value, with the partition epoch that was seen.

    The leader epoch rises when the leader changes, to nobody too, and with ``new_term`` even if it is the same broker:
    in another incarnation it may have pushed to followers what it lost itself.
    """
    elected = new_term or new.leader != old.leader
    return metadata_pb2.PartitionChange(
        topic_id=key.topic_id,
        partition=key.partition,
        partition_epoch=old.partition_epoch,
        replicas=new.replicas,
        in_sync=new.in_sync,
        # None instead of an empty list saves a third of this call; a fence makes it for every partition of a broker.
        eligible=new.eligible or None,
        leader=new.leader,
        leader_epoch=old.leader_epoch + elected,
        adding=new.adding or None,
        removing=new.removing or None,
        unclean=elected and is_unclean(old, new),
    )


def partition_change(
    key: PartitionKey, old: Partition, new: Partition, *, new_term: bool = False
) -> metadata_pb2.Change:
    """The same as a change by itself."""
    return metadata_pb2.Change(change_partition=change_to(key, old, new, new_term=new_term))


def in_replica_order(partition: Partition, members: Iterable[int]) -> tuple[int, ...]:
    """The members as the partition orders its replicas, so that equal sets are equal tuples."""
    wanted = set(members)
    return tuple(replica for replica in partition.replicas if replica in wanted)
