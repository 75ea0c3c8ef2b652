"""Registration, fencing and the end of brokers, each decision applied to a real state."""

import pytest

from lograft.contract.errors import (
    BrokerIdInUse,
    BrokerInUse,
    FencedEpoch,
    InvalidRequest,
    UnknownBroker,
    WrongCluster,
)
from lograft.metadata_quorum.core import brokers
from lograft.metadata_quorum.core.model import PRODUCER_ID_BLOCK
from lograft.v1 import cluster_pb2, metadata_pb2


def shape(partition) -> tuple:
    return partition.leader, partition.in_sync, partition.eligible


def refused(cluster, *, alive: bool = False, **options):
    op = cluster.registration(options.pop("broker_id", 1), **options)
    return brokers.register(cluster.state, op, alive=alive, now_ms=5)


# Registration


def test_register_when_new_then_fenced_with_an_epoch(cluster) -> None:
    assert cluster.register(1, rack="r1") == 1
    broker = cluster.state.brokers[1]
    assert (broker.fenced, broker.rack, broker.endpoints[0].port) == (True, "r1", 9001)
    assert broker.registered_at_ms > 0


def test_register_when_meant_for_another_cluster_then_wrong_cluster(cluster) -> None:
    error = refused(cluster, cluster_id="c2")
    assert isinstance(error, WrongCluster)
    assert (error.found, error.expected) == ("c1", "c2")
    assert isinstance(refused(cluster, cluster_id="c1"), metadata_pb2.Change)


@pytest.mark.parametrize(
    "options",
    [
        {"broker_id": 1 << 31},
        {"incarnation_id": ""},
        {"endpoints": []},
        {"endpoints": [metadata_pb2.Endpoint(name="client", host="", port=1)]},
        {"endpoints": [metadata_pb2.Endpoint(name="client", host="h", port=0)]},
        {"endpoints": [metadata_pb2.Endpoint(name="client", host="h", port=65_536)]},
        {"endpoints": [metadata_pb2.Endpoint(name="client", host="h", port=1)] * 2},
    ],
)
def test_register_when_malformed_then_invalid(cluster, options) -> None:
    assert isinstance(refused(cluster, **options), InvalidRequest)


def test_register_when_id_at_the_limits_then_taken(cluster) -> None:
    for broker_id in (0, (1 << 31) - 1):
        assert isinstance(refused(cluster, broker_id=broker_id), metadata_pb2.Change)


def test_register_when_former_incarnation_is_alive_then_id_in_use(trio) -> None:
    error = refused(trio, alive=True, incarnation_id="other")
    assert isinstance(error, BrokerIdInUse)
    assert error.broker_id == 1


def test_register_when_same_incarnation_repeats_then_same_epoch_and_nothing_changes(trio) -> None:
    broker, before = trio.state.brokers[1], trio.partition()
    op = trio.registration(1, incarnation_id=broker.incarnation_id)
    applied = trio.commit(brokers.register(trio.state, op, alive=True, now_ms=5))
    assert applied.number == broker.broker_epoch
    assert trio.partition() == before
    assert not trio.state.brokers[1].fenced


def test_register_when_former_said_that_it_stops_then_taken_at_once(trio) -> None:
    op = cluster_pb2.StopBrokerOperation(broker_id=1, broker_epoch=trio.epoch(1))
    trio.commit(brokers.stop(trio.state, op))
    assert isinstance(refused(trio, alive=True), metadata_pb2.Change)


def test_register_when_it_led_then_another_leads_in_a_new_epoch(trio) -> None:
    trio.register(1)
    assert shape(trio.partition()) == (2, (2, 3), ())
    assert trio.partition().leader_epoch == 1


def test_register_when_last_in_sync_then_stays_and_leads_again_in_another_epoch(cluster) -> None:
    cluster.start(1)
    cluster.topic("t", (1,))
    cluster.register(1)
    assert shape(cluster.partition()) == (None, (1,), ())
    cluster.unfence(1)
    assert shape(cluster.partition()) == (1, (1,), ())
    assert cluster.partition().leader_epoch == 2


