"""The steps of a move: begin, finish, go back. Each takes a `Partition` and returns another one, or why not.

During a move a partition has its old and its new replicas. The old ones go in one step, when all new ones are in sync
and enough of the target are.
"""

from collections.abc import Mapping, Sequence

from lograft.metadata_quorum.core.config_keys import effective_min_in_sync
from lograft.metadata_quorum.core.elect import eligible_after, next_leader, with_leader
from lograft.metadata_quorum.core.model import Broker, Partition


def begun(partition: Partition, target: Sequence[int]) -> Partition:
    """The partition on its way to other replicas. Nobody joins or leaves the in-sync set by this."""
    return partition._replace(
        replicas=_merged(partition.replicas, target),
        adding=tuple(replica for replica in target if replica not in partition.replicas),
        removing=tuple(replica for replica in partition.replicas if replica not in target),
    )


def finished(partition: Partition, brokers: Mapping[int, Broker], *, configured_min: int) -> Partition | None:
    """The partition after its move, or None while something is missing.

    All added replicas are in sync, and of the target as many as ``min.insync.replicas`` will ask for. Then the removed
    ones leave every set, and if the leader is among them another one of the target is elected.
    """
    if not partition.moving or any(replica not in partition.in_sync for replica in partition.adding):
        return None
    done = partition._replace(
        replicas=partition.target,
        in_sync=tuple(replica for replica in partition.in_sync if replica not in partition.removing),
        eligible=(),
        adding=(),
        removing=(),
    )
    if len(done.in_sync) < effective_min_in_sync(configured_min, done):
        return None
    if done.leader in done.in_sync:
        return done
    leader = next_leader(done, brokers)
    # Without a leader nobody knows whether the target will ever be complete: what there is stays.
    return None if leader is None else done._replace(leader=leader)


def cancelled(partition: Partition, brokers: Mapping[int, Broker], *, configured_min: int) -> Partition | str:
    """The partition with its replicas from before the move, or why it cannot go back."""
    if not partition.moving:
        return "it is not being moved"
    back = partition._replace(replicas=partition.original, adding=(), removing=())
    minimum = effective_min_in_sync(configured_min, back)
    in_sync = tuple(replica for replica in partition.in_sync if replica in back.replicas)
    if in_sync != partition.in_sync and len(in_sync) < max(minimum, 1):
        return (
            f"only {len(in_sync)} of the replicas from before are in sync and {max(minimum, 1)} are needed: "
            "the move goes on"
        )
    eligible = eligible_after(partition, in_sync, min_in_sync=minimum)
    back = back._replace(in_sync=in_sync, eligible=tuple(replica for replica in eligible if replica in back.replicas))
    if back.leader in in_sync:
        return back
    return with_leader(back, brokers, min_in_sync=minimum)


def what_is_missing(partition: Partition, brokers: Mapping[int, Broker], *, configured_min: int) -> str:
    """What a move waits for, in words."""
    if partition.leader is None:
        return "a leader: no replica that holds everything is alive"
    missing = [replica for replica in partition.adding if replica not in partition.in_sync]
    if missing:
        return " and ".join(_state_of(brokers.get(replica), replica) for replica in missing)
    target = partition.target
    needed = min(configured_min, len(target))
    in_sync = [replica for replica in target if replica in partition.in_sync]
    if len(in_sync) < needed:
        return f"{needed - len(in_sync)} more of the brokers {_shown(target)} in sync (min.insync.replicas)"
    return "nothing: it is about to finish"


def _state_of(broker: Broker | None, broker_id: int) -> str:
    if broker is None or broker.fenced:
        reason = f" ({broker.fence_reason})" if broker is not None and broker.fence_reason else ""
        return f"broker {broker_id}, which is fenced{reason}"
    if broker.draining:
        return f"broker {broker_id}, which is draining and takes no replicas: cancel the move"
    return f"broker {broker_id} to catch up"


def _shown(replicas: Sequence[int]) -> str:
    return ", ".join(map(str, replicas))


def _merged(present: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """Old and new replicas so that both orders can be read from it; where they disagree that of the target counts.

    The order matters, the first replica is the preferred leader: of the target when the move is done, and of the
    present replicas again when it is cancelled.
    """
    merged: list[int] = []
    leaving = [replica for replica in present if replica not in target]
    for replica in target:
        if replica in present:
            before = present[: present.index(replica)]
            merged += [other for other in before if other in leaving and other not in merged]
        merged.append(replica)
    merged += [replica for replica in leaving if replica not in merged]
    return tuple(merged)
