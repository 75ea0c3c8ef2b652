"""What becomes of brokers, and of their partitions with them: registration, fencing, draining, retirement.

Each function reads the state and returns the change to commit, or the error to answer with. All partitions of a broker
are in one change: there is no moment at which the broker is fenced and still leads.
"""

from collections.abc import Mapping
from dataclasses import replace

from lograft.contract.errors import (
    BrokerIdInUse,
    BrokerInUse,
    FencedEpoch,
    InvalidRequest,
    LogError,
    UnknownBroker,
    WrongCluster,
)
from lograft.metadata_quorum.core import config_keys
from lograft.metadata_quorum.core.elect import change_to, with_leader, without_broker
from lograft.metadata_quorum.core.model import PRODUCER_ID_BLOCK, Broker, ClusterState, PartitionKey
from lograft.v1 import cluster_pb2, metadata_pb2

MAX_BROKER_ID = (1 << 31) - 1
# Reason of a fence that the broker asked for. Such an incarnation is never unfenced again: it is about to exit.
STOPPED = "stopped"


def current_broker(state: ClusterState, broker_id: int, broker_epoch: int) -> Broker | LogError:
    """The broker, if the epoch is that of its present incarnation."""
    broker = state.brokers.get(broker_id)
    if broker is None:
        return UnknownBroker(broker_id)
    if broker.broker_epoch != broker_epoch:
        return FencedEpoch(f"broker {broker_id}", broker_epoch, broker.broker_epoch)
    return broker


def register(
    state: ClusterState, op: cluster_pb2.RegisterBrokerOperation, *, alive: bool, now_ms: int
) -> metadata_pb2.Change | LogError:
    """A broker process has started. ``alive``: its former incarnation still has a living session."""
    problem = _registration_problem(state, op)
    if problem is not None:
        return problem
    former = state.brokers.get(op.broker_id)
    change = metadata_pb2.RegisterBroker(
        broker_id=op.broker_id,
        incarnation_id=op.incarnation_id,
        directory_id=op.directory_id,
        endpoints=op.endpoints,
        rack=op.rack,
        registered_at_ms=now_ms,
    )
    if former is not None and former.incarnation_id != op.incarnation_id:
        # One that has said that it stops is in nobody's way, although its session may not have ended yet.
        if alive and former.fence_reason != STOPPED:
            return BrokerIdInUse(op.broker_id, former.incarnation_id)
        change.partitions.extend(_restarted(state, former, op))
    # The same incarnation asks again because it missed the answer: it gets the epoch that it has.
    return metadata_pb2.Change(register_broker=change)


def fence(state: ClusterState, broker_id: int, reason: str) -> metadata_pb2.Change | LogError:
    """The broker is taken for dead: each of its partitions gets another leader if it has one."""
    broker = state.brokers.get(broker_id)
    if broker is None:
        return UnknownBroker(broker_id)
    brokers = {**state.brokers, broker_id: replace(broker, fenced=True)}
    settings = _Settings(state)
    changes = []
    for key, old in state.partitions_on(broker_id):
        configured, unclean = settings[key.topic_id]
        minimum = config_keys.effective_min_in_sync(configured, old)
        new = without_broker(old, broker_id, brokers, min_in_sync=minimum, unclean=unclean)
        if new is not None:
            changes.append(change_to(key, old, new))
    return metadata_pb2.Change(
        fence_broker=metadata_pb2.FenceBroker(
            broker_id=broker_id, broker_epoch=broker.broker_epoch, partitions=changes, reason=reason
        )
    )


def unfence(state: ClusterState, broker_id: int) -> metadata_pb2.Change | LogError:
    """The broker has caught up with the metadata: it leads what waited for it."""
    broker = state.brokers.get(broker_id)
    if broker is None:
        return UnknownBroker(broker_id)
    brokers = {**state.brokers, broker_id: replace(broker, fenced=False)}
    settings = _Settings(state)
    changes = []
    for key, old in state.partitions_on(broker_id):
        if old.leader is not None:
            continue
        configured, unclean = settings[key.topic_id]
        minimum = config_keys.effective_min_in_sync(configured, old)
        new = with_leader(old, brokers, min_in_sync=minimum, unclean=unclean)
        if new.leader is not None:
            changes.append(change_to(key, old, new))
    return metadata_pb2.Change(
        unfence_broker=metadata_pb2.UnfenceBroker(
            broker_id=broker_id, broker_epoch=broker.broker_epoch, partitions=changes
        )
    )


def stop(state: ClusterState, op: cluster_pb2.StopBrokerOperation) -> metadata_pb2.Change | LogError:
    """The broker is about to stop in good order."""
    broker = current_broker(state, op.broker_id, op.broker_epoch)
    return broker if isinstance(broker, LogError) else fence(state, op.broker_id, STOPPED)


