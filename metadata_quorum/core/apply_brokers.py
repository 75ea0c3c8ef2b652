"""Changes of brokers: registration, fencing, draining, retirement, and the producer ids they are given.

Part of `apply`: every function checks first, then stores, and returns what it gave out or why it was rejected.
"""

from dataclasses import replace

from lograft.contract.errors import BrokerInUse, FencedEpoch, InvalidRequest, LogError, UnknownBroker
from lograft.metadata_quorum.core.apply_partitions import Plan, planned_changes, store
from lograft.metadata_quorum.core.model import Broker, ClusterState, ConfigKey, Endpoint
from lograft.v1 import metadata_pb2


def register_broker(
    state: ClusterState, change: metadata_pb2.RegisterBroker, version: int
) -> metadata_pb2.Applied | LogError:
    """A new incarnation, fenced until it has caught up. The answer is its broker epoch."""
    if not change.incarnation_id:
        return InvalidRequest(f"broker {change.broker_id} registers without an incarnation id")
    former = state.brokers.get(change.broker_id)
    if former is not None and former.incarnation_id == change.incarnation_id:
        return metadata_pb2.Applied(version=version, number=former.broker_epoch)
    broker = Broker(
        broker_id=change.broker_id,
        broker_epoch=state.next_broker_epoch,
        incarnation_id=change.incarnation_id,
        directory_id=change.directory_id,
        endpoints=tuple(Endpoint(point.name, point.host, point.port) for point in change.endpoints),
        rack=change.rack,
        draining=former is not None and former.draining,
        registered_version=version,
        registered_at_ms=change.registered_at_ms,
    )
    same_directory = former is not None and bool(change.directory_id) and former.directory_id == change.directory_id
    wiped = None if same_directory else change.broker_id
    plan = planned_changes(state, change.partitions, {**state.brokers, broker.broker_id: broker}, wiped=wiped)
    if isinstance(plan, LogError):
        return plan
    forgotten = _forgotten(state, broker.broker_id, plan, wiped=not same_directory)
    if forgotten is not None:
        return forgotten
    state.next_broker_epoch += 1
    state.brokers[broker.broker_id] = broker
    store(state, plan)
    return metadata_pb2.Applied(version=version, number=broker.broker_epoch)


def fence_broker(
    state: ClusterState, change: metadata_pb2.FenceBroker, version: int
) -> metadata_pb2.Applied | LogError:
    """The broker leads nothing from here on."""
    broker = _current(state, change.broker_id, change.broker_epoch)
    if isinstance(broker, LogError):
        return broker
    broker = replace(broker, fenced=True, fence_reason=change.reason)
    plan = planned_changes(state, change.partitions, {**state.brokers, broker.broker_id: broker})
    if isinstance(plan, LogError):
        return plan
    forgotten = _forgotten(state, broker.broker_id, plan, wiped=False)
    if forgotten is not None:
        return forgotten
    state.brokers[broker.broker_id] = broker
    store(state, plan)
    return metadata_pb2.Applied(version=version)


def unfence_broker(
    state: ClusterState, change: metadata_pb2.UnfenceBroker, version: int
) -> metadata_pb2.Applied | LogError:
    """The broker may lead, and leads what waited for it."""
    broker = _current(state, change.broker_id, change.broker_epoch)
    if isinstance(broker, LogError):
        return broker
    broker = replace(broker, fenced=False, fence_reason="")
    plan = planned_changes(state, change.partitions, {**state.brokers, broker.broker_id: broker})
    if isinstance(plan, LogError):
        return plan
    state.brokers[broker.broker_id] = broker
    store(state, plan)
    return metadata_pb2.Applied(version=version)


def set_broker_draining(
    state: ClusterState, change: metadata_pb2.SetBrokerDraining, version: int
) -> metadata_pb2.Applied | LogError:
    """Whether the broker is to be emptied."""
    broker = state.brokers.get(change.broker_id)
    if broker is None:
        return UnknownBroker(change.broker_id)
    state.brokers[broker.broker_id] = replace(broker, draining=change.draining)
    return metadata_pb2.Applied(version=version)


def retire_broker(
    state: ClusterState, change: metadata_pb2.RetireBroker, version: int
) -> metadata_pb2.Applied | LogError:
    """Forget a broker that is dead and empty."""
    broker = state.brokers.get(change.broker_id)
    if broker is None:
        return UnknownBroker(change.broker_id)
    if not broker.fenced:
        return BrokerInUse(broker.broker_id, "it is alive: stop it first")
    held = len(state.replicas_on.get(broker.broker_id, ()))
    if held:
        return BrokerInUse(broker.broker_id, f"it holds {held} replicas: move them away first")
    del state.brokers[broker.broker_id]
    state.configs.pop(ConfigKey(metadata_pb2.CONFIG_RESOURCE_BROKER, str(broker.broker_id)), None)
    return metadata_pb2.Applied(version=version)


def allocate_producer_ids(
    state: ClusterState, change: metadata_pb2.AllocateProducerIds, version: int
) -> metadata_pb2.Applied | LogError:
    """Producer ids that nobody else gets. The answer is the first."""
    broker = _current(state, change.broker_id, change.broker_epoch)
    if isinstance(broker, LogError):
        return broker
    if not change.count:
        return InvalidRequest("a block of producer ids has at least one")
    first = state.next_producer_id
    state.next_producer_id += change.count
    return metadata_pb2.Applied(version=version, number=first)


def _current(state: ClusterState, broker_id: int, broker_epoch: int) -> Broker | LogError:
    """The broker, if the epoch is that of its present incarnation."""
    broker = state.brokers.get(broker_id)
    if broker is None:
        return UnknownBroker(broker_id)
    if broker.broker_epoch != broker_epoch:
        return FencedEpoch(f"broker {broker_id}", broker_epoch, broker.broker_epoch)
    return broker


def _forgotten(state: ClusterState, broker_id: int, plan: Plan, *, wiped: bool) -> LogError | None:
    """A partition that the broker would still lead, or count for although its log is gone.

    What the plan does change is sound: a fenced broker cannot be a leader there, and one with another directory cannot
    stay in sync.
    """
    for key, partition in state.partitions_on(broker_id):
        counts = partition.leader == broker_id or (wiped and broker_id in (*partition.in_sync, *partition.eligible))
        if counts and key not in plan:
            name = state.topics[key.topic_id].name
            return InvalidRequest(f"{name}-{key.partition} counts on broker {broker_id} and is left out of the change")
    return None
