"""Many small clusters under faults, each from a seed. A failure shows its seed, the last events, how to repeat it."""

import os

import pytest

from lograft.chaos.sim.cluster import run
from lograft.chaos.sim.oracle import snapshot_bytes
from lograft.metadata_quorum.core import in_sync, moves
from lograft.metadata_quorum.core.apply import apply_entry
from lograft.metadata_quorum.core.model import ClusterState
from lograft.v1 import cluster_pb2
from lograft.v1 import metadata_pb2 as pb

_SEED = os.environ.get("LOGRAFT_TEST_SEED")
_SEEDS = [int(_SEED)] if _SEED else list(range(20 * int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))))


@pytest.mark.parametrize("seed", _SEEDS)
def test_cluster_under_faults_keeps_its_promises(seed):
    run(seed)


def test_same_seed_when_run_twice_then_ends_in_the_same_state():
    assert snapshot_bytes(run(3, stormy_ms=4_000).truth) == snapshot_bytes(run(3, stormy_ms=4_000).truth)


# What the simulation has found, in short. Seeds do not last: another draw in the model is another history.


def _applied(state, *changes):
    entry = pb.MetadataEntry(controller_epoch=1, changes=changes)
    return apply_entry(state, entry, version=state.version + 1, term=1)


def _cluster(brokers, assignment, minimum):
    state = ClusterState()
    _applied(state, pb.Change(claim_controller=pb.ClaimController(node="q0", cluster_id="c")))
    for broker_id in range(1, brokers + 1):
        register = pb.RegisterBroker(broker_id=broker_id, incarnation_id=f"i{broker_id}", directory_id=f"d{broker_id}")
        unfence = pb.UnfenceBroker(broker_id=broker_id, broker_epoch=broker_id)
        _applied(state, pb.Change(register_broker=register), pb.Change(unfence_broker=unfence))
    topic = pb.CreateTopic(name="t", topic_id="t", assignments=[assignment], configs={"min.insync.replicas": minimum})
    _applied(state, pb.Change(create_topic=topic))
    return state


def test_shrink_when_minimum_is_lowered_in_the_same_entry_then_leaves_nobody_eligible():
    state = _cluster(2, pb.Assignment(replicas=[1, 2], in_sync=[1, 2], leader=1), "2")
    shrink = in_sync.change_in_sync(
        state,
        cluster_pb2.ChangeInSyncOperation(
            broker_id=1, broker_epoch=1, topic_id="t", in_sync=[cluster_pb2.InSyncMember(broker_id=1, broker_epoch=1)]
        ),
    )
    lower = pb.AlterConfig(resource=pb.CONFIG_RESOURCE_TOPIC, name="t", set={"min.insync.replicas": "1"})
    _applied(state, pb.Change(alter_config=lower), shrink)
    # Broker 1 alone may commit from here on: broker 2 would miss it.
    assert state.topics["t"].partitions[0].eligible == ()


def test_drain_when_a_move_waits_for_a_draining_replica_then_calls_it_off():
    state = _cluster(3, pb.Assignment(replicas=[1, 2], in_sync=[1], leader=1), "1")
    operation = cluster_pb2.MovePartitionOperation(topic="t", partition=0, replicas=[2])
    _applied(state, moves.move(state, operation))
    _applied(state, *(pb.Change(set_broker_draining=pb.SetBrokerDraining(broker_id=n, draining=True)) for n in (1, 2)))
    _applied(state, *moves.next_drain_moves(state, limit=10))
    assert not state.topics["t"].partitions[0].moving