@pytest.mark.parametrize(("clean", "eligible"), [(True, (1,)), (False, ())])
def test_register_when_dropped_below_minimum_then_eligible_only_after_a_clean_stop(trio, clean, eligible) -> None:
    trio.fence(3)
    options = {"clean_stop_epoch": trio.epoch(1)} if clean else {}
    trio.register(1, **options)
    assert shape(trio.partition()) == (2, (2,), eligible)


@pytest.mark.parametrize(("clean", "eligible"), [(True, (1,)), (False, ())])
def test_register_when_eligible_then_stays_so_only_after_a_clean_stop(trio, clean, eligible) -> None:
    trio.fence(3, 1)
    assert shape(trio.partition()) == (2, (2,), (1,))
    trio.register(1, clean_stop_epoch=trio.epoch(1) if clean else 99)
    assert trio.partition().eligible == eligible


@pytest.mark.parametrize("directory_id", ["", "other"])
def test_register_when_directory_is_another_then_out_of_every_set(trio, directory_id) -> None:
    trio.topic("alone", (1,))
    trio.topic("pair", (2, 1))
    trio.fence(2)
    assert shape(trio.partition("pair")) == (1, (1,), (2,))
    trio.register(1, directory_id=directory_id, clean_stop_epoch=trio.epoch(1))
    assert shape(trio.partition()) == (3, (3,), ())
    assert shape(trio.partition("alone")) == (None, (), ())
    assert shape(trio.partition("pair")) == (None, (), (2,))
    trio.unfence(1)
    assert shape(trio.partition("alone")) == (None, (), ())
    trio.unfence(2)
    assert shape(trio.partition("pair")) == (2, (2,), ())


def test_register_when_wiped_eligible_then_not_eligible_any_more(trio) -> None:
    trio.fence(3, 1)
    trio.register(1, directory_id="other", clean_stop_epoch=trio.epoch(1))
    assert shape(trio.partition()) == (2, (2,), ())


def test_register_when_replica_damaged_then_leaves_in_sync_and_is_not_eligible(trio) -> None:
    trio.topic("u", (1, 2, 3))
    trio.fence(3)
    damaged = [cluster_pb2.DamagedReplica(topic_id="id-t", partition=0)]
    trio.register(1, clean_stop_epoch=trio.epoch(1), damaged=damaged)
    assert shape(trio.partition("t")) == (2, (2,), ())
    assert shape(trio.partition("u")) == (2, (2,), (1,))


def test_register_when_damaged_replica_is_the_last_member_then_offline_but_kept(cluster) -> None:
    cluster.start(1)
    cluster.topic("t", (1,))
    cluster.register(1, damaged=[cluster_pb2.DamagedReplica(topic_id="id-t", partition=0)])
    assert shape(cluster.partition()) == (None, (1,), ())


def test_register_when_damaged_last_member_has_an_eligible_replacement_then_that_leads(trio) -> None:
    trio.set_partition(in_sync=(1,), eligible=(2,))
    trio.register(1, damaged=[cluster_pb2.DamagedReplica(topic_id="id-t", partition=0)])
    assert shape(trio.partition()) == (2, (2,), ())


def test_register_when_draining_then_goes_on_draining(trio) -> None:
    trio.drain(1)
    trio.register(1)
    assert trio.state.brokers[1].draining


# Fencing


def test_fence_when_unknown_then_error(cluster) -> None:
    assert isinstance(brokers.fence(cluster.state, 7, "x"), UnknownBroker)
    assert isinstance(brokers.unfence(cluster.state, 7), UnknownBroker)


def test_fence_moves_every_leadership_in_one_change_and_keeps_the_reason(trio) -> None:
    trio.topic("u", (1, 2), (2, 1), (3, 2))
    trio.fence(1)
    assert trio.state.brokers[1].fence_reason == "session timed out"
    assert [trio.partition("u", number).leader for number in range(3)] == [2, 2, 3]
    assert shape(trio.partition("u", 0)) == (2, (2,), (1,))


def test_fence_when_minimum_is_one_then_the_dropped_is_not_eligible(trio) -> None:
    trio.topic("u", (1, 2), min_insync_replicas="1")
    trio.fence(1)
    assert shape(trio.partition("u")) == (2, (2,), ())


def test_fence_when_all_go_then_the_last_stays_in_sync_and_the_eligible_are_known(trio) -> None:
    trio.fence(1, 2, 3)
    assert shape(trio.partition()) == (None, (3,), (2,))


