"""One door to all decisions: an operation as it was asked for becomes the change to commit, or the error to answer."""

from dataclasses import dataclass

from lograft.contract.errors import InvalidRequest, LogError
from lograft.metadata_quorum.core import access, brokers, in_sync, moves, topics
from lograft.metadata_quorum.core.model import ClusterState, Credential
from lograft.v1 import cluster_pb2, metadata_pb2

COMMAND_ID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the decisions cannot know by themselves: the controller has read it from a clock, a die and its sessions."""

    now_ms: int
    # Fresh, for a topic that is created.
    new_id: str = ""
    # Where the placement of new partitions begins.
    start: int = 0
    # Brokers with a living session.
    alive: frozenset[int] = frozenset()
    # Made of the password of a set_user operation.
    credential: Credential | None = None


def decide(state: ClusterState, operation: cluster_pb2.Operation, context: Context) -> metadata_pb2.Change | LogError:
    """The change that does what was asked, with the id of the command."""
    command_id = operation.command_id
    if len(command_id) not in (0, COMMAND_ID_BYTES):
        return InvalidRequest(f"a command id has {COMMAND_ID_BYTES} bytes, not {len(command_id)}")
    if command_id and command_id in state.answered:
        # `apply` answers with the first result. To decide again would say "exists already" to a repeated creation.
        return metadata_pb2.Change(command_id=command_id, barrier=metadata_pb2.Barrier())
    change = _decided(state, operation, context)
    if isinstance(change, metadata_pb2.Change):
        change.command_id = command_id
    return change


def _decided(  # noqa: PLR0912 - one line per operation
    state: ClusterState, operation: cluster_pb2.Operation, context: Context
) -> metadata_pb2.Change | LogError:
    match operation.WhichOneof("kind"):
        case "create_topic":
            return topics.create(
                state, operation.create_topic, topic_id=context.new_id, now_ms=context.now_ms, start=context.start
            )
        case "delete_topic":
            return topics.delete(state, operation.delete_topic)
        case "add_partitions":
            return topics.add_partitions(state, operation.add_partitions, start=context.start)
        case "alter_config":
            return topics.alter_config(state, operation.alter_config)
        case "elect_leader":
            return moves.elect(state, operation.elect_leader)
        case "move_partition":
            return moves.move(state, operation.move_partition)
        case "cancel_move":
            return moves.cancel(state, operation.cancel_move)
        case "drain_broker":
            return brokers.drain(state, operation.drain_broker)
        case "retire_broker":
            retired = operation.retire_broker
            return brokers.retire(state, retired, alive=retired.broker_id in context.alive)
        case "register_broker":
            registered = operation.register_broker
            alive = registered.broker_id in context.alive
            return brokers.register(state, registered, alive=alive, now_ms=context.now_ms)
        case "stop_broker":
            return brokers.stop(state, operation.stop_broker)
        case "change_in_sync":
            return in_sync.change_in_sync(state, operation.change_in_sync)
        case "offer_leadership":
            return in_sync.offer_leadership(state, operation.offer_leadership)
        case "allocate_producer_ids":
            return brokers.allocate_producer_ids(state, operation.allocate_producer_ids)
        case "set_user":
            return access.set_user(state, operation.set_user, context.credential)
        case "delete_user":
            return access.delete_user(state, operation.delete_user)
        case "create_acl":
            return access.create_acl(state, operation.create_acl)
        case "delete_acl":
            return access.delete_acl(state, operation.delete_acl)
        case "alter_quota":
            return access.alter_quota(state, operation.alter_quota)
        case "barrier":
            return metadata_pb2.Change(barrier=metadata_pb2.Barrier())
        case _:
            return InvalidRequest("an operation that says nothing, or that this release does not know")