def drain(state: ClusterState, op: cluster_pb2.DrainBrokerOperation) -> metadata_pb2.Change | LogError:
    """Begin or cancel the draining of a broker; the moves themselves come from `moves.next_drain_moves`."""
    if op.broker_id not in state.brokers:
        return UnknownBroker(op.broker_id)
    return metadata_pb2.Change(
        set_broker_draining=metadata_pb2.SetBrokerDraining(broker_id=op.broker_id, draining=not op.cancel)
    )


def retire(
    state: ClusterState, op: cluster_pb2.RetireBrokerOperation, *, alive: bool = False
) -> metadata_pb2.Change | LogError:
    """Forget a broker that is stopped and holds nothing."""
    broker = state.brokers.get(op.broker_id)
    if broker is None:
        return UnknownBroker(op.broker_id)
    if alive or not broker.fenced:
        return BrokerInUse(op.broker_id, "it is alive: stop it first")
    held = len(state.replicas_on.get(op.broker_id, ()))
    if held:
        return BrokerInUse(op.broker_id, f"it holds {held} replicas: drain it first")
    return metadata_pb2.Change(retire_broker=metadata_pb2.RetireBroker(broker_id=op.broker_id))


def allocate_producer_ids(
    state: ClusterState, op: cluster_pb2.AllocateProducerIdsOperation
) -> metadata_pb2.Change | LogError:
    """A block of producer ids for one broker."""
    broker = current_broker(state, op.broker_id, op.broker_epoch)
    if isinstance(broker, LogError):
        return broker
    return metadata_pb2.Change(
        allocate_producer_ids=metadata_pb2.AllocateProducerIds(
            broker_id=op.broker_id, broker_epoch=op.broker_epoch, count=PRODUCER_ID_BLOCK
        )
    )


class _Settings(dict[str, tuple[int, bool]]):
    """``min.insync.replicas`` and whether unclean elections are wished, looked up once per topic."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__()
        self._state = state

    def __missing__(self, topic_id: str) -> tuple[int, bool]:
        value = (
            config_keys.topic_int(self._state, topic_id, config_keys.MIN_IN_SYNC),
            config_keys.topic_bool(self._state, topic_id, config_keys.UNCLEAN_ELECTION),
        )
        self[topic_id] = value
        return value


def _registration_problem(state: ClusterState, op: cluster_pb2.RegisterBrokerOperation) -> LogError | None:
    if op.cluster_id and op.cluster_id != state.cluster_id:
        return WrongCluster(state.cluster_id, op.cluster_id)
    if op.broker_id > MAX_BROKER_ID:
        return InvalidRequest(f"broker id {op.broker_id} is above {MAX_BROKER_ID}")
    if not op.incarnation_id:
        return InvalidRequest(f"broker {op.broker_id} registers without an incarnation id")
    if not op.endpoints:
        return InvalidRequest(f"broker {op.broker_id} registers without an endpoint: nobody could reach it")
    for endpoint in op.endpoints:
        if not (endpoint.name and endpoint.host and 0 < endpoint.port < 1 << 16):
            address = f"{endpoint.name!r} {endpoint.host!r}:{endpoint.port}"
            return InvalidRequest(f"broker {op.broker_id}: an endpoint has a name, a host and a port, not {address}")
    if len({endpoint.name for endpoint in op.endpoints}) != len(op.endpoints):
        return InvalidRequest(f"broker {op.broker_id} registers two endpoints of one name")
    return None


def _restarted(
    state: ClusterState, former: Broker, op: cluster_pb2.RegisterBrokerOperation
) -> list[metadata_pb2.PartitionChange]:
    """What becomes of the partitions that counted on the former incarnation."""
    wiped = not op.directory_id or op.directory_id != former.directory_id
    # What it held without a sync may be gone after a crash: it cannot be counted on for all that is committed.
    unclean_restart = not op.HasField("clean_stop_epoch") or op.clean_stop_epoch != former.broker_epoch
    damaged = {PartitionKey(replica.topic_id, replica.partition) for replica in op.damaged}
    brokers: Mapping[int, Broker] = {**state.brokers, former.broker_id: replace(former, fenced=True)}
    settings = _Settings(state)
    changes = []
    for key, old in state.partitions_on(former.broker_id):
        configured, unclean = settings[key.topic_id]
        new = without_broker(
            old,
            former.broker_id,
            brokers,
            min_in_sync=config_keys.effective_min_in_sync(configured, old),
            lost=unclean_restart or key in damaged,
            wiped=wiped,
            unclean=unclean,
        )
        if new is not None:
            changes.append(change_to(key, old, new))
    return changes