def test_fence_when_repeated_then_nothing_more_changes(trio) -> None:
    trio.fence(1)
    before = trio.partition()
    trio.fence(1)
    assert trio.partition() == before


def test_fence_when_topic_allows_unclean_then_an_out_of_sync_replica_leads(trio) -> None:
    trio.topic("u", (1, 2), min_insync_replicas="1", unclean_leader_election_enable="true")
    trio.topic("v", (1, 2), min_insync_replicas="1")
    trio.fence(2)
    trio.unfence(2)
    trio.fence(1)
    assert shape(trio.partition("u")) == (2, (2,), ())
    assert shape(trio.partition("v")) == (None, (1,), ())


# Unfencing


def test_unfence_when_in_sync_of_a_leaderless_partition_then_elected(trio) -> None:
    trio.fence(1, 2, 3)
    trio.unfence(3)
    assert shape(trio.partition()) == (3, (3,), (2,))


def test_unfence_when_eligible_then_elected_alone_and_the_awaited_one_is_not_trusted_blindly(trio) -> None:
    trio.fence(1, 2, 3)
    trio.unfence(2)
    assert shape(trio.partition()) == (2, (2,), ())


def test_unfence_when_neither_then_waits(trio) -> None:
    trio.fence(1, 2, 3)
    trio.unfence(1)
    assert shape(trio.partition()) == (None, (3,), (2,))


def test_unfence_when_topic_allows_unclean_then_elected_although_records_are_lost(trio) -> None:
    trio.topic("u", (1, 2, 3), unclean_leader_election_enable="true")
    trio.fence(1, 2, 3)
    trio.unfence(1)
    assert shape(trio.partition("u")) == (1, (1,), ())


def test_unfence_when_another_leads_then_nothing_changes(trio) -> None:
    trio.fence(1)
    before = trio.partition()
    trio.unfence(1)
    assert trio.partition() == before


# Stop, drain, retire, producer ids


def test_stop_fences_with_its_reason_and_needs_the_present_epoch(trio) -> None:
    stale = cluster_pb2.StopBrokerOperation(broker_id=1, broker_epoch=trio.epoch(1) + 1)
    assert isinstance(brokers.stop(trio.state, stale), FencedEpoch)
    unknown = cluster_pb2.StopBrokerOperation(broker_id=8)
    assert isinstance(brokers.stop(trio.state, unknown), UnknownBroker)
    op = cluster_pb2.StopBrokerOperation(broker_id=1, broker_epoch=trio.epoch(1))
    trio.commit(brokers.stop(trio.state, op))
    assert trio.state.brokers[1].fence_reason == brokers.STOPPED
    assert trio.partition().leader == 2


def test_drain_and_cancel(trio) -> None:
    trio.drain(2)
    assert trio.state.brokers[2].draining
    trio.drain(2, cancel=True)
    assert not trio.state.brokers[2].draining
    assert isinstance(brokers.drain(trio.state, cluster_pb2.DrainBrokerOperation(broker_id=9)), UnknownBroker)


def test_retire_needs_a_dead_and_empty_broker(trio) -> None:
    def retire(broker_id: int, **options):
        return brokers.retire(trio.state, cluster_pb2.RetireBrokerOperation(broker_id=broker_id), **options)

    trio.start(4)
    assert isinstance(retire(9), UnknownBroker)
    assert isinstance(retire(4), BrokerInUse)
    trio.fence(1, 4)
    assert "holds 1 replicas" in str(retire(1))
    assert isinstance(retire(4, alive=True), BrokerInUse)
    trio.commit(retire(4))
    assert 4 not in trio.state.brokers


def test_allocate_producer_ids_gives_blocks_to_present_incarnations(trio) -> None:
    op = cluster_pb2.AllocateProducerIdsOperation(broker_id=1, broker_epoch=trio.epoch(1))
    first = trio.commit(brokers.allocate_producer_ids(trio.state, op)).number
    second = trio.commit(brokers.allocate_producer_ids(trio.state, op)).number
    assert second - first == PRODUCER_ID_BLOCK
    op.broker_epoch += 1
    assert isinstance(brokers.allocate_producer_ids(trio.state, op), FencedEpoch)
