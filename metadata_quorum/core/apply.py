"""The only writer of a `ClusterState`: same entries, same state, same answers on every node.

Runs on every quorum node and in every broker that watches. A change is checked completely, then stored completely, so
it is applied as a whole or rejected as a whole; a rejection is a value, because it must be equal everywhere. The rules
are checked here although the controller has decided by the same ones: it may have raced with itself, or have a bug, and
what is committed cannot be taken back.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

from lograft.contract.errors import (
    FencedEpoch,
    Internal,
    InvalidRequest,
    LogError,
    MembershipRefused,
    UnsupportedVersion,
    to_detail,
)
from lograft.metadata_quorum.core import apply_access, apply_brokers, apply_topics
from lograft.metadata_quorum.core.model import ANSWERED_LIMIT, FEATURE_LEVEL, ClusterState, Member
from lograft.v1 import metadata_pb2

# Checks, then stores; what it gave out, or why it was rejected.
_Handler = Callable[[ClusterState, Any, int], metadata_pb2.Applied | LogError]


def unsupported(entry: metadata_pb2.MetadataEntry) -> UnsupportedVersion | None:
    """Why this release cannot apply the entry, if so. Ask before `apply_entry`, and stop: going on would diverge."""
    for change in entry.changes:
        kind = change.WhichOneof("kind")
        if kind is None:
            return UnsupportedVersion("a change in the metadata log", FEATURE_LEVEL + 1, FEATURE_LEVEL)
        if kind == "set_feature_level" and change.set_feature_level.level > FEATURE_LEVEL:
            return UnsupportedVersion("the metadata log", change.set_feature_level.level, FEATURE_LEVEL)
    return None


def apply_entry(
    state: ClusterState,
    entry: metadata_pb2.MetadataEntry,
    *,
    version: int,
    term: int,
    on_bug: Callable[[str, Exception], None] | None = None,
) -> list[metadata_pb2.ChangeResult]:
    """Apply an entry of the log; one result per change, in order.

    Raises nothing that depends on the entry. An exception inside a change is a bug: the change is rejected, so that all
    nodes agree, and ``on_bug`` gets the incident id and the exception for the log.
    """
    skip_entry(state, version=version, term=term)
    refusal = _refusal(state, entry)
    if refusal is not None:
        # Nothing was decided, so nothing is remembered: the same command may come again from the right controller.
        rejected = metadata_pb2.ChangeResult(rejected=to_detail(refusal))
        return [rejected] * len(entry.changes)
    results = [_answer(state, change, entry.controller_epoch, version, on_bug) for change in entry.changes]
    excess = len(state.answered) - ANSWERED_LIMIT
    if excess > 0:
        # Once per entry: finding the oldest key of a dict means to step over all that were deleted before it.
        for command_id in list(islice(state.answered, excess)):
            del state.answered[command_id]
    return results


def skip_entry(state: ClusterState, *, version: int, term: int) -> None:
    """An entry that changes nothing, such as the no-op that begins a term."""
    state.version = version
    state.previous_term, state.term = state.term, term


def _refusal(state: ClusterState, entry: metadata_pb2.MetadataEntry) -> LogError | None:
    """Why nothing of the entry counts: its controller is over, or has not begun."""
    epoch, current = entry.controller_epoch, state.controller_epoch
    if epoch < current:
        return FencedEpoch("controller", epoch, current)
    first = entry.changes[0] if entry.changes else None
    if first is not None and first.WhichOneof("kind") == "claim_controller":
        return _claim_error(state, first.claim_controller, epoch)
    if epoch > current:
        return InvalidRequest(f"controller epoch {epoch} has not been claimed: the current one is {current}")
    return None


def _claim_error(state: ClusterState, claim: metadata_pb2.ClaimController, epoch: int) -> LogError | None:
    if not claim.node:
        return InvalidRequest("a controller needs the name of its quorum node")
    if epoch == state.controller_epoch and claim.node != state.controller_node:
        return FencedEpoch("controller", epoch, state.controller_epoch)
    return None


def _answer(
    state: ClusterState,
    change: metadata_pb2.Change,
    controller_epoch: int,
    version: int,
    on_bug: Callable[[str, Exception], None] | None,
) -> metadata_pb2.ChangeResult:
    command_id = change.command_id
    kind = change.WhichOneof("kind")
    remembered = state.answered.get(command_id) if command_id else None
    # A claim is never answered from memory: the rest of its entry counts on it.
    if remembered is not None and kind != "claim_controller":
        return metadata_pb2.ChangeResult.FromString(remembered)
    try:
        outcome = _applied(state, change, kind, controller_epoch, version)
    except MemoryError:
        # Not a fact of the log but of this process: the others would apply the change. It has to stop, not to diverge.
        raise
    except Exception as bug:
        outcome = Internal(f"apply-{version}")
        if on_bug is not None:
            on_bug(outcome.incident, bug)
    if isinstance(outcome, LogError):
        result = metadata_pb2.ChangeResult(rejected=to_detail(outcome))
    else:
        result = metadata_pb2.ChangeResult(applied=outcome)
    if command_id and remembered is None:
        state.answered[command_id] = result.SerializeToString(deterministic=True)
    return result


def _applied(
    state: ClusterState, change: metadata_pb2.Change, kind: str | None, controller_epoch: int, version: int
) -> metadata_pb2.Applied | LogError:
    if kind is None:
        return UnsupportedVersion("a change in the metadata log", FEATURE_LEVEL + 1, FEATURE_LEVEL)
    if kind == "claim_controller":
        return _claim_controller(state, change.claim_controller, controller_epoch, version)
    return _HANDLERS[kind](state, getattr(change, kind), version)


def _claim_controller(
    state: ClusterState, claim: metadata_pb2.ClaimController, epoch: int, version: int
) -> metadata_pb2.Applied | LogError:
    error = _claim_error(state, claim, epoch)
    if error is not None:
        return error
    state.controller_epoch = epoch
    state.controller_node = claim.node
    # Chosen once: a controller with another idea of it must not turn the cluster into another.
    state.cluster_id = state.cluster_id or claim.cluster_id
    return metadata_pb2.Applied(version=version, number=epoch, id=state.cluster_id)


def _set_feature_level(
    state: ClusterState, change: metadata_pb2.SetFeatureLevel, version: int
) -> metadata_pb2.Applied | LogError:
    if change.level > FEATURE_LEVEL:
        return UnsupportedVersion("the metadata log", change.level, FEATURE_LEVEL)
    if change.level < state.feature_level:
        return InvalidRequest(f"the feature level is {state.feature_level} and never goes down")
    state.feature_level = change.level
    return metadata_pb2.Applied(version=version, number=change.level)


def _set_quorum_members(
    state: ClusterState, change: metadata_pb2.SetQuorumMembers, version: int
) -> metadata_pb2.Applied | LogError:
    members = tuple(Member(member.name, member.directory_id, member.address) for member in change.members)
    names = {member.name for member in members}
    if not members or "" in names or len(names) != len(members):
        return MembershipRefused("there must be at least one, and each needs a name of its own")
    state.members = members
    return metadata_pb2.Applied(version=version)


def _barrier(_state: ClusterState, _change: metadata_pb2.Barrier, version: int) -> metadata_pb2.Applied | LogError:
    return metadata_pb2.Applied(version=version)


_HANDLERS: dict[str, _Handler] = {
    "set_feature_level": _set_feature_level,
    "set_quorum_members": _set_quorum_members,
    "barrier": _barrier,
    "register_broker": apply_brokers.register_broker,
    "fence_broker": apply_brokers.fence_broker,
    "unfence_broker": apply_brokers.unfence_broker,
    "set_broker_draining": apply_brokers.set_broker_draining,
    "retire_broker": apply_brokers.retire_broker,
    "create_topic": apply_topics.create_topic,
    "delete_topic": apply_topics.delete_topic,
    "add_partitions": apply_topics.add_partitions,
    "change_partition": apply_topics.change_partition,
    "alter_config": apply_topics.alter_config,
    "allocate_producer_ids": apply_brokers.allocate_producer_ids,
    "set_user": apply_access.set_user,
    "delete_user": apply_access.delete_user,
    "create_acl": apply_access.create_acl,
    "delete_acl": apply_access.delete_acl,
    "alter_quota": apply_access.alter_quota,
}
